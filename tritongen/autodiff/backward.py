"""Derives the backward op of an op.

Input: an op. Output: an op over the same operands, the outputs that derivatives read, and `dy` for each output y. It returns
`dx` for each floating operand and scalar x:

    op square<T: float>(x: T[N]) -> y: T[N] { y[n] = x[n] ** 2 }
    op square_backward<T: float>(x: T[N], dy: T[N]) -> dx: T[N] { dx[n] = 2 * dy[n] * x[n] }

Its lines, in order: forward temporaries that are read again, the gradients of temporaries from the last to the first, the
gradients of the operands. Batch dims are summed only if an operand has none of them. Where they broadcast, the caller
sums.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from tritongen.autodiff import batches, exprs, flow, places, zero
from tritongen.autodiff.again import computed_again
from tritongen.autodiff.assemble import assemble, cotangent
from tritongen.autodiff.empty_folds import with_divisors_of_1
from tritongen.autodiff.inline import inline, read_back
from tritongen.autodiff.invert import Target, invert
from tritongen.autodiff.kept import from_kept
from tritongen.autodiff.lift import lift
from tritongen.autodiff.partial_sums import with_partial_sums
from tritongen.autodiff.products import in_stored_types
from tritongen.autodiff.quotients import quotients, rounds_apart, use_quotients
from tritongen.autodiff.rows import with_row_lines
from tritongen.autodiff.term import condition_of, write
from tritongen.autodiff.wanted import ALWAYS, NEVER, Wanted, both, either, whole, without_repeats
from tritongen.errors import Diagnostic, SpecError
from tritongen.ir import algebra
from tritongen.ir.algebra import Poly, index
from tritongen.ir.bounds import Facts, facts_of
from tritongen.ir.free import all_binders, all_indices, folds_of, needed, tensors_read
from tritongen.ir.names import free_name, fresh
from tritongen.ir.nodes import (
    BATCH,
    BATCH_SIZE,
    Binder,
    Call,
    Const,
    Constant,
    Define,
    Expr,
    Nest,
    Op,
    Param,
    Read,
    Reduce,
    ScalarRef,
    Tensor,
    core,
    kind_of,
    may_be_f64,
    walk,
)
from tritongen.ir.prune import pruned
from tritongen.ir.rename import renamed
from tritongen.syntax.names import NOT_LINES
from tritongen.syntax.names import kind_of as reserved_as

ZERO = Poly()
PLAIN, MOST = 128, 1024  # operations in the gradient of a part of a line: as it is written, at all
# From a max to what no longer changes with it: t = x - m, e = exp(t), its sum, the quotient.
ROUNDS = 6


SAYS_NONE, NO_OPERAND, NO_OUTPUT = (
    "it says `grad none`",
    "no operand of it is a float",
    "no output of it is a float",
)
NOTHING_TO_DERIVE = {SAYS_NONE, NO_OPERAND, NO_OUTPUT}  # what nobody need be told of


class NotDifferentiable(SpecError):
    """An op whose gradient is not to be had; says why."""

    def __init__(self, op: Op, reason: str, help: str = ""):
        self.reason = reason
        message = f"the gradient of `{op.name}` cannot be derived: {reason}"
        super().__init__((Diagnostic("E701", message, help=help),))


def derive(
    op: Op,
    wrt: Iterable[str] | None = None,
    shared: bool = False,
    keeps: Collection[str] | None = None,
) -> Op:
    """The backward op. `wrt` names the wanted operands and scalars, by default all floats.

    `shared`: a value that a line repeats, and that its gradient reads again, gets a line of its own. `keeps`: the outputs
    that it may read, by default all.
    """
    if op.gradient == "none":
        raise NotDifferentiable(op, SAYS_NONE)
    wanted = _wanted(op, wrt)
    if isinstance(op.gradient, tuple):
        return assemble(op, (*op.nests, *op.gradient), wanted)
    op = _stepped_aside(op, wanted)
    try:
        if not shared:
            return _derived(op, wanted, PLAIN, keeps=keeps)
    except flow.Overgrown:
        pass  # nested macros repeat what they are given
    try:
        return _derived(op, wanted, MOST, shared=True, keeps=keeps)
    except flow.Overgrown as line:
        reason = f"that of its line `{line}` grows beyond {MOST} operations"
        raise NotDifferentiable(op, reason, "give parts of it lines of their own") from None


def forward_lines(op: Op) -> tuple[Nest, ...]:
    """The op's lines as its gradient has them: each value that it wants is a line's, and each place that a max took."""
    tape = _lifted(op, None)
    tape.find_active()
    return tuple(tape.values)


def repeats(op: Op, wrt: Iterable[str] | None = None) -> bool:
    """Whether its gradient repeats values that `shared` gives lines of their own."""
    plain, shared = (_lifted(op, wrt, shared) for shared in (False, True))
    return len(shared.forward) > len(plain.forward)


def _lifted(op: Op, wrt: Iterable[str] | None, shared: bool = False) -> _Tape:
    wanted = _wanted(op, wrt)
    tape = _Tape(_stepped_aside(op, wanted), facts_of(op), _said(op), wanted, PLAIN)
    tape.forward = lift(tape.op, tape.facts, tape.free_name, shared)
    return tape


def _derived(
    op: Op,
    wanted: tuple[Param, ...],
    most: int,
    shared: bool = False,
    keeps: Collection[str] | None = None,
) -> Op:
    tape = _Tape(op, facts_of(op), _said(op), wanted, most)
    tape.forward = lift(op, tape.facts, tape.free_name, shared)
    tape.find_active()
    for nest in reversed(tape.forward):
        tape.pull(nest)
    last = tuple(tape.operand(p) for p in wanted)
    nests = (*tape.values, *tape.backward, *last)
    nests, gradients = from_kept(op, nests), {f"d{p.name}" for p in wanted}
    again = computed_again(op, nests, gradients, tape.free_name, keeps)
    nests = _tidied(op, again, gradients)
    own = {nest.name for nest in tape.backward}
    nests = in_stored_types(op, read_back(nests, own), own)
    operands = {t.name: t.dims for t in (*op.tensors, *map(cotangent, op.outputs))}
    outputs = {o.name: o.dims for o in op.outputs}
    nests = with_partial_sums(nests, operands, outputs, tape.said, tape.free_name)
    back = assemble(op, nests, wanted)
    nests = with_row_lines(_pruned(back).nests, tape.free_name)
    nests = with_divisors_of_1(nests, tape.forward, tape.said)
    back = assemble(op, nests, wanted)  # again, without pruned reads
    whole = batches.sums_over_all(op, back, tape.values)
    back = assemble(op, whole, wanted) if whole != back.nests else back
    tape.refuse(batches.reduces_over_fewer(op, back, tape.values))
    read = batches.with_batches_read(op, back)
    return back if read is back.nests else assemble(op, read, wanted)


def _pruned(back: Op) -> Op:
    """Drops an `else` that solving for an index made unnecessary. It uses only what the text says, because the text is checked again."""
    facts = _said(back)
    dims = {t.name: t.dims for t in (*back.tensors, *back.outputs)}
    dims |= {nest.name: nest.dims for nest in back.nests}
    return replace(back, nests=tuple(pruned(nest, dims, facts) for nest in back.nests))


def _said(op: Op) -> Facts:
    """The facts about sizes in the text of an op, without those that its reads require. Other ops may not require them."""
    said = tuple(f for f in op.facts if isinstance(f, Define) or f.origin == "fact")
    return facts_of(replace(op, facts=said))


def _stepped_aside(op: Op, wanted: tuple[Param, ...]) -> Op:
    """The op with other names for temporaries and indices called what a gradient is: `dp` beside an operand p."""
    gradients = {f"d{p.name}" for p in (*wanted, *op.outputs)}
    own = {p.name for p in (*op.params, *op.outputs)}
    if clash := sorted(gradients & own):
        name, of = clash[0], clash[0][1:]
        both = f"`{name}` is a name of its own and that of the gradient of `{of}`"
        other = free_name(f"{name}_own", names_of(op))
        raise NotDifferentiable(op, f"{both}; rename it, as to `{other}`")
    said = {f"d{p.name}" for p in wanted} & NOT_LINES | {d for d in gradients if reserved_as(d)}
    if said:
        name, of = min(said), min(said)[1:]
        word = f"the gradient of `{of}` has the name `{name}`, which is a reserved word"
        raise NotDifferentiable(op, f"{word}; rename `{of}`, as to `{of}_`")
    temporaries = {nest.name for nest in op.nests} - own
    taken, names = names_of(op), {}
    for name in sorted(gradients & (temporaries | all_indices(op.nests))):
        names[name] = fresh(name, taken)
    kept = {name: new for name, new in names.items() if name in temporaries}
    return replace(op, nests=renamed(op.nests, kept, names)) if names else op


def _tidied(op: Op, nests: tuple[Nest, ...], gradients: set[str]) -> tuple[Nest, ...]:
    """Without lines that lead nowhere or are read once; outputs stand for their quotients."""
    given = {o.name for o in op.outputs}
    used = needed(nests, gradients, given)
    read = set().union(*(tensors_read(nest.body) for nest in used))
    exact = (nest for nest in nests if not rounds_apart(op, nest.body))
    tensors = (*op.tensors, *op.outputs, *map(cotangent, op.outputs))
    dims = {t.name: t.dims for t in tensors} | {nest.name: nest.dims for nest in nests}
    known = quotients(tuple(nest for nest in exact if nest.name in given & read), dims)
    lines = inline(used, gradients | {nest.name for nest in op.nests})
    lines = tuple(replace(line, body=without_repeats(line.body)) for line in lines)
    return use_quotients(lines, known)


def _wanted(op: Op, wrt: Iterable[str] | None) -> tuple[Param, ...]:
    """The params that get a gradient. That of a scalar is f64 where a call may be; autograd casts it to what was passed."""
    floats = [
        p for p in op.params if not isinstance(p, Constant) and kind_of(p.dtype, op) == "float"
    ]
    if wrt is not None:
        names = set(wrt)
        floats = [p for p in floats if p.name in names]
    if not floats:
        raise NotDifferentiable(op, NO_OPERAND)
    if not any(kind_of(o.dtype, op) == "float" for o in op.outputs):
        raise NotDifferentiable(op, NO_OUTPUT)
    wide = any(may_be_f64(t.dtype, op) for t in op.tensors)
    return tuple(
        replace(p, dtype="f64") if wide and not isinstance(p, Tensor) else p for p in floats
    )


@dataclass(slots=True)
class _Tape:
    """One derivation: what is known of every tensor's gradient so far, last lines first."""

    op: Op
    facts: Facts
    said: Facts  # what its text says of sizes
    wanted: tuple[Param, ...]
    most: int  # operations in the gradient of a part of a line
    forward: tuple[Nest, ...] = ()
    values: list[Nest] = field(default_factory=list)  # forward nests that may be wanted again
    backward: list[Nest] = field(default_factory=list)  # gradients of temporaries
    owners: dict[str, str] = field(default_factory=dict)  # whose gradient such a line belongs to
    parts: dict[str, list[Expr]] = field(default_factory=dict)  # contributions to a gradient
    conditions: dict[str, Wanted] = field(default_factory=dict)  # where they are wanted
    unsaid: set[str] = field(default_factory=set)  # whose conditions ask more than they say
    always: set[str] = field(default_factory=set)  # what is wanted everywhere by some use
    targets: dict[str, Target] = field(default_factory=dict)
    shapes: dict[str, Tensor] = field(default_factory=dict)
    active: set[str] = field(default_factory=set)
    places: dict[str, str] = field(default_factory=dict)  # of a max or min: the line of its place
    reads: dict[str, dict[Nest, Nest]] = field(default_factory=dict)  # lines of a tensor's places
    terms: dict[frozenset[str], Read] = field(
        default_factory=dict
    )  # of sums over some operands' `...`
    names: set[str] = field(default_factory=set)

    # ---- names --------------------------------------------------------------------------------
    def free_name(self, name: str) -> str:
        if not self.names:
            self.names |= names_of(self.op) | NOT_LINES
        return fresh(name, self.names)

    @property
    def not_indices(self) -> frozenset[str]:
        return frozenset(self.shapes) | {p.name for p in self.op.params}

    # ---- what varies --------------------------------------------------------------------------
    def find_active(self) -> None:
        """Finds the tensors that depend on wanted operands, and the place where the gradient of each is collected."""
        self.active = {p.name for p in self.wanted}
        tensors = (*self.op.tensors, *self.op.outputs)
        self.shapes = {t.name: t for t in tensors}
        self.shapes |= {f"d{o.name}": cotangent(o) for o in self.op.outputs}
        for nest in self.forward:
            self._see(nest)
            line = flow.Line(nest, nest.body, self.varies, self.is_float, self.most)
            extreme = flow.extreme_of(nest)
            if kind_of(nest.dtype, self.op) == "float" and flow.varies(line, nest.body):
                self.active.add(nest.name)
                if extreme is not None:
                    self._find_place(nest, extreme)
            self.values.append(nest)
        for p in self.wanted:
            self.targets[p.name] = self._operand_target(p)

    def _find_place(self, nest: Nest, extreme: Reduce) -> None:
        """The line that says which element a max or min took: the op's own where it has one."""
        at = flow.place_of(nest, extreme, "")
        own = next((n.name for n in self.forward if n.dims and is_same_line(at, n)), "")
        if not own:
            own = self.free_name(f"{nest.name}_at")
            self._see(replace(at, name=own))
            self.values.append(replace(at, name=own))
        self.places[nest.name] = own

    def _see(self, nest: Nest) -> None:
        self.shapes[nest.name] = Tensor(nest.name, nest.dtype, nest.dims)
        self.targets[nest.name] = Target(nest.name, nest.box, nest.coords, nest.dims)

    def varies(self, node: Read | ScalarRef) -> bool:
        return (node.tensor if isinstance(node, Read) else node.name) in self.active

    def is_float(self, dtype: str) -> bool:
        return kind_of(dtype, self.op) == "float"

    def _operand_target(self, p: Param) -> Target:
        dims = p.dims if isinstance(p, Tensor) else ()
        taken: set[str] = set()
        box = []
        for position, dim in enumerate(dims):
            name = self._index_name(p.name, position, dim)
            name = free_name(name, taken, self.not_indices) if name != BATCH else name
            taken.add(name)
            box.append(Binder(name, ZERO, dim))
        return Target(p.name, tuple(box), tuple(index(b.index) for b in box), dims)

    def _index_name(self, tensor: str, position: int, dim: Poly) -> str:
        """The index that reads the dim alone somewhere, else the dim's own name in lower case."""
        for nest in self.forward:
            for node in walk(nest.body):
                if isinstance(node, Read) and node.tensor == tensor:
                    c = node.coords[position]
                    plain = [name for name in algebra.indices(c) if c == index(name)]
                    if plain:
                        return plain[0]
        name = algebra.text(dim).lower()
        usable = name.isidentifier() and not reserved_as(name)
        return name if usable or dim == BATCH_SIZE else "i"

    # ---- gradients ----------------------------------------------------------------------------
    def pull(self, nest: Nest) -> None:
        """Settle the gradient of what a nest writes, and hand it to what the nest reads."""
        if nest.name not in self.active:
            return
        self._pull_reads(nest.name)
        weight = self._settle(nest)
        if weight is None:
            return
        self.refuse(batches.over_fewer(self.op, nest))
        place = self.places.get(nest.name, "")
        line = flow.Line(nest, self._value(nest), self.varies, self.is_float, self.most, place)
        varies = partial(flow.varies, line)
        nest = replace(nest, body=batches.as_shares(self.op, nest.body, self._terms, varies))
        line = replace(line, nest=nest)
        for use in flow.uses(line, weight, self._condition(nest.name, weight)):
            use = self._at_place(nest, use)
            name = use.node.tensor if isinstance(use.node, Read) else use.node.name
            self._contribute(nest, use, name)

    def _at_place(self, nest: Nest, use: flow.Use) -> flow.Use:
        """The use; that of a line of the read, where its gradient is a sum that goes to the place as one term."""
        name = use.node.tensor if isinstance(use.node, Read) else use.node.name
        own = self.targets[name]
        found = places.at_read(use, nest.box, own, self.not_indices, self.facts)
        if found is None:
            return use
        line, read = found
        target = Target("", line.box, line.coords, line.dims)
        if not places.sums(invert(replace(use, node=read), nest.box, target, self.facts)):
            return use
        known = self.reads.setdefault(name, {})
        if line not in known:
            known[line] = new = replace(line, name=self.free_name(f"{name}_read"))
            self._see(new)
            self.active.add(new.name)
            self.values.append(new)
        return replace(use, node=replace(read, tensor=known[line].name))

    def _pull_reads(self, name: str) -> None:
        """Hands on the gradients of the lines that read a tensor at places."""
        for line in self.reads.pop(name, {}).values():
            self.pull(line)

    def _terms(self, own: frozenset[str]) -> Read:
        """How many terms a sum over the `...` of these operands has: a line says it."""
        if own not in self.terms:
            line = batches.terms_line(self.op, own, self.free_name("terms"))
            self._see(line)
            self.values.append(line)
            self.terms[own] = Read(line.name, (), None, "i64")
        return self.terms[own]

    def refuse(self, reason: str) -> None:
        """Raises if there is a reason: for some shapes the gradient would be wrong."""
        if reason:
            raise NotDifferentiable(self.op, reason, "name the dims in place of `...`")

    def _contribute(self, nest: Nest, use: flow.Use, name: str) -> None:
        target = self.targets[name]
        system = invert(use, nest.box, target, self.facts)
        gradients = self.owners.keys() | {f"d{o.name}" for o in self.op.outputs}
        term = exprs.cast(write(system, self.shapes, self.said, gradients), exprs.COMPUTE)
        if not exprs.is_zero(term):
            found, whole = condition_of(system, self.shapes, self.said)
            if found == NEVER:
                return
            if whole and not all(found):
                self.always.add(name)
            if not whole:
                self.unsaid.add(name)
            self.conditions[name] = either(self.conditions.get(name, NEVER), found)
            in_force = {b.index for b in target.box}
            term = exprs.name_binders(term, in_force, self.not_indices)
            self.parts.setdefault(name, []).append(term)

    def _condition(self, name: str, weight: Expr) -> Wanted:
        """Where a line's gradient is wanted: of an output that comes in for it, always.

        Where some row of others must have the element, and which cannot be said without looking at all of them, the
        gradient itself says it: it is 0 where none has.
        """
        if name in {o.name for o in self.op.outputs} - set(self.op.kept):
            return ALWAYS
        found = whole(self.conditions.get(name, ALWAYS), self.targets[name].box)
        if name not in self.unsaid - self.always:
            return found
        some = exprs.call("ne", weight, exprs.number(0, weight.dtype), dtype="bool")
        return both(found, (some,))

    def _value(self, nest: Nest) -> Expr:
        """The value of a nest, read where it was written.

        Where a half type that no operand has rounds it, it is computed again: the slope 0.5 / y of a root is not that of a y rounded to 0.
        """
        if rounds_apart(self.op, nest.body):
            return core(nest.body)
        read = Read(nest.name, nest.coords, None, nest.dtype)
        return exprs.cast(read, exprs.compute_dtype(nest.body.dtype))

    def _settle(self, nest: Nest) -> Expr | None:
        """The gradient of what a nest writes, as reads of lines; adds the lines it needs."""
        terms = self._surviving(nest.name, self.parts.pop(nest.name, []))
        output = next((o for o in self.op.outputs if o.name == nest.name), None)
        given: Expr | None = None
        if output is not None and output.name not in self.op.kept:
            given = Read(cotangent(output).name, nest.coords, None, output.dtype)
            given = exprs.cast(given, exprs.compute_dtype(output.dtype))
            given = exprs.cast(given, exprs.COMPUTE)
            terms = [given, *terms]
        if not terms:
            return None
        dtype = exprs.compute_dtype(nest.body.dtype)
        if given is not None and len(terms) == 1:
            return exprs.cast(given, dtype)
        total = _sum(terms)
        if given is not None:
            return exprs.cast(self._line(nest, f"d{nest.name}_total", total), dtype)
        return exprs.cast(self._line_below(nest, total, f"d{nest.name}"), dtype)

    def _line_below(self, nest: Nest, total: Expr, name: str) -> Expr:
        """A line for the gradient, or for the sum in it where the rest is a factor or a sign."""
        match total:
            case Call("neg", (a,)) if _is_scaled_sum(a):
                return exprs.neg(self._line_below(nest, a, _sum_name(nest)))
            case Call("mul" | "div" as fn, (a, b)) if _is_scaled_sum(a):
                return exprs.call(fn, self._line_below(nest, a, _sum_name(nest)), b)
        return self._line(nest, name, total)

    def _line(self, nest: Nest, name: str, body: Expr) -> Read:
        """A new line over a nest's box, read back."""
        name = self.free_name(name)
        line = Nest(name, nest.box, nest.coords, nest.dims, body, exprs.COMPUTE)
        self._see(line)
        self.owners[name] = nest.name
        self.backward.append(line)
        return Read(name, nest.coords, None, exprs.COMPUTE)

    def _surviving(self, name: str, terms: list[Expr]) -> list[Expr]:
        """The terms without those that are 0 for all operands, alone or all of them together.

        A term is 0 by its own line (a variance's, through its mean). All of them are 0 by what was made of the line (softmax's, through its
        max).
        """
        lines = {n.name: n for n in (*self.values, *self.backward)}
        terms = [t for t in terms if not zero.vanishes(t, self.op, {name: lines[name]})]
        if terms and self._is_shift(lines[name], lines):
            total = _sum(terms)
            rounds = islice(self._made_of(name), ROUNDS)
            gone = (zero.vanishes(total, self.op, made, {name, *made}) for made in rounds)
            return [] if any(gone) else terms
        return terms

    def _is_shift(self, nest: Nest, lines: dict[str, Nest]) -> bool:
        """Whether a line is a max or min, or pointwise over the box of one: a value that is subtracted before exp.

        For other lines it is not worth the time to follow everything that is made of them.
        """
        if flow.extreme_of(nest) is not None:
            return True
        if folds_of(nest.body):
            return False
        read = (lines[name] for name in tensors_read(nest.body) if name in lines)
        extremes = (other for other in read if flow.extreme_of(other) is not None)
        return any(len(other.box) == len(nest.box) for other in extremes)

    def _made_of(self, name: str) -> Iterator[dict[str, Nest]]:
        """The lines that read a line, and their gradients; then the lines that read these too, and so on.

        Lines behind a softmax say nothing about its max, so they need not be looked through.
        """
        made = {name}
        while new := {n.name for n in self.values if tensors_read(n.body) & made} - made:
            made |= new
            yield {n.name: n for n in self.values if n.name in made - {name}} | {
                n.name: n for n in self.backward if self.owners[n.name] in made
            }

    def operand(self, p: Param) -> Nest:
        """The line of an operand's gradient."""
        self._pull_reads(p.name)
        target = self.targets[p.name]
        body = exprs.cast(_sum(self.parts.get(p.name, [])), p.dtype)
        return Nest(f"d{p.name}", target.box, target.coords, target.dims, body, p.dtype)


def _sum_name(nest: Nest) -> str:
    """A name for the sum in a line's gradient; the line may be called a sum itself."""
    return f"d{re.sub('_sum[0-9]*$', '', nest.name)}_sum"


def _is_scaled_sum(expr: Expr) -> bool:
    """Whether expr is one sum times or over what holds no other."""
    match expr:
        case Reduce():
            return True
        case Call("neg", (a,)):
            return _is_scaled_sum(a)
        case Call("mul" | "div", (a, b)):
            return _is_scaled_sum(a) and not folds_of(b)
    return False


def _sum(terms: list[Expr]) -> Expr:
    total: Expr = Const(0.0, exprs.COMPUTE)
    for term in terms:
        total = exprs.add(total, term)
    return total


def is_same_line(a: Nest, b: Nest) -> bool:
    """Whether two lines are one but for what they and their indices are called."""
    own, other = ([x.index for x in all_binders(n)] for n in (a, b))
    return len(own) == len(other) and renamed(
        (a.box, a.coords, a.dims, a.body, a.dtype), {}, dict(zip(own, other, strict=True))
    ) == (b.box, b.coords, b.dims, b.body, b.dtype)


def names_of(op: Op) -> set[str]:
    names = {p.name for p in (*op.params, *op.outputs)}
    names |= {f"d{name}" for name in names} | {nest.name for nest in op.nests}
    return names | all_indices(op.nests)

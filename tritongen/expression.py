"""Turns an expression into an op: it derives the signature that the text leaves out.

    Draft("y[m, n] = relu(sum[k](a[m, k] * b[k, n]) + bias[n])") and three f16 tensors give

    op expr_y_m_n_relu_sum_k_a_m_k_b_k_n_bias_n<T: float, U: float, V: float>(
        a: T[M, K], b: U[K, N], bias: V[N]) -> y: T[M, N] { ... }

- Operands are in order of appearance. Each has a type parameter of its own, unless a called op wants several of one dtype.
- A size is named after the first index that subscripts its dim alone.
- An operand that is passed to an op has the dims that this op wants (`expression_calls.py`).

The dtype of an argument, or that it is a Python number, is known only at the call. So one draft becomes several ops.
`api.py` compiles and caches them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Union

from tritongen.check.functions import Library
from tritongen.check.op import result_of
from tritongen.check.scope import Variable
from tritongen.errors import Diagnostic, Fix, Span, SpecError, proven
from tritongen.expression_calls import Demand, Demands, callee_of, children
from tritongen.expression_mistakes import refuse_einsum, refuse_function, two_dtypes
from tritongen.ir.algebra import Poly
from tritongen.ir.dtypes import DTYPES
from tritongen.ir.names import free_name
from tritongen.ir.nodes import BATCH_SIZE
from tritongen.ir.print_poly import poly_ast
from tritongen.syntax import ast
from tritongen.syntax.parse import has_assignments, parse_assignments, parse_expression
from tritongen.syntax.rewrite import rewrites
from tritongen.syntax.unparse import unparse

FAMILY = {d.name: d.kind for d in DTYPES.values() if d.kind != "int"}
AT_ONCE = ("E113", "E202", "E203", "E206", "E401", "E501")
NUMBERS = {float: "f32", int: "i64", bool: "bool"}


Entry = Union[ast.Name, ast.Number, ast.Dots, ast.Binder]  # of a left side


@dataclass(frozen=True, slots=True)
class Argument:
    """The argument for one operand: the dtype of a tensor or of a number. Rank 0 promotes weakly."""

    dtype: str
    is_tensor: bool
    rank: int | None = None  # where it is known

    @property
    def is_rank0(self) -> bool:
        return self.rank == 0


@dataclass(slots=True)
class Use:
    """How the text uses one name that it does not assign."""

    name: str
    span: Span | None
    dims: tuple[ast.Index, ...] | None = None  # of the first read with brackets
    constant: str = (
        ""  # bare in a coordinate or bound, or a constant of an op: a compile-time value
    )
    is_integer: bool = False  # anywhere in a coordinate or bound
    is_scalar: bool = False  # bare in a line with indices, or a scalar of an op
    demand: Demand = field(default_factory=Demand)  # by the ops that it is an argument of


@dataclass(slots=True)
class Draft:
    """The lines of an expression and what they use."""

    text: str
    proposals: bool = True  # findings come with corrected text that has been compiled
    lines: tuple[ast.Assign, ...] = ()
    uses: tuple[Use, ...] = ()
    sizes: dict[str, str] = field(default_factory=dict)  # index -> size
    whole: set[str] = field(
        default_factory=set
    )  # indices that stand alone in a read without `else`

    def __post_init__(self) -> None:
        refuse_einsum(self.text)
        self.lines = self._parsed()
        self.uses = _uses(self.lines)
        for use in self.uses:
            if use.dims is None:
                refuse_function(use.name, use.span, self.text.strip() == use.name)
        calls = (n for line in self.lines for n in _walk(line) if isinstance(n, ast.Call))
        if not any(self.takes_tensor(u) for u in self.uses) and not any(map(callee_of, calls)):
            message = "an expression needs a tensor to run on"
            raise SpecError([Diagnostic("E303", message, self.lines[-1].value.span)])
        dims = [d for use in self.uses for d in use.dims or ()]
        for d in dims:
            if isinstance(d, ast.Name):
                self.sizes.setdefault(d.name, _size_name(d.name, self.sizes))
        for name in self._unsized():  # `y[i] = x[i + 1] else 0` is as long as x
            if any(name in _names(d) for d in dims):
                self.sizes[name] = _size_name(name, self.sizes)
        reads = (n for line in self.lines for n in _walk(line) if isinstance(n, ast.Read))
        plain = (d for n in reads if n.fill is None for d in n.indices)
        self.whole = {d.name for d in plain if isinstance(d, ast.Name)}
        self._demands()
        self._refuse_at_once()

    def _parsed(self) -> tuple[ast.Assign, ...]:
        try:
            if has_assignments(self.text):
                return parse_assignments(self.text)
            value = parse_expression(self.text)
            return (ast.Assign(_free("y", self.text), None, value, span=value.span),)
        except SpecError as error:
            if not self.proposals:
                raise
            found = proven(error.diagnostics, _compiled, rewrites, first_only=True)
            raise SpecError(found) from None

    def _refuse_at_once(self) -> None:
        """Raises errors that do not depend on the arguments: an unbound index, a line that nothing reads."""
        for line in self.lines[:-1]:
            others = (n for other in self.lines if other is not line for n in _walk(other))
            if not any(getattr(n, "name", "") == line.name for n in others):
                message, help = f"`{line.name}` is never read", "the last line is the result"
                raise SpecError([Diagnostic("E115", message, line.span, help=help)])
        guess = tuple(
            Argument("i64" if u.is_integer or u.constant else "f32", self.takes_tensor(u))
            for u in self.uses
        )
        try:
            self.value(guess)
        except SpecError as error:
            found = [d for d in error.diagnostics if d.code in AT_ONCE]
            if found and self.proposals:
                found = proven(found, _compiled, rewrites)
            if found:
                raise SpecError(found) from None

    @property
    def name(self) -> str:
        words = re.sub(r"[^a-z0-9]+", "_", self.text.lower()).strip("_")[:40].rstrip("_")
        return f"expr_{words}"

    def _unsized(self) -> list[str]:
        indices = self.lines[-1].indices or ()
        return [i.name for i in indices if isinstance(i, ast.Name) and i.name not in self.sizes]

    def _demands(self) -> None:
        """The demands of called ops on the operands."""
        demands = Demands(taken=set(self.sizes.values()) | set(re.findall(r"[A-Z]\w*", self.text)))
        for line in self.lines:
            if not _has_indices(line):
                demands.line(line)
            elif line.indices:
                sizes: dict[str, ast.Index] = {
                    name: ast.Size(size) for name, size in self.sizes.items()
                }
                demands.values[line.name] = tuple(
                    i if isinstance(i, ast.Dots) else demands.size(_left_size(i), sizes)
                    for i in line.indices
                )
        for use in self.uses:
            use.demand = demands.of.get(use.name, use.demand)
            use.constant = use.constant or use.demand.constant
            use.is_scalar |= use.demand.scalar
            use.is_integer |= use.demand.integer

    @property
    def by_rank(self) -> bool:
        """Whether the op depends on how many dims the arguments have."""
        return any(use.demand.may_be_less for use in self.uses)

    def op(self, arguments: tuple[Argument, ...], result: str, value: Variable) -> ast.OpDef:
        """The op for these arguments; `result` is the output's dtype, or an operand's name for its."""
        last, types = self.lines[-1], self._type_parameters(arguments)
        dims = tuple(ast.Dots() if d == BATCH_SIZE else _dim(d) for d in value.dims)
        brackets = dims if dims or last.indices is not None else None
        output = ast.Operand(last.name, ast.Type(types.get(result, result), brackets))
        return replace(self._draft(arguments), outputs=(output,))

    def value(self, arguments: tuple[Argument, ...]) -> Variable:
        """The dims and the dtype of the result for these arguments."""
        op = self._draft(arguments)
        last = op.lines[-1]
        if last.indices is not None:  # of an output all ranges would be known
            bounded = tuple(self._bounded(i) for i in last.indices)
            op = replace(op, lines=(*op.lines[:-1], replace(last, indices=bounded)))
        return result_of(op, Library())

    def _bounded(self, entry: Entry) -> Entry:
        if not isinstance(entry, ast.Name) or entry.name in self.whole:
            return entry
        if entry.name in self.sizes:
            return ast.Binder(entry.name, high=ast.Size(self.sizes[entry.name]), span=entry.span)
        otherwise = f"write its end: `{entry.name} < ...`, a number or the name of one"
        start, span, fix = self.lines[-1].span, entry.span, None
        if span is not None and start is not None:
            text, end = span.source.text, span.source.text.index("]", span.end) + 1
            head = text[start.start : span.end] + " < 8" + text[span.end : end]
            fix = Fix(replace(span, start=start.start, end=end), head)
        message = f"index `{entry.name}` has no range"
        help = "bound it, by a number or the name of one"
        raise SpecError(
            [Diagnostic("E203", message, span, help=help, fix=fix, otherwise=otherwise)]
        )

    def _draft(self, arguments: tuple[Argument, ...]) -> ast.OpDef:
        """The op but for its output."""
        for use, argument in zip(self.uses, arguments, strict=True):
            self._check(use, argument)
        types = self._type_parameters(arguments)
        params = tuple(
            self._param(use, argument, types)
            for use, argument in zip(self.uses, arguments, strict=True)
        )
        families = {
            types[use.name]: FAMILY.get(argument.dtype, argument.dtype)
            for use, argument in zip(self.uses, arguments, strict=True)
            if use.name in types
        }
        typarams = tuple(ast.TypeParam(name, (family,)) for name, family in families.items())
        return ast.OpDef(self.name, typarams, params, (), (), self.lines, ())

    @staticmethod
    def takes_tensor(use: Use) -> bool:
        return not use.constant and (use.dims is not None or not use.is_scalar)

    def _check(self, use: Use, argument: Argument) -> None:
        """SpecError where this is no argument for that name, in the words of the expression."""
        order = ", ".join(u.name for u in self.uses)
        message, help = "", f"the operands, in order of appearance, are {order}"
        if use.constant and argument.is_tensor:
            message = f"`{use.name}` must be a number here; given a tensor"
        elif use.dims is not None and not (argument.is_tensor and argument.rank != 0):
            message = f"`{use.name}` is read with indices; given a number"
        elif use.is_integer and argument.dtype in FAMILY:
            message = f"`{use.name}` must hold integers here; given {argument.dtype}"
        if message:
            raise SpecError([Diagnostic("E303", message, use.span, help=help)])

    def _type_parameters(self, arguments: tuple[Argument, ...]) -> dict[str, str]:
        taken = set(self.sizes.values())
        letters = "TUVWXYZABCDEFGHIJKLMNOPQRS"
        wanted = (f"{letter}{k or ''}" for k in count() for letter in letters)
        free = (name for name in wanted if name not in taken)
        types: dict[str, str] = {}
        shared: dict[tuple[int, str], tuple[Use, Argument]] = {}
        for use, argument in zip(self.uses, arguments, strict=True):
            if not (argument.is_tensor and self.takes_tensor(use)) or self._is_number(
                use, argument
            ):
                continue
            for call, dtype in use.demand.same:
                other, first = shared.setdefault((id(call), dtype), (use, argument))
                if first.dtype != argument.dtype:
                    given = (other.name, first.dtype), (use.name, argument.dtype)
                    raise SpecError([two_dtypes(call, *given)])
                if other is not use:
                    types[use.name] = types[other.name]
            if use.name not in types:
                types[use.name] = next(free)
        return types

    @staticmethod
    def _is_number(use: Use, argument: Argument) -> bool:
        """A tensor without dims beside ones that have some."""
        return argument.is_rank0 and use.demand.dims is not None

    def _param(self, use: Use, argument: Argument, types: dict[str, str]) -> ast.Param:
        if use.constant:
            return ast.ConstParam(use.name, use.constant)
        if use.name not in types:
            family = FAMILY.get(argument.dtype, "int")
            return ast.Operand(
                use.name, ast.Type({"float": "f32", "int": "i64"}.get(family, "bool"))
            )
        if use.dims is None:
            wanted = use.demand.dims or (ast.Dots(),)
            if use.demand.may_be_less and argument.rank is not None and ast.Dots() not in wanted:
                wanted = wanted[-argument.rank :]
            return ast.Operand(use.name, ast.Type(types[use.name], wanted))
        taken = {*self.sizes.values(), *types.values()}
        dims: list[ast.Index] = []
        for d in use.dims:
            if isinstance(d, ast.Dots):
                dims.append(d)
            elif sized := [self.sizes[n] for n in _names(d) if n in self.sizes]:
                dims.append(ast.Size(sized[0]))
            else:
                size = free_name(f"{use.name.upper()}{len(dims)}", taken)
                taken.add(size)
                dims.append(ast.Size(size))
        return ast.Operand(use.name, ast.Type(types[use.name], tuple(dims)))


def _left_size(entry: Entry) -> ast.Index:
    return ast.Size(entry.name) if isinstance(entry, ast.Name) else ast.Number(1)


def _dim(size: Poly) -> ast.Index:
    tree = poly_ast(size)
    return ast.Size(tree.name) if isinstance(tree, ast.Name) else tree


def _compiled(text: str) -> tuple[tuple[Diagnostic, ...], int]:
    """The findings of a proposed text, without those that only arguments show."""
    try:
        Draft(text, proposals=False)
    except SpecError as error:
        return error.diagnostics, 0
    return (), 0


def text_of(op: ast.OpDef) -> str:
    return unparse(ast.File((op,)))


# ---- what the text uses -------------------------------------------------------------------------
def _uses(lines: tuple[ast.Assign, ...]) -> tuple[Use, ...]:
    found: dict[str, Use] = {}
    assigned: set[str] = set()
    for line in lines:
        bound = _indices(line)
        for node, static in _leaves(line):
            if node.name in assigned or (isinstance(node, ast.Name) and node.name in bound):
                continue
            use = found.setdefault(node.name, Use(node.name, node.span))
            use.is_integer |= static
            if isinstance(node, ast.Read):
                use.dims = _better(use.dims, node.indices)
            else:
                use.constant = use.constant or ("int" if static else "")
                use.is_scalar |= bool(bound) or line.indices is not None
        assigned.add(line.name)
    return tuple(sorted(found.values(), key=lambda use: use.span.start if use.span else 0))


def _better(old: tuple[ast.Index, ...] | None, new: tuple[ast.Index, ...]) -> tuple[ast.Index, ...]:
    """Per dim, the first read that subscripts it with an index alone names its size."""
    if old is None or len(old) != len(new):
        return old or new
    plain = (ast.Name, ast.Dots)
    return tuple(a if isinstance(a, plain) else b for a, b in zip(old, new, strict=True))


def _indices(line: ast.Assign) -> set[str]:
    names = {i.name for i in line.indices or () if isinstance(i, (ast.Name, ast.Binder))}
    for node in _walk(line.value):
        if isinstance(node, ast.Reduce):
            names.update(b.name for b in node.binders)
    return names


def _leaves(line: ast.Assign) -> Iterator[tuple[ast.Name | ast.Read, bool]]:
    """The names and reads of a line, and whether each is in a coordinate or a bound."""
    for entry in line.indices or ():
        if isinstance(entry, ast.Binder):
            yield from _expression_leaves(entry, True)
    yield from _expression_leaves(line.value, False)


def _expression_leaves(node: ast.Node, static: bool) -> Iterator[tuple[ast.Name | ast.Read, bool]]:
    if isinstance(node, (ast.Name, ast.Read)):
        yield node, static
    inside = static or isinstance(node, (ast.Read, ast.Binder))
    for child in children(node):
        if isinstance(node, ast.Read) and isinstance(child, ast.Name):
            continue  # an index; the checker says so where nothing binds it
        yield from _expression_leaves(child, inside)


def _names(node: ast.Node) -> list[str]:
    """The indices of a coordinate, but for those of what it reads: `idx[n]` is no range of n."""
    if isinstance(node, (ast.Name, ast.Read)):
        return [node.name] if isinstance(node, ast.Name) else []
    return [name for child in children(node) for name in _names(child)]


def _walk(node: ast.Node) -> Iterator[ast.Node]:
    yield node
    for child in children(node):
        yield from _walk(child)


def _has_indices(line: ast.Assign) -> bool:
    nodes = _walk(line.value)
    return line.indices is not None or any(isinstance(n, (ast.Read, ast.Reduce)) for n in nodes)


# ---- names --------------------------------------------------------------------------------------
def _free(name: str, text: str) -> str:
    return free_name(name, set(re.findall(r"\w+", text)))


def _size_name(index: str, sizes: dict[str, str]) -> str:
    return free_name(index.lstrip("_").upper() or "SIZE", set(sizes.values()))

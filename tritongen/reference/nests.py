"""Prints nests as torch code that reads like the spec.

Input: a nest. Output: lines of Python:

    # y[n, d] = sum[k <= d](x[n, k] * z[n, d, k])
    d = torch.arange(D, device=x.device)[:, None]
    k = torch.arange(D, device=x.device)
    y = torch.where(k <= d, x[:, None, :] * z, 0).sum(-1).to(T)

The dims of a value are those of the box, and behind them those of the reducers in use. Torch's broadcasting does the rest. Sums of
products are einsums (`products.py`). A reduction with more terms than its operands have elements is computed one block of
the box at a time:

    # y[n, k] = sqrt(sum[d]((x[n, d] - c[k, d]) ** 2))
    y = torch.empty((N, K), dtype=T, device=x.device)
    for n_block, k_block in lib.box_parts(D, N, K):
        y[n_block, k_block] = torch.sqrt(((x[n_block, None, :] - c[k_block, :]) ** 2).sum(-1))

`printer.py` prints the head and the end of the function.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite

from tritongen.ir.algebra import Poly, indices, is_size, poly
from tritongen.ir.bounds import prove, takes_all
from tritongen.ir.dtypes import TORCH_NAMES
from tritongen.ir.free import free_indices
from tritongen.ir.functions import FUNCTIONS
from tritongen.ir.nodes import (
    Binder,
    Call,
    Cast,
    Const,
    Expr,
    Guard,
    IndexValue,
    Nest,
    Read,
    Reduce,
    ScalarRef,
    kind_of,
)
from tritongen.ir.print import line_ast
from tritongen.ir.print_poly import NotWritable
from tritongen.ir.reducers import REDUCERS
from tritongen.ir.texts import ATOM, POWER, UNARY, Text, fill
from tritongen.reference.comments import commented
from tritongen.reference.dims import Dims, Function
from tritongen.reference.products import (
    Operand,
    Scan,
    materialized,
    operands,
    ranges_of,
    scan_of,
)
from tritongen.reference.sizes import Code, literal
from tritongen.schedule.classes.contraction_operands import ends_of
from tritongen.schedule.digits import digits_in, split
from tritongen.syntax.unparse import unparse

NEEDS_TENSORS = ("atan2", "hypot", "logaddexp", "fmod", "xlogy")


def is_byte(value: Expr) -> bool:
    """Whether a value is a whole number of 8 bits."""
    ends = ends_of(value)
    return ends is not None and max(map(abs, ends)) <= 256


# ---- nests --------------------------------------------------------------------------------------
@dataclass(slots=True)
class Nests(Function):
    """Prints nests, in order."""

    def values_of(self, nest: Nest) -> list[frozenset[str]]:
        return materialized(nest, self.dims, self.facts)

    def lines(self, nest: Nest) -> list[str]:
        try:
            line = unparse(line_ast(self.op, nest, self.dims))
        except NotWritable as error:  # of gradients alone
            line = f"{nest.name}: no line of the language says it: {error}"
        comment = commented(line, 92)
        found = next(digits_in(nest, self.facts), None)
        if found and any(found[0].index in dims for dims in self.values_of(nest)):
            nest = split(nest, *found)  # `x[f // q]` has a value for each f // q, not for each f
        box = [b for c in nest.coords for b in nest.box if b.index in indices(c)]
        many = self.values_of(nest)
        blocked = [b for b in box if any(b.index in dims for dims in many) and b.lo == poly(0)]
        body = _Body(self, nest, box, {b.index: self.names.block(b.index) for b in blocked})
        if blocked:
            return [*comment, *body.by_blocks(blocked, many)]
        value = body.stored()
        return [*comment, *body.ranges(), f"{nest.name} = {value}"]


@dataclass(slots=True)
class _Body(Dims):
    def dtype(self, name: str) -> str:
        if name == "compute":
            return self.names.compute
        return f"torch.{TORCH_NAMES[name]}" if name in TORCH_NAMES else name

    # ---- the whole ------------------------------------------------------------------------------
    def stored(self) -> str:
        nest = self.nest
        value = self.expr(nest.body)
        shape = self.shape([self.size(d) for d in nest.dims])
        if value.plain:
            dtype = self.dtype(nest.dtype)
            return f"torch.full({shape}, {value.text}, dtype={dtype}, device={self.device})"
        missing = {b.index for b in self.box} - free_indices(nest.body)
        if missing:
            value = Code(f"torch.broadcast_to({value.text}, {self.forced_shape})")
        if len(self.box) != len(nest.dims):
            text = value.text if value.precedence == ATOM else f"({value.text})"
            value = Code(f"{text}.reshape({shape})")
        if nest.dtype != nest.body.dtype:
            value = self.to(value, nest.body.dtype, nest.dtype)
        given = nest.body
        while isinstance(given, Cast) or isinstance(given, Call) and given.fn == "detach":
            given = given.arg if isinstance(given, Cast) else given.args[0]
        if nest.name in self.outputs and (missing or isinstance(given, Read | ScalarRef)):
            return f"{value.text}.clone(memory_format=torch.contiguous_format)"  # not a view
        return value.text

    @property
    def outputs(self) -> set[str]:
        return {o.name for o in self.function.op.outputs}

    def by_blocks(self, blocked: list[Binder], many: list[frozenset[str]]) -> list[str]:
        """Storage, and a loop that fills it."""
        nest = self.nest
        box = self.shape([self.size(b.hi) for b in self.box])
        dtype = f"dtype={self.dtype(nest.dtype)}, device={self.device}"
        each = self.terms_of_a_point(blocked, many)
        sizes = ", ".join(self.size(b.hi) for b in blocked)
        value = self.expr(nest.body)
        if nest.dtype != nest.body.dtype:
            value = self.to(value, nest.body.dtype, nest.dtype)
        inside = {v for v, c in self.variables.items() if any(b in c for b in self.blocks.values())}
        head = [f"{nest.name} = torch.empty({box}, {dtype})"]
        loop = ", ".join(self.blocks.values()) + ("," if len(blocked) == 1 else "")
        loop = f"({loop})" if len(blocked) == 1 else loop
        at = ", ".join(self.blocks.get(b.index, ":") for b in self.box)
        lines = [f"for {loop} in lib.box_parts({each}, {sizes}):"]
        lines += [f"    {v} = {self.variables[v]}" for v in self.variables if v in inside]
        lines.append(f"    {nest.name}[{at}] = {value.text}")
        for variable in inside:
            del self.variables[variable]
            self.function.defined.pop(variable, None)
        if len(self.box) != len(nest.dims):
            shape = self.shape([self.size(d) for d in nest.dims])
            lines.append(f"{nest.name} = {nest.name}.reshape({shape})")
        return [*self.ranges(), *head, *lines]

    def terms_of_a_point(self, blocked: list[Binder], many: list[frozenset[str]]) -> str:
        """How many terms one point of the blocked dims has at once."""
        ranges = ranges_of(self.nest)
        counts: dict[str, None] = {}
        for dims in many:
            product = poly(1)
            for name in sorted(dims - {b.index for b in blocked}):
                product = product * (ranges[name].hi - ranges[name].lo)
            counts[self.size(product)] = None
        return next(iter(counts)) if len(counts) == 1 else f"max({', '.join(counts)})"

    def to(self, value: Code, given: str, dtype: str) -> Code:
        text, precedence = value.pair
        text = text if precedence == ATOM else f"({text})"
        narrow = dtype in ("i16", "i8", "u8") and kind_of(given, self.function.op) == "float"
        through = ".to(torch.int64)" if narrow else ""
        return Code(f"{text}{through}.to({self.dtype(dtype)})")

    # ---- expressions ----------------------------------------------------------------------------
    def expr(self, expr: Expr) -> Code:
        match expr:
            case Const(value):
                return Code(literal(value), UNARY if value < 0 else ATOM, True)
            case ScalarRef(name):
                return Code(name, ATOM, any(c.name == name for c in self.function.op.constants))
            case IndexValue(p, dtype):
                return self.index_value(p, dtype)
            case Read():
                return self.read(expr)
            case Cast(arg, dtype):
                return self.cast(arg, dtype)
            case Call():
                return self.call(expr)
            case Reduce():
                return self.reduce(expr)
        raise TypeError(expr)

    def index_value(self, p: Poly, dtype: str) -> Code:
        self.use(p)
        code = Code(*self.printer.poly(p), is_size(p))
        if code.plain or kind_of(dtype, self.function.op) != "float":
            return code
        return self.to(code, "i64", dtype)

    def cast(self, arg: Expr, dtype: str) -> Code:
        value = self.expr(arg)
        operands = {t.name for t in self.function.op.tensors}
        floating = kind_of(arg.dtype, self.function.op) == "float"
        if dtype == "compute":
            widened = isinstance(arg, Read) and arg.tensor in operands and floating
            if widened or value.plain or arg.dtype == "compute":
                return value
        return self.to(self.tensor(value, arg.dtype), arg.dtype, dtype)

    def tensor(self, value: Code, dtype: str) -> Code:
        """The value as a tensor: many of torch's functions refuse Python numbers."""
        if not value.plain:
            return value
        return Code(f"torch.tensor({value.text}, dtype={self.dtype(dtype)}, device={self.device})")

    def call(self, call: Call) -> Code:
        match call:
            case Call("pow_int", (base, Const(exponent))):
                text = Text(f"{{a}} ** {exponent}", POWER, (ATOM,))
                return Code(*fill(text, [self.tensor(self.expr(base), call.dtype).pair]))
            case Call("where", (condition, yes, no)):
                chosen = self.expr(condition), self.expr(yes), self.expr(no)
                return self.where(*chosen, call.dtype)
        row = FUNCTIONS[call.fn]
        values = [self.expr(a) for a in call.args]
        plain = all(v.plain for v in values)
        is_operator = not row.surface[:1].isalpha() and row.surface or row.name in ("and", "or")
        if plain and row.name == "not":
            return Code(f"(not {values[0].text})", ATOM, True)
        if plain and is_operator and row.name not in ("div", "floordiv", "mod", "pow"):
            return Code(*fill(row.torch, [v.pair for v in values]), True)
        dtypes = [a.dtype for a in call.args]
        extreme = row.name in ("maximum", "minimum")
        if extreme and dtypes[0] != "bool" and any(v.plain for v in values):
            return self.clamped(row.name, values, dtypes[0])
        if plain:
            values[0] = self.tensor(values[0], dtypes[0])
        if (
            row.name in NEEDS_TENSORS
            or extreme
            or (row.name == "clamp" and not all(v.plain for v in values[1:]))
        ):
            values = [self.tensor(v, dtype) for v, dtype in zip(values, dtypes, strict=True)]
        if row.name == "clamp":
            values[0] = self.tensor(values[0], dtypes[0])
        if row.name == "floordiv" and kind_of(call.dtype, self.function.op) == "float":
            # Autograd refuses the `//` of floats.
            a, b = self.tensor(values[0], dtypes[0]).text, values[1].text
            return Code(f'torch.div({a}, {b}, rounding_mode="floor")')
        return Code(*fill(row.torch, [v.pair for v in values]))

    def clamped(self, name: str, values: list[Code], dtype: str) -> Code:
        """max(x, 0): torch.maximum takes no number; of two numbers, one becomes a tensor."""
        bound, value = sorted(values, key=lambda v: not v.plain)
        value = self.tensor(value, dtype)
        side = "min" if name == "maximum" else "max"
        return Code(f"torch.clamp({value.text}, {side}={bound.text})")

    def where(self, condition: Code, yes: Code, no: Code, dtype: str) -> Code:
        if condition.plain and yes.plain and no.plain:
            return Code(f"({yes.text} if {condition.text} else {no.text})", ATOM, True)
        condition = self.tensor(condition, "bool")  # the result has the dims of both
        if yes.plain and no.plain:
            yes = self.tensor(yes, dtype)
        return Code(f"torch.where({condition.text}, {yes.text}, {no.text})")

    # ---- reducers -------------------------------------------------------------------------------
    def reduce(self, r: Reduce) -> Code:
        ranges = ranges_of(self.nest)
        if scan := scan_of(r, ranges, self.function.dims, self.function.facts):
            return self.scanned(r, scan)
        if pair := operands(r, ranges):
            return self.einsum(r, pair)
        outer = self.force, self.scope
        self.force, self.scope = [*self.force, *r.binders], {}
        terms = self.terms(r)
        there = self.met(r.guards) if r.guards else Code("True")
        folded = self.folded(r, terms, there.text)
        refused = REDUCERS[r.op].refuses_empty and not r.is_place
        self.force, self.scope = outer
        return self.extreme(r, folded) if refused else folded

    def scanned(self, r: Reduce, scan: Scan) -> Code:
        """All prefixes at once."""
        kept = [b for b in self.force if b.index in free_indices(r.body)]
        outer = self.force, self.scope, self.blocks
        self.force, self.scope, self.blocks = [*kept, scan.run], {}, {}
        terms = self.terms(replace(r, binders=(scan.run,), guards=()))
        text = terms.text if terms.precedence == ATOM or not scan.reverse else f"({terms.text})"
        self.force, self.scope, self.blocks = outer
        option = f", dtype={self.dtype(r.dtype)}" if self.narrow_int(r.dtype) else ""
        option = option if REDUCERS[r.op].widens else ""
        text = f"{text}.flip(-1)" if scan.reverse else text
        text = f"torch.{REDUCERS[r.op].torch_scan}({text}, -1{option})"
        text = text if REDUCERS[r.op].widens else f"{text}.values"
        text = f"{text}.flip(-1)" if scan.reverse else text
        if scan.exclusive:
            sides, rest = ("(0, 1)", "1:") if scan.reverse else ("(1, 0)", ":-1")
            # Padding takes a float, which the largest i64 is not: of inverted numbers, a minimum is a maximum.
            inverts = r.op == "min" and kind_of(r.body.dtype, self.function.op) == "int"
            fill = self.identity("max" if inverts else r.op, r.body.dtype)
            text = f"~({text})" if inverts else text
            text = f"torch.nn.functional.pad({text}, {sides}, value={fill})"
            text = f"(~{text})" if inverts else text
            text = text if scan.is_short else f"{text}[..., {rest}]"
        return Code(self.placed(text, [b.index for b in kept] + [scan.index]))

    def terms(self, r: Reduce) -> Code:
        """The body over all terms, the identity where a guard drops one."""
        body = self.expr(r.body)
        covered = free_indices(r.body)
        if r.guards:
            identity = Code(self.identity(r.op, r.body.dtype), ATOM, True)
            body = self.where(self.met(r.guards), body, identity, r.body.dtype)
            covered |= {name for g in r.guards for name in indices(g.poly)}
        if any(b.index not in covered for b in r.binders):
            value = self.tensor(body, r.body.dtype).text
            return Code(f"torch.broadcast_to({value}, {self.forced_shape})")
        return body

    def met(self, guards: tuple[Guard, ...]) -> Code:
        """Whether all conditions hold."""
        self.use(*(g.poly for g in guards))
        return self.printer.conditions(guards)

    def identity(self, op: str, dtype: str) -> str:
        value, kind = REDUCERS[op].identity, kind_of(dtype, self.function.op)
        if kind == "bool":
            return str(value > 0)
        if isfinite(value):
            return str(int(value))
        end = "max" if value > 0 else "min"
        return f'float("{value}")' if kind == "float" else f"torch.iinfo({self.dtype(dtype)}).{end}"

    def folded(self, r: Reduce, terms: Code, there: str) -> Code:
        if not r.binders:
            return terms
        text = terms.text if terms.precedence == ATOM else f"({terms.text})"
        count = len(r.binders)
        dims = "-1" if count == 1 else str(tuple(range(-count, 0)))
        flat = "" if count == 1 else f".flatten({-count})"
        row = REDUCERS[r.op]
        kept = f", dtype={self.dtype(r.dtype)}" if row.widens and self.narrow_int(r.dtype) else ""
        if row.several:
            return Code(f"{text}.{row.torch}({dims}{kept})")
        if r.is_place and not takes_all(r, self.function.facts):
            given = f"{r.op == 'argmax'}, {text}{flat}, {there}, {self.size(r.binders[0].lo)}"
            return Code(f"lib.first_extreme({given})")
        if r.is_place and kind_of(r.body.dtype, self.function.op) == "bool":
            text += ".to(torch.uint8)"  # torch has no places of bools
        return Code(f"{text}{flat}.{row.torch}(-1{kept})")

    def narrow_int(self, dtype: str) -> bool:
        return kind_of(dtype, self.function.op) == "int" and dtype != "i64"

    def extreme(self, r: Reduce, value: Code) -> Code:
        """torch refuses the maximum of nothing, which a bound may leave."""
        extents = [b.hi - b.lo for b in r.binders]
        open_ends = [e for e in extents if prove(e, ">", poly(0), self.function.facts) is not True]
        if not open_ends:
            return value
        some = " and ".join(dict.fromkeys(f"{self.size(e)} > 0" for e in open_ends))
        nothing = f"torch.full({self.forced_shape}, {self.identity(r.op, r.body.dtype)}"
        nothing += f", dtype={self.dtype(r.body.dtype)}, device={self.device})"
        return Code(f"{value.text} if {some} else {nothing}", 0)

    # ---- contractions ---------------------------------------------------------------------------
    def einsum(self, r: Reduce, pair: tuple[Operand, ...]) -> Code:
        """A sum of products of two tensors, each with the dims that it needs."""
        present = {name for operand in pair for name in operand.dims}
        letters = dict(zip(sorted(present), "abcdefghijklmnopqrstuvwxyz", strict=False))
        if all(len(name) == 1 for name in present):
            letters = {name: name for name in present}
        kept = [b.index for b in self.force if b.index in present]
        equation = ",".join("".join(letters[name] for name in o.dims) for o in pair)
        equation += "->" + "".join(letters[name] for name in kept)
        bytes_alone = r.dtype == "i64" and all(is_byte(o.value) for o in pair)
        if bytes_alone:  # f64 holds their sums, and torch has no products of i64 on GPUs
            bare = (o.value.arg if isinstance(o.value, Cast) else o.value for o in pair)
            pair = tuple(replace(o, value=Cast(e, "f64")) for o, e in zip(pair, bare, strict=True))
        values = ", ".join(self.operand(r, o) for o in pair)
        text = f'torch.einsum("{equation}", {values})'
        text += ".to(torch.int64)" if bytes_alone else ""
        inner = [b.index for b in self.force]
        while inner and inner[0] not in present:
            inner = inner[1:]
        if len(inner) > len(kept):
            text += f"[{', '.join(':' if name in present else 'None' for name in inner)}]"
        return Code(text)

    def operand(self, r: Reduce, operand: Operand) -> str:
        """One factor. It is 0 where none of its terms exist, whatever it holds."""
        ranges = {b.index: b for b in (*self.force, *r.binders)}
        outer = self.force, self.scope
        own = [ranges[name] for name in operand.dims]
        self.force, self.scope = own, {}
        value = self.expr(operand.value)
        covered = free_indices(operand.value)
        for g in r.guards:
            others = [ranges[n] for n in sorted(indices(g.poly) - set(operand.dims))]
            self.force, self.scope = own + others, {}
            condition = self.met((g,))
            if others:
                dims = "-1" if len(others) == 1 else tuple(range(-len(others), 0))
                condition = Code(f"({condition.text}).any({dims})")
            self.force, self.scope = own, {}
            value = self.where(condition, value, Code("0", ATOM, True), r.body.dtype)
            covered |= indices(g.poly)
        text = value.text
        if set(operand.dims) - covered:
            text = f"torch.broadcast_to({text}, {self.forced_shape})"
        self.force, self.scope = outer
        return text

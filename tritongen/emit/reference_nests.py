"""Nests as torch code that reads like the spec.

Input: a nest. Output: lines of Python:

    # y[n, d] = sum[k <= d](x[n, k])
    n = torch.arange(N, device=x.device)[:, None]
    d = torch.arange(D, device=x.device)
    k = torch.arange(D, device=x.device)[:, None, None]
    y = torch.where(k <= d, x[n, k], 0).sum(0).to(T)

The dims of the box stand last and those of reducers before them, so that an index has one shape
wherever it is used and torch's broadcasting, which aligns from the right, does the rest. Plain sums
of products are einsums. Not here: the head and the end of the function (`reference.py`).
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field, replace

from tritongen.emit.reference_sizes import Code, Names, Printer, free, literal, plain_index
from tritongen.ir.algebra import Poly, indices, is_size, poly
from tritongen.ir.binding import TORCH_NAMES
from tritongen.ir.bounds import facts_of, takes_all
from tritongen.ir.functions import FUNCTIONS
from tritongen.ir.nodes import (
    BATCH,
    Binder,
    Call,
    Cast,
    Const,
    Expr,
    IndexValue,
    Nest,
    Op,
    Read,
    Reduce,
    ScalarRef,
    Tensor,
    kind_of,
)
from tritongen.ir.print import line_ast
from tritongen.ir.reads import fill_reads
from tritongen.ir.texts import ATOM, POWER, UNARY, Text, fill
from tritongen.syntax.unparse import unparse

NEEDS_TENSORS = ("atan2", "hypot", "logaddexp", "fmod", "xlogy")


# ---- nests --------------------------------------------------------------------------------------
@dataclass(slots=True)
class Nests:
    """Prints nests in order; `pads` and `firsts` say whether a read or an argmax needs its helper."""

    op: Op
    names: Names
    pads: list[str] = field(default_factory=list)
    firsts: list[str] = field(default_factory=list)
    defined: dict[str, str] = field(default_factory=dict)  # what an index's variable holds now

    @property
    def dims(self) -> dict[str, tuple[Poly, ...]]:
        stored: tuple[Tensor | Nest, ...] = (*self.op.tensors, *self.op.nests)
        return {t.name: t.dims for t in stored}

    def lines(self, nest: Nest) -> list[str]:
        order = [next(iter(indices(c))) for c in nest.coords if c.constant != 0]
        box = {b.index: b for b in nest.box}
        line = unparse(line_ast(self.op, nest, self.dims))
        comment = textwrap.wrap(line, 92, initial_indent="# ", subsequent_indent="#     ")
        body = _Body(self, nest, [box[name] for name in order])
        value = body.stored()
        return [*comment, *body.ranges(), f"{nest.name} = {value}"]


@dataclass(slots=True)
class _Body:
    nests: Nests
    nest: Nest
    box: list[Binder]
    variables: dict[str, str] = field(default_factory=dict)  # variable -> its range, as code
    scope: dict[str, str] = field(default_factory=dict)  # index -> variable
    used: set[str] = field(default_factory=set)
    force: list[Binder] = field(default_factory=list)  # what has a dim, from the first to the last

    def __post_init__(self) -> None:
        self.bind(self.box)

    @property
    def names(self) -> Names:
        return self.nests.names

    @property
    def printer(self) -> Printer:
        return Printer(self.names, self.scope, self.nests.pads)

    def dtype(self, name: str) -> str:
        if name == "compute":
            return self.names.compute
        return f"torch.{TORCH_NAMES[name]}" if name in TORCH_NAMES else name

    @property
    def device(self) -> str:
        return f"{self.nests.op.tensors[0].name}.device"

    # ---- indices --------------------------------------------------------------------------------
    def bind(self, binders: list[Binder] | tuple[Binder, ...]) -> None:
        """Give the binders the dims before those of all that is in force."""
        self.force = [*binders, *self.force]
        for position, b in enumerate(binders):
            after = len(self.force) - 1 - position
            low, high = self.poly(b.lo), self.poly(b.hi)
            ends = high if b.lo == poly(0) else f"{low}, max({low}, {high})"
            shape = f"[:, {', '.join(['None'] * after)}]" if after else ""
            code = f"torch.arange({ends}, device={self.device}){shape}"
            name = self.names.row if b.index == BATCH else b.index
            variable, number = name, 2
            while self.variables.get(variable, code) != code:
                variable, number = f"{name}_{number}", number + 1
            self.variables[variable] = code
            self.scope[b.index] = variable

    def ranges(self) -> list[str]:
        """The ranges that the value uses and that do not stand already."""
        lines = []
        for variable, code in self.variables.items():
            if variable in self.used and self.nests.defined.get(variable) != code:
                self.nests.defined[variable] = code
                lines.append(f"{variable} = {code}")
        return lines

    def poly(self, p: Poly) -> str:
        self.use(p)
        return self.printer.poly(p)[0]

    def use(self, *polys: Poly) -> None:
        self.used |= {self.scope[name] for p in polys for name in indices(p)}

    # ---- the whole ------------------------------------------------------------------------------
    def stored(self) -> str:
        nest = self.nest
        value = self.expr(nest.body)
        dims = ", ".join(self.poly(d) for d in nest.dims)
        shape = f"({dims},)" if len(nest.dims) == 1 else f"({dims})"
        if value.plain:
            dtype = self.dtype(nest.dtype)
            return f"torch.full({shape}, {value.text}, dtype={dtype}, device={self.device})"
        missing = {b.index for b in self.box} - free(nest.body)
        if len(self.box) < len(nest.dims):
            value = Code(
                f"torch.broadcast_to({value.text}, {self.shape(self.box)}).reshape({shape})"
            )
        elif missing:
            value = Code(f"torch.broadcast_to({value.text}, {shape})")
        if nest.dtype != nest.body.dtype:
            value = self.to(value, nest.body.dtype, nest.dtype)
        return value.text

    def shape(self, binders: list[Binder]) -> str:
        extents = [self.poly(b.hi - b.lo) for b in binders]
        return f"({', '.join(extents)}{',' if len(extents) == 1 else ''})"

    def to(self, value: Code, given: str, dtype: str) -> Code:
        text, precedence = value.pair
        text = text if precedence == ATOM else f"({text})"
        narrow = dtype in ("i16", "i8", "u8") and kind_of(given, self.nests.op) == "float"
        through = ".to(torch.int64)" if narrow else ""
        return Code(f"{text}{through}.to({self.dtype(dtype)})")

    # ---- expressions ----------------------------------------------------------------------------
    def expr(self, expr: Expr) -> Code:
        match expr:
            case Const(value):
                return Code(literal(value), UNARY if value < 0 else ATOM, True)
            case ScalarRef(name):
                return Code(name, ATOM, any(c.name == name for c in self.nests.op.constants))
            case IndexValue(p, dtype):
                return self.index_value(p, dtype)
            case Read(tensor, coords, filler):
                self.use(*coords)
                return Code(self.printer.read(tensor, coords, filler))
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
        if code.plain or kind_of(dtype, self.nests.op) != "float":
            return code
        return self.to(code, "i64", dtype)

    def cast(self, arg: Expr, dtype: str) -> Code:
        value = self.expr(arg)
        operands = {t.name for t in self.nests.op.tensors}
        floating = kind_of(arg.dtype, self.nests.op) == "float"
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
        if row.name in ("maximum", "minimum") and sum(v.plain for v in values) == 1:
            return self.clamped(row.name, values)
        dtypes = [a.dtype for a in call.args]
        if plain:
            values[0] = self.tensor(values[0], dtypes[0])
        if row.name in NEEDS_TENSORS or (
            row.name == "clamp" and not all(v.plain for v in values[1:])
        ):
            values = [self.tensor(v, dtype) for v, dtype in zip(values, dtypes, strict=True)]
        if row.name in ("maximum", "minimum", "clamp"):
            values[0] = self.tensor(values[0], dtypes[0])
        return Code(*fill(row.torch, [v.pair for v in values]))

    def clamped(self, name: str, values: list[Code]) -> Code:
        """max(x, 0): torch.maximum takes no number."""
        bound, value = sorted(values, key=lambda v: not v.plain)
        side = "min" if name == "maximum" else "max"
        return Code(f"torch.clamp({value.text}, {side}={bound.text})")

    def where(self, condition: Code, yes: Code, no: Code, dtype: str) -> Code:
        if condition.plain:
            plain = yes.plain and no.plain
            return Code(f"({yes.text} if {condition.text} else {no.text})", ATOM, plain)
        if yes.plain and no.plain:
            yes = self.tensor(yes, dtype)
        return Code(f"torch.where({condition.text}, {yes.text}, {no.text})")

    # ---- reducers -------------------------------------------------------------------------------
    def reduce(self, r: Reduce) -> Code:
        if r.guards:
            body = fill_reads(r.body, self.nests.dims, {b.index: b for b in r.binders})
            r = replace(r, body=body)
        elif (product := self.einsum(r)) is not None:
            return product
        scope, force = dict(self.scope), self.force
        self.bind(r.binders)
        terms = self.terms(r)
        there = self.condition(r) if r.guards else Code("True")
        self.scope, self.force = scope, force
        return self.folded(r, terms, there.text)

    def terms(self, r: Reduce) -> Code:
        """The body over all terms, the identity where a guard drops one."""
        body = self.expr(r.body)
        covered = free(r.body)
        if r.guards:
            identity = Code(self.identity(r.op, r.body.dtype), ATOM, True)
            body = self.where(self.condition(r), body, identity, r.body.dtype)
            covered |= {name for g in r.guards for name in indices(g.poly)}
        if any(b.index not in covered for b in r.binders):
            value = self.tensor(body, r.body.dtype).text
            return Code(f"torch.broadcast_to({value}, {self.shape(self.force)})")
        return body

    def condition(self, r: Reduce) -> Code:
        """Whether a term passes all guards."""
        self.use(*(g.poly for g in r.guards))
        return self.printer.conditions(r.guards)

    def identity(self, op: str, dtype: str) -> str:
        match op:
            case "sum" | "prod":
                return "0" if op == "sum" else "1"
            case "any" | "all":
                return str(op == "all")
        low = op in ("max", "argmax")
        match kind_of(dtype, self.nests.op):
            case "float":
                return f'float("{"-" if low else ""}inf")'
            case "bool":
                return str(not low)
        return f"torch.iinfo({self.dtype(dtype)}).{'min' if low else 'max'}"

    def folded(self, r: Reduce, terms: Code, there: str) -> Code:
        if not r.binders:
            return terms
        text = terms.text if terms.precedence == ATOM else f"({terms.text})"
        count = len(r.binders)
        dims = "0" if count == 1 else str(tuple(range(count)))
        flat = "" if count == 1 else f".flatten(0, {count - 1})"
        kept = f", dtype={self.dtype(r.dtype)}" if self.narrow_int(r.dtype) else ""
        match r.op:
            case "sum":
                return Code(f"{text}.sum({dims}{kept})")
            case "prod":
                return Code(f"{text}{flat}.prod(0{kept})")
            case "max" | "min":
                return self.extreme(r, f"{text}.a{r.op}({dims})")
        if r.is_place and not takes_all(r, facts_of(self.nests.op)):
            self.nests.firsts.append(r.op)
            given = f"{r.op == 'argmax'}, {text}{flat}, {there}, {self.poly(r.binders[0].lo)}"
            return Code(f"{self.names.first}({given})")
        return Code(f"{text}{flat}.{r.op}(0)")

    def narrow_int(self, dtype: str) -> bool:
        return kind_of(dtype, self.nests.op) == "int" and dtype != "i64"

    def extreme(self, r: Reduce, text: str) -> Code:
        """torch refuses the maximum of nothing."""
        extents = [b.hi - b.lo for b in r.binders]
        open_ends = [e for e in extents if e.constant is None or e.constant <= 0]
        if not open_ends:
            return Code(text)
        some = " and ".join(f"{self.poly(e)} > 0" for e in open_ends)
        shape = self.shape(self.force)
        nothing = f"torch.full({shape}, {self.identity(r.op, r.body.dtype)}"
        nothing += f", dtype={self.dtype(r.body.dtype)}, device={self.device})"
        return Code(f"{text} if {some} else {nothing}", 0)

    # ---- contractions ---------------------------------------------------------------------------
    def einsum(self, r: Reduce) -> Code | None:
        """A sum of products of whole tensors, each subscripted by plain indices."""
        factors = _factors(r.body) if r.op == "sum" else []
        if len(factors) < 2:
            return None
        dims = self.nests.dims
        ranges = {b.index: b for b in (*self.box, *r.binders)}
        subscripts = []
        for factor in factors:
            read = factor.arg if isinstance(factor, Cast) else factor
            if not isinstance(read, Read) or read.fill is not None or not read.coords:
                return None
            used = [plain_index(c) for c in read.coords]
            whole = all(
                name in ranges and ranges[name].lo == poly(0) and ranges[name].hi == extent
                for name, extent in zip(used, dims[read.tensor], strict=True)
            )
            if not whole or len(set(used)) < len(used):
                return None
            subscripts.append(used)
        present = {name for used in subscripts for name in used}
        if not {b.index for b in r.binders} <= present or self.force != self.box:
            return None
        return self.einsum_text(factors, subscripts, present)

    def einsum_text(self, factors, subscripts, present) -> Code:
        letters = dict(zip(sorted(present), "abcdefghijklmnopqrstuvwxyz", strict=False))
        if all(len(name) == 1 for name in present):
            letters = {name: name for name in present}
        equation = ",".join("".join(letters[name] for name in used) for used in subscripts)
        kept = [b.index for b in self.box if b.index in present]
        equation += "->" + "".join(letters[name] for name in kept)
        values = []
        for factor in factors:
            read = factor.arg if isinstance(factor, Cast) else factor
            assert isinstance(read, Read)  # as `einsum` chose them
            whole = Code(read.tensor)
            if isinstance(factor, Cast):
                operands = {t.name for t in self.nests.op.tensors}
                widened = read.tensor in operands and factor.dtype == "compute"
                floating = kind_of(read.dtype, self.nests.op) == "float"
                if not (widened and floating):
                    whole = self.to(whole, read.dtype, factor.dtype)
            values.append(whole.text)
        text = f'torch.einsum("{equation}", {", ".join(values)})'
        inner = [b.index for b in self.box]
        while inner and inner[0] not in present:
            inner = inner[1:]
        if len(inner) > len(kept):
            text += f"[{', '.join(':' if name in present else 'None' for name in inner)}]"
        return Code(text)


def _factors(expr: Expr) -> list[Expr]:
    match expr:
        case Call("mul", (a, b)):
            return _factors(a) + _factors(b)
    return [expr]

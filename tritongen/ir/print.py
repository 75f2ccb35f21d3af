"""The IR, in the language.

Input: an op. Output: a syntax tree, or its text, that the checker turns into the same op. Example,
of the gradient of `y[n] = sum[k <= n](x[k])`:

    op f_grad<T: float>(dy: T[N]) -> dx: T[N] {
      dx[k] = sum[n >= k](dy[n])
    }

Guards that have the form of a binder's bound are printed as one, others as a `where` around the
term. Casts to the compute type are left out: the checker puts them back. Not here: coordinates
(`print_poly.py`), layout and parentheses (`syntax/unparse.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isinf

from tritongen.ir.algebra import (
    Fetch,
    Idx,
    Poly,
    Sym,
    indices,
    is_size,
    poly,
    size,
    substitute_atoms,
    symbols,
)
from tritongen.ir.algebra import walk as walk_poly
from tritongen.ir.batches import mean_of
from tritongen.ir.ends import box_end
from tritongen.ir.free import all_indices
from tritongen.ir.functions import FUNCTIONS
from tritongen.ir.integers import wraps_here
from tritongen.ir.known import facts_of
from tritongen.ir.names import unlike
from tritongen.ir.nodes import (
    BATCH,
    BATCH_SIZE,
    FLOATS,
    INTS,
    Binder,
    Call,
    Cast,
    Const,
    Constant,
    Define,
    Expr,
    Fact,
    Guard,
    IndexValue,
    Nest,
    Op,
    Param,
    Read,
    Reduce,
    Require,
    Scalar,
    ScalarRef,
    Tensor,
    TypeParam,
    kind_of,
    parts,
)
from tritongen.ir.print_poly import (
    NotWritable,
    bound_ast,
    bound_of,
    condition_ast,
    literal,
    number,
    poly_ast,
    read_ast,
)
from tritongen.ir.reads import reads_of
from tritongen.ir.reducers import REDUCERS
from tritongen.syntax import ast
from tritongen.syntax.unparse import unparse

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
FAMILIES = {"float": FLOATS, "int": INTS, "bool": ("bool",)}
Dims = dict[str, tuple[Poly, ...]]  # the dims of everything that may be read


def print_op(op: Op) -> str:
    return unparse(op_ast(op))


def op_ast(op: Op) -> ast.OpDef:
    dims = {t.name: t.dims for t in (*op.tensors, *op.outputs)}
    dims |= {nest.name: nest.dims for nest in op.nests}
    lines = tuple(line_ast(op, nest, dims) for nest in op.nests)
    return ast.OpDef(
        op.name,
        tuple(_typaram(p, op) for p in op.typarams),
        tuple(_param(p) for p in op.params),
        tuple(_tensor(t) for t in op.outputs),
        # Other facts follow from dims and reads, and the checker finds them again.
        tuple(_fact(f, op) for f in op.facts if isinstance(f, Define) or f.origin == "fact"),
        _count_line(op) + lines if any(_counts_batch(nest.body) for nest in op.nests) else lines,
        tuple(_clauses(op, dims)),
    )


# ---- signature ----------------------------------------------------------------------------------
def _typaram(p: TypeParam, op: Op) -> ast.TypeParam:
    whole = set(p.dtypes) == set(FAMILIES[p.kind])
    default = p.default if p in op.free_typarams and p.default in p.dtypes else None
    return ast.TypeParam(p.name, (p.kind,) if whole else p.dtypes, default)


def _param(p: Param) -> ast.Param:
    match p:
        case Tensor():
            return _tensor(p)
        case Scalar(name, dtype, default):
            return ast.Operand(name, ast.Type(dtype), literal(default))
        case Constant(name, dtype, default):
            return ast.ConstParam(name, dtype, literal(default))
    raise TypeError(p)


def _tensor(t: Tensor) -> ast.Operand:
    dims = tuple(ast.Dots() if d == BATCH_SIZE else poly_ast(d) for d in t.dims)
    # What a forward keeps in the type that it computes in, f64 where an operand is; the language has no word for it.
    dtype = "f32" if t.dtype == "compute" else t.dtype
    return ast.Operand(t.name, ast.Type(dtype, dims or None))


def _fact(fact: Fact, op: Op) -> ast.Fact:
    match fact:
        case Define(name, value) if any(poly(Sym(name)) in t.dims for t in op.tensors):
            # A size that an operand binds becomes a requirement: the gradient of an output is an operand.
            return ast.Require(ast.Compare("==", poly_ast(poly(Sym(name))), poly_ast(value)))
        case Define(name, value):
            return ast.Define(name, poly_ast(value))
        case Require(left, relation, right):
            return ast.Require(ast.Compare(relation, poly_ast(left), poly_ast(right)))
    raise TypeError(fact)


def _clauses(op: Op, dims: Dims) -> list[ast.Clause]:
    clauses: list[ast.Clause] = []
    if op.gradient == "none":
        clauses.append(ast.GradNone())
    elif isinstance(op.gradient, tuple):
        dims = dims | {f"d{o.name}": o.dims for o in op.outputs}
        dims |= {nest.name: nest.dims for nest in op.gradient}
        clauses.append(ast.GradBlock(tuple(line_ast(op, nest, dims) for nest in op.gradient)))
    if op.ref is not None:
        clauses.append(ast.Ref(op.ref))
    if op.doc:
        clauses.append(ast.Doc(op.doc))
    if op.precision:
        clauses.append(ast.Precision(op.precision))
    if op.autocast:
        clauses.append(ast.Autocast(op.autocast))
    clauses += [ast.Tol(t.dtype, t.rtol, t.atol) for t in op.tolerances]
    if op.tune:
        clauses.append(
            ast.Tune(tuple(ast.Knob(name, tuple(map(int, values))) for name, values in op.tune))
        )
    return clauses


# ---- the number of batch elements, which has no name in the language -----------------------------
def _counts_batch(body: Expr) -> bool:
    """Whether the number is used as a value, other than by a mean."""
    if isinstance(body, IndexValue):
        return BATCH in symbols(body.poly)
    if (total := _mean(body)) is not None:
        return _counts_batch(total.body)
    return any(_counts_batch(part) for part in parts(body))


def _count_name(op: Op) -> str:
    taken = {p.name for p in (*op.params, *op.outputs)} | {nest.name for nest in op.nests}
    taken |= all_indices(op.nests)
    return unlike("batch", taken)


def _count_line(op: Op) -> tuple[ast.Assign]:
    count = ast.Reduce("sum", (ast.Binder(BATCH),), number(1))
    return (ast.Assign(_count_name(op), None, count),)


def _mean(expr: Expr) -> Reduce | None:
    """The sum that a `mean` was, of all terms of its box."""
    total = mean_of(expr)
    return total if total is not None and not total.guards else None


# ---- lines --------------------------------------------------------------------------------------
def line_ast(op: Op, nest: Nest, dims: Dims) -> ast.Assign:
    printer = _Printer(op, dims, {b.index: (b.lo, b.hi) for b in nest.box})
    given = {o.name for o in op.outputs} | {f"d{t.name}" for t in op.tensors}
    box = {b.index: b for b in nest.box}
    left: list[ast.Name | ast.Number | ast.Dots | ast.Binder] = []
    for coordinate, extent in zip(nest.coords, nest.dims, strict=True):
        if coordinate.constant == 0:
            left.append(ast.Number(0))
            continue
        binder = box.get(str(coordinate))
        if binder is None:  # of plans alone
            raise NotWritable(f"it is stored at {coordinate}, which is no index")
        left.append(printer.left(binder, nest.body, extent if nest.name in given else None))
    body = nest.body
    if isinstance(body, Cast) and body.dtype == nest.dtype and nest.name in given:
        # The store rounds, but only within a kind.
        if kind_of(body.arg.dtype, op) == kind_of(body.dtype, op) == "float":
            body = body.arg
    return ast.Assign(nest.name, tuple(left) or None, printer.expr(body))


@dataclass(frozen=True, slots=True)
class _Printer:
    op: Op
    dims: Dims
    ranges: dict[str, tuple[Poly, Poly]]  # of the indices in force
    widens: bool = False  # whether the checker widens integers here, as in a sum

    def left(self, b: Binder, body: Expr, extent: Poly | None) -> ast.Name | ast.Dots | ast.Binder:
        """An index of a left side; bare where an output's dim or the reads give its range."""
        if b.index == BATCH:
            return ast.Dots()
        implied = extent if extent is not None else self.implied(b.index, body)
        if b.lo == poly(0) and b.hi == implied:
            return ast.Name(b.index)
        low = None if b.lo == poly(0) else poly_ast(b.lo)
        return ast.Binder(b.index, low, False, poly_ast(b.hi), True)

    def implied(self, index: str, body: Expr) -> Poly | None:
        """The dim that the index subscripts alone in reads without `else`, or in those with one."""
        plain, padded = self.alone(index, body)
        found = plain or padded
        return found.pop() if len(found) == 1 else None

    def alone(self, index: str, body: Expr) -> tuple[set[Poly], set[Poly]]:
        """The dims that the index subscripts alone, in reads without `else` and with one."""
        plain: set[Poly] = set()
        padded: set[Poly] = set()
        for tensor, coords, fill in reads_of(body):
            pairs = zip(coords, self.dims[tensor], strict=True)
            found = {d for c, d in pairs if c == poly(Idx(index))}
            (plain if fill is None else padded).update(found)
        return plain, padded

    def expr(self, expr: Expr) -> ast.Expr:
        match expr:
            case Const(value):
                return ast.Bool(value) if isinstance(value, bool) else number(value)
            case ScalarRef(name):
                return ast.Name(name)
            case IndexValue(p, dtype) if p.constant is not None:
                return number(self.as_written(int(p.constant), dtype))
            case IndexValue(p):
                count = size(_count_name(self.op))
                p = substitute_atoms(p, lambda atom: count if atom == Sym(BATCH) else None)
                return self.exact(poly_ast(p), inner=True)
            case Read(tensor, coords, fill, dtype):
                given = None if fill is None else self.as_written(fill, dtype)
                return read_ast(tensor, coords, given)
            case Cast(arg, "compute"):
                return self.expr(arg)
            case Cast(Call() as arg, dtype) if dtype == arg.dtype:
                return ast.Call(dtype, (self.call(arg),))
            case Cast(arg, dtype):
                return ast.Call(dtype, (self.expr(arg),))
            case Call("seen", (_, value)):  # of plans alone
                return self.expr(value)
            case Call():
                total = _mean(expr)
                if total is not None:
                    return self.reduce(total, "mean")
                if self.widens and wraps_here(expr, lambda t: kind_of(t, self.op) == "int"):
                    return ast.Call(expr.dtype, (self.call(expr),))
                return self.call(expr)
            case Reduce():
                return self.reduce(expr, expr.op)
        raise TypeError(expr)

    def as_written(self, value: int | float | bool, dtype: str) -> int | float | bool:
        """The number as the checker makes one of its dtype: 2.0 among floats."""
        return float(value) if kind_of(dtype, self.op) == "float" else value

    def call(self, call: Call) -> ast.Expr:
        args = tuple(self.expr(a) for a in call.args)
        surface = FUNCTIONS[call.fn].surface or call.fn
        if surface in COMPARISONS:
            return ast.Compare(surface, *args)
        if surface in ("and", "or"):
            return ast.BoolOp(surface, *args)
        if surface == "not":
            return ast.Not(*args)
        if surface[0].isalpha():
            return ast.Call(surface, args)
        return ast.Unary(surface, *args) if len(args) == 1 else ast.Binary(surface, *args)

    def exact(self, e: ast.Expr, inner: bool = False) -> ast.Expr:
        """A poly as a value: in its sums and products what is read is widened, which a poly never wraps."""
        match e:
            case ast.Read(name) | ast.Name(name) if inner and self.is_narrow(name):
                return ast.Call("i64", (e,))
            case ast.Binary(_, a, b):
                return replace(e, a=self.exact(a, True), b=self.exact(b, True))
            case ast.Unary(_, x):
                return replace(e, x=self.exact(x, True))
            case ast.Compare(_, a, b) | ast.BoolOp(_, a, b):
                return replace(e, a=self.exact(a), b=self.exact(b))
        return e

    def is_narrow(self, name: str) -> bool:
        dtypes = {t.name: t.dtype for t in (*self.op.tensors, *self.op.outputs)}
        dtypes |= {nest.name: nest.dtype for nest in self.op.nests}
        return dtypes.get(name, "i64") != "i64"

    # ---- reducers -------------------------------------------------------------------------------
    def reduce(self, r: Reduce, name: str) -> ast.Expr:
        guards = list(r.guards)
        binders = []
        printer = replace(self, widens=self.widens or REDUCERS[r.op].widens)
        for b in r.binders:
            binders.append(printer.binder(b, r, guards))
            printer = printer.inside((b,))
        printed = printer.expr(r.body)
        if guards:
            printed = ast.Call("where", (self.exact(_all(guards)), printed, self.identity(r)))
        return ast.Reduce(name, tuple(binders), printed) if binders else printed

    def inside(self, binders: tuple[Binder, ...]) -> _Printer:
        return replace(self, ranges=self.ranges | {b.index: (b.lo, b.hi) for b in binders})

    def binder(self, b: Binder, r: Reduce, guards: list[Guard]) -> ast.Binder:
        """The binder with its range. Removes the guards that are bounds of it."""
        if b.index == BATCH:
            return ast.Binder(BATCH)
        low = None if b.lo == poly(0) else poly_ast(b.lo)
        plain = self.implied(b.index, r.body) == b.hi and self.agree(b, guards)
        plain = plain and not (REDUCERS[r.op].refuses_empty and self.may_be_empty(b))
        high = None if plain else poly_ast(b.hi)
        result = ast.Binder(b.index, low, False, high, True)
        for upper in (False, True):
            said = self.said(b, r, guards, upper)
            if not said:
                continue
            strict = bound_ast(upper, said[0][1])[1]
            offset = (1 if upper else -1) if strict else 0
            ends = tuple(poly_ast(bound + offset) for _, bound in said)
            end = ends[0] if len(ends) == 1 else ast.Call("min" if upper else "max", ends)
            if upper:
                result = replace(result, high=end, high_strict=strict)
            else:
                result = replace(result, low=end, low_strict=strict)
            for guard, _ in said:
                guards.remove(guard)
        return result

    def said(
        self, b: Binder, r: Reduce, guards: list[Guard], upper: bool
    ) -> list[tuple[Guard, Poly]]:
        """The guards that form one end of a binder, with that end. None if the checker would make another box."""
        pairs = ((g, bound_of(b.index, g.poly)) for g in guards if g.op == ">=")
        found = [(g, f[1]) for g, f in pairs if f is not None and f[0] == upper]
        found = [(g, e) for g, e in found if indices(e) <= self.ranges.keys()]
        if all(is_size(e) for _, e in found):
            return []
        plain, _ = self.alone(b.index, r)
        dims = next(iter(plain)) if len(plain) == 1 else None
        ends = tuple(e + 1 if upper else e for _, e in found)
        end = box_end(ends, dims, self.ranges, lambda: facts_of(self.op), upper)
        if end is None:
            end = self.implied(b.index, r) if upper else poly(0)
        return found if end == (b.hi if upper else b.lo) and len(plain) < 2 else []

    def may_be_empty(self, b: Binder) -> bool:
        """Whether no fact says that there is a term, as a max or argmax without a bound does."""
        facts = (f for f in self.op.facts if isinstance(f, Require))
        return not any((f.left, f.op, f.right) == (b.hi, ">", poly(0)) for f in facts)

    def agree(self, b: Binder, guards: list[Guard]) -> bool:
        """Whether no integer that a guard reads has another dim along the index: `off[s + 1]` and `off[s]` have."""
        read = (a for g in guards for a in walk_poly(g.poly) if isinstance(a, Fetch))
        pairs = (p for a in read for p in zip(a.coords, self.dims[a.tensor], strict=True))
        return all(dim == b.hi for coordinate, dim in pairs if coordinate == poly(Idx(b.index)))

    def identity(self, r: Reduce) -> ast.Expr:
        """The value of a term that a guard drops."""
        kind = next((p.kind for p in self.op.typarams if p.name == r.body.dtype), r.body.dtype)
        value = REDUCERS[r.op].identity
        if r.is_place or isinf(value) and kind in ("int", "bool", *INTS):
            raise NotWritable(f"it has {r.op} over {r.body.dtype} under a guard")
        if kind == "bool":
            return ast.Bool(value > 0)
        return number(value if isinf(value) else int(value))


def _all(guards: list[Guard]) -> ast.Expr:
    first, *rest = (condition_ast(g.poly, g.op) for g in guards)
    for other in rest:
        first = ast.BoolOp("and", first, other)
    return first

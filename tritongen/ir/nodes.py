"""The IR: an op is a list of nests. A nest is a box of indices and a scalar expression.

    op row_mean<T: float>(x: T[N, D]) -> y: T[N]:
        Nest("y", box=(n < N,), coords=(n,), body=Reduce("sum", (d < D,), (), Read x[n, d]) / D)

This is the model of MLIR's linalg, with reducers as expressions. A reducer has binders (ranges) and guards
(`poly >= 0`, `poly == 0`). So `k <= i`, padding, exact division, one-hot and scatter are the same thing. Everything is
typed: the checker resolves the promotion of Python scalars and inserts every cast.

**Dtypes** are strings. Concrete ones are f64 f32 f16 bf16 f8e4m3 f8e5m2 i64 i32 i16 i8 u8 bool. A type parameter is its
name ("T"): how an operand is stored. "compute" is the float type of the call: f64 if some floating operand is f64, else
f32. One `Op` is one *typing*: `kinds` says whether each type parameter stands for floats, ints or bools. `T: float | int`
gives two Ops.

**The batch dims** `...` are one index named "..." whose extent is the size "...": the product of the broadcast batch
shape. The wrapper and the oracle expand and flatten tensors before they use them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from operator import is_not
from typing import Union

from tritongen.ir.algebra import Poly, Sym, index, poly
from tritongen.ir.dtypes import FLOATS as FLOATS
from tritongen.ir.dtypes import HALVES
from tritongen.ir.dtypes import INTS as INTS
from tritongen.ir.dtypes import NARROW_FLOATS as NARROW_FLOATS
from tritongen.ir.reducers import REDUCERS
from tritongen.work import spend

BATCH = "..."  # the name of the batch index and of its extent
BATCH_SIZE = poly(Sym(BATCH))


# ---- signature ----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class TypeParam:
    """`T: f16 | bf16`, narrowed to the dtypes of one kind."""

    name: str
    kind: str  # float | int | bool
    dtypes: tuple[str, ...]
    default: str | None = None  # of one that no operand binds; perhaps of another kind


@dataclass(frozen=True, slots=True)
class Tensor:
    """An operand or output. Dims are sizes; a bare symbol that nothing else defines is bound by the call."""

    name: str
    dtype: str
    dims: tuple[Poly, ...]  # BATCH_SIZE stands for any number of dims
    whole: bool = (
        False  # its batch dims are those of the whole call, as those of a result: it broadcasts to no others
    )


@dataclass(frozen=True, slots=True)
class Scalar:
    """A run-time scalar: a Python number or a 0-dim tensor; travels as f64 (floats) or i64 (ints, bool)."""

    name: str
    dtype: str  # as declared
    default: int | float | bool | None


@dataclass(frozen=True, slots=True)
class Constant:
    """A compile-time value. An int constant is also the size symbol of its name."""

    name: str
    dtype: str  # int | float | bool
    default: int | float | bool | None


Param = Union[Tensor, Scalar, Constant]


@dataclass(frozen=True, slots=True)
class Define:
    """`P = ...`: a size that no operand binds."""

    name: str
    value: Poly


@dataclass(frozen=True, slots=True)
class Require:
    """A fact that the wrapper checks: `left op right`, op one of == != < <= > >=. The error shows `text`.

    `origin`: "fact" (written after `with`), "dim" (an expression in a dim), "agree" (two dims that one index subscripts), "bounds" (an
    undecided bounds obligation without indices).
    `batch`: the operands whose broadcast batch dims `left`, which then is BATCH_SIZE alone, stands for.
    """

    left: Poly
    op: str
    right: Poly
    text: str
    origin: str = "fact"
    batch: tuple[str, ...] = ()


Fact = Union[Define, Require]


# ---- bodies -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Const:
    value: int | float | bool
    dtype: str


@dataclass(frozen=True, slots=True)
class ScalarRef:
    """The value of a run-time scalar, or of a float or bool constant."""

    name: str
    dtype: str


@dataclass(frozen=True, slots=True)
class IndexValue:
    """A coordinate or size used as a number: `where(j <= i, ...)`, `sum[d](...) / D`."""

    poly: Poly
    dtype: str


@dataclass(frozen=True, slots=True)
class Read:
    """tensor[coords]. Outside of the tensor, or if a coordinate is not an integer, it is `fill`. None: proven to be inside.

    dtype is the tensor's storage dtype (operands and outputs: "T" or concrete) or, for a temporary, its compute type. Reads of floating
    operands and outputs are always wrapped in a Cast.
    """

    tensor: str
    coords: tuple[Poly, ...]
    fill: int | float | bool | None
    dtype: str


@dataclass(frozen=True, slots=True)
class Call:
    """A row of the function table (`add`, `where`, `exp`, ...) applied to arguments of equal dtype

    (but for the condition of `where` and the integer power of `pow_int`); dtype is the result's.
    `stored`: the dtype of the stores that the value reaches by products and sums (set by `ir.forms`).
    """

    fn: str
    args: tuple[Expr, ...]
    dtype: str
    stored: str = ""


@dataclass(frozen=True, slots=True)
class Cast:
    """The value rounded to dtype (a half type or "T" rounds, then computes on as what wraps it says)."""

    arg: Expr
    dtype: str


@dataclass(frozen=True, slots=True)
class Binder:
    """One index of a box: lo <= index < hi, both sizes."""

    index: str
    lo: Poly
    hi: Poly


Binders = tuple[Binder, ...]


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition on terms of a reducer: `poly >= 0` or `poly == 0` (a poly that is no integer fails both)."""

    poly: Poly
    op: str  # ">=" | "=="


@dataclass(frozen=True, slots=True)
class Reduce:
    """op, a name of `REDUCERS`, over the terms of the box that pass all guards.

    The accumulator has the body's dtype. The result of argmax and argmin is an i64: the value of the index at the term; with several
    indices, which start at 0, the term's row-major number; -1 if there is no term. `mean` is a sum and a division, except where
    `schedule/means.py` makes it a fold of a kernel. A `sum` without binders is a guarded term.
    """

    op: str
    binders: tuple[Binder, ...]
    guards: tuple[Guard, ...]
    body: Expr
    dtype: str

    @property
    def is_place(self) -> bool:
        """Whether it gives the place of a term instead of a value: argmax, argmin."""
        return REDUCERS[self.op].is_place

    @property
    def number(self) -> Poly:
        """The number that argmax and argmin return for a term."""
        total = Poly()
        for b in self.binders:
            total = total * b.hi + index(b.index)
        return total

    @property
    def factors(self) -> tuple[Expr, Expr]:
        """The two factors of a sum of products. TypeError for another reducer."""
        match self.body:
            case Call("mul", (left, right)) | Call("scaled", (Call("mul", (left, right)), _)):
                return left, right
        raise TypeError(f"no product of two factors: {self.body}")

    @property
    def scale(self) -> Expr | None:
        """A scale that a run of products shares: the plan multiplies their sum by it."""
        match self.body:
            case Call("scaled", (_, scale)):
                return scale
        return None


Expr = Union[Const, ScalarRef, IndexValue, Read, Call, Cast, Reduce]


# ---- ops ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Nest:
    """name[coords] = body over the box; a temporary or an output.

    `dims` are the extents of the thing written; `coords` has one entry per dim: an index of the box, or 0.
    """

    name: str
    box: tuple[Binder, ...]
    coords: tuple[Poly, ...]
    dims: tuple[Poly, ...]
    body: Expr
    dtype: str  # what is stored: an output's declared dtype, a temporary's compute type
    part_of: str = ""  # what a plan took it out of: a line of the op, whose name this is

    @property
    def line(self) -> str:
        """The name of the line of the op that it is, or is part of."""
        return self.part_of or self.name

    @property
    def ranges(self) -> tuple[Binder, ...]:
        """Those of its box, and of the reducer that its value is."""
        return (*self.box, *self.body.binders) if isinstance(self.body, Reduce) else self.box

    @property
    def over(self) -> set[str]:
        """The indices of its box."""
        return {b.index for b in self.box}

    @property
    def reduced(self) -> set[str]:
        """The indices of the reducer that its value is."""
        return {b.index for b in self.body.binders} if isinstance(self.body, Reduce) else set()

    def reading(self, change: Callable[[Read], Expr]) -> Nest:
        """The nest with `change` applied to every read."""
        return replace(self, body=with_reads(self.body, change))

    @property
    def fold(self) -> Reduce:
        """The reducer that the value is; TypeError for a value that is none."""
        if not isinstance(self.body, Reduce):
            raise TypeError(f"{self.name} is no reducer")
        return self.body


Nests = tuple[Nest, ...]


@dataclass(frozen=True, slots=True)
class Tolerance:
    dtype: str
    rtol: float
    atol: float


@dataclass(frozen=True, slots=True)
class Op:
    """One op, typed for one kind of each type parameter."""

    name: str
    typarams: tuple[TypeParam, ...]
    params: tuple[Param, ...]
    outputs: tuple[Tensor, ...]
    facts: tuple[Fact, ...]
    nests: tuple[Nest, ...]  # in an order in which every read follows its write
    gradient: str | tuple[Nest, ...] = "derive"  # derive | none | nests written by hand
    ref: str | None = None  # the text of the ref clause, validated
    doc: str = ""
    precision: str = ""  # ieee | tf32x3 | tf32, "" for the default
    autocast: str = ""
    tolerances: tuple[Tolerance, ...] = ()
    tune: tuple[tuple[str, tuple[float, ...]], ...] = ()
    text: str = ""  # the spec, as written
    kept: tuple[str, ...] = ()  # outputs that copy temporaries, for the gradient alone

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(p for p in self.params if isinstance(p, Tensor))

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        return tuple(p for p in self.params if isinstance(p, Scalar))

    @property
    def constants(self) -> tuple[Constant, ...]:
        return tuple(p for p in self.params if isinstance(p, Constant))

    @property
    def free_typarams(self) -> tuple[TypeParam, ...]:
        """The type parameters that no operand binds: arguments of the call."""
        bound = {t.dtype for t in self.tensors}
        return tuple(p for p in self.typarams if p.name not in bound)

    def typed(self, dtype: str) -> Tensor:
        """The first operand of that dtype, or result where no operand has it."""
        return next(t for t in (*self.tensors, *self.outputs) if t.dtype == dtype)

    @property
    def requires(self) -> tuple[Require, ...]:
        return tuple(f for f in self.facts if isinstance(f, Require))

    @property
    def defines(self) -> tuple[Define, ...]:
        return tuple(f for f in self.facts if isinstance(f, Define))


def parts(expr: Expr) -> tuple[Expr, ...]:
    """The expressions right below this one."""
    match expr:
        case Call(_, args):
            return args
        case Cast(arg) | Reduce(body=arg):
            return (arg,)
    return ()


def with_parts(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """expr with `change` applied to the expressions right below it."""
    match expr:
        case Call(_, args):
            return replace(expr, args=tuple(map(change, args)))
        case Cast(arg):
            return replace(expr, arg=change(arg))
        case Reduce(body=body):
            return replace(expr, body=change(body))
    return expr


def core(expr: Expr) -> Expr:
    """The value inside of all casts."""
    while isinstance(expr, Cast):
        expr = expr.arg
    return expr


def walk(expr: Expr) -> Iterator[Expr]:
    """This expression and all below it, outermost first."""
    waiting = [expr]
    while waiting:
        expr = waiting.pop()
        spend()
        yield expr
        match expr:
            case Call(_, args):
                waiting += args[::-1]
            case Cast(arg) | Reduce(body=arg):
                waiting.append(arg)


def exceeds(expr: Expr, count: int) -> bool:
    """Whether there are more expressions in this one than count; no more are looked at."""
    return next(islice(walk(expr), count, None), None) is not None


def rebuild(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """expr with `change` applied to every node, innermost first."""
    spend()
    match expr:
        case Call(_, args):
            new = tuple([rebuild(a, change) for a in args])
            if any(map(is_not, new, args)):
                expr = replace(expr, args=new)
        case Cast(arg):
            if (inner := rebuild(arg, change)) is not arg:
                expr = replace(expr, arg=inner)
        case Reduce(body=body):
            if (inner := rebuild(body, change)) is not body:
                expr = replace(expr, body=inner)
    return change(expr)


def with_reads(expr: Expr, change: Callable[[Read], Expr]) -> Expr:
    """expr with `change` applied to every read."""
    return rebuild(expr, lambda e: change(e) if isinstance(e, Read) else e)


def with_folds(expr: Expr, change: Callable[[Reduce], Expr]) -> Expr:
    """expr with `change` applied to every reducer, innermost first."""
    return rebuild(expr, lambda e: change(e) if isinstance(e, Reduce) else e)


def dtypes_of(dtype: str, op: Op) -> tuple[str, ...]:
    """The dtypes that a dtype of the op may stand for in its calls."""
    return next((p.dtypes for p in op.typarams if p.name == dtype), (dtype,))


def may_be_f64(dtype: str, op: Op) -> bool:
    return "f64" in dtypes_of(dtype, op)


def may_be_f8(dtype: str, op: Op) -> bool:
    return not set(NARROW_FLOATS).isdisjoint(dtypes_of(dtype, op))


def may_compute_f64(op: Op) -> bool:
    """Whether a call may compute in f64. Where operands have the compute type, results may be all that says it: behind chunks."""
    own = op.tensors and all(t.dtype != "compute" for t in op.tensors)
    told = op.tensors if own else (*op.tensors, *op.outputs)
    return any(may_be_f64(t.dtype, op) for t in told)


def may_be_half(dtype: str, op: Op) -> bool:
    """Whether it has fewer than 32 bits in some call."""
    return not set(HALVES).isdisjoint(dtypes_of(dtype, op))


def kind_of(dtype: str, op: Op) -> str:
    """float, int or bool, for any dtype that occurs in the op."""
    for p in op.typarams:
        if p.name == dtype:
            return p.kind
    if dtype == "bool":
        return "bool"
    return "int" if dtype in INTS else "float"

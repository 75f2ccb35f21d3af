"""The syntax tree of a `.op` file: one frozen class per grammar rule.

Input: none. Output: the classes that `parse` builds and `unparse` prints. Example: `x[n, d] / 2` is

    Binary("/", Read("x", (Name("n"), Name("d"))), Number(2))

Every node carries `span`, the place it was read from; it is None on nodes built by a program, and
plays no part in equality. Not here: what names refer to, types, ranges (`tritongen.check`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Union

from tritongen.errors import Span

DOTS = "..."


@dataclass(frozen=True, slots=True)
class Node:
    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


# ---- expressions -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Number(Node):
    """A literal: `text` as written. Negative only as a fill or a default, where no operator is."""

    value: int | float
    text: str = ""

    def __post_init__(self) -> None:
        if not self.text:  # so that 1 and 1.0 differ, though Python's values compare equal
            object.__setattr__(self, "text", repr(self.value))


@dataclass(frozen=True, slots=True)
class Bool(Node):
    value: bool


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A lower-case name: an index, operand, temporary, constant or scalar."""

    name: str


@dataclass(frozen=True, slots=True)
class Size(Node):
    """An upper-case name."""

    name: str


@dataclass(frozen=True, slots=True)
class Dots(Node):
    """`...` among the indices of a read or of a left side, or among the dims of a type."""


@dataclass(frozen=True, slots=True)
class Read(Node):
    """`x[n, d]`, and `x[n, d] else 0` where `fill` is given."""

    name: str
    indices: tuple[Index, ...]
    fill: Literal | None = None


@dataclass(frozen=True, slots=True)
class Binder(Node):
    """`k`, `k < K`, `lo <= k < hi`, `k >= i`, whichever way it was written. `name` may be `...`."""

    name: str
    low: Expr | None = None
    low_strict: bool = False
    high: Expr | None = None
    high_strict: bool = True


@dataclass(frozen=True, slots=True)
class Reduce(Node):
    """`sum[k, r < R](body)`; op is one of sum prod max min mean any all argmax argmin."""

    op: str
    binders: tuple[Binder, ...]
    body: Expr


@dataclass(frozen=True, slots=True)
class Keyword(Node):
    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class TypeKeyword(Node):
    """`U = bf16`, `U = T` in a call of an op."""

    name: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A builtin, macro, op, or cast (`f32(x)`, `T(x)`): `name` is as written."""

    name: str
    args: tuple[Expr, ...]
    keywords: tuple[Keyword, ...] = ()
    types: tuple[TypeKeyword, ...] = ()


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """op is `-`."""

    op: str
    x: Expr


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """op is one of + - * / // % **."""

    op: str
    a: Expr
    b: Expr


@dataclass(frozen=True, slots=True)
class Compare(Node):
    """op is one of == != < <= > >=."""

    op: str
    a: Expr
    b: Expr


@dataclass(frozen=True, slots=True)
class BoolOp(Node):
    """op is `and` or `or`."""

    op: str
    a: Expr
    b: Expr


@dataclass(frozen=True, slots=True)
class Not(Node):
    x: Expr


Literal = Union[Number, Bool]
Expr = Union[Number, Bool, Name, Size, Read, Reduce, Call, Unary, Binary, Compare, BoolOp, Not]
Index = Union[Expr, Dots]


# ---- declarations ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TypeParam(Node):
    """`T: float`, `U: f16 | bf16 = bf16`. Only one that no operand binds has a default."""

    name: str
    dtypes: tuple[str, ...]
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Type(Node):
    """`T[N, D]`; `dims` is None for a scalar. `dtype` is a dtype or the name of a type parameter."""

    dtype: str
    dims: tuple[Index, ...] | None = None


@dataclass(frozen=True, slots=True)
class Operand(Node):
    """A parameter or an output. A parameter without brackets in its type is a run-time scalar."""

    name: str
    type: Type
    default: Literal | None = None


@dataclass(frozen=True, slots=True)
class ConstParam(Node):
    """`const stride: int = 1`."""

    name: str
    dtype: str
    default: Literal | None = None


@dataclass(frozen=True, slots=True)
class Define(Node):
    """The fact `P = H - R + 1`."""

    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class Require(Node):
    """The fact `C % groups == 0`."""

    expr: Expr


@dataclass(frozen=True, slots=True)
class Assign(Node):
    """`y[n, d] = value`. `indices` is None without brackets.

    An index is a Name, a Number (`y[m, 0]`), Dots, or a Binder with bounds (`mu[n, g < groups]`). `span` is that of the name, where
    findings about the line are shown. `whole` is that of the line.
    """

    name: str
    indices: tuple[Name | Number | Dots | Binder, ...] | None
    value: Expr
    whole: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


# ---- clauses ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GradBlock(Node):
    lines: tuple[Assign, ...]


@dataclass(frozen=True, slots=True)
class GradNone(Node):
    pass


@dataclass(frozen=True, slots=True)
class Ref(Node):
    """`ref "..."`: the strings joined. `syntax.ref.parse_ref` reads it; `span` covers the strings."""

    text: str


@dataclass(frozen=True, slots=True)
class Doc(Node):
    text: str


@dataclass(frozen=True, slots=True)
class Precision(Node):
    """mode is ieee, tf32x3 or tf32."""

    mode: str


@dataclass(frozen=True, slots=True)
class Autocast(Node):
    """mode is low or f32."""

    mode: str


@dataclass(frozen=True, slots=True)
class Tol(Node):
    """`tol bf16 = 2e-2, 2e-2`; atol is None where it is not given."""

    dtype: str
    rtol: float
    atol: float | None = None


@dataclass(frozen=True, slots=True)
class Knob(Node):
    """`m = [64, 128]`."""

    name: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tune(Node):
    knobs: tuple[Knob, ...]


Param = Union[Operand, ConstParam]
Fact = Union[Define, Require]
Clause = Union[GradBlock, GradNone, Ref, Doc, Precision, Autocast, Tol, Tune]


# ---- files -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FnParam(Node):
    name: str
    default: Literal | None = None


@dataclass(frozen=True, slots=True)
class Fn(Node):
    """`fn mish(x) = x * tanh(softplus(x))`."""

    name: str
    params: tuple[FnParam, ...]
    body: Expr


@dataclass(frozen=True, slots=True)
class OpDef(Node):
    """`span` is the name's, where findings about the whole op are shown."""

    name: str
    typarams: tuple[TypeParam, ...]
    params: tuple[Param, ...]
    outputs: tuple[Operand, ...]
    facts: tuple[Fact, ...]
    lines: tuple[Assign, ...]
    clauses: tuple[Clause, ...]


@dataclass(frozen=True, slots=True)
class File(Node):
    items: tuple[Fn | OpDef, ...]

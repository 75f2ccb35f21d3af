"""Chooses the form of each function that a kernel computes: the op as written, in forms that keep their accuracy.

    tanh(softplus(x))   ->  tanh_softplus(x)      1 + erf(x)   ->  erfc(-x)

Four passes, all by the shape of expressions:

- *Undetached*: `detach(x)` is x. Only a gradient, which is derived before, asks what is detached.
- *Stable*: an expression that loses its last digits as written (`1 + erf(x)` is 0 from x = -5.6 on) becomes a row that does
  not. Mathematically they are the same.
- *Truncating*: a cast of a float to a type parameter of whole numbers, `U(x)`, is `U(trunc(x))`.
- *Stored*: a call whose value reaches stores of one dtype, by products and sums alone, learns that dtype (`Call.stored`). If
  it is a half type, torch would have rounded that value to it. So a row may use a form that is right to a small part of that
  rounding. A sum with a number does not count, because it may cancel, as in `1 - exp(x)`.

Input and output: an op. The planner and the oracle both start here, so the tests know what runs. `functions` and
`lib/smooth.py` have the forms. Whether a call has half types is known at the launch.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir.functions import FUNCTIONS
from tritongen.ir.nodes import (
    FLOATS,
    Call,
    Cast,
    Const,
    Expr,
    Nest,
    Op,
    Read,
    Reduce,
    TypeParam,
    kind_of,
    may_be_half,
    rebuild,
    walk,
)

# Rows that pass errors on in proportion to the terms that have them.
PROPORTIONAL = frozenset(
    """add sub mul div neg abs where maximum minimum relu square sqrt rsqrt reciprocal pow_int
    detach""".split()
)


def with_forms(op: Op) -> Op:
    """The op that is planned and proved."""
    return stored(truncating(stable(undetached(op))))


# ---- undetached ---------------------------------------------------------------------------------
def undetached(op: Op) -> Op:
    """The op with x for each `detach(x)`, and without lines that only name another line then."""
    if not any(isinstance(e, Call) and e.fn == "detach" for n in op.nests for e in walk(n.body)):
        return op
    lines = {n.name: n for n in op.nests}
    outputs = {o.name for o in op.outputs}
    names: dict[str, str] = {}

    def change(e: Expr) -> Expr:
        match e:
            case Call("detach", (x,)):
                return x
            case Read(name) if name in names:
                return replace(e, tensor=names[name])
        return e

    nests = []
    for n in op.nests:
        n = replace(n, body=rebuild(n.body, change))
        own = lines.get(getattr(n.body, "tensor", ""))
        if own is not None and n.name not in outputs and own.name not in outputs:
            alike = n.box == own.box and n.coords == own.coords and n.dtype == own.dtype
            if alike and n.body == Read(own.name, own.coords, None, own.dtype):
                names[n.name] = own.name
                continue
        nests.append(n)
    return replace(op, nests=tuple(nests))


# ---- stable -------------------------------------------------------------------------------------
def stable(op: Op) -> Op:
    """The op with what keeps its last digits for what loses them."""
    return replace(op, nests=tuple(replace(n, body=rebuild(n.body, _stable)) for n in op.nests))


def _stable(e: Expr) -> Expr:
    """One node, those below it being stable already."""
    match e:
        case Call("add", (Const(1), Call("erf", (x,)))) | Call(
            "add", (Call("erf", (x,)), Const(1))
        ):
            return _call("erfc", _negative(x))
        case Call("sub", (Const(1), Call("erf", (x,)))):
            return _call("erfc", x)
        case Call("add", (Const(1), Call("tanh", (x,)))) | Call(
            "add", (Call("tanh", (x,)), Const(1))
        ):
            return _call("mul", Const(2.0, x.dtype), _call("sigmoid", _twice(x)))
        case Call("sub", (Const(1), Call("tanh", (x,)))):
            return _call("mul", Const(2.0, x.dtype), _call("sigmoid", _negative(_twice(x))))
        case Call("sub", (Const(1), Call("sigmoid", (x,)))):
            return _call("sigmoidc", x)
        case Call("tanh", (Call("softplus", (x,)),)):
            return _call("tanh_softplus", x)
        case Call("mul", (x, Call("ndtr", (y,)))) | Call("mul", (Call("ndtr", (y,)), x)) if x == y:
            return _call("times_ndtr", x)
        case Call("div", (Const(1), Call("add", (Const(1), Call("exp", (Call("neg", (x,)),)))))):
            return _call("sigmoid", x)
        case Call("log", (Call("add", (Const(1), x)),)) | Call(
            "log", (Call("add", (x, Const(1))),)
        ):
            return _call("log1p", x)
        case Call("sub", (Call("exp", (x,)), Const(1))):
            return _call("expm1", x)
    return e


def _call(fn: str, *args: Expr) -> Call:
    return Call(fn, args, args[-1].dtype)


def _negative(x: Expr) -> Expr:
    return x.args[0] if isinstance(x, Call) and x.fn == "neg" else _call("neg", x)


def _twice(x: Expr) -> Expr:
    match x:
        case Call("mul", (Const(value), y)):
            return _call("mul", Const(2.0 * value, x.dtype), y)
    return _call("mul", Const(2.0, x.dtype), x)


# ---- truncating ---------------------------------------------------------------------------------
def truncating(op: Op) -> Op:
    """The op, where casts of floats to type parameters say what they lose: `U(x)` is `U(trunc(x))`, or `U(x != 0)` of bools.

    Whoever looks through casts, as for what moves with a maximum, looks at expressions alone.
    """

    def change(e: Expr) -> Expr:
        match e:
            case Cast(arg, dtype) if dtype in kinds and kind_of(arg.dtype, op) == "float":
                if arg.dtype not in ("compute", "f32", "f64"):
                    arg = Cast(arg, "compute")
                if kinds[dtype] == "int":
                    return Cast(_call("trunc", arg), dtype)
                return Cast(Call("ne", (arg, Const(0.0, arg.dtype)), "bool"), dtype)
        return e

    kinds = {p.name: p.kind for p in op.typarams if p.kind != "float"}
    if not kinds:
        return op
    return replace(op, nests=tuple(replace(n, body=rebuild(n.body, change)) for n in op.nests))


# ---- stored -------------------------------------------------------------------------------------
def stored(op: Op) -> Op:
    """The op with `Call.stored` set, from the last nest to the first."""
    outputs = {o.name: o.dtype for o in op.outputs}
    readers: dict[str, set[str]] = {}  # temporary -> where its values go
    nests = []
    for nest in reversed(op.nests):
        goes = readers.get(nest.name, set())
        # Who reads an output reads the rounded value: only its own store counts.
        to = outputs.get(nest.name) or (next(iter(goes)) if len(goes) == 1 else "")
        to = to if may_be_half(to, op) else ""
        nests.append(replace(nest, body=_mark(op, nest.body, to, readers)))
    return replace(op, nests=_once(tuple(reversed(nests))))


def _once(nests: tuple[Nest, ...]) -> tuple[Nest, ...]:
    """Uses the full form of a function everywhere if some line needs it: `tanh(x) * (1 - tanh(x) ** 2)` computes one tanh."""

    def plain(e: Expr) -> Expr:
        return rebuild(e, lambda part: replace(part, stored="") if isinstance(part, Call) else part)

    calls = {e for n in nests for e in walk(n.body) if isinstance(e, Call) and FUNCTIONS[e.fn].half}
    full = {plain(e) for e in calls if not e.stored}
    again = {e for e in calls if e.stored and plain(e) in full} if full else set()
    if not again:
        return nests
    return tuple(
        replace(n, body=rebuild(n.body, lambda e: plain(e) if e in again else e)) for n in nests
    )


def reaching(expr: Expr, dtype: str, typarams: tuple[TypeParam, ...]) -> Expr:
    """The expression with `Call.stored` set, where its value reaches stores of that dtype."""
    return _mark(Op("", typarams, (), (), (), ()), expr, dtype, {})


def _mark(op: Op, expr: Expr, to: str, readers: dict[str, set[str]]) -> Expr:
    """expr, whose value goes into stores of dtype `to` and in proportion ("": elsewhere too)."""

    def mark(arg: Expr, to: str = to) -> Expr:
        return _mark(op, arg, to, readers)

    match expr:
        case Read(tensor):
            readers.setdefault(tensor, set()).add(to)
        case Cast(arg, dtype) if dtype in FLOATS or dtype == "compute" or may_be_half(dtype, op):
            return replace(expr, arg=mark(arg, dtype if may_be_half(dtype, op) else to))
        case Call("where", (condition, yes, no)):
            return replace(expr, args=(mark(condition, ""), mark(yes), mark(no)), stored=to)
        case Call(fn, args):
            cancels = fn in ("add", "sub") and not all(map(_varies, args))
            below = to if fn in PROPORTIONAL and not cancels else ""
            return replace(expr, args=tuple(mark(a, below) for a in args), stored=to)
        case Cast(arg):
            return replace(expr, arg=mark(arg, ""))
        case Reduce(fn, body=body):
            return replace(expr, body=mark(body, to if fn in ("sum", "max", "min") else ""))
    return expr


def _varies(expr: Expr) -> bool:
    """Whether the value is a tensor's, not one number for the whole call."""
    return any(isinstance(e, Read) for e in walk(expr))

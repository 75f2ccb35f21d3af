"""The derivative of one nest with respect to each of its reads, before any index is inverted.

Input: a body with its reducers at linear places (`lift.py`) and the gradient of its value. Output: one `Use` per read. For
`y[n] = sum[k](a[n, k] * b[k])` under the weight dy[n]:

    Use(a[n, k], dy[n] * b[k], binders=(k,))    Use(b[k], dy[n] * a[n, k], binders=(k,))

Equal subexpressions are one. Their gradients are summed before they are passed on, so a chain of functions costs one
product per link. `invert.py` finds where a gradient ends up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tritongen.autodiff import exprs
from tritongen.autodiff.partials import partial
from tritongen.autodiff.wanted import (
    ALWAYS,
    NEVER,
    Case,
    Wanted,
    both,
    either,
    literals,
    multiplies,
    opposite,
    parted,
)
from tritongen.ir.algebra import Fetch, Poly, index
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
    core,
    exceeds,
    parts,
)
from tritongen.ir.reducers import REDUCERS


class Overgrown(Exception):
    """The gradient of a line outgrew what anyone would read."""


@dataclass(frozen=True, slots=True)
class Use:
    """A read `node`, once per point of the nest's box and of `binders` that passes `guards`.

    `wanted`: the condition of its gradient, guards included. `only`: conditions beside guards that are not in the weight yet.
    """

    node: Read | ScalarRef
    weight: Expr
    binders: tuple[Binder, ...] = ()
    guards: tuple[Guard, ...] = ()
    wanted: Wanted = ALWAYS
    only: tuple[Expr, ...] = ()
    bounds: tuple[Guard, ...] = ()  # those of the guards that the line's own reducers have


@dataclass(frozen=True, slots=True)
class Line:
    """The nest that is differentiated: how its own value is read, and what of it varies.

    `is_float`: whether a dtype of the op has gradients. `most`: the largest number of operations for the gradient of a part. `place`: for a max or min reducer, the line that holds the number
    of the element that was taken.
    """

    nest: Nest
    value: Expr
    varies: Callable[[Read | ScalarRef], bool]
    is_float: Callable[[str], bool]
    most: int
    place: str = ""


def uses(line: Line, weight: Expr, wanted: Wanted = ALWAYS) -> Iterator[Use]:
    """The uses, given the gradient of the line and where it is wanted."""
    for use in _scope(line, line.nest.body, weight, (), (), wanted):
        use = replace(use, bounds=use.guards)
        if multiplies(use.weight):
            guards, only = parted(wanted)
            use = replace(use, guards=(*guards, *use.guards), only=only)
        yield use


def place_of(nest: Nest, reduce: Reduce, name: str) -> Nest:
    """The nest that holds the number of the element that a max or min reducer took."""
    body = replace(_numbered(reduce), op=f"arg{reduce.op}", dtype="i64")
    return replace(nest, name=name, body=body, dtype="i64")


def _numbered(reduce: Reduce) -> Reduce:
    """The reducer with binders that argmax numbers: several start at 0, and have no bounds but sizes."""
    if len(reduce.binders) == 1:
        return reduce
    body = reduce.body
    if reduce.guards:
        nothing = exprs.number(REDUCERS[reduce.op].identity, body.dtype)
        body = exprs.where(_conditions(reduce.guards), body, nothing)
    first = {b.index: index(b.index) + b.lo for b in reduce.binders}
    binders = tuple(replace(b, lo=Poly(), hi=b.hi - b.lo) for b in reduce.binders)
    body = exprs.substitute(body, exprs.by_name(first))
    return replace(reduce, binders=binders, guards=(), body=body)


def _conditions(guards: tuple[Guard, ...]) -> Expr:
    zero = Const(0, "i64")
    first, *rest = (
        exprs.call("ge" if g.op == ">=" else "eq", IndexValue(g.poly, "i64"), zero, dtype="bool")
        for g in guards
    )
    for other in rest:
        first = exprs.call("and", first, other)
    return first


def extreme_of(nest: Nest) -> Reduce | None:
    """The max or min reducer that a nest is, casts aside."""
    body = core(nest.body)
    return body if isinstance(body, Reduce) and REDUCERS[body.op].gradient == "taken" else None


def _scope(
    line: Line,
    root: Expr,
    given: Expr,
    binders: tuple[Binder, ...],
    guards: tuple[Guard, ...],
    wanted: Wanted,
) -> Iterator[Use]:
    """Uses below `root`, whose gradient is `given` and wanted there, under binders and guards."""
    weights, where = {root: given}, {root: wanted}
    for node in reversed(_order(line, root)):
        weight = weights.get(node)
        if weight is None or exprs.is_zero(weight):
            continue
        match node:
            case Read() | ScalarRef():
                yield Use(node, weight, binders, guards, where[node])
            case Cast(arg):
                _hand(line, weights, arg, exprs.cast(weight, exprs.compute_dtype(arg.dtype)))
                where[arg] = either(where.get(arg, NEVER), where[node])
            case Call():
                value: Expr = node
                if node is core(root) and root is line.nest.body:
                    value = exprs.cast(line.value, node.dtype)
                for arg, w, case in _shares(line, node, weight, value):
                    _hand(line, weights, arg, w)
                    where[arg] = either(where.get(arg, NEVER), both(where[node], case))
            case Reduce():
                inner = guards + node.guards + _chosen(line, node)
                below = _into(node, weight)
                inside = both(where[node], inner)
                yield from _scope(line, node.body, below, binders + node.binders, inner, inside)


def _hand(line: Line, weights: dict[Expr, Expr], node: Expr, weight: Expr) -> None:
    """Add to the gradient of a part of the line; parts of parts that are read twice may double it each time."""
    weights[node] = exprs.add(weights[node], weight) if node in weights else weight
    if exceeds(weights[node], line.most):
        raise Overgrown(line.nest.name)


def _order(line: Line, root: Expr) -> list[Expr]:
    """The subexpressions through which the value varies, parts first; no reducer's body."""
    order: dict[Expr, None] = {}

    def visit(node: Expr) -> None:
        if node in order or not varies(line, node):
            return
        if not isinstance(node, Reduce):
            for part in parts(node):
                visit(part)
        order[node] = None

    visit(root)
    return list(order)


def varies(line: Line, expr: Expr) -> bool:
    """Whether a gradient may pass through."""
    match expr:
        case Read() | ScalarRef():
            return line.varies(expr)
        case Call("detach"):
            return False
        case Cast() | Call() | Reduce() if not line.is_float(expr.dtype):
            return False  # whole numbers move in steps
        case Call("where", (_, yes, no)):
            return varies(line, yes) or varies(line, no)
    return any(varies(line, part) for part in parts(expr))


def _shares(line: Line, call: Call, weight: Expr, value: Expr) -> Iterator[tuple[Expr, Expr, Case]]:
    """The part of a call's gradient that each argument gets, and under which condition."""
    if call.fn == "where":
        condition, yes, no = call.args
        zero = exprs.number(0, weight.dtype)
        yield yes, exprs.where(condition, weight, zero), literals(condition)
        yield no, exprs.where(condition, zero, weight), opposite(condition)
        return
    for position, arg in enumerate(call.args):
        if varies(line, arg):
            slope = partial(call, position, value)
            if slope is not None:
                yield arg, exprs.mul(weight, slope), ()


# ---- reducers -----------------------------------------------------------------------------------
def _chosen(line: Line, reduce: Reduce) -> tuple[Guard, ...]:
    """A max or min hands all to the term it took: that number in the box is the winner's."""
    if REDUCERS[reduce.op].gradient != "taken":
        return ()
    at = Fetch(line.place, line.nest.coords)
    return (Guard(number_of(reduce) - at, "=="),)


def _into(reduce: Reduce, weight: Expr) -> Expr:
    """The gradient of each term, from that of the whole."""
    match REDUCERS[reduce.op].gradient:
        case "each" | "taken":
            return weight
        case "others":
            return exprs.mul(weight, _others(reduce))
    raise ValueError(f"{reduce.op} has no gradient")


def number_of(reduce: Reduce) -> Poly:
    """The number of a term, as argmax of the `_numbered` reducer counts."""
    if len(reduce.binders) == 1:
        return reduce.number
    total = Poly()
    for b in reduce.binders:
        total = total * (b.hi - b.lo) + index(b.index) - b.lo
    return total


def _others(reduce: Reduce) -> Expr:
    """The product of all terms but this one. Dividing by the term would fail at 0.

    Over a whole dim it is the product of the terms before times that of the terms after: two scans.
    """
    other = exprs.rename_reduce(reduce)
    if len(reduce.binders) == 1 and not reduce.guards:
        here, there = (index(r.binders[0].index) for r in (reduce, other))
        before = replace(other, guards=(Guard(here - there - 1, ">="),))
        after = replace(other, guards=(Guard(there - here - 1, ">="),))
        return exprs.mul(before, exprs.with_own_binders(after))
    own, others = (IndexValue(number_of(r), "i64") for r in (reduce, other))
    same = exprs.call("eq", others, own, dtype="bool")
    one = exprs.number(1, reduce.dtype)
    return replace(other, body=exprs.where(same, one, other.body))

"""Computes an extreme and its index by one fold, if both are results.

    v[n] = max[d](x[n, d])                           v, i = tl.reduce((x, place), 1, lib.first_max, ...)
    i[n] = argmax[d](x[n, d])

Input: the nests that one kernel computes. Output: the same nests, where the extreme reads the fold of the index:
`Call("held", (i[n],))`. This call exists only in plans.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.free import tensors_read


def with_held(nests: tuple[ir.Nest, ...]) -> tuple[ir.Nest, ...]:
    """The nests, in an order in which places stand before the extremes that they hold."""
    found = list(nests)
    for place in filter(_is_place, nests):
        extreme = next((n for n in found if _holds(place, n)), None)
        if extreme is None or _is_folded_on(extreme.name, found):
            continue
        read = ir.Read(place.name, place.coords, None, place.dtype)
        held = replace(extreme, body=ir.Call("held", (read,), extreme.fold.dtype))
        found[found.index(extreme)] = held
        if found.index(place) > found.index(held):
            found.remove(place)
            found.insert(found.index(held), place)
    return tuple(found)


def held_by(nests: tuple[ir.Nest, ...], place: str) -> str:
    """The extreme that the fold of an index holds, if it is a value of its own."""
    for nest in nests:
        match nest.body:
            case ir.Call("held", (ir.Read(tensor),)) if tensor == place:
                return nest.name
    return ""


def _is_place(nest: ir.Nest) -> bool:
    return isinstance(nest.body, ir.Reduce) and nest.body.is_place


def _holds(place: ir.Nest, nest: ir.Nest) -> bool:
    match nest.body:
        case ir.Reduce(op, binders, guards, body):
            own = place.fold
            same = (own.op, own.binders, own.guards, own.body) == (
                f"arg{op}",
                binders,
                guards,
                body,
            )
            return same and nest.box == place.box and nest.dtype == nest.body.dtype == body.dtype
    return False


def _is_folded_on(name: str, nests: list[ir.Nest]) -> bool:
    """Whether a fold needs a value to be finished: it may be taken together with that."""
    needed = {name}
    for nest in nests:
        if tensors_read(nest.body) & needed:
            if isinstance(nest.body, ir.Reduce):
                return True
            needed.add(nest.name)
    return False

"""Computes an extreme and its index by one fold, if both are results.

    v[n] = max[d](x[n, d])                           v, i = tl.reduce((x, place), 1, lib.first_max, ...)
    i[n] = argmax[d](x[n, d])

Input: the nests that one kernel computes. Output: the same nests, where the extreme reads the fold of the index:
`Call("held", (i[n],))`. This call exists only in plans.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.free import following
from tritongen.schedule.canonical import read_of
from tritongen.schedule.members import is_reducer


def with_held(nests: ir.Nests) -> ir.Nests:
    """The nests, in an order in which places stand before the extremes that they hold."""
    found = list(nests)
    for place in (n for n in nests if is_reducer(n) and n.fold.is_place):
        extreme = next((n for n in found if _holds(place, n)), None)
        if extreme is None:
            continue
        readers = following(found, {extreme.name})
        if any(is_reducer(n) and n.name in readers for n in found):
            continue  # a fold needs its value to be finished, and may be taken together with that
        held = replace(extreme, body=ir.Call("held", (read_of(place),), extreme.fold.dtype))
        found[found.index(extreme)] = held
        if found.index(place) > found.index(held):
            found.remove(place)
            found.insert(found.index(held), place)
    return tuple(found)


def held_by(nests: ir.Nests, place: str) -> str:
    """The extreme that the fold of an index holds, if it is a value of its own."""
    for nest in nests:
        match nest.body:
            case ir.Call("held", (ir.Read(tensor),)) if tensor == place:
                return nest.name
    return ""


def _holds(place: ir.Nest, nest: ir.Nest) -> bool:
    if not is_reducer(nest) or nest.box != place.box:
        return False
    own = nest.fold
    same = replace(own, op=f"arg{own.op}", dtype=place.fold.dtype) == place.fold
    return same and nest.dtype == own.dtype == own.body.dtype

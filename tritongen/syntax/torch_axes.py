"""Values of a line that is read as Python over tensors: their axes, and the text of an element.

    each("({}) + ({})", x, b)    the element x[n, d] + b[d], over the axes (N, D)

Axes are texts: a size, `1`, or `...` for batch dims. Coordinates are texts of indices. What changes only coordinates stands
here: slices, transpositions, digits of an index. `torch_lines` has the line and its names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

DOTS, ONE = "...", "1"
Coords = tuple[str, ...]


class Unread(Exception):
    """The line has something without a form in index notation."""


def unread() -> NoReturn:
    raise Unread


@dataclass(frozen=True, slots=True)
class Shape:
    """The dtype of a name, and its dims; a number has none."""

    dtype: str
    dims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor. `leaf`: the operand that it is."""

    axes: tuple[str, ...]
    at: Callable[[Coords], str]
    is_bool: bool = False
    leaf: str = ""


def element(text: str, is_bool: bool = False) -> Value:
    """A number, or what has all its indices."""
    return Value((), lambda _: text, is_bool)


def each(form: str, *values: Value, is_bool: bool = False) -> Value:
    """A function of elements, as a format string. Axes broadcast."""
    axes: list[str] = []
    for value in values:
        for k, axis in enumerate(reversed(value.axes)):
            if k == len(axes):
                axes.append(axis)
            elif axes[k] == ONE:
                axes[k] = axis
            elif axis != ONE and (axis == DOTS) != (axes[k] == DOTS):
                unread()
    whole = tuple(reversed(axes))

    def at(coords: Coords) -> str:
        return form.format(*(v.at(fitted(v.axes, whole, coords)) for v in values))

    return Value(whole, at, is_bool)


def fitted(own: tuple[str, ...], whole: tuple[str, ...], coords: Coords) -> Coords:
    """The coordinates of a value inside the axes that it broadcasts to: from the right, or where its sizes stand."""
    if not coords:
        return ()  # a line without indices
    shift = len(whole) - len(own)
    places = list(range(shift, len(whole))) if shift >= 0 else unread()
    if any(a not in (ONE, whole[k]) for a, k in zip(own, places, strict=True)):
        if len({*own}) == len(own) and all(whole.count(a) == 1 for a in own):
            places = [whole.index(a) for a in own]
    return tuple("0" if a == ONE else coords[k] for a, k in zip(own, places, strict=True))


def counted(axes: tuple[str, ...], dims: list[int]) -> list[int]:
    """The places of dims. Behind `...` they count from the right, before it from the left."""
    count, dots = len(axes), axes.index(DOTS) if DOTS in axes else None
    for d in dims:
        if not -count <= d < count or (
            dots is not None and not (0 <= d < dots or dots - count < d < 0)
        ):
            unread()
    return sorted(d % count for d in dims)


def permuted(value: Value, order: list[int]) -> Value:
    count = len(value.axes)
    order = [k % count for k in order]
    back = [order.index(k) for k in range(count)]
    axes = tuple(value.axes[k] for k in order)
    return Value(axes, lambda c: value.at(tuple(c[k] for k in back)), value.is_bool)


def moved(value: Value, places: list[int], form: str) -> Value:
    """Other coordinates on some axes, as a format string of the size and the coordinate."""

    def at(coords: Coords) -> str:
        own = enumerate(zip(value.axes, coords, strict=True))
        return value.at(tuple(form.format(a, c) if k in places else c for k, (a, c) in own))

    return Value(value.axes, at)


def concatenated(a: Value, b: Value, place: int) -> Value:
    size = a.axes[place] if a.leaf and b.leaf else unread()

    def at(coords: Coords) -> str:
        c = coords[place]
        moved = (*coords[:place], f"({c}) - ({size})", *coords[place + 1 :])
        first, second = (f"otherwise({v.at(k)}, 0)" for v, k in ((a, coords), (b, moved)))
        return f"where({c} < {size}, {first}, {second})"

    return Value((*a.axes[:place], f"{size} + {b.axes[place]}", *a.axes[place + 1 :]), at)


def names_in(coordinate: str) -> set[str]:
    return set(re.findall(r"[a-z_]\w*", coordinate))


def kept(place: int) -> Callable[[Coords], str]:
    return lambda coords: coords[place]


def taken(at: Value, size: str, first: int) -> Callable[[Coords], str]:
    """The coordinate that an index is, or what an integer tensor holds; -1 is the last one."""
    own = slice(first, first + len(at.axes)) if not at.is_bool else unread()
    return lambda coords: re.sub(r"^-\(?(\d+)\)?$", rf"{size} - \1", at.at(coords[own]))


def sliced(
    size: str, place: int, ends: list[str], step: int | None
) -> tuple[Callable[[Coords], str], str]:
    """The coordinate behind `low:high:step`, and the axis that is left."""
    if not any(ends) and step is None:
        return kept(place), size
    if step == -1 and not any(ends) and size != DOTS:
        return lambda c: f"{size} - 1 - ({c[place]})", size
    by = 1 if step is None else step
    if size == DOTS or by < 1:
        unread()
    low, high = (f"{size} - {e[1:]}" if e.startswith("-") else e for e in ends)
    length = f"({high or size})" + (f" - ({low})" if low else "")
    length = length if by == 1 else f"({length} + {by - 1}) // {by}"
    start = f" + {low}" if low else ""
    return lambda c: (f"{by} * " if by > 1 else "") + f"({c[place]}){start}", length

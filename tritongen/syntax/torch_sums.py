"""Sums of a line that is read as Python over tensors, and the indices that they run over.

    over("sum", x, [1], False)    the element sum[d](x[n, d]), over the axis N

`Sums` knows which indices are in use, so that no sum hides one. `torch_lines` reads the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tritongen.syntax.names import kind_of
from tritongen.syntax.torch_axes import DOTS, ONE, Coords, Shape, Value, element, unread

MAX_STEPS = 2000  # a function may be long in terms of others


@dataclass(slots=True)
class Sums:
    """Names of one line. `whole`: the line gets no indices, so every function must work on whole tensors."""

    shapes: Mapping[str, Shape]
    results: Sequence[str]  # the outputs of the op; none for an expression
    indices: set[str]  # names in brackets that nothing declares
    ranks: dict[str, tuple[str, ...]]  # axes that the use of an operand without a shape shows
    whole: bool = False
    filled: bool = False  # reads at a computed place have `else 0`
    bound: list[str] = field(default_factory=list)
    above: list[str] = field(default_factory=list)  # lines of temporaries, in front of the line
    held: dict[str, Value] = field(default_factory=dict)  # by names that no line has
    steps: int = 0

    def picked(self, axis: str, others: Sequence[str] | None = None) -> str:
        """An index for an axis, in use from now on; none of `others`, or none of the line."""
        base = next((size.lower() for size in re.findall(r"[A-Z]\w*", axis)), "")
        names = [DOTS] if axis == DOTS else [*([base] * (not kind_of(base))), *"kijlmpqrstuv"]
        own = [*self.bound, *self.indices] if others is None else others
        taken = {*own, *self.shapes, *(self.bound if axis == DOTS else ()), ""}
        name = next((n for n in names if n not in taken), "") or unread()
        self.bound.append(name)
        return name

    def named(self, value: Value) -> str:
        """A temporary in a line above; "" for a value that is short, or that has no dims of its own."""
        sized = all(a not in (DOTS, ONE) for a in value.axes)
        if self.whole or not self.results or not value.axes or not sized:
            return ""
        name = next((n for n in "tuz" if n not in {*self.shapes, *self.bound, *self.indices}), "")
        shapes, self.shapes = self.shapes, {**self.shapes, name: Shape("", value.axes)}
        with self.scope():
            own = [self.picked(a) for a in value.axes]
            body = value.at(tuple(own))
        if not name or "sum[" not in body:
            self.shapes = shapes
            return ""
        self.above.append(f"{name}[{', '.join(own)}] = {body}")
        return name

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Indices that are picked inside are free again behind it."""
        self.step()
        before = len(self.bound)
        yield
        del self.bound[before:]

    def step(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            unread()

    def unless_whole(self) -> None:
        if self.whole:
            unread()

    def ranked(self, value: Value, axes: Sequence[str]) -> Value:
        """An operand whose axes its use shows; they hold where it is read again."""
        self.ranks[value.leaf] = tuple(axes)
        return replace(value, axes=tuple(axes))

    def matrix(self, value: Value, names: str = "MN") -> Value:
        self.unless_whole()
        return self.ranked(value, names) if value.leaf and value.axes == (DOTS,) else value

    def summed(self, op: str, body: str, names: Sequence[str] | None = None) -> str:
        """Over these indices, or over all that the left side lacks."""
        found = [n for n in re.findall(r"[a-z_]\w*", body) if n in self.indices]
        free = [n for n in dict.fromkeys(found) if n not in self.bound]
        free = [n for n in free if names is None or n in names]
        return f"{op}[{', '.join(free)}]({body})" if free else unread()

    def over(self, op: str, value: Value, places: Sequence[int], keeps: bool) -> Value:
        """A reducer over some axes, which have size 1 then or are gone."""

        def at(coords: Coords) -> str:
            rest = iter(c for k, c in enumerate(coords) if not keeps or k not in places)
            with self.scope():
                own = [
                    self.picked(a) if k in places else next(rest) for k, a in enumerate(value.axes)
                ]
                body = value.at(tuple(own))
            # an index that no read has alone gets its range from the axis
            alone = {
                i.strip() for found in re.findall(r"\[([^][]*)\]", body) for i in found.split(",")
            }
            ends = {k: "" if own[k] in alone else f" < {value.axes[k]}" for k in places}
            return f"{op}[{', '.join(own[k] + ends[k] for k in places)}]({body})"

        axes = [ONE if k in places else a for k, a in enumerate(value.axes)]
        left = [a for k, a in enumerate(axes) if keeps or k not in places]
        return Value(tuple(left), at, op in ("any", "all"))

    def cumulated(self, op: str, value: Value, place: int) -> Value:
        """`cumsum(x, dim)`."""
        self.unless_whole()

        def at(coords: Coords) -> str:
            with self.scope():
                k = self.picked("")
                body = value.at((*coords[:place], k, *coords[place + 1 :]))
            return f"{op}[{k} <= {coords[place]}]({body})"

        return Value(value.axes, at)

    def product(self, a: Value, b: Value) -> Value:
        """`a @ b`."""
        self.unless_whole()
        if not a.axes and not b.axes:
            return element(self.summed("sum", f"({a.at(())}) * ({b.at(())})"))
        a, b = self.matrix(a, "MK"), self.matrix(b, "KN")
        rows, batch, columns = a.axes[:-1], b.axes[:-2], b.axes[-1:] if len(b.axes) > 1 else ()
        if not a.axes or not b.axes or len(batch) > max(0, len(rows) - 1):
            unread()

        def at(coords: Coords) -> str:
            left, right = coords[: len(rows)], coords[len(rows) :]
            own = left[len(rows) - 1 - len(batch) : -1] if batch else ()
            with self.scope():
                k = self.picked(a.axes[-1])
                return f"sum[{k}](({a.at((*left, k))}) * ({b.at((*own, k, *right))}))"

        return Value((*rows, *columns), at)

    def einsum(self, equation: str, values: list[Value]) -> Value:
        left, _, right = equation.replace(" ", "").lower().partition("->")
        *terms, kept = (re.findall(r"\.\.\.|\w", t) for t in (*left.split(","), right))
        axes = {n: n if n == DOTS else n.upper() for term in terms for n in term}
        for term, value in zip(terms, values, strict=True):
            if len(term) == len(value.axes) and DOTS not in value.axes:
                axes |= dict(zip(term, value.axes, strict=True))
        self.unless_whole()
        summed = [n for n in axes if n not in kept]

        def at(coords: Coords) -> str:
            given = dict(zip(kept, coords, strict=True))
            with self.scope():
                given |= {n: self.picked(axes[n]) for n in summed}
                parts = [
                    v.at(tuple(given[n] for n in t)) for t, v in zip(terms, values, strict=True)
                ]
            body = " * ".join(f"({p})" for p in parts)
            return f"sum[{', '.join(given[n] for n in summed)}]({body})" if summed else body

        return Value(tuple(axes[n] for n in kept), at)

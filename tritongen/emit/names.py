"""Names in generated code: taken from the spec, never colliding.

A name of the spec keeps itself; what the emitter adds steps aside (`row`, `row2`, ...). Not here: what
the emitter says without asking, such as BLOCK (`collisions.py`).
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable


class Names:
    """The names in force in one function; `mark` stands behind those given out, where it is asked which they are."""

    def __init__(self, taken: Iterable[str] = (), mark: str = ""):
        self.taken, self.mark = set(taken), mark

    def free(self, wish: str) -> str:
        """`wish`, or the nearest name that is free; taken from now on."""
        base, name, k = wish, wish + self.mark, 2
        while name in self.taken or keyword.iskeyword(name):
            name = f"{base}{k}{self.mark}" if not base[-1].isdigit() else f"{base}_{k}{self.mark}"
            k += 1
        self.taken.add(name)
        return name

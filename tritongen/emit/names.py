"""Names in generated code: taken from the spec, never colliding.

A name of the spec always keeps itself; whatever the emitter adds steps aside (`row`, `row_`, ...).
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable

RESERVED = {
    "tl", "triton", "torch", "runtime", "libdevice", "math", "range", "min", "max", "float", "int",
    "bool", "len", "variant", "config", "sms", "True", "False", "None",
}  # fmt: skip


class Names:
    """The names in force in one function."""

    def __init__(self, taken: Iterable[str] = ()):
        self.taken = set(taken) | RESERVED

    def free(self, wish: str) -> str:
        """`wish`, or the nearest name that is free; taken from now on."""
        base, name, k = wish, wish, 2
        while name in self.taken or keyword.iskeyword(name):
            name, k = f"{base}{k}" if not base[-1].isdigit() else f"{base}_{k}", k + 1
        self.taken.add(name)
        return name

    def copy(self) -> Names:
        return Names(self.taken - RESERVED)

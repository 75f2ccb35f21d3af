"""Names that are free: `x`, or the next one like it."""

from __future__ import annotations

from collections.abc import Container
from itertools import count


def free_name(name: str, *taken: Container[str]) -> str:
    """name, or name2, name3 ... where it is taken."""
    tried = (name if k == 1 else f"{name}{k}" for k in count(1))
    return next(one for one in tried if not any(one in names for names in taken))


def fresh(name: str, taken: set[str]) -> str:
    """The same, which is taken from now on."""
    found = free_name(name, taken)
    taken.add(found)
    return found


def unlike(name: str, taken: Container[str]) -> str:
    """name, with underscores behind it until it is none of these."""
    while name in taken:
        name += "_"
    return name

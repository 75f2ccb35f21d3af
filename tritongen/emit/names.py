"""Names in generated code. They come from the spec and never collide.

A name of the spec stays as it is. Names that the emitter adds are changed if they collide (`row`, `row2`, ...). Names that
a template says literally come before both: the emitter's free names avoid them (`words_of`), and names of the spec are
changed (`collisions.py` finds them in the printed text).
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable
from functools import cache

from tritongen.resources import folder


class Names:
    """The names in use in one function. `mark` stands behind names that were given out, if the caller wants to find them."""

    def __init__(self, taken: Iterable[str] = (), mark: str = ""):
        self.taken, self.mark = set(taken), mark

    def free(self, wish: str) -> str:
        """`wish`, or the nearest name that is free; taken from now on. What is made of `k_` and `ptr` is `k_ptr`."""
        wish = re.sub(r"(?<=[^_])__+(?=[^_])", "_", wish)
        base, name, k = wish, wish + self.mark, 2
        while name in self.taken or keyword.iskeyword(name):
            name = f"{base}{k}{self.mark}" if not base[-1].isdigit() else f"{base}_{k}{self.mark}"
            k += 1
        self.taken.add(name)
        return name


@cache
def words_of(template: str) -> frozenset[str]:
    """The names that a template, and those that it extends or includes, say literally."""
    text = (folder("templates") / f"{template}.py.j2").read_text()
    others = re.findall(r'(?:extends|include|import|from) "(\w+)\.py\.j2"', text)
    slots = r'"""[\s\S]*?"""|\{#[\s\S]*?#\}|\{\{.*?\}\}|\{%.*?%\}|^\s*#.*$|  #.*$'
    text = re.sub(slots, " ", text, flags=re.M)
    return frozenset(re.findall(r"[A-Za-z_]\w*", text)).union(*map(words_of, others))

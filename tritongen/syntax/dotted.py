"""Handles `math.sqrt(x)` and `x.max(dim=-1)`: what to write for a module's function and for a method.

Input: the text, the position of the dot, the tokens before it. Output: a `Diagnostic` whose fixes are guesses from the
text alone. `errors.proven` keeps one that compiles.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tritongen.errors import Diagnostic, Fix, Source, Span
from tritongen.syntax.names import REDUCERS, SAME

MODULES = frozenset("math torch np numpy F nn jnp jax tl scipy libdevice cmath".split())
WORDS = re.compile(r"(?:\.[A-Za-z_]\w*)+", re.ASCII)
RESULT = re.compile(r"\.values\b|\[0\]")  # of torch's pair
LEFT = re.compile(r"\w+(?:\[([^\]\n]*)\])?[ \t]*=[ \t]*$", re.ASCII)
HELP = "the language has no methods or attributes: sizes are the upper-case names of the operands' types"


def dotted(source: Source, position: int, start: int) -> Diagnostic:
    """Reports a dot. `start` is the beginning of the text before it."""
    text = source.text
    span = Span(source, position, position + 1)
    words = WORDS.match(text, position)
    receiver = text[start:position]
    if words is None:
        return Diagnostic("E005", "unexpected character `.`", span, help=HELP)
    name = words[0].rpartition(".")[2]
    name, end = SAME.get(name, name), words.end()
    if receiver in MODULES:
        whole = Span(source, start, end)
        shown = f"{receiver}{words[0]}"
        message, help = "a function has no module prefix", "write {}"
        fixes = [Fix(whole, name), *_of_module(source, start, end, name)]
        return _finding(message, Span(source, start, end), help, fixes, f"`{shown}` has one")
    fixes = []
    if words[0].count(".") == 1 and end < len(text) and text[end] == "(":
        closed = _closing(text, end)
        fixes = list(_method(source, start, receiver, name, end, closed)) if closed else []
    return _finding("the language has no methods or attributes", span, "write {}", fixes, "")


def _finding(message: str, span: Span, help: str, fixes: list[Fix], label: str) -> Diagnostic:
    if not fixes:
        return Diagnostic("E005", message, span, label, help=HELP)
    others = tuple(fixes[1:])
    return Diagnostic("E005", message, span, label, (), help, "error", fixes[0], others, HELP)


def _of_module(source: Source, start: int, end: int, name: str) -> Iterator[Fix]:
    """`torch.max(x, dim=-1)` is `x.max(dim=-1)`."""
    text = source.text
    closed = _closing(text, end) if text[end : end + 1] == "(" else None
    found = re.match(r"\(\s*(\w+)\s*(,|\))", text[end:]) if closed else None
    if found and closed:
        inside = end + found.end() - 1
        yield from _method(source, start, found[1], name, inside, closed)


def _method(
    source: Source, start: int, receiver: str, name: str, opened: int, closed: int
) -> Iterator[Fix]:
    """`arguments` stand from `opened` to `closed`, both of which are marks around them."""
    text = source.text
    arguments = text[opened + 1 : closed].strip()
    result = RESULT.match(text, closed + 1)
    end = result.end() if result else closed + 1
    if name not in REDUCERS:
        inside = f"{receiver}, {arguments}" if arguments else receiver
        yield Fix(Span(source, start, end), f"{name}({inside})")
        return
    left = LEFT.search(text, 0, start)
    read = re.fullmatch(r"(\w+)\[(.*)\]", receiver, re.DOTALL)
    if read:
        names = [n.strip() for n in read[2].split(",")]
        bare = re.fullmatch(r"\w+(?:\s*,\s*\w+)*", arguments)
        over = re.split(r"\s*,\s*", arguments) if bare else []
        over = over if over and set(over) <= set(names) else _over(arguments, names)
        yield Fix(Span(source, start, end), f"{name}[{', '.join(over)}]({receiver})")
        return
    declared = re.search(rf"\b{receiver}\s*:\s*\w+\[([^\]]*)\]", text, re.ASCII)
    if declared is None:
        return
    names = [d.strip().lower() for d in declared[1].split(",")]
    over = _over(arguments, names)
    given = [n.strip() for n in left[1].split(",")] if left and left[1] else []
    kept = [n for n in names if n not in over]
    if len(given) == len(kept):
        rest = iter(given)
        names = [n if n in over else next(rest) for n in names]
    value = f"{name}[{', '.join(over)}]({receiver}[{', '.join(names)}])"
    if left:
        head = text[left.start() : start].partition("[")[0].partition("=")[0].strip()
        keeps = re.search(r"keepdims?\s*=\s*True", arguments)
        lefts = ["0" if n in over else n for n in names if keeps or n not in over]
        shown = f"{head}[{', '.join(lefts)}]" if lefts else head
        yield Fix(Span(source, left.start(), end), f"{shown} = {value}")
    yield Fix(Span(source, start, end), value)


def _over(arguments: str, names: list[str]) -> list[str]:
    """The indices of `dim=-1`, `1` or `(0, 1)`. All of them if there is no `dim`."""
    first = re.match(r"(?:(?:dim|axis)\s*=\s*)?(-?\d+|[\[(][-\d,\s]*[\])])", arguments)
    if first is None:
        return names
    dims = [int(d) for d in re.findall(r"-?\d+", first[1])]
    return [names[d] for d in dims if -len(names) <= d < len(names)]


def _closing(text: str, opened: int) -> int | None:
    """The position that closes the bracket, on the same line."""
    depth = 0
    for at in range(opened, len(text)):
        if text[at] == "\n":
            return None
        depth += (text[at] in "([") - (text[at] in ")]")
        if depth == 0:
            return at
    return None

"""`tritongen show SPEC --html FILE`: spec, IR, kernels and PTX side by side, in one page that needs nothing else.

Each line of a spec has a number. A line of the IR has that of the value that it assigns; a line of a kernel that of the
comment above it, which is the spec's own line; a line of PTX that of the kernel's line, which `.loc` says. Hovering one
marks all with its number. Not here: the stages (`show.py`).
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tritongen import pipeline
from tritongen.check import read
from tritongen.show import CannotShow, kernels, ptx_texts, stage_text
from tritongen.syntax import ast
from tritongen.syntax.unparse import unparse

LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)(?:.*inlined_at\s+(\d+)\s+(\d+))?")
COMMENT = re.compile(r"\s*# (.*)")


@dataclass(frozen=True, slots=True)
class Line:
    text: str
    number: int | None  # of the line of the spec that it belongs to


def page(text: str, name: str, arch: str = "sm_90", sizes: Mapping[str, int] | None = None) -> str:
    """The whole page; SpecError where the spec is wrong."""
    built = pipeline.build(text, name)
    numbers = _numbers(text, name)
    written, at = _kernels(built.raw, numbers)
    columns = {
        "Spec": _spec(text, name),
        "IR": _assigned(stage_text(text, name, "ir"), numbers),
        "Kernels": written,
        f"PTX, {arch}": _ptx(built, arch, sizes or {}, at),
    }
    shown = "\n".join(_column(title, lines) for title, lines in columns.items())
    return TEMPLATE.replace("{{title}}", html.escape(name)).replace("{{columns}}", shown)


def _ops(text: str, name: str) -> Iterator[ast.Assign]:
    for item in read(text, name).items:
        if isinstance(item, ast.OpDef):
            yield from item.lines


def _numbers(text: str, name: str) -> dict[str, int]:
    """The number of each line of the spec, by its text and by the name that it assigns."""
    found: dict[str, int] = {}
    for number, line in enumerate(_ops(text, name)):
        found.setdefault(unparse(line), number)
        found.setdefault(line.name, number)
    return found


def _spec(text: str, name: str) -> list[Line]:
    lines: dict[int, int] = {}
    for number, line in enumerate(_ops(text, name)):
        span = line.whole or line.span
        if span is not None:
            first = text.count("\n", 0, span.start)
            lines |= dict.fromkeys(range(first, text.count("\n", 0, span.end) + 1), number)
    return [Line(line, lines.get(k)) for k, line in enumerate(text.splitlines())]


def _assigned(text: str, numbers: Mapping[str, int]) -> list[Line]:
    """Lines `name[indices] = ...`."""
    names = (re.match(r"\s+(\w+)(\[.*?\])? = ", line) for line in text.splitlines())
    return [
        Line(line, numbers.get(found[1]) if found else None)
        for line, found in zip(text.splitlines(), names, strict=True)
    ]


def _kernels(source: str, numbers: Mapping[str, int]) -> tuple[list[Line], dict[int, int]]:
    """The kernels of a module; and the number of each of its lines, counted from 1."""
    shown: list[Line] = []
    at: dict[int, int] = {}
    for _, first, kernel in kernels(source):
        number: int | None = None
        for k, line in enumerate(kernel.splitlines()):
            comment = COMMENT.fullmatch(line)
            if comment:
                number = numbers.get(comment[1], number)
            if number is not None:
                at[first + k] = number
            shown.append(Line(line, number))
        shown += [Line("", None), Line("", None)]
    return shown, at


def _ptx(
    built: pipeline.Module, arch: str, sizes: Mapping[str, int], at: Mapping[int, int]
) -> list[Line]:
    try:
        texts = ptx_texts(built, arch, sizes)
    except CannotShow as reason:
        return [Line(f"// {reason}", None)]
    shown: list[Line] = []
    for text in texts:
        number: int | None = None
        for line in text.splitlines():
            if line.lstrip().startswith((".section", ".file")):
                break  # debugging information
            place = LOC.match(line)
            if place:
                number = at.get(int(place[4] or place[2]))
            elif line.strip() and not line.lstrip().startswith(("$L__tmp", "//")):
                shown.append(Line(line, number))
    return shown


def _column(title: str, lines: list[Line]) -> str:
    shown = "".join(
        (
            f'<span data-n="{line.number}">{html.escape(line.text)}\n</span>'
            if line.number is not None
            else f"{html.escape(line.text)}\n"
        )
        for line in lines
    )
    return f"<section><h2>{title}</h2><pre>{shown}</pre></section>"


TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{{title}}</title>
<style>
* { box-sizing: border-box; }
body { margin: 0; height: 100vh; display: grid; grid-template-columns: 4fr 4fr 6fr 5fr; font: 13px/1.45 ui-monospace, Menlo, Consolas, monospace; color: #1f2430; }
section { min-width: 0; min-height: 0; display: flex; flex-direction: column; border-right: 1px solid #d9dee7; }
h2 { margin: 0; padding: 0.4em 1em; font: 600 13px system-ui, sans-serif; background: #f5f7fa; border-bottom: 1px solid #d9dee7; }
pre { margin: 0; padding: 0.6em 1em; flex: 1; overflow: auto; }
span[data-n] { display: block; min-width: 100%; width: max-content; border-left: 3px solid #c5cae9; margin-left: -9px; padding-left: 6px; }
span.marked { background: #fff3c4; border-color: #e6a700; }
@media (max-width: 900px) { body { height: auto; grid-template-columns: minmax(0, 1fr); } pre { max-height: 60vh; } }
</style>
</head>
<body>
{{columns}}
<script>
// Hovering a line marks the others with its number, and brings the first of each column into view.
let marked = null;
document.body.addEventListener("mouseover", ({ target }) => {
  const line = target.closest("span[data-n]");
  if (!line || line.dataset.n === marked) return;
  marked = line.dataset.n;
  for (const other of document.querySelectorAll("span[data-n]")) other.classList.toggle("marked", other.dataset.n === marked);
  for (const pre of document.querySelectorAll("pre")) {
    const first = pre.querySelector("span.marked");
    if (first && !pre.contains(line)) pre.scrollTop = first.offsetTop - pre.offsetTop - 40;
  }
});
</script>
</body>
</html>
"""

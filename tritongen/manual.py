"""The reference of the language, `docs/language.md`: looks up entries, and writes its tables.

    entries("E203"), entries("sum"), entries("softplus")     # what `tritongen docs NAME` prints
    python -m tritongen.manual                               # writes the tables from the code

An entry is a heading with the text below it. Its names are the words in backticks, an error code, or a row of a table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from tritongen.ir.functions import BUILTINS, FUNCTIONS, SMALL_POWERS, Function
from tritongen.resources import folder
from tritongen.syntax.ref import TORCH


@dataclass(frozen=True, slots=True)
class Entry:
    """A heading, the Markdown below it, and the names under which it is found."""

    title: str
    text: str
    names: frozenset[str]


def path() -> Path:
    return folder("docs") / "language.md"


def manual() -> tuple[Entry, ...]:
    """The entries of the page, in its order."""
    return tuple(_parsed(path().read_text(encoding="utf-8")))


def entries(name: str) -> tuple[Entry, ...]:
    """The entries for a name, the most special first: its own entry, a row of a table, a title that mentions it."""
    wanted = name.strip().strip("`").lower()
    found = [e for e in manual() if wanted in e.names]
    rows = [
        Entry(f"`{name}`", f"{head}\n{row}\n", frozenset((wanted,)))
        for e in manual()
        for head, row, first in _rows(e.text)
        if first == wanted
    ]
    return tuple(found + rows) or tuple(e for e in manual() if wanted in e.title.lower())


def nearest(name: str) -> list[str]:
    known = {n for e in manual() for n in e.names} | {
        first for e in manual() for *_, first in _rows(e.text)
    }
    return get_close_matches(name.lower(), sorted(known), n=3)


def _parsed(text: str) -> Iterator[Entry]:
    fence = False
    blocks: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        fence ^= line.startswith("```")
        heading = re.match(r"#{1,3} (.*)", line)
        if heading and not fence:
            blocks.append((heading[1], []))
        elif blocks and not line.startswith("<!--"):
            blocks[-1][1].append(line)
    for title, lines in blocks:
        yield Entry(title, "\n".join(lines).strip() + "\n", frozenset(_names(title)))


def _names(title: str) -> Iterator[str]:
    """`E203`, and each word in backticks: of `x: T[M, K]` the whole, of `sum` and `mean` both."""
    code = re.match(r"[EW]\d{3}\b", title)
    if code:
        yield code[0].lower()
        return
    yield title.lower()
    for shown in re.findall(r"`([^`]+)`", title):
        yield shown.lower()
        yield shown.lower().removeprefix("tritongen.")


def _rows(text: str) -> Iterator[tuple[str, str, str]]:
    """(head, row, name) of each row of the tables in a text whose first cell is one name."""
    head: list[str] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            head = []
        elif len(head) < 2:
            head.append(line)
        elif name := re.match(r"\| `(\w+)", line):
            yield "\n".join(head), line, name[1].lower()


# ---- what is written from the code ----------------------------------------------------------------
def builtins_table() -> str:
    lines = [
        "| function | takes | torch | largest error, f32 ulp (half result) | derivative |",
        "|---|---|---|---|---|",
    ]
    for surface, name in sorted(BUILTINS.items()):
        row = FUNCTIONS[name]
        lines.append(
            f"| `{surface}({_arguments(row)})` | {_KINDS[row.args]} | {_torch(row)} | {_accuracy(row)} | {_derivative(row)} |"
        )
    powers = ", ".join(f"`{n}`" for n in SMALL_POWERS)
    lines += [
        "",
        "- **Derivative**: `a`, `b` and `c` are the arguments, `y` is the result.",
        "- **Largest error**: measured on an H200, in units in the last place of f32. 0 is exact, 0.5 is correctly rounded. A number in "
        "brackets is the error where the result is rounded to a half type.",
        f"- `x ** n` is computed by multiplication for n in {powers}.",
        "- `max` and `min` of two values give NaN if one is NaN.",
    ]
    return "\n".join(lines)


_KINDS = {
    "float": "floats (ints are converted)",
    "number": "floats, ints",
    "any": "floats, ints, bools",
    "int": "ints, bools",
    "bool": "bools",
}


def _arguments(row: Function) -> str:
    return ", ".join("abc"[: row.arity])


def _torch(row: Function) -> str:
    called = re.match(r"[\w.]+(?=\()", row.torch.template)
    return f"`{called[0]}`" if called else _cell(row.torch.template.format(a="a", b="b", c="c"))


def _cell(code: str) -> str:
    """Code in a cell of a table, where a bar would end the cell."""
    return f"`{code}`".replace("|", "\\|")


def _accuracy(row: Function) -> str:
    if row.ulp == float("inf"):
        return "as torch"
    return f"{row.ulp:g}" + (f" ({row.half:g})" if row.half else "")


def _derivative(row: Function) -> str:
    if row.derivative is None:
        return "0"
    return "; ".join(f"`{d}`" if d else "0" for d in row.derivative)


def prelude_table() -> str:
    """Each macro and op by its head and, of an op, the torch function that it equals."""
    text = (folder("grammar") / "prelude.op").read_text(encoding="utf-8")
    lines = ["| name | takes | equals |", "|---|---|---|"]
    for macro in re.finditer(r"^fn (\w+)\((.*?)\) = (.*?)(?:  #.*)?$", text, re.M):
        lines.append(f"| `{macro[1]}` | {_cell(macro[2])} | {_cell(macro[3])} |")
    for op in re.finditer(r"^op (\w+)<.*?>\((.*?)\)\s*->.*?^}", text, re.M | re.S):
        steps = re.search(r'ref\s+((?:"[^"]*"\s*)+)', op[0])
        equals = " ".join(re.findall(r'"([^"]*)"', steps[1])) if steps else ""
        takes = re.sub(r"\s+", " ", op[2])
        lines.append(f"| `{op[1]}` | {_cell(takes)} | {_cell(equals)} |")
    return "\n".join(lines)


def ref_list() -> str:
    return f"{', '.join(f'`{name}`' for name in sorted(TORCH))}."


TABLES: dict[str, Callable[[], str]] = {
    "builtins": builtins_table,
    "prelude": prelude_table,
    "ref": ref_list,
}


def refreshed(text: str) -> str:
    """The page with the tables as the code has them."""
    for name, table in TABLES.items():
        opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, rest = text.split(opening)
        text = f"{before}{opening}\n{table()}\n{closing}{rest.split(closing)[1]}"
    return text


if __name__ == "__main__":
    path().write_text(refreshed(path().read_text(encoding="utf-8")), encoding="utf-8")

"""What is wrong with a spec, where, and how to mend it.

Input: a code, a message, the place in the source. Output: one `Diagnostic`; `SpecError` carries all
that were found in one run. `render` prints them in rustc's shape:

    error[E202]: index `k` is not bound
      --> specs/linear.op:2:18
       |
     2 |   y[m, n] = x[m, k] * w[n, k]
       |                  ^ appears on the right only
       = help: to sum over it: `y[m, n] = sum[k](x[m, k] * w[n, k])`

What each code means is in `CODES`. Nothing here knows the language.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Source:
    """The text of one spec and the name it is shown under."""

    name: str
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a source: half-open character offsets [start, end)."""

    source: Source
    start: int
    end: int

    def line_column(self) -> tuple[int, int]:
        """1-based line and column of the first character."""
        before = self.source.text[: self.start]
        return before.count("\n") + 1, self.start - (before.rfind("\n") + 1) + 1


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding: `label` stands under the caret, `notes` are further places with their labels."""

    code: str
    message: str
    span: Span | None = None
    label: str = ""
    notes: tuple[tuple[Span, str], ...] = ()
    help: str = ""
    severity: str = "error"  # or "warning"


class SpecError(ValueError):
    """A spec that cannot be compiled; `str()` is every diagnostic, rendered."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...] | list[Diagnostic]):
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n\n".join(render(d) for d in self.diagnostics))


def render(diagnostic: Diagnostic) -> str:
    """The text of one diagnostic, without colour."""
    d = diagnostic
    head = f"{d.severity}[{d.code}]: {d.message}"
    if d.span is None:
        return head + (f"\n  = help: {d.help}" if d.help else "")
    places = [(d.span, d.label), *d.notes]
    width = max(len(str(span.line_column()[0])) for span, _ in places)
    line, column = d.span.line_column()
    out = [head, f"{' ' * width}--> {d.span.source.name}:{line}:{column}", f"{' ' * width} |"]
    for span, label in places:
        line, column = span.line_column()
        text = span.source.text.split("\n")[line - 1].rstrip("\r")
        length = max(1, min(span.end - span.start, len(text) - column + 1))
        text, column = _window(text, column)
        mark = "^" if span is d.span else "-"
        out.append(f"{line:>{width}} | {text}")
        out.append(f"{' ' * width} | {' ' * (column - 1)}{mark * length} {label}".rstrip())
    if d.help:
        out.append(f"{' ' * width} = help: {d.help}")
    return "\n".join(out)


def _window(text: str, column: int) -> tuple[str, int]:
    """A line of at most 120 characters around the column: a hostile line may be a megabyte long."""
    start = max(0, column - 60)
    cut = text[start : start + 120]
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in cut), column - start

"""What is wrong with a spec, where, and how to mend it.

Input: a code, a message, the place in the source. Output: one `Diagnostic`; `SpecError` carries all
that were found in one run. `render` prints them in rustc's shape:

    error[E202]: index `k` is not bound
      --> specs/linear.op:2:18
       |
     2 |   y[m, n] = x[m, k] * w[n, k]
       |                  ^ appears only on the right
       = help: to sum over it: `y[m, n] = sum[k](x[m, k] * w[n, k])`

What each code means is in `CODES`. Nothing here knows the language.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

CODES = {
    # the text and its limits
    "E001": "the text is larger than 64 KiB",
    "E002": "the file is not UTF-8",
    "E003": "a control, bidirectional or invisible character",
    "E004": "a character that is not ASCII, outside comments and strings",
    "E005": "a character that the language does not use",
    "E006": "a string that is never closed",
    "E007": "more than 10,000 tokens",
    "E008": "brackets nested deeper than 64",
    "E009": "more than 256 operations in one op, or an expansion that is too large",
    "E010": "more than 8 dims, indices or binders",
    "E011": "a number that does not fit in 64 bits",
    "E012": "a file that cannot be read",
    # syntax and declarations
    "E101": "the text does not follow the grammar",
    "E102": "a reserved name",
    "E103": "a malformed name",
    "E104": "something other than indices on the left side of a line",
    "E105": "a binder that is not `k`, `k < K` or `lo <= k < hi`",
    "E106": "a reducer without its indices",
    "E107": "an `else` without parentheses, a read before it or a literal after it",
    "E108": "a chained comparison",
    "E109": "a default that does not fit its parameter",
    "E110": "a family of dtypes where one dtype is needed, or an unknown dtype",
    "E111": "arguments of a call out of order or given twice",
    "E112": "a name declared twice, or used for two things",
    "E113": "an unknown name",
    "E114": "a cycle, or a name that no line assigns",
    "E115": "an operand, or a line of an expression, that nothing reads",
    # indices and ranges
    "E201": "a different number of indices than dims",
    "E202": "an index that nothing binds",
    "E203": "an index without a range",
    "E204": "two ranges for one index",
    "E205": "an index that is not affine",
    "E206": "a binder that shadows an index in use",
    "E207": "misuse of `...`",
    "E208": "a size that no operand binds",
    # types
    "E301": "operand types that do not go together",
    "E302": "a dtype that the function does not take",
    "E303": "a tensor where a scalar is needed, or the reverse",
    "E304": "a dtype or typing that the op cannot have",
    # bounds
    "E401": "a read that may be out of bounds without `else`",
    "E402": "a read that is out of bounds",
    "E403": "an `else` value that does not fit the read's dtype",
    # calls and facts
    "E501": "wrong number or kind of arguments",
    "E502": "a call that recurses",
    "E503": "an op call in a place where none is allowed",
    "E504": "a fact that is false, or one that cannot be checked",
    # clauses and ref
    "E601": "a clause given twice",
    "E602": "a value that the clause does not take",
    "E603": "a `ref` that is not an expression",
    "E604": "a `ref` that uses more than torch functions and operands",
    # gradients
    "E701": "a gradient that cannot be derived",
    "E702": "a `grad` block that does not fit its op",
    # tune
    "E801": "a tile or warp count that is no power of two",
    "E802": "a tuned value out of range",
    # warnings
    "W001": "a temporary that nothing reads",
    "W002": "an output index that the right side never uses",
    "W004": "a difference of u8, which wraps",
    "W005": "a temporary that is computed wider than it is read",
}


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
class Fix:
    """The corrected text of a place: what a reader may paste over `span`."""

    span: Span
    text: str

    def applied(self) -> str:
        """The whole source, corrected."""
        before = self.span.source.text
        return before[: self.span.start] + self.text + before[self.span.end :]


def fix_at(span: Span | None, text: str) -> Fix | None:
    """The fix of a node, which has a place where it was read from a text."""
    return None if span is None else Fix(span, text)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. `label` stands under the caret. `notes` are other places with their labels.

    If there is a `fix`, its text follows `help`, or replaces `{}` in it. `others` are other candidates, in order. `otherwise` is the help
    if none of them compiles (`proven`).
    """

    code: str
    message: str
    span: Span | None = None
    label: str = ""
    notes: tuple[tuple[Span, str], ...] = ()
    help: str = ""
    severity: str = "error"  # or "warning"
    fix: Fix | None = None
    others: tuple[Fix, ...] = ()
    otherwise: str = ""

    @property
    def advice(self) -> str:
        """The text behind `help:`."""
        if self.fix is None:
            return self.help
        lines = [" ".join(line.split()) for line in self.fix.text.strip().split("\n")]
        shown = ", then ".join(f"`{line}`" for line in lines)
        if "{}" in self.help:
            return self.help.replace("{}", shown)
        return f"{self.help}: {shown}" if self.help else f"write {shown}"


# ---- proposals that are compiled before they are shown ------------------------------------------
MAX_TRIED = 32  # texts compiled for the findings of one file
MAX_TRIED_TEXT = 1 << 17  # and their characters together
MAX_DEPTH = 2  # findings that come up behind a fix, and behind theirs

Compiled = Callable[
    [str], "tuple[Sequence[Diagnostic], int]"
]  # the findings, and the run-time checks
Rewrites = Callable[[Diagnostic], "tuple[Fix, ...]"]


def proven(
    findings: Iterable[Diagnostic],
    compiled: Compiled,
    rewrites: Rewrites = lambda _: (),
    first_only: bool = False,
) -> list[Diagnostic]:
    """The findings, each with the first of its fixes that removes it and adds no finding that stays.

    `rewrites` gives fixes of the whole line, for a finding whose own do not compile. What else is found in such a line is not shown, and
    of findings with one fix only the first.

    Among several such fixes, the one that requires least of a call is taken. A later line that was not checked yet may have findings of
    its own, which then get fixes in turn. `first_only`: the findings end at a syntax error, so the rest of the text was not checked and
    does not count.
    """
    every = list(findings)
    tried: dict[str, tuple[Sequence[Diagnostic], int]] = {}

    def cost(d: Diagnostic, fix: Fix, before: Sequence[Diagnostic], depth: int) -> int | None:
        text = fix.applied()
        if text not in tried:
            if len(tried) == MAX_TRIED or sum(map(len, tried)) + len(text) > MAX_TRIED_TEXT:
                return None
            tried[text] = compiled(text)
        found, asked = tried[text]
        if first_only:
            new = [f for f in found if _touches(f, fix)]  # none may stay but the same mistake again
            is_gone = not any(_is_moved(d, f, fix) for f in found)
            stays = (f for f in new if (f.code, f.message) != (d.code, d.message))
        else:
            was, now = _said(before), _said(found)
            new = [f for f in found if now[f.code, f.message] > was[f.code, f.message]]
            alike = [f for f in found if (f.code, f.message) == (d.code, d.message)]
            if later := _is_in(d.span, fix.span) and not any(_touches(f, fix) for f in alike):
                new += alike  # the same slip on other lines, which were not checked before
            is_gone = later or now[d.code, d.message] < was[d.code, d.message]
            stays = (f for f in new if _touches(f, fix))
        if not is_gone or any(stays):
            return None
        costs = [least(f, found, depth + 1) for f in new]
        return None if None in costs else asked + sum(c[0] for c in costs if c)

    def least(d: Diagnostic, before: Sequence[Diagnostic], depth: int) -> tuple[int, Fix] | None:
        if d.fix is None or depth > MAX_DEPTH:
            return None
        costs = [(cost(d, fix, before, depth), fix) for fix in (d.fix, *d.others)]
        right = [(asked, fix) for asked, fix in costs if asked is not None]
        return min(right, key=lambda pair: pair[0], default=None)

    def settled(d: Diagnostic) -> tuple[Diagnostic, Span | None]:
        """The finding with its fix, and the line that the fix writes anew."""
        found = least(d, every, 0)
        if found is not None:
            return replace(d, fix=found[1], others=()), None
        d = replace(d, fix=None, others=(), help=d.help if d.fix is None else d.otherwise)
        whole = rewrites(d)
        new = replace(d, fix=whole[0], others=whole[1:], help="") if whole else d
        found = least(new, every, 0)
        return (replace(new, fix=found[1], others=()), found[1].span) if found else (d, None)

    pairs = [settled(d) for d in every]
    lines = {span: d for d, span in reversed(pairs) if span is not None}
    first = {d.fix: d for d, _ in reversed(pairs) if d.fix is not None}
    return [
        d
        for d, _ in pairs
        if (d.fix is None or first[d.fix] is d)
        and all(d is kept or not _is_in(d.span, span) for span, kept in lines.items())
    ]


def _is_in(span: Span | None, line: Span) -> bool:
    return span is not None and line.start <= span.start and span.end <= line.end


def _said(findings: Iterable[Diagnostic]) -> Counter[tuple[str, str]]:
    return Counter((d.code, d.message) for d in findings if d.severity == "error")


def _touches(d: Diagnostic, fix: Fix) -> bool:
    """Whether a finding of the corrected text is on a line of the fix."""
    if d.span is None:
        return True
    text, end = fix.applied(), fix.span.start + len(fix.text)
    start = text.rfind("\n", 0, fix.span.start) + 1
    stop = text.find("\n", end)
    return d.span.start < (len(text) if stop < 0 else stop) and d.span.end > start


def _is_moved(d: Diagnostic, other: Diagnostic, fix: Fix) -> bool:
    """Whether a finding of the corrected text is `d` again, moved by the fix."""
    if d.span is None or other.span is None or d.span.start < fix.span.end:
        return False
    moved = d.span.start + len(fix.text) - (fix.span.end - fix.span.start)
    return (d.code, d.message, moved) == (other.code, other.message, other.span.start)


class SpecError(ValueError):
    """A spec that cannot be compiled; `str()` is every diagnostic, rendered."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...] | list[Diagnostic]):
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n\n".join(render(d) for d in self.diagnostics))


class NoBlack(ImportError):
    """Black is not installed; the message says how to get it. Only what is written to a file needs it."""


def render(diagnostic: Diagnostic) -> str:
    """The text of one diagnostic, without colour."""
    d = diagnostic
    head = f"{d.severity}[{d.code}]: {d.message}"
    if d.span is None:
        return head + (f"\n  = help: {d.advice}" if d.advice else "")
    places = [(d.span, d.label), *d.notes]
    width = max(len(str(span.line_column()[0])) for span, _ in places)
    line, column = d.span.line_column()
    name = _printable(d.span.source.name)
    out = [head, f"{' ' * width}--> {name}:{line}:{column}", f"{' ' * width} |"]
    shown = None
    for span, label in places:
        line, column = span.line_column()
        text, column = _window(span.source.text.split("\n")[line - 1].rstrip("\r"), column)
        length = max(1, min(span.end - span.start, len(text) - column + 1))
        mark = "^" if span is d.span else "-"
        if shown != (span.source, line, text):
            if span.source is not d.span.source:
                out.append(f"{' ' * width}::: {_printable(span.source.name)}:{line}")
            out.append(f"{line:>{width}} | {text}")
            shown = (span.source, line, text)
        out.append(f"{' ' * width} | {' ' * (column - 1)}{mark * length} {label}".rstrip())
    if d.advice:
        out.append(f"{' ' * width} = help: {d.advice}")
    return "\n".join(out)


def _window(text: str, column: int) -> tuple[str, int]:
    """A line of at most 120 characters around the column: a hostile line may be a megabyte long."""
    start = max(0, column - 60) if len(text) > 120 else 0
    cut = text[start : start + 120].replace("\t", " ")
    return _printable(cut), column - start


def _printable(text: str) -> str:
    """Text that is safe for a terminal: a path may hold anything."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)

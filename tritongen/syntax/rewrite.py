"""Proposes the whole line in index notation, where its text is Python or mathematics.

    y[n] = x[n, :].sum()       y[n] = sum[d](x[n, d])
    y = x if c > 0 else 0      y = where(c > 0, x, 0)

Input: a finding. Output: fixes of the line that it is in, best first. They are guesses from the text alone:
`errors.proven` keeps one that compiles. Nothing here raises. `torch_lines` reads the line.
"""

from __future__ import annotations

import ast as python
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence

from tritongen.errors import Diagnostic, Fix, Span
from tritongen.syntax.head import head
from tritongen.syntax.names import BUILTINS, CLAUSES, REDUCERS
from tritongen.syntax.torch_axes import Shape, Unread
from tritongen.syntax.torch_lines import Reader
from tritongen.syntax.torch_names import MATHEMATICS

CODES = frozenset("E004 E005 E101 E102 E104 E106 E110 E113 E201 E202 E303 E501 E503".split())
MAX_LINE = 1000  # characters of a line that is read
UNREADABLE = (
    *(Unread, SyntaxError, TypeError, ValueError, ArithmeticError, LookupError),
    *(RecursionError, MemoryError),
)
INDICES = r"(?:[ \t]*\[[^\]\n]{0,200}\])*"
BEGIN = (
    rf"return\b|(?:for|if)\b(?=[^\n=?]{{0,200}}:)|[a-z_]\w*{INDICES}\s*(?:[-+*/]|//|\*\*|:)?=(?!=)"
)
TOKEN = re.compile(
    rf"(?P<comment>\#[^\n]*)|(?P<skip>\"[^\"\n]*\"|\w*_\{{[^}}\n]*\}})|(?P<open>[(\[{{])|(?P<close>[)\]}}])"
    rf"|(?P<begin>(?<![\w.])(?:{BEGIN}))|(?P<clause>\b(?:{'|'.join(sorted(CLAUSES))})\b)|\w+|\S",
    re.ASCII,
)
NAMES = "|".join(sorted(REDUCERS))
OPEN = re.compile(  # a reducer or a function without parentheses behind it
    rf"\b(?:(?P<reducer>(?:{NAMES})\s*\[[^\]]*\])(?=\s*\w)|(?P<sum>sum|prod)(?=\s+\w)"
    rf"|(?:{'|'.join(sorted(BUILTINS - {'where'}))})(?=\s+\w))"
)
FORMS_OF_PYTHON = (
    (r"#[^\n]*", ""),
    (rf"\b({NAMES})_\{{?([a-z](?:,\s*[a-z])*)\}}?(?=\W)", r"\1[\2]"),  # `sum_{k}`
    (
        rf"\b({NAMES})\[(\w+)\s*(?:in|:|=)\s*(?:range\()?(?:0\s*(?:\.\.|,|:)\s*)?(\w+)\)?\]",
        r"\1[\2 < \3]",  # `sum[k=0..K]`, `sum[k in range(K)]`
    ),
    (r"&&", " and "),
    (r"\|\|", " or "),
    (r"(?<=[=(,+*/-])(\s*)\|([^|]+)\|", r"\1abs(\2)"),
    (r"!(?!=)", "~"),
    (r"\^", "**"),
    (r"(?<=\.)[fF]\b", "0"),
    (r"(?<=\d)[fFlL]\b", ""),
    (r"\b(\d+)\.(?!\d)", r"\1.0"),
    (r"^(.*?(?<![=<>!])=(?!=)|)(.*)\?(.*):(.*)$", r"\1 (\3) if (\2) else (\4)"),
    (r"^((?:(?!\bif\b).)*\])\s*else\s+(-?\s*[\w.]+)", r"\1.otherwise(\2)"),
)
OPERAND = re.compile(r"\b([a-z_]\w*)\s*:\s*(\w+)(?:\s*\[([^\]]*)\])?", re.ASCII)
LINE = re.compile(rf"(?<![\w.])([a-z_]\w*)({INDICES})\s*=(?!=)", re.ASCII)


def rewrites(d: Diagnostic) -> tuple[Fix, ...]:
    """The fixes of the line that the finding is in."""
    if d.span is None or d.code not in CODES:
        return ()
    text, position = d.span.source.text, d.span.start
    begin = head(text, position)
    found = _statement(text, position, begin[1] if begin else 0)
    start, end = found if found else (0, len(text.rstrip()))
    if end - start > MAX_LINE or (begin and not found) or position < start:
        return ()
    shapes = _shapes(text, start, begin)
    outputs = OPERAND.findall(text[slice(*begin)].partition("->")[2]) if begin else []
    own = text[start:end]
    lines = rewritten(
        own, " " * (start - text.rfind("\n", 0, start) - 1), shapes, [o[0] for o in outputs]
    )
    span = Span(d.span.source, start, end)
    return tuple(Fix(span, line) for line in lines if _bare(line) != _bare(own))


def rewritten(
    own: str,
    indent: str = "",
    shapes: Mapping[str, Shape] | None = None,
    outputs: Sequence[str] = (),
) -> list[str]:
    """The texts of a line in index notation; `outputs` are none for an expression."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python, for `1(x)`
        try:
            (tree,) = python.parse(_as_python(own, indent)).body
            found = dict.fromkeys(_readings(tree, shapes or {}, outputs))
            return [f"\n{indent}".join(lines) for lines in found]
        except UNREADABLE:
            return []


def _readings(
    tree: python.stmt, shapes: Mapping[str, Shape], outputs: Sequence[str]
) -> Iterator[tuple[str, ...]]:
    # names in brackets that nothing declares are indices
    subscripts = (n.slice for n in python.walk(tree) if isinstance(n, python.Subscript))
    inside = (n for s in subscripts for n in python.walk(s) if isinstance(n, python.Name))
    names = {n.id for n in inside if n.id[0].islower()}
    ranks: dict[str, tuple[str, ...]] = {}
    for whole, filled in ((True, False), (False, False), (False, False), (False, True)):
        reader = Reader(shapes, outputs, names - {*shapes}, ranks, whole, filled)
        try:
            line = reader.line(tree)
            yield tuple(map(_as_spec, (*reader.above, line)))
        except UNREADABLE:
            continue  # the next one knows the ranks that this one found


def _as_spec(text: str) -> str:
    """The text without parentheses that it does not need."""
    if len(text) > 4 * MAX_LINE:
        raise Unread
    shown = python.unparse(python.parse(text)).replace("e-0", "e-")
    shown = re.sub(r"(?<=\w)=(?=[\w.-])", " = ", shown)
    shown = re.sub(r"\botherwise\((.*?\]), (-?[\w.]+)\)", r"(\1 else \2)", shown)
    alone = r"(= |^|[(,] ?)\(([^()]*(?:\([^()]*\)[^()]*)* else -?[\w.]+)\)(?=$|[,)])"
    return re.sub(alone, r"\1\2", shown)


# ---- the text around ----------------------------------------------------------------------------
def _statement(text: str, position: int, body: int) -> tuple[int, int] | None:
    """Where the line that holds the position begins and ends. A loop or `if` holds the line behind it."""
    start, depth, last = -1, 0, body
    for found in TOKEN.finditer(text, body):
        is_behind = start >= 0 and found.start() > position and depth <= 0
        if found.lastgroup == "comment":
            continue
        if found.lastgroup == "open":
            depth += found[0] != "{"
        elif found.lastgroup == "close":
            depth -= found[0] != "}"
            if found[0] == "}" and is_behind:
                break
        elif found.lastgroup in ("begin", "clause") and depth <= 0 and text[last - 1] != ":":
            if is_behind:
                break
            start = found.start() if found.lastgroup == "begin" else -1
        last = found.end()
    return None if start < 0 else (start, last)


def _shapes(text: str, start: int, begin: tuple[int, int] | None) -> dict[str, Shape]:
    """The operands, outputs and numbers of the op, and the lines above."""
    shapes: dict[str, Shape] = {}
    signature, above = (
        (text[slice(*begin)], text[begin[1] : start]) if begin else ("", text[:start])
    )
    for name, dtype, dims in OPERAND.findall(re.sub(r"#[^\n]*", "", signature)):
        shapes[name] = Shape(dtype, _dims(dims))
    for name, brackets in LINE.findall(re.sub(r"#[^\n]*", "", above)):
        dims = ", ".join(re.sub(r"<.*", "", i).strip() for i in brackets.strip(" []").split(","))
        shapes.setdefault(name, Shape("", _dims(dims.replace("0", "1").upper() or "...")))
    return shapes


def _dims(text: str) -> tuple[str, ...]:
    return tuple(d.strip() for d in text.split(",") if d.strip())


# ---- Python's text ------------------------------------------------------------------------------
def _as_python(own: str, indent: str) -> str:
    text = own
    for mark, ours in MATHEMATICS.items():
        text = text.replace(mark, f" {ours}" if ours.strip().isalpha() else ours)
    for form, python_form in FORMS_OF_PYTHON:
        text = re.sub(form, python_form, text, flags=re.DOTALL)
    text = _in_parentheses(text).rstrip(" ;:\n")
    is_block = re.match(r"for\b|if\b", text)
    return textwrap.dedent(indent + text) if is_block else " ".join(text.split())


def _in_parentheses(text: str) -> str:
    """`sum[k] x[k] * w[k] + 1` as `sum[k](x[k] * w[k]) + 1`, and `sqrt x[k]` as `sqrt(x[k])`."""
    while found := re.search(OPEN, text):
        stops = r"[-+,<>=!]|\b(?:and|or|if|else)\b" + ("" if found["reducer"] else r"|[*/]")
        stop, at, depth = re.compile(stops), found.end(), 0
        while at < len(text):
            depth += (text[at] in "([") - (text[at] in ")]")
            if depth < 0 or (depth == 0 and at > found.end() and stop.match(text, at)):
                break
            at += 1
        body = text[found.end() : at].strip()
        text = f"{text[: found.start()]}{found[0]}({body}){text[at:]}"
    return text


def _bare(text: str) -> str:
    return re.sub(r"\s", "", text)

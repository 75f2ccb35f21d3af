"""What an editor asks about the text of a spec, with character offsets for places.

    findings(text)              # diagnostics, warnings included; never raises for a bad spec
    hover(text, 120)            # Markdown about the word there, or ""
    definition(text, 120)       # the Span that declares it, or None

`lsp.py`, the notebook's `%%op` and the playground are three callers. A compile reads the whole text again:
a spec is at most 64 KiB. Not here: colours (`syntax/highlight.py`), layout (`syntax/layout.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from tritongen import manual
from tritongen.check import Checked, check, read
from tritongen.errors import Diagnostic, Span, SpecError
from tritongen.faults import reporting
from tritongen.ir import nodes as ir
from tritongen.syntax import ast
from tritongen.syntax.highlight import Token, tokens
from tritongen.syntax.unparse import unparse


def findings(text: str, name: str = "<text>") -> tuple[Diagnostic, ...]:
    """Everything that is wrong with a text, and what it warns of."""
    return _looked_at(text, name)[2]


def hover(text: str, offset: int, name: str = "<text>") -> str:
    """What the word at an offset is: its type, its range, or its entry in the reference."""
    token = token_at(text, offset)
    if token is None or token.kind in ("punctuation", "number", "string", "comment"):
        return ""
    file, checked, _ = _looked_at(text, name)
    op = _op_around(file, offset)
    if token.kind in ("name", "size", "function", "definition") and file is not None:
        for item in file.items:
            if item.name == token.text and token.kind in ("function", "definition"):
                return _code(unparse(item).strip() if isinstance(item, ast.Fn) else signature(item))
        typed = next((c.typings for c in checked if op and c.name == op.name), ())
        if typed and (known := _typed(typed[0], token.text)):
            return _code(known)
    if token.kind in ("name", "size", "definition"):
        return ""
    found = manual.entries(token.text)[:1]
    return "\n\n".join(f"**{e.title}**\n\n{e.text}" for e in found)


def definition(text: str, offset: int, name: str = "<text>") -> Span | None:
    """Where the word at an offset is declared: an operand, a temporary, an index, a macro or an op."""
    token, file = token_at(text, offset), _looked_at(text, name)[0]
    if token is None or file is None:
        return None
    if token.kind == "function":
        return next((item.span for item in file.items if item.name == token.text), None)
    op = _op_around(file, offset)
    if op is None or token.kind not in ("name", "size"):
        return None
    return next((span for word, span in _declared(op, text) if word == token.text), None)


def token_at(text: str, offset: int) -> Token | None:
    """The word at an offset, or the one that ends there."""
    found = [t for t in tokens(text) if t.start <= offset <= t.end and t.kind != "space"]
    words = [t for t in found if t.text[0].isalnum()]
    best = words or found
    return best[-1] if best else None


def signature(op: ast.OpDef) -> str:
    """The head of an op, without its facts."""
    types = f"<{', '.join(map(unparse, op.typarams))}>" if op.typarams else ""
    outputs = ", ".join(map(unparse, op.outputs))
    outputs = outputs if len(op.outputs) == 1 else f"({outputs})"
    return f"op {op.name}{types}({', '.join(map(unparse, op.params))}) -> {outputs}"


@lru_cache(maxsize=8)
def _looked_at(
    text: str, name: str
) -> tuple[ast.File | None, tuple[Checked, ...], tuple[Diagnostic, ...]]:
    """The tree as far as the text parses, its ops as far as they are right, and the findings."""
    file: ast.File | None = None
    try:
        with reporting(name, text):
            file = read(text, name)
            checked = check(file)
    except SpecError as error:
        return file, (), error.diagnostics
    return file, checked, tuple(w for c in checked for w in c.warnings)


def _op_around(file: ast.File | None, offset: int) -> ast.OpDef | None:
    """The op whose name stands last before an offset."""
    before = (i for i in file.items if i.span and i.span.start <= offset) if file else ()
    last = max(before, key=lambda i: i.span.start if i.span else 0, default=None)
    return last if isinstance(last, ast.OpDef) else None


def _typed(op: ir.Op, name: str) -> str:
    """`x: T[N, D]` of a tensor, `0 <= n < N` of an index, what binds a size."""
    for tensor in (*op.tensors, *op.outputs):
        if tensor.name == name:
            return f"{name}: {tensor.dtype}[{', '.join(map(str, tensor.dims))}]"
    for kind, params in (("a scalar", op.scalars), ("a constant", op.constants)):
        for param in params:
            if param.name == name:
                return f"{name}: {param.dtype}, {kind}"
    for nest in op.nests:
        if nest.name == name:
            return f"{name}: {nest.dtype}[{', '.join(map(str, nest.dims))}], a temporary"
    reducers = [e for n in op.nests for e in ir.walk(n.body) if isinstance(e, ir.Reduce)]
    for b in [b for n in op.nests for b in n.box] + [b for e in reducers for b in e.binders]:
        if b.index == name:
            return f"{b.lo} <= {name} < {b.hi}"
    for tensor in op.tensors:
        for place, dim in enumerate(tensor.dims):
            if str(dim) == name:
                return f"{name}: the size of dim {place} of {tensor.name}"
    return next((f"{name} = {d.value}" for d in op.defines if d.name == name), "")


def _declared(op: ast.OpDef, text: str) -> Iterator[tuple[str, Span]]:
    """Names and the places that declare them, the first place of each first."""
    for param in (*op.typarams, *op.params, *op.outputs):
        if param.span is not None:
            yield param.name, param.span
    for operand in op.params:
        if isinstance(operand, ast.Operand):
            for dim in operand.type.dims or ():
                if isinstance(dim, ast.Size) and dim.span is not None:
                    yield dim.name, dim.span
    for fact in op.facts:
        if isinstance(fact, ast.Define) and fact.span is not None:
            yield fact.name, fact.span
    for line in op.lines:
        if line.span is not None:
            yield line.name, line.span
        for index in line.indices or ():
            if isinstance(index, (ast.Name, ast.Binder)) and index.span is not None:
                yield index.name, index.span


def _code(text: str) -> str:
    return f"```op\n{text}\n```"

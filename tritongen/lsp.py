"""A language server for specs, by pygls: what `editor.py` and `syntax/layout.py` say, in the protocol's words.

`tritongen lsp` starts it. Places of the protocol are lines and UTF-16 columns; `_place` and `_offset` translate.
"""

from __future__ import annotations

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from tritongen import __version__, editor
from tritongen.errors import Diagnostic, Span
from tritongen.faults import CompilerFault
from tritongen.syntax.layout import laid_out

server = LanguageServer("tritongen", __version__)
SEVERITY = {"error": lsp.DiagnosticSeverity.Error, "warning": lsp.DiagnosticSeverity.Warning}


@server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
@server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
def look(
    ls: LanguageServer, params: lsp.DidOpenTextDocumentParams | lsp.DidChangeTextDocumentParams
) -> None:
    document = ls.workspace.get_text_document(params.text_document.uri)
    found = [_diagnostic(document, d) for d in _findings(document)]
    ls.text_document_publish_diagnostics(
        lsp.PublishDiagnosticsParams(uri=document.uri, version=document.version, diagnostics=found)
    )


@server.feature(lsp.TEXT_DOCUMENT_HOVER)
def hover(ls: LanguageServer, params: lsp.HoverParams) -> lsp.Hover | None:
    document = ls.workspace.get_text_document(params.text_document.uri)
    text = editor.hover(document.source, _offset(document, params.position), document.path)
    if not text:
        return None
    return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text))


@server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
def definition(ls: LanguageServer, params: lsp.DefinitionParams) -> lsp.Location | None:
    document = ls.workspace.get_text_document(params.text_document.uri)
    span = editor.definition(document.source, _offset(document, params.position), document.path)
    return None if span is None else lsp.Location(document.uri, _range(document, span))


@server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
def formatting(ls: LanguageServer, params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
    document = ls.workspace.get_text_document(params.text_document.uri)
    text = laid_out(document.source)
    if text == document.source:
        return []
    whole = lsp.Range(lsp.Position(0, 0), _place(document, len(document.source)))
    return [lsp.TextEdit(whole, text)]


@server.feature(
    lsp.TEXT_DOCUMENT_CODE_ACTION,
    lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix]),
)
def fixes(ls: LanguageServer, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    """The corrections of findings in the lines asked for."""
    document = ls.workspace.get_text_document(params.text_document.uri)
    actions = []
    for found in _findings(document):
        place = _diagnostic(document, found)
        lines = range(place.range.start.line, place.range.end.line + 1)
        if found.fix and params.range.start.line in lines:
            edit = lsp.TextEdit(_range(document, found.fix.span), found.fix.text)
            changes = lsp.WorkspaceEdit({document.uri: [edit]})
            kind = lsp.CodeActionKind.QuickFix
            actions.append(lsp.CodeAction(found.advice, kind, [place], edit=changes))
    return actions


def _findings(document: TextDocument) -> tuple[Diagnostic, ...]:
    try:
        return editor.findings(document.source, document.path)
    except CompilerFault as fault:
        return (Diagnostic("", str(fault).splitlines()[0]),)


def _diagnostic(document: TextDocument, found: Diagnostic) -> lsp.Diagnostic:
    words = [found.message, found.label, f"help: {found.advice}" if found.advice else ""]
    place = _range(document, found.span) if found.span else lsp.Range(*[lsp.Position(0, 0)] * 2)
    return lsp.Diagnostic(
        place,
        "\n".join(filter(None, words)),
        severity=SEVERITY[found.severity],
        code=found.code or None,
        source="tritongen",
    )


def _range(document: TextDocument, span: Span) -> lsp.Range:
    return lsp.Range(_place(document, span.start), _place(document, span.end))


def _place(document: TextDocument, offset: int) -> lsp.Position:
    before = document.source[:offset]
    column = len(before[before.rfind("\n") + 1 :].encode("utf-16-le")) // 2
    return lsp.Position(before.count("\n"), column)


def _offset(document: TextDocument, place: lsp.Position) -> int:
    return document.offset_at_position(place)

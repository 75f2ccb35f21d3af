"""`editors/op.tmLanguage.json`, for editors that read TextMate grammars: `python -m tritongen.syntax.textmate`.

VS Code, Sublime Text, JetBrains and GitHub's Linguist read such files. It is written from the grammar's own
terminals, and a test holds it to them.
"""

from __future__ import annotations

import json
from pathlib import Path

from tritongen.syntax import _tables
from tritongen.syntax.highlight import KINDS

GRAMMAR = Path(__file__).resolve().parents[2] / "editors" / "op.tmLanguage.json"
SCOPES = {
    "comment": "comment.line.number-sign.op",
    "constant": "constant.language.op",
    "name": "variable.other.op",
    "number": "constant.numeric.op",
    "reducer": "support.function.op",
    "size": "entity.name.type.op",
    "string": "string.quoted.double.op",
    "type": "storage.type.op",
}
OPERATORS = ("POW", "CMP", "ARROW", "MULOP", "PLUS", "MINUS", "EQUAL", "LT", "GT", "VBAR")


def grammar() -> str:
    patterns = [
        rule(
            r"\b(op|fn)\s+([a-z_][A-Za-z0-9_]*)",
            {1: "keyword.control.op", 2: "entity.name.function.op"},
        ),
        rule(rf"\b({'|'.join(sorted(_tables.KEYWORDS))})\b", {0: "keyword.control.op"}),
    ]
    terminals = dict(_tables.TERMINALS)
    for terminal, pattern in _tables.TERMINALS:
        if terminal == "NAME":
            patterns.append(rule(rf"{pattern}(?=\s*\()", {0: "support.function.op"}))
        if terminal in KINDS:
            start = r"\b" if terminal in ("DTYPE", "REDUCER", "BOOL", "INF") else ""
            patterns.append(rule(start + pattern, {0: SCOPES[KINDS[terminal]]}))
    operators = "|".join(terminals[name] for name in OPERATORS)
    patterns.append(rule(operators, {0: "keyword.operator.op"}))
    made = dict(name="tritongen", scopeName="source.op", fileTypes=["op"], patterns=patterns)
    return json.dumps(made, indent=2) + "\n"


def rule(match: str, captures: dict[int, str]) -> dict:
    return dict(match=match, captures={str(n): dict(name=name) for n, name in captures.items()})


if __name__ == "__main__":
    GRAMMAR.parent.mkdir(exist_ok=True)
    GRAMMAR.write_text(grammar(), encoding="utf-8")

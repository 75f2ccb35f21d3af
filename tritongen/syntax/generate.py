"""`grammar/op.lark` to `_tables.py`, the parser's tables: `python -m tritongen.syntax.generate`.

Input: the grammar, read by Lark (a development dependency: importing it and building the tables
costs more than a build's parsing, so neither happens in a user's process). Output: one Python
module of literals, in an order that depends on the grammar alone, so that a test can tell whether
it is stale. Not here: the parser that walks the tables (`lalr`).
"""

from __future__ import annotations

import re
from pathlib import Path

from tritongen.resources import folder

GRAMMAR = folder("grammar") / "op.lark"
TABLES = Path(__file__).with_name("_tables.py")
STARTS = ("start", "value", "lines")

HEADER = '''"""Generated from grammar/op.lark by `python -m tritongen.syntax.generate`; not for editing.

TERMINALS: names and patterns, in matching order. KEYWORDS: names that are terminals of their own.
STARTS: a rule, its first and its last state. RULES: left side, action (`-` passes an only child
up), length, and what becomes of each symbol (k keep, d drop, s splice). STATES: symbol:+n shifts
or goes to state n, symbol:-n reduces by rule n.
"""

# flake8: noqa
# ruff: noqa
# fmt: off
'''


def main() -> None:
    TABLES.write_text(tables(GRAMMAR.read_text(encoding="utf-8")), encoding="utf-8")


def tables(grammar: str) -> str:
    from lark import Lark

    parser = Lark(
        grammar,
        parser="lalr",
        lexer="basic",
        maybe_placeholders=False,
        start=list(STARTS),
        strict=True,
    )
    table = parser.parser.parser._parse_table
    terminals, keywords = _terminals(parser)
    rules = {rule: number for number, rule in enumerate(parser.rules)}
    numbers = _number_states(table)
    starts = {s: (numbers[table.start_states[s]], numbers[table.end_states[s]]) for s in STARTS}
    states = [_state(table.states[state], numbers, rules) for state in numbers]
    parts = [HEADER]
    parts.append("TERMINALS = (\n" + "".join(f"    {t!r},\n" for t in terminals) + ")\n")
    parts.append(f"IGNORED = {tuple(sorted(parser.ignore_tokens))!r}\n")
    parts.append("KEYWORDS = {\n" + "".join(f"    {k!r}: {v!r},\n" for k, v in keywords) + "}\n")
    parts.append(f"STARTS = {starts!r}\n")
    parts.append('RULES = """\n' + "\n".join(map(_rule, parser.rules)) + '\n"""\n')
    parts.append('STATES = """\n' + "\n".join(states) + '\n"""\n')
    return "\n".join(parts)


def _terminals(parser) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    patterns, keywords = [], []
    for terminal in parser.terminals:
        value, is_text = terminal.pattern.value, terminal.pattern.type == "str"
        if is_text and re.fullmatch(r"[a-z]+", value):
            keywords.append((value, terminal.name))
        else:
            pattern = re.escape(value) if is_text else value
            order = (-terminal.priority, is_text, -terminal.pattern.max_width, terminal.name)
            patterns.append((order, (terminal.name, pattern)))
    return [pattern for _, pattern in sorted(patterns)], sorted(keywords)


def _number_states(table) -> dict[int, int]:
    """States in the order in which a walk over sorted symbols meets them."""
    queue = [table.start_states[s] for s in STARTS] + [table.end_states[s] for s in STARTS]
    numbers: dict[int, int] = {}
    for state in queue:
        if state not in numbers:
            numbers[state] = len(numbers)
            row = table.states.get(state, {})
            queue += [target for _, (act, target) in sorted(row.items()) if _shifts(act)]
    return numbers


def _shifts(action) -> bool:
    return str(action) == "Shift"


def _state(row, numbers, rules) -> str:
    moves = [
        f"{symbol}:+{numbers[target]}" if _shifts(act) else f"{symbol}:-{rules[target]}"
        for symbol, (act, target) in sorted(row.items())
    ]
    return " ".join(moves)


def _rule(rule) -> str:
    origin = rule.origin.name
    action = rule.alias or ("-" if rule.options.expand1 else origin)
    return f"{origin} {action} {len(rule.expansion)} {''.join(map(_fate, rule.expansion)) or '.'}"


def _fate(symbol) -> str:
    if symbol.is_term:
        return "d" if symbol.filter_out else "k"
    return "s" if symbol.name.startswith("_") else "k"


if __name__ == "__main__":
    main()

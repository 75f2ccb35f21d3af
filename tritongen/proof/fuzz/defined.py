"""Names that a generated module reads and that nothing defines. Python would say so only when the line runs.

    undefined(source)    # ["relay_w in dx_relay"]

Not here: functions of one name, and which nodes are allowed (`emit/allow.py`).
"""

from __future__ import annotations

import ast
import builtins
import symtable


def problems(source: str) -> list[str]:
    """The problems with a module's names. The text must parse."""
    try:
        tree = ast.parse(source)
        table = symtable.symtable(source, "<module>", "exec")
    except SyntaxError as error:
        return [f"SyntaxError: {error.msg}, line {error.lineno}: {error.text}"]
    return undefined(table) + twice(tree) + constants_assigned(tree)


def undefined(table: symtable.SymbolTable) -> list[str]:
    known = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
    known |= set(dir(builtins)) | {child.get_name() for child in table.get_children()}
    found = []
    for scope in _scopes(table):
        for symbol in scope.get_symbols():
            if symbol.is_global() and symbol.is_referenced() and symbol.get_name() not in known:
                found.append(f"undefined name: {symbol.get_name()} in {scope.get_name()}")
    return found


def _scopes(table: symtable.SymbolTable) -> list[symtable.SymbolTable]:
    return [table, *(s for child in table.get_children() for s in _scopes(child))]


def twice(tree: ast.Module) -> list[str]:
    functions = [n.name for n in tree.body if isinstance(n, ast.FunctionDef)]
    return [f"two functions: {n}" for n in sorted(set(functions)) if functions.count(n) > 1]


def constants_assigned(tree: ast.Module) -> list[str]:
    """Triton refuses an assignment to a `tl.constexpr`; the interpreter does not."""
    found = []
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        constants = {
            a.arg
            for a in (*function.args.args, *function.args.kwonlyargs)
            if a.annotation is not None and ast.unparse(a.annotation) == "tl.constexpr"
        }
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                if node.id in constants:
                    found.append(f"constexpr assigned: {node.id} in {function.name}")
    return found

"""Finds what a call calls: a builtin, a macro or an op, with its arguments.

Input: a call. Output: the row, the macro or the op of that name, and its arguments by name. A name is looked up among
builtins, then in the file, then in the prelude. `lower` and `calls` compile the call.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NoReturn

from tritongen.check.report import Skip
from tritongen.check.scope import Scope
from tritongen.check.trees import walk
from tritongen.errors import fix_at
from tritongen.ir.functions import BUILTINS, FUNCTIONS, Function
from tritongen.ir.nodes import FLOATS, INTS
from tritongen.resources import folder
from tritongen.syntax import ast
from tritongen.syntax.names import REDUCERS, SAME
from tritongen.syntax.parse import parse_file
from tritongen.syntax.torch_names import UNFIT
from tritongen.syntax.unparse import unparse


@dataclass(slots=True)
class Library:
    """The macros and ops that a file may call; `checked` holds what is known of its ops."""

    fns: dict[str, ast.Fn] = field(default_factory=dict)
    ops: dict[str, ast.OpDef] = field(default_factory=dict)
    checked: dict[str, Any] = field(default_factory=dict)  # by name: a Checked or a SpecError
    in_progress: list[str] = field(default_factory=list)

    def fn(self, name: str) -> ast.Fn | None:
        return self.fns.get(name) or prelude().fns.get(name)

    def op(self, name: str) -> tuple[ast.OpDef, Library] | None:
        """An op and the library in which its own calls are looked up."""
        if name in self.ops:
            return self.ops[name], self
        if name in prelude().ops:
            return prelude().ops[name], prelude()
        return None

    def names(self) -> set[str]:
        known = prelude()
        return {*BUILTINS, *self.fns, *self.ops, *known.fns, *known.ops}


def library_of(file: ast.File) -> Library:
    return Library(
        {item.name: item for item in file.items if isinstance(item, ast.Fn)},
        {item.name: item for item in file.items if isinstance(item, ast.OpDef)},
    )


@lru_cache(maxsize=1)
def prelude() -> Library:
    return library_of(parse_file(folder("grammar") / "prelude.op"))


def builtin(name: str) -> Function | None:
    return FUNCTIONS[BUILTINS[name]] if name in BUILTINS else None


def macro(scope: Scope, node: ast.Call) -> ast.Fn:
    return scope.library.fn(node.name) or unknown(scope, node)


def unknown(scope: Scope, node: ast.Call) -> NoReturn:
    known = scope.library.names() | {p.name for p in scope.typarams} | {*FLOATS, *INTS}
    near: dict[str, Any] = {"help": UNFIT[node.name]} if node.name in UNFIT else {}
    if node.name in scope.variables:
        said = "a tensor is read by its indices, in brackets"
        fix = fix_at(node.span, unparse(ast.Read(node.name, node.args)))
        near = {"help": f"{said}: {{}}", "fix": fix, "otherwise": said}
    near = near or scope.meant(node.name, known, node.span)
    scope.report.fail("E113", f"unknown function `{node.name}`", node.span, **near)


def reducer_of(node: ast.Call) -> str:
    """`mean` for `avg(x[n, d])`: the reducer that a call of one argument means, if any."""
    name = SAME.get(node.name, node.name)
    return name if name in REDUCERS and len(node.args) == 1 and not node.keywords else ""


def arity(scope: Scope, node: ast.Call, least: int, most: int) -> None:
    """E501 unless the call has that many arguments, none by name."""
    if node.keywords:
        message = f"`{node.name}` takes its arguments by position"
        scope.report.fail("E501", message, node.keywords[0].span)
    no_types(scope, node, ())
    if not least <= len(node.args) <= most:
        wanted = str(least) if least == most else f"at least {least}"
        plural = "argument" if wanted == "1" else "arguments"
        message = f"`{node.name}` takes {wanted} {plural}, {len(node.args)} given"
        details = {}
        if node.name == "where" and len(node.args) == 2:
            elsewhere = unparse(replace(node, args=(*node.args, ast.Number(0))))
            fix = fix_at(node.span, elsewhere)
            details = {"help": "give its value elsewhere: {}", "fix": fix}
        scope.report.fail("E501", message, node.span, **details)


def no_types(scope: Scope, node: ast.Call, known: Collection[str]) -> None:
    """E501 for `U = bf16` where the callee has no such type parameter to be given."""
    for t in node.types:
        if t.name not in known:
            message = f"`{node.name}` takes no type `{t.name}`"
            scope.report.fail("E501", message, t.span)


def arguments(scope: Scope, fn: ast.Fn, node: ast.Call) -> dict[str, ast.Expr]:
    """The arguments of a macro by name, defaults put in."""
    names = [p.name for p in fn.params]
    shown = f"{fn.name}({', '.join(names)})"
    no_types(scope, node, ())
    found = match_arguments(scope, node, names, shown)
    for p in fn.params:
        if p.name not in found:
            if p.default is None:
                message = f"`{fn.name}` needs its argument `{p.name}`"
                scope.report.fail("E501", message, node.span, help=f"its signature is `{shown}`")
            found[p.name] = p.default
    return {name: found[name] for name in names}


def match_arguments(
    scope: Scope, node: ast.Call, names: list[str], shown: str
) -> dict[str, ast.Expr]:
    """Arguments by position and by name."""
    if len(node.args) > len(names):
        plural = "argument" if len(names) == 1 else "arguments"
        message = f"`{node.name}` takes {len(names)} {plural}, {len(node.args)} given"
        scope.report.fail("E501", message, node.span, help=f"its signature is `{shown}`")
    found = dict(zip(names, node.args, strict=False))
    for keyword in node.keywords:
        if keyword.name not in names:
            near = scope.nearest(keyword.name, set(names)) or f"its signature is `{shown}`"
            message = f"`{node.name}` has no argument `{keyword.name}`"
            scope.report.fail("E501", message, keyword.span, help=near)
        if keyword.name in found:
            scope.report.fail("E501", f"`{keyword.name}` is given twice", keyword.span)
        found[keyword.name] = keyword.value
    return found


def blame_caller(scope: Scope, before: int, node: ast.Call) -> None:
    """Shows an error of a macro's body at the call of the macro."""
    found = scope.report.diagnostics
    for position in range(before, len(found)):
        d = found[position]
        inside = ((d.span, f"in `{node.name}`"),) if d.span is not None else ()
        found[position] = replace(d, span=node.span, notes=(*d.notes, *inside))


def check_macro(scope: Scope, fn: ast.Fn) -> None:
    """A macro's body may use its parameters, literals and functions, and no macro calls itself."""
    names = {p.name for p in fn.params}
    optional = False
    for p in fn.params:
        if optional and p.default is None:
            message = "a parameter without a default follows one with a default"
            scope.report.add("E109", message, p.span)
        optional = optional or p.default is not None
    for node in walk(fn.body):
        match node:
            case ast.Name(name) if name not in names:
                help = scope.nearest(name, names) or "pass it as a parameter"
                scope.report.add("E113", f"unknown name `{name}`", node.span, help=help)
            case ast.Read(name) | ast.Size(name):
                message = f"`{name}` is not allowed in a macro, which takes values"
                scope.report.add("E113", message, node.span, help="pass it as a parameter")
            case ast.Reduce():
                message = "a reducer is not allowed in a macro, which takes values"
                scope.report.add("E503", message, node.span, help="write an op")
            case ast.Call(name):
                _check_callee(scope, node)
    path = _recursion(scope, fn.name, (fn,), {fn.name})
    if path:
        message = f"`{fn.name}` calls itself: {' -> '.join(path)}"
        scope.report.add("E502", message, fn.span)


def _check_callee(scope: Scope, node: ast.Call) -> None:
    if node.name in BUILTINS or scope.is_dtype(node.name) or scope.library.fn(node.name):
        return
    if scope.library.op(node.name):
        scope.report.add("E503", f"the op `{node.name}` cannot be called in a macro", node.span)
        return
    try:
        unknown(scope, node)
    except Skip:
        pass


def _recursion(
    scope: Scope, goal: str, above: tuple[ast.Fn, ...], seen: set[str]
) -> tuple[str, ...]:
    """The chain of calls that leads from a macro to itself; each macro on the way is looked at once."""
    for node in walk(above[-1].body):
        callee = scope.library.fn(node.name) if isinstance(node, ast.Call) else None
        if callee is None or callee.name in BUILTINS:
            continue
        if callee.name == goal:
            return (*(fn.name for fn in above), goal)
        if callee.name not in seen:
            seen.add(callee.name)
            if found := _recursion(scope, goal, (*above, callee), seen):
                return found
    return ()

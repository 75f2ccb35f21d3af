"""`choose_<step>` of a generated module as a tree: its branches, its free knobs, and the same with one branch moved first.

    steps = choosers(source, "softmax")
    steps["softmax"].knobs("loop")                         # {"ROWS": ..., "BLOCK": ..., "num_warps": ...}
    steps["softmax"].with_first("loop", {"BLOCK": 2048}, vars(module))      # another `choose`

The text comes from the module itself. Only whole numbers are put into it (`tuned.py`).
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

KNOBS = re.compile(r"BLOCK(_[A-Z]+)?|ROWS|GROUP_[A-Z]+|num_warps|num_stages")
TILE = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")  # as `lib.tile` takes them
NOT_SIZES = frozenset({"itemsize"})


@dataclass(frozen=True, slots=True)
class Chooser:
    """The text of `choose_<step>`, and its branches by variant. Each is an `if` that returns its config."""

    tree: ast.FunctionDef
    branches: dict[str, ast.If]

    def knobs(self, variant: str) -> dict[str, ast.expr]:
        """The entries that may be set freely: tiles, warps and stages whose rule uses no size of the call.

        A BLOCK that holds a whole row is not free. ROWS that is chosen for that BLOCK is.
        """
        assigned, entries = _parts(self.branches[variant])
        sizes = {
            a.arg
            for a in self.tree.args.args
            if isinstance(a.annotation, ast.Name)
            and a.annotation.id == "int"
            and a.arg not in NOT_SIZES
        }
        rules = {
            name: assigned.get(value.id, value) if isinstance(value, ast.Name) else value
            for name, value in entries.items()
        }
        return {
            name: rule
            for name, rule in rules.items()
            if KNOBS.fullmatch(name) and (name.startswith("num_") or not _names(rule) & sizes)
        }

    def flags(self) -> tuple[str, ...]:
        """The facts that are true or false."""
        return tuple(
            a.arg
            for a in self.tree.args.args
            if isinstance(a.annotation, ast.Name) and a.annotation.id == "bool"
        )

    def with_first(self, variant: str, knobs: Mapping[str, int], scope: dict) -> Callable[..., Any]:
        """The function that asks for this variant first, with these knobs."""
        branch = copy.deepcopy(self.branches[variant])
        for statement in _assigns(branch):
            name = _target(statement)
            if name in knobs:
                statement.value = ast.Constant(knobs[name])
        assigned = {_target(statement) for statement in _assigns(branch)}
        for keyword in _config(branch).keywords:
            if keyword.arg and keyword.arg in knobs and keyword.arg not in assigned:
                keyword.value = ast.Constant(knobs[keyword.arg])
        tree = copy.deepcopy(self.tree)
        tree.body.insert(1, branch)  # behind the docstring
        module = ast.fix_missing_locations(ast.Module([tree], []))
        made: dict[str, Any] = {}
        exec(compile(module, f"<tuned {self.tree.name}>", "exec"), scope, made)
        return made[self.tree.name]


def choosers(source: str, op: str) -> dict[str, Chooser]:
    """The choosers of one op's steps, by step; those of another shape than ours are left out."""
    found, functions = {}, dict[str, ast.FunctionDef]()
    for node in ast.parse(source).body:
        match node:
            case ast.FunctionDef(name):
                functions[name] = node
            case ast.Assign([ast.Name(name)], ast.Name(other)) if other in functions:
                # It has the rules of another chooser, but is tuned separately.
                functions[name] = copy.copy(functions[other])
                functions[name].name = name
    for name, function in functions.items():
        if is_of(name, op, "choose_") and (branches := _branches(function)):
            found[name.removeprefix("choose_")] = Chooser(function, branches)
    return found


def is_of(name: str, op: str, before: str = "") -> bool:
    return re.fullmatch(rf"{before}{re.escape(op)}(_\w+)?", name) is not None


def _branches(function: ast.FunctionDef) -> dict[str, ast.If]:
    """The branches by variant. None if the function does not have the form that we print."""
    _, *statements = function.body
    found: dict[str, ast.If] = {}
    before: list[ast.stmt] = []  # of a variant without a condition
    for statement in statements:
        match statement:
            case ast.Return(ast.Call() as least) | ast.Assign(_, ast.Call() as least) if (
                _called(least) == "least"
            ):
                rows = [row for row in least.args if isinstance(row, ast.Tuple)]
                own = [_row(row) for row in rows]
            case ast.If(body=[ast.Return(ast.Name())]):
                continue  # the least estimate
            case ast.Assign():
                before.append(statement)
                continue
            case ast.If():
                own = [_returning(statement)]
            case _:
                own = [_returning(ast.If(ast.Constant(True), [*before, statement], []))]
        for returned in own:
            if returned is None:
                return {}
            found[returned[0]] = returned[1]
        before = []
    return found


def _called(call: ast.Call) -> str:
    """The library function of a call, also under its name in a standalone module."""
    match call.func:
        case ast.Attribute(ast.Name("lib"), name):
            return name
        case ast.Name(name):
            return name.removeprefix("_")
    return ""


def _row(row: ast.Tuple) -> tuple[str, ast.If] | None:
    """A candidate as the branch that returns it."""
    match row.elts:
        case [ast.Constant(str() as variant), test, ast.Call() as config, *_]:
            return variant, ast.If(test, _answer(variant, config), [])
    return None


def _returning(branch: ast.If) -> tuple[str, ast.If] | None:
    match branch.body:
        case [
            *before,
            ast.Return(ast.Tuple([ast.Constant(str() as variant), ast.Call() as config])),
        ]:
            return variant, ast.If(branch.test, [*before, *_answer(variant, config)], [])
    return None


def _answer(variant: str, config: ast.Call) -> list[ast.stmt]:
    """`return variant, dict(...)`, behind what entries are named where they stand."""
    entries = [*config.keywords]
    if _called(config) == "tile":
        numbers = {**dict(zip(TILE, config.args, strict=True)), "GROUP_M": ast.Constant(8)}
        entries = [*(ast.keyword(name, value) for name, value in numbers.items()), *entries]
    named = [e.value for e in entries if isinstance(e.value, ast.NamedExpr)]
    told = [
        (
            ast.keyword(e.arg, ast.Name(e.value.target.id, ast.Load()))
            if isinstance(e.value, ast.NamedExpr)
            else e
        )
        for e in entries
    ]
    made = ast.Call(ast.Name("dict", ast.Load()), [], told)
    answer = ast.Return(ast.Tuple([ast.Constant(variant), made], ast.Load()))
    return [*(ast.Assign([own.target], own.value) for own in named), answer]


def _parts(branch: ast.If) -> tuple[dict[str, ast.expr], dict[str, ast.expr]]:
    """The assignments of a branch, and the entries of the config that it returns."""
    assigned = {_target(s): s.value for s in _assigns(branch)}
    return assigned, {k.arg: k.value for k in _config(branch).keywords if k.arg}


def _assigns(branch: ast.If) -> list[ast.Assign]:
    return [s for s in branch.body if isinstance(s, ast.Assign)]


def _target(statement: ast.Assign) -> str:
    (name,) = statement.targets
    assert isinstance(name, ast.Name)
    return name.id


def _config(branch: ast.If) -> ast.Call:
    """`dict(BLOCK=..., num_warps=...)` of `return "rows", dict(...)`."""
    match branch.body[-1]:
        case ast.Return(ast.Tuple([_, ast.Call() as config])):
            return config
    raise AssertionError("`choosers` takes no other branches")


def _names(value: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}

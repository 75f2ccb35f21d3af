"""Checks the names of a finished module.

- Each name that is read exists, and each name that is called is a function.
- No name is defined twice, and no constexpr is assigned.
- A kernel masks a value in place (`x = tl.where(mask, x, 0.0)`) once, and in the turn of the loop that made it. Otherwise
  what one product leaves out would be missing in another one, or in all later turns.

Many modules print parts of the text, and a mistake in any of them is found here, before the text is written or run. In a kernel a name must
exist on every path, as Triton's compiler demands. On the host it must exist on some path.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Set

from tritongen.emit import walked

BUILTINS = frozenset(dir(builtins))


class BadNames(RuntimeError):
    """Generated text that Python or Triton would refuse, or worse, would not: a bug of the generator."""


def check_names(source: str, imported: Set[str]) -> None:
    """Raises BadNames with the first place of a module's functions that is wrong; `imported`: the names of its imports."""
    tree = walked.parsed(source)
    known = {*BUILTINS, *imported}
    defined = {top.name for top in tree.body if isinstance(top, ast.FunctionDef)}
    functions = BUILTINS | defined  # a call of one means no local of that name
    for top in tree.body:
        if isinstance(top, (ast.FunctionDef, ast.ClassDef)):
            if top.name in known - BUILTINS:
                raise _bad(top, top.name, f"`{top.name}` is defined twice")
            known.add(top.name)
    known |= walked.alike(tree).keys()
    for top in tree.body:
        if isinstance(top, ast.FunctionDef):
            _Function(frozenset(known), functions, _is_kernel(top)).function(top, frozenset())
            if _is_kernel(top):
                _masked_once(top.body, {a.arg for a in top.args.args}, top.name)


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(d).startswith("triton.jit") for d in function.decorator_list)


def _bad(node: ast.AST, function: str, message: str) -> BadNames:
    line = getattr(node, "lineno", 0)
    return BadNames(f"generated text, line {line}, in `{function}`: {message}")


def _masked_once(body: Iterable[ast.stmt], made: set[str], kernel: str) -> None:
    """`made`: the values that this turn of a loop made, and did not mask."""
    for node in body:
        match node:
            case ast.For(body=inner):
                _masked_once(inner, set(), kernel)
            case ast.If(body=inner, orelse=other):
                _masked_once([*inner, *other], made, kernel)
            case ast.Assign(
                [ast.Name(name)],
                ast.Call(
                    ast.Attribute(attr="where"), [_, ast.Name(own), ast.Constant() | ast.Call()]
                ),
            ) if (
                name == own
            ):
                if name not in made:
                    raise _bad(node, kernel, f"`{name}` is masked again, or is of another turn")
                made.discard(name)
            case ast.Assign(targets):
                made |= {n.id for target in targets for n in walked.names(target)}
            case ast.AugAssign(target):
                made |= {n.id for n in walked.names(target)}


class _Function:
    """The statements of one function, walked in order; a state is the set of names that exist.

    `REST_D:k` in it: k exists where the constexpr REST_D is true.
    """

    def __init__(self, known: frozenset[str], functions: frozenset[str], strict: bool):
        self.known, self.functions, self.strict, self.name = known, functions, strict, ""
        self.constexprs: frozenset[str] = frozenset()

    def function(self, node: ast.FunctionDef, outer: frozenset[str]) -> None:
        self.name = node.name
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        arguments += [a for a in (node.args.vararg, node.args.kwarg) if a]
        names = [a.arg for a in arguments]
        if twice := [n for n in names if names.count(n) > 1]:
            raise _bad(node, self.name, f"`{node.name}` has two parameters `{twice[0]}`")
        self.constexprs = frozenset(
            a.arg for a in arguments if a.annotation and "constexpr" in ast.unparse(a.annotation)
        )
        said = [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults, node.returns]
        for part in filter(None, [*said, *(a.annotation for a in arguments)]):
            self.reads(part, outer)
        self.block(node.body, outer | set(names))

    def block(self, body: Iterable[ast.stmt], state: frozenset[str]) -> frozenset[str]:
        for statement in body:
            state = self.statement(statement, state)
        return state

    def statement(self, node: ast.stmt, state: frozenset[str]) -> frozenset[str]:
        match node:
            case ast.FunctionDef():
                state, self.functions = state | {node.name}, self.functions - {node.name}
                _Function(self.known, self.functions, self.strict).function(node, state)
                return state
            case ast.Assign(targets=targets, value=ast.Lambda(args=given, body=body)):
                self.reads(body, state.union(a.arg for a in given.args))
                return self.bound(targets, state)
            case ast.Assign(targets=targets, value=value):
                self.reads(value, state)
                match targets, value:
                    case [ast.Name(name)], ast.IfExp(body=ast.Name(a), orelse=ast.Name(b)):
                        if {a, b} <= self.functions:  # then it is one, too
                            self.functions -= {name}
                return self.bound(targets, state)
            case ast.AugAssign(target=target, value=value):
                self.reads(value, state)
                if isinstance(target, ast.Name):
                    self.exists(target, state)
                return self.bound([target], state)
            case ast.If(test=ast.Name(test), body=body, orelse=[]) if test in self.constexprs:
                told = {own[len(test) + 1 :] for own in state if own.startswith(f"{test}:")}
                return state | {f"{test}:{name}" for name in self.block(body, state | told) - state}
            case ast.If(test=test, body=body, orelse=orelse):
                self.reads(test, state)
                return self.joined(body, orelse, state)
            case ast.For(target=target, iter=iterated, body=body):
                self.reads(iterated, state)
                unrolled = "static_range" in ast.unparse(iterated)
                inner = self.block(body, self.bound([target], state))
                return inner if unrolled or not self.strict else state
            case ast.With(items=items, body=body):
                for item in items:
                    self.reads(item.context_expr, state)
                    state = self.bound([item.optional_vars] if item.optional_vars else [], state)
                return self.block(body, state)
            case ast.Try(body=body, handlers=handlers):
                after = self.block(body, state)
                for handler in handlers:
                    self.block(handler.body, state)
                return after
        return self.reads(node, state)

    def joined(self, body, orelse, state: frozenset[str]) -> frozenset[str]:
        one, other = self.block(body, state), self.block(orelse, state)
        if _leaves(body):
            return other
        if orelse and _leaves(orelse):
            return one
        return one & other if self.strict else one | other

    def bound(self, targets: Iterable[ast.expr], state: frozenset[str]) -> frozenset[str]:
        for target in targets:
            for node in walked.walk(target):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    if node.id in self.constexprs:
                        raise _bad(node, self.name, f"the constexpr `{node.id}` is assigned")
                    state = state | {node.id}
                elif isinstance(node, ast.Name):
                    self.exists(node, state)
        return state

    def reads(self, node: ast.AST, state: frozenset[str]) -> frozenset[str]:
        """The names that exist inside a node, with those that it stores itself, such as targets of comprehensions."""
        said = walked.names(node)
        state = state.union(n.id for n in said if isinstance(n.ctx, ast.Store))
        for name in said:
            if isinstance(name.ctx, ast.Load):
                self.exists(name, state)
        if hidden := state & self.functions & {n.id for n in said}:
            self.calls_none_of(node, hidden)
        return state

    def calls_none_of(self, node: ast.AST, hidden: frozenset[str]) -> None:
        """Calls and launches that mean functions of the module or of Python, where something else is called so."""
        for call in walked.walk(node):
            function = call.func if isinstance(call, ast.Call) else None
            function = function.value if isinstance(function, ast.Subscript) else function
            if isinstance(function, ast.Name) and function.id in hidden:
                raise _bad(call, self.name, f"`{function.id}` is called, which is no function here")

    def exists(self, node: ast.Name, state: frozenset[str]) -> None:
        if node.id not in state and node.id not in self.known:
            raise _bad(node, self.name, f"`{node.id}` is read where it does not exist")


def _leaves(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], (ast.Return, ast.Raise))

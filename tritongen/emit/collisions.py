"""Finds the names of a spec that its generated code uses for something else, by printing the code under other names.

    a size BLOCK is printed as BLOCKqzs: a kernel says BLOCKqzs and BLOCK, which would have been one name

An op is planned and printed once with a mark behind each of its names (`Marks`), so that no name equals one of the emitter.
Words of one function that differ only in their marks would be one word without them. Then the name of the spec is changed
(`schedule/aside.py`). Names that the emitter chose because they are free have a third mark (`Names.free`). They change by
themselves, and are left out here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, replace

from tritongen.emit import walked
from tritongen.emit.launch import LAUNCH_WORDS
from tritongen.emit.launches import SHARED_WORDS
from tritongen.emit.text import BATCH_WORDS
from tritongen.ir import nodes as ir
from tritongen.ir.rename import renamed
from tritongen.kernel.parts import PART
from tritongen.schedule.aside import all_names


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks behind names of the spec, of the op, and of free names of the emitter. Upper case behind sizes."""

    spec: str
    op: str
    own: str

    def name(self, name: str) -> str:
        return name + (self.spec.upper() if name[0].isupper() else self.spec)

    def plain(self, word: str, suffix: str = "") -> str:
        """A word without its marks. `suffix` replaces the mark of the op's name."""
        word = re.sub(self.op, suffix, word, flags=re.IGNORECASE)
        return re.sub(f"{self.spec}|{self.own}", "", word, flags=re.IGNORECASE)

    def is_marked(self, word: str) -> bool:
        return any(mark in word.lower() for mark in (self.spec, self.op, self.own))


@dataclass(frozen=True, slots=True)
class Collisions:
    """`inside`, `host`: the names that must change in kernels and launches, and in what the public function calls.

    `suffix` stands behind the op's name in its `functions`, if one of them collides. `words`: the names that its code uses. `outside`: those
    of them that belong to the module or to Python.
    """

    inside: frozenset[str] = frozenset()
    host: frozenset[str] = frozenset()
    suffix: str = ""
    words: frozenset[str] = frozenset()
    outside: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()


NONE = Collisions()


def marks_for(text: str) -> Marks:
    """Marks that occur nowhere in the text."""
    longest = max(map(len, re.findall("qz+", text.lower())), default=1)
    stem = "q" + "z" * longest
    return Marks(f"{stem}s", f"{stem}o", f"{stem}k")


def marked(op: ir.Op, marks: Marks) -> ir.Op:
    names = {name: marks.name(name) for name in all_names(op)}
    # A gradient given by hand uses `dy`, which is not a name of the op. Another op prints it.
    return renamed(replace(op, name=op.name + marks.op, gradient="none"), names, names)


def collisions(
    source: str, op: ir.Op, marks: Marks, taken: Set[str], configs: Set[str] = frozenset()
) -> Collisions:
    """The names of an op that would collide without the marks of its text. `taken`: functions of other ops.

    `configs`: the entries that a launch passes as `**config`, which are not in its text.
    """
    tree = ast.parse(source)
    functions = [f for f in tree.body if isinstance(f, ast.FunctionDef)]
    own = [f for f in functions if marks.op in f.name]
    name = op.name + marks.op
    public = {name, f"allocate_{name}", f"{name}_reference", f"{name}_torch"}
    dims = {d for t in op.tensors for d in t.dims}
    spec = {marks.name(n): n for n in all_names(op)}
    # Names that are printed only where a line uses them, and names that Triton reserves.
    batch = BATCH_WORDS if ir.BATCH_SIZE in dims else frozenset()
    inside = {PART, *LAUNCH_WORDS, *SHARED_WORDS, *configs, *batch}
    host: set[str] = set()
    words: set[str] = set()
    launching: set[str] = set()  # of all launches: each has the parameters that its text names
    for function in own:
        said = {w for w in _words(function) if marks.own not in w.lower()}
        words |= {w for w in said if not marks.is_marked(w)}
        (host if function.name in public else inside).update(_yielding(said, spec, marks))
        launching |= said if function.name.startswith("launch_") else set()
    inside.update(_yielding(launching, spec, marks))
    outside = frozenset(_outside(tree, functions, marks))
    generated = {f.name for f in own} - {name} | walked.alike(tree).keys()
    if host & {p.name for p in op.params}:  # those functions have parameters of their own names
        generated |= {f"run_{name}", f"run_{name}_reference", f"run_{name}_torch"}
    suffix, made = "", {marks.plain(f) for f in generated}
    while made & (taken | outside | {op.name}):
        suffix += "_op"
        made = {marks.plain(f, suffix) for f in generated}
    found = frozenset(inside), frozenset(host)
    return Collisions(*found, suffix, frozenset(words), outside, frozenset(made))


def _words(function: ast.FunctionDef) -> Iterator[str]:
    """The names that a function uses, with its parameters and those of kernels and configs.

    The module reads annotations.
    """
    yield from (a.arg for a in function.args.args)
    for statement in function.body:
        if isinstance(statement, ast.FunctionDef):  # what is within belongs to that one
            yield statement.name
            yield from set(_words(statement)) - _bound(walked.walk(statement))
        else:
            for part in walked.walk(statement):
                match part:
                    case ast.Name(id=word):
                        yield word
                    case ast.Call(ast.Subscript() | ast.Call() | ast.Name("dict"), _, given):
                        yield from (k.arg for k in given if k.arg)


def _bound(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that the nodes of a function give a meaning to."""
    bound = set()
    for node in nodes:
        match node:
            case ast.Name(name, ast.Store()) | ast.arg(name) | ast.FunctionDef(name):
                bound.add(name)
    return bound


def _yielding(said: Iterable[str], spec: dict[str, str], marks: Marks) -> Iterator[str]:
    """The names of the spec in words that would be one without marks."""
    groups: dict[str, list[str]] = {}
    for word in said:
        groups.setdefault(marks.plain(word), []).append(word)
    for group in groups.values():
        if len(group) > 1:
            whole = [spec[w] for w in group if w in spec]
            made_of = (n for m, n in spec.items() for w in group if m.lower() in w.lower())
            yield from whole or made_of


def _outside(tree: ast.Module, functions: list[ast.FunctionDef], marks: Marks) -> Iterator[str]:
    """Imports, helpers and builtins that the module speaks of."""
    for top in tree.body:
        if isinstance(top, (ast.Import, ast.ImportFrom)):
            yield from ((n.asname or n.name).partition(".")[0] for n in top.names)
    yield from (f.name for f in functions if not marks.is_marked(f.name))
    for function in functions:
        nodes = list(walked.walk(function))
        names = {n.id for n in nodes if isinstance(n, ast.Name)}
        yield from (n for n in names - _bound(nodes) if not marks.is_marked(n))

"""What the names of one op mean, for one choice of kinds of its type parameters.

Input: filled by `signature` and, line by line, by `lines`. Output: look-ups. One scope holds
operands, outputs, temporaries, scalars, constants, sizes, facts and what is proven of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import islice
from typing import Any

from tritongen.check.report import Report
from tritongen.errors import Fix, Span
from tritongen.ir import bounds
from tritongen.ir.algebra import Poly
from tritongen.ir.names import free_name
from tritongen.ir.nodes import (
    FLOATS,
    INTS,
    NARROW_FLOATS,
    Constant,
    Nest,
    Require,
    Scalar,
    TypeParam,
    walk,
)
from tritongen.syntax import ast
from tritongen.syntax.limits import MAX_EXPANDED, MAX_NESTS
from tritongen.syntax.names import SAME


@dataclass(frozen=True, slots=True)
class Variable:
    """A tensor that may be read."""

    name: str
    dims: tuple[Poly, ...]
    dtype: str
    role: str  # operand | output | temporary | cotangent
    span: Span | None


@dataclass(slots=True)
class Scope:
    op: ast.OpDef | ast.Fn
    report: Report
    typarams: tuple[TypeParam, ...] = ()
    variables: dict[str, Variable] = field(default_factory=dict)
    outputs: dict[str, Variable] = field(default_factory=dict)  # declared; readable once assigned
    scalars: dict[str, Scalar] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    sizes: dict[str, Span | None] = field(default_factory=dict)
    facts: list = field(default_factory=list)
    known: bounds.Facts = field(default_factory=bounds.Facts)
    broken: set[str] = field(default_factory=set)  # names whose line is wrong: say nothing more
    used: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)  # every name, for fresh ones
    index_names: set[str] = field(default_factory=set)
    nests: list[Nest] = field(default_factory=list)
    library: Any = None
    line: ast.Assign | None = None  # the one that is looked at
    said: list[tuple[str, ast.Assign]] = field(default_factory=list)  # unbound indices, by line
    expanded: int = 0  # nodes of macros' bodies pasted into the line so far
    size: int = 0  # operations of the op so far
    lines: int = 0
    precisions: set[str] = field(default_factory=set)  # of the callees with sums of products

    def kind(self, dtype: str) -> str:
        """float, int or bool."""
        for p in self.typarams:
            if p.name == dtype:
                return p.kind
        if dtype == "bool":
            return "bool"
        return "int" if dtype in INTS else "float"

    def is_int(self, dtype: str) -> bool:
        return self.kind(dtype) == "int"

    def concrete(self, dtype: str) -> str:
        """The dtype, if a type parameter stands for a single one."""
        for p in self.typarams:
            if p.name == dtype and len(p.dtypes) == 1:
                return p.dtypes[0]
        return dtype

    def is_dtype(self, name: str) -> bool:
        return name in (*FLOATS, *NARROW_FLOATS, *INTS, "bool") or any(
            p.name == name for p in self.typarams
        )

    def require(self, fact: Require) -> None:
        """Leave it to the wrapper, and rely on it from here on."""
        if any(same_fact(fact, f) for f in self.facts if isinstance(f, Require)):
            return
        self.facts.append(fact)
        self.known = bounds.require(self.known, fact.left, fact.op, fact.right)

    def holds(self, nests: Iterable[Nest]) -> bool:
        """Whether the op may grow by these; counts them."""
        for nest in nests:
            self.lines += 1
            self.size += sum(1 for _ in islice(walk(nest.body), MAX_EXPANDED + 1))
        return self.lines <= MAX_NESTS and self.size <= MAX_EXPANDED

    @property
    def has_batch(self) -> bool:
        operands = (p.type for p in self.op.params if isinstance(p, ast.Operand))
        return any(isinstance(d, ast.Dots) for t in operands for d in t.dims or ())

    def readable(self) -> set[str]:
        """The names that may be used on the right side."""
        return {*self.variables, *self.scalars, *self.constants}

    def free(self, base: str) -> str:
        """A name like `base` that nothing has."""
        return free_name(base, self.taken)

    def free_index(self, base: str, bound: frozenset[str]) -> str:
        letters = [c for c in "ijklmnpqrstuv" if c not in bound and c not in self.taken]
        return letters[0] if letters else self.free(base)

    def fresh(self, base: str) -> str:
        """A name like `base` that nothing has, taken from now on."""
        name = self.free(base)
        self.taken.add(name)
        return name

    def nearest(self, name: str, among: Mapping | set) -> str:
        """`did you mean ...`, or nothing."""
        close = get_close_matches(name, [n for n in among if n != name], 1, 0.6)
        return f"did you mean `{close[0]}`?" if close else ""

    def meant(self, name: str, among: Mapping | set, span: Span | None) -> dict[str, Any]:
        """The nearest name as the help of a finding, to put where the wrong one begins."""
        same = [SAME[name]] if SAME.get(name) in among else []
        close = same + get_close_matches(name, [n for n in among if n != name], 2, 0.6)
        if not close or span is None:
            return {}
        whole = replace(span, end=span.start + len(name))
        first, *others = (Fix(whole, other) for other in close)
        return {"help": "did you mean {}?", "fix": first, "others": tuple(others)}


def same_fact(a: Require, b: Require) -> bool:
    return (a.left, a.op, a.right) == (b.left, b.op, b.right)

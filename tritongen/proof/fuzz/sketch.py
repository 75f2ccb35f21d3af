"""A spec while it is drawn: its operands, sizes, facts and lines so far, and its text.

    s = Sketch(Random(0))
    x = s.tensor(("N", "D"))                    # an operand, or the result of a line
    s.add("reduce", [Left("i", "N")], f"sum[k]({x.name}[i, k])", "float")
    s.text()

Motifs (`motifs*.py`) add lines. A value that no line reads becomes an output. Not here: what is added.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tritongen.proof.fuzz import names


@dataclass(frozen=True, slots=True)
class Known:
    """A tensor that later lines may read; dims are sizes, `...` or `1`; `kind` float, int or bool."""

    name: str
    dims: tuple[str, ...]
    kind: str
    dtype: str
    made: bool = False


@dataclass(frozen=True, slots=True)
class Left:
    """An index of a left side and its dim; `plain`: some read without `else` has it alone."""

    index: str
    dim: str
    plain: bool = False


@dataclass(slots=True)
class Line:
    name: str
    lefts: tuple[Left, ...] | None  # None: a line without indices
    dims: tuple[str, ...]
    body: str
    kind: str
    dtype: str


@dataclass(slots=True)
class Sketch:
    random: Random
    name: str = "f"
    tensors: list[Known] = field(default_factory=list)
    scalars: dict[str, str] = field(default_factory=dict)  # name to declaration
    consts: dict[str, str] = field(default_factory=dict)
    facts: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    macros: list[str] = field(default_factory=list)
    ops: list[str] = field(default_factory=list)  # whole texts of ops that this one calls
    typarams: dict[str, str] = field(default_factory=lambda: {"T": "float"})
    sizes: list[str] = field(default_factory=list)
    defined: list[str] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    inside: set[str] = field(default_factory=set)  # lines that are no outputs
    motifs: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    # ---- chance -------------------------------------------------------------------------------
    def maybe(self, share: float) -> bool:
        return self.random.random() < share

    def one(self, *choices):
        return self.random.choice(choices)

    def weighted(self, table: dict):
        return self.random.choices(list(table), list(table.values()))[0]

    # ---- names and sizes ----------------------------------------------------------------------
    def fresh(self, pool: list[str]) -> str:
        free = [n for n in pool if n not in self.used]
        name = self.random.choice(free[:8]) if free else f"{pool[0]}{len(self.used)}"
        self.used.add(name)
        return name

    def size(self, new: float = 0.35) -> str:
        """A size of operands, mostly an existing one."""
        if self.sizes and not self.maybe(new):
            return self.random.choice(self.sizes)
        name = self.fresh(names.SIZES)
        self.sizes.append(name)
        return name

    def sizes_apart(self, count: int) -> tuple[str, ...]:
        found: list[str] = []
        while len(found) < count:
            name = self.size(0.35 if len(found) < len(self.sizes) else 1.0)
            if name not in found:
                found.append(name)
        return tuple(found)

    def define(self, value: str) -> str:
        """A size that the op derives."""
        for fact in self.facts:
            if fact.endswith(f" = {value}"):
                return fact.split(" = ")[0]
        name = self.fresh(names.SIZES)
        self.facts.append(f"{name} = {value}")
        self.defined.append(name)
        return name

    def require(self, fact: str) -> None:
        if fact not in self.facts:
            self.facts.append(fact)

    def indices(self, count: int, besides=()) -> list[str]:
        """Index names: no tensor, scalar or constant is called so."""
        free = [n for n in names.INDICES if n not in self.used and n not in besides]
        return free[:count] if self.maybe(0.7) else self.random.sample(free, count)

    # ---- parameters ---------------------------------------------------------------------------
    def tensor(
        self, dims: tuple[str, ...], kind: str = "float", reuse: float = 0.45, dtype: str = ""
    ) -> Known:
        """A tensor of these dims: a result of earlier lines, an existing operand, or a new one."""
        alike = [t for t in self.tensors if t.dims == dims and t.kind == kind]
        alike = [t for t in alike if t.dtype == (dtype or t.dtype)]
        made = [t for t in alike if t.made and t.name not in self.read]
        if alike and self.maybe(0.85 if made else reuse):
            found = self.random.choice(made or alike)
        else:
            found = self.operand(dims, kind, dtype)
        self.read.add(found.name)
        return found

    def operand(self, dims: tuple[str, ...], kind: str = "float", dtype: str = "") -> Known:
        dtype = dtype or self.dtype(kind)
        if dtype == "int":
            dtype = self.one("i64", "i32")
        found = Known(self.fresh(names.TENSORS), dims, kind, dtype)
        for d in dims:
            if d not in (*self.sizes, *self.defined, "...") and not d.isdigit():
                self.sizes.append(d)
        self.tensors.append(found)
        self.read.add(found.name)
        return found

    def dtype(self, kind: str) -> str:
        if kind == "bool":
            return "bool"
        if kind == "int":
            return self.weighted({"i64": 3, "i32": 3, "i8": 2, "u8": 1, "i16": 1})
        return self.weighted({"T": 12, "U": 2, "f32": 1})

    def scalar(self) -> str:
        if self.scalars and self.maybe(0.5):
            return self.random.choice(sorted(self.scalars))
        name = self.fresh(names.SCALARS)
        default = self.one("", " = 0.5", " = 1e-5", " = 2")
        self.scalars[name] = f"{name}: f32{default}"
        return name

    def const(self, least: int = 0) -> str:
        """An integer constant; at least `least` by a fact."""
        name = self.fresh(names.CONSTS)
        default = self.one(f" = {max(1, least)}", f" = {least + 1}", "")
        self.consts[name] = f"const {name}: int{default}"
        if least:
            self.require(f"{name} >= {least}")
        return name

    # ---- lines --------------------------------------------------------------------------------
    def add(self, motif: str, lefts, body: str, kind: str = "float", dims=None) -> Known:
        name = self.fresh(names.TENSORS)
        lefts = None if lefts is None else tuple(lefts)
        dims = tuple(left.dim for left in lefts or ()) if dims is None else tuple(dims)
        # the dtype of a temporary; T is for outputs
        dtype = {"float": "T", "int": "i64", "bool": "bool"}[kind]
        self.lines.append(Line(name, lefts, dims, body, kind, dtype))
        found = Known(name, dims, kind, dtype, made=True)
        self.tensors.append(found)
        self.motifs.append(motif)
        return found

    # ---- text ---------------------------------------------------------------------------------
    def text(self) -> str:
        """The whole file. Values that nothing reads are left out, and an unbound size is replaced by another one."""
        inner = [line for line in self.lines if line.name in self.read]
        given = {line.name for line in self.lines} - {line.name for line in inner}
        given |= {line.name for line in inner if self.maybe(0.2)} - self.inside
        body = [self._line(line, line.name in given) for line in self.lines]
        words = set(names.WORD.findall(" ".join(body)))
        operands = [t for t in self.tensors if not t.made and t.name in words]
        facts, words = self._kept_facts(words | {d for t in self.tensors for d in t.dims if t.made})
        params = [f"{t.name}: {_type(t.dtype, t.dims)}" for t in operands]
        params += [text for name, text in (self.scalars | self.consts).items() if name in words]
        floats = [t.dtype for t in operands if t.kind == "float"]
        typed = {"T": next((d for d in ("T", *floats) if d in floats), "f32")}
        results = ", ".join(
            f"{o.name}: {_type(typed.get(o.dtype, o.dtype), o.dims)}"
            for o in self.lines
            if o.name in given
        )
        results = f"({results})" if len(given) > 1 else results
        everything = " ".join([*params, results])
        kept = [f"{n}: {f}" for n, f in self.typarams.items() if _stands(n, everything)]
        types = f"<{', '.join(kept)}>" if kept else ""
        own = {
            d for t in operands for d in t.dims
        }  # a size that an operand binds is required, not defined
        facts = [f.replace(" = ", " == ") if f.split(" = ")[0] in own else f for f in facts]
        with_ = f"\n    with {', '.join(facts)}" if facts else ""
        lines = "\n".join(f"  {line}" for line in body)
        text = f"op {self.name}{types}({', '.join(params)}) -> {results}{with_} {{\n{lines}\n}}"
        bound = sorted(d for d in {d for t in operands for d in t.dims} if d[0].isalpha())
        loose = words & set(names.SIZES) - set(bound) - set(self.defined)
        other = {name: self.random.choice(bound) for name in sorted(loose) if bound}
        other |= {} if "T" in kept or typed["T"] == "T" else {"T": typed["T"]}
        told = set(names.WORD.findall(" ".join(facts)))
        if self.maybe(0.15) and (free := [d for d in bound if d in names.SIZES and d not in told]):
            other[self.random.choice(free)] = self.one("8", "3", "1")  # known when it is built
        used = [m for m in self.macros if m.split("(")[0].split()[-1] in words]
        return "\n".join([*used, *self.ops, names.renamed(text, other), ""])

    def _kept_facts(self, words: set[str]) -> tuple[list[str], set[str]]:
        """Facts about existing names, and all words with their facts."""
        kept: list[str] = []
        for fact in reversed(self.facts):
            name, _, value = fact.partition(" = ")
            mine = set(names.WORD.findall(fact))
            if name in words if value else mine & words:
                kept.insert(0, fact)
                words = words | mine
        return kept, words

    def _line(self, line: Line, given: bool) -> str:
        if line.lefts is None:
            return f"{line.name} = {line.body}"
        lefts = []
        for left in line.lefts:
            bounded = not given and left.index not in ("...", "0") and not left.plain
            lefts.append(f"{left.index} < {left.dim}" if bounded else left.index)
        head = f"{line.name}[{', '.join(lefts)}]" if lefts else line.name
        return f"{head} = {line.body}"


def _type(dtype: str, dims: tuple[str, ...]) -> str:
    return f"{dtype}[{', '.join(dims)}]" if dims else dtype


def _stands(name: str, text: str) -> bool:
    return name in names.WORD.findall(text)

"""Decides which dim an index has in a line of a reference, and lays tensors out by these dims.

Input: the indices in use, in order, and a read. Output: a view of the tensor, if each of its dims is the whole range of an
index. Otherwise the elements at variables that are shaped as the dims are:

    y[n, d] = x[d, n] * w[d // 2]        x.T * w[d // 2]        d = torch.arange(D, device=x.device)

`nests.py` handles expressions and reducers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from operator import mul

from tritongen.ir.algebra import Poly, indices, is_size, poly
from tritongen.ir.bounds import nonnegative
from tritongen.ir.known import Facts, facts_of
from tritongen.ir.nodes import BATCH, Binder, Nest, Op, Read, Tensor, kind_of
from tritongen.reference.products import digits
from tritongen.reference.sizes import Code, Names, Printer
from tritongen.schedule.canonical import same


@dataclass(slots=True)
class Function:
    """The function that is printed."""

    op: Op
    names: Names
    defined: dict[str, str] = field(default_factory=dict)  # what an index's variable holds now
    facts: Facts = field(init=False)

    def __post_init__(self) -> None:
        self.facts = facts_of(self.op)

    @property
    def dims(self) -> dict[str, tuple[Poly, ...]]:
        stored: tuple[Tensor | Nest, ...] = (*self.op.tensors, *self.op.nests)
        return {t.name: t.dims for t in stored}

    def filler(self, tensor: str, coords: tuple[Poly, ...]) -> float | None:
        """0 for a read at a fixed place of a dim that may be empty: torch refuses it, even where no element is asked for."""
        pairs = zip(coords, self.dims[tensor], strict=True)
        gaps = [gap for c, dim in pairs if is_size(c) for gap in (c, dim - 1 - c)]
        if all(nonnegative(gap, self.facts) for gap in gaps):
            return None
        stored: tuple[Tensor | Nest, ...] = (*self.op.tensors, *self.op.nests)
        dtype = next(t.dtype for t in stored if t.name == tensor)
        return False if kind_of(dtype, self.op) == "bool" else 0


@dataclass(slots=True)
class Dims:
    """The dims of what is printed now, and a variable of that shape for each index that is used."""

    function: Function
    nest: Nest
    box: list[Binder]
    blocks: dict[str, str]  # index -> the slice of its range that a loop is at
    variables: dict[str, str] = field(default_factory=dict)  # variable -> its range, as code
    scope: dict[str, str] = field(default_factory=dict)  # index -> variable
    force: list[Binder] = field(default_factory=list)  # what has a dim, from the first to the last

    def __post_init__(self) -> None:
        self.force = self.box

    @property
    def names(self) -> Names:
        return self.function.names

    @property
    def printer(self) -> Printer:
        return Printer(self.names, self.scope, self.function.filler)

    @property
    def device(self) -> str:
        return f"{self.function.op.tensors[0].name}.device"

    # ---- indices --------------------------------------------------------------------------------
    def use(self, *polys: Poly) -> None:
        """Variables, each shaped as its dim is, for the indices that these take."""
        used = set().union(*(indices(p) for p in polys)) - self.scope.keys()
        for position, b in enumerate(self.force):
            if b.index in used:
                self.scope[b.index] = self.variable(b, len(self.force) - 1 - position)

    def variable(self, b: Binder, after: int) -> str:
        low, high = self.size(b.lo), self.size(b.hi)
        ends = high if b.lo == poly(0) else f"{low}, max({low}, {high})"
        if not (ends.isidentifier() or b.lo.terms or nonnegative(b.hi, self.function.facts)):
            ends = f"max(0, {high})"
        code = f"torch.arange({ends}, device={self.device})"
        part = self.blocks.get(b.index, ":")
        if after or part != ":":
            code += f"[{', '.join([part] + ['None'] * after)}]"
        name = self.names.row if b.index == BATCH else b.index
        variable, number = name, 2
        while self.variables.get(variable, code) != code or variable in self.names.stored:
            variable, number = f"{name}_{number}", number + 1
        self.variables[variable] = code
        return variable

    def ranges(self) -> list[str]:
        """The ranges that the value uses and that do not stand already."""
        lines = []
        for variable, code in self.variables.items():
            if self.function.defined.get(variable) != code:
                self.function.defined[variable] = code
                lines.append(f"{variable} = {code}")
        return lines

    def size(self, p: Poly) -> str:
        return self.printer.poly(p)[0]

    def extent(self, b: Binder) -> str:
        part = self.blocks.get(b.index)
        if part:
            return f"{part}.stop - {part}.start"
        count = self.size(b.hi - b.lo)
        fits = count.isidentifier() or nonnegative(b.hi - b.lo, self.function.facts)
        return count if fits else f"max(0, {count})"  # -1 is no size, but torch's word for one

    def shape(self, extents: list[str]) -> str:
        return f"({', '.join(extents)}{',' if len(extents) == 1 else ''})"

    @property
    def forced_shape(self) -> str:
        return self.shape([self.extent(b) for b in self.force])

    # ---- reads ----------------------------------------------------------------------------------
    def read(self, read: Read) -> Code:
        """The tensor itself, if each of its dims is an index's range. Otherwise its elements at the indices."""
        whole = self.whole(read)
        if whole is None:
            self.use(*read.coords)
            return Code(self.printer.read(read.tensor, read.coords, read.fill))
        return Code(self.placed(*whole))

    def placed(self, text: str, names: list[str]) -> str:
        """A tensor whose dims are the ranges of these indices, with the dims in force."""
        at = [b.index for b in self.force]
        order = sorted(names, key=at.index)
        if order != names:
            moved = ", ".join(str(names.index(name)) for name in order)
            text += ".T" if len(names) == 2 else f".permute({moved})"
        dims = at[at.index(order[0]) :] if order else []
        slots = [self.blocks.get(n, ":") if n in names else "None" for n in dims]
        return text if set(slots) <= {":"} else f"{text}[{', '.join(slots)}]"

    def whole(self, read: Read) -> tuple[str, list[str]] | None:
        """The tensor and the indices that its dims are, each over all of its range, where that is so."""
        ranges = {b.index: b for b in self.force if b.lo == poly(0)}
        text, found = read.tensor, list[str]()
        for c, extent in zip(read.coords, self.function.dims[read.tensor], strict=True):
            names = digits(c, ranges)
            if not names or not set(names) <= ranges.keys() - set(found):
                return None
            sizes = [ranges[name].hi for name in names]
            if not same(self.function.facts, reduce(mul, sizes), extent):
                return None
            if len(names) == 2:
                text += f".unflatten({len(found)}, ({', '.join(map(self.size, sizes))}))"
            found += names
        return text, found

"""A factor whose neighbours share elements: each is loaded once, and a dim of its own tells the neighbours apart.

    k1 = (start // 8 + tl.arange(0, BLOCK_K // 8))[None, :, None]
    w = tl.load(w_ptr + m[:, :, None] * w_0 + k1 * w_1, ...)
    left = (w >> 4 * k0 & 15).reshape(BLOCK_M, BLOCK_K)

Two neighbours are two values: `tl.join(even, odd).reshape(BLOCK_M, BLOCK_K)`.

Input: a factor of a kernel whose plan says `packed`. Output: the text of its tile, behind the lines that load it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tritongen.emit.bounded import RIGHT, Side
from tritongen.emit.kernel_writer import KernelWriter
from tritongen.emit.text import wrap
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, index, indices, poly
from tritongen.ir.free import free_indices, reads
from tritongen.ir.functions import ATOM
from tritongen.schedule.canonical import substitute_indices
from tritongen.schedule.classes.packed import by_digits, shared
from tritongen.schedule.plan import Axis

HIGH, LOW, FIRST = "high' ", "low' ", "first' "  # indices of an axis: no names of a spec


@dataclass(slots=True)
class Unpacking:
    """One factor, the axes of its tile, and how many neighbours along each share an element."""

    writer: KernelWriter
    e: ir.Expr
    axes: tuple[Axis, Axis]
    counts: tuple[int, int]
    other: Axis  # that of the other factor

    @classmethod
    def of(cls, writer: KernelWriter, e: ir.Expr, side: Side) -> Unpacking | None:
        """None where each element of the tile is loaded by itself."""
        if not writer.kernel.packed:
            return None
        _, m, n, k, *_ = writer.kernel.axes
        axes, other = ((k, n), m) if side is RIGHT else ((m, k), n)
        rows, columns = (shared(e, axis.digits) for axis in axes)
        if max(rows, columns) == 1 and not free_indices(e) & {*other.names}:
            return None
        return cls(writer, e, axes, (rows, columns), other)

    @property
    def in_pairs(self) -> bool:
        """Whether two neighbours share an element.

        Triton takes the layout of tensor cores through `tl.join` to the load. What is broadcast passes through shared memory.
        """
        return sorted(self.counts) == [1, 2]

    @property
    def dims(self) -> int:
        return 2 if self.in_pairs else sum(1 + (count > 1) for count in self.counts)

    def value(self) -> str:
        """The text of the tile: all dims, joined to rows and columns."""
        e = self.e
        for axis in self.writer.kernel.axes[1:4]:
            e = self.in_group(axis, e)
        inner = self.writer.scope()
        inner.cache, inner.looping = {}, inner.looping | {"k1"}
        return replace(self, writer=inner).joined(e)

    def joined(self, e: ir.Expr) -> str:
        dim = 0
        for axis, count in zip(self.axes, self.counts, strict=True):
            if count == 1:
                self.open(axis, dim)
            else:
                e = self.split(axis, count, dim, e)
            dim += 1 + (count > 1 and not self.in_pairs)
        sides = ", ".join(f"BLOCK_{axis.name.upper()}" for axis in self.axes)
        if self.in_pairs:
            return f"{self.pair(e)}.reshape({sides})"
        text = self.writer.expr(e)
        return text[0] if self.dims == 2 else f"{wrap(text, ATOM)}.reshape({sides})"

    def pair(self, e: ir.Expr) -> str:
        """Both neighbours, side by side."""
        in_rows = self.counts[0] == 1
        axis = self.axes[in_rows]
        low = axis.digits[-1].index if len(axis.digits) > 1 else LOW + axis.name
        parts = list[str]()
        for word, value in (("even", 0), ("odd", 1)):
            text, _ = self.writer.expr(substitute_indices(e, {low: poly(value)}))
            parts.append(self.writer.assign(self.writer.fresh(word), text))
        return f"tl.join({', '.join(parts)}){'' if in_rows else '.permute(0, 2, 1)'}"

    def in_group(self, axis: Axis, e: ir.Expr) -> ir.Expr:
        """The factor as it reads the one group in which a tile lies along an axis."""
        w, name = self.writer, FIRST + axis.name
        within = dict(w.kernel.within).get(axis.name)
        if not within:
            return e
        begin = "tl.cast(start, tl.int64)"
        if axis.name != "k":
            begin = f"tile_{axis.name}.to(tl.int64) * BLOCK_{axis.name.upper()}"
        first, *later = axis.names
        if not later:
            w.index[name] = begin
            return by_digits(e, first, 1, "", "", name, within)
        group = axis.extent_of((*later,))
        alone = (r for r in reads(e) if free_indices(r) & {*axis.names} == {first})
        if not any(alone) or not isinstance(group.constant, int) or group.constant % within:
            return e
        if name not in w.index:
            w.index[name] = w.fresh(first)
            self.place(axis, f"{w.index[name]} = {begin} // {group}")
        w.index[first] = w.index[name]
        return substitute_indices(e, {first: index(name)})

    def open(self, axis: Axis, dim: int) -> None:
        """An axis along one dim of the tile."""
        w, name = self.writer, axis.name
        text = f"k{along(dim, self.dims)}" if name == "k" else name + deeper(dim, self.dims)
        w.axis_var[name] = text
        w.axis_mask[name] = f"{text} < {w.extent(axis.extent, name.upper())}"
        self.decode(axis)

    def split(self, axis: Axis, count: int, dim: int, e: ir.Expr) -> ir.Expr:
        """An axis along two dims: `count` neighbours lie along the second one. Returns the factor as it speaks of these."""
        w, name, block = self.writer, axis.name, f"BLOCK_{axis.name.upper()} // {count}"
        high, low = w.fresh(f"{name}1"), w.fresh(f"{name}0")
        first = f"start // {count}" if name == "k" else f"tile_{name}.to(tl.int64) * ({block})"
        lanes = f"tl.arange(0, {block}).to(tl.int64)"
        self.place(axis, f"{high} = ({first} + {lanes}){along(dim, self.dims)}")
        if not self.in_pairs:
            own = f"tl.arange(0, {count}).to(tl.int64){along(dim + 1, self.dims)}"
            w.prologue.append(f"{low} = {own}")
        extent = w.extent(-(-axis.extent // count), f"{name.upper()}1")
        w.axis_var[f"{name}1"], w.axis_mask[f"{name}1"] = high, f"{high} < {extent}"
        if len(axis.digits) > 1:
            last, outer = axis.digits[-1].index, Axis(f"{name}1", axis.digits[:-1])
        else:
            (digit,), last = axis.digits, LOW + name
            outer = Axis(f"{name}1", (replace(digit, index=HIGH + name),))
            e = by_digits(e, digit.index, count, HIGH + name, LOW + name)
            w.ranges[last] = Poly(), poly(count)
        w.index[last] = low
        w.axis_of |= {d.index: outer for d in outer.digits}
        self.decode(outer)
        return e

    def decode(self, axis: Axis) -> None:
        """Gives the indices of an axis their texts."""
        w = self.writer
        if len(axis.digits) == 1:
            w.index[axis.digits[0].index] = w.axis_var[axis.name]
            return
        apart = set[str]()
        for read in reads(self.e):
            view = w.views.get(read.tensor)
            runs = view.runs if view else [tuple(indices(p)) for p in read.coords]
            apart |= {d for run in runs if {*run} != {*axis.names} or not view for d in run}
        numbers = (e for e in ir.walk(self.e) if isinstance(e, ir.IndexValue))
        apart = apart.union(*map(free_indices, numbers))
        grouped = {axis.names[0]} if FIRST + axis.name[0] in w.index else set()
        for name in (d for d in axis.names if d in apart - grouped):
            shown, w.index[name] = w.digits((name,)), w.fresh(name)
            self.place(axis, f"{w.index[name]} = {shown}")

    def place(self, axis: Axis, line: str) -> None:
        """A line in front of the loop, or inside, where it changes from step to step."""
        (self.writer.lines if axis.name[0] == "k" else self.writer.prologue).append(line)


def along(dim: int, dims: int) -> str:
    """What makes a vector lie along one of so many dims."""
    return f"[{', '.join(':' if d == dim else 'None' for d in range(dims))}]"


def deeper(dim: int, dims: int) -> str:
    """What gives rows, or columns, of a tile the dims of an unpacked one."""
    if dims == 2:
        return ""
    return "[:, :, None]" if dim == 0 else f"[:, {'None, ' * (dims - 2)}:]"

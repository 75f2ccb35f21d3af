"""Windows over lines that are loaded in whole runs, each element once.

A lane has PER_THREAD neighbouring outputs. A run is the elements between its first output and the next lane's. So loads are
as wide as rows are aligned, wherever a window begins, and the compiler knows the offset of a window in its run. RUN is a
power of two, as Triton's tiles are. `window.py` handles other strides.

Input: a `RunsWriter` over a kernel of that skeleton. Output: its `WindowView`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tritongen.emit.row_views import Reach, Run, WindowView
from tritongen.emit.view import KernelView
from tritongen.emit.window import WindowWriter, checked_sides, open_axes, windows_view
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Idx, Poly, affine, index, indices, poly, substitute
from tritongen.ir.free import binders_of, reads
from tritongen.ir.functions import ATOM


def runs_view(writer: RunsWriter) -> KernelView:
    size = open_axes(writer)
    for name in writer.kernel.stores:
        writer.aligned(name, size["cols"])
    seen, reaches = windows_view(writer, size), tuple(writer.reaches.values())
    assert isinstance(seen, WindowView)
    stride = "" if writer.lane_stride.constant == 1 else writer.shown_stride
    return replace(seen, stride=stride, reaches=reaches, aligned=tuple(writer.said.items()))


class RunsWriter(WindowWriter):
    """Reads that slide along the lanes are taken from lines; all else is as in `WindowWriter`."""

    def __init__(self, context, kernel):
        super().__init__(context, kernel)
        self.lane = kernel.axes[2].digits[0].index
        self.reaches: dict[Poly, Reach] = {}  # by the offset of a window's start
        self.said: dict[str, str] = {}  # sizes and strides, and what divides them
        self.lane_stride = poly(1)  # how far neighbouring windows are apart, in all reads
        self.shown_stride = ""
        self.slid_at: Poly | None = None  # the coordinate of a run that is loaded
        self.lanes_at: dict[str, int] = {}  # tensor -> the dim along which its runs lie
        used: set[str] = set()
        for nest in self.kernel.nests:
            for read, (dim, stride, offset) in self.slid_in(nest):
                self.lanes_at[read.tensor], self.lane_stride = dim, stride
                used |= indices(offset)
            if nest.name in kernel.stores:
                places = [k for k, c in enumerate(nest.coords) if self.lane in indices(c)]
                self.lanes_at[nest.name] = places[-1]
        binders = {b.index: b for n in self.kernel.nests for b in binders_of(n)}
        (self.runner,) = (b for name, b in binders.items() if name in used)

    def slid_in(self, nest: ir.Nest) -> Iterator[tuple[ir.Read, tuple[int, Poly, Poly]]]:
        """The reads of a nest that slide along the lanes."""
        for read in reads(nest.body):
            if (found := self.slid(read)) is not None:
                yield read, found

    def slid(self, read: ir.Read) -> tuple[int, Poly, Poly] | None:
        """For a read that slides along the lanes: (dim, distance between lanes, offset)."""
        for dim, coordinate in enumerate(read.coords):
            if {self.lane} < indices(coordinate) - {self.turn}:
                parts = affine(coordinate)
                if parts is None:
                    return None
                stride = parts[0][Idx(self.lane)]
                place = index(self.lane) if self.shares else index(self.lane) + index(self.turn)
                return dim, stride, coordinate - stride * place
        return None

    def reach(self, offset: Poly) -> Reach:
        """The first and the last run that a lane's windows touch, named once."""
        assert self.runner is not None
        low = substitute(offset, {self.runner.index: self.runner.lo})
        high = substitute(offset, {self.runner.index: self.runner.hi - 1})
        if low not in self.reaches:
            self.shown_stride = self.size(self.lane_stride)[0]
            names = self.fresh("FIRST"), self.fresh("LAST")
            self.reaches[low] = Reach(*names, self.size(low)[0], self.size(high)[0])
        return self.reaches[low]

    def stride(self, tensor: str, run: str, dim: int) -> str:
        """Strides from line to line say what they are multiples of, so that runs load as a whole."""
        name = super().stride(tensor, run, dim)
        if dim != self.lanes_at.get(tensor, dim):
            self.aligned(tensor, name)
        return name

    def aligned(self, tensor: str, name: str) -> None:
        """A size or stride of a tensor: a multiple of what divides its lines and where they start.

        Of a constexpr, such as a size that is that of the window as well, the compiler knows more.
        """
        if name not in {*self.said, *self.args.constants} and name.isidentifier():
            rank = len(self.context.dims[tensor])
            lane = self.lanes_at[tensor]
            strides = [f"{tensor}.stride({k})" for k in range(rank) if k != lane]
            passed = f"math.gcd({', '.join(['16', f'{tensor}.shape[{lane}]', *strides])})"
            wish = f"VEC_{tensor.upper()}"
            self.said[name] = self.parameter(self.args.constants, wish, passed)

    def open_lines(self, nests: list[ir.Nest]) -> tuple[Run, ...]:
        """The lines that the innermost loop takes its terms from."""
        found = []
        for read, (dim, _, offset) in (pair for nest in nests for pair in self.slid_in(nest)):
            if (key := self._key(read, dim, offset)) not in self.cache:
                self.slid_at = read.coords[dim]
                with self.apart() as lines:
                    load = self.load(read)
                self.slid_at = None
                line = self.cache[key] = self.fresh(f"{read.tensor}_line")
                name = self.variable(f"{read.tensor}_run")
                found.append(Run(line, self.reach(offset), tuple(lines), name, load))
        return tuple(found)

    def _key(self, read: ir.Read, dim: int, offset: Poly) -> tuple:
        still = tuple(c for k, c in enumerate(read.coords) if k != dim)
        return "line", read.tensor, dim, still, read.fill, self.reach(offset)

    def coordinate(self, tensor: str, dim: int, p: Poly) -> str:
        return "at" if p == self.slid_at else super().coordinate(tensor, dim, p)

    def is_wide(self, p: Poly) -> bool:
        return p != self.slid_at and super().is_wide(p)

    def load_mask(self, read: ir.Read, shown: list[str], dims: list[int]) -> tuple[str, bool]:
        """The mask of a run: the part that varies along the rows, as usual, and the position of the run."""
        if self.slid_at not in read.coords:  # of no run, or of a number that says where in it
            return super().load_mask(read, shown, dims)
        dim = read.coords.index(self.slid_at)
        del dims[dim], shown[dim]
        still = replace(read, coords=read.coords[:dim] + read.coords[dim + 1 :])
        rows, _ = super().load_mask(still, shown, dims)
        end = self.size(self.context.dims[read.tensor][dim])[0]
        self.aligned(read.tensor, end)
        return checked_sides([rows] if rows else [], ["at >= 0", f"at < {end}"]), True

    def read(self, read: ir.Read, cast: str = "") -> str:
        found, key = self.slid(read), (read, cast)
        line = None if found is None else self.cache.get(self._key(read, found[0], found[2]))
        if found is None or line is None:
            return super().read(read, cast)
        if key not in self.cache:
            offset = found[2]
            at = f"{self.size(offset)[0]} - {self.reach(offset).first} * RUN"
            taken = f"lib.taken({line}, {at}, {self.shown_stride}, PER_THREAD)"
            taken = self.converted((taken, ATOM), read, cast) if cast else taken
            self.cache[key] = self.assign(read.tensor, taken)
        return self.cache[key]

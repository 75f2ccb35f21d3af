"""Windows over lines that are loaded in whole runs, each element once.

    for r in tl.static_range(win):
        x_line = ()
        for a in tl.static_range(FIRST, LAST + 1):
            x_w = x_w0 + a * RUN
            x_run = tl.load(x_ptr + ... + x_w * x_3, ...)     # [ROWS, BLOCK * stride], a run a lane
            x_line = x_line + lib.phases(x_run, RUN)             # RUN tiles of an element a lane
        for s in tl.static_range(win):
            x = lib.taken(x_line, s - pad - FIRST * RUN, stride, EACH)

A lane has EACH neighbouring outputs, and a run is what lies between its first and the next lane's. So loads
are as wide as rows are aligned, wherever a window begins; what it begins at is a number that the compiler
knows. RUN is a power of two, as Triton's tiles are: other strides are left to `window.py`.

Input: a `Body` over a kernel of the skeleton `runs`. Output: lines of the view that `window.py` makes.
"""

from __future__ import annotations

from tritongen.emit.window import WindowBody, checked_sides
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Idx, Poly, affine, index, indices, substitute
from tritongen.ir.functions import ATOM
from tritongen.schedule.canonical import binders_of, reads


class RunsBody(WindowBody):
    """Reads that slide along the lanes are taken from lines; all else is as in `WindowBody`."""

    def __init__(self, context, kernel):
        super().__init__(context, kernel)
        self.lane = kernel.axes[2].digits[0].index
        self.ends: dict[Poly, tuple[str, str]] = {}  # offset of a window's start -> FIRST, LAST
        slid = (self.slid(r) for n in self.kernel.nests for r in reads(n.body))
        used = set().union(*(indices(offset) for _, _, offset in filter(None, slid)))
        binders = {b.index: b for n in self.kernel.nests for b in binders_of(n)}
        (self.runner,) = (b for name, b in binders.items() if name in used)
        self.lanes_at: dict[str, int] = {}  # tensor -> the dim along which its runs lie
        for nest in self.kernel.nests:
            self.lanes_at |= {r.tensor: s[0] for r in reads(nest.body) if (s := self.slid(r))}
            if nest.name in kernel.stores:
                places = [k for k, c in enumerate(nest.coords) if self.lane in indices(c)]
                self.lanes_at[nest.name] = places[-1]

    def slid(self, read: ir.Read) -> tuple[int, Poly, Poly] | None:
        """(dim, how far lanes are apart in it, what is added) of a read that slides along the lanes."""
        for dim, coordinate in enumerate(read.coords):
            if {self.lane} < indices(coordinate) - {self.turn}:
                parts = affine(coordinate)
                if parts is None:
                    return None
                hop = parts[0][Idx(self.lane)]
                place = index(self.lane) if self.shares else index(self.lane) + index(self.turn)
                return dim, hop, coordinate - hop * place
        return None

    def run(self, hop: Poly) -> str:
        """RUN, named once."""
        if "RUN" not in self.assigned:
            self.assigned.add("RUN")
            size = "EACH" if hop.constant == 1 else f"EACH * {self.size(hop)[0]}"
            self.prologue.append(f"RUN: tl.constexpr = {size}")
        return "RUN"

    def ends_of(self, hop: Poly, offset: Poly) -> tuple[str, str]:
        """The numbers of the first and the last run that a lane's windows touch, named once."""
        assert self.runner is not None
        low = substitute(offset, {self.runner.index: self.runner.lo})
        high = substitute(offset, {self.runner.index: self.runner.hi - 1})
        if low not in self.ends:
            run = self.run(hop)
            first, last = self.names.free("FIRST"), self.names.free("LAST")
            far = "EACH - 1" if hop.constant == 1 else f"(EACH - 1) * {self.size(hop)[0]}"
            self.prologue += (
                f"{first}: tl.constexpr = ({self.size(low)[0]}) // {run}",
                f"{last}: tl.constexpr = ({far} + {self.size(high)[0]}) // {run}",
            )
            self.ends[low] = first, last
        return self.ends[low]

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
        said = name in self.hoisted or name in self.args.constants
        if not said and name.isidentifier():
            self.hoisted[name] = name
            rank = len(self.context.dims[tensor])
            lane = self.lanes_at[tensor]
            strides = [f"{tensor}.stride({k})" for k in range(rank) if k != lane]
            by = self.parameter(
                self.args.constants,
                f"WIDE_{tensor.upper()}",
                f"math.gcd({', '.join(['16', f'{tensor}.shape[{lane}]', *strides])})",
            )
            self.prologue.append(f"{name} = tl.multiple_of(tl.cast({name}, tl.int64), {by})")

    def open_lines(self, nests: list[ir.Nest]) -> None:
        """The lines that the innermost loop takes its terms from."""
        for read in (r for n in nests for r in reads(n.body)):
            found = self.slid(read)
            if found is not None and self._key(read, *found) not in self.cache:
                self.cache[self._key(read, *found)] = self.open_line(read, *found)

    def _key(self, read: ir.Read, dim: int, hop: Poly, offset: Poly) -> tuple:
        still = tuple(c for k, c in enumerate(read.coords) if k != dim)
        return "line", read.tensor, still, read.fill, self.ends_of(hop, offset)

    def open_line(self, read: ir.Read, dim: int, hop: Poly, offset: Poly) -> str:
        tensor, name = read.tensor, self._dim_name(read.tensor, dim)
        first, last = self.ends_of(hop, offset)
        wide = "BLOCK" if hop.constant == 1 else f"BLOCK * {self.size(hop)[0]}"
        key = ("run", tensor, dim)
        if key not in self.hoisted:
            self.hoisted[key] = self.names.free(f"{name}0")
            tile = f"{self.var['tile']} % {self.var['tiles']}"
            start = f"{tile} * ({wide})" if self.shares else f"{tile} * (STEPS * {wide})"
            self.prologue.append(f"{self.hoisted[key]} = {start} + tl.arange(0, {wide})[None, :]")
        line, turn = self.names.free(f"{tensor}_line"), self.names.free("a")
        for k, coordinate in enumerate(read.coords):
            if k != dim:
                self.coordinate(tensor, k, coordinate)
        self.line(f"{line} = ()")
        self.line(f"for {turn} in tl.static_range({first}, {last} + 1):")
        saved, self.indent = dict(self.cache), self.indent + 1
        step = "" if self.shares else f" + {self.turn} * ({wide})"
        at = self.assign(name, f"{self.hoisted[key]}{step} + {turn} * RUN")
        x = self.assign(f"{tensor}_run", self.load_run(read, dim, at))
        self.line(f"{line} = {line} + lib.phases({x}, RUN)")
        self.cache, self.indent = saved, self.indent - 1
        return line

    def load_run(self, read: ir.Read, dim: int, at: str) -> str:
        """The load of one run, masked by the sides of the tile."""
        where, shown = self.pointer(read.tensor), []
        for k, coordinate in enumerate(read.coords):
            if k == dim:
                shown.append(at)
                where += f" + tl.cast({at}, tl.int64) * {self.stride(read.tensor, str(k), k)}"
            else:
                shown.append(self.coordinate(read.tensor, k, coordinate))
                where += f" + {self.times_stride(read.tensor, k, shown[-1], coordinate)}"
        still = [k for k in range(len(read.coords)) if k != dim]
        coords = tuple(read.coords[k] for k in still)
        rows = [
            self.axis_mask[a] for a in sorted(self.axes_in(coords) - {self.kernel.axes[1].name})
        ]
        for k, coordinate in zip(still, coords, strict=True):
            if read.fill is not None or self.turn in indices(coordinate):
                rows += self.checks(read.tensor, k, shown[k], coordinate)
        end = self.size(self.context.dims[read.tensor][dim])[0]
        self.aligned(read.tensor, end)
        mask = checked_sides(rows, [f"{at} >= 0", f"{at} < {end}"])
        other = self._other(read, read.fill is not None)
        filled = f", other={other}" if other is not None else ""
        return f"tl.load({where}, mask={mask}{filled})"

    def read(self, read: ir.Read, cast: str = "") -> str:
        found = self.slid(read)
        line = None if found is None else self.cache.get(self._key(read, *found))
        if found is None or line is None:
            return super().read(read, cast)
        key = (read, cast)
        if key not in self.cache:
            _, hop, offset = found
            first, _ = self.ends_of(hop, offset)
            at = f"{self.size(offset)[0]} - {first} * RUN"
            taken = f"lib.taken({line}, {at}, {self.size(hop)[0]}, EACH)"
            taken = self.converted((taken, ATOM), read, cast) if cast else taken
            self.cache[key] = self.assign(read.tensor, taken)
        return self.cache[key]

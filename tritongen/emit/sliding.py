"""Addresses of an operand that slides under a tile: a pointer per row before the loop, an offset per term inside.

    x[n, c, p * stride + r * dil - pad]  over rows (n, p) and terms (c, r)  is

    x_l0 = p * stride - pad                                   # before the loop, [BLOCK_M, 1]
    x_rows = x_ptr + n * x_0 + x_l0 * x_2
    x_terms = c * x_1 + r * dil * x_2                         # inside, [1, BLOCK_K] or one number
    x_l = x_l0 + r * dil                                      # for the mask
    tl.load(x_rows + x_terms, ...)                            # one addition per element

Behind the loop m has pointers of its own, if a tile is a patch or is stored half of n at a time. Coordinates are
counted in INDEX (32 bits if they fit), pointers in 64 bits.
"""

from __future__ import annotations

from tritongen.emit.kernel_writer import KernelWriter
from tritongen.emit.text import launch_text
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Idx, Poly, affine, indices, is_fractional, moved_by, poly, symbols
from tritongen.ir.free import binders_of, coordinates, reads


class SlidingWriter(KernelWriter):
    """`sliding` are the axes of the loop that is being printed; behind it there are none."""

    def __init__(self, context, kernel):
        super().__init__(context, kernel)
        self.sliding: frozenset[str] = frozenset()
        self.hoisted: dict[object, str] = {}  # what stands before that loop
        # Behind the loop: the indices of n, and where they are known, what lacks them, as lines.
        self.columns: set[str] = set()
        self.points: list[str] = []
        self.kept = "rows"  # what m is in the names of pointers
        # What tells terms apart is known when the kernel is compiled: dividing by it is cheap, and a run
        # of channels is seen to be one. A batch has no size that a kernel could be compiled for.
        told = self.window() if len(kernel.axes) > 4 else kernel.axes[3].digits
        self.known = set().union(*(symbols(d.hi) for d in told)) - {ir.BATCH}
        self.told |= self.known

    def window(self) -> tuple[ir.Binder, ...]:
        """The reduced indices that share a coordinate with a kept one."""
        binders = binders_of(self.kernel.nests[0])
        kept = {*self.kernel.axes[1].names}
        mixed = [indices(c) for c in coordinates(self.kernel.nests[0].body)]
        slid = set().union(*(used for used in mixed if used & kept))
        return tuple(b for b in binders if b.index in slid)

    def slid(self) -> set[str]:
        return {b.index for b in self.window()}

    def address(self, tensor: str, coords: tuple[Poly, ...]) -> tuple[str, list[str], list[int]]:
        if tensor in self.views or not any(self.is_split(c) for c in coords):
            return super().address(tensor, coords)
        rows, terms = self.pointer(tensor), []
        for k, coordinate in enumerate(coords):
            row = self.row_part(coordinate)
            term = coordinate - row
            if row.terms:
                name = self.row_name(tensor, k, row)
                rows += f" + {self.times_stride(tensor, k, name, row)}"
            if term.terms:
                whole = not is_fractional(term)
                text = self.size(term)[0] if whole else self.coordinate(tensor, k, term)
                terms.append(self.times_stride(tensor, k, text, term))
        key = ("rows", tensor, coords)
        if key not in self.hoisted:
            self.hoisted[key] = self.fresh(f"{tensor}_rows")
            self.prologue.append(f"{self.hoisted[key]} = {rows}")
        offset = self.assign(self.fresh(f"{tensor}_terms"), " + ".join(terms))
        self.lay_lanes(tensor, coords, offset)
        return f"{self.hoisted[key]} + {offset}", [], []

    def lay_lanes(self, tensor: str, coords: tuple[Poly, ...], offset: str) -> None:
        """Along channels that lie side by side: of 449 Triton sees no run, and lays lanes across, at a line each.

        What a lane loads is no wider for it: that follows from what offsets are multiples of, of no more than divides the
        number of channels. But for one channel: then of whatever taps are apart.
        """
        dim, fastest = self.channels(tensor), self.kernel.axes[3].digits[-1]
        if dim is None or fastest.index in self.slid():
            return
        weights, _ = affine(coords[dim]) or ({}, 0)
        if weights.get(Idx(fastest.index)) != poly(1):
            return
        asked = f"{tensor}.stride({dim}) == 1 < {launch_text(fastest.hi - fastest.lo)}"
        run = self.parameter(self.args.constants, f"RUN_{tensor.upper()}", asked)
        self.lines.append(f"if {run}:  # lanes along the channels")
        self.lines.append(f"    {offset} = tl.max_contiguous({offset}, [1, 16])")

    def joined(self, tensor: str, terms: list[tuple[frozenset[str], str]]) -> str:
        """Behind the loop: what all columns add, by name."""
        rows = [text for used, text in terms if not used & self.columns]
        if not self.columns or not rows:
            return super().joined(tensor, terms)
        text = " + ".join([self.pointer(tensor), *rows])
        if text not in self.hoisted:
            self.hoisted[text] = self.fresh(f"{tensor}_{self.kept}")
            self.points.append(f"{self.hoisted[text]} = {text}")
        others = [text for used, text in terms if used & self.columns]
        return " + ".join([self.hoisted[text], *others])

    def _named(self, p: Poly, wish: str) -> str:
        if not self.columns or indices(p) & self.columns:
            return super()._named(p, wish)
        here, self.lines = self.lines, self.points
        name = super()._named(p, wish)
        self.lines = here
        return name

    def load_mask(self, read: ir.Read, shown: list[str], dims: list[int]) -> tuple[str, bool]:
        """The usual mask, where a coordinate is the named part of its row plus what the loop adds."""
        if read.fill is not None and read.tensor not in self.views and not dims:
            dims = list(range(len(read.coords)))
            shown = [self.place(read.tensor, k, c) for k, c in enumerate(read.coords)]
        return super().load_mask(read, shown, dims)

    def extent(self, p: Poly, wish: str) -> str:
        known = symbols(p) <= self.known and not indices(p)
        return self.size(p)[0] if known else super().extent(p, wish)

    def channels(self, tensor: str) -> int | None:
        """The dim of an operand that only channels index, if the terms of a tile mix taps and channels."""
        channels = {*self.kernel.axes[3].names} - self.slid()
        if len(self.kernel.axes) > 4 or len(channels) != 1:
            return None
        inner = [k for k, used in enumerate(self.held(tensor)) if used & channels]
        return inner[0] if len(inner) == 1 else None

    def held(self, tensor: str) -> list[frozenset[str]]:
        """The indices of each dim of an operand."""
        if tensor in self.views:
            return [frozenset(run) for run in self.views[tensor].runs]
        # An operand that only a bound reads is not a factor.
        found = [r for r in reads(self.kernel.nests[0].body) if r.tensor == tensor]
        return [frozenset(indices(c)) for read in found[:1] for c in read.coords]

    def spaced(self, tensor: str) -> tuple[int, ...]:
        """The dims between runs of channels."""
        if (inner := self.channels(tensor)) is None:
            return ()
        return tuple(k for k in range(len(self.held(tensor))) if k != inner)

    def stride(self, tensor: str, run: str, dim: int) -> str:
        """Strides between runs of channels say what they are multiples of: 16 bytes a load of 8 channels."""
        name = super().stride(tensor, run, dim)
        if self.sliding and name not in self.hoisted and dim in (spaced := self.spaced(tensor)):
            self.hoisted[name] = name
            dims = ", ".join(f"{tensor}.stride({k})" for k in spaced)
            wish, passed = f"VEC_{tensor.upper()}", f"math.gcd(16, {dims})"
            step = self.parameter(self.args.constants, wish, passed)
            self.prologue.append(f"{name} = tl.multiple_of(tl.cast({name}, tl.int64), {step})")
        return name

    def row_part(self, coordinate: Poly) -> Poly:
        """The part of a coordinate that the loop does not change. Empty if exact division must be checked."""
        if affine(coordinate) is None or is_fractional(coordinate) or not self.sliding:
            return poly(0)
        sliding = {name for name, axis in self.axis_of.items() if axis.name in self.sliding}
        return coordinate - moved_by(coordinate, sliding)

    def is_split(self, coordinate: Poly) -> bool:
        row = self.row_part(coordinate)
        return bool(row.terms) and row != coordinate

    def row_name(self, tensor: str, dim: int, row: Poly) -> str:
        """The name of the row's part of a coordinate, which stands before the loop."""
        key = ("row", tensor, dim, row)
        if key not in self.hoisted:
            text = self.size(row)[0]
            if text.isidentifier():
                return text
            self.hoisted[key] = self.fresh(f"{self._dim_name(tensor, dim)}0")
            self.prologue.append(f"{self.hoisted[key]} = {text}")
        return self.hoisted[key]

    def place(self, tensor: str, dim: int, coordinate: Poly) -> str:
        """A coordinate for a mask. It is printed only where a mask needs it."""
        if not self.is_split(coordinate):
            return self.coordinate(tensor, dim, coordinate)
        if not self.checks(tensor, dim, "", coordinate):
            return ""
        row = self.row_part(coordinate)
        key = ("coordinate", tensor, dim, coordinate)
        if key not in self.cache:
            text = self.size(coordinate - row)[0]
            sign, text = (" - ", text[1:]) if text.startswith("-") else (" + ", text)
            name = self.row_name(tensor, dim, row)
            wish = self.fresh(self._dim_name(tensor, dim))
            self.cache[key] = self.assign(wish, f"{name}{sign}{text}")
        return self.cache[key]

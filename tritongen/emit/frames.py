"""How a kernel of the IR sees its indices and what it loads: programs, frames, masks, loads.

A value over two indices is a tile of both, one over one index a row or a column. A loop's index is a row of one factor and
a column of another, so each statement says in which *frame* it stands. A load stands in the outermost loop that moves it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from tritongen.emit.bounded import sign
from tritongen.emit.kernel_writer import Context, KernelWriter
from tritongen.emit.masked import Lanes, masked_value
from tritongen.emit.rests import behind, in_two
from tritongen.emit.text import launch_text, wrap, wrapped
from tritongen.emit.tiles import fill_lanes
from tritongen.emit.view import indented
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import indices, is_size, poly, size, weight_of
from tritongen.ir.free import all_indices, free_indices, reads
from tritongen.ir.functions import ATOM, TERM
from tritongen.ir.reducers import REDUCERS
from tritongen.kernel.nodes import PARTS, Fold, Kernel, Let, Loop, Walk, is_dot, statements
from tritongen.kernel.parts import state_dims, state_name
from tritongen.schedule.canonical import names_beside, uncast
from tritongen.schedule.classes.fused import is_tile
from tritongen.schedule.plan import KernelPlan, walked_axes

LOG2E = "1.44269504"
# The index along the rows and the one along the columns of a tile; "" for none
Frame = tuple[str, str]


@dataclass(slots=True)
class Level:
    """The lines of a loop's body, or of the kernel's, and what they loaded: by the frame that it was loaded in."""

    index: str
    lines: list[str] = field(default_factory=list)
    caches: dict[Frame, dict[Any, str]] = field(default_factory=dict)
    masked: dict[tuple[str, str], str] = field(default_factory=dict)  # (value, mask): its name
    told: bool = False  # whether whole blocks can be told from others
    is_cut: bool = False  # and some line is for those others alone


class FrameWriter(KernelWriter):
    """A writer of lines in frames. `loop_ends.py` adds loops to it, and `fused.py` statements."""

    def __init__(self, context: Context, kernel: KernelPlan):
        states = {state_name(n.name): n for n in kernel.nests}
        dims = {name: state_dims(n) for name, n in states.items()} | context.dims
        dtypes = {name: n.dtype for name, n in states.items()} | context.dtypes
        context = replace(context, dims=dims, dtypes=dtypes)
        assert kernel.kernel is not None
        taken = names_beside(context.op, kernel.nests) | all_indices(kernel.nests)
        self.own, nests = in_two(kernel.kernel, kernel.nests, taken)
        super().__init__(context, replace(kernel, axes=walked_axes(self.own.walks), nests=nests))
        self.nests = {n.name: n for n in nests}
        self.behind = behind(self.own)
        values = (s.value for s in statements(self.own.body) if isinstance(s, (Let, Fold)))
        self.read_here |= {r.tensor for value in values for r in reads(value)}
        self.multiplies = any(is_dot(f, self.own) for f in self.own.folds)
        # Without products a tile has rows and columns, and each index lies along one of them.
        lanes = [w.index for w in self.own.walks if w.how != "program"]
        sides = ("[:, None]", "[None, :]")
        by_side = not self.multiplies and len(lanes) == 2
        self.sides = dict(zip(lanes, sides, strict=True)) if by_side else {}
        self.variables = {w.index: self.index_name(w.index) for w in self.own.walks}
        self.levels = [Level("")]
        self.frame: Frame = ("", "")
        self.frames: dict[str, Frame] = {}  # of the values so far
        self.stops: dict[str, str] = {}  # where the loop over an index ends, as its masks say
        self.begins: dict[str, str] = {}  # and where it begins
        self.ended: dict[str, str] = {}  # the end of a tile, by the extent of its index
        self.masked: set[str] = set()  # values whose lanes outside hold what a maximum ignores
        self.mask_names: dict[str, str] = {}  # masks of the loop that have a name
        self.inside: dict[str, str] = {}  # masks that have a name
        self.first: dict[str, str] = {}  # the first element of a tile
        self.starts: dict[str, str] = {}  # and that of a loop's block
        # The shifts of exponents that move: the maximum, what the shift is now, by what sums are multiplied.
        self.moving: dict[ir.Expr, tuple[str, str, str]] = {}
        self.setup: list[str] = []  # host lines that describe operands
        self.unmasked: set[str] = set()  # folds over columns whose lanes outside add nothing
        if not self.multiplies:
            self.choose_lanes()

    def choose_lanes(self) -> None:
        """Without products memory runs along the last walk: what its lanes outside hold, and how wide accesses are."""
        for walk in self.own.walks:
            self.size(walk.extent)  # sizes are arguments in the order of the walks
        self.along = {"": walk.index}
        self.say_multiple(self.size(walk.extent)[0], launch_text(walk.extent))
        axis = next(a for a in self.kernel.axes if a.name == walk.index)
        found = fill_lanes(self, axis)
        found_reads = (r for n in self.kernel.nests for r in reads(n.body))
        every = [r for r in found_reads if walk.index in free_indices(r)]
        for f in self.own.folds:
            if f.over == (walk.index,):
                self.unmasked |= {f.name} & found
                continue
            both = {r.tensor for r in every if {*f.over} <= free_indices(r)}
            fill = {t: v for t, v in self.fill.items() if t in both}
            held = masked_value(f.value.body, Lanes(fill, frozenset(f.over), self.op))
            if held is not None and held == REDUCERS[f.value.op].identity and not f.value.guards:
                self.unmasked.add(f.name)

    # ---- programs
    def programs(self) -> None:
        """The indices of a program: tiles are the fastest to change, so that neighbours share what they loop over."""
        grid = [w for w in self.own.walks if w.how in ("tile", "program")]
        order = sorted(grid, key=lambda w: w.how == "program")
        rest, line = "tl.program_id(0)", self.levels[0].lines.append
        for k, w in enumerate(order):
            name, last = self.variables[w.index], k == len(order) - 1
            if w.how == "program":
                count = "" if last else wrap(self.size(w.extent), ATOM)
            else:
                extent = self.size(w.extent)[0]
                count = f"lib.cdiv({extent}, {w.block})"
                if not last or self.grows(w.index):
                    count = f"lib.blocks({extent}, {w.block})"
                    if k or not self.multiplies:  # columns, of which there may be none
                        count = f"tl.maximum({count}, 1)"
                    count = self.assigned_in(0, f"{name}_tiles", count)
            own = rest if last else f"{rest} % {count}"
            if w.how == "tile" and self.grows(w.index):
                line("# The tiles of most terms first.")
                own = f"{count} - 1 - {own}"
            if w.how == "program":
                line(f"{name} = {wrapped(own)}.to(tl.int64)")
                self.index[w.index] = name
            else:
                self.tile(w, wrapped(own), name)
                self.name_mask(w, extent, f"{w.block} > 1")
            if not last:
                rest = self.assigned_in(0, self.fresh("program"), f"{rest} // {count}")
        for w in self.own.walks:
            if w.how == "rest":
                lanes = f"({self.behind[w.index]} + {self.lanes(w)}).to(tl.int64)"
                self.levels[0].lines += self.if_there(
                    {w.index}, [f"{self.variables[w.index]} = {lanes}"]
                )
            if w.how == "whole":
                line(f"{self.variables[w.index]} = {self.lanes(w)}.to(tl.int64)")
                if self.sides:
                    self.name_mask(w, self.end_of_whole(w))

    def end_of_whole(self, w: Walk) -> str:
        """Where a block that holds all of an index ends. In a loop, a mask that is always true costs time at each turn."""
        extent = self.size(w.extent)[0]
        if not self.may_hold:
            return extent
        passed = f'{launch_text(w.extent)} == config["{w.block}"]'
        return f"({w.block} if {self.parameter(self.args.constants, 'EVEN', passed)} else {extent})"

    def tile(self, w: Walk, number: str, name: str) -> None:
        """The indices of a tile, by its number."""
        once = {x for s in self.own.stores for x in s.once}
        first = f"{number} * {w.block}"
        if self.sides:
            first = f"{number}.to(tl.int64) * {w.block}"
        if not self.sides or w.index in once:
            wish = self.joined_name("first", name)
            first = self.first[w.index] = self.assigned_in(0, wish, first)
        lanes = f"{first} + {self.lanes(w)}" if self.sides else self.lanes(w, first)
        self.levels[0].lines.append(f"{name} = {lanes}")

    def lanes(self, w: Walk, first: str = "") -> str:
        """The lanes of a block, along their side of the tile. With `first`: the indices of the block that begins there.

        `first` has 32 bits and is a multiple of the block. A block is a power of two, so the sum does not wrap. It is widened
        behind the sum, so LLVM compares it with 32 bits.
        """
        own = f"tl.arange(0, {w.block}){self.sides.get(w.index, '')}"
        return f"({first} + {own}).to(tl.int64)" if first else own

    def name_mask(self, walk: Walk, end: str, several: str = "") -> None:
        """Without products a walk is the rows of each tile or the columns, and has one mask.

        A block of one element is never outside: where the tile needs no mask the compiler is to see it.
        """
        if not self.sides:
            return
        index = self.variables[walk.index]
        name = self.inside.get(walk.index) or self.variable(self.joined_name("in", index))
        self.inside[walk.index] = name
        text = f"{index} < {end}"
        text += f" if {several} else True" if several else ""
        self.levels[-1].lines.append(f"{name} = {text}")

    def grows(self, row: str) -> bool:
        """Whether later rows have more terms: a loop ends where a row says."""
        loops = [s for s in statements(self.own.body) if isinstance(s, Loop)]
        ends = (g.poly for loop in loops for g in loop.within if self.sign(g, loop.index) == -1)
        return any(weight_of(end, row) == poly(1) for end in ends)

    def sign(self, guard: ir.Guard, loop: str) -> int:
        """1 where a guard says where a loop begins and nothing else, -1 where it ends, else 0."""
        return sign(weight_of(guard.poly, loop)) if guard.op == ">=" else 0

    def assigned_in(self, depth: int, wish: str, text: str) -> str:
        name = self.variable(wish)
        self.levels[depth].lines.append(f"{name} = {text}")
        return name

    # ---- frames
    @contextmanager
    def within(self, frame: Frame) -> Iterator[None]:
        """Indices read as they lie in a frame."""
        before = self.frame, dict(self.index), dict(self.axis_mask), self.cache, self.lines
        self.enter(frame, len(self.levels) - 1)
        yield
        self.frame, self.index, self.axis_mask, self.cache, self.lines = before

    def enter(self, frame: Frame, depth: int) -> None:
        level = self.levels[depth]
        self.frame, self.lines = frame, level.lines
        self.cache = level.caches.setdefault(frame, {})
        for side, name in zip(("[:, None]", "[None, :]"), frame, strict=True):
            if name:
                self.index[name] = f"{self.variables[name]}{'' if self.sides else side}"
                extent = self.stops.get(name) or self.size(self.own.walk(name).extent)[0]
                inside = self.inside.get(name)
                self.axis_mask[name] = inside or f"{self.index[name]} < {extent}"
                self.axis_var[name] = self.index[name]

    def frame_of(self, names: Sequence[str] | set[str]) -> Frame:
        """The frame of a value over these indices, in the order of the walks."""
        numbers = self.own.numbers
        own = [w.index for w in self.own.walks if w.index in names and w.index not in numbers]
        if len(own) == 2:
            return own[0], own[1]
        if not own:
            return "", ""
        rows = next(w.index for w in self.own.walks if w.index not in numbers)
        return (own[0], "") if own[0] == rows else ("", own[0])

    # ---- values
    def expr(self, e: ir.Expr) -> tuple[str, int]:
        match e:
            case ir.Read(tensor) if tensor in self.frames:
                own, here = self.frames[tensor], self.frame
                turned = own[0] and own[0] == here[1] or own[1] and own[1] == here[0]
                shown = self.values[tensor]
                return (f"tl.trans({shown[0]})", ATOM) if turned else shown
            case ir.Call("exp", (ir.Call("sub", (x, shift)) as shifted,)) if shift in self.moving:
                moving, base, _ = self.moving[shift]
                if self.multiplies:
                    return self.exp2(x, base, base)
                held, self.values[moving] = self.values[moving], (base, ATOM)
                alone = ir.Read(moving, (), None, shift.dtype)
                text = super().expr(replace(e, args=(replace(shifted, args=(x, alone)),)))
                self.values[moving] = held
                return text
            case ir.Call("exp", (ir.Call("sub", (x, shift)),)) if self.is_of_rows(shift):
                row = wrap(self.expr(shift), TERM)
                return self.exp2(x, row, f"{row} * {LOG2E}")
        return super().expr(e)

    def exp2(self, x: ir.Expr, shift: str, scaled: str) -> tuple[str, int]:
        """exp(x - shift), by the shift itself or times log2(e)."""
        if self.may_be_far(x):
            return f"tl.exp2(({wrap(self.expr(x), TERM)} - {shift}) * {LOG2E})", ATOM
        return f"tl.exp2({self.in_base_2(x)} - {scaled})", ATOM

    def in_base_2(self, x: ir.Expr) -> str:
        """x times log2(e); a number that multiplies a tile is multiplied first."""
        match x:
            case ir.Call("mul", (number, tile)) if not free_indices(number):
                scale = f"{wrap(self.expr(number), TERM)} * {LOG2E}"
                return f"{wrap(self.expr(tile), TERM)} * ({scale})"
        return f"{wrap(self.expr(x), TERM)} * {LOG2E}"

    def may_be_far(self, e: ir.Expr) -> bool:
        """Whether a value may be a number that log2(e) makes infinite: masks add or take the least number of a type.

        Then exp(x - m) is computed from the difference, which is 0 where a row has such numbers alone.
        """
        match e:
            case ir.Const(value):
                return 2.0**127 <= abs(value) < math.inf
            case ir.Read(tensor) if tensor in self.nests:
                body = self.nests[tensor].body
                return not isinstance(body, ir.Reduce) and self.may_be_far(body)
            case ir.Read(dtype=dtype):
                kinds = ((d, ir.kind_of(d, self.op)) for d in ir.dtypes_of(dtype, self.op))
                return any(kind == "float" and d != "f16" for d, kind in kinds)
            case ir.Call("where", (_, *values)):
                return any(isinstance(v, ir.ScalarRef) or self.may_be_far(v) for v in values)
        return any(map(self.may_be_far, ir.parts(e)))

    def is_of_rows(self, e: ir.Expr) -> bool:
        """Whether a value lies along one axis of a tile: a product of it costs less than one of the tile.

        Only beside products of half types, where time goes into arithmetic: of large numbers the difference is more exact.
        """
        match uncast(e) if self.multiplies else None:
            case ir.Read(_, coords):
                moved = set().union(*(indices(c) for c in coords))
                return all(self.frame) and not moved >= set(self.frame)
        return False

    def read(self, read: ir.Read, cast: str = "") -> str:
        """A load, in front of the loops that do not move it, once for all frames in which it lies alike."""
        moved = set().union(*(indices(c) for c in read.coords))
        depth = max((k for k, level in enumerate(self.levels) if level.index in moved), default=0)
        level, lines, cache = self.levels[depth], self.lines, self.cache
        rows, columns = (name if name in moved else "" for name in self.frame)
        here = self.levels[-1].caches.setdefault((rows, columns), {})
        if name := here.get((read, cast)):
            return name
        natural = self.natural(read, (rows, columns))
        with self.within(natural) if natural != (rows, columns) else nullcontext():
            own = self.frame if natural != (rows, columns) else (rows, columns)
            self.lines, self.cache = level.lines, level.caches.setdefault(own, {})
            before = len(self.lines)
            name = super().read(read, cast)
            if level is not self.levels[-1]:
                self.lines[before:] = self.if_there(moved, self.lines[before:])
            if level is not self.levels[-1] and self.may_hold and len(self.lines) == before + 1:
                _, load = self.lines.pop().split(" = ", 1)
                held = self.assign(f"{name}_held", load)
                lines.append(f"{name} = {held} if HOLD else {load}")
                here[read, cast] = self.cache.pop((read, cast))
        self.lines, self.cache = lines, cache
        return name if natural == (rows, columns) else f"{name}.T"

    def if_there(self, names: Set[str], lines: list[str]) -> list[str]:
        """The lines, under `if REST_D:` where they use an index of a second block."""
        blocks = [w.block for w in self.own.walks if w.index in names & self.behind.keys()]
        return [f"if {' and '.join(blocks)}:", *indented(lines)] if blocks and lines else lines

    def natural(self, read: ir.Read, frame: Frame) -> Frame:
        """The frame in which a factor's tile lies as in memory: it is loaded once, whoever reads it turned."""
        place = {i: k for k, c in enumerate(read.coords) for i in indices(c)}
        turned = self.multiplies and {*frame} <= {*place} and place[frame[0]] > place[frame[1]]
        return (frame[1], frame[0]) if turned else frame

    @property
    def may_hold(self) -> bool:
        """Whether what a loop reads again and again may be too much to be held in registers."""
        return not self.multiplies and {"whole", "loop"} <= {w.how for w in self.own.walks}

    def load(self, read: ir.Read, cast: str = "", checks: Sequence[str] = ()) -> str:
        """By descriptor, where the plan says so: zeros outside."""
        if not (read.tensor in self.kernel.boxes and self.is_tile(read)):
            if self.multiplies:
                self.say_width(read)
            return super().load(read, cast, checks)
        numbers, blocks, tile = dict[int, str](), dict[int, str](), list[Walk]()
        for k, c in enumerate(read.coords):
            lanes = indices(c) - self.own.numbers
            own = [w for w in self.own.walks if w.index in lanes]
            if not own:
                at = self.size(c)[0]  # an index has 64 bits, a size or a literal has no cast
                numbers[k] = at if is_size(c) else f"{wrapped(at)}.to(tl.int32)"
                continue
            (walk,) = own
            known = {"tile": self.first, "whole": {walk.index: "0"}, "rest": self.behind}
            starts = known.get(walk.how, self.starts)
            blocks[k] = starts.get(walk.index, "")
            tile.append(walk)
        sides = ["1"] * len(numbers) + [f'config["{w.block}"]' for w in tile]
        name = self.described(read, [*numbers, *blocks], sides)
        corner = ", ".join([*numbers.values(), *blocks.values()])
        text = f"{name}.load([{corner}]).reshape({', '.join(w.block for w in tile)})"
        text += ".T" if tuple(w.index for w in tile) != self.frame else ""
        return self.converted((text, ATOM), read, cast) if cast else text

    def say_width(self, read: ir.Read) -> None:
        """Says which power of two divides the strides and the row length of a tile. Triton only detects multiples of 16.

        Otherwise rows of 72 elements, or rows at a stride of 136, are loaded element by element.
        """
        lanes = [indices(c) - self.own.numbers for c in read.coords]
        if len(set().union(*lanes)) < 2 or len(lanes[-1]) != 1:
            return
        extent = self.own.walk(*lanes[-1]).extent
        self.say_multiple(self.size(extent)[0], launch_text(extent))
        for k in range(len(lanes) - 1):
            self.say_multiple(self.stride(read.tensor, str(k), k), f"{read.tensor}.stride({k})")

    def is_tile(self, read: ir.Read) -> bool:
        dims = self.context.dims[read.tensor]
        return is_tile(read, self.own.walks, dims, self.context.facts)

    def wish(self, read: ir.Read) -> str:
        rest = set().union(*map(indices, read.coords)) & self.behind.keys()
        return f"{read.tensor}_rest" if rest else read.tensor

    def described(self, read: ir.Read, order: list[int], sides: list[str]) -> str:
        """The parameter of a descriptor, which the host makes of the tensor's dims in an order: those of a tile come last.

        Otherwise Triton keeps a tile in registers before it is a factor: it turns the shape (1, 64, 1, 128) into (64, 128) there.
        """
        tensor = read.tensor
        key = str(id(self.args.pointers)), f"{tensor} tiles {order} {sides}"
        if key not in self.given:
            name = self.given[key] = self.descriptor(f"{self.wish(read)}_tiles")
            turned = "" if order == sorted(order) else f".permute({', '.join(map(str, order))})"
            self.setup.append(f"{name} = lib.boxes({tensor}{turned}, {', '.join(sides)})")
        return self.given[key]

    # ---- names
    def stride(self, tensor: str, run: str, dim: int) -> str:
        return super().stride(tensor, self.variables.get(run, run), dim)

    def index_name(self, name: str) -> str:
        return self.fresh("row") if name == ir.BATCH and self.sides else super().index_name(name)

    def symbol(self, name: str) -> str:
        """A size; how many programs share a loop is in the config."""
        return "PARTS" if size(name) == PARTS else super().symbol(name)


def tile_indices(guard: ir.Guard, kernel: Kernel) -> set[str]:
    return set(indices(guard.poly)) - kernel.numbers

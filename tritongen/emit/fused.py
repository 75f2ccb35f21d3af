"""A kernel of the IR (`tritongen/kernel`) as Triton lines.

Input: a `KernelPlan` whose `kernel` is a lowered one. Output: its `KernelView`. A value over two indices is a tile of
both, one over one index a row or a column; a loop's index is a row of one factor and a column of another, so each
statement says in which *frame* it stands. A load stands in the outermost loop that moves it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import groupby
from typing import Any

from tritongen.emit.fold_lines import best_of, end_text, found, guard_text, say_place, start_text
from tritongen.emit.folds import IDENTITY, MONOIDS, NO_PLACE, combined
from tritongen.emit.kernel_writer import Context, KernelWriter
from tritongen.emit.masked import Lanes, choose_fill, masked_value
from tritongen.emit.text import launch_text, wrap
from tritongen.emit.tiles import view, wide_tensors
from tritongen.emit.view import KernelView
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Idx, Poly, index, indices, poly, size, substitute, weight_of
from tritongen.ir.bounds import prove
from tritongen.ir.free import free_indices, reads, tensors_read
from tritongen.ir.functions import ATOM, TERM
from tritongen.kernel.nodes import (
    PARTS,
    Fold,
    Kernel,
    Let,
    Loop,
    Stmt,
    Store,
    Walk,
    carried,
    is_dot,
    statements,
)
from tritongen.kernel.parts import state_dims, state_name
from tritongen.schedule.canonical import uncast
from tritongen.schedule.classes.contraction_operands import storage_dtype
from tritongen.schedule.classes.fused import is_tile
from tritongen.schedule.plan import KernelPlan

LOG2E = "1.44269504"
SCAN = 1024  # elements that a turn of a scan for the ends of a loop looks at
Frame = tuple[
    str, str
]  # the index along the rows and the one along the columns of a tile; "" for none


@dataclass(slots=True)
class Level:
    """The lines of a loop's body, or of the kernel's, and what they loaded: by the frame that it was loaded in."""

    index: str
    lines: list[str] = field(default_factory=list)
    caches: dict[Frame, dict[Any, str]] = field(default_factory=dict)
    passes: tuple[str, ...] = ()  # over whole blocks, and over the others that masks are for
    test: str = ""  # what tells a pass whose blocks are not whole; "" where none can be told
    is_cut: bool = False  # whether some line is for those alone


@dataclass(frozen=True, slots=True)
class Ends:
    """The range of a loop as text, and that of its whole blocks, in which each lane has a term."""

    first: str
    stop: str
    whole: tuple[str, str] | None = None  # "0" where blocks are whole from the first on


@dataclass(frozen=True, slots=True)
class FusedView(KernelView):
    ends: Mapping[str, str] = field(default_factory=dict)

    @property
    def extents(self) -> dict[str, str]:
        return {**self.ends}


def fused_view(plain: KernelWriter) -> KernelView:
    writer = FusedWriter(plain.context, plain.kernel)
    writer.programs()
    writer.body(writer.own.body)
    writer.lines = writer.levels[0].lines
    for w in writer.own.walks:  # of whose lanes nobody speaks: a descriptor loads all of them
        name = writer.variables[w.index]
        if (
            writer.multiplies
            and w.block
            and not any(re.search(rf"\b{name}\[", x) for x in writer.lines)
        ):
            writer.lines = [x for x in writer.lines if not x.strip().startswith(f"{name} = ")]
    blocks = tuple(dict.fromkeys(w.block for w in writer.own.walks if w.block))
    blocks += ("PARTS",) if any(w.extent == PARTS for w in writer.own.walks) else ()
    loops = any(w.how == "loop" for w in writer.own.walks)
    blocks += ("STAGES",) if loops and not writer.multiplies else ()
    blocks += ("HOLD",) if writer.may_hold else ()
    lines = (*writer.scalars, *writer.lines)
    doc = doc_of(writer.own, {i: "rows" if n == "row" else n for i, n in writer.variables.items()})
    ends = {w.block: writer.size(w.extent)[0] for w in writer.own.walks if w.how == "tile"}
    setup = tuple(writer.setup)
    return view(writer, {}, blocks, doc, FusedView, lines=lines, setup=setup, ends=ends)


def doc_of(kernel: Kernel, called: Mapping[str, str]) -> str:
    """What a program does."""

    def of(how: str) -> list[str]:
        return [called[w.index] for w in kernel.walks if w.how == how]

    *others, last = of("program") or [""]
    each = f"one {', '.join(others)} and {last}" if others else f"one {last}" if last else ""
    tiles = " by ".join(f"{w.block} {called[w.index]}" for w in kernel.walks if w.how == "tile")
    taken = " of ".join(filter(None, (tiles, each)))
    if not of("loop"):
        return f"Each program holds {taken}, all {', '.join(of('whole'))} at once."
    walk = next(w for w in kernel.walks if w.how == "loop")
    loop = f"loops over {called[walk.index]}, {walk.block} at a time"
    return f"Each program takes {taken}, and {loop}." if taken else f"Each program {loop}."


class FusedWriter(KernelWriter):
    """Prints the statements of one kernel."""

    def __init__(self, context: Context, kernel: KernelPlan):
        states = {state_name(n.name): n for n in kernel.nests}
        parts = {name: state_dims(n) for name, n in states.items()}
        dtypes = {name: n.dtype for name, n in states.items()}
        context = replace(
            context, dims={**parts, **context.dims}, dtypes={**dtypes, **context.dtypes}
        )
        super().__init__(context, kernel)
        assert kernel.kernel is not None
        self.own: Kernel = kernel.kernel
        self.nests = {n.name: n for n in kernel.nests}
        folds = [s for s in statements(self.own.body) if isinstance(s, Fold)]
        self.multiplies = any(is_dot(f, self.own) for f in folds)
        # Without products a tile has rows and columns, and each index lies along one of them.
        lanes = [w.index for w in self.own.walks if w.how != "program"]
        sides = ("[:, None]", "[None, :]")
        self.sides = (
            dict(zip(lanes, sides, strict=True)) if not self.multiplies and len(lanes) == 2 else {}
        )
        self.variables = {w.index: self.index_name(w.index) for w in self.own.walks}
        self.levels = [Level("")]
        self.frame: Frame = ("", "")
        self.frames: dict[str, Frame] = {}  # of the values so far
        self.stops: dict[str, str] = {}  # where the loop over an index ends, as its masks say
        self.begins: dict[str, str] = {}  # and where it begins
        self.ended: dict[str, str] = {}  # the end of a tile, by the extent of its index
        self.masked: set[str] = set()  # values whose lanes outside hold what a maximum ignores
        self.without: set[tuple[str, str]] = set()  # those that hold 0 where a mask says so
        self.inside: dict[str, str] = {}  # masks that have a name
        self.first: dict[str, str] = {}  # the first element of a tile
        self.starts: dict[str, str] = {}  # and that of a loop's block
        self.moving: dict[str, str] = {}  # maxima of the loop: by what sums are multiplied
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
        self.fill, found = choose_fill(self.kernel.nests, wide_tensors(self, axis), axis)
        every = [
            r for n in self.kernel.nests for r in reads(n.body) if walk.index in free_indices(r)
        ]
        for f in (s for s in statements(self.own.body) if isinstance(s, Fold)):
            if f.over == (walk.index,):
                self.unmasked |= {f.name} & found
                continue
            both = {r.tensor for r in every if {*f.over} <= free_indices(r)}
            lanes = Lanes({t: v for t, v in self.fill.items() if t in both}, frozenset(f.over))
            held = masked_value(f.value.body, lanes)
            if held is not None and held == IDENTITY.get(f.value.op) and not f.value.guards:
                self.unmasked.add(f.name)

    # ---- programs
    def programs(self) -> None:
        """The indices of a program: tiles are the fastest to change, so that neighbours share what they loop over."""
        grid = [w for w in self.own.walks if w.how in ("tile", "program")]
        order = sorted(grid, key=lambda w: w.how == "program")
        rest, line = "tl.program_id(0)", self.levels[0].lines.append
        for k, w in enumerate(order):
            extent, name = self.size(w.extent)[0], self.variables[w.index]
            whole = wrap(self.size(w.extent), ATOM)
            count = whole if w.how == "program" else f"lib.cdiv({extent}, {w.block})"
            if w.how == "tile" and (k < len(order) - 1 or self.grows(w.index)):
                count = f"tl.cdiv({extent}, {w.block})"
                if k or not self.multiplies:  # columns, of which there may be none
                    count = f"tl.maximum({count}, 1)"
                count = self.assigned_in(0, f"{name}_tiles", count)
            last = k == len(order) - 1
            own = rest if last else f"{rest} % {count}"
            if w.how == "tile" and self.grows(w.index):
                line("# The tiles of most terms first.")
                own = f"{count} - 1 - {own}"
            if w.how == "program":
                line(
                    f"{name} = ({own}).to(tl.int64)"
                    if " " in own
                    else f"{name} = {own}.to(tl.int64)"
                )
                self.index[w.index] = name
            else:
                self.tile(w, wrapped(own), name)
                self.name_mask(w, self.size(w.extent)[0], f"{w.block} > 1")
            if not last:
                rest = self.assigned_in(0, self.fresh("program"), f"{rest} // {count}")
        for w in self.own.walks:
            if w.how == "whole":
                line(f"{self.variables[w.index]} = {self.lanes(w)}")
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
        once = {x for s in statements(self.own.body) if isinstance(s, Store) for x in s.once}
        first = f"{number} * {w.block}"
        if self.sides:
            first = f"{number}.to(tl.int64) * {w.block}"
        if not self.sides or w.index in once:
            first = self.first[w.index] = self.assigned_in(0, f"first_{name}", first)
        self.levels[0].lines.append(f"{name} = {first} + {self.lanes(w, wide=bool(self.sides))}")

    def lanes(self, w: Walk, wide: bool = False) -> str:
        """The lanes of a block, along their side of the tile. `wide`: what they are added to has 64 bits."""
        own = f"tl.arange(0, {w.block}){self.sides.get(w.index, '')}"
        return own if wide else f"{own}.to(tl.int64)"

    def name_mask(self, walk: Walk, end: str, several: str = "") -> None:
        """Without products a walk is the rows of each tile or the columns, and has one mask.

        A block of one element is never outside: where the tile needs no mask the compiler is to see it.
        """
        if not self.sides:
            return
        name = self.inside.get(walk.index) or self.variable(f"in_{self.variables[walk.index]}")
        self.inside[walk.index] = name
        text = f"{self.variables[walk.index]} < {end}"
        text += f" if {several} else True" if several else ""
        self.levels[-1].lines.append(f"{name} = {text}")

    def grows(self, row: str) -> bool:
        """Whether later rows have more terms: a loop ends where a row says."""
        loops = [s for s in statements(self.own.body) if isinstance(s, Loop)]
        ends = (g.poly for loop in loops for g in loop.within if self.sign(g, loop.index) == -1)
        return any(weight_of(end, row) == poly(1) for end in ends)

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
                return (
                    (f"tl.trans({self.values[tensor][0]})", ATOM) if turned else self.values[tensor]
                )
            case ir.Call("exp", (ir.Call("sub", (x, shift)),)) if self.is_of_rows(shift):
                row = f"{wrap(self.expr(shift), TERM)} * {LOG2E}"
                moving = next(iter(tensors_read(shift) & self.moving.keys()), "")
                base = f"{moving}_base" if moving else row
                return f"tl.exp2({self.in_base_2(x)} - {base})", ATOM
            case ir.Call("exp", (ir.Call("sub", (_, ir.Read(tensor))),)) if tensor in self.moving:
                held = self.values[tensor]
                self.values[tensor] = f"{tensor}_base", ATOM
                text = super().expr(e)
                self.values[tensor] = held
                return text
        return super().expr(e)

    def in_base_2(self, x: ir.Expr) -> str:
        """x times log2(e); a number that multiplies a tile is multiplied first."""
        match x:
            case ir.Call("mul", (number, tile)) if not free_indices(number):
                scale = f"{wrap(self.expr(number), TERM)} * {LOG2E}"
                return f"{wrap(self.expr(tile), TERM)} * ({scale})"
        return f"{wrap(self.expr(x), TERM)} * {LOG2E}"

    def is_of_rows(self, e: ir.Expr) -> bool:
        """Whether a value lies along one axis of a tile: a product of it costs less than one of the tile.

        Only beside products of half types, where time goes into arithmetic: of large numbers the difference is more exact.
        """
        match uncast(e) if self.multiplies else None:
            case ir.Read(tensor, coords):
                moved = set().union(*(indices(c) for c in coords))
                return tensor in self.moving or all(self.frame) and not moved >= set(self.frame)
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
            if level is not self.levels[-1] and self.may_hold and len(self.lines) == before + 1:
                _, load = self.lines.pop().split(" = ", 1)
                held = self.assign(f"{name}_held", load)
                lines.append(f"{name} = {held} if HOLD else {load}")
                here[read, cast] = self.cache.pop((read, cast))
        self.lines, self.cache = lines, cache
        return name if natural == (rows, columns) else f"{name}.T"

    def natural(self, read: ir.Read, frame: Frame) -> Frame:
        """The frame in which a factor's tile lies as in memory: it is loaded once, whoever reads it turned."""
        place = {i: k for k, c in enumerate(read.coords) for i in indices(c)}
        turned = self.multiplies and all(frame) and place[frame[0]] > place[frame[1]]
        return (frame[1], frame[0]) if turned else frame

    @property
    def may_hold(self) -> bool:
        """Whether what a loop reads again and again may be too much to be held in registers."""
        return not self.multiplies and {"whole", "loop"} <= {w.how for w in self.own.walks}

    def load(self, read: ir.Read, cast: str = "") -> str:
        """By descriptor, where the plan says so: zeros outside."""
        if not (self.is_described(read.tensor) and is_tile(read, self.own.walks)):
            return super().load(read, cast)
        corner, sides, dims = list[str](), list[str](), list[str]()
        for c in read.coords:
            lanes = indices(c) - self.own.numbers
            own = [w for w in self.own.walks if w.index in lanes]
            if not own:
                corner.append(f"{wrapped(self.size(c)[0])}.to(tl.int32)")
                sides.append("1")
                continue
            (walk,) = own
            corner.append(
                {"tile": self.first.get(walk.index, ""), "whole": "0"}.get(
                    walk.how, self.starts.get(walk.index, "")
                )
            )
            sides.append(f'config["{walk.block}"]')
            dims.append(walk.index)
        name = self.described(read.tensor, sides)
        blocks = ", ".join(self.own.walk(d).block for d in dims)
        text = f"{name}.load([{', '.join(corner)}]).reshape({blocks})"
        text += ".T" if tuple(dims) != self.frame else ""
        return self.converted((text, ATOM), read, cast) if cast else text

    def is_described(self, tensor: str) -> bool:
        return tensor in self.kernel.boxes

    def described(self, tensor: str, sides: list[str]) -> str:
        """The parameter of a descriptor, which the host makes."""
        key = str(id(self.args.pointers)), f"{tensor} tiles {sides}"
        if key not in self.given:
            name = self.given[key] = self.names.free(f"{tensor}_tiles")
            self.args.pointers[name] = name
            self.setup.append(f"{name} = lib.boxes({tensor}, {', '.join(sides)})")
        return self.given[key]

    # ---- statements
    def body(self, body: Sequence[Stmt]) -> None:
        for asked, group in groupby(body, self.asked):
            with self.if_asked(asked) if asked else nullcontext():
                for stmt in group:
                    self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        match stmt:
            case Let(name):
                self.frames.pop(name, None)
                with self.within(self.frame_of(stmt.axes)):
                    self.value(self.nests[name])
                    self.frames[name] = self.frame
            case Fold():
                self.fold(stmt)
            case Store():
                self.store_block(stmt)
            case Loop():
                self.loop(stmt)

    def asked(self, stmt: Stmt) -> str:
        """The tensor that a statement is for, if a call may leave it out; "" for what every call needs."""
        if isinstance(stmt, Loop) or not self.context.left_out:
            return ""
        name = (stmt.value or stmt.tensor) if isinstance(stmt, Store) else stmt.name
        stores = [s for s in statements(self.own.body) if isinstance(s, Store)]
        if isinstance(stmt, Store):
            stores = [stmt]
        led = {s.tensor for s in stores if name in self.leads(s.value or s.tensor)}
        return "".join(led) if len(led) == 1 and led <= self.context.left_out else ""

    @contextmanager
    def if_asked(self, tensor: str) -> Iterator[None]:
        """Lines for calls in which the tensor is there. What they load serves no other line."""
        level, pointer = self.levels[-1], self.pointer(tensor)
        lines, caches = level.lines, level.caches
        level.lines, level.caches = [], {frame: dict(own) for frame, own in caches.items()}
        yield
        own, level.lines, level.caches = level.lines, lines, caches
        level.lines += [f"if {pointer} is not None:", *(f"    {line}" for line in own)]

    def store_block(self, s: Store) -> None:
        checks = [f"{self.first.get(x, self.variables[x])} == 0" for x in s.once]
        nest = self.nests[s.value or s.tensor]
        with self.within(self.frame_of(s.axes)):
            shown = self.expr(ir.Read(nest.name, (), None, ""))[0]
            self.store(replace(nest, name=s.tensor, coords=s.coords), shown, checks)

    def stride(self, tensor: str, run: str, dim: int) -> str:
        return super().stride(tensor, self.variables.get(run, run), dim)

    def index_name(self, name: str) -> str:
        return (
            self.names.free("row") if name == ir.BATCH and self.sides else super().index_name(name)
        )

    def symbol(self, name: str) -> str:
        """A size; how many programs share a loop is in the config."""
        return "PARTS" if size(name) == PARTS else super().symbol(name)

    def loop(self, loop: Loop) -> None:
        walk, outer = self.own.walk(loop.index), self.levels[-1]
        states = carried(self.own, loop)
        for f in states:
            self.open_state(f)
        name = self.variables[loop.index]
        outermost = not any(level.index not in self.own.numbers for level in self.levels[1:])
        start = self.variable("start" if walk.block and outermost else f"start_{name}")
        if walk.block:
            self.starts[loop.index] = start
            ends = self.ends(loop, walk)
            level = Level(loop.index)
            if ends.whole is not None and outermost:
                self.tell(level, ends, any(f.moved_by for f in states))
            level.lines.append(f"{name} = {start} + {self.lanes(walk)}")
        else:
            ends, level = Ends("0", self.size(walk.extent)[0]), Level(loop.index)
            level.lines.append(f"{name} = tl.cast({start}, tl.int64)")
            self.index[loop.index] = name
        self.levels.append(level)
        if walk.block:
            self.name_mask(walk, ends.stop, f"{walk.block} > 1")
        self.body(loop.body)
        self.levels.pop()
        if not level.is_cut:
            level.passes = ()
        outer.lines += self.printed(level, ends, start, walk.block)
        self.stops.pop(loop.index, None)
        self.begins.pop(loop.index, None)
        self.assigned.discard(start)
        for f in states:
            self.close_state(f)

    def tell(self, level: Level, ends: Ends, moved: bool) -> None:
        """How blocks that are not whole are told from those that are.

        A pass more costs products that are in flight more than a mask of each block where the host finds the last one
        not whole; where what a loop carries is moved anyway, it is the other way round.
        """
        assert ends.whole is not None
        lo, hi = ends.whole
        ending = moved or hi != self.size(self.own.walk(level.index).extent)[0]
        level.passes = (*(["head"] if lo != "0" else []), "whole", *(["tail"] if ending else []))
        tests = ["masked"] if len(level.passes) > 1 else []
        tests += [] if ending else [f"not EVEN_{self.variables[level.index].upper()}"]
        level.test = " or ".join(tests)
        level.passes = level.passes if len(level.passes) > 1 else ()

    def printed(self, level: Level, ends: Ends, start: str, block: str) -> list[str]:
        """A loop whose body is there; blocks that are not whole for more than the end of the index have their own pass."""
        body = level.lines
        if not level.passes:
            step = f", {block}" if block else ""
            head = f"{ends.first}, {ends.stop}{step}" if step or ends.first != "0" else ends.stop
            # Without products, what a loop loads is fetched ahead where the loop says so.
            turns = f"range({head})" if self.multiplies else f"tl.range({head}, num_stages=STAGES)"
            return [f"for {start} in {turns}:", *(f"    {line}" for line in body)]
        lo, hi = ends.whole or ("", "")
        cut = self.variable(self.fresh("whole"))
        end = f"{wrapped(hi)} // {block} * {block}"
        extent = self.size(self.own.walk(level.index).extent)[0]
        begin = f"tl.cdiv({lo}, {block}) * {block}"
        # No less than the first, also where the stop is: rows may ask for terms in front of all that there are.
        begin = f"tl.maximum({ends.first}, tl.minimum({begin}, {ends.stop}))"
        match level.passes:
            case ("whole", "tail"):
                said, turns = "then the rest", "2"
                text = end if hi == extent else f"tl.maximum({ends.first}, {end})"
                lines, firsts, stops = [f"{cut} = {text}"], [ends.first, cut], [cut, ends.stop]
            case ("head", "whole"):
                said, turns = "behind the first ones", "1, -1, -1"
                lines, firsts, stops = [f"{cut} = {begin}"], [cut, ends.first], [ends.stop, cut]
            case _:
                said, turns = "then those before and behind them", "3"
                behind = self.variable(self.fresh("behind"))
                lines = [f"{cut} = {begin}", f"{behind} = tl.maximum({cut}, {end})"]
                firsts, stops = [cut, ends.first, behind], [behind, cut, ends.stop]
        return [
            *lines,
            f"# Whole blocks go without a mask, {said}.",
            f"for masked in tl.static_range({turns}):",
            f"    for {start} in range(({', '.join(firsts)})[masked], ({', '.join(stops)})[masked], {block}):",
            *(f"        {line}" for line in body),
        ]

    def ends(self, loop: Loop, walk: Walk) -> Ends:
        """Where a loop begins and ends, and where its blocks are whole.

        Blocks of which no row of the tile has a term are not visited.
        """
        stop = extent = self.size(walk.extent)[0]
        first, lows, highs = "0", list[str](), [stop]
        if loop.part:
            chunk = self.assigned_in(
                -1, "chunk", f"tl.cdiv({extent}, PARTS * {walk.block}) * {walk.block}"
            )
            first = self.assigned_in(
                -1, "first", f"{self.variables[loop.part]}.to(tl.int32) * {chunk}"
            )
            stop = f"tl.minimum({extent}, {first} + {chunk})"
            highs = [stop]
        begins = first
        for guard in loop.within:
            if not (sign := self.sign(guard, loop.index)):
                continue
            rest = guard.poly - sign * poly(Idx(loop.index))
            if sign == -1:
                end = self.farthest(rest + 1, True)
                alone = stop == extent and end == self.ended.get(extent)  # it is no more than that
                stop = end if alone else f"tl.minimum({stop}, {end})"
                highs.append(self.farthest(rest + 1, False))
            else:
                begin = self.farthest(-rest, False)
                known = begins == "0" and begin in self.first.values()
                begins = begin if known else f"tl.maximum({begins}, {begin})"
                lows.append(self.farthest(-rest, True))
        unsigned = [g for g in loop.within if not self.sign(g, loop.index)]
        scanned = [g for g in unsigned if self.may_scan(g, loop.index)]
        if scanned:
            if loop.part:  # a block of the scan goes on behind the part
                stop = self.stops[loop.index] = self.assigned_in(-1, "part_stop", stop)
            begins, stop, partly = self.scan(walk, scanned, begins, stop)
            lows, highs = [*lows, begins], [*highs, stop, partly]
        if stop != extent and not stop.isidentifier():
            stop = self.assigned_in(-1, self.fresh("stop"), stop)
        if stop != extent:
            self.stops[loop.index] = stop
        if begins != first:
            if not begins.isidentifier():
                begins = self.assigned_in(-1, self.fresh("begin"), begins)
            self.begins[loop.index] = begins
            text = f"{begins} // {walk.block} * {walk.block}"
            first = self.assigned_in(-1, self.fresh("first"), text)
        guards = {g for f in carried(self.own, loop) for g in f.value.guards}
        if guards - set(loop.within) or len(scanned) < len(unsigned):
            return Ends(first, stop)
        lo, hi = (
            reduce(lambda a, b: f"tl.{fold}({a}, {b})", texts) if texts else "0"
            for fold, texts in (("maximum", lows), ("minimum", highs))
        )
        return Ends(first, stop, (lo, hi))

    def sign(self, guard: ir.Guard, loop: str) -> int:
        """1 where a guard says where a loop begins and nothing else, -1 where it ends, else 0."""
        weight = weight_of(guard.poly, loop)
        if guard.op != ">=":
            return 0
        return 1 if weight == poly(1) else -1 if weight == poly(-1) else 0

    def farthest(self, end: Poly, largest: bool) -> str:
        """The largest or the smallest value of an end among the lanes of the tile."""
        names = [n for n in indices(end) if n not in self.own.numbers]
        name = names[0] if len(names) == 1 else ""
        weight = weight_of(end, name)
        if name in self.first and weight in (poly(1), poly(-1)):
            own = self.edge(name, last=(weight == poly(1)) is largest)
            return self.size(substitute(end, {name: own}))[0]
        if not names:
            with self.within(("", "")):
                return f"{wrapped(self.size(end)[0])}.to(tl.int32)"
        frame = self.frame_of(set(names))
        with self.within(frame):
            text, mask = self.size(end)[0], self.mask(frozenset(names))
            least = "0" if largest else self.size(self.own.walk(names[0]).extent)[0]
        fold = "max" if largest else "min"
        return f"tl.{fold}(tl.where({mask}, {text}, {least})).to(tl.int32)"

    def edge(self, name: str, last: bool) -> Poly:
        """The last or the first element of a tile."""
        first = self.first[name]
        self.index[first] = first
        if not last:
            return index(first)
        walk, wish = self.own.walk(name), f"end_{self.variables[name]}"
        if wish not in self.index:
            extent = self.size(walk.extent)[0]
            stop = f"tl.minimum({first} + {walk.block}, {extent})"
            self.index[wish] = self.ended[extent] = self.assigned_in(-1, wish, stop)
        return index(wish) - 1

    def may_scan(self, guard: ir.Guard, loop: str) -> bool:
        """Whether a guard, which reads at the loop's index, asks more or less of later elements of one tile."""
        names = tile_indices(guard, self.own) - {loop}
        weights = [weight_of(guard.poly, n) for n in names]
        plain = guard.op == ">=" and all(n in self.first for n in names) and len(names) == 1
        return plain and all(w in (poly(1), poly(-1)) for w in weights)

    def scan(self, walk: Walk, guards: list[ir.Guard], first: str, stop: str) -> list[str]:
        """Where a loop begins and ends by what operands say at its index, and where not all lanes have a term any more.

        A loop before the loop: its lines find the least and the largest index that some lane of the tile has.
        """
        name, outer = self.variables[walk.index], self.levels[-1]
        tests: list[list[str]] = [[], []]
        level = Level(walk.index)
        begin, end, rest, at, some, partly = (
            self.variable(self.fresh(wish))
            for wish in (f"begin_{name}", f"stop_{name}", f"rest_{name}", "scan", "some", "partly")
        )
        for guard in guards:  # its ends are lines of the kernel's level
            for n in tile_indices(guard, self.own) - {walk.index}:
                self.edge(n, last=True)
        self.levels.append(level)
        level.lines.append(f"{name} = {at} + tl.arange(0, {SCAN}).to(tl.int64)")
        with self.within(self.frame_of({walk.index})):
            for guard in guards:
                for of, best in zip(tests, (True, False), strict=True):
                    p = guard.poly
                    for n in tile_indices(guard, self.own) - {walk.index}:
                        own = self.edge(n, last=(weight_of(p, n) == poly(1)) is best)
                        p = substitute(p, {n: own})
                    of.append(guard_text(self, ir.Guard(p, ">=")))
            mask, number = self.mask(frozenset({walk.index})), self.index[walk.index]
        self.levels.pop()
        extent = self.size(walk.extent)[0]
        having, every = (" & ".join(f"({t})" for t in dict.fromkeys(of)) for of in tests)
        lines = [
            f"{some} = ({mask}) & {having}",
            f"{begin} = tl.minimum({begin}, tl.min(tl.where({some}, {number}, {extent})).to(tl.int32))",
            f"{end} = tl.maximum({end}, tl.max(tl.where({some}, {number} + 1, 0)).to(tl.int32))",
            f"{partly} = ({number} >= {begin}) & ~{every if len(guards) == 1 else f'({every})'}",
            f"{rest} = tl.minimum({rest}, tl.min(tl.where({partly}, {number}, {extent})).to(tl.int32))",
        ]
        outer.lines += [
            f"# The {name} that some lane of this tile has, and the first behind them that not all have.",
            f"{begin}, {end}, {rest} = {extent}, 0, {extent}",
            f"for {at} in range({first}, {stop}, {SCAN}):",
            *(f"    {line}" for line in (*level.lines, *lines)),
        ]
        for name in (at, some, partly):
            self.assigned.discard(name)
        return [begin, end, rest]

    # ---- folds
    def fold(self, f: Fold) -> None:
        nest = self.nests[f.name]
        loops = [level.index for level in self.levels[1:]]
        held = any(x in loops for x in f.over)
        dot = is_dot(f, self.own)
        if f.value.is_place:
            self.levels[-1].lines += say_place(self, nest)
            self.place(f)
            return
        if dot:
            text = self.product(f, held)
        else:
            frame = self.frame_of({*f.axes, *f.over})
            with self.within(frame), self.computing(f.name):
                term, over = self.term(f), self.own.axis(f)
                axis = frame.index(over) if over else None
                alone = not held and not all(frame)  # then it is a number
                apart = held and (self.is_apart(f) or not over)
                text = term if apart else end_text(self, nest, term, None if alone else axis)
                if self.is_shift(f) and self.is_followed(f):
                    text = f"tl.max({term}, {axis}, keep_dims=True)"
        line = self.levels[-1].lines.append
        result = self.frame_of(f.axes) if dot else self.folded(f)
        if not held:
            line_before = self.comment(f.name)
            self.levels[-1].lines += line_before
            self.frames.pop(f.name, None)
            self.values[f.name] = (self.assigned_in(-1, f.name, text), ATOM)
            self.frames[f.name] = result
            return
        self.levels[-1].lines += self.comment(f.name)
        if f.value.op == "max" and self.is_shift(f):
            self.move(f, text)
        elif dot:
            line(f"{f.name} = {text}")
        else:
            moved = f"{f.name} * {self.moving[f.moved_by]}" if f.moved_by else f.name
            kind = ir.kind_of(nest.dtype, self.op)
            combine = MONOIDS[f.value.op].combine[kind]
            if moved == f.name:
                line(combined(combine, f.name, (text, ATOM)))
            else:
                line(f"{f.name} = {combine.format(a=moved, b=text)}")

    def place(self, f: Fold) -> None:
        """The place of a block's first extreme, and that of all blocks so far."""
        frame, monoid = self.frame_of({*f.axes, *f.over}), MONOIDS[f.value.op]
        with self.within(frame), self.computing(f.name):
            term, axis = self.term(f), frame.index(self.own.axis(f))
            place = f"{wrap(self.size(f.value.number), ATOM)}.to(tl.int32)"
            if f.value.guards:  # lanes behind the last one are later places by themselves
                place = f"tl.where({self.terms_mask(f)}, {place}, {NO_PLACE})"
        shape = ", ".join(self.own.walk(i).block if i else "1" for i in frame)
        best, line = self.extremes[f.name], self.levels[-1].lines.append
        place = self.assigned_in(-1, self.fresh("place"), f"tl.broadcast_to({place}, {shape})")
        own, tiles = (f"{best}_here", f"{f.name}_here"), f"{term}, {place}"
        line(f"{', '.join(own)} = {end_text(self, self.nests[f.name], tiles, axis)}")
        line(f"{best}, {f.name} = {monoid.first}({best}, {f.name}, {', '.join(own)})")

    def folded(self, f: Fold) -> Frame:
        """The frame of what a tile folds to: a column of rows, or a row of columns."""
        rows, columns = self.frame_of({*f.axes, *f.over})
        over = self.own.axis(f)
        if not over:
            return rows, columns
        return ("", columns) if rows == over else (rows, "")

    def is_apart(self, f: Fold) -> bool:
        """Whether each lane keeps a state of its own until the loop ends: nothing in the loop asks for all of them."""
        moves = f.moved_by or self.is_shift(f)
        own = f.value.op in MONOIDS and not f.value.is_place
        return not self.multiplies and not moves and own

    def is_shift(self, f: Fold) -> bool:
        """Whether sums move with a maximum."""
        return any(isinstance(s, Fold) and s.moved_by == f.name for s in statements(self.own.body))

    def is_followed(self, f: Fold) -> bool:
        """Whether each result that a maximum leads to has a sum that moves with it: a NaN is in that.

        What is kept for a gradient is no result: there the sum beside it is NaN.
        """
        moved = {
            s.name
            for s in statements(self.own.body)
            if isinstance(s, Fold) and s.moved_by == f.name
        }
        stored = self.nests.keys() & self.context.stored - set(self.op.kept)
        led = [self.leads(tensor) for tensor in stored]
        return all(own & moved for own in led if f.name in own)

    def leads(self, name: str) -> set[str]:
        """The values that one follows from, itself among them."""
        found, ahead = set[str](), [name]
        while ahead:
            own = ahead.pop()
            if own in self.nests and own not in found:
                found.add(own)
                ahead += tensors_read(self.nests[own].body)
        return found

    def move(self, f: Fold, text: str) -> None:
        """A maximum, by which the sums are multiplied that move with it; -inf, as of no term yet, moves nothing."""
        line = self.levels[-1].lines.append
        new, base = f"{f.name}_new", f"{f.name}_base"
        larger = "tl.maximum" if self.is_followed(f) else "lib.nan_max"
        line(f"{new} = {larger}({f.name}, {text})")
        if self.multiplies:
            line(f'{base} = tl.where({new} == float("-inf"), 0.0, {new} * {LOG2E})')
            line(f"{f.name}_moved = tl.exp2({f.name} * {LOG2E} - {base})")
        else:
            line(f'{base} = tl.where({new} == float("-inf"), 0.0, {new})')
            line(f"{f.name}_moved = lib.exp({f.name} - {base})")
        line(f"{f.name} = {new}")
        self.moving[f.name] = f"{f.name}_moved"

    def term(self, f: Fold) -> str:
        """The terms of a fold in its frame, where a lane has none the identity."""
        value = f.value.body
        mask = self.terms_mask(f)
        out = self.expr(value)[0]
        if not self.strong(value):
            out = self.full(value, value.dtype)
        if not mask or (f.moved_by and f.moved_by in self.masked) or f.name in self.unmasked:
            return out
        start = start_text(self, self.nests[f.name], value.dtype)
        masked = f"tl.where({mask}, {out}, {start})"
        if f.value.op == "max" and isinstance(value, ir.Read) and self.masks_all(f, value.tensor):
            self.masked.add(f.name)
            self.where_masked(f"{out} = {masked}")
            return out
        return masked

    def terms_mask(self, f: Fold) -> str:
        guards = [guard_text(self, g) for g in f.value.guards]
        return self.mask(frozenset({self.own.axis(f)} - {""}), guards)

    def masks_all(self, f: Fold, value: str) -> bool:
        """Whether nothing but this maximum and the sums that move with it follows from a value: masked, it gives them no term."""
        if value not in self.frames:
            return False
        for s in statements(self.own.body):
            match s:
                case Fold(name, body) if self.follows(body, value) and name != f.name:
                    if s.moved_by != f.name:
                        return False
                case Store(tensor) if tensor == value:
                    return False
        return True

    def follows(self, e: ir.Expr, value: str) -> bool:
        read = tensors_read(e)
        lines = (self.nests[t] for t in read if t in self.nests)
        return value in read or any(
            not isinstance(n.body, ir.Reduce) and self.follows(n.body, value) for n in lines
        )

    # ---- products
    def product(self, f: Fold, held: bool) -> str:
        left, right = f.value.factors
        over = self.own.axis(f)
        rows, columns = self.frame_of(f.axes)
        if columns in free_indices(left):
            left, right = right, left
        narrow = storage_dtype(left, right, self.op)
        sides = [
            self.factor(f, e, frame, narrow)
            for e, frame in ((left, (rows, over)), (right, (over, columns)))
        ]
        state = ""
        if held:
            state = f", {f.name} * {self.moving[f.moved_by]}" if f.moved_by else f", {f.name}"
        return f"tl.dot({', '.join(sides)}{state})"

    def factor(self, f: Fold, e: ir.Expr, frame: Frame, narrow: str) -> str:
        """A tile of a factor; 0 where there is no term, since 0 * NaN is no 0."""
        over = self.own.axis(f)
        flag: ir.Expr | None = None
        match e:
            case ir.Call("seen", (flag, e)):
                pass
        inner = e.arg if isinstance(e, ir.Cast) and e.arg.dtype == narrow else e
        with self.within(frame), self.computing(f.name):
            tensor = inner.tensor if isinstance(inner, ir.Read) else ""
            loaded = bool(tensor) and tensor not in self.frames
            own_guards = (g for g in f.value.guards if tile_indices(g, self.own) <= {*frame})
            guards = [guard_text(self, g) for g in own_guards]
            if flag is not None:
                guards.append(self.expr(flag)[0])
            elif loaded:
                guards += self.for_some(f, frame)
            if loaded and not guards:
                self.fill[tensor] = 0
            if (f.moved_by in self.masked) if not loaded else not guards:
                return self.expr(inner)[0]
            mask = self.mask(frozenset([over]), guards)
            value = inner
            while isinstance(value, ir.Cast):
                value = value.arg
            own = value.tensor if isinstance(value, ir.Read) else ""
            if loaded or self.frames.get(own) == frame:  # masked once, for all who read it
                text = self.expr(inner if loaded else value)[0]
                if text.endswith(".T"):  # a tile that was loaded the other way round
                    return f"{self.factor(f, e, (frame[1], frame[0]), narrow)}.T"
                if (text, mask) not in self.without:
                    self.without.add((text, mask))
                    self.where_masked(f"{text} = tl.where({mask}, {text}, 0.0)")
                return self.expr(inner)[0]
            return f"tl.where({mask}, {self.expr(inner)[0]}, 0.0)"

    def for_some(self, f: Fold, frame: Frame) -> list[str]:
        """What the guards of a product ask of one factor's lanes: that some lane of the other factor has them.

        Elements that no row has may be NaN. Where a guard is no end of the other factor's index, the ends of the loop serve.
        """
        over, found = self.own.axis(f), list[ir.Guard]()
        told: dict[str, None] = {}
        others = [g for g in f.value.guards if tile_indices(g, self.own) - {*frame}]
        for name in sorted(set().union(*(tile_indices(g, self.own) - {*frame} for g in others))):
            own = [g for g in others if name in tile_indices(g, self.own)]
            signs = [(self.sign(g, name), g.poly) for g in own]
            below = [poly(0), *(-(p - poly(Idx(name))) for sign, p in signs if sign == 1)]
            above = [self.own.walk(name).extent - 1]
            above += [p + poly(Idx(name)) for sign, p in signs if sign == -1]
            found += [ir.Guard(end - first, ">=") for first in below for end in above][1:]
            if any(sign == 0 for sign, _ in signs):
                index = self.index[over]
                ends = (">=", self.begins.get(over)), ("<", self.stops.get(over))
                told |= {f"{index} {op} {end}": None for op, end in ends if end}
        inside = {w.index: (poly(0), w.extent) for w in self.own.walks}
        facts = self.context.facts
        asked = (g for g in found if prove(g.poly, ">=", poly(0), facts, inside) is not True)
        return [*dict.fromkeys(guard_text(self, g) for g in asked), *told]

    def where_masked(self, line: str) -> None:
        """A line for blocks that are not whole."""
        level = self.levels[-1]
        if not level.test:
            self.line(line)
            return
        if not (level.is_cut and self.lines[-1].startswith("    ")):
            self.line(f"if {level.test}:")
        level.is_cut = True
        self.line(f"    {line}")
        if "EVEN" in level.test:
            walk = self.own.walk(level.index)
            even = f'{wrapped(str(walk.extent))} % config["{walk.block}"] == 0'
            self.args.constants[level.test.split()[-1]] = even

    # ---- states
    def open_state(self, f: Fold) -> None:
        nest = self.nests[f.name]
        rows, columns = self.frame_of(f.axes) if is_dot(f, self.own) else self.folded(f)
        if self.is_apart(f):
            rows, columns = self.frame_of({*f.axes, *f.over})
        shape = ", ".join(self.own.walk(i).block if i else "1" for i in (rows, columns))
        dtype = self.dtype(nest.dtype)
        start = start_text(self, nest, nest.dtype) if not f.value.is_place else NO_PLACE
        name = self.variable(f.name)
        if f.value.is_place:
            best, start = best_of(self, nest), start_text(self, nest, nest.fold.body.dtype)
            own = self.dtype(nest.fold.body.dtype)
            self.levels[-1].lines.append(f"{best} = tl.full(({shape}), {start}, {own})")
            dtype, start = "tl.int32", NO_PLACE
        text = (
            f"tl.zeros(({shape}), {dtype})"
            if start == "0.0"
            else f"tl.full(({shape}), {start}, {dtype})"
        )
        self.levels[-1].lines.append(f"{name} = {text}")
        self.values[f.name], self.frames[f.name] = (name, ATOM), (rows, columns)

    def close_state(self, f: Fold) -> None:
        """Behind the loop a maximum is itself again, and lanes that kept states of their own become one."""
        if self.is_apart(f):
            frame, nest = self.frames[f.name], self.nests[f.name]
            alone = self.folded(f) == ("", "")  # a number, which is no tile
            text = end_text(self, nest, f.name, None if alone else frame.index(f.over[0]))
            self.levels[-1].lines.append(f"{f.name} = {text}")
            self.frames[f.name] = self.folded(f)
        if f.value.is_place:
            text = found(self, self.nests[f.name], f.name)
            self.levels[-1].lines.append(f"{f.name} = {wrapped(text)}.to(tl.int64)")
        self.values[f.name] = (f.name, ATOM)
        self.moving.pop(f.name, None)


def tile_indices(guard: ir.Guard, kernel: Kernel) -> set[str]:
    return set(indices(guard.poly)) - kernel.numbers


def wrapped(text: str) -> str:
    return f"({text})" if " " in text else text

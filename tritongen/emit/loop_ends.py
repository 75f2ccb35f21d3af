"""Where a loop of the kernel IR begins and ends, and which of its blocks are whole.

    stop = tl.minimum(L, i_end)              the last j that some row of the tile has a term for, for `j <= i`
    whole = first_i // BLOCK_N * BLOCK_N     and the first block that not all rows have whole

Bounds that operands hold are looked for by a loop in front of the loop (`scan`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from tritongen.emit.fold_lines import guard_text, is_small
from tritongen.emit.frames import FrameWriter, Level, tile_indices
from tritongen.emit.text import launch_text, wrap_text, wrapped
from tritongen.emit.view import indented
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import (
    Idx,
    Poly,
    index,
    indices,
    is_size,
    poly,
    substitute,
    symbols,
    weight_of,
)
from tritongen.ir.functions import TERM
from tritongen.kernel.nodes import Loop, Walk, folded

SCAN = 1024  # elements that a turn of a scan for the ends of a loop looks at


@dataclass(frozen=True, slots=True)
class Ends:
    """The range of a loop as text, and that of its whole blocks, in which each lane has a term."""

    first: str
    stop: str
    whole: tuple[str, str] | None = None  # "0" where blocks are whole from the first on


class LoopWriter(FrameWriter):
    """A writer that knows the ends of loops."""

    def printed(self, level: Level, ends: Ends, start: str, block: str) -> list[str]:
        """The lines of a loop whose body is there.

        Whole blocks have a pass without masks, if some line of the body is for the others. These have another one.
        """
        body = level.lines
        if not level.is_cut:
            step = f", {block}" if block else ""
            head = f"{ends.first}, {ends.stop}{step}" if step or ends.first != "0" else ends.stop
            # Without products, what a loop loads is fetched ahead where the loop says so.
            turns = f"range({head})" if self.multiplies else f"tl.range({head}, num_stages=STAGES)"
            return [f"for {start} in {turns}:", *indented(body)]
        lo, hi = ends.whole or ("", "")
        extent = self.size(self.own.walk(level.index).extent)[0]
        cut = self.variable(self.fresh("whole"))
        end = f"{wrap_text(hi, TERM)} // {block} * {block}"
        if lo == "0":
            said, turns, at = "then the rest", "2", start
            if ends.first != "0":
                # The host does not know whether a part has whole blocks. Behind another loop ptxas does not mind.
                said, turns = "after the rest", "1, -1, -1"
            if hi == extent:
                some, even = self.told_by_host(level, block)
                lines = [f"{cut} = {end}", f"if {some}:", f"    tl.assume({cut} > 0)"]
                turns = f"0 if {some} else 1, 1 if {even} else 2"
            else:
                lines = [f"{cut} = tl.maximum({ends.first}, {end})"]
            parts = (ends.first, cut), (cut, ends.stop)
        else:
            said, turns = "then those before and behind them", "2"
            behind, at = (self.variable(self.fresh(wish)) for wish in ("behind", "at"))
            begin = f"lib.blocks({lo}, {block}) * {block}"
            # No less than the first, also where the stop is: rows may ask for terms in front of all that there are.
            begin = f"tl.maximum({ends.first}, tl.minimum({begin}, {ends.stop}))"
            lines = [f"{cut} = {begin}", f"{behind} = tl.maximum({cut}, {end})"]
            parts = (cut, behind), (ends.first, f"{ends.stop} - ({behind} - {cut})")
            skipped = f"{at} + tl.where({at} < {cut}, 0, {behind} - {cut}) if masked else {at}"
            body = [f"{start} = {skipped}", *body]
            self.assigned.discard(at)
        firsts, stops = (", ".join(texts) for texts in zip(*parts, strict=True))
        return [
            *lines,
            f"# Whole blocks go without a mask, {said}.",
            f"for masked in tl.static_range({turns}):",
            f"    for {at} in range(({firsts})[masked], ({stops})[masked], {block}):",
            *indented(indented(body)),
        ]

    def told_by_host(self, level: Level, block: str) -> list[str]:
        """The constants that say whether there are whole blocks, and whether there is nothing else.

        ptxas may run one product after another if the loop over whole blocks may not run at all (its warning C7515).
        """
        name, extent = self.variables[level.index].upper(), self.own.walk(level.index).extent
        size, taken = wrapped(launch_text(extent)), f'config["{block}"]'
        constants = self.args.constants
        some = self.parameter(constants, f"HAS_WHOLE_{name}", f"{size} >= {taken}")
        even = self.parameter(constants, f"EVEN_{name}", f"{size} % {taken} == 0")
        return [some, even]

    def ends(self, loop: Loop, walk: Walk) -> Ends:
        """Where a loop begins and ends, and where its blocks are whole.

        Blocks of which no row of the tile has a term are not visited.
        """
        extent = self.size(walk.extent)[0]
        first, stop, named = self.share(loop, walk)
        lows, highs = list[str](), [stop]
        begins = first
        for guard in loop.within:
            if not (sign := self.sign(guard, loop.index)):
                continue
            rest = guard.poly - sign * poly(Idx(loop.index))
            if sign == -1:
                end = self.farthest(rest + 1, True, extent)
                alone = stop == extent and end == self.ended.get(extent)  # it is no more than that
                stop = end if alone else f"tl.minimum({stop}, {end})"
                highs.append(self.farthest(rest + 1, False, extent))
            else:
                begin = self.farthest(-rest, False, extent)
                known = begins == "0" and begin in self.first.values()
                begins = begin if known else f"tl.maximum({begins}, {begin})"
                lows.append(self.farthest(-rest, True, extent))
        self.levels[-1].lines += named
        unsigned = [g for g in loop.within if not self.sign(g, loop.index)]
        scanned = [g for g in unsigned if self.may_scan(g, loop.index)]
        if scanned:
            if loop.part:  # a block of the scan goes on behind the part
                stop = stop if stop.isidentifier() else self.assigned_in(-1, "part_end", stop)
                self.stops[loop.index] = stop
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
            if not self.multiplies:  # no tile of a factor asks for blocks that begin at multiples
                return Ends(begins, stop)
            text = f"{begins} // {walk.block} * {walk.block}"
            first = self.assigned_in(-1, self.fresh("first"), text)
        guards = {g for f in folded(loop) for g in f.value.guards}
        if guards - set(loop.within) or len(scanned) < len(unsigned):
            return Ends(first, stop)
        lo, hi = (
            reduce(lambda a, b: f"tl.{fold}({a}, {b})", texts) if texts else "0"
            for fold, texts in (("maximum", lows), ("minimum", highs))
        )
        return Ends(first, stop, (lo, hi))

    def share(self, loop: Loop, walk: Walk) -> tuple[str, str, list[str]]:
        """The range of a loop, or of a program's part of it, and the lines that name its end."""
        extent = self.size(walk.extent)[0]
        if not loop.part:
            return "0", extent, []
        size, part = walk.block, self.variables[loop.part]
        times = f" * {size}" if size else ""
        blocks = f"lib.blocks({extent}, PARTS{times}){times}"
        chunk = self.assigned_in(-1, "chunk", blocks)
        first = self.assigned_in(-1, "first", f"{part}.to(tl.int32) * {chunk}")
        stop = self.variable(self.fresh("part_stop" if loop.within else "stop"))
        return first, stop, [f"{stop} = tl.minimum({extent}, {first} + {chunk})"]

    def farthest(self, end: Poly, largest: bool, extent: str) -> str:
        """The largest or the smallest value of an end among the lanes of the tile.

        Operands and constants may say more than 32 bits hold, which loops count in.
        """
        names = [n for n in indices(end) if n not in self.own.numbers]
        name = names[0] if len(names) == 1 else ""
        weight = weight_of(end, name)
        if name in self.first and weight in (poly(1), poly(-1)):
            own = self.edge(name, last=(weight == poly(1)) is largest)
            if is_small(end - weight * index(name)):
                return self.size(substitute(end, {name: own}))[0]
            with self.within(("", "")):
                self.widen(own)
                return f"lib.end_of({self.size(substitute(end, {name: own}))[0]}, {extent})"
        if not names:
            with self.within(("", "")):
                text = self.size(end)[0]
            return text if is_size(end) else f"lib.end_of({text}, {extent})"
        frame = self.frame_of(set(names))
        with self.within(frame):
            text, mask = self.size(end)[0], self.mask(frozenset(names))
            least = "0" if largest else self.size(self.own.walk(names[0]).extent)[0]
        fold = "max" if largest else "min"
        return f"lib.end_of(tl.{fold}(tl.where({mask}, {text}, {least})), {extent})"

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
            own = self.joined_name("end", self.variables[name])
            self.index[wish] = self.ended[extent] = self.assigned_in(-1, own, stop)
        return index(wish) - 1

    def widen(self, edge: Poly) -> None:
        """The edge of a tile has 32 bits. What is added to it may need more."""
        for name in indices(edge):
            self.index[name] = f"{self.index[name]}.to(tl.int64)"

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
                    (n,) = tile_indices(guard, self.own) - {walk.index}
                    own = self.edge(n, last=(weight_of(guard.poly, n) == poly(1)) is best)
                    p = substitute(guard.poly, {n: own})
                    with self.within(self.frame):
                        if symbols(p) & {c.name for c in self.op.constants}:
                            self.widen(own)
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
            *indented([*level.lines, *lines]),
        ]
        for name in (at, some, partly):
            self.assigned.discard(name)
        return [begin, end, rest]

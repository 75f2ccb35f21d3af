"""A kernel of the IR (`tritongen/kernel`) as Triton lines.

Input: a `KernelPlan` whose `kernel` is a lowered one. Output: its `KernelView`. Here are statements: values, folds,
products, states and stores. `frames.py` has what they stand in, `loop_ends.py` the ends of loops.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import groupby
from math import prod

from tritongen.emit.fold_lines import best_of, end_text, found, guard_text, say_place, start_text
from tritongen.emit.folds import NO_PLACE, combined
from tritongen.emit.frames import LOG2E, Frame, Level, tile_indices
from tritongen.emit.loop_ends import Ends, LoopWriter
from tritongen.emit.text import wrap, wrapped
from tritongen.emit.tiles import counting_dtype, view
from tritongen.emit.view import KernelView, indented
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Idx, fetches_of, indices, poly
from tritongen.ir.bounds import prove
from tritongen.ir.free import free_indices, leads_to, reads, tensors_read
from tritongen.ir.functions import ATOM
from tritongen.ir.reducers import REDUCERS
from tritongen.kernel.moving import exponential, has_all_terms, is_nan_with, other_term
from tritongen.kernel.nodes import (
    PARTS,
    Fold,
    Kernel,
    Let,
    Loop,
    Stmt,
    Store,
    carried,
    is_dot,
    statements,
)
from tritongen.schedule.classes.contraction_operands import storage_dtype
from tritongen.schedule.members import is_reducer


def fused_view(writer: FusedWriter) -> KernelView:
    writer.programs()
    writer.body(writer.own.body)
    writer.lines = writer.levels[0].lines
    for w in writer.own.walks:  # of whose lanes nobody speaks: a descriptor loads all of them
        name = writer.variables[w.index]
        spoken_of = any(re.search(rf"\b{name}\[", x) for x in writer.lines)
        if writer.multiplies and w.block and not spoken_of:
            lanes = re.compile(rf"^(if {w.block}:\n    )?{name} = .*\n", re.MULTILINE)
            writer.lines = lanes.sub("", "\n".join(writer.lines)).split("\n")
    blocks = tuple(dict.fromkeys(w.block for w in writer.own.walks if w.block))
    blocks += ("PARTS",) if any(w.extent == PARTS for w in writer.own.walks) else ()
    loops = any(w.how == "loop" for w in writer.own.walks)
    blocks += ("STAGES",) if loops and not writer.multiplies else ()
    blocks += ("HOLD",) if writer.may_hold else ()
    lines = (*writer.scalars, *writer.lines)
    doc = doc_of(writer.own, {i: "rows" if n == "row" else n for i, n in writer.variables.items()})
    ends = {w.block: writer.size(w.extent)[0] for w in writer.own.walks if w.how == "tile"}
    setup = tuple(writer.setup)
    return view(writer, blocks, doc, lines=lines, setup=setup, ends=ends)


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


class FusedWriter(LoopWriter):
    """Prints the statements of one kernel."""

    # ---- statements
    def body(self, body: Sequence[Stmt]) -> None:
        for (asked, rests), group in groupby(body, lambda s: (self.asked(s), self.rests(s))):
            with self.if_asked(asked) if asked else nullcontext(), self.at_rests(rests):
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
        """The tensor that a store or the state of a loop is for, if a call may leave it out; "" for what has no test.

        Of other values the compiler drops those that nothing reads.
        """
        if not self.context.left_out:
            return ""
        match stmt:
            case Store():
                led = {stmt.tensor}
            case Fold(name) if set(stmt.over) & set(self.own.loops):
                led = {s.tensor for s in self.own.stores if name in self.leads(s.value or s.tensor)}
            case _:
                return ""
        return "".join(led) if len(led) == 1 and led <= self.context.left_out else ""

    def rests(self, stmt: Stmt) -> frozenset[str]:
        """The indices of second blocks that a statement uses."""
        own = () if isinstance(stmt, Loop) else stmt.axes
        own += stmt.over if isinstance(stmt, Fold) else ()
        return frozenset(own) & self.behind.keys()

    @contextmanager
    def at_rests(self, names: frozenset[str]) -> Iterator[None]:
        """Puts the lines of the statements inside under the `if` of these indices (`if_there`)."""
        level = self.levels[-1]
        before, level.lines = level.lines, []
        yield
        own, level.lines = level.lines, before
        level.lines += self.if_there(names, own)

    @contextmanager
    def if_asked(self, tensor: str) -> Iterator[None]:
        """Lines for calls in which the tensor is there. What they load serves no other line."""
        level, pointer, self.tested = self.levels[-1], self.pointer(tensor), tensor
        lines, caches = level.lines, level.caches
        level.lines, level.caches = [], {frame: dict(own) for frame, own in caches.items()}
        yield
        self.tested = ""
        own, level.lines, level.caches = level.lines, lines, caches
        level.lines += [f"if {pointer} is not None:", *indented(own)]

    def store_block(self, s: Store) -> None:
        checks = [f"{self.first.get(x, self.variables[x])} == 0" for x in s.once]
        nest = self.nests[s.value or s.tensor]
        with self.within(self.frame_of(s.axes)):
            shown = self.expr(ir.Read(nest.name, (), None, ""))[0]
            if s.adds:
                self.add(s, nest, shown)
                return
            self.store(replace(nest, name=s.tensor, coords=s.coords), shown, checks)

    def add(self, s: Store, nest: ir.Nest, shown: str) -> None:
        """Adds each term at its place, if it counts and its place is there."""
        checks = [guard_text(self, g) for g in s.within]
        if not self.strong(nest.body):
            shown = self.full(nest.body, nest.dtype)
        for k, c in enumerate(s.coords):
            if fetches_of(c):
                at = self.coordinate(s.tensor, k, c)
                checks += self.checks(s.tensor, k, at, c)
        where, _, _ = self.address(s.tensor, s.coords)
        mask = self.mask(frozenset(s.axes), checks)
        self.line(f'tl.atomic_add({where}, {shown}, mask={mask}, sem="relaxed")')

    def loop(self, loop: Loop) -> None:
        walk, outer = self.own.walk(loop.index), self.levels[-1]
        states = carried(self.own, loop)
        for f in states:
            with self.at_rests(self.rests(f)):
                self.open_state(f)
        name = self.variables[loop.index]
        outermost = not any(level.index not in self.own.numbers for level in self.levels[1:])
        plain = walk.block and outermost
        start = self.variable("start" if plain else self.joined_name("start", name))
        if walk.block:
            self.starts[loop.index] = start
            ends = self.ends(loop, walk)
            level = Level(loop.index)
            if ends.whole is not None and outermost:
                level.told = True
            lanes = f"{start} + {self.lanes(walk)}.to(tl.int64)"
            narrow = self.loads_beside(loop.index)
            level.lines.append(f"{name} = {self.lanes(walk, start) if narrow else lanes}")
        else:
            first, stop, named = self.share(loop, walk)
            self.levels[-1].lines += named
            ends, level = Ends(first, stop), Level(loop.index)
            level.lines.append(f"{name} = tl.cast({start}, tl.int64)")
            self.index[loop.index] = name
        self.levels.append(level)
        if walk.block:
            self.name_mask(walk, ends.stop, f"{walk.block} > 1")
            self.name_shared(loop)
        self.body(loop.body)
        self.levels.pop()
        self.mask_names.clear()
        outer.lines += self.printed(level, ends, start, walk.block)
        self.stops.pop(loop.index, None)
        self.begins.pop(loop.index, None)
        self.assigned.discard(start)
        for f in states:
            with self.at_rests(self.rests(f)):
                self.close_state(f)

    def name_shared(self, loop: Loop) -> None:
        """Names each mask that a plain sum shares with a factor of a product.

        Triton 3.6 fails where such a mask is first computed between the two: "operand does not dominate this use".
        """
        folds = [f for f in loop.body if isinstance(f, Fold) and f.value.guards]
        dots = [f for f in folds if is_dot(f, self.own)]
        sums = [f for f in folds if f.value.op == "sum" and f not in dots and not f.moved_by]
        if not dots or not sums:
            return
        of_factors = set[str]()
        for f in dots:
            frame = (self.frame_of(f.axes)[0], self.own.axis(f))
            with self.within(frame):
                of_factors.add(self.lanes_mask(f, self.guards_within(f, frame)))
        for f in sums:
            with self.within(self.frame_of({*f.axes, *f.over})):
                mask = self.terms_mask(f)
                if mask in of_factors and " & " in mask:
                    self.mask_names[mask] = self.assigned_in(-1, self.fresh("counts"), mask)

    def loads_beside(self, loop: str) -> bool:
        """Whether a gradient loads a tile of rows and of a loop's terms beside the factors of its products, such as a bias.

        The lanes of the loop are then counted in 32 bits: beside two sums of products, masks that compare 64 bits take the
        registers of the tile. dk of 2 x 16 x 4088 x 128 with a bias: 1.8 ms, in 64 bits 8.9 (H200). Without such a tile dk of
        causal attention is 5 to 15% slower in 32 bits.
        """
        folds = self.own.folds
        if not self.multiplies or any(f.moved_by for f in folds):
            return False
        factors = {f.name for f in folds if is_dot(f, self.own)}
        beside = (n for name, n in self.nests.items() if name not in factors)
        tiles = (
            free_indices(r) for n in beside for r in reads(n.body) if r.tensor not in self.nests
        )
        return any(loop in own and len(own - self.own.numbers) > 1 for own in tiles)

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
            text = self.product(f, held or f.again)
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
        self.levels[-1].lines += self.comment(f.name)
        if dot and not held:
            text = self.without_rows(f, text)
        if f.again:
            line(f"{f.name} = {text}")
            return
        if not held:
            self.values[f.name] = (self.assigned_in(-1, f.name, text), ATOM)
            self.frames[f.name] = self.frame_of(f.axes) if dot else self.folded(f)
            return
        if f.value.op == "max" and self.is_shift(f):
            self.move(f, text)
        elif dot:
            line(f"{f.name} = {text}")
            if self.runs_on(f):
                line(f"{f.name} = lib.awaited({f.name})")
        else:
            combine = REDUCERS[f.value.op].combine[ir.kind_of(nest.dtype, self.op)]
            if f.moved_by:
                moved = f"{f.name} * {self.moving[self.shift_of(f)][2]}"
                line(f"{f.name} = {combine.format(a=moved, b=text)}")
            else:
                line(combined(combine, f.name, (text, ATOM)))

    def place(self, f: Fold) -> None:
        """The place of a block's first extreme, and that of all blocks so far."""
        frame, monoid = self.frame_of({*f.axes, *f.over}), REDUCERS[f.value.op]
        with self.within(frame), self.computing(f.name):
            term, axis = self.term(f), frame.index(self.own.axis(f))
            place = f"{wrap(self.size(f.value.number), ATOM)}.to({self.place_dtype(f)})"
            if f.value.guards:  # lanes behind the last one are later places by themselves
                place = f"tl.where({self.terms_mask(f)}, {place}, {NO_PLACE})"
        shape = ", ".join(self.own.walk(i).block if i else "1" for i in frame)
        best, line = self.extremes[f.name], self.levels[-1].lines.append
        place = self.assigned_in(-1, self.fresh("place"), f"tl.broadcast_to({place}, {shape})")
        own, tiles = (f"{best}_here", f"{f.name}_here"), f"{term}, {place}"
        line(f"{', '.join(own)} = {end_text(self, self.nests[f.name], tiles, axis)}")
        line(f"{best}, {f.name} = {monoid.first}({best}, {f.name}, {', '.join(own)})")

    def place_dtype(self, f: Fold) -> str:
        """The dtype of the places of all terms."""
        return counting_dtype(self, "PLACE", prod((b.hi for b in f.value.binders), start=poly(1)))

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
        own = f.value.op in REDUCERS and not f.value.is_place
        return not self.multiplies and not moves and own

    def is_shift(self, f: Fold) -> bool:
        """Whether sums move with a maximum."""
        return bool(self.moved_with(f))

    def moved_with(self, f: Fold) -> set[str]:
        return {s.name for s in self.own.folds if s.moved_by == f.name}

    def is_followed(self, f: Fold) -> bool:
        """Whether a NaN of a maximum is in each result anyway: a sum that moves with it brings it there.

        What is kept for a gradient is no result: there the sum beside it is NaN.
        """
        folds = (s for s in self.own.folds if s.moved_by == f.name)
        moved = {s.name for s in folds if has_all_terms(s.value, self.nests[f.name], self.nests)}
        stored = self.nests.keys() & self.context.stored - set(self.op.kept)
        bodies = (self.nests[tensor].body for tensor in stored - moved)
        shown = all(is_nan_with(body, f.name, moved, self.nests) for body in bodies)
        return shown and f.name not in stored

    def leads(self, name: str) -> set[str]:
        """The values that one follows from, itself among them."""
        return {name} | leads_to(self.nests[name].body, self.nests.values())

    def shift_of(self, f: Fold) -> ir.Expr:
        """What the exponents of a sum that moves are shifted by."""
        found = exponential(f.value.body, self.nests[f.moved_by], self.nests)
        assert found is not None
        return found.shift

    def move(self, f: Fold, text: str) -> None:
        """A maximum, by which the sums are multiplied that move with it; -inf, as of no term yet, moves nothing.

        Another term of a shift may be infinite, or far from the exponents.
        """
        line = self.levels[-1].lines.append
        new = f"{f.name}_new"
        larger = "tl.maximum" if self.is_followed(f) else "lib.nan_max"
        line(f"{new} = {larger}({f.name}, {text})")
        near = self.multiplies and not self.may_be_far(f.value.body)
        folds = (s for s in statements(self.own.body) if isinstance(s, Fold))
        for shift in dict.fromkeys(self.shift_of(s) for s in folds if s.moved_by == f.name):
            beside, (before, now) = other_term(shift, f.name), (f.name, new)
            others = sum(own == f.name for own, *_ in self.moving.values())
            number = str(others + 1) if others else ""
            base, moved = (f"{f.name}_{what}{number}" for what in ("base", "moved"))
            if beside is not None:
                with self.within(self.folded(f)):
                    t = self.expr(beside)[0]
                before, now = (f"{f.name}_{what}{number}" for what in ("shift", "next"))
                line(f"{before} = lib.nan_max({f.name}, {t})")
                line(f"{now} = lib.nan_max({new}, {t})")
            scaled = f"{now} * {LOG2E}" if near else now
            least = now if beside is None else scaled
            line(f'{base} = tl.where({least} == float("-inf"), 0.0, {scaled})')
            exp = f"tl.exp2({before} * {LOG2E} - {base})" if near else f"lib.exp({before} - {base})"
            exp = exp if beside is None else f"tl.where({before} == {now}, 1.0, {exp})"
            line(f"{moved} = {exp}")
            self.moving[shift] = f.name, base, moved
        line(f"{f.name} = {new}")

    def term(self, f: Fold) -> str:
        """The terms of a fold in its frame, where a lane has none the identity."""
        value = f.value.body
        mask = self.terms_mask(f)
        out = self.expr(value)[0]
        if not self.strong(value):
            out = self.full(value, value.dtype)
        if not mask or self.is_zero_outside(f, value) or f.name in self.unmasked:
            return out
        start = start_text(self, self.nests[f.name], value.dtype)
        masked = f"tl.where({mask}, {out}, {start})"
        if f.value.op == "max" and isinstance(value, ir.Read) and self.masks_all(f, value):
            self.masked.add(f.name)
            self.where_masked(f, f"{out} = {masked}")
            return out
        return masked

    def is_zero_outside(self, f: Fold, e: ir.Expr) -> bool:
        """Whether a value is 0 on lanes that are none of a fold's terms: exp(-inf - maximum), which nothing multiplies."""
        if f.moved_by not in self.masked:
            return False
        found = exponential(e, self.nests[f.moved_by], self.nests)
        return found is not None and found.alone

    def terms_mask(self, f: Fold) -> str:
        return self.lanes_mask(f, [guard_text(self, g) for g in f.value.guards])

    def guards_within(self, f: Fold, frame: Frame) -> list[str]:
        """The guards of a product's terms that speak of a frame's lanes alone."""
        own = (g for g in f.guards if tile_indices(g, self.own) <= {*frame})
        return [guard_text(self, g) for g in own]

    def lanes_mask(self, f: Fold, guards: list[str]) -> str:
        """Which lanes along the axis of a fold are there and pass guards, or the name of that."""
        mask = self.mask(frozenset({self.own.axis(f)} - {""}), guards)
        return self.mask_names.get(mask, mask)

    def masks_all(self, f: Fold, read: ir.Read) -> bool:
        """Whether nothing but this maximum and the sums that move with it follows from a value: masked, it gives them no term."""
        value = read.tensor
        if value not in self.frames or self.level_of(read) is not self.levels[-1]:
            return False
        lines = [n for n in self.nests.values() if not is_reducer(n)]
        for s in statements(self.own.body):
            match s:
                case Fold(name, body) if name != f.name and value in leads_to(body, lines):
                    if s.moved_by != f.name:
                        return False
                case Store(tensor) if tensor == value:
                    return False
        return True

    # ---- products
    def product(self, f: Fold, held: bool) -> str:
        left, right = self.by_side(f)
        over = self.own.axis(f)
        rows, columns = self.frame_of(f.axes)
        narrow = storage_dtype(left, right, self.op)
        rows_side = self.factor(f, left, (rows, over), narrow)
        columns_side = self.factor(f, right, (over, columns), narrow)
        state = ""
        if held:
            state = f", {f.name}"
            state += f" * {self.moving[self.shift_of(f)][2]}" if f.moved_by else ""
        return f"tl.dot({rows_side}, {columns_side}{state})"

    def without_rows(self, f: Fold, text: str) -> str:
        """A product, and 0 in rows and columns of which a guard drops all terms: 0 * NaN of another row is no 0."""
        whole = [g for g in f.value.guards if g not in f.guards]
        if not whole:
            return text
        with self.within(self.frame_of(f.axes)):
            mask = self.mask(frozenset(), [guard_text(self, g) for g in whole])
        return f"tl.where({mask}, {text}, 0.0)"

    def by_side(self, f: Fold) -> tuple[ir.Expr, ir.Expr]:
        """The factors of a product: that of its rows, and that of its columns."""
        left, right = f.value.factors
        _, columns = self.frame_of(f.axes)
        return (right, left) if columns in free_indices(left) else (left, right)

    def runs_on(self, f: Fold) -> bool:
        """Whether a product would still run while the next turn of its loop computes its left factor (see `lib.awaited`)."""
        loops = (s for s in statements(self.own.body) if isinstance(s, Loop))
        body = next((s.body for s in loops if f in s.body), ())
        waits = [isinstance(s, Loop) or isinstance(s, Fold) and is_dot(s, self.own) for s in body]
        left = ir.core(self.by_side(f)[0])
        loaded = isinstance(left, ir.Read) and left.tensor not in self.nests
        return sum(waits) == 1 and not f.moved_by and not loaded

    def factor(self, f: Fold, e: ir.Expr, frame: Frame, narrow: str) -> str:
        """A tile of a factor; 0 where there is no term, since 0 * NaN is no 0."""
        flag: ir.Expr | None = None
        match e:
            case ir.Call("seen", (flag, e)):
                pass
        bare = e.arg if isinstance(e, ir.Cast) else e
        inner = bare if bare.dtype == narrow else ir.Cast(bare, narrow)
        loaded = isinstance(inner, ir.Read) and inner.tensor not in self.frames
        if isinstance(inner, ir.Read) and loaded and self.natural(inner, frame) != frame:
            return f"{self.factor(f, e, (frame[1], frame[0]), narrow)}.T"  # it is loaded so
        with self.within(frame), self.computing(f.name):
            guards = self.guards_within(f, frame)
            more = [self.expr(flag)[0]] if flag is not None else self.for_some(f, frame)
            if isinstance(inner, ir.Read) and loaded and not guards + more:
                self.fill[inner.tensor] = 0
            if not more and (not guards if loaded else self.is_zero_outside(f, inner)):
                return self.expr(inner)[0]
            mask = self.lanes_mask(f, guards + more)
            value = ir.core(inner)
            if not (
                isinstance(value, ir.Read) and (loaded or self.frames.get(value.tensor) == frame)
            ):
                return f"tl.where({mask}, {self.expr(inner)[0]}, 0.0)"
            apart = bool(guards + more) and not self.may_be_masked(value, f)
            name = self.masked_value(f, value, mask, apart)
            if loaded:
                return name
            held, self.values[value.tensor] = self.values[value.tensor], (name, ATOM)
            text = self.expr(inner)[0]
            self.values[value.tensor] = held
            return text

    def may_be_masked(self, read: ir.Read, f: Fold) -> bool:
        """Whether a value may be 0 from a product on where that has no term.

        The loop makes it anew in each turn, and what still follows from it counts under the guards of the product alone.
        """
        body, held = list(statements(self.own.body)), {read.tensor}
        if self.level_of(read) is not self.levels[-1]:
            return False
        for s in body[body.index(f) + 1 :]:
            match s:
                case Store(tensor) if held & {tensor, s.value}:
                    return False
                case Fold(_, value) if held & tensors_read(value):
                    if not {*f.value.guards} <= {*value.guards}:
                        return False
                case Let(name, value) if held & tensors_read(value):
                    held.add(name)
        return True

    def level_of(self, read: ir.Read) -> Level:
        """That of the innermost loop whose turns load or compute a value anew."""
        moved = set().union(*(indices(c) for c in read.coords))
        return next((x for x in reversed(self.levels) if x.index in moved), self.levels[0])

    def masked_value(self, f: Fold, read: ir.Read, mask: str, apart: bool) -> str:
        """The name of a value that is 0 outside of a mask, which says where a fold has terms.

        Lanes that are not there are 0 for all who read the value, from where it is made. `apart`: others need what the mask
        leaves out.
        """
        text, here = self.expr(read)[0], self.levels[-1]
        apart = apart or any(known == text and other != mask for known, other in here.masked)
        level = here if apart else self.level_of(read)
        if (text, mask) not in level.masked:
            level.masked[text, mask] = name = self.fresh(text) if apart else text
            line = f"{name} = tl.where({mask}, {text}, 0.0)"
            if level is not here:
                level.lines += self.if_there(set(self.frame), [line])
                return name
            if apart and self.tells_whole(f):
                self.line(f"{name} = {text}")
            self.where_masked(f, line)
        return level.masked[text, mask]

    def for_some(self, f: Fold, frame: Frame) -> list[str]:
        """What the guards of a product ask of one factor's lanes: that some lane of the other factor has them.

        Elements that no row has may be NaN. If the guards only say where rows begin, or only where they end, the ends of a
        loop that begins or ends there are enough. Otherwise there may be gaps between the rows, and each lane is asked.
        """
        over, found = self.own.axis(f), list[ir.Guard]()
        told, alone = dict[str, None](), True
        others = [g for g in f.guards if tile_indices(g, self.own) - {*frame}]
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
                alone = False
        if not alone and not (self.one_sided(others, over) and {*others} <= {*self.within_of(f)}):
            told[self.some_lane(f, frame)] = None
        inside = {w.index: (poly(0), w.extent) for w in self.own.walks}
        facts = self.context.facts
        asked = (g for g in found if prove(g.poly, ">=", poly(0), facts, inside) is not True)
        return [*dict.fromkeys(guard_text(self, g) for g in asked), *told]

    def one_sided(self, guards: list[ir.Guard], over: str) -> bool:
        """Whether guards only say where rows begin, or only where they end."""
        return {self.sign(g, over) for g in guards} in ({1}, {-1})

    def within_of(self, f: Fold) -> tuple[ir.Guard, ...]:
        """The guards by which the loop over a fold's terms begins and ends."""
        loops = (s for s in statements(self.own.body) if isinstance(s, Loop))
        own = (s.within for s in loops if s.index in f.over and f in statements(s.body))
        return next(own, ())

    def some_lane(self, f: Fold, frame: Frame) -> str:
        """Whether a lane along the summed index, in the frame of one factor, passes the guards beside some lane of the other."""
        over = self.own.axis(f)
        rows, columns = self.frame_of(f.axes)
        other = (over, columns) if {*frame} == {rows, over} else (rows, over)
        with self.within(other):
            mask = self.mask(frozenset(other) - {""}, self.guards_within(f, other))
        some = self.fresh("some")
        self.line(f"{some} = tl.max(({mask}).to(tl.int32), {1 - other.index(over)})")
        return f"{some}{'[:, None]' if frame.index(over) == 0 else '[None, :]'} > 0"

    def tells_whole(self, f: Fold) -> bool:
        """Whether a fold has all terms in whole blocks: a product that sums over another index than the loop may not."""
        level = self.levels[-1]
        return level.told and level.index in f.over

    def where_masked(self, f: Fold, line: str) -> None:
        """A line for blocks in which a fold may lack terms."""
        level = self.levels[-1]
        if not self.tells_whole(f):
            self.line(line)
            return
        block = next((x for x in reversed(self.lines) if not x.startswith("    ")), "")
        if block != "if masked:":
            self.line("if masked:")
        level.is_cut = True
        self.line(f"    {line}")

    # ---- states
    def open_state(self, f: Fold) -> None:
        nest = self.nests[f.name]
        rows, columns = self.frame_of(f.axes) if is_dot(f, self.own) else self.folded(f)
        if self.is_apart(f):
            rows, columns = self.frame_of({*f.axes, *f.over})
        shape = ", ".join(self.own.walk(i).block if i else "1" for i in (rows, columns))
        if f.name in self.frames:  # a loop before this one made it, too
            self.assigned.discard(f.name)
        name, line = self.variable(f.name), self.levels[-1].lines.append
        kind = nest.fold.body.dtype if f.value.is_place else nest.dtype  # of a place its extreme's
        start, dtype = start_text(self, nest, kind), self.dtype(kind)
        if f.value.is_place:
            line(f"{best_of(self, nest)} = tl.full(({shape}), {start}, {dtype})")
            start, dtype = NO_PLACE, self.place_dtype(f)
        text = f"tl.full(({shape}), {start}, {dtype})"
        line(f"{name} = {text if start != '0.0' else f'tl.zeros(({shape}), {dtype})'}")
        self.values[f.name], self.frames[f.name] = (name, ATOM), (rows, columns)

    def close_state(self, f: Fold) -> None:
        """Behind the loop a maximum is itself again, and lanes that kept states of their own become one."""
        if is_dot(f, self.own) and (text := self.without_rows(f, f.name)) != f.name:
            self.levels[-1].lines.append(f"{f.name} = {text}")
        if self.is_apart(f):
            frame, nest = self.frames[f.name], self.nests[f.name]
            alone = self.folded(f) == ("", "")  # a number, which is no tile
            text = end_text(self, nest, f.name, None if alone else frame.index(f.over[0]))
            self.levels[-1].lines.append(f"{f.name} = {text}")
            self.frames[f.name] = self.folded(f)
        if f.value.is_place:
            text = found(self, self.nests[f.name], f.name)
            self.levels[-1].lines.append(f"{f.name} = {wrapped(text)}.to(tl.int64)")
        if self.frames[f.name] == ("", "") and not self.is_apart(f) and self.own.axis(f):
            for name in (f.name, *([self.extremes[f.name]] if f.value.is_place else ())):
                # A number, which is stored at a place that is no tile.
                number = f"tl.sum({name}).to({name}.dtype)"
                self.levels[-1].lines.append(f"{name} = {number}")
        self.values[f.name] = (f.name, ATOM)
        self.moving = {s: own for s, own in self.moving.items() if own[0] != f.name}

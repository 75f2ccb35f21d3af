"""The folds of a level as templates see them: initial values, how a block enters them, their results.

Input: a `Level` and the `KernelWriter` that prints it. Output: `Fold`s, pairs before the others: `walked` for a kernel that
reads the terms, `merged` for one that loads the stored results of such kernels. The texts are rows of `folds.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

from tritongen.emit.fold_lines import (
    best_of,
    counts_as_walked,
    end_text,
    found,
    place_of,
    start_text,
    term,
    term_mask,
)
from tritongen.emit.folds import NO_PLACE, PAIRS, Paired, combined
from tritongen.emit.kernel_writer import KernelWriter
from tritongen.emit.row_views import Fold, Lines, Part, Variable, Walk
from tritongen.emit.text import wrap_text
from tritongen.emit.tiles import (
    compute,
    counting_dtype,
    forget_tile,
    in_blocks,
    tile_stores,
    tile_values,
)
from tritongen.ir import nodes as ir
from tritongen.ir.bounds import takes_all
from tritongen.ir.functions import ATOM
from tritongen.ir.reducers import REDUCERS
from tritongen.schedule.classes.rows import fold_state
from tritongen.schedule.held import held_by
from tritongen.schedule.members import is_reducer
from tritongen.schedule.paired import state_of
from tritongen.schedule.plan import Level, Pair


@dataclass(frozen=True, slots=True)
class Steps:
    """How a kernel steps through a row: the number of terms of a block, the number of its first term, whether it meets all.

    `final` is None for a kernel whose launches decide it.
    """

    count: str
    first: str = "0"
    final: bool | None = True
    pairs: Mapping[str, Paired] = field(default_factory=lambda: PAIRS)


def walked(writer: KernelWriter, level: Level, steps: Steps, mask_redundant: Set[str]) -> Walk:
    """One pass over the columns; `mask_redundant`: the folds whose masked lanes hold what they start from."""
    folds = _folds(writer, level, steps.pairs)
    starts = [fold.start() for fold in folds]
    comments = [_comment(fold) for fold in folds]
    with in_blocks(writer):
        taken = [fold.take(steps, fold.name in mask_redundant) for fold in folds]
        stores = tile_stores(writer, level.stores)
    forget_tile(writer)
    ends = [fold.either(steps) if steps.final is None else fold.end(steps) for fold in folds]
    stages = zip(ends, starts, taken, comments, strict=True)
    parts = (
        replace(end, start=start, term=lines, take=take, comment=comment)
        for end, start, (lines, take), comment in stages
    )
    return Walk(tuple(parts), lines=stores)


def merged(
    writer: KernelWriter, level: Level, pairs: Mapping[str, Paired] = PAIRS
) -> tuple[Fold, ...]:
    """Loads and merges the stored parts of the rows. What is `left` of a fold is one part that stands for all of them."""
    folds = _folds(writer, level, pairs)
    comments = [_comment(fold) for fold in folds]
    merges = zip(folds, comments, strict=True)
    return tuple(replace(fold.merge(), comment=comment) for fold, comment in merges)


def _folds(
    writer: KernelWriter, level: Level, pairs: Mapping[str, Paired]
) -> list[_Single | _Pair]:
    alone = (n for n in level.folds if n not in level.paired)
    nests = {n.name: n for n in writer.kernel.nests}
    joint = [_Pair(writer, pair, pairs) for pair in level.pairs]
    return [*joint, *(_Single(writer, nests[name]) for name in alone)]


def _comment(fold: _Single | _Pair) -> Lines:
    return tuple(line for name in fold.results for line in fold.writer.comment(name))


def loaded_parts(writer: KernelWriter, states: Lines, identities: Lines) -> tuple[Part, ...]:
    return tuple(
        Part(writer.pointer(state), loaded=writer.fresh(f"{state}s"), identity=identity)
        for state, identity in zip(states, identities, strict=True)
    )


def parts_either(
    writer: KernelWriter, states: Lines, values: Lines, identities: Lines
) -> tuple[Part, ...]:
    """The same where a launch stores or loads them, or is given no scratch."""
    return tuple(
        Part(writer.fresh(f"{state}_ptr"), value, writer.fresh(f"{state}s"), identity)
        for state, value, identity in zip(states, values, identities, strict=True)
    )


def stored_parts(writer: KernelWriter, states: Lines, values: Lines) -> tuple[Part, ...]:
    return tuple(Part(writer.pointer(s), v) for s, v in zip(states, values, strict=True))


class _Single:
    """A single fold: one accumulator per lane, and the index of its element if that is wanted."""

    def __init__(self, writer: KernelWriter, nest: ir.Nest):
        self.writer, self.nest, self.name = writer, nest, nest.name
        self.monoid, self.states = REDUCERS[nest.fold.op], tuple(s for s, _ in fold_state(nest))
        held = held_by(writer.kernel.nests, nest.name)
        self.results = (held, nest.name) if held else (nest.name,)
        self.places = nest.fold.is_place
        counted = counts_as_walked(writer, nest)
        self.all = counted and takes_all(nest.fold, writer.context.facts)
        self.names: tuple[str, ...] = ()

    def start(self) -> tuple[Variable, ...]:
        writer, terms, shape = self.writer, self.nest.fold.body.dtype, "(ROWS, BLOCK)"
        dtype, identity = writer.dtype(terms), start_text(writer, self.nest, terms)
        if not self.places:
            self.names = (writer.fresh(f"{self.name}_acc"),)
            return (Variable(self.names[0], shape, identity, dtype),)
        best, at = self.names = writer.fresh(f"{self.name}_best"), writer.fresh(f"{self.name}_at")
        nowhere = "-1" if self.all else NO_PLACE
        place = Variable(at, shape, nowhere, place_dtype(writer))
        return Variable(best, shape, identity, dtype), place

    def take(self, steps: Steps, mask_redundant: bool) -> tuple[Lines, str]:
        writer, nest = self.writer, self.nest
        with writer.apart() as lines:
            tile_values(writer, nest.fold.body)
            value = term(writer, nest, mask_redundant)
            if not self.places:
                kind = ir.kind_of(nest.fold.body.dtype, writer.op)
                return tuple(lines), combined(self.monoid.combine[kind], self.names[0], value)
            place, function = place_of(writer, nest), self.monoid.next
            if not self.all:
                place = f"tl.where({term_mask(writer, nest)}, {place}, {NO_PLACE})"
                function = self.monoid.first
            place = f"{wrap_text(place, ATOM)}.to({place_dtype(writer)})"
            state = ", ".join(self.names)
            forget_tile(writer)
        return tuple(lines), f"{state} = {function}({state}, {value[0]}, {place})"

    def end(self, steps: Steps) -> Fold:
        writer, nest = self.writer, self.nest
        reduce = end_text(writer, nest, ", ".join(self.names))
        assert steps.final is False  # where a walk meets whole rows it has pairs alone
        if not self.places:
            return Fold(parts=stored_parts(writer, self.states, (reduce,)))
        best, at = best_of(writer, nest, self.names[0]), self.names[1]
        left = stored_parts(writer, self.states, (best, at))
        settle = self.settled(at, steps)
        return Fold(result=f"{best}, {at}", reduce=reduce, settle=settle, parts=left)

    def either(self, steps: Steps) -> Fold:
        """What the walk comes to, or what is left of it, or what was left."""
        writer, nest = self.writer, self.nest
        reduce = end_text(writer, nest, ", ".join(self.names))
        values: Lines = (
            (best_of(writer, nest, self.names[0]), self.name) if self.places else (self.result(),)
        )
        settle = self.settled(self.name, steps) if self.places else ()
        finish = self.finish(self.name) if self.places else ()
        parts = parts_either(writer, self.states, values, self.identities())
        merge = end_text(writer, nest, ", ".join(part.loaded for part in parts))
        state = ", ".join(values)
        return Fold((), (), "", state, reduce, settle, state, merge, finish, parts)

    def merge(self) -> Fold:
        writer = self.writer
        parts = loaded_parts(writer, self.states, self.identities())
        reduce = end_text(writer, self.nest, ", ".join(part.loaded for part in parts))
        if not self.places:
            left = stored_parts(writer, self.states, (self.result(),))
            return Fold(result=left[0].value, reduce=reduce, parts=parts, left=left)
        best, finish = best_of(writer, self.nest), self.finish(self.name)
        return Fold(result=f"{best}, {self.name}", reduce=reduce, finish=finish, parts=parts)

    def result(self) -> str:
        name = self.writer.variable(self.name)
        self.writer.values[self.name] = (name, ATOM)
        return name

    def settled(self, at: str, steps: Steps) -> Lines:
        # If no term is larger than the value of an empty lane, all terms are equal.
        place = f"tl.where({at} < 0, {steps.first}, {at})" if self.all else at
        return (f"{at} = {place}.to(tl.int64)",)

    def finish(self, at: str) -> Lines:
        self.writer.values[self.name] = (at, ATOM)
        place = found(self.writer, self.nest, at)
        return () if place == at else (f"{at} = {place}",)

    def identities(self) -> Lines:
        start = start_text(self.writer, self.nest, self.nest.fold.body.dtype)
        return (start, NO_PLACE)[: len(self.states)]


class _Pair:
    """Two folds in one state a row, or a lane."""

    def __init__(self, writer: KernelWriter, pair: Pair, pairs: Mapping[str, Paired]):
        self.writer, self.pair, self.name = writer, pair, pair.first
        self.monoid, self.states = pairs[pair.kind], state_of(pair)
        self.results = pair.first, pair.second
        self.names: tuple[str, ...] = ()

    def text(self, template: str, names: Lines = (), **given: str) -> str:
        folds = {"first": self.pair.first, "second": self.pair.second}
        return template.format(s=names, state=", ".join(names), **folds, **given)

    def start(self) -> tuple[Variable, ...]:
        writer, dtype, variables = self.writer, self.writer.dtype("compute"), []
        for template, shape, identity in self.monoid.state:
            name = self.text(template)
            if name not in self.results or name in writer.assigned:
                name = writer.fresh(name)
            writer.assigned.add(name)
            variables.append(Variable(name, shape, identity, dtype))
        self.names = tuple(v.name for v in variables)
        return tuple(variables)

    def take(self, steps: Steps, mask_redundant: bool) -> tuple[Lines, str]:
        writer, pair = self.writer, self.pair
        first = next(n for n in writer.kernel.nests if n.name == pair.first)
        with writer.apart() as lines:
            tile_values(writer, first.fold.body)
            x = term(writer, first, mask_redundant)[0]
            x = x if x.isidentifier() else writer.assign(writer.fresh("t"), x)
            if self.monoid.counted:
                given = {"columns": writer.axis_mask["col"], "dtype": writer.dtype("compute")}
                writer.line(self.text(self.monoid.counted, self.names, **given))
            half = f", {writer.half(pair.stored)}" if pair.stored else ""
        taken = self.text(self.monoid.take, self.names, x=x, half=half, count=steps.count)
        return tuple(lines), taken

    def end(self, steps: Steps) -> Fold:
        if steps.final:
            return Fold(finish=self.finish(self.names))
        if not self.monoid.left:
            return Fold(parts=stored_parts(self.writer, self.states, self.names))
        reduce = self.merging(tuple(self.text(left, self.names) for left in self.monoid.left))
        left = self.stored(self.names)
        return Fold(result=", ".join(self.results), reduce=reduce, parts=left)

    def either(self, steps: Steps) -> Fold:
        """What the walk comes to, or what is left of it, or what was left."""
        parts = parts_either(self.writer, self.states, self.names, self.identities())
        merge = self.text(self.monoid.merge, parts=", ".join(part.loaded for part in parts))
        merged, finish = ", ".join(self.names[:2]), self.finish(self.names)
        return Fold(merged=merged, merge=merge, finish=finish, parts=parts)

    def identities(self) -> Lines:
        return tuple(identity for _, _, identity in self.monoid.state)

    def merging(self, states: Lines) -> str:
        self.writer.assigned |= set(self.results)
        return self.text(self.monoid.merge, parts=", ".join(states))

    def stored(self, names: Lines) -> tuple[Part, ...]:
        """One part for all states that have these names, if this kind of pair leaves such a part."""
        values = tuple(self.text(value, names) for value in self.monoid.stored)
        return stored_parts(self.writer, self.states, values) if values else ()

    def merge(self) -> Fold:
        parts = loaded_parts(self.writer, self.states, self.identities())
        loaded = tuple(part.loaded for part in parts)
        reduce, left = self.merging(loaded), self.stored(loaded)
        finish, result = self.finish(self.results), ", ".join(self.results)
        return Fold(result=result, reduce=reduce, finish=finish, parts=parts, left=left)

    def finish(self, names: Lines) -> Lines:
        """The state as the values of the two folds."""
        writer, pair = self.writer, self.pair
        writer.values[pair.first] = (names[0], ATOM)
        with writer.apart() as lines:
            if self.monoid.end and pair.shift is not None:
                pointwise = [n for n in writer.kernel.nests if not is_reducer(n)]
                compute(writer, pair.shift, pointwise)  # from which the shift follows
                given = {"shift": writer.expr(pair.shift)[0], "terms": terms(writer)}
                writer.line(f"{names[1]} = {self.text(self.monoid.end, names[:2], **given)}")
        writer.values[pair.second] = (names[1], ATOM)
        return tuple(lines)


def terms(writer: KernelWriter) -> str:
    """How many terms a row has."""
    axis = writer.kernel.axes[1]
    lines = f"{writer.extent(axis.outer.extent, 'lines')} * " if axis.outer.digits else ""
    return f"{lines}{writer.extent(axis.run.extent, 'cols')}"


def place_dtype(writer: KernelWriter) -> str:
    """The dtype of the numbers of a row's terms."""
    return counting_dtype(writer, "PLACE", writer.kernel.axes[1].extent)

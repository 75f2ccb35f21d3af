"""Nests and walks to a kernel: one lowering for all classes.

    lower("softmax", nests, (Walk("n", N, "tile", "ROWS"), Walk("d", D, "loop", "BLOCK")), stores=("y",))

Input: canonical nests (one reducer each, at the root), in an order in which every value stands behind what it reads; a
walk for each of their indices; the values that are stored. Output: a `Kernel`.

Each value is placed at the innermost level that one of its indices asks for. A reducer over a looped index is a fold that
the loop carries. A value that waits for a fold waits for the next loop over that index, unless it only moves with the
fold. A value inside a loop is computed in each loop that needs it.

Not here: which walks are good (`schedule`), addresses and masks (`emit`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tritongen.ir import nodes as ir
from tritongen.ir.free import tensors_read
from tritongen.kernel.moving import exponential
from tritongen.kernel.nodes import NUMBERS, Fold, Kernel, Let, Loop, Stmt, Store, Walk


class CannotLower(Exception):
    """These walks make no kernel of these nests; the message says why."""


def lower(
    name: str, nests: Sequence[ir.Nest], walks: Sequence[Walk], stores: Sequence[str]
) -> Kernel:
    """The kernel that computes `stores`; CannotLower where the walks allow none."""
    extents = {w.index: w.extent for w in walks}
    for n in nests:
        for b in n.ranges:
            if b.lo.terms or extents.get(b.index) != b.hi:
                raise CannotLower(f"{n.name}: no walk covers the range of {b.index}")
    programs = {w.index for w in walks if w.shared}
    for n in nests:
        if own := programs & n.reduced:
            raise CannotLower(f"{n.name} is folded over {min(own)}, which programs share")
    body = _Lowering(nests, walks, stores).body(stores, frozenset(), frozenset())
    return Kernel(name, tuple(walks), tuple(body))


class _Lowering:
    """`box`, `over`, `reads`: of each nest, the indices that it keeps, all its indices, and the others that it reads."""

    def __init__(self, nests: Sequence[ir.Nest], walks: Sequence[Walk], stores: Sequence[str]):
        self.walks, self.stores = walks, frozenset(stores)
        self.nests = {n.name: n for n in nests}
        self.loops = tuple(w.index for w in walks if w.how in ("each", "loop"))
        self.box = {n.name: n.over for n in nests}
        self.over = {n.name: n.over | n.reduced for n in nests}
        self.reads = {n.name: tensors_read(n.body) & self.box.keys() - {n.name} for n in nests}
        self.moved: dict[str, str] = {}  # sums, and the maxima that they move with
        self.again: set[str] = set()  # stored by a closed loop; others compute it again

    # ---- one level
    def body(
        self, wanted: Iterable[str], opened: frozenset[str], known: frozenset[str]
    ) -> list[Stmt]:
        """The statements that compute the wanted values, inside of the loops that are open; `known`: what is there."""
        out: list[Stmt] = []
        done = set(known)
        left = [n for n in self.needed(wanted, done) if not self.inside(n, opened)]
        while left:
            ready = (n for n in left if self.reads[n] <= done)
            here = next((n for n in ready if self.loop_of(n, opened) is None), None)
            if here is not None:
                out += self.statements(here)
                done.add(here)
                left.remove(here)
                continue
            turns = ((x, self.together(x, left, opened, done)) for x in self.loops)
            index, roots = next((turn for turn in turns if turn[1]), ("", set()))
            if not roots:
                raise CannotLower(f"{left[0]} waits for a value that no loop gives")
            out.append(self.loop(index, roots, opened, frozenset(done)))
            stored = (n for n in left if n in roots & self.stores and self.carrier(n) == index)
            out += map(self.store, stored)
            gone = {n for n in roots if index in self.box[n]}
            self.again |= gone
            done |= roots - gone
            left = [n for n in left if n not in roots]
        return out

    def needed(self, wanted: Iterable[str], done: set[str]) -> list[str]:
        """The wanted values and those that they read, in order."""
        found, ahead = set[str](), list(wanted)
        while ahead:
            name = ahead.pop()
            if name not in found | done:
                found.add(name)
                ahead += self.reads[name]
        return [name for name in self.nests if name in found]

    def loop_of(self, name: str, opened: frozenset[str]) -> str | None:
        """The outermost loop that a value needs and that is not open."""
        return next((x for x in self.loops if x in self.over[name] - opened), None)

    def inside(self, name: str, opened: frozenset[str]) -> bool:
        """Whether each loop that needs a value computes it: it is not stored, and it has an index of a closed loop."""
        closed = self.box[name] & set(self.loops) - opened
        return name not in self.stores - self.again and bool(closed)

    # ---- loops
    def together(
        self, index: str, left: list[str], opened: frozenset[str], done: set[str]
    ) -> set[str]:
        """The values that the next loop over an index can compute: those that wait for no fold of its own."""
        roots: set[str] = set()
        for name in left:
            if self.loop_of(name, opened) != index:
                continue
            waits = self.outside(name, index, done, roots)
            moved = {m for m in waits & roots if self.moves(name, m)}
            if waits <= moved and len(moved) < 2:  # it is multiplied by what one maximum says
                roots.add(name)
                self.moved |= dict.fromkeys([name], *moved) if moved else {}
        return roots

    def outside(self, name: str, index: str, done: set[str], roots: set[str]) -> set[str]:
        """The values that are not there yet and that the loop does not compute by the way, or stores as its `roots`."""
        found, seen, ahead = set[str](), set[str](), list(self.reads[name])
        while ahead:
            other = ahead.pop()
            if other in done or other in seen:
                continue
            seen.add(other)
            kept = other in self.stores - self.again
            if index in self.box[other] and (not kept or other in roots):
                ahead += self.reads[other]
            else:
                found.add(other)
        return found

    def loop(
        self, index: str, roots: set[str], opened: frozenset[str], known: frozenset[str]
    ) -> Loop:
        body = self.body(roots, opened | {index}, known)
        if any(index in self.box[name] for name in roots):  # it stores a value for each turn
            return Loop(index, tuple(body))
        first, *others = (self.nests[name].fold.guards for name in roots)
        shared = (g for g in first if all(g in own for own in others))
        return Loop(index, tuple(body), tuple(shared))

    # ---- statements
    def statements(self, name: str) -> list[Stmt]:
        n = self.nests[name]
        stmt: Stmt = Let(name, n.body, self.axes(n), n.dtype)
        if isinstance(n.body, ir.Reduce):
            stmt = Fold(name, n.body, self.axes(n), n.dtype, self.moved.get(name, ""))
        stored = name in self.stores - self.again and self.carrier(name) is None
        return [stmt, self.store(name)] if stored else [stmt]

    def store(self, name: str) -> Store:
        n, own = self.nests[name], self.box[name]
        once = tuple(w.index for w in self.walks if w.shared and w.index not in own)
        return Store(name, n.coords, self.axes(n), once)

    def carrier(self, name: str) -> str | None:
        """The loop that carries the state of a fold: the outermost one over an index of its terms."""
        own = self.nests[name].reduced
        return next((x for x in self.loops if x in own), None)

    def axes(self, n: ir.Nest) -> tuple[str, ...]:
        own = (w for w in self.walks if w.index in self.box[n.name])
        return tuple(w.index for w in own if w.how not in NUMBERS)

    # ---- what moves with a maximum
    def moves(self, name: str, maximum: str) -> bool:
        """Whether name = sum(exp(x - maximum) * t), over the indices of the maximum, which is that of x; t does not read it."""
        n, m = self.nests[name], self.nests[maximum]
        match n.body, m.body:
            case ir.Reduce("sum", ours, guards, term), ir.Reduce("max", theirs, others):
                same = {b.index for b in ours} == {b.index for b in theirs} and guards == others
                inside = self.box[maximum] <= self.box[name]
                return same and inside and exponential(term, m, self.nests) is not None
        return False

"""A kernel held to its nests: what must be so for any op, whatever lowered it.

    verify(kernel, nests, stores)    # BadKernel says what is not

A value is computed as its nest says, behind all that it reads, where all its indices are open; a fold takes each term
once; a state is read behind the loop that carries it, but by what moves with it; each result is stored once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import index, indices
from tritongen.ir.free import binders_of, free_indices, reads, tensors_read
from tritongen.kernel.nodes import Fold, Kernel, Let, Loop, Stmt, Store, carried, folded, statements


class BadKernel(Exception):
    """A fault of the compiler: the kernel does not compute its nests."""


def verify(kernel: Kernel, nests: Sequence[ir.Nest], stores: Sequence[str]) -> None:
    """Raises BadKernel for the first thing that is wrong."""
    _Verifier(kernel, {n.name: n for n in nests}).all(stores)


@dataclass(slots=True)
class _Verifier:
    kernel: Kernel
    nests: dict[str, ir.Nest]
    known: set[str] = field(default_factory=set)  # values that are there
    open: set[str] = field(default_factory=set)  # indices that have lanes, or a number
    states: dict[str, str] = field(default_factory=dict)  # folds that an open loop carries, by it
    stored: list[str] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)  # those that are open

    def check(self, holds: bool, what: str) -> None:
        if not holds:
            raise BadKernel(f"{self.kernel.name}: {what}")

    def all(self, stores: Sequence[str]) -> None:
        walked = [w.index for w in self.kernel.walks]
        self.check(len(walked) == len(set(walked)), "an index is walked twice")
        read = {t for n in self.nests.values() for t in tensors_read(n.body)}
        both = {*walked} & (self.nests.keys() | read)
        self.check(not both, f"an index and a value are both called {', '.join(sorted(both))}")
        self.open = {w.index for w in self.kernel.walks} - set(self.kernel.loops)
        self.body(self.kernel.body)
        for name in stores:
            count = self.stored.count(name)
            self.check(count == 1, f"{name} is stored {count} times")

    def body(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            match stmt:
                case Let():
                    self.let(stmt)
                case Fold():
                    self.fold(stmt)
                case Store():
                    self.store(stmt)
                case Loop():
                    self.loop(stmt)

    # ---- statements
    def let(self, s: Let) -> None:
        nest = self.nest(s.name)
        self.check(s.value == nest.body, f"{s.name} is another value than its line's")
        self.lies(s.name, s.axes)
        self.reads(s.name, s.value)
        self.known.add(s.name)

    def fold(self, f: Fold) -> None:
        nest = self.nest(f.name)
        self.check(f.value == nest.body, f"{f.name} folds other terms than its line's")
        self.lies(f.name, f.axes)
        for b in binders_of(nest):
            self.covered(f.name, b)
            walked = b.index in self.open
            self.check(walked, f"{f.name} folds over {b.index}, which nothing walks here")
        over = set(f.over) & set(self.kernel.loops)
        self.check(bool(over) == (f.name in self.states), f"no loop carries {f.name}")
        if f.moved_by:
            m = self.nests.get(f.moved_by)
            held = m is not None and self.states.get(m.name) == self.states.get(f.name, "none")
            self.check(held, f"{f.name} moves with {f.moved_by}, which its loop does not carry")
            self.check(m.fold.guards == nest.fold.guards, f"{f.name} has other terms than {f.moved_by}")  # type: ignore[union-attr]
        self.reads(f.name, f.value, moving=f.moved_by)
        self.known.add(f.name)

    def store(self, s: Store) -> None:
        name = s.value or s.tensor
        nest = self.nest(name)
        there = name in self.known and name not in self.states
        self.check(there, f"{s.tensor} is stored before it is there")
        own = s.coords if not s.value else s.coords[1:]
        at = own == nest.coords or s.adds and {*nest.coords} >= {*map(index, self.indices_of(s))}
        self.check(at, f"{s.tensor} is stored at another place")
        box = nest.over
        # Programs that share a loop store each its own run of that.
        runs = {loop.part for loop in self.loops if loop.index in box}
        part = (
            indices(s.coords[0]) if s.value and not s.adds else set()
        )  # of a state, in front of its own place
        shared = {w.index for w in self.kernel.walks if w.shared} - box - runs - part
        wrong = sorted(shared ^ set(s.once))
        self.check(not wrong, f"{s.tensor} is stored once for each {wrong}")
        self.stored.append(s.tensor)

    def loop(self, loop: Loop) -> None:
        self.check(loop.index not in self.open, f"{loop.index} is walked inside of its own loop")
        own = carried(self.kernel, loop)
        left_out = f"the loop over {loop.index} leaves out"
        for f in folded(loop):
            self.check(set(loop.within) <= set(f.value.guards), f"{left_out} terms of {f.name}")
        for s in statements(loop.body):
            if isinstance(s, Store):
                moved = loop.index in {b.index for b in self.nest(s.value or s.tensor).box}
                self.check(moved and {*loop.within} <= {*s.within}, f"{left_out} stores")
        before = set(self.known), dict(self.states)
        self.open.add(loop.index)
        self.loops.append(loop)
        self.states |= {f.name: loop.index for f in own}
        self.body(loop.body)
        self.open.discard(loop.index)
        self.loops.pop()
        self.known, self.states = before[0] | {f.name for f in own}, before[1]

    def indices_of(self, s: Store) -> set[str]:
        """Those that say where a store goes, and whether it does."""
        return set().union(*map(indices, (*s.coords, *(g.poly for g in s.within))))

    # ---- what each value needs
    def nest(self, name: str) -> ir.Nest:
        self.check(name in self.nests, f"{name} is no line of the op")
        return self.nests[name]

    def lies(self, name: str, axes: tuple[str, ...]) -> None:
        """Whether a value has a lane or a number for each index of its line, and no other."""
        nest = self.nests[name]
        own = nest.over
        self.check(own - self.kernel.numbers == set(axes), f"{name} lies over {axes}")
        for b in nest.box:
            self.covered(name, b)
            self.check(b.index in self.open, f"{name} is computed where nothing walks {b.index}")

    def covered(self, name: str, b: ir.Binder) -> None:
        whole = not b.lo.terms and self.kernel.walk(b.index).extent == b.hi
        self.check(whole, f"{name}: {b.index} is walked over another range")

    def reads(self, name: str, value: ir.Expr, moving: str = "") -> None:
        body = value.body if isinstance(value, ir.Reduce) else value
        for tensor in tensors_read(body) & self.nests.keys():
            self.check(tensor in self.known, f"{name} reads {tensor} before it is there")
            if tensor in self.states and not moving:
                # A value of the loop may read a maximum that moves, for sums that move with it.
                alone = self.only_moving(name, tensor)
                self.check(alone, f"{name} reads {tensor} while its loop runs")
        for read in reads(body):  # a program has the elements of its own lanes, and no others
            nest = self.nests.get(read.tensor)
            same = nest is None or (read.coords == nest.coords and read.fill is None)
            self.check(same, f"{name} reads {read.tensor} at another place")
        lanes = free_indices(body) - self.open
        self.check(not lanes, f"{name} reads at {sorted(lanes)}, which nothing walks here")

    def only_moving(self, name: str, maximum: str) -> bool:
        """Whether all that follows from a value in the loop are sums that move with that maximum."""
        carrier = next(loop for loop in self.loops if loop.index == self.states[maximum])
        for s in statements(carrier.body):
            match s:
                case Fold(other) if other in self.states and name in tensors_read(s.value.body):
                    if s.moved_by != maximum:
                        return False
                case Fold(other, value) | Let(other, value) if name in tensors_read(value):
                    if not self.only_moving(other, maximum):
                        return False
                case Store(tensor) if (s.value or tensor) == name:
                    return False
        return True

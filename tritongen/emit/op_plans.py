"""One op of a file as it is printed: the plans of its typings, and the ops that stand behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tritongen.emit import asked
from tritongen.ir import nodes as ir
from tritongen.schedule.plan import Plan


@dataclass(frozen=True, slots=True)
class OpPlans:
    """One op of a file: plans for each of its typings.

    `typings`: as the spec has them; a plan may be of some of one's dtypes alone (`schedule/narrowed.py`). `hosts`: what each
    plan is of, with the names that what the public calls has for them, `shown` from those to the spec's. `own`: what the op's functions are called after. `outside`, `mark`: as in `Context`.
    `on_request`: whoever calls says which results are wanted (`asked.py`). `backward`: the gradient, but of operands
    whose gradient is `handed_on`, another one, the same along these dims; or `no_gradient`: why there is none. `forward`: what
    runs in its place where a gradient is wanted, that is then behind it: it keeps values. `through`: whether the op has no
    kernels but those of `forward`. `autotune`: whether its kernels have tables of configs to measure. `stands_for`: the op
    in whose place it runs, whose name errors of a call have.
    """

    name: str
    typings: tuple[ir.Op, ...]
    plans: tuple[Plan, ...]
    hosts: tuple[ir.Op, ...]
    own: str = ""
    shown: Mapping[str, str] = field(default_factory=dict)
    outside: frozenset[str] = frozenset()
    mark: str = ""
    on_request: bool = False
    backward: OpPlans | None = None
    forward: OpPlans | None = None
    through: bool = False
    handed_on: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    no_gradient: str = ""
    autotune: bool = False
    stands_for: OpPlans | None = None

    @property
    def differentiated(self) -> ir.Op:
        """The typing that the gradient is of: that with the most floats."""
        return differentiated(self.typings)

    @property
    def printed(self) -> Iterator[OpPlans]:
        """The op, and those behind it; in front of it what it runs through."""
        own = [self, *([self.forward] if self.forward else [])]
        yield from reversed(own) if self.through else own
        if back := (self.forward or self).backward:
            yield from back.printed

    @property
    def flags(self) -> dict[str, str]:
        """The parameter that asks for each output, where there are such."""
        found = [asked.flags(*own) for own in zip(self.plans, self.hosts, strict=True)]
        return max(found, key=len) if self.on_request else {}


def differentiated(typings: tuple[ir.Op, ...]) -> ir.Op:
    return max(typings, key=lambda op: sum(p.kind == "float" for p in op.typarams))

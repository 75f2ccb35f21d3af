"""The compiler as one row of functions: read this file first.

    text --parse--> ast --check--> ir --plan--> plan --print--> source --black--> file

`build` runs the row for a file of ops; each stage stands alone and prints (`tritongen show`).
Nothing here imports torch or triton.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tritongen.check import Checked, check
from tritongen.emit.module import OpPlans, format_source, module_source
from tritongen.errors import Diagnostic
from tritongen.ir import nodes as ir
from tritongen.ir.verify import verify
from tritongen.schedule import plan_op
from tritongen.schedule.aside import is_generated
from tritongen.schedule.plan import Plan
from tritongen.syntax.parse import parse


@dataclass(frozen=True, slots=True)
class Module:
    """One file of ops, compiled. `raw` is the source before black."""

    name: str
    origin: str
    raw: str
    items: tuple[OpPlans, ...]
    warnings: tuple[Diagnostic, ...]

    @property
    def source(self) -> str:
        """The module as it is written to `generated/`."""
        return format_source(self.raw)

    @property
    def ops(self) -> dict[str, tuple[ir.Op, ...]]:
        return {item.name: tuple(p.op for p in item.plans) for item in self.items}

    @property
    def plans(self) -> dict[str, tuple[Plan, ...]]:
        return {item.name: item.plans for item in self.items}


def build(
    text: str,
    name: str = "<text>",
    standalone: bool = False,
    only: str | None = None,
    origin: str | None = None,
) -> Module:
    """Compile a file of ops; raises SpecError with everything that is wrong with it.

    Findings call the file `name`; the module calls it `origin`, where that is another.
    `only="nest"` plans every step as the general nest: what the tests hold all other variants against.
    """
    checked = check(parse(text, name))
    items = tuple(
        OpPlans(c.name, plans(c, only, frozenset(o.name for o in checked))) for c in checked
    )
    stem = Path(name).stem if name != "<text>" else checked[0].name
    origin = origin or name
    raw = module_source(stem, origin, text, items, standalone)
    return Module(stem, origin, raw, items, tuple(w for c in checked for w in c.warnings))


def plans(
    checked: Checked, only: str | None = None, ops: frozenset[str] = frozenset()
) -> tuple[Plan, ...]:
    """A plan for each typing of one op; no kernel is called what one of `ops`, those of the file, is."""
    own = checked.name
    while any(is_generated(other, own) for other in ops):
        own += "_"
    several = len(checked.typings) > 1
    out = []
    for op in checked.typings:
        verify(op)
        kinds = "_".join(p.kind for p in op.typarams)
        out.append(_planned(op, f"{own}_{kinds}" if several else own, only))
    return tuple(out)


def _planned(op: ir.Op, name: str, only: str | None) -> Plan:
    """The plan, under another name where what a value's parts are kept in is called as a kernel is."""
    plan = plan_op(op, name, only)
    kernels = {k.name for step in plan.steps for k in step.kernels}
    parts = {part for step in plan.steps for v in step.variants for part, _, _ in v.scratch}
    return _planned(op, f"{name}_", only) if kernels & parts else plan

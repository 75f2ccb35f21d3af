"""The compiler as one row of functions: read this file first.

    text --parse--> ast --check--> ir --plan--> plan --print--> source --black--> file

`build` runs the row for a file of ops; each stage stands alone and prints (`tritongen show`).
Nothing here imports torch or triton.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tritongen.check import Checked, check
from tritongen.emit.collisions import NONE, Collisions, collisions, marked, marks_for
from tritongen.emit.module import OpPlans, format_source, module_source, rendered
from tritongen.errors import Diagnostic, SpecError
from tritongen.ir import nodes as ir
from tritongen.ir.batches import own_batches
from tritongen.ir.rename import renamed
from tritongen.ir.verify import verify
from tritongen.schedule import plan_op
from tritongen.schedule.aside import names_aside
from tritongen.schedule.plan import Plan
from tritongen.syntax import ast
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


@lru_cache(maxsize=16)  # a spec is looked at in many ways: shown, proven, explained
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
    file = parse(text, name)
    checked = check(file)
    items = tuple(_items(file, checked, text, only))
    stem = Path(name).stem if name != "<text>" else checked[0].name
    origin = origin or name
    raw = module_source(stem, origin, text, items, standalone)
    return Module(stem, origin, raw, items, tuple(w for c in checked for w in c.warnings))


def _items(
    file: ast.File, checked: Sequence[Checked], text: str, only: str | None
) -> Iterator[OpPlans]:
    """Each op, planned with names that are nothing else in its code (`emit/collisions.py`)."""
    marks = marks_for(text)
    ops, made = {c.name for c in checked}, set[str]()
    for c in checked:
        typings = tuple(marked(op, marks) for op in c.typings)
        item = OpPlans(typings[0].name, _plans(typings, only), typings, mark=marks.own)
        variants = (v for p in item.plans for s in p.steps for v in s.variants)
        configs = frozenset(name for v in variants for name, _ in v.config)
        text = rendered("", "", "", (item,))
        found = collisions(text, c.typings[0], marks, ops - {c.name} | made, configs)
        if clash := ops & found.outside:
            defined = (item for item in file.items if isinstance(item, ast.OpDef))
            raise SpecError([_reserved(o) for o in defined if o.name in clash])
        made |= found.functions
        own, aside = c.name + found.suffix, names_aside(c.typings[0], found.host, found.words)
        hosts = tuple(renamed(op, aside, aside) for op in c.typings)
        shown = {new: old for old, new in aside.items()}
        planned = _plans(c.typings, only, own, found)
        yield OpPlans(c.name, planned, hosts, own, shown, found.outside | found.functions)


def _plans(
    typings: tuple[ir.Op, ...], only: str | None, own: str = "", found: Collisions = NONE
) -> tuple[Plan, ...]:
    """A plan for each typing of one op."""
    plans = []
    for op in typings:
        verify(op)
        kinds = [p.kind for p in op.typarams] if len(typings) > 1 else []
        evaluated = own_batches(op)[0]
        aside = names_aside(evaluated, found.inside, found.words)
        inner = renamed(evaluated, aside, aside)
        plans.append(plan_op(op, "_".join([own or op.name, *kinds]), only, inner))
    return tuple(plans)


def _reserved(op: ast.OpDef) -> Diagnostic:
    help = f"call it `{op.name}_op`"
    label = "generated code means something else by it"
    return Diagnostic("E102", f"`{op.name}` is reserved", op.span, label=label, help=help)

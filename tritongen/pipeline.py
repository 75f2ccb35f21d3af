"""The compiler as a row of functions. Read this file first.

    text --parse--> ast --check--> ir --plan--> plan --print--> source --black--> file
                                   |
                                   +--derive--> the gradient, as text, which takes the same way

`build` runs all stages for a file of ops. Each stage also runs alone, and prints (`tritongen show`). This module imports
neither torch nor triton.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from tritongen.autodiff import (
    NotDifferentiable,
    taking_what_it_reads,
    with_gradient,
    without_handed_on,
)
from tritongen.autodiff.backward import NOTHING_TO_DERIVE
from tritongen.check import Checked, check, read, too_much_work
from tritongen.emit.collisions import NONE, Collisions, Marks, collisions, marked, marks_for
from tritongen.emit.format import format_source
from tritongen.emit.module import module_source, ops_source
from tritongen.emit.op_plans import OpPlans, differentiated
from tritongen.emit.reused import with_reuse
from tritongen.errors import Diagnostic, Span, SpecError
from tritongen.faults import doing, reporting
from tritongen.ir import nodes as ir
from tritongen.ir.batches import own_batches
from tritongen.ir.rename import renamed
from tritongen.ir.verify import verify
from tritongen.schedule import plan_op
from tritongen.schedule.aside import all_names, names_aside
from tritongen.schedule.chunks import never_stored
from tritongen.schedule.narrowed import kind_of, narrowed
from tritongen.schedule.plan import Plan
from tritongen.schedule.through import through
from tritongen.syntax import ast
from tritongen.work import Overworked, limited, uncollected

UNREADABLE = "its text is refused: "  # `check` fails then
SECOND = (
    "second derivatives are derived for what comes from tritongen.compile_op, compile_expr and load"
)


@dataclass(frozen=True, slots=True)
class Module:
    """A compiled file of ops. `raw` is the source before black."""

    name: str
    origin: str
    raw: str
    items: tuple[OpPlans, ...]
    warnings: tuple[Diagnostic, ...]

    @property
    def source(self) -> str:
        """The text of the module, as `tritongen build` writes it."""
        with reporting(self.origin, self.raw), doing("format"), uncollected():
            return format_source(self.raw)

    @property
    def ops(self) -> dict[str, tuple[ir.Op, ...]]:
        return {item.name: tuple(p.op for p in item.plans) for item in self.items}

    @property
    def plans(self) -> dict[str, tuple[Plan, ...]]:
        return {item.name: item.plans for item in self.items}

    @property
    def without_gradient(self) -> dict[str, str]:
        """The ops whose gradient cannot be derived, and why. Not those that have none by nature, or by `grad none`."""
        reasons = {item.name: item.no_gradient for item in self.items}
        return {n: why for n, why in reasons.items() if why and why not in NOTHING_TO_DERIVE}

    @property
    def forwards(self) -> dict[str, Plan]:
        """Plans of the ops that run in place of others, to keep values for a gradient."""
        return {item.name: item.forward.plans[0] for item in self.items if item.forward is not None}


@lru_cache(maxsize=16)  # one spec is often built again: to show it, to test it, to explain it
def build(
    text: str,
    name: str = "<text>",
    standalone: bool = False,
    only: str | None = None,
    origin: str | None = None,
    gradients: bool = False,
    autotune: bool = False,
    again: bool = False,
    op: ir.Op | None = None,
) -> Module:
    """Compiles a file of ops.

    Args:
        text: the text of the file.
        name: the name of the file in findings.
        standalone: print a module that imports only torch and triton.
        only: "nest" plans every step as the general nest, with which the tests compare all other variants.
        origin: the name of the file in the module. Default: `name`.
        gradients: put the gradient of each op behind it, as an op of its own.
        autotune: give kernels tables of configs, which Triton measures.
        again: let gradients take the operands that their own gradients read, too.
        op: the op to compile. The text is only its name in the module then, for it does not say all of an op (`Tensor.whole`).

    Returns:
        A `Module`: `.source` is its text, `.plans` the plans of its ops.

    Raises:
        SpecError: the text has errors. It holds all of them.
    """
    with reporting(name, text), uncollected():
        return _built(text, name, standalone, only, origin or name, gradients, autotune, again, op)


def _built(
    text: str,
    name: str,
    standalone: bool,
    only: str | None,
    origin: str,
    gradients: bool,
    autotune: bool,
    again: bool,
    op: ir.Op | None,
) -> Module:
    with doing("parse"):
        file = read(text, name) if op is None else ast.File(())
    with limited():
        try:
            with doing("check"):
                checked = check(file) if op is None else (Checked(op.name, (op,), ()),)
            items = tuple(_items(file, checked, text, only, gradients, autotune, again))
            stem = _stem(name) if name != "<text>" else checked[0].name
            with doing("print"):
                raw = module_source(stem, origin, text, items, standalone)
        except Overworked as work:
            spans = work.args or [item.span for item in file.items[:1]]
            raise SpecError([too_much_work(*spans)]) from None
    return Module(stem, origin, raw, items, tuple(w for c in checked for w in c.warnings))


def _stem(name: str) -> str:
    """The name of a module: that of its file, made a valid name."""
    return re.sub(r"[^A-Za-z0-9_]", "_", Path(name).stem)[:64] or "_"


@dataclass(slots=True)
class _Taken:
    """The names of one module: its ops, and the functions that were printed so far."""

    file: ast.File
    ops: frozenset[str]
    functions: set[str]
    marks: Marks
    autotune: bool


def _items(
    file: ast.File,
    checked: Sequence[Checked],
    text: str,
    only: str | None,
    gradients: bool,
    autotune: bool,
    again: bool,
) -> Iterator[OpPlans]:
    """Each op, with its gradient if it has one."""
    names = {c.name for c in checked}
    places = dict.fromkeys(names) | {item.name: item.span for item in file.items}
    pairs: dict[str, _Pair | str] = {}
    for c in checked:
        with doing("derive", c.name, places[c.name]), _spent_on(places[c.name]):
            none = "it was built without gradients"
            pairs[c.name] = _pair(c, names, again) if gradients else none
        if isinstance(pair := pairs[c.name], _Pair):
            names |= {op.name for op in pair.ops}
    taken = _Taken(file, frozenset(names), set(), marks_for(_said(text, checked, pairs)), autotune)
    for c in checked:
        with doing("print", c.name, places[c.name]), _spent_on(places[c.name]):
            item = _with_gradient(_item(c.typings, only, taken), pairs[c.name], only, taken)
        yield with_reuse(item)


@contextmanager
def _spent_on(span: Span | None) -> Iterator[None]:
    """Names the op if the limit of work is reached in what follows from it."""
    try:
        yield
    except Overworked:
        raise Overworked(span) from None


def _said(text: str, checked: Sequence[Checked], pairs: Mapping[str, _Pair | str]) -> str:
    """The texts that no mark may occur in: the file, and the names of its ops and of derived ones."""
    ops = [op for c in checked for op in c.typings]
    ops += [op for pair in pairs.values() if isinstance(pair, _Pair) for op in pair.ops]
    return " ".join([text, *(n for op in ops for n in (op.name, *all_names(op)))])


def _with_gradient(item: OpPlans, pair: _Pair | str, only: str | None, taken: _Taken) -> OpPlans:
    if isinstance(pair, str):
        return replace(item, no_gradient=pair)
    unstored = frozenset().union(*map(never_stored, item.plans))
    behind = _item((pair.back,), only, taken, True, unstored) if pair.back else None
    behind = behind and replace(behind, no_gradient=SECOND)
    if not pair.forward.kept:
        return replace(item, backward=behind, handed_on=pair.handed_on)
    keeps = replace(_item((pair.forward,), only, taken), stands_for=item)
    forward = replace(keeps, backward=behind, handed_on=pair.handed_on)
    if len(item.plans) == len(keeps.plans):
        found = [*map(through, item.plans, keeps.plans)]
        if all(found):
            item = replace(item, plans=tuple(filter(None, found)), through=True)
    return replace(item, forward=forward)


@dataclass(frozen=True, slots=True)
class _Pair:
    """The op that runs if a gradient is wanted, and that gradient. None if all of it is `handed_on`."""

    forward: ir.Op
    back: ir.Op | None
    handed_on: Mapping[str, tuple[str, tuple[int, ...]]]

    @property
    def ops(self) -> tuple[ir.Op, ...]:
        return tuple(op for op in (self.forward, self.back) if op)


def _pair(c: Checked, taken: Set[str], again: bool) -> _Pair | str:
    """Under names of their own; or why there is none."""
    try:
        op = differentiated(c.typings)
        forward, back = with_gradient(op, c.typings)
        given, rest = without_handed_on(forward, back)
        if again and rest:
            rest = taking_what_it_reads(rest, op, forward)
    except NotDifferentiable as error:
        return error.reason
    except SpecError as error:  # a fault of ours, for which the op itself need not be refused
        return UNREADABLE + "; ".join(f"{d.code}: {d.message}" for d in error.diagnostics)
    if forward.kept:
        forward = _called_apart(forward, taken)
    return _Pair(forward, rest and _called_apart(rest, taken), given)


def _called_apart(op: ir.Op, taken: Set[str]) -> ir.Op:
    while op.name in taken:
        op = replace(op, name=f"{op.name}_op")
    return op


def _item(
    typings: tuple[ir.Op, ...],
    only: str | None,
    taken: _Taken,
    on_request: bool = False,
    unstored: frozenset[str] = frozenset(),
) -> OpPlans:
    """An op, planned with names that are nothing else in its code (`emit/collisions.py`). `unstored`: as in `plan_op`."""
    name, marks = typings[0].name, taken.marks
    planned_for = tuple(own for op in typings for own in narrowed(op))
    seen = tuple(marked(op, marks) for op in planned_for)
    told = frozenset(map(marks.name, unstored))
    asks: dict[str, Any] = dict(on_request=on_request, autotune=taken.autotune)
    whole = tuple(marked(op, marks) for op in typings)
    item = OpPlans(
        seen[0].name, whole, _plans(seen, only, unstored=told), seen, mark=marks.own, **asks
    )
    variants = (v for p in item.plans for s in p.steps for v in s.variants)
    configs = frozenset(n for v in variants for n, _ in v.config)
    text = ops_source("", (item,))
    found = collisions(text, typings[0], marks, taken.ops - {name} | taken.functions, configs)
    if clash := taken.ops & found.outside:
        defined = (item for item in taken.file.items if isinstance(item, ast.OpDef))
        raise SpecError([_reserved(o) for o in defined if o.name in clash])
    taken.functions |= found.functions
    own, aside = name + found.suffix, names_aside(typings[0], found.host, found.words)
    hosts = tuple(renamed(op, aside, aside) for op in planned_for)
    shown = {new: old for old, new in aside.items()}
    planned = _plans(planned_for, only, own, found, unstored)
    outside = found.outside | found.functions | configs  # a size `BLOCK * N` is no BLOCK_N
    return OpPlans(name, typings, planned, hosts, own, shown, outside, **asks)


def _plans(
    typings: tuple[ir.Op, ...],
    only: str | None,
    own: str = "",
    found: Collisions = NONE,
    unstored: frozenset[str] = frozenset(),
) -> tuple[Plan, ...]:
    """A plan for each typing of one op."""
    plans = []
    for op in typings:
        with doing("verify"):
            verify(op)
        kinds = [kind_of(p) for p in op.typarams] if len(typings) > 1 else []
        evaluated = own_batches(op)[0]
        aside = names_aside(evaluated, found.inside, found.words)
        inner = renamed(evaluated, aside, aside)
        with doing("plan"):
            plans.append(
                plan_op(op, "_".join([own or op.name, *kinds]), only, inner, aside, unstored)
            )
    return tuple(plans)


def _reserved(op: ast.OpDef) -> Diagnostic:
    help = f"rename it: `{op.name}_op`"
    label = "generated code means something else by it"
    return Diagnostic("E102", f"`{op.name}` is reserved", op.span, label=label, help=help)

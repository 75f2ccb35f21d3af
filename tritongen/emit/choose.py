"""Prints `choose_<step>`: the variant that a call takes, and its config, from the rules of the plan.

    return lib.least(
        lib.product_us, call,
        # variant, may it run, its config, how factors come, bytes written ahead
        ("persistent", tma and itemsize <= 2, lib.tile(128, 256, 128 // itemsize, 8, 3, PROGRAMS=1), "descriptors"),
        ...

The function takes whole numbers and a `lib.Gpu`, and returns (variant, config), so you can test it without a GPU. Variants
that have estimates are rows of one table. Of the others, the first one whose rule holds is taken.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from textwrap import wrap

from tritongen.emit.facts import used_facts
from tritongen.emit.view import call_lines, in_groups, indented
from tritongen.schedule import rules
from tritongen.schedule.classes.contraction_tiles import TILE
from tritongen.schedule.estimates import COLUMNS, in_turn, shared
from tritongen.schedule.plan import Step, Variant

HOST_NAMES = {
    **{name: f"lib.{name}" for name in rules.OF_LIBRARY},
    **{name: f"gpu.{name}" for name in rules.OF_GPU},
}
LONG = 84  # characters of what is better read on a line of its own
ROW = 92  # of what stands 8 columns in


@dataclass(frozen=True, slots=True)
class ChooseView:
    """One function, as texts."""

    name: str
    parameters: tuple[str, ...]
    doc: str  # how the variant is found
    lines: tuple[str, ...]
    same_as: str = ""  # one before it whose rules these are

    @property
    def heading(self) -> str:
        return "\n".join(call_lines(self.name, self.parameters, end=" -> tuple[str, dict]:"))


def with_shared(views: Iterable[ChooseView]) -> Iterator[ChooseView]:
    """Shares choosers in a module: a gradient often has the rules of its op."""
    first: dict[ChooseView, str] = {}
    for view in views:
        known = first.setdefault(replace(view, name=""), view.name)
        yield view if known == view.name else replace(view, same_as=known)


def choose_view(step: Step) -> ChooseView:
    first, compared, others = in_turn(step)
    doc = "the first variant whose rule holds"
    if compared:
        asked = f"{doc}, else the one" if first else "of the variants that may run, the one"
        doc = f"{asked} with the least estimate"
    lines = [line for variant in first for line in _candidate(variant)]
    lines += _table(step, compared, bool(others))
    lines += [line for variant in others for line in _candidate(variant)]
    parameters = tuple(f"{n}: {kind}" for n, kind in used_facts(step))
    return ChooseView(f"choose_{step.name}", parameters, doc, tuple(lines))


def rule_text(rule: str, renames: dict[str, str]) -> str:
    """A rule as Python for the host: as written, with other names."""
    names = HOST_NAMES | renames
    return re.sub(r"[A-Za-z_]\w*", lambda word: names.get(word[0], word[0]), rule)


def config_call(config: dict[str, str], named: Collection[str] = ()) -> tuple[str, list[str]]:
    """The function that makes a config, and its arguments: a product's tile by its numbers, anything else by names.

    Later entries may use entries that are `named`.
    """
    told = {
        n: f"{n}=({n} := {text})" if n in named else f"{n}={text}" for n, text in config.items()
    }
    if config.get("GROUP_M") != "8" or [n for n in config if n in TILE] != [*TILE]:
        return "dict", [*told.values()]
    numbers = [f"{n} := {config[n]}" if n in named else config[n] for n in TILE]
    return "lib.tile", numbers + [t for n, t in told.items() if n not in (*TILE, "GROUP_M")]


def _spoken_of(variant: Variant) -> set[str]:
    """The entries that other entries speak of, or the estimate."""
    asked = () if variant.estimate is None else variant.estimate.asked
    return set().union(*map(rules.names, (*asked, *(rule for _, rule in variant.config))))


def _candidate(variant: Variant) -> list[str]:
    """The lines that return a variant if its rule holds. An entry that is too long gets a line of its own, and so do the entries that it uses."""
    config = {name: rule_text(rule, {}) for name, rule in variant.config}
    rule = dict(variant.config)
    apart = {name for name, text in config.items() if len(text) > LONG}
    for name in reversed(config):
        if any(name in rules.names(rule[other]) for other in apart):
            apart.add(name)
    lines = [line for name in config if name in apart for line in assigned(name, config[name])]
    told = config | {name: name for name in apart}
    call, entries = config_call(told, _spoken_of(variant) - apart)
    lines += call_lines(f'return "{variant.name}", {call}', entries)
    if variant.when != "True":
        lines = [f"if {rule_text(variant.when, {})}:", *indented(lines)]
    return [f"# {variant.why}", *lines]


def assigned(name: str, text: str) -> list[str]:
    """`name = text`; a long choice among several has a line for each, where black nests them."""
    plain, node = f"{name} = {text}", ast.parse(text, mode="eval").body
    if len(plain) <= ROW or not isinstance(node, ast.IfExp):
        return [plain]
    cases = []
    while isinstance(node, ast.IfExp):
        cases.append(f"{_source(text, node.body)} if {_source(text, node.test)}")
        node = node.orelse
    cases.append(_source(text, node))
    first, *others = cases
    return [f"{name} = (", f"    {first}", *(f"    else {c}" for c in others), ")  # fmt: skip"]


def _source(text: str, node: ast.expr) -> str:
    """An expression as it is written, with parentheses around a nested choice."""
    own = ast.get_source_segment(text, node) or ""
    return f"({own})" if isinstance(node, ast.IfExp) else own


def _table(step: Step, compared: list[Variant], more: bool) -> list[str]:
    """The lines that ask for the least of what has an estimate, if something has one."""
    if not compared:
        return []
    sizes, others = shared(step)
    model = compared[0].estimate.model  # type: ignore[union-attr]
    columns = wrap(f"variant, may it run, its config, {COLUMNS[model]}", 90)
    return [
        *call_lines("call = ", [f"({', '.join(sizes)})", *others]),
        f"{'found =' if more else 'return'} lib.least(",
        f"    lib.{model}, call,",
        *(f"    # {line}" for line in columns),
        *indented(line for variant in compared for line in _row(variant)),
        ")  # fmt: skip",
        *(("if found:", "    return found") if more else ()),
    ]


def _row(variant: Variant) -> list[str]:
    """One candidate as a row. An entry that another one uses gets a name."""
    estimate = variant.estimate
    assert estimate is not None
    config = {name: rule_text(rule, {}) for name, rule in variant.config}
    call, entries = config_call(config, _spoken_of(variant))
    how = ", ".join([f'"{estimate.kind}"', *(rule_text(rule, {}) for rule in estimate.asked)])
    head = f'("{variant.name}", {rule_text(variant.when, {})}, {call}('
    row = f"{head}{', '.join(entries)}), {how}),"
    if len(row) <= ROW:
        return [row]
    opening, behind = head.removesuffix(f" {call}("), f"    {call}({', '.join(entries)}), {how}),"
    return [opening, behind] if len(behind) <= ROW else [head, *in_groups(entries), f"), {how}),"]

"""Prints the launches of one step: `kernel[grid](tensors, sizes, strides, CONSTEXPRS, **config)`.

- Arguments that all launches share stand once in front of them, if that is shorter.
- Launches that differ only in their PASS are a loop. The library launches rows that programs share, and what adds up parts of tiles.
- If programs store parts of sums, the launch that adds the parts stands behind all branches.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

from tritongen.emit.choose import rule_text
from tritongen.emit.facts import fact_names
from tritongen.emit.kernel_writer import Context
from tritongen.emit.text import bare, launch_text, tuple_text
from tritongen.emit.view import KernelView, call_lines, indented
from tritongen.schedule.plan import Launch, Step, Variant

# Nothing of a spec is called so in a launch function: some launches say these, some do not.
SHARED_WORDS = frozenset({"arguments", "choose", "constants", "dict", "kernel", "COMPUTE", "INDEX"})


@dataclass(frozen=True, slots=True)
class Call:
    """One launch: what is set up for it, and what it is given."""

    setup: tuple[str, ...]
    kernel: str
    called: str  # what is launched by a config: the kernel, without its table
    tuned: bool  # by the table, not by the config
    grid: str
    arguments: tuple[str, ...]
    constants: tuple[str, ...]  # NAME=value, the same for every config
    config: tuple[str, ...]
    number: str = ""  # of the pass that it is
    by: str = ""  # the library function that launches it
    sizes: tuple[str, ...] = ()  # which that asks for behind the kernel


@dataclass(frozen=True, slots=True)
class Everywhere:
    """The arguments that several launches share."""

    arguments: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        lines = call_lines("arguments = ", self.arguments) if self.arguments else []
        if len(self.arguments) == 1:
            lines = [f"arguments = {tuple_text(self.arguments)}"]
        return [*lines, *(call_lines("constants = dict", self.constants) if self.constants else [])]


def said_once(branches: Iterable[tuple[Call, ...]], apart: Iterable[Iterable[str]]) -> Everywhere:
    """The shared arguments that make the text shortest. `apart`: lines of branches, where these names mean something else."""
    ways = dict.fromkeys(branches)
    calls = [call for branch in ways for call in branch]
    lines = [*(line for ls in apart for line in ls), *(line for c in calls for line in c.setup)]
    assigned = {n for line in lines for n in re.findall(r"\w+", line.partition(" = ")[0])}

    def is_alike(text: str) -> bool:
        return not assigned.intersection(re.findall(r"\w+", text)) and "config[" not in text

    def length(said: Everywhere) -> int:
        return len(said.lines) + sum(len(call_texts(branch, said)) for branch in ways)

    several = (given for given, n in Counter(c.arguments for c in calls).items() if n > 1)
    found = sorted(given for given in several if all(map(is_alike, given)))
    first = min((c.constants for c in calls), key=len, default=())
    every = [c.constants for c in calls]
    constants = tuple(x for x in first if is_alike(x) and all(x in each for each in every))
    some = [Everywhere(a, c) for c in ((), constants) for a in ((), *found)]
    return min(some, key=length)


def call_texts(calls: Iterable[Call], everywhere: Everywhere) -> list[str]:
    """The lines of launches. Neighbours share the line of a named grid. Launches that differ in their PASS are a loop."""
    lines, before = list[str](), ""
    for call, same in groupby(calls, lambda c: replace(c, number="")):
        lines += call.setup
        arguments, constants = call.arguments, call.constants
        if everywhere.arguments and arguments == everywhere.arguments:
            arguments, constants = (), ("*arguments", *constants)
        if everywhere.constants and {*constants} >= {*everywhere.constants}:
            constants = (*(c for c in constants if c not in everywhere.constants), "**constants")
        numbers = [c.number for c in same if c.number]
        passed = [f"PASS={numbers[0] if len(numbers) == 1 else 'PASS'}"] if numbers else []
        named = [*constants, *passed, *call.config]
        text = call_lines(f"{call.called}[{call.grid}]", arguments, named)
        if call.by:
            text = call_lines(call.by, [call.called, *call.sizes, *arguments, *named])
        elif len(text) > 1 or call.tuned or len(numbers) > 1:
            lines += [] if call.grid == before else [f"grid = {call.grid}"]
            before = call.grid
            tuned = f"lib.tuned({call.kernel}, grid, config)"
            text = call_lines(tuned if call.tuned else f"{call.called}[grid]", arguments, named)
        if len(numbers) > 1:
            text = [f"for PASS in ({', '.join(numbers)}):", *indented(text)]
        lines += text
    return lines


# ---- one launch ----------------------------------------------------------------------------------
def call_of(
    context: Context, step: Step, variant: Variant, launch: Launch, kernel: KernelView
) -> Call:
    renames = rule_names(context, step, variant)
    free = () if launch.scratch else (kernel.table or ({},))[0]
    measured = {name: f'META["{name}"]' for name in free}
    said = renames | measured | {n: rule_text(rule, renames) for n, rule in launch.config}
    grid = tuple_text([rule_text(r, said) for r in launch.grid])
    if "META[" in grid:
        grid = f"lambda META: {grid}"
    rest = given_by_config(step, variant, launch, kernel, renames, measured)
    together = with_parts(step)
    made = together.scratch if together else variant.scratch if launch.scratch else ()
    if kernel.workspaces and made:
        there = zip(kernel.workspaces, made, strict=True)
        rest = [*(f"{p}={name}" for p, (name, *_) in there), *rest]
    plain = [a for a in kernel.arguments if "=" not in a and not a.startswith("config[")]
    some = stand_ins(context, step)
    plain = [f"{a} if asked[{some.index(a)}] else None" if a in some else a for a in plain]
    rank = partial(rank_of, context, step, kernel.name)
    positional = strides_together(plain, rank, context.left_out.difference(some))
    # Said out loud, since Triton 3.10 turns the default: a * b + c rounds once, as in torch's kernels.
    constants = (*(a for a in kernel.arguments if "=" in a), "enable_fp_fusion=True")
    return Call(
        (*kernel.setup, *kernel.stored_setup),
        kernel.name,
        f"{kernel.name}.fn" if kernel.table else kernel.name,
        bool(kernel.table) and not launch.scratch,
        grid,
        tuple(positional),
        constants,
        tuple(rest),
        dict(launch.config).get("PASS", ""),
    )


def split_call(calls: tuple[Call, ...], context: Context, step: Step, variant: Variant) -> Call:
    """The two launches of rows that programs share as one: `lib.launch_split` makes both."""
    first, last = calls
    assert first.kernel == last.kernel, f"{variant.name} does not merge rows"
    names = rule_names(context, step, variant)
    in_runs = bool(step.kernel(first.kernel).axes[0].tail)
    runs, rows = (names.get(n, n) for n in (("row_runs", "row_run") if in_runs else ("", "rows")))
    config = tuple(text for text in first.config if not text.startswith("**"))
    given = (f"({runs}, {rows})" if runs else rows, "config")
    return replace(first, config=config, number="", by="lib.launch_split", sizes=given)


def combine_call(call: Call, context: Context, step: Step, variant: Variant) -> Call:
    """The launch that adds up parts of tiles: `lib.launch_combine` knows its blocks and its grid."""
    renames = rule_names(context, step, variant)
    sizes = (rule_text(rule, renames) for rule in variant.scratch[0][2][1:])
    given = (f"({', '.join(sizes)})", "PARTS")
    return replace(call, config=(), by="lib.launch_combine", sizes=given)


def given_by_config(
    step: Step,
    variant: Variant,
    launch: Launch,
    kernel: KernelView,
    renames: dict[str, str],
    measured: Collection[str],
) -> list[str]:
    """`**config`, without entries that only grids and workspaces use, and with what the launch overrides.

    All launches of a kernel that may leave parts are printed alike. `measured` entries come from a table. Then, and if few entries
    of the config are used, they are passed one by one.
    """
    own = [f"{n}={rule_text(rule, renames)}" for n, rule in launch.config if n != "PASS"]
    said_again = measured or {n for n, _ in variant.config} & dict(launch.config).keys()
    every = [n for n, _ in variant.config]
    if kernel.workspaces and with_parts(step) and "PARTS" not in every:
        every.append("PARTS")
    given = [n for n in every if n not in {*dict(launch.config), *measured}]
    taken = [n for n in given if n in kernel.names or not said_again and not n.isupper()]
    left = ", ".join(f'"{name}"' for name in given if name not in taken)
    taken = [n for n in taken if n in dict(variant.config)]
    others = f"lib.config_without(config, {left})" if left else "config"
    if not said_again:
        return [*own, f"**{others}"]
    if measured or len(taken) < 2:
        return [*own, *(f"{name}={renames[name]}" for name in taken)]
    again = {f"{name}={renames[name]}" for name, _ in variant.config}
    return [f"**dict({', '.join([others, *(x for x in own if x not in again)])})"]


def rule_names(context: Context, step: Step, variant: Variant) -> dict[str, str]:
    """The names that rules of a variant use, as the launch function calls them."""
    names = {name: f'config["{name}"]' for name, _ in variant.config}
    names |= {"PARTS": "PARTS"} if with_parts(step) else {}
    names |= fact_names(context, step)
    return names | {name: launch_text(p) for name, p in step.facts if bare(p)}


def strides_together(
    arguments: list[str], rank: Callable[[str], int], left_out: Collection[str] = ()
) -> list[str]:
    """Arguments with `*x.stride()` for all strides of x in their order; `left_out`: tensors that may be None."""
    out = list[str]()
    while arguments:
        tensor = arguments[0].removesuffix(".stride(0)")
        every = [f"{tensor}.stride({k})" for k in range(rank(tensor))]
        together = len(every) > 1 and arguments[: len(every)] == every
        if tensor in left_out and every and arguments[: len(every)] == every:
            out.append(f"*lib.strides({tensor}, {len(every)})")
        else:
            out.append(f"*{tensor}.stride()" if together else arguments[0])
        arguments = arguments[len(every) if together else 1 :]
    return out


def stand_ins(context: Context, step: Step) -> list[str]:
    """The results that a call may leave out, in whose place the launch puts tensors without memory: it looks at their shapes.

    All of them have the shape of the largest result of the step. Kernels that are lowered take numbers of rows and columns
    from operands.
    """
    shaped = step.skeleton in ("pointwise", "rows")
    return [t for t in step.stores if t in context.left_out] if shaped else []


def rank_of(context: Context, step: Step, kernel: str, tensor: str) -> int:
    """The dims of a tensor as a kernel is given it; 0 of what is none."""
    if tensor in dict(step.merged):
        return 3
    for own, _, shape in (each for v in step.variants for each in v.scratch):
        if own == tensor:
            return len(shape)
    view = step.seen_by(kernel, tensor)
    return len(context.dims.get(tensor, ()) if view is None else view.shape)


# ---- parts of sums -------------------------------------------------------------------------------
def with_parts(step: Step) -> Variant | None:
    """The first variant in which programs leave parts of sums for another kernel to add up: all such end alike."""
    several = (v for v in step.variants if v.launches[0].part)
    return next((v for v in several if v.launches[-1].kernel != v.launches[0].kernel), None)


def calls_behind(context: Context, step: Step, kernels: dict[str, KernelView]) -> tuple[Call, ...]:
    """The launches that add up parts of sums, behind those that may store some."""
    variant = with_parts(step)
    if variant is None:
        return ()
    runs = variant.launches[1:]
    calls = tuple(call_of(context, step, variant, run, kernels[run.kernel]) for run in runs)
    if step.kernel(runs[0].kernel).skeleton == "combine":
        return tuple(combine_call(call, context, step, variant) for call in calls)
    return calls


def closed(step: Step, lines: Iterable[str]) -> Iterator[str]:
    if variant := with_parts(step):
        yield f"if {variant.scratch[0][0]} is not None:"
        yield from indented(lines)

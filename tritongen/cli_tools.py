"""The commands that look at ops and run them: explain.

    tritongen explain specs/softmax.op --shape batch=8192,D=4096

Each turns what was typed into a call of `explain.py`, and prints what comes back:
tables on a terminal, plain lines in a pipe, JSON where asked. `cli.py` gathers the commands.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tritongen.ir.nodes import Op
    from tritongen.pipeline import Module
    from tritongen.schedule.plan import Plan

_spec = click.argument("spec", type=click.Path(path_type=Path))
_op = click.option("--op", "op_name", help="Which op, where SPEC holds several.")
_dtype = click.option(
    "--dtype", metavar="DTYPE", help="bf16, or T=bf16,U=f32. Default: bf16 where SPEC takes it."
)


def _shapes(required: bool) -> Any:
    return click.option(
        "--shape",
        "shapes",
        multiple=True,
        required=required,
        metavar="NAME=N,...",
        help="Sizes, batch=64x128 for `...`, constants; D=1024..16384 doubles. Repeatable.",
    )


@dataclass(frozen=True, slots=True)
class Opened:
    """One op of a spec file, compiled."""

    built: Module
    name: str
    plans: tuple[Plan, ...]

    @property
    def typings(self) -> list[Op]:
        return [p.op for p in self.plans]

    def plan_of(self, op: Op) -> Plan:
        return next(p for p in self.plans if p.op is op)


def open_op(spec: Path, op_name: str | None) -> Opened:
    from tritongen import pipeline
    from tritongen.cli import shown_name
    from tritongen.syntax.limits import read_source

    built = pipeline.build(read_source(spec).text, shown_name(spec))
    names = list(built.plans)
    name = names[0] if op_name is None and len(names) == 1 else op_name
    if name is None or name not in names:
        raise click.UsageError(f"{spec} holds {', '.join(names)}: give one as --op")
    return Opened(built, name, built.plans[name])


def usage(error: ValueError) -> click.UsageError:
    return click.UsageError(str(error))


# ---- explain ------------------------------------------------------------------------------------
@click.command()
@_spec
@_op
@_shapes(required=False)
@_dtype
@click.option(
    "--sms", type=click.IntRange(1), help="Multiprocessors. Default: of this GPU, or 132."
)
@click.option("--json", "as_json", is_flag=True, help="As data.")
def explain(
    spec: Path,
    op_name: str | None,
    shapes: tuple[str, ...],
    dtype: str | None,
    sms: int | None,
    as_json: bool,
) -> None:
    """What the plan of SPEC decided and why; for a shape, what runs and what it costs."""
    from tritongen import explain as explained

    opened = open_op(spec, op_name)
    if shapes:
        found = list(_explained_calls(opened, shapes, dtype, sms))
    else:
        found = [explained.explain_op(plan) for plan in opened.plans]
    if as_json:
        click.echo(json.dumps([explained.as_json(e) for e in found], indent=1))
        return
    for k, e in enumerate(found):
        print_lines([*([("", "")] if k else []), *explained.lines(e)])


def _explained_calls(
    opened: Opened, shapes: tuple[str, ...], dtype: str | None, sms: int | None
) -> Iterable[Any]:
    from tritongen.explain import explain_call
    from tritongen.runtime.load import load_text
    from tritongen.shapes import BadShape, call_of, meta_arguments, parse_shapes, shape_text

    module = load_text(opened.built.name, opened.built.raw)
    try:
        calls = [call_of(opened.typings, numbers, dtype) for numbers in parse_shapes(shapes)]
    except BadShape as error:
        raise usage(error) from None
    for op, case in calls:
        args = meta_arguments(op, case)
        plan = opened.plan_of(op)
        yield explain_call(module, plan, args, sms or multiprocessors(), call=shape_text(op, case))


def multiprocessors() -> int:
    """Those of the GPU at hand; an H100's or H200's where there is none."""
    import torch

    if not torch.cuda.is_available():
        return 132
    return torch.cuda.get_device_properties("cuda").multi_processor_count


# ---- on the terminal ----------------------------------------------------------------------------
def print_lines(lines: Iterable[tuple[str, str]]) -> None:
    """(style, line): coloured on a terminal, bare in a pipe."""
    import sys

    if not sys.stdout.isatty():
        for _, line in lines:
            click.echo(line)
        return
    from rich.console import Console

    console = Console(highlight=False)
    for style, line in lines:
        console.print(line, style=style or None, markup=False, soft_wrap=True)

"""The commands explain, doctor, bench, tune and calibrate.

    tritongen explain specs/softmax.op --shape batch=8192,D=4096
    tritongen doctor
    tritongen bench specs/softmax.op --shape batch=8192,D=1024..16384 --against eager,compile
    tritongen tune specs/softmax.op --shape batch=8192,D=1024..16384
    tritongen calibrate

Each command calls `explain.py`, `doctor.py`, `bench/` or `tune/` and prints the result: tables on a terminal, plain
lines in a pipe, JSON with `--json`. `cli.py` registers the commands.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tritongen.ir.nodes import Op
    from tritongen.pipeline import Module
    from tritongen.schedule.plan import Plan

_spec = click.argument("spec", type=click.Path(path_type=Path))
_op = click.option("--op", "op_name", help="Name of the op, if SPEC holds several.")
_dtype = click.option(
    "--dtype", metavar="DTYPE", help="One dtype, or T=bf16,U=f32. Default: bf16 if SPEC takes it."
)


def _shapes(required: bool) -> Any:
    return click.option(
        "--shape",
        "shapes",
        multiple=True,
        required=required,
        metavar="NAME=N,...",
        help="Sizes and constants of a call. batch=64x128 gives the dims of `...`. D=1024..16384 doubles from 1024. Repeatable.",
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

    built = pipeline.build(
        read_source(spec).text, str(spec), origin=shown_name(spec), gradients=True
    )
    names = list(built.plans)
    name = names[0] if op_name is None and len(names) == 1 else op_name
    if name is None or name not in names:
        raise click.UsageError(f"{spec} holds {', '.join(names)}: choose one with --op")
    return Opened(built, name, built.plans[name])


# ---- explain ------------------------------------------------------------------------------------
@click.command()
@_spec
@_op
@_shapes(required=False)
@_dtype
@click.option(
    "--sms",
    type=click.IntRange(1),
    help="Multiprocessors to plan for. Default: those of this GPU, else 132.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--png",
    type=click.Path(path_type=Path),
    help="Draw time and bytes of each kernel into this file. Needs --shape.",
)
def explain(
    spec: Path,
    op_name: str | None,
    shapes: tuple[str, ...],
    dtype: str | None,
    sms: int | None,
    as_json: bool,
    png: Path | None,
) -> None:
    """Say which kernels an op runs, and why.

    Without --shape: the steps of the plan, and every variant with its condition. With --shape: also the variant
    that this call takes, its config, its launches, and the least time they can take."""
    from tritongen import explain as explained

    opened = open_op(spec, op_name)
    if shapes:
        found = list(_explained_calls(opened, shapes, dtype, sms))
    else:
        found = [explained.explain_op(plan) for plan in opened.plans]
    if png:
        _draw_explained([explained.as_json(e) for e in found], shapes, png)
    if as_json:
        click.echo(json.dumps([explained.as_json(e) for e in found], indent=1))
        return
    for k, e in enumerate(found):
        print_lines([*([("", "")] if k else []), *explained.lines(e)])


def _draw_explained(found: list[dict[str, Any]], shapes: tuple[str, ...], png: Path) -> None:
    from tritongen.bench.plot import NoMatplotlib, plot_explained

    if not shapes:
        raise click.UsageError("--png draws calls: give one as --shape")
    try:
        plot_explained(found, png)
    except NoMatplotlib as error:
        raise click.ClickException(str(error)) from None


def _explained_calls(
    opened: Opened, shapes: tuple[str, ...], dtype: str | None, sms: int | None
) -> Iterable[Any]:
    from tritongen.explain import explain_call
    from tritongen.runtime.load import load_text
    from tritongen.shapes import meta_arguments, shape_text
    from tritongen.trace import at_hand

    module = load_text(opened.built.name, opened.built.raw)
    for op, case in calls_of(opened, shapes, dtype):
        args = meta_arguments(op, case)
        plan, forward = opened.plan_of(op), opened.built.forwards.get(opened.name)
        gpu = replace(at_hand(), sms=sms) if sms else at_hand()
        call = shape_text(op, case)
        yield explain_call(module, plan, args, gpu, call=call, forward=forward)


# ---- bench --------------------------------------------------------------------------------------
@click.command()
@_spec
@_op
@_shapes(required=True)
@_dtype
@click.option(
    "--against",
    default="eager,compile",
    show_default=True,
    help="Rivals, from eager, compile, max-autotune: ways in which torch runs the spec's `ref`. Or none.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path),
    help="Write the figures to this JSON file.",
)
@click.option(
    "--png", type=click.Path(path_type=Path), help="Draw speed against size and the roofline."
)
@click.option("--seed", default=0, show_default=True, type=int, help="Seed of the operands.")
def bench(
    spec: Path,
    op_name: str | None,
    shapes: tuple[str, ...],
    dtype: str | None,
    against: str,
    json_file: Path | None,
    png: Path | None,
    seed: int,
) -> None:
    """Time an op beside torch.

    Needs a GPU. Every output is compared with a reference before it is timed. A rival that is wrong is named, not
    timed."""
    from tritongen.bench.plot import NoMatplotlib, plot, require_matplotlib
    from tritongen.bench.run import RIVALS
    from tritongen.bench.run import bench as run

    opened = open_op(spec, op_name)
    rivals = [name for name in against.split(",") if name and name != "none"]
    if unknown := set(rivals) - set(RIVALS):
        raise click.UsageError(
            f"--against: {sorted(unknown)[0]!r} is not one of {', '.join(RIVALS)}"
        )
    calls = calls_of(opened, shapes, dtype)
    require_gpu("bench")
    for path in filter(None, (json_file, png)):  # before minutes of timing, not after them
        if path.is_dir() or not os.access(path.parent, os.W_OK):
            raise click.ClickException(f"{path} cannot be written")
    try:
        if png:
            require_matplotlib()
    except NoMatplotlib as error:
        raise click.ClickException(str(error)) from None
    report = run(opened.built, opened.name, calls, rivals, seed=seed, progress=say)
    print_report(report)
    if json_file:
        json_file.write_text(json.dumps(report.as_json(), indent=1) + "\n")
    if png:
        plot(report.as_json(), png)


def calls_of(opened: Opened, shapes: tuple[str, ...], dtype: str | None) -> list[Any]:
    from tritongen.shapes import BadShape, call_of, parse_shapes

    try:
        return [call_of(opened.typings, numbers, dtype) for numbers in parse_shapes(shapes)]
    except BadShape as error:
        raise click.UsageError(str(error)) from None


def require_gpu(command: str) -> None:
    import torch

    if not torch.cuda.is_available():
        raise click.ClickException(
            f"{command} needs a GPU, and torch sees none. `tritongen doctor` says what is missing."
        )


def say(text: str) -> None:
    """Print progress to stderr, if it is a terminal."""
    if sys.stderr.isatty():
        click.echo(text, err=True)


def print_report(report: Any) -> None:
    from tritongen.bench.report import head, plain, problems, table

    columns, rows = table(report)
    click.echo(head(report))
    if sys.stdout.isatty():
        from rich import box
        from rich.console import Console
        from rich.table import Table

        shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column in columns:
            words = column in ("shape", "by", "variant")
            justify: Any = "left" if words else "right"
            shown.add_column(column, no_wrap=column != "shape", justify=justify)
        for row in rows:
            shown.add_row(*row)
        Console().print(shown)
        from tritongen.bench.terminal import drawn

        click.echo(drawn(report.as_json(), min(Console().width, 120), colours=True))
    else:
        click.echo("\n".join(plain(columns, rows)))
    for problem in problems(report):
        click.echo(f"not timed: {problem}", err=True)


# ---- tune ---------------------------------------------------------------------------------------
@click.command()
@_spec
@_op
@_shapes(required=True)
@_dtype
@click.option("--dry-run", is_flag=True, help="Time the configs, and store nothing.")
@click.option("--seed", default=0, show_default=True, type=int, help="Seed of the operands.")
def tune(
    spec: Path,
    op_name: str | None,
    shapes: tuple[str, ...],
    dtype: str | None,
    dry_run: bool,
    seed: int,
) -> None:
    """Time a few configs of an op, and keep the fastest.

    Needs a GPU. The choice is stored in your cache, and serves later processes for calls of similar size.
    """
    from tritongen.shapes import shape_text
    from tritongen.tune.candidates import CannotTune
    from tritongen.tune.run import keep
    from tritongen.tune.run import tune as run

    opened = open_op(spec, op_name)
    calls = calls_of(opened, shapes, dtype)
    require_gpu("tune")
    for op, case in calls:
        click.echo(f"{opened.name} ({shape_text(op, case)})")
        try:
            trials = run(opened.built, op, case, seed=seed, progress=say)
        except CannotTune as error:
            raise click.UsageError(str(error)) from None
        for line in trial_lines(trials):
            click.echo(line)
        path = None if dry_run else keep(opened.built, opened.name, trials)
        if path and any(t.wins for t in trials):
            click.echo(f"  stored in {path}")


def trial_lines(trials: list[Any]) -> Iterable[str]:
    """One line for each candidate. The first of each step is the plan's choice."""
    default: dict[str, float | None] = {}
    width = max((len(str(t.candidate)) for t in trials), default=0)
    for t in trials:
        first = t.step not in default
        own = default.setdefault(t.step, t.seconds)
        if first:
            yield f"  {t.step}"
        verdict = "kept" if t.wins else "the plan's own" if first else ""
        ratio = f"{own / t.seconds:5.2f}x" if own and t.seconds else "      "
        time = f"{t.seconds * 1e6:9.1f} us {ratio}" if t.seconds else f"not timed: {t.problem}"
        yield f"    {str(t.candidate):{width}}  {time}  {verdict}".rstrip()


# ---- calibrate ----------------------------------------------------------------------------------
@click.command()
@click.option("--dry-run", is_flag=True, help="Measure, and store nothing.")
def calibrate(dry_run: bool) -> None:
    """Measure this GPU, so that kernels are chosen for it.

    Needs a GPU. Times products and convolutions, and stores coefficients in your cache. Later choices may differ,
    and so may the last bits of results."""
    require_gpu("calibrate")
    import torch

    from tritongen import lib
    from tritongen.calibrate import by_memory, fitted, measure, off_by
    from tritongen.runtime.calibrated import store

    name, own = torch.cuda.get_device_name(), lib.coefficients(lib.gpu(torch.device("cuda", 0)))
    timed = measure("cuda", progress=say)
    found = fitted(timed, by_memory(own))
    click.echo(f"{name}: {len(timed)} times; estimates were {own.source}")
    for table, kind in sorted({t.row for t in timed}):
        rows = [t for t in timed if t.row == (table, kind)]
        off = f"off by {off_by(rows, own):.2f}x, now {off_by(rows, found):.2f}x"
        click.echo(f"  {table:12} {kind[0]:12} {kind[1]} bytes  {len(rows):3} times  {off}")
    if not dry_run:
        click.echo(f"  stored in {store(name, found)}")


# ---- doctor -------------------------------------------------------------------------------------
@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(as_json: bool) -> None:
    """Find out why kernels do not run on this machine.

    Each problem comes with a remedy. Exit code 1: kernels do not run on a GPU here."""
    from dataclasses import asdict

    from tritongen.doctor import examine, lines

    checks = list(examine())
    if as_json:
        click.echo(json.dumps([asdict(c) for c in checks], indent=1))
    else:
        print_lines(lines(checks))
    if any(c.state == "problem" for c in checks):
        raise SystemExit(1)


# ---- on the terminal ----------------------------------------------------------------------------
def print_lines(lines: Iterable[tuple[str, str]]) -> None:
    """Prints pairs (style, line): coloured on a terminal, plain in a pipe."""
    if not sys.stdout.isatty():
        for _, line in lines:
            click.echo(line)
        return
    from rich.console import Console

    console = Console(highlight=False)
    for style, line in lines:
        console.print(line, style=style or None, markup=False, soft_wrap=True)

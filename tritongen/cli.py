"""The command line: build, check, show, docs; `cli_tools.py` and `cli_editors.py` have the other commands.

    tritongen build specs/softmax.op        # writes generated/softmax.py
    tritongen check specs/softmax.op        # runs the derived tests
    tritongen show specs/softmax.op --stage source

Exit codes:

- 0: success.
- 1: a check failed, or `build --check` found a stale file.
- 2: a bad spec or bad usage.
- 3: an internal error of tritongen (`faults.py`).

Findings go to stderr. If any spec has an error, no file is written. A command imports only what it needs: `build` imports
neither torch nor triton.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from tritongen import __version__, cli_editors, cli_tools
from tritongen.errors import NoBlack, SpecError, render
from tritongen.faults import CompilerFault, fault
from tritongen.output import OutputError, holds, module_name, target, write_all

Item = TypeVar("Item")
QUICK = 4.0  # seconds for the examples of one spec, beside what building and imports take
STAGES = ("ast", "ir", "plan", "kernel", "source", "ptx")


class _Commands(click.Group):
    """Turns an error in a spec or a path into exit code 2 and one readable message."""

    def invoke(self, context: click.Context) -> None:
        try:
            super().invoke(context)
        except SpecError as error:
            _report(error)
            raise SystemExit(2) from None
        except BrokenPipeError:  # the reader has closed the pipe: `... | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(0) from None
        except (OutputError, NoBlack, OSError) as error:
            click.echo(f"error: {error}", err=True)
            raise SystemExit(2) from None
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            stage = f"tritongen {context.invoked_subcommand}"
            told = error if isinstance(error, CompilerFault) else fault(error, stage, "", stage)
            click.echo(f"error: {told}", err=True)
            raise SystemExit(3) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tritongen")
def main() -> None:
    """Compile specs in index notation to readable Triton kernels.

    A SPEC is a file such as specs/softmax.op. `tritongen docs` lists what the language has."""


_TOOLS = "explain", "doctor", "bench", "tune", "calibrate"
for _command in (*(getattr(cli_tools, name) for name in _TOOLS), cli_editors.fmt, cli_editors.lsp):
    main.add_command(_command)

_specs = click.argument("specs", nargs=-1, required=True, type=click.Path(path_type=Path))


@main.command()
@_specs
@click.option(
    "-o",
    "--output",
    default="generated",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Write the modules to this folder.",
)
@click.option("--check", is_flag=True, help="Write nothing. Fail if a generated file is stale.")
@click.option("--standalone", is_flag=True, help="Write modules that import only torch and triton.")
@click.option(
    "--autotune",
    is_flag=True,
    help="Put kernels under triton.autotune. The first call of a shape measures its configs.",
)
@click.option("--overwrite", is_flag=True, help="Replace files that were edited by hand, too.")
def build(
    specs: tuple[Path, ...],
    output: Path,
    check: bool,
    standalone: bool,
    autotune: bool,
    overwrite: bool,
) -> None:
    """Compile specs to readable Python modules.

    Writes one file for each SPEC, named after it. Writes nothing if any SPEC has an error."""
    names = _module_names(specs)
    for name in names:
        target(output, name)
    texts = _compile_all(specs, standalone, autotune=autotune)
    if check:
        chosen = {"--standalone": standalone, "--autotune": autotune}
        _fail_if_stale(specs, output, texts, [name for name, on in chosen.items() if on])
        return
    changed = write_all(output, texts, overwrite)
    for path in (output / f"{name}.py" for name in texts):
        click.echo(f"{path}{'' if path in changed else ' (unchanged)'}")


def _module_names(specs: tuple[Path, ...]) -> list[str]:
    names = [module_name(spec) for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise OutputError(f"two of the specs would become {name}.py")
    return names


def _compile_all(
    specs: tuple[Path, ...],
    standalone: bool = False,
    formatted: bool = True,
    autotune: bool = False,
) -> dict[str, str]:
    """The module of each spec, by name. Raises one SpecError with the findings of all specs."""
    texts = {}
    findings: list[SpecError] = []
    for spec in _with_progress(specs, len(specs), "building"):
        try:
            texts[spec.stem] = _compile(spec, standalone, formatted, autotune)
        except SpecError as error:
            findings.append(error)
    if findings:
        raise SpecError([d for error in findings for d in error.diagnostics])
    return texts


def _compile(spec: Path, standalone: bool, formatted: bool, autotune: bool) -> str:
    from tritongen import pipeline
    from tritongen.syntax.limits import read_source

    source = read_source(spec)
    built = pipeline.build(
        source.text,
        str(spec),
        standalone,
        origin=shown_name(spec),
        gradients=True,
        autotune=autotune,
    )
    for warning in built.warnings:
        click.echo(f"{render(warning)}\n", err=True)
    for op, why in built.without_gradient.items():
        click.echo(f"note: the gradient of `{op}` cannot be derived: {why}", err=True)
    return built.source if formatted else built.raw


def shown_name(spec: Path) -> str:
    """The name of a spec in its generated file. It does not depend on the folder that you build in."""
    try:
        shown = spec.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return spec.name
    return shown if re.fullmatch(r"[\w./+-]+", shown, re.ASCII) else spec.name


def _fail_if_stale(
    specs: tuple[Path, ...], output: Path, texts: dict[str, str], options: list[str]
) -> None:
    stale = [
        (s, n) for s, n in zip(specs, texts, strict=True) if not holds(output / f"{n}.py", texts[n])
    ]
    for spec, name in stale:
        command = " ".join(["tritongen build", str(spec), "-o", str(output), *options])
        click.echo(f"stale: {output / name}.py: run `{command}`", err=True)
    if stale:
        raise SystemExit(1)
    click.echo(f"{len(texts)} up to date")


@main.command()
@_specs
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    help="Default: cuda if there is a GPU, else cpu.",
)
@click.option(
    "--examples",
    default=100,
    show_default=True,
    type=click.IntRange(1),
    help="Random calls of each spec.",
)
@click.option("--seed", default=0, show_default=True, type=int, help="Seed of the random calls.")
@click.option(
    "--grad/--no-grad",
    "gradients",
    default=True,
    help="Also check derived gradients.  [default: on]",
)
@click.option(
    "--compile/--no-compile",
    "compiles",
    default=True,
    help="Without a GPU, also compile a few kernels for one.  [default: on]",
)
@click.option(
    "--quick",
    is_flag=True,
    help="Take about ten seconds a spec: at most 16 examples, no compiling.",
)
@click.option("-v", "--verbose", is_flag=True, help="Print each step.")
def check(
    specs: tuple[Path, ...],
    device: str | None,
    examples: int,
    seed: int,
    gradients: bool,
    compiles: bool,
    quick: bool,
    verbose: bool,
) -> None:
    """Test kernels and gradients of specs on random calls.

    Each result is compared with an f64 evaluation of the spec (the oracle) and with torch. The body of a spec is
    its meaning. The `ref` of a spec is a claim, and is tested too.

    Exit code 1: a check failed."""
    from tritongen.proof import check_specs

    _module_names(specs)
    _compile_all(specs, formatted=False)
    failed = False
    asked: dict[str, Any] = {"gradients": gradients, "compiles": compiles}
    if quick:
        asked |= {"compiles": False, "seconds": QUICK}
        examples = min(examples, 16)
    with _watching(verbose) as (say, report):
        for result in check_specs(specs, device, examples, seed, say=say, **asked):
            report(str(result))
            failed |= not result.ok
    if failed:
        raise SystemExit(1)


@main.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option(
    "--stage",
    type=click.Choice(STAGES),
    default="source",
    show_default=True,
    help="ast: parsed. ir: checked. plan: decisions. kernel: statements. source: Python. ptx: assembly.",
)
@click.option("--grad", is_flag=True, help="Show the derived gradient instead.")
@click.option(
    "--target",
    "arch",
    default="sm_90",
    show_default=True,
    help="GPU for the ptx stage, such as sm_80.",
)
@click.option(
    "--size", "sizes", multiple=True, metavar="NAME=N", help="A size for the ptx stage. Repeatable."
)
@click.option(
    "--html",
    "page",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write spec, IR, kernels and PTX side by side into one page.",
)
def show(
    spec: Path, stage: str, grad: bool, arch: str, sizes: tuple[str, ...], page: Path | None
) -> None:
    """Print one stage of the compilation of a spec."""
    from tritongen import show as stages
    from tritongen.syntax.limits import read_source

    source = read_source(spec)
    if page is not None:
        from tritongen import show_html

        given = dict(map(_size, sizes))
        page.write_text(show_html.page(source.text, str(spec), arch, given), encoding="utf-8")
        click.echo(page)
        return
    try:
        text = stages.stage_text(
            source.text, str(spec), stage, grad, arch, dict(map(_size, sizes)), shown_name(spec)
        )
    except stages.CannotShow as error:
        raise click.UsageError(str(error)) from None
    _print(text, "python" if stage == "source" else "text")


def _size(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    is_number = number.isdecimal() and len(number) <= 19 and int(number) < 2**63
    if not (name.isidentifier() and is_number):
        raise click.BadParameter(f"expected NAME=N, given {text[:40]!r}", param_hint="--size")
    return name, int(number)


@main.command()
@click.argument("name", required=False)
def docs(name: str | None) -> None:
    """Print an entry of the language reference.

    NAME is an error code, a function or a word of the language: E203, softplus, else. Without NAME, list all entries.
    """
    from tritongen import manual

    if name is None:
        titles = "\n".join(e.title for e in manual.manual())
        click.echo(
            f"{titles}\n\n`tritongen docs NAME` prints one entry. docs/language.md is the whole page."
        )
        return
    found = manual.entries(name)
    if not found:
        near = " or ".join(f"`{n}`" for n in manual.nearest(name))
        hint = f"did you mean {near}?" if near else "`tritongen docs` lists all entries"
        raise click.UsageError(f"no entry for `{name}`: {hint}")
    _print("\n".join(f"## {e.title}\n\n{e.text}" for e in found), "markdown")


# ---- on the terminal ----------------------------------------------------------------------------
def _report(error: SpecError) -> None:
    click.echo("\n\n".join(render(d) for d in error.diagnostics), err=True)
    count = sum(d.severity == "error" for d in error.diagnostics)
    click.echo(f"\n{count} error{'s' if count != 1 else ''}", err=True)


def _print(text: str, language: str) -> None:
    if language == "text" or not sys.stdout.isatty():
        click.echo(text.rstrip("\n"))
        return
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.syntax import Syntax

    markdown = language == "markdown"
    shown = Markdown(text) if markdown else Syntax(text, language, background_color="default")
    Console().print(shown)


def _with_progress(items: Iterable[Item], total: int, label: str) -> Iterator[Item]:
    """The items. On a terminal, a progress bar appears after one second."""
    start = time.monotonic()
    rest = iter(items)
    for done, item in enumerate(rest, 1):
        yield item
        if time.monotonic() - start > 1 and sys.stderr.isatty() and done < total:
            yield from _bar(rest, label, done, total)


@contextmanager
def _watching(
    verbose: bool,
) -> Iterator[tuple[Callable[[str, str, float], None], Callable[[str], None]]]:
    """Two functions: `say(text, stage, share)` reports progress, `report(text)` prints a result.

    On a terminal, progress is one bar for each stage. With `verbose` it is lines of text. Otherwise it is silent.
    """
    start = time.monotonic()
    if verbose or not sys.stderr.isatty():

        def say(text: str, stage: str, share: float) -> None:
            if verbose and text:
                click.echo(f"{time.monotonic() - start:6.1f} s  {text}", err=True)

        yield say, click.echo
        return
    from rich.console import Console
    from rich.progress import Progress

    results: list[str] = []  # printed at the end: the bars would be drawn over them
    try:
        with Progress(console=Console(stderr=True), transient=True) as progress:
            doing = progress.add_task("starting", total=None)
            stages: dict[str, Any] = {}

            def show(text: str, stage: str, share: float) -> None:
                if stage and stage not in stages:
                    stages[stage] = progress.add_task(stage, total=1.0)
                if stage:
                    progress.update(stages[stage], completed=share)
                if text:
                    progress.update(doing, description=text)

            yield show, results.append
    finally:
        for text in results:
            click.echo(text)


def _bar(rest: Iterator[Item], label: str, done: int, total: int) -> Iterator[Item]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total, completed=done)
        for item in rest:
            yield item
            progress.advance(task)

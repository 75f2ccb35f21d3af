"""python -m tritongen.proof.fuzz --specs 1000 --seed 0 --jobs 8. With files: runs those again."""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
from pathlib import Path

import click

from tritongen.proof.fuzz import drive, found


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--specs", default=1000, help="Number of specs to draw.")
@click.option("--seed", default=0, help="Seed. Spec k of a seed is the same everywhere.")
@click.option("--jobs", default=os.cpu_count() or 1, help="Pairs of processes to run.")
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", help="Where kernels run."
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=None, help="Write findings to this folder."
)
@click.option(
    "--crosscompile/--no-crosscompile",
    default=None,
    help="Compile kernels for sm_90.  [default: on without a GPU]",
)
@click.option("--shard", default="0/1", help="i/n draws every n-th spec, from the i-th.")
@click.option("--begin", default=0, help="Number of the first spec.")
@click.option("--shrink/--no-shrink", default=True, help="Shrink findings.")
@click.option("--all-ways", is_flag=True, help="Force every variant, as on a GPU. Slow on a CPU.")
@click.option("--seconds", default=math.inf, help="Start no spec after this time.")
def main(
    files, specs, seed, jobs, device, out, crosscompile, shard, begin, shrink, all_ways, seconds
) -> None:
    """Draw random specs and test everything that is derived from them."""
    os.environ.setdefault("PYTHONHASHSEED", "0")  # of the processes
    crosscompile = device == "cpu" if crosscompile is None else crosscompile
    with tempfile.TemporaryDirectory(prefix="fuzz-triton-") as cache:
        os.environ.setdefault("TRITON_CACHE_DIR", cache)
        if files:
            sys.exit(again(files, device, crosscompile, all_ways))
        first, every = (int(n) for n in shard.split("/"))
        started = time.monotonic()
        last = [started]

        def note(summary: drive.Summary) -> None:
            if time.monotonic() - last[0] > 5:
                last[0] = time.monotonic()
                slow = summary.slow()
                click.echo(
                    f"{last[0] - started:5.0f} s: {summary.specs} specs, {summary.refusals} refused,"
                    f" {summary.calls} calls, {summary.kernels} kernels compiled,"
                    f" {len(summary.kinds())} kinds of findings"
                    + (f"; still at {', '.join(slow)}" if slow else ""),
                    err=True,
                )

        def told(finding, pair: drive.Pair) -> None:
            if shrink:
                from tritongen.proof.fuzz.shrink import shrunk

                finding = shrunk(finding, pair)
            where = found.write(out, finding) if out else ""
            click.echo(
                f"{drive.kind_of(finding)}  ({finding['drawn']}) {where}\n{finding['problem'][:600]}"
            )
            click.echo(f"  {finding.get('call', '')}\n{finding['text']}")

        def met(finding) -> None:
            if out:
                found.note(out, finding)

        summary = drive.drive(
            seed,
            jobs,
            device,
            crosscompile,
            range(begin + (first - begin) % every, specs, every),
            note,
            told,
            met,
            all_ways,
            seconds,
        )
        click.echo(table(summary, time.monotonic() - started))
        sys.exit(1 if summary.findings else 0)


def again(files: tuple[Path, ...], device: str, crosscompile: bool, all_ways: bool) -> int:
    """Findings of files that were written; 0 where there are none."""
    count = 0
    with drive.Pair(device, crosscompile, all_ways) as pair:
        for path in files:
            text = path.read_text(encoding="utf-8")
            report = pair.report(text, path.name, found.seed_of(text))
            count += len(report["findings"])
            said = ", ".join(report["refused"]) or f"{len(report['findings'])} findings"
            click.echo(f"{path}: {said}")
            for finding in report["findings"]:
                click.echo(
                    f"  {finding['stage']}: {finding['problem'][:1200]}\n    {finding['call']}"
                )
    return 1 if count else 0


def table(summary: drive.Summary, seconds: float) -> str:
    def row(counts) -> str:
        return ", ".join(f"{name} {n}" for name, n in counts.most_common())

    spent = ", ".join(f"{k} {v:.0f} s" for k, v in summary.seconds.most_common())
    lines = [
        "",
        f"{summary.specs} specs in {seconds:.0f} s: {summary.calls} calls, {summary.kernels} kernels compiled",
        f"refused: {summary.refusals} ({row(summary.refused)})",
        f"motifs: {row(summary.motifs)}",
        f"skeletons: {row(summary.skeletons)}",
        f"variants: {row(summary.variants)}",
        f"time: {spent}",
        f"{len(summary.findings)} findings, of {len(summary.kinds())} kinds:",
    ]
    for kind, many in sorted(summary.kinds().items(), key=lambda pair: -len(pair[1])):
        first = min(many, key=lambda f: f["after"])
        lines.append(f"  {len(many):4}  {kind}  (first after {first['after']}: {first['drawn']})")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

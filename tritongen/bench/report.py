"""Figures of `bench` as a table: a line a shape, ours first, torch's times as multiples of it.

"us" are the device's; "host us" what a call keeps the host, in the order of the columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tritongen.bench.run import Report, Row


def head(report: Report) -> str:
    """The device, versions and ceilings that every figure below is to be read with."""
    peaks = "".join(f", {name} {rate / 1e12:.0f} TFLOP/s" for name, rate in report.matmul.items())
    versions = f"torch {report.torch}, triton {report.triton}"
    return f"{report.device}, {versions}; in this run: copy {report.copy / 1e9:.0f} GB/s{peaks}"


def table(report: Report) -> tuple[list[str], list[list[str]]]:
    """Column names and rows of text."""
    rivals = list(dict.fromkeys(r.contender for r in report.rows if r.contender != "ours"))
    columns = ["shape", "ours us", *(f"{r} us" for r in rivals), *(f"{r}/ours" for r in rivals)]
    columns += ["speed", "% of bound", "by", "host us", "error", "variant"]
    return columns, [list(_line(group, rivals)) for group in _by_shape(report)]


def problems(report: Report) -> list[str]:
    """Who was left out of the timing, and why."""
    return [f"{r.contender} on {r.shape}: {r.problem}" for r in report.rows if r.problem]


def _by_shape(report: Report) -> list[dict[str, Row]]:
    groups: dict[str, dict[str, Row]] = {}
    for row in report.rows:
        groups.setdefault(row.shape, {})[row.contender] = row
    return list(groups.values())


def _line(group: dict[str, Row], rivals: list[str]) -> Iterator[str]:
    mine = group["ours"]
    yield mine.shape
    yield _number(mine.microseconds)
    for name in rivals:
        yield _number(group[name].microseconds if name in group else None)
    for name in rivals:
        theirs = group[name].microseconds if name in group else None
        yield f"{theirs / mine.microseconds:.2f}" if theirs and mine.microseconds else "-"
    yield speed_text(mine)
    yield "-" if mine.percent is None else f"{mine.percent:.0f}"
    yield mine.bound_by
    yield "/".join(_number(group[n].host_microseconds) for n in ("ours", *rivals) if n in group)
    yield "-" if mine.error is None or math.isnan(mine.error) else f"{mine.error:.0e}"
    yield mine.variants


def speed_text(row: Row) -> str:
    if row.microseconds is None:
        return "-"
    rate, unit = speed(row)
    return f"{rate:.0f} {unit}" if rate >= 10 else f"{rate:.2g} {unit}"


def speed(row: Row) -> tuple[float, str]:
    """The speed of a row in its limiting unit: bytes or flops per second."""
    assert row.microseconds is not None
    if row.bound_by == "arithmetic":
        return row.flops / row.microseconds * 1e-6, "TFLOP/s"
    return row.bytes / row.microseconds * 1e-3, "GB/s"


def _number(microseconds: float | None) -> str:
    if microseconds is None:
        return "-"
    return f"{microseconds:.1f}" if microseconds < 1000 else f"{microseconds:.0f}"


def plain(columns: list[str], rows: list[list[str]]) -> Iterator[str]:
    """The table for a pipe: columns aligned by spaces."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in [columns, *rows]:
        cells = [f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()

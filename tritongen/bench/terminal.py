"""A report of `bench` drawn with characters: speed against size, and the roofline.

    print(drawn(report.as_json()))

Needs plotext, which `pip install 'tritongen[bench]'` brings; without it there is no drawing. `plot.py` makes pictures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tritongen.bench.plot import LABELS, intensity, short, size_axis, speed_unit

WIDTH, HEIGHT = 100, 18
COLOURS = {"ours": "red", "eager": "blue", "compile": "green", "max-autotune": "magenta"}


def drawn(report: dict[str, Any], width: int = WIDTH, colours: bool = False) -> str:
    """Two drawings, one above the other; empty where nothing was timed or plotext is missing."""
    rows = [r for r in report["rows"] if r["microseconds"]]
    try:
        import plotext
    except ImportError:
        return ""
    if not rows:
        return ""
    parts = []
    for draw in (_speed, _roofline):
        plotext.clear_figure()
        plotext.plotsize(width, HEIGHT)
        plotext.theme("pro" if colours else "clear")
        draw(plotext, rows, report)
        text = plotext.build()
        parts.append(text if colours else plotext.uncolorize(text))
    return "\n".join(parts)


def _speed(plt: Any, rows: list[dict[str, Any]], report: dict[str, Any]) -> None:
    name, size_of = size_axis(rows)
    unit, amount, scale = speed_unit(rows)

    def speed(row: dict[str, Any]) -> float:
        return row[amount] / row["microseconds"] * scale

    _lines(plt, sorted(rows, key=size_of), size_of, speed)
    sizes = sorted({size_of(r) for r in rows})
    plt.xscale("log")
    plt.xticks(sizes, [short(s) for s in sizes])
    plt.ylim(0, max(map(speed, rows)) * 1.1)
    plt.xlabel(name)
    plt.title(f"{rows[0]['op']} on {report['device']}: {unit} against size")


def _roofline(plt: Any, rows: list[dict[str, Any]], report: dict[str, Any]) -> None:
    copy, peak = report["copy"], max(report["matmul"].values(), default=0.0)
    xs = sorted({intensity(r) for r in rows} | ({peak / copy} if peak else set()))
    edges = [xs[0] / 4, *xs, xs[-1] * 4]
    plt.plot(edges, [min(x * copy, peak or x * copy) / 1e12 for x in edges], label="roof")
    for contender in dict.fromkeys(r["contender"] for r in rows):
        own = [r for r in rows if r["contender"] == contender]
        flops = [max(r["flops"], 1) / r["microseconds"] * 1e-6 for r in own]
        label, colour = LABELS.get(contender, contender), COLOURS.get(contender)
        plt.scatter([intensity(r) for r in own], flops, label=label, color=colour)
    plt.xscale("log")
    plt.yscale("log")
    plt.xlabel("flops for each byte")
    plt.title("roofline: TFLOP/s")


def _lines(
    plt: Any,
    rows: list[dict[str, Any]],
    x: Callable[[dict[str, Any]], float],
    y: Callable[[dict[str, Any]], float],
) -> None:
    for contender in dict.fromkeys(r["contender"] for r in rows):
        own = [r for r in rows if r["contender"] == contender]
        label, colour = LABELS.get(contender, contender), COLOURS.get(contender)
        plt.plot(list(map(x, own)), list(map(y, own)), label=label, color=colour, marker="braille")

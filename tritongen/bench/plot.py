"""A report of `bench` as a picture: speed against size, and the roofline.

    plot(report.as_json(), Path("softmax.png"))    # or of a file that --json wrote

Needs matplotlib, which `pip install 'tritongen[bench]'` brings.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from pathlib import Path
from typing import Any

COLOURS = {"ours": "#d1495b", "eager": "#30638e", "compile": "#00798c", "max-autotune": "#7a5195"}
MARKERS = {"ours": "o", "eager": "s", "compile": "^", "max-autotune": "D"}
LABELS = {"ours": "tritongen", "eager": "torch eager", "compile": "torch.compile"}
GREY = "#777777"


class NoMatplotlib(Exception):
    """It is not installed; the message says how to."""


def require_matplotlib() -> None:
    if importlib.util.find_spec("matplotlib") is None:
        raise NoMatplotlib("--png needs matplotlib: pip install 'tritongen[bench]'")


def plot(report: dict[str, Any], path: Path) -> None:
    """Both panels of one op's report."""
    require_matplotlib()
    from matplotlib.figure import Figure  # no pyplot: no window, no global state

    rows = [r for r in report["rows"] if r["microseconds"]]
    figure = Figure(figsize=(12, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    op = rows[0]["op"] if rows else "nothing was timed"
    figure.suptitle(
        f"{op} on {report['device']} (torch {report['torch']}, triton {report['triton']})"
    )
    if rows:
        _speed_panel(left, rows, report)
        _roofline_panel(right, rows, report)
    figure.savefig(path, dpi=130)


def _speed_panel(axes: Any, rows: list[dict[str, Any]], report: dict[str, Any]) -> None:
    """GB/s or TFLOP/s against what varies from shape to shape."""
    name, size_of = size_axis(rows)
    unit, amount, scale = speed_unit(rows)
    for contender in dict.fromkeys(r["contender"] for r in rows):
        own = sorted((r for r in rows if r["contender"] == contender), key=size_of)
        speeds = [r[amount] / r["microseconds"] * scale for r in own]
        dash = "--" if contender in ("compile", "max-autotune") else "-"  # over a line it hides
        axes.plot([size_of(r) for r in own], speeds, linestyle=dash, **_style(contender))
    peaks = _peaks(report, amount == "flops")
    for label, peak in peaks:
        axes.axhline(peak, color=GREY, linestyle="--", linewidth=1)
        axes.annotate(
            f"{label}, this run: {peak:,.0f} {unit}", (0.01, peak), xytext=(0, 3), color=GREY,
            xycoords=axes.get_yaxis_transform(), textcoords="offset points", fontsize=9,
        )  # fmt: skip
    sizes = sorted({size_of(r) for r in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [short(s) for s in sizes], rotation=45 if len(sizes) > 8 else 0)
    axes.minorticks_off()
    axes.set_ylim(0, None if not peaks else 1.12 * max(peak for _, peak in peaks))
    axes.set_xlabel(name)
    axes.set_ylabel(unit)
    axes.set_title(_fixed(rows), fontsize=10)
    axes.grid(True, alpha=0.25)
    axes.legend(loc="best", framealpha=0.8)


def speed_unit(rows: list[dict[str, Any]]) -> tuple[str, str, float]:
    """What speed is measured in, the key of the amount, and what a unit of it a microsecond is."""
    arithmetic = sum(r["bound_by"] == "arithmetic" for r in rows) * 2 > len(rows)
    return ("TFLOP/s", "flops", 1e-6) if arithmetic else ("GB/s", "bytes", 1e-3)


def _roofline_panel(axes: Any, rows: list[dict[str, Any]], report: dict[str, Any]) -> None:
    """Flops a second against flops a byte, under what memory and cuBLAS allow."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    copy, peak = report["copy"], max(report["matmul"].values(), default=0.0)
    points = [(intensity(r), max(r["flops"], 1) / r["microseconds"] * 1e-6) for r in rows]
    low, high = _decades([x for x, _ in points] + ([peak / copy] if peak else []))
    roof = [(x, min(x * copy, peak or x * copy) / 1e12) for x in (low, peak / copy or high, high)]
    axes.plot(*zip(*sorted(roof), strict=True), color="black", linewidth=1.5)
    axes.set_xscale("log", base=10)
    axes.set_yscale("log", base=10)
    bottom, top = min(y for _, y in points) / 4, peak / 1e12 or max(y for _, y in points)
    _roof_labels(axes, bottom, high, report, peak)
    for contender in dict.fromkeys(r["contender"] for r in rows):
        own = [p for r, p in zip(rows, points, strict=True) if r["contender"] == contender]
        axes.plot(*zip(*own, strict=True), linestyle="none", alpha=0.8, **_style(contender))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.10g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlim(low, high)
    axes.set_ylim(bottom, 2.5 * top)
    axes.set_xlabel("flops for each byte that any implementation must move")
    axes.set_ylabel("TFLOP/s")
    axes.set_title("roofline", fontsize=10)
    axes.grid(True, which="major", alpha=0.25)


def intensity(row: dict[str, Any]) -> float:
    return max(row["flops"], 1) / row["bytes"]


def _decades(values: list[float]) -> tuple[float, float]:
    """Powers of ten around the values, with room."""
    low, high = math.log10(min(values)), math.log10(max(values))
    return 10 ** math.floor(low - 0.3), 10 ** math.ceil(high + 0.3)


def _roof_labels(
    axes: Any, bottom: float, high: float, report: dict[str, Any], peak: float
) -> None:
    copy, style = report["copy"], {"color": GREY, "textcoords": "offset points", "fontsize": 9}
    where = (1.5 * bottom * 1e12 / copy, 1.5 * bottom)
    axes.annotate(f"copy, {copy / 1e9:,.0f} GB/s", where, xytext=(10, -3), **style)
    if peak:
        name = max(report["matmul"], key=report["matmul"].get)
        label = f"{name} by cuBLAS, {peak / 1e12:,.0f} TFLOP/s"
        axes.annotate(label, (high, peak / 1e12), xytext=(-4, 5), ha="right", **style)


def _style(contender: str) -> dict[str, Any]:
    return {
        "color": COLOURS.get(contender, GREY),
        "marker": MARKERS.get(contender, "x"),
        "label": LABELS.get(contender, contender),
        "markersize": 6 if contender in ("ours", "compile") else 5,
        "markerfacecolor": "none" if contender in ("compile", "max-autotune") else None,
        "linewidth": 1.8,
        "zorder": 3 if contender == "ours" else 2,
    }


def _peaks(report: dict[str, Any], arithmetic: bool) -> list[tuple[str, float]]:
    if not arithmetic:
        return [("copy", report["copy"] / 1e9)]
    return [(f"cuBLAS {name}", rate / 1e12) for name, rate in report["matmul"].items()]


def size_axis(rows: list[dict[str, Any]]) -> tuple[str, Any]:
    """The size that varies; elements of the widest operand where none does alone."""
    varying = [n for n in rows[0]["sizes"] if len({r["sizes"][n] for r in rows}) > 1]
    shapes = len({r["shape"] for r in rows})
    for name in varying:
        if len({r["sizes"][name] for r in rows}) == shapes:
            together = [n for n in varying if all(r["sizes"][n] == r["sizes"][name] for r in rows)]
            return " = ".join(together), functools.partial(_size, name)
    return "elements of the widest operand", lambda r: r["elements"]


def _size(name: str, row: dict[str, Any]) -> int:
    return row["sizes"][name]


def _fixed(rows: list[dict[str, Any]]) -> str:
    """The values that are the same in all shapes."""
    parts = [set(r["shape"].split(", ")) for r in rows]
    common = set.intersection(*parts)
    shown = [p for p in rows[0]["shape"].split(", ") if p in common]
    if len(parts) > 1 and len({r["elements"] for r in rows}) == 1:
        shown.append(f"{short(rows[0]['elements'])} elements each")
    return ", ".join(shown)


def short(n: int) -> str:
    for power, letter in ((30, "G"), (20, "M"), (10, "k")):
        if n >= 1 << power and n % (1 << power) == 0:
            return f"{n >> power}{letter}"
    return f"{n:,}"


# ---- what a call cannot do without --------------------------------------------------------------
def plot_explained(found: list[dict[str, Any]], path: Path) -> None:
    """`explain.as_json` of calls: the least time of each kernel, and what binds it; the bytes of each tensor."""
    require_matplotlib()
    from matplotlib.figure import Figure

    bars = [(e["op"], e["call"], k) for e in found for s in e["steps"] for k in s["kernels"]]
    figure = Figure(figsize=(12, 1.6 + 0.5 * max(3, len(bars))), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = [f"{k['name']}\n{call}" for _, call, k in bars]
    colours = [COLOURS["ours" if k["bound_by"] == "arithmetic" else "eager"] for *_, k in bars]
    left.barh(range(len(bars)), [k["microseconds"] for *_, k in bars], color=colours)
    left.set_yticks(range(len(bars)), names)
    widest = max((sum({**k["reads"], **k["writes"]}.values()) for *_, k in bars), default=0)
    left.set_title("least time, us: red by arithmetic, blue by memory", fontsize=10)
    for place, (*_, kernel) in enumerate(bars):
        start = 0.0
        for tensor, size in (*kernel["reads"].items(), *kernel["writes"].items()):
            is_written = tensor in kernel["writes"] and tensor not in kernel["reads"]
            right.barh(
                place,
                size / 2**20,
                left=start,
                edgecolor="white",
                color=GREY if is_written else "#aab8c2",
            )
            if size > 0.04 * widest:
                where = (start + size / 2**21, place)
                right.annotate(tensor, where, ha="center", va="center", fontsize=8)
            start += size / 2**20
    right.set_yticks(range(len(bars)), [k["name"] for *_, k in bars])
    right.set_title("MiB read (light) and written (dark)", fontsize=10)
    for axes in (left, right):
        axes.invert_yaxis()
        axes.grid(True, axis="x", alpha=0.25)
    source = next((e["totals"]["ceilings"]["source"] for e in found if e["totals"]), "")
    figure.suptitle(f"{bars[0][0] if bars else 'nothing is launched'}: ceilings of {source}")
    figure.savefig(path, dpi=130)

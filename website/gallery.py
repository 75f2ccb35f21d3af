"""The gallery: a page for each spec of `specs/`, written when the site is built.

`gallery.json` groups the specs and has the sizes of each. `benchmarks/gallery.json` has what `python -m benchmarks.gallery`
measured at these sizes. A page whose spec was not measured shows only the least time of its kernels.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tritongen import show
from tritongen.autodiff import NotDifferentiable
from tritongen.show import CannotShow
from website.output import ROOT, explain, fenced, folded, gradient

RESULTS = ROOT / "benchmarks" / "gallery.json"
TITLES = dict(
    bmm="Batched matmul",
    gelu="GELU",
    int4_linear="int4 weights",
    int8_linear="int8 weights",
    kl_div="KL divergence",
    leaky_relu="Leaky ReLU",
    linear_gelu="Linear and GELU",
    logsumexp="LogSumExp",
    moe_linear="Mixture of experts",
    mse="MSE",
    relu="ReLU",
    rms_norm="RMS norm",
    swiglu="SwiGLU",
    swiglu_linear="SwiGLU of two products",
)
SPACE = "\n\n\n"  # between functions
OPEN = 4000  # characters of a kernel that stand open on its page


@cache
def calls() -> dict[str, dict[str, str]]:
    return json.loads((ROOT / "website" / "gallery.json").read_text(encoding="utf-8"))


def pages() -> list[Any]:
    """The gallery in the navigation."""
    groups = [
        {group: [{title(n): f"gallery/{n}.md"} for n in names]} for group, names in calls().items()
    ]
    return ["gallery/index.md", *groups]


def written() -> dict[str, str]:
    """The text of each page, by its name."""
    found = {"gallery/index.md": index()}
    for names in calls().values():
        found |= {f"gallery/{name}.md": page(name, shape) for name, shape in names.items()}
    return found


def title(name: str) -> str:
    words = name.replace("_", " ")
    return TITLES.get(name, words[0].upper() + words[1:])


def index() -> str:
    lines = [
        "# Gallery",
        "",
        "Each page shows one spec and everything that tritongen makes of it.",
        "",
    ]
    for group, names in calls().items():
        lines += [f"## {group}", "", "| spec | what it computes |", "|---|---|"]
        for name in names:
            line = _body(_text(name)).replace("|", "\\|")
            lines.append(f"| [{title(name)}]({name}.md) | `{line}` |")
        lines.append("")
    return "\n".join(lines)


def _text(name: str) -> str:
    return (ROOT / "specs" / f"{name}.op").read_text(encoding="utf-8")


def _body(text: str) -> str:
    """The line that computes the last output, on one line."""
    from tritongen.check import read
    from tritongen.syntax import ast
    from tritongen.syntax.unparse import unparse

    op = next(item for item in read(text).items if isinstance(item, ast.OpDef))
    line = unparse(op.lines[-1])
    return line if len(line) <= 100 else f"{line[:97]}..."


def page(name: str, shape: str) -> str:
    text = _text(name)
    source = (ROOT / "generated" / f"{name}.py").read_text(encoding="utf-8")
    forward = [(k, text) for k, _, text in show.kernels(source) if "_backward" not in k]
    parts = [
        f"# {title(name)}",
        f"{{{{ spec specs/{name}.op }}}}",
        "## Kernels",
        _kernels(forward),
        f"`tritongen build specs/{name}.op` writes the whole module: {len(source.splitlines())} lines.",
        "## Gradient",
        _gradient(text, source),
        "## What a call runs",
        f"`tritongen explain specs/{name}.op --shape {largest(shape)}` prints, for an H200:",
        fenced("text", explain(text, largest(shape))),
        *_measured(name, shape),
    ]
    return "\n\n".join(parts)


def _kernels(found: list[tuple[str, str]]) -> str:
    """The first kernel open, unless it is long; the others folded."""
    shown = [folded(name, text) for name, text in found]
    if len(found[0][1]) <= OPEN:
        shown[0] = fenced("python", found[0][1])
    return "\n\n".join(shown)


def _gradient(text: str, source: str) -> str:
    try:
        derived = gradient(text)
    except (CannotShow, NotDifferentiable) as reason:
        return f"There is none: {reason if isinstance(reason, CannotShow) else reason.reason}."
    backward = [text for name, _, text in show.kernels(source) if "_backward" in name]
    shown = fenced("op", derived)
    return (
        f"{shown}\n\n{folded('Kernels of the gradient', SPACE.join(backward))}"
        if backward
        else shown
    )


# ---- what was measured --------------------------------------------------------------------------
def largest(shape: str) -> str:
    """The last call of a shape with ranges: `D=512..4096` becomes `D=4096`."""
    return re.sub(r"\d+\.\.", "", shape)


@cache
def reports() -> dict[str, Any]:
    """What was measured, by the names of specs."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}


def _measured(name: str, shape: str) -> list[str]:
    report = reports().get(name)
    if report is None or not report["rows"]:
        command = f"tritongen bench specs/{name}.op --shape {shape}"
        text = "This spec was not measured yet. On a GPU, measure it with:"
        return ["## Speed", text, fenced("console", command)]
    return [
        "## Speed",
        f"Measured on one {report['device']} with torch {report['torch']} and Triton {report['triton']}. Each cell is the time on the "
        "GPU in microseconds, and how many times as long as tritongen it takes. A dash means that it was not measured.",
        speed_table(report),
        picture(report),
        *problems(report),
        "## Error",
        "The largest relative error of each result, beside a reference in f64, or in f32 for half types.",
        error_table(report),
    ]


def problems(report: dict) -> list[str]:
    """What was not timed, and why."""
    rows = [
        f"{label(r['contender'])}, {r['shape']}: {r['problem']}"
        for r in report["rows"]
        if r["problem"]
    ]
    found = [*rows, *report.get("failed", ())]
    return ["Not timed:", "\n".join(f"- {text}" for text in found)] if found else []


def contenders(report: dict) -> list[str]:
    return list(dict.fromkeys(row["contender"] for row in report["rows"]))


def label(contender: str) -> str:
    from tritongen.bench.plot import LABELS

    return LABELS.get(contender, contender)


def speed_table(report: dict) -> str:
    def cell(row: dict, ours: dict) -> str:
        time = row["microseconds"]
        if time is None:
            return "-"
        beside = ours["microseconds"] if row is not ours else None
        return f"{time:,.1f}" + (f" ({time / beside:.2f}x)" if beside else "")

    return _table(report, cell)


def error_table(report: dict) -> str:
    return _table(report, lambda row, _: "-" if row["error"] is None else f"{row['error']:.1e}")


def _table(report: dict, cell: Callable[[dict, dict], str]) -> str:
    names = contenders(report)
    lines = ["| shape | " + " | ".join(map(label, names)) + " |", "|---" * (len(names) + 1) + "|"]
    for shape in dict.fromkeys(row["shape"] for row in report["rows"]):
        rows = {r["contender"]: r for r in report["rows"] if r["shape"] == shape}
        shown = [cell(rows[n], rows["ours"]) if n in rows else "-" for n in names]
        lines.append(f"| {shape} | {' | '.join(shown)} |")
    return "\n".join(lines)


def picture(report: dict) -> str:
    """Speed against size and the roofline, as `bench --png` draws them, inside the page."""
    from tritongen.bench.plot import plot

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "speed.svg"
        plot(report, file)
        drawn = file.read_text(encoding="utf-8")
    return f'<div class="plot">{drawn[drawn.index("<svg") :]}</div>'

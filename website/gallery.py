"""The gallery: a page for each spec of `specs/`, written when the site is built.

`gallery.json` groups the specs and has a call of each. What was measured stands in `benchmarks/gallery/<spec>.json`, as
`tritongen bench SPEC --json` writes it; a page without such a file shows what its kernels cannot do without.
"""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tritongen import show
from tritongen.autodiff import NotDifferentiable
from tritongen.show import CannotShow
from website.output import ROOT, explain, fenced, folded, gradient

RESULTS = ROOT / "benchmarks" / "gallery"
TITLES = {
    **{
        "bmm": "Batched matmul",
        "moe_linear": "Mixture of experts",
        "linear_gelu": "Linear and GELU",
    },
    **{"swiglu": "SwiGLU", "swiglu_linear": "SwiGLU of two products", "rms_norm": "RMS norm"},
    **{
        "gelu": "GELU",
        "relu": "ReLU",
        "leaky_relu": "Leaky ReLU",
        "mse": "MSE",
        "kl_div": "KL divergence",
    },
    **{"int8_linear": "int8 weights", "int4_linear": "int4 weights", "logsumexp": "LogSumExp"},
}
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
    words = TITLES.get(name, name.replace("_", " "))
    return words[0].upper() + words[1:]


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
        f"`tritongen explain specs/{name}.op --shape {shape}` on an H200:",
        fenced("text", explain(text, shape)),
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
    return f"{shown}\n\n{folded('Its kernels', SPACE.join(backward))}" if backward else shown


# ---- what was measured --------------------------------------------------------------------------
def _measured(name: str, shape: str) -> list[str]:
    file = RESULTS / f"{name}.json"
    if not file.is_file():
        command = (
            f"tritongen bench specs/{name}.op --shape {shape} --json benchmarks/gallery/{name}.json"
        )
        return ["## Speed", f"No measurement is stored. This takes one:\n\n    {command}"]
    report = json.loads(file.read_text(encoding="utf-8"))
    return [
        "## Speed",
        f"{report['device']}, torch {report['torch']}, Triton {report['triton']}. `us` are microseconds of the GPU.",
        speed_table(report),
        picture(report),
        "## Error",
        "The largest error of each result, relative to a reference in wider numbers (f64, or f32 for half types).",
        error_table(report),
    ]


def contenders(report: dict) -> list[str]:
    return list(dict.fromkeys(row["contender"] for row in report["rows"]))


def speed_table(report: dict) -> str:
    return _table(report, "microseconds", " us", "{:.1f}")


def error_table(report: dict) -> str:
    return _table(report, "error", "", "{:.1e}")


def _table(report: dict, key: str, unit: str, form: str) -> str:
    names = contenders(report)
    lines = [f"| shape | {' | '.join(n + unit for n in names)} |", "|---" * (len(names) + 1) + "|"]
    for shape in dict.fromkeys(row["shape"] for row in report["rows"]):
        rows = {r["contender"]: r for r in report["rows"] if r["shape"] == shape}
        cells = [rows[n][key] if n in rows else None for n in names]
        shown = ["-" if c is None else form.format(c) for c in cells]
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

"""What the pages show of the compiler, as text: for `hooks.py`, and for the tests of the pages."""

from __future__ import annotations

import textwrap
from functools import lru_cache
from pathlib import Path

from tritongen import explain as explained
from tritongen import pipeline, show, trace
from tritongen.runtime.load import load_text
from tritongen.shapes import call_of, meta_arguments, parse_shapes, shape_text

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
WIDTH, HANG = 90, "    "  # characters that fit in a page; how far the rest of a line is indented


@lru_cache(maxsize=256)
def kernels(text: str, ending: str = "") -> str:
    """The kernels of the op itself, not of its gradient; those whose names end so."""
    return picked(pipeline.build(text, "spec.op").source, ending)


def picked(source: str, ending: str = "") -> str:
    return "\n\n\n".join(text for name, _, text in show.kernels(source) if name.endswith(ending))


def gradient(text: str) -> str:
    return show.gradient_text(text, "spec.op")


def stage(text: str, name: str) -> str:
    return show.stage_text(text, "spec.op", name)


@lru_cache(maxsize=256)
def explain(text: str, shape: str) -> str:
    """What `tritongen explain --shape` prints for an H200."""
    built = pipeline.build(text, "spec.op", gradients=True)
    name, plans = next(iter(built.plans.items()))
    (numbers,) = parse_shapes([shape])
    op, case = call_of([p.op for p in plans], numbers, None)
    plan = next(p for p in plans if p.op is op)
    module, args = load_text(built.name, built.raw), meta_arguments(op, case)
    found = explained.explain_call(module, plan, args, trace.H200, call=shape_text(op, case))
    return wrapped(explained.text(found))


def wrapped(text: str) -> str:
    """Long lines broken, and what follows indented further than where they begin."""
    lines = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()))
        parts = textwrap.wrap(line.strip(), WIDTH - len(indent), subsequent_indent=HANG)
        lines += [indent + part for part in parts] if len(line) > WIDTH else [line]
    return "\n".join(lines)


def fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.strip()}\n```\n"


def folded(title: str, code: str, language: str = "python") -> str:
    inside = "\n".join(f"    {line}".rstrip() for line in fenced(language, code).splitlines())
    return f'??? note "{title}"\n\n{inside}\n'

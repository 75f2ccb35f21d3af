"""Plans to the text of one generated module: its ops behind its imports and what they share.

Input: for each op of a file its typings' plans. Output: Python source, walked against the allow-list
(`allow.py`) and its names checked (`scopes.py`); formatting it is `format.py`, which the run-time path leaves
out until someone asks. Not here: one op (`op_view.py`).
"""

from __future__ import annotations

import hashlib
import re
from types import SimpleNamespace

from tritongen.emit import allow, scopes
from tritongen.emit.op_plans import OpPlans
from tritongen.emit.op_view import ALL_HELPERS, environment, op_view
from tritongen.resources import own_text

GRADIENTS = "# The gradients of a module that imports nothing of tritongen."


def module_source(
    title: str, source_name: str, text: str, items: tuple[OpPlans, ...], standalone: bool = False
) -> str:
    """The unformatted text of a module."""
    out = rendered(title, source_name, text, items, standalone)
    allow.walk(out)
    scopes.check_names(out)
    return out.replace(GRADIENTS, _own_page("runtime/gradients.py"))


def rendered(
    title: str, source_name: str, text: str, items: tuple[OpPlans, ...], standalone: bool = False
) -> str:
    """The same, not looked at."""
    printed = [own for item in items for own in item.printed]
    views = [op_view(item) for item in printed]
    helpers = dict.fromkeys(h for v in views for h in v.helpers)
    skeletons = {k.skeleton for i in printed for p in i.plans for s in p.steps for k in s.kernels}
    plans = [p for item in printed for p in item.plans]
    models = {v.estimate.model for p in plans for s in p.steps for v in s.variants if v.estimate}
    matrices = bool(skeletons & {"persistent", "tf32x3_half"})
    merges = _launches_say(views, "_three_dims(")
    said = {name: _launches_say(views, f"_{name}(") for name in ("flattened", "reshaped")}
    said |= {"copied": merges, "packed": matrices}
    copies = sorted(name for name, asked in said.items() if asked)
    body = SimpleNamespace(
        title=f"{title}: {', '.join(i.name for i in items)}" if len(items) > 1 else items[0].name,
        spec=[_docstring_safe(line) for line in text.strip().splitlines()],
        source=source_name,
        digest=hashlib.sha256(text.encode()).hexdigest()[:8],
        helpers=[ALL_HELPERS[h] for h in helpers],
        ops=views,
        runtime=not standalone,
        first_kernel=views[0].first_kernel,
        merges=merges,
        layout=_layout(views) if standalone else "",
        gradients=GRADIENTS if standalone and any(v.differentiable for v in views) else "",
        uses_multiprocessors=_launches_say(views, "_multiprocessors("),
        describes=any(v.describes for v in views),
        asks=any(v.asks for v in views),
        models=sorted(models),
        estimates=_own_page("runtime/products.py") if standalone and models else "",
        splits=bool(skeletons & {"tf32x3", "tf32x3_half"}),
        matrices=matrices,
        copies=_own_page("runtime/copies.py") if standalone and copies else "",
        copied=copies,
        packs=_launches_say(views, "_packed_bytes("),
        patches="patches" in skeletons,
        steps=_launches_say(views, "_every("),
        imports=[],
    )
    libdevice = any(v.libdevice for v in views)
    body.imports = _imports(body, views, libdevice, standalone)
    return environment().get_template("module.py.j2").render(module=body)


def _launches_say(views: list[SimpleNamespace], text: str) -> bool:
    launches = [own for v in views for own in v.launches]
    lines = [
        line
        for own in launches
        for part in (own.lines, *(b for _, b in own.branches))
        for line in part
    ]
    return any(text in line for line in lines)


def _own_page(file: str) -> str:
    """The functions of a module of the runtime, for one that imports nothing of tritongen."""
    text = own_text(file)
    text = text[text.index("\ndef ") :]
    names = "|".join(re.findall(r"^def ([a-z]\w*)", text, re.M))
    return re.sub(rf"(?<![.\w])({names})(?=\()", r"_\1", text)


def _layout(views: list[SimpleNamespace]) -> str:
    """The text of what allocations call, for a module that imports nothing of tritongen; it is called there."""
    used = "".join(text for v in views for _, text in v.outputs)
    if "runtime." not in used:
        return ""
    for view in views:
        view.outputs = [(name, text.replace("runtime.", "_")) for name, text in view.outputs]
    return _own_page("runtime/layout.py")


def _docstring_safe(line: str) -> str:
    return line.rstrip().replace("\\", "\\\\").replace('"""', "'''")


def _imports(body, views, libdevice: bool, standalone: bool) -> list[str]:
    everything = "\n".join(
        line
        for v in views
        for line in (
            *v.checks,
            *(line for lines in v.references for line in lines),
            *(
                x
                for own in (*v.launches, *v.sequences)
                for x in (*own.lines, *(y for _, b in own.branches for y in b))
            ),
        )
    )
    lines = []
    if body.patches or body.copies or re.search(r"\bmath\.", everything):
        lines.append("import math")
    if body.gradients:
        lines += ["import functools", "import inspect"]
        lines += ["from collections.abc import Callable, Mapping", "from typing import Any"]
    if body.uses_multiprocessors or body.describes:
        lines.append("from functools import cache")
    if lines:
        lines.append("")
    lines += ["import torch", "import triton", "import triton.language as tl"]
    lines.append("from triton.runtime.interpreter import InterpretedFunction")
    if body.describes:
        lines.append("from triton.tools.tensor_descriptor import TensorDescriptor")
    if libdevice:
        lines.append("from triton.language.extra import libdevice")
    if not standalone:
        lines += ["", "from tritongen import runtime"]
        if body.asks:
            lines.append("from tritongen.runtime import f32_precision as _f32_precision")
        if body.copied:
            names = ", ".join(f"{name} as _{name}" for name in body.copied)
            lines.append(f"from tritongen.runtime.copies import {names}")
        if body.models:
            lines.append("from tritongen.runtime.products import cdiv as _cdiv, pow2 as _pow2")
            lines += (f"from tritongen.runtime.products import {m} as _{m}" for m in body.models)
    return lines

"""Plans to the text of one generated module: its ops behind its imports.

Input: for each op of a file its typings' plans. Output: Python source, walked against the allow-list
(`allow.py`) and its names checked (`scopes.py`); formatting it is `format.py`, which the run-time path leaves
out until someone asks. Not here: one op (`op_view.py`), what all modules share (`library.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Set
from types import SimpleNamespace

from tritongen.emit import allow, library, scopes, walked
from tritongen.emit.choose import with_shared
from tritongen.emit.op_plans import OpPlans
from tritongen.emit.op_view import environment, op_view

# Where the names come from that a module may speak of: Python's own, others' and ours.
IMPORTS = (
    {
        "functools": "import functools",
        "inspect": "import inspect",
        "math": "import math",
        "re": "import re",
        "threading": "import threading",
        "Callable": "from collections.abc import Callable",
        "Mapping": "from collections.abc import Mapping",
        "dataclass": "from dataclasses import dataclass",
        "cache": "from functools import cache",
        "SimpleNamespace": "from types import SimpleNamespace",
        "Any": "from typing import Any",
    },
    {
        "torch": "import torch",
        "triton": "import triton",
        "TorchDispatchMode": "from torch.utils._python_dispatch import TorchDispatchMode",
        "backends": "from triton.backends import backends",
        "tl": "import triton.language as tl",
        "libdevice": "from triton.language.extra import libdevice",
        "InterpretedFunction": "from triton.runtime.interpreter import InterpretedFunction",
        "TensorDescriptor": "from triton.tools.tensor_descriptor import TensorDescriptor",
    },
    {"lib": "from tritongen import lib", "runtime": "from tritongen import runtime"},
)


def module_source(
    title: str, source_name: str, text: str, items: tuple[OpPlans, ...], standalone: bool = False
) -> str:
    """The unformatted text of a module."""
    body = ops_source(source_name, items, standalone)
    allow.walk(body)
    code = "\n\n\n".join(library.inlined(body)) if standalone else body
    said = {n.id for n in walked.names(walked.parsed(code))}
    scopes.check_names(code, said & {name for table in IMPORTS for name in table})
    module = SimpleNamespace(
        title=f"{title}: {', '.join(i.name for i in items)}" if len(items) > 1 else items[0].name,
        spec="\n".join(map(_docstring_safe, text.strip().splitlines())),
        source=source_name,
        digest=hashlib.sha256(text.encode()).hexdigest()[:8],
        imports=_imports(said),
        code=code,
    )
    return environment().get_template("module.py.j2").render(module=module)


def ops_source(source_name: str, items: tuple[OpPlans, ...], standalone: bool = False) -> str:
    """The text of its ops, not looked at: what they import is not known."""
    ops = [op_view(own) for item in items for own in item.printed]
    launches = [launch for op in ops for launch in op.launches]
    for launch, choose in zip(launches, with_shared(v.choose for v in launches), strict=True):
        launch.choose = choose
    module = SimpleNamespace(
        source=source_name,
        ops=ops,
        runtime=not standalone,
        version=library.version(),
    )
    return environment().get_template("ops.py.j2").render(module=module)


def _imports(said: Set[str]) -> str:
    """A paragraph of each table, a module of which several names are imported in one line."""
    paragraphs = []
    for table in IMPORTS:
        lines: dict[str, list[str]] = {}
        for name in table:
            if name in said:
                module, _, member = table[name].partition(" import ")
                lines.setdefault(module, []).extend([member] if member else [])
        shown = [f"{m} import {', '.join(names)}" if names else m for m, names in lines.items()]
        paragraphs += ["\n".join(shown)] if shown else []
    return "\n\n".join(paragraphs)


def _docstring_safe(line: str) -> str:
    return f"    {line}".rstrip().replace("\\", "\\\\").replace('"""', "'''")

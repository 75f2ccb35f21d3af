"""Which part of tritongen may import which: the arrows of the architecture."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "tritongen"
LEAVES = {"errors", "faults", "files", "resources", "work"}
FRONT = {"syntax", "ir", "check", "autodiff", "kernel", "schedule", "reference", "emit", "pipeline"}
MAY_IMPORT = {
    "errors": set(),
    "faults": {"errors"},
    "files": set(),
    "resources": set(),
    "work": set(),
    "syntax": LEAVES,
    "ir": LEAVES | {"syntax"},  # syntax: only to print the IR in the language
    "check": LEAVES | {"syntax", "ir"},
    # The table writes derivatives in the language, and a gradient is read back from its text.
    "autodiff": LEAVES | {"ir", "syntax", "check"},
    "kernel": LEAVES | {"ir"},
    "schedule": LEAVES | {"ir", "kernel"},
    "reference": LEAVES | {"ir", "syntax", "schedule"},
    "emit": LEAVES | {"ir", "syntax", "kernel", "schedule", "reference"},
    "lib": set(),  # generated code imports these two: nothing of the compiler
    "runtime": {"files", "lib"},
}
NO_TORCH = {
    "syntax",
    "check",
    "schedule",
    "reference",
    "emit",
    "pipeline",
    "cli",
    "cli_tools",
    "editor",
    "explain",
    "output",
    "errors",
    "__init__",
}


def imports(path: Path, top_level_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text())
    names: set[str] = set()
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "tritongen":
            names |= {f"tritongen.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_each_part_imports_only_what_it_may():
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        mine = part(path)
        for name in imports(path):
            if name.startswith("tritongen.") and mine in MAY_IMPORT:
                other = name.split(".")[1]
                if other != mine and other not in MAY_IMPORT[mine]:
                    wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not wrong


def test_building_needs_neither_torch_nor_triton():
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in PACKAGE.rglob("*.py")
        if part(path) in NO_TORCH
        for name in imports(path, top_level_only=True)
        if name.split(".")[0] in ("torch", "triton")
    ]
    assert not wrong

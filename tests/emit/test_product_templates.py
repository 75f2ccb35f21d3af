"""Templates of products are kernels by themselves, which change where their text is changed."""

from __future__ import annotations

import re
import shutil

import pytest

from tritongen import trace
from tritongen.emit import names, op_view
from tritongen.pipeline import build
from tritongen.proof.crosscompile import launches_of
from tritongen.resources import folder, package_folder
from tritongen.runtime.load import load_text

MATMUL = "op f(a: f16[M, K], b: f16[K, N]) -> y: f16[M, N] { y[m, n] = sum[k](a[m, k] * b[k, n]) }"
FORGET = (op_view.environment, names.words_of, build)


PRODUCTS = (
    "contraction persistent ragged tf32x3 patches sliding bounded matrices product_view"
    " nest runs scatter"
)


def test_python_makes_no_tile_of_a_kernel():
    """Nor does it look for one in text."""
    for name in PRODUCTS.split():
        text = (package_folder("emit") / f"{name}.py").read_text()
        said = re.findall(
            r"tl\.(?:arange|zeros)\(|\bmentions\b|^import re$",
            text,
            re.M,
        )
        assert not said, (name, said)


@pytest.mark.slow
def test_each_template_is_a_kernel(run_checks):
    run_checks("product_checks.py")


def ttir() -> dict[str, str]:
    """What Triton makes of each kernel of a product, without the names of places in its text."""
    for known in FORGET:
        known.cache_clear()
    built = build(MATMUL, "f.op")
    module, found = load_text("f", built.raw), {}
    for _, _, _, launch in launches_of(module, built.plans["f"][0], {}, "sm_90", 64):
        name = launch.kernel.fn.__name__
        if name not in found:
            text = trace.compile_launch(launch, "sm_90").asm["ttir"]
            text = re.sub(r" loc\(.*\)$|^#loc.*$", "", text, flags=re.M)
            seen: dict[str, str] = {}
            found[name] = re.sub(
                r"%[\w-]+", lambda m, s=seen: s.setdefault(m[0], f"%{len(s)}"), text
            )
    return found


@pytest.mark.slow
def test_a_local_is_renamed_in_its_template_alone(tmp_path, monkeypatch):
    before = ttir()
    assert set(before) == {"f_persistent", "f_subtiles", "f_tiles", "f_combine"}
    shutil.copytree(folder("templates"), tmp_path / "templates")
    for local in ("column", "half", "work", "subtile", "first_row"):
        for file in (tmp_path / "templates").glob("*.j2"):
            file.write_text(re.sub(rf"(?<!\.)\b{local}\b", f"own_{local}", file.read_text()))
    for module in (op_view, names):
        monkeypatch.setattr(module, "folder", lambda name: tmp_path / name)
    try:
        assert ttir() == before and "own_half" in build(MATMUL, "f.op").raw
    finally:
        monkeypatch.undo()
        for known in FORGET:
            known.cache_clear()

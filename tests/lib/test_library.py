"""The runtime library as generated modules see it: one name each, and the text that stands alone."""

from __future__ import annotations

import inspect
import re

import pytest
import torch

from tritongen import lib, pipeline
from tritongen.emit import allow, library
from tritongen.lib import alone, replayed
from tritongen.runtime.load import load_text

SPEC = "op f<T: float>(x: T[N, D]) -> y: T[N] { y[n] = max[d](exp(x[n, d])) }"


def test_the_compiler_reads_what_modules_import():
    """By name, and no two files of the library define one."""
    own = {f"{inspect.getmodule(v).__name__}.{n}" for n, v in vars(lib).items() if _is_ours(v)}
    read = {n for n in library.functions() if not n.startswith("_")}
    stands_alone = {
        n for m in (alone, replayed) for n, v in vars(m).items() if inspect.getmodule(v) is m
    }
    assert read - stands_alone == {name.rpartition(".")[2] for name in own}
    assert len(own) == len({name.rpartition(".")[2] for name in own})
    assert library.version() == lib.VERSION


def _is_ours(value) -> bool:
    module = inspect.getmodule(getattr(value, "fn", value))
    return callable(value) and module is not None and module.__name__.startswith("tritongen.lib.")


def test_what_is_used_is_inlined_callees_first():
    raw = pipeline.build("op f(x: f32[...]) -> y: f32[...] { y = tanh(x) }", standalone=True).raw
    assert "tritongen" not in raw.partition('"""\n\n')[2] and "_tanh(x" in raw
    used = [f for f in library.functions() if f"def _{f}(" in raw]
    for name in used:
        for callee in library.functions()[name].calls:
            found = re.search(rf"^(def|class) {library.own_name(callee)}\b", raw, re.MULTILINE)
            assert found and found.start() < raw.index(f"def _{name}(")
    assert "nan_max" not in raw


def test_a_module_of_another_version_is_refused_with_the_remedy():
    raw = pipeline.build(SPEC, "f.op").raw
    assert f"lib={lib.VERSION}" in raw
    with pytest.raises(
        ImportError, match="f.op was built for version 0 of .*`tritongen build f.op`"
    ):
        load_text("f_of_another_version", raw.replace(f"lib={lib.VERSION}", "lib=0"))


def test_only_entries_of_a_config_are_named_where_they_stand():
    allow.walk("def f(n):\n    return dict(BLOCK=(BLOCK := n), num_warps=(num_warps := 4))\n")
    for name in ("lib", "n", "f", "tl"):
        with pytest.raises(allow.NotAllowed):
            allow.walk(f"def f(n):\n    return dict(BLOCK=({name} := n))\n")


def test_a_module_calls_what_the_library_has():
    allow.walk("def f(x):\n    return lib.nan_max(x, x)\n")
    for text in ("lib.nothing(x)", "lib._copy(x)", "lib.torch.load(x)"):
        with pytest.raises(allow.NotAllowed):
            allow.walk(f"def f(x):\n    return {text}\n")


def test_no_module_of_the_library_hides_a_function_of_its_name():
    hidden = [name for name in library.functions() if inspect.ismodule(getattr(lib, name, None))]
    assert hidden == ["replayed"]  # which stands alone: no module asks `lib` for it


def test_functions_have_names_of_their_own_in_a_standalone_module():
    """`add_parts` and its kernel `_add_parts` had one: standalone attention could not be built."""
    names = list(map(library.own_name, library.functions()))
    assert len(names) == len(set(names))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_gradients_of_f8_are_added_over_batch_dims(dtype):
    """torch adds no f8."""
    gradient = torch.tensor([[1.0, 4.0], [2.0, 8.0], [3.0, 16.0]]).to(dtype)
    total = alone.fitted(gradient, torch.Size([1]), 0)
    assert total.dtype == dtype and total.float().tolist() == [32.0]  # 34, rounded

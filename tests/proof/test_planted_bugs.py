"""Kernels with a planted bug must not pass: each kind by the catcher that is there for it.

"run": the derived tests in the interpreter. "ptx": the compiled code, for what the interpreter cannot
show. "gpu": the derived tests on a GPU. An edit that no longer applies fails its test.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tritongen import pipeline

ROOT = Path(__file__).parents[2]
INLINE = {
    "halves": "op halves<T: int>(x: T[N], y: T[N]) -> z: T[N] {\n"
    "  z[n] = x[n] // (y[n] * y[n] + 1)\n}\n",
    "twice": "op twice<T: float>(x: T[N]) -> (y: T[N], z: T[N]) {\n"
    "  y[n] = x[n] * 0.3\n  z[n] = y[n] * 3\n}\n",
    "count": "op count(x: i32[N, D]) -> y: i64[N] {\n  y[n] = sum[d](x[n, d])\n}\n",
    "product": "op product(a: f32[M, K], b: f32[K, N]) -> y: f32[M, N] {\n"
    "  y[m, n] = sum[k](a[m, k] * b[k, n])\n  precision ieee\n}\n",
    "some_rows": "op some_rows(a: f32[M, K], b: f32[K, N], c: i32[M]) -> y: f32[M, N] {\n"
    "  y[m, n] = sum[k](where(c[m] > 0, a[m, k] * b[k, n], 0))\n}\n",
}


@dataclass(frozen=True)
class Bug:
    kind: str
    spec: str
    old: str
    new: str
    catcher: str = "run"
    shared: bool = False  # in the library, which only a module that stands alone holds itself
    seed: int = 1  # of one that few calls show


BUGS = (
    Bug("swapped axis", "softmax", "row * x_row + col * x_col", "row * x_col + col * x_row"),
    Bug("dropped mask of a load", "row_sum", ", mask=inside, other=0.0)", ")"),
    Bug("dropped mask of a store", "relu", "y, mask=inside)", "y)"),
    Bug("wrong identity", "row_max", 'other=float("-inf")', "other=0.0"),
    Bug("floor for truncate", "halves", "lib.floor_div(x, y * y + 1)", "x // (y * y + 1)"),
    Bug(
        "accumulator as narrow as the operand",
        "row_sum",
        "_acc += x",
        "_acc = (y_sum_acc + x).to(x_ptr.dtype.element_ty).to(COMPUTE)",
    ),
    Bug("bound off by one", "rms_norm", "col < D", "col < D - 1"),
    Bug(
        "last block left out",
        "layer_norm",
        "range(begin, end, BLOCK)",
        "range(begin, end - 1, BLOCK)",
    ),
    Bug("output read again unrounded", "twice", ".to(x_ptr.dtype.element_ty)", ""),
    Bug("i32 accumulator", "count", "tl.int64", "tl.int32"),
    Bug("stride taken for 1", "softmax", "*x.stride()", "x.stride(0), 1"),
    Bug("one part too few", "row_sum", "parts < PARTS)", "parts < PARTS - 1)"),
    Bug("padding not left out", "avg_pool2d", "(x_w >= 0) & ", ""),
    Bug("weights of another segment", "moe_linear", "tl.where(own, segment_sum, 0)", "segment_sum"),
    Bug("a row left out by a factor of 0", "some_rows", "y_sum, 0)", "y_sum, 0 * y_sum)"),
    Bug("last of equal extremes", "row_argmax", "(i < j)", "(i > j)", shared=True),
    Bug("NaN is no extreme", "row_argmax", "| ((a != a) & (b == b)) ", "", shared=True),
    Bug(
        "a mean that does not look again",
        "layer_norm",
        "lib.mean_of(x, in_row & in_d, D, 1)",
        "tl.sum(x, 1, keep_dims=True) / D",
        seed=8,
    ),
    Bug("lost NaN", "row_max", "lib.nan_max", "lib.larger", "ptx"),
    Bug("tf32 for ieee", "product", 'runtime.f32_precision("ieee")', '"tf32"', "ptx"),
    Bug(
        "half accumulator of a product",
        "matmul",
        "out_dtype=COMPUTE",
        "out_dtype=tl.float16",
        "gpu",
    ),
)


def spec_text(name: str) -> str:
    return INLINE.get(name) or (ROOT / "specs" / f"{name}.op").read_text()


def planted(bug: Bug) -> tuple[str, str]:
    """The module's source as generated, and with the bug."""
    source = pipeline.build(spec_text(bug.spec), f"{bug.spec}.op", standalone=bug.shared).source
    assert bug.old in source, f"nowhere in {bug.spec}: {bug.old}"
    return source, source.replace(bug.old, bug.new)


QUICK = ("swapped axis", "dropped mask of a load", "dropped mask of a store", "lost NaN")


def of(catcher: str):
    found = [
        pytest.param(b, marks=() if b.kind in QUICK else pytest.mark.slow)
        for b in BUGS
        if b.catcher == catcher
    ]
    return pytest.mark.parametrize("bug", found, ids=lambda b: b.kind.replace(" ", "-"))


@of("run")
def test_found_by_running(bug, interpreter):
    _, source = planted(bug)
    job = {"text": spec_text(bug.spec), "name": f"{bug.spec}.op", "device": "cpu", "seed": bug.seed}
    report = interpreter.ask(job | {"examples": 30, "source": source, "stop": True})
    problems = [f["problem"] for f in report["failures"]]
    assert problems, f"{bug.kind} passed {report['examples']} examples"
    assert not any("Traceback" in p for p in problems), problems


@of("ptx")
def test_found_in_the_compiled_code(bug):
    from tritongen.proof.crosscompile import crosscompile

    right, wrong = planted(bug)
    for source, bad in ((right, False), (wrong, True)):
        built = crosscompile(spec_text(bug.spec), f"{bug.spec}.op", dtypes=("f32",), source=source)
        assert any(b.problem for b in built) == bad


@pytest.mark.gpu
@of("gpu")
def test_found_on_a_gpu(bug):
    from tritongen.proof.pool import Worker

    _, source = planted(bug)
    job = {"text": spec_text(bug.spec), "name": f"{bug.spec}.op", "device": "cuda", "seed": 1}
    with Worker("cuda") as worker:
        assert worker.ask(job | {"examples": 30, "source": source, "stop": True})["failures"]

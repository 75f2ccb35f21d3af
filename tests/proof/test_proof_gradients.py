"""The proof of derived gradients: what it finds, and what it draws."""

import os
import subprocess
import sys
from dataclasses import replace
from random import Random

import pytest

from tritongen import pipeline
from tritongen.autodiff import gradient
from tritongen.proof import excluded, gradients
from tritongen.runtime.load import load_text

CUBE = "op cube<T: float>(x: T[N]) -> y: T[N] {\n  y[n] = x[n] ** 3\n"
RIGHT = "  grad { dx[n] = dy[n] * 3 * x[n] ** 2 }\n"


def derived(text):
    built = pipeline.build(text, gradients=True)
    nests = pipeline.build(text, only="nest", gradients=True)
    modules = load_text(built.name, built.raw), load_text(f"{built.name}_nest", nests.raw)
    return gradients.derived_of(built.items[-1], built.items[-1], nests.items[-1], modules)


@pytest.mark.parametrize("clause", ["", RIGHT])
def test_a_right_gradient_passes(clause):
    found = derived(f'{CUBE}{clause}  ref "x ** 3"\n}}')
    assert [gradients.wrong_sense(found, Random(k)) for k in range(3)] == [""] * 3


def test_a_gradient_that_is_off_by_a_factor_is_found():
    found = derived(f"{CUBE}{RIGHT.replace('3', '2')}}}")
    assert "dx: along a random direction" in gradients.wrong_sense(found, Random(0))


def test_a_gradient_that_is_not_the_refs_is_found(monkeypatch):
    monkeypatch.setattr(gradients, "_by_differences", lambda *given: None)
    found = derived(f'{CUBE}{RIGHT}  ref "x ** 2"\n}}')
    assert "off torch's gradient of ref 'x ** 2'" in gradients.wrong_sense(found, Random(0))


def test_a_gradient_of_what_is_broadcast_behind_a_dim_is_fitted():
    text = "op f<T: float>(w: T[P, ...], g: T[P, ...]) -> z: T[P, ...] {\n"
    text += "  m[...] = min[i](w[i, ...])\n  z[i, ...] = (w[i, ...] - m[...]) * g[i, ...]\n}"
    assert [gradients.wrong_sense(derived(text), Random(k)) for k in range(12)] == [""] * 12


def test_what_an_excluded_element_holds_must_not_show():
    text = "op f<T: float>(x: T[N]) -> y: T[N] {\n  t[n] = exp(x[n])\n"
    text += "  y[n] = where(x[n] < 0, t[n], 0)\n"
    wrong = "  grad {\n    dx[n] = where(x[n] < 0, dy[n], 0) * t[n]\n  }\n}"
    assert "is excluded and holds" in gradients.wrong_sense(derived(text + wrong), Random(0))
    assert gradients.wrong_sense(derived(text + "}"), Random(0)) == ""


def test_only_masks_over_rows_and_columns_multiply_what_is_not_finite():
    def masked(mask, condition):
        text = f"op f<T: float>({mask}, a: T[L, K], b: T[N, K]) -> y: T[L, N] {{\n"
        return derived(f"{text}  y[l, n] = where({condition}, sum[k](a[l, k] * b[n, k]), 0)\n}}")

    both, rows = masked("m: bool[L, N]", "m[l, n]"), masked("m: bool[L]", "m[l]")
    for found, finite in ((both, True), (rows, False)):
        assert excluded.masks_rows_and_columns(gradient(found.forward)) == finite
        assert gradients.wrong_sense(found, Random(0)) == ""


def test_half_types_and_casts_are_seen_in_f64():
    found = derived(
        "op f<T: f16 | bf16>(x: T[N], s: f32[N]) -> y: T[N] {\n  y[n] = f16(f32(x[n]) * s[n])\n}"
    )
    wide, _ = gradients.wide_ops(found.forward)
    assert {t.dtype for t in wide.tensors} <= {"T", "f64"}
    assert wide.typarams[0].dtypes == ("f64",)
    assert gradients.wrong_sense(found, Random(0)) == ""


def test_what_comes_in_is_expanded_in_a_third_of_the_calls():
    found = derived(CUBE + "}")
    case = gradients.smooth_case(found.forward, Random(0), {"T": "f32"}, "cpu")
    case = replace(case, sizes={"N": 7})
    strides = set()
    for seed in range(3):
        args = gradients.backward_arguments(found, replace(case, seed=seed), "cpu")
        assert set(args) == {"x", "dy"} and args["dy"].shape == args["x"].shape
        strides |= {args["dy"].stride()}
    assert (0,) in strides and (1,) in strides


def test_ops_without_a_gradient_have_none():
    assert derived("op f<T: int>(x: T[N]) -> y: T[N] { y[n] = x[n] + 1 }") is None
    assert derived(CUBE + "  grad none\n}") is None


def test_check_proves_gradients_and_counts_them(interpreter):
    job = {"text": CUBE + "}", "name": "cube.op", "device": "cpu", "examples": 4, "gradients": True}
    report = interpreter.ask(job)
    assert not report["failures"] and report["gradients"] == 2


PLANTED = """
from random import Random
from tritongen import pipeline
from tritongen.proof import gradients, runner
from tritongen.runtime.load import load_text
import time

built = pipeline.build({text!r}, gradients=True)
nests = pipeline.build({text!r}, only="nest", gradients=True)
assert built.raw.count({old!r})
wrong = load_text("wrong", built.raw.replace({old!r}, {new!r}))
modules = wrong, load_text("nest", nests.raw)
progress = runner.Progress("cpu")
derived = gradients.derived_of(built.items[0], built.items[0], nests.items[0], modules)
gradients.prove(progress, derived, range(2), 0, time.monotonic() + 60)
print([f["variant"] for f in progress.failures], progress.failures[0]["call"])
"""


@pytest.mark.slow
def test_a_bug_in_a_gradients_kernel_is_found():
    script = PLANTED.format(text=CUBE + "}", old="dy * (3.0 * (x", new="dy * (2.0 * (x")
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert "['chosen', " in done.stdout and "cube_backward(x=float" in done.stdout, done.stderr
    assert "nest" not in done.stdout


PAIR = """
op pair<T: float>(a: T[N], b: T[N]) -> (y: T[N], z: T) {
  y[n] = a[n] * b[n]
  z = sum[n](a[n])
}
"""


@pytest.mark.parametrize("swapped", [False, True])
def test_backward_is_held_to_the_gradient_it_calls(swapped):
    found = derived(PAIR)
    told = 'wrt=("a", "b")'.replace('"', "'")
    assert found.modules[0].pair.source.count(told) == 1
    if swapped:
        wrong = found.modules[0].pair.source.replace(told, 'wrt=("b", "a")')
        found = replace(found, modules=(load_text("pair_wrong", wrong), found.modules[1]))
    problems, heads, asked = set(), set(), set()
    for seed in range(24):
        case = gradients.smooth_case(found.forward, Random(seed), {"T": "f32"}, "cpu")
        args = gradients.backward_arguments(found, case, "cpu")
        known, problem = gradients.through_autograd(found, case, args, "cpu")
        problems.add(problem.split(":")[0])
        heads.add(tuple(bool(known[f"d{n}"].any()) for n in "yz"))
        asked.add(tuple(gradients.some_of(["a", "b"], Random(case.seed))))
    assert heads == {(True, True), (True, False), (False, True)} and len(asked) == 3
    assert (problems == {""}) is not swapped

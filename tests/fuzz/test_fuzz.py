"""What the fuzzer once found stays mended; some drawn specs have no finding; the fuzzer itself."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tritongen.errors import SpecError
from tritongen.proof import cases, runner
from tritongen.proof.fuzz import defined, found, trial
from tritongen.proof.fuzz.draw import draw_spec, strategy
from tritongen.proof.fuzz.drive import Pair, drawn
from tritongen.proof.fuzz.shrink import is_spec, smaller
from tritongen.runtime.precision import f32_precision

FOUND = sorted((Path(__file__).parent / "found").glob("*.op"))
DRAWN = 8


@pytest.fixture(scope="module")
def pair():
    with Pair("cpu", compiles=True) as both:
        yield both


@pytest.mark.slow
@pytest.mark.parametrize("path", FOUND, ids=lambda p: p.stem)
def test_what_was_found_stays_mended(path, pair):
    """By the stage that met it: kernels or what a compiler says, of the op or with its gradient."""
    text = path.read_text()
    stages = found.stages_of(text)
    assert stages, "its first line names no stage, so that all of them would run"
    report = pair.report(text, path.name, found.seed_of(text), **found.parts_of(*stages))
    assert not report["findings"], "\n".join(f["problem"] for f in report["findings"])


@pytest.mark.slow
@settings(
    max_examples=DRAWN,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # `python -m tritongen.proof.fuzz` makes what it finds small
    suppress_health_check=list(HealthCheck),
)
@given(strategy())
def test_drawn_specs(pair, spec):
    """The same ones each time, on a fast machine and on a slow one."""
    report = pair.report(spec.text, "drawn", 0)
    assert not report["findings"], f"{report['findings']}\n{spec.text}"


# ---- the fuzzer ---------------------------------------------------------------------------------
def test_a_seed_is_a_spec():
    assert drawn(3, 14) == drawn(3, 14)
    assert len({draw_spec(Random(k)).text for k in range(20)}) > 15


def test_few_drawn_specs_are_refused():
    from tritongen.check import check
    from tritongen.syntax.parse import parse

    refused = 0
    for k in range(100):
        try:
            check(parse(draw_spec(Random(k)).text))
        except SpecError as error:
            assert all(d.span is not None for d in error.diagnostics)
            refused += 1
    assert refused < 25


def test_many_drawn_chains_are_one_kernel():
    """Attention in every form; what else is drawn hardly ever is one."""
    from tritongen.check import check
    from tritongen.ir.bounds import facts_of
    from tritongen.proof.fuzz.motifs_chains import chain
    from tritongen.proof.fuzz.sketch import Sketch
    from tritongen.schedule.canonical import canonical
    from tritongen.schedule.classes.chains import pairs
    from tritongen.syntax.parse import parse

    found = 0
    for k in range(20):
        sketch = Sketch(Random(k), typarams={"T": "f16 | bf16", "U": "f16 | f32"})
        chain(sketch)
        op, facts = (o := check(parse(sketch.text()))[0].typings[0]), facts_of(o)
        found += bool(pairs(op, canonical(op, facts), facts))
    assert found > 4


def test_names_of_nobody_are_found():
    text = "import torch\ndef f(x):\n    return torch.relu(y) + len(x)\ndef f(x):\n    return x\n"
    assert defined.problems(text) == ["undefined name: y in f", "two functions: f"]
    text = "@triton.jit\ndef k(x_ptr, D: tl.constexpr):\n    D = 3\n"
    assert defined.problems(f"import triton\nimport triton.language as tl\n{text}") == [
        "constexpr assigned: D in k"
    ]


def test_smaller_specs_are_specs():
    text = "op f<T: float>(x: T[N, D], w: T[D]) -> (y: T[N], z: T[N, D]) { z = x * w  y[n] = sum[d](z[n, d] * 2) }"
    found_ones = [t for t in smaller(text) if is_spec(t)]
    assert "op f<T: float>(x: T[N, D], w: T[D]) -> z: T[N, D] {\n  z = x * w\n}\n" in found_ones
    assert len(found_ones) > 4


def test_calls_run_in_the_precision_that_they_print(monkeypatch):
    from tritongen.check import check
    from tritongen.syntax.parse import parse

    text = "op f(a: f32[N], b: f32[N]) -> y: f32 {\n  y = sum[n](a[n] * b[n])\n}"
    op = check(parse(text))[0].typings[0]
    drawn_words, words, draw = [], [], cases.draw_case

    def noted(*given):
        case = draw(*given)
        drawn_words.append(case.precision)
        return case

    def asked(*given):
        words.append(f32_precision("matmul"))
        return None, 0.0

    monkeypatch.setattr(cases, "draw_case", noted)
    monkeypatch.setattr(runner, "problem_with", asked)
    candidate = SimpleNamespace(name="chosen", plan=SimpleNamespace(op=op), folds=())
    seen = trial.Trial("cpu", Random(0), float("inf"))
    trial.try_calls(seen, [candidate, candidate], 9, "kernels")
    assert words == [word for word in drawn_words for _ in range(2)] and len(set(words)) == 3


def test_backward_itself_is_tried(monkeypatch):
    """Not only the gradient's kernels: what is saved for them, passed on and summed to a broadcast operand."""
    from tritongen.proof.fuzz.gradients import try_backward
    from tritongen.runtime import gradients

    text = "op f<T: float>(x: T[N, ...], z: T[N, ...]) -> y: T[N, ...] {\n  y[n, ...] = x[n, ...] * z[n, ...]\n}"
    stages = []
    for broken in (False, True):
        if broken:
            text = text.replace("op f", "op g")  # an op's backward is made once
            monkeypatch.setattr(gradients, "fitted", lambda g, shape, before: g.new_zeros(shape))
        for seed in range(3):
            seen = trial.Trial("cpu", Random(seed), time.monotonic() + 60)
            try_backward(seen, text, text[3])
            stages.append([finding["stage"] for finding in seen.findings])
    assert stages[:3] == [[]] * 3 and ["backward"] in stages[3:]

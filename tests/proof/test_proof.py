"""Every spec against the oracle, every variant forced; and the proof's own parts."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from zlib import crc32

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tritongen
from tritongen import pipeline
from tritongen.check import check
from tritongen.ir.binding import bind
from tritongen.ir.interp import run
from tritongen.proof import Result, cases, pool
from tritongen.proof.eager import operands_of_torch
from tritongen.proof.factors import tf32, truncated
from tritongen.proof.judge import judge
from tritongen.proof.oracle import Expected, expect
from tritongen.proof.parts import joined, parts_of
from tritongen.proof.reference import disagreement, disagreements
from tritongen.proof.values import LAYOUTS, Filling, fill_tensor
from tritongen.proof.variants import config_of, ways
from tritongen.runtime.load import load_text
from tritongen.schedule.rules import evaluate, names
from tritongen.syntax.parse import parse

ROOT = Path(__file__).parents[2]
SPECS = sorted((ROOT / "specs").glob("*.op"))
# Ops that no spec of ours needs: axes in odd places, guards, gathers, scatters, quantisation.
PROGRAMS = sorted((ROOT / "tests" / "programs").glob("*.op"))
QUICK = ("bias_add", "conv2d", "matmul", "row_max", "softmax")


def op_of(text: str):
    return check(parse(text, "test"))[0].typings[0]


def spec_op(name: str):
    return op_of((ROOT / "specs" / f"{name}.op").read_text())


# ---- every spec ---------------------------------------------------------------------------------
def prove(interpreter, spec: Path, examples: int, seed: int = 0) -> Result:
    name = spec.relative_to(ROOT).as_posix()
    job = {"text": spec.read_text(), "name": name, "device": "cpu"}
    return Result(interpreter.ask(job | {"examples": examples, "seed": seed, "seconds": 10}))


def test_no_example_is_no_proof():
    """A spec none of whose drawn calls is legal was "all right": with 0 examples."""
    report = {"spec": "f", "device": "cpu", "examples": 0, "rejected": 40, "failures": []}
    assert not Result(report).ok
    assert "nothing tested: the op accepted none of 40 random calls" in str(Result(report))


@pytest.mark.parametrize("name", QUICK)
def test_kernels_quickly(name, interpreter):
    result = prove(interpreter, ROOT / "specs" / f"{name}.op", examples=4)
    assert result.ok, str(result)
    assert result.report["examples"] >= 4


@pytest.mark.parametrize("name", ["softmax", "linear_gelu"])
def test_a_standalone_module_passes_the_same(name, interpreter):
    spec = ROOT / "specs" / f"{name}.op"
    alone = pipeline.build(spec.read_text(), f"specs/{name}.op", standalone=True)
    assert "tritongen import" not in alone.raw
    job = {
        "text": spec.read_text(),
        "name": f"specs/{name}.op",
        "device": "cpu",
        "source": alone.raw,
    }
    result = Result(interpreter.ask(job | {"examples": 4, "seed": 0, "seconds": 20}))
    assert result.ok, str(result)
    assert result.report["examples"] >= 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [*SPECS, *PROGRAMS],
    ids=lambda p: p.stem,
)
def test_kernels(spec, interpreter):
    result = prove(interpreter, spec, examples=9, seed=1)
    assert result.ok, str(result)
    assert result.report["examples"] or "bf16" in spec.read_text()


# ---- cross-compilation --------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS, ids=lambda p: p.stem)
def test_kernels_compile_without_a_gpu(spec):
    from tritongen.proof.crosscompile import crosscompile

    k = crc32(spec.stem.encode())  # a new spec leaves the others' types and targets as they are
    name, text = f"specs/{spec.name}", spec.read_text()
    dtypes = ("bf16", "f32", "f16", "f64")
    first, second = dtypes[k % 4], dtypes[(k + 1) % 4]
    other = ("sm_80", "sm_89", "sm_100", "sm_120", "gfx942")[k % 5]
    built = [*crosscompile(text, name, ("sm_90",), (first, second))]
    built += crosscompile(text, name, (other,), ("f32", "bf16"), first_only=True)
    wrong = [b for b in built if b.problem or b.own and b.spills > most_spilled(b)]
    assert not wrong, "\n".join(map(str, wrong))
    assert built


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_spills_are_held_but_in_nvidias_ieee_products(target, monkeypatch):
    from tritongen.proof import crosscompile

    def uncompiled(launch, word, variant, dtype, target, moves):
        word = launch.config.get("PRECISION", "")
        return crosscompile.Built(launch.kernel.fn.__name__, variant, word, target)

    monkeypatch.setattr(crosscompile, "compile_one", uncompiled)
    for spec, product in (("linear", True), ("softmax", False)):
        text = (ROOT / "specs" / f"{spec}.op").read_text()
        built = list(crosscompile.crosscompile(text, spec, (target,), ("f32",)))
        held = {b.dtype for b in built if b.own}
        words = {"tf32x3", "tf32"} if target == "sm_90" else {"ieee"}
        assert held - {""} == (
            words if product else set()
        ), spec  # parts are added up without a product


def test_only_a_max_that_is_asked_for_drops_nan():
    """LLVM makes a min of the first, as it may."""
    from tritongen.proof.crosscompile import crosscompile

    text = "op f<T: bf16>(x: T[N, N]) -> y: bool[N] { y[n] = any[m](x[n, m] <= 0) }"
    assert not any(b.problem for b in crosscompile(text, "f", size=16))
    text = "op f<T: bf16>(x: T[N, N]) -> y: T[N] { y[n] = max[m](x[n, m]) }"
    careless = pipeline.build(text, "f").raw.replace("lib.nan_max", "lib.larger")
    assert any(b.problem for b in crosscompile(text, "f", source=careless))


# Bytes a thread. Wide tiles with a long epilogue, or f32 products of three tf32 parts, fill the registers.
# What convolutions store has an address an element; half a tile that is 256 wide still spills: 616 bytes
# by Triton 3.7 (`conv_group_norm_silu_conv2d_taps`, bf16), 280 by 3.6; its `tiles` 424 and none. Rows forced at a size that does not choose them (`split` and `across` over rows of 64) take tiles that
# no call takes.
SPILLS = {
    "linear_gelu_tiles": 512,
    "swiglu_linear_gate_tiles": 512,
    "swiglu_linear_y_tiles": 512,
    "swiglu_linear_tiles": 256,
    "int8_linear_tiles": 512,
    "attention_s_tiles": 256,
    "layer_norm_loop": 288,  # f64: the mean is looked at again
    "conv_transpose2d_taps": 2560,
    "conv_transpose2d_tiles": 256,
    "conv_transpose3d_taps": 3072,
    "conv_transpose3d_tiles": 640,
    "conv_group_norm_silu_conv2d_taps": 768,
    "conv_group_norm_silu_conv2d_tiles": 512,
    "decode_attention_wide": 48,  # on sm_120: two addresses more since tiles are counted without overflow
    "conv1d_patches": 256,  # on sm_80, which has no descriptors and never takes it
    "conv_group_norm_silu_y_rows": 1024,
    "conv_group_norm_silu_y_lines_loop": 256,  # forced; none at sizes that choose it
    "group_norm_finish": 256,
    "moe_linear_tiles": 48,  # the sum of a segment beside that of all
    "moe_linear_tiles f64": 64,
    "moe_linear_tiles f32": 256,  # in parts, on sm_120
    "rms_norm_loop f64": 160,  # 32 columns a thread, and their sums
    "batch_norm_train_loop f64": 64,
    "batch_norm_train_per_thread_part f64": 128,
}


def most_spilled(built) -> int:
    """A few addresses may be spilled anywhere."""
    return SPILLS.get(f"{built.kernel} {built.dtype}", SPILLS.get(built.kernel, 32))


# ---- examples -----------------------------------------------------------------------------------
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
@pytest.mark.parametrize("name", ["conv2d", "group_norm", "huber", "conv_transpose1d", "softmax"])
def test_drawn_calls_are_calls(name, data):
    op = spec_op(name)
    case = data.draw(cases.strategy(op))
    bind(op, cases.arguments(op, case, "cpu"))  # raises where the call breaks a fact
    for simpler in cases.simpler(op, case):
        assert simpler != case


@pytest.mark.parametrize("layout", sorted(set(LAYOUTS)))
def test_layouts_hold_the_same_shape_and_poison_around(layout):
    x = fill_tensor((3, 5), torch.float32, layout, Filling("normal", 3))
    assert x.shape == (3, 5) and not x.isnan().any()
    everything = torch.empty(0).set_(x.untyped_storage())
    used = 5 if x.stride(0) == 0 else 3 if x.stride(1) == 0 else 15
    assert int((~everything.isnan()).sum()) == used
    assert (x.stride() == (5, 1)) == (layout in ("contiguous", "offset"))


def test_every_variant_is_forced_and_small_blocks_stay_legal():
    (plan,) = pipeline.build((ROOT / "specs/softmax.op").read_text(), "softmax").plans["softmax"]
    assert {"split", "rows", "loop"} <= {way.name for way in ways(plan)}
    (step,) = plan.steps
    facts = {"rows": 3, "cols": 100, "strided": False, "aligned": False, "in_f64": False, "sms": 8}
    for variant in step.variants:
        small = config_of(step, variant, facts, small=True)
        assert small["BLOCK"] == (128 if variant.name in ("rows", "strided") else 16)
    split = next(v for v in step.variants if v.name == "split")
    split = config_of(step, split, facts, small=True)
    assert split["CHUNK"] * split["PARTS"] >= 100


@pytest.mark.parametrize("name", ["max_pool1d", "index_add", "cumprod", "conv2d", "group_norm"])
def test_every_config_has_a_value_where_something_is_empty(name):
    """Nothing may be there to reduce, though something is there to write: a mean over no windows."""
    text = (ROOT / "specs" / f"{name}.op").read_text()
    ((plan,),) = pipeline.build(text, name).plans.values()
    for step in plan.steps:
        rules = [rule for v in step.variants for _, rule in (("", v.when), *v.config)]
        spoken = set().union(*map(names, rules)) - {n for v in step.variants for n, _ in v.config}
        common = dict.fromkeys(spoken, 8) | {
            "sms": 132,
            "shared": 227,
            "itemsize": 4,
            "forward_progress": True,
        }
        extents = [
            n for n, _ in step.facts if n in spoken and not n.startswith(("stride_", "conv_stride"))
        ]  # strides
        for empty in (*([n] for n in extents), extents):
            facts = common | dict.fromkeys(empty, 0)
            for v in step.variants:
                if evaluate(v.when, facts):
                    config = config_of(step, v, facts, small=False)
                    sides = (n for key, n in config.items() if key.startswith("BLOCK"))
                    assert all(n > 0 for n in sides), v.name


# ---- the oracle ---------------------------------------------------------------------------------
def test_the_value_is_the_interpreters():
    for name in ("layer_norm", "conv_transpose2d", "row_argmax", "cross_entropy", "attention"):
        op = spec_op(name)
        case = cases.draw_case(op, Random(3))
        args = cases.arguments(op, case, "cpu")
        found, wanted = expect(op, args), run(op, args)
        for output, value in wanted.items():
            torch.testing.assert_close(found[output].value, value, equal_nan=True, rtol=0, atol=0)


def test_what_is_exact_has_no_slack():
    x = torch.tensor([[1.0, math.nan, -math.inf], [3.0, -0.0, 2.0]])
    for name in ("relu", "row_max", "row_argmax"):
        op = spec_op(name)
        (found,) = expect(op, {op.tensors[0].name: x}).values()
        assert found.slack is None


def test_a_sum_may_be_off_by_its_terms_not_by_its_length():
    op = spec_op("row_sum")
    x = torch.ones(1, 4096) * torch.tensor([1.0, -1.0]).repeat(2048)
    found = expect(op, {"x": x})["y"]
    assert 0 < float(found.slack) < 16 * 2**-24 * 4096
    assert judge(torch.tensor([1e-3]), found).ok
    assert not judge(torch.tensor([1e-2]), found).ok


def test_half_results_are_right_to_one_rounding():
    op = spec_op("leaky_relu")
    x = torch.tensor([-3.0], dtype=torch.float16)
    found = expect(op, {"x": x, "slope": 0.3})["y"]
    right = (x.double() * torch.tensor(0.3)).half()
    assert judge(right, found).ok
    assert not judge(torch.nextafter(right, torch.zeros_like(right)), found).ok


def test_nan_and_inf_keep_their_places():
    op = spec_op("relu")
    found = expect(op, {"x": torch.tensor([math.nan, math.inf, 1.0])})["y"]
    assert judge(torch.tensor([math.nan, math.inf, 1.0]), found).ok
    for wrong in ([0.0, math.inf, 1.0], [math.nan, 3e38, 1.0], [math.nan, math.inf, math.nan]):
        assert not judge(torch.tensor(wrong), found).ok


def test_past_the_largest_float_anything_goes():
    op = op_of("op f<T: float>(x: T[N]) -> y: T[N] {\n  y[n] = sqrt(x[n] * x[n])\n}\n")
    found = expect(op, {"x": torch.tensor([1e30, 1.0])})["y"]
    assert judge(torch.tensor([math.inf, 1.0]), found).ok
    assert not judge(torch.tensor([1e30, math.inf]), found).ok


def test_doubt_reaches_what_depends_on_it():
    text = "op f<T: float>(x: T[N]) -> y: T[N] {\n  y[n] = where(exp(x[n]) > 1, 5, x[n])\n}\n"
    found = expect(op_of(text), {"x": torch.tensor([0.0, 3.0, -3.0])})["y"]
    assert found.slack.tolist() == [5.0, 0.0, 0.0]


def test_a_comparison_within_the_slack_may_go_either_way():
    op = op_of("""op f(x: f32[N, M]) -> y: bool[N] {
  s[n] = sum[m](x[n, m])
  y[n] = not (s[n] > 0)
}""")
    expected = expect(op, {"x": torch.tensor([[1.0, 1.0], [0.1, -0.1], [-1.0, -1.0]])})["y"]
    assert judge(torch.tensor([False, True, True]), expected).ok
    assert judge(torch.tensor([False, False, True]), expected).ok
    verdict = judge(torch.tensor([False, False, False]), expected)
    assert verdict.detail == "1 of 3 differ; first at [2]: expected True, got False"


def test_a_tolerance_of_the_spec_takes_the_place_of_the_bound():
    text = "op f<T: float>(x: T[N]) -> y: T[N] {\n  y[n] = exp(x[n])\n  tol f32 = 1e-2, 1e-3\n}\n"
    found = expect(op_of(text), {"x": torch.tensor([0.0])})["y"]
    assert float(found.slack) == pytest.approx(0.011)


def test_a_finding_prints_a_call_and_is_data():
    failure = {"op": "f", "variant": "rows", "problem": "y: 1 of 3 differ", "call": "f(x=...)"}
    result = Result({"spec": "f.op", "device": "cpu", "examples": 3, "failures": [failure]})
    assert not result.ok
    assert "rows: y: 1 of 3 differ" in str(result) and "f(x=...)" in str(result)


def test_a_ref_that_differs_from_the_body_is_found(interpreter):
    text = 'op f<T: float>(x: T[N]) -> y: T[N] {\n  y[n] = x[n] + 1\n  ref "x + 2"\n}\n'
    job = {"text": text, "name": "f.op", "device": "cpu", "examples": 2}
    (failure,) = interpreter.ask(job)["failures"]
    assert failure["variant"] == "ref" and "x + 2" in failure["problem"]


def test_tf32_may_lose_the_digits_beyond_eleven_and_no_others():
    text = "op f<T: float>(a: T[M, K], b: T[K, N]) -> y: T[M, N] {\n"
    op = op_of(text + "  y[m, n] = sum[k](a[m, k] * b[k, n])\n  precision tf32\n}\n")
    below = 1 + 2.0**-10 - 2.0**-23  # truncating takes the most, to 1
    args = {"a": torch.tensor([[below], [1.5]]), "b": torch.tensor([[below, 1.25 + 2.0**-9]])}
    got = tf32(args["a"].double()) @ tf32(args["b"].double())
    assert abs(float(got[0, 0]) / below**2 - 1) > 2.0**-9.01  # rounding takes half of it
    found = expect(op, args)["y"]
    assert judge(got.float(), found).ok and judge((args["a"] @ args["b"]), found).ok
    bf16 = (args["a"].bfloat16() @ args["b"].bfloat16()).float()
    assert not judge(bf16, found).ok
    assert float(found.slack[1, 1]) < 2.0**-20  # factors of eleven digits lose nothing
    assert not truncated(torch.randn(99).half().double(), None).any()  # nor do halves


def test_tf32_may_lose_digits_of_whichever_factors_meet_first():
    """A kernel multiplies g by b, which has a column's index: other digits are left than of a * g."""
    text = "op f(a: f32[M, K], g: f32[N], b: f32[K, N]) -> y: f32[M, N] {\n"
    op = op_of(text + "  y[m, n] = sum[k](a[m, k] * g[n] * b[k, n])\n  precision tf32\n}\n")
    a, g, b = torch.tensor([[1.3]]), torch.tensor([0.7]), torch.tensor([[1.1]])
    (found,) = expect(op, {"a": a, "g": g, "b": b}).values()
    for left, right in ((a * g, b), (a, g * b)):
        got = tf32(left.double()) * tf32(right.double())
        assert judge(got.float(), found).ok
    assert float(found.slack[0, 0]) < 2.0**-8.9


def test_under_tf32_torch_is_given_what_tf32_leaves():
    op = spec_op("conv_group_norm_silu")  # torch's convolutions are TF32 by default
    args = {"x": torch.tensor([1 + 2.0**-11, 1.5]), "b": torch.tensor([1 / 3]).half(), "pad": 1}
    assert operands_of_torch(op, args, "normal", on_gpu=False) is args
    assert operands_of_torch(op, args, "integers", on_gpu=True) is None
    given = operands_of_torch(op, args, "normal", on_gpu=True)
    assert given["x"].tolist() == [1.0, 1.5] and given["b"] is args["b"] and given["pad"] == 1
    assert operands_of_torch(spec_op("matmul"), args, "normal", on_gpu=True) is args


@pytest.mark.parametrize("channels", [120, 3, 1])
def test_tensor_cores_truncate_the_sum_so_far(channels):
    a = torch.arange(120, 0, -1, dtype=torch.float32)[None] / 7  # most of the sum comes first
    args = {"a": a.view(1, -1, channels), "b": torch.ones(120 // channels, channels, 1)}
    total = torch.zeros((), dtype=torch.float64)
    together = min(4, channels)  # a tap of a convolution is a step, whatever it holds
    for start in range(0, 120, together):
        total = total + a[0, start : start + together].double().sum()
        total = (total.view(torch.int64) >> 29 << 29).view(torch.float64)
    op = op_of(
        "op f<T: float>(a: T[M, K, C], b: T[K, C, N]) -> y: T[M, N] {\n"
        "  y[m, n] = sum[k, c](a[m, k, c] * b[k, c, n])\n}\n"
    )
    strict, split = expect(op, args)["y"], expect(op, args, split="triton")["y"]
    got = total.float().reshape(1, 1)
    assert not judge(got, strict).ok and judge(got, strict, split).ok
    assert not judge(got * (1 - 2.0**-17), strict, split).ok


def test_refs_are_not_called_on_nothing():
    op = op_of('op f<T: float>(x: T[N, M]) -> y: T[N, M] {\n  y[n, m] = x[n, m]\n  ref "x"\n}\n')
    case = cases.Case({"T": "f32"}, {"N": 0, "M": 3}, {}, layouts={"x": "contiguous"})
    called = []  # torch's attention would divide by zero, and end the process
    assert disagreement(op, lambda x: called.append(x) or x, case) is None
    assert not called


@pytest.mark.parametrize(
    "ref, says",
    [
        ("torch.softmax(x, dim=0)", r"ref 'torch.softmax(x, dim=0)' is not what the body says: y["),
        ("torch.logsumexp(x, dim=-1)", "y has shape ["),
        ("torch.softmax(x, dim=5)", "takes none of 96 examples: IndexError"),
    ],
)
def test_a_wrong_ref_is_found(ref, says):
    text = (ROOT / "specs" / "softmax.op").read_text().replace("torch.softmax(x, dim=-1)", ref)
    built = pipeline.build(text, "softmax.op")
    ((plan,),) = built.plans.values()
    module = load_text(built.name, built.raw)
    (finding,) = disagreements(plan.op, module, seed=0)
    assert says in finding["problem"] and finding["variant"] == "ref"


def test_a_body_that_overflows_where_its_ref_does_not_is_found():
    text = """op f<T: float>(x: T[N, D]) -> y: T[N, D] {
      y[n, d] = exp(x[n, d]) / sum[k](exp(x[n, k]))
      ref "torch.softmax(x, dim=-1)"
    }"""
    built = pipeline.build(text, "f.op")
    ((plan,),) = built.plans.values()
    (finding,) = disagreements(plan.op, load_text("f", built.raw), seed=0)
    assert "nan by the body" in finding["problem"]


def test_cpu_tensors_go_through_the_ref_and_the_reference_is_the_body():
    text = 'op f<T: float>(x: T[N]) -> y: T[N] {\n  y[n] = 2 * x[n]\n  ref "x * 3"\n}\n'
    module = load_text("f", pipeline.build(text, "f.op").raw)
    x = torch.ones(2)
    assert module.f(x).tolist() == [3, 3] and module.f.reference(x).tolist() == [2, 2]


# ---- jobs ---------------------------------------------------------------------------------------
def test_the_parts_of_a_file_are_its_examples(interpreter):
    text = (ROOT / "specs" / "relu.op").read_text()
    job = {"text": text, "name": "relu.op", "device": "cpu", "examples": 9, "seed": 3}
    parts = parts_of(job)
    assert len(parts) == 2
    whole, apart = interpreter.ask(job), joined([interpreter.ask(part) for part in parts])
    for key in ("examples", "calls", "dtypes", "variants", "bound_used", "failures"):
        assert whole[key] == apart[key], key


def test_a_failure_of_several_parts_is_told_once():
    wrong = {"op": "f", "variant": "rows", "problem": "y: 1 of 3 differ"}
    other = wrong | {"problem": "y: 2 of 3 differ", "variant": "loop"}
    report = {"spec": "f.op", "device": "cpu", "examples": 4, "seconds": 1.0}
    found = joined([report | {"failures": [wrong]}, report | {"failures": [wrong, other]}])
    assert found["failures"] == [wrong, other] and found["examples"] == 8


def test_where_one_part_took_longest_the_others_go_next(monkeypatch):
    took, asked = {"a": 1.0, "b": 5.0, "c": 0.1}, []

    class Quick(pool.Worker):
        def ask(self, job, timeout=600, say=None):
            asked.append((job["name"], job["part"]))
            report = {"spec": job["name"], "device": "cpu", "failures": [], "calls": 1}
            return report | {"examples": 4, "seconds": took[job["name"]]}

    monkeypatch.setattr(pool, "Worker", Quick)
    jobs = [{"name": name, "examples": 8, "device": "cpu"} for name in took]
    reports = list(pool.run_jobs(jobs, "cpu"))
    assert asked == [("a", 0), ("b", 0), ("c", 0), ("b", 1), ("a", 1), ("c", 1)]
    assert sorted(r["spec"] for r in reports) == ["a", "b", "c"]
    assert all(r["examples"] == 8 for r in reports)


def test_a_part_that_dies_is_a_failure_of_the_file(monkeypatch):
    class Broken(pool.Worker):
        def ask(self, job, timeout=600, say=None):
            report = {"spec": job["name"], "device": "cpu", "failures": [], "examples": 4}
            if self.device != "cpu":
                return pool.broken(job, "the process ended")
            return report | {"calls": 1, "seconds": 1.0}

    monkeypatch.setattr(pool, "Worker", Broken)
    (report,) = pool.run_jobs([{"name": "a", "examples": 8, "device": "cpu", "target": "x"}], "cpu")
    assert [f["problem"] for f in report["failures"]] == ["the process ended"]
    assert report["examples"] == 8


def test_a_process_that_a_compiler_ends_says_which_kernel_it_was(monkeypatch):
    """An assertion of LLVM takes the process with it: all that was said of the kernel is what it said before."""
    at = "f: kernel 1 of 4, f_runs (T=bf16), compiled for sm_90 by Triton 3.6.0"
    code = (
        f"import os; input(); print({json.dumps(json.dumps({'at': at}))}, flush=True); os.abort()"
    )

    def start(device, module):
        pipe = subprocess.PIPE
        return subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True)

    monkeypatch.setattr(pool, "_start", start)
    with pool.Worker("sm_90") as worker:
        (failure,) = worker.ask({"name": "f.op", "device": "sm_90"})["failures"]
    assert failure["problem"].startswith("the process ended with SIGABRT")
    assert failure["call"] == at


def test_what_a_compiler_refuses_is_a_failure(monkeypatch):
    from tritongen.proof import lowered

    text, name = (ROOT / "specs" / "matmul.op").read_text(), "matmul.op"
    report = lowered.lower_spec(text, name, "sm_90", seed=0)
    assert not report["failures"] and 0 < report["compiled"]["sm_90"] <= lowered.MOST
    whole = lowered.load_text
    wrong = ("tl.zeros((BLOCK_M, BLOCK_N)", "tl.zeros((BLOCK_M, 8)")
    monkeypatch.setattr(lowered, "load_text", lambda name, text: whole(name, text.replace(*wrong)))
    report = lowered.lower_spec(text, name, "sm_90", seed=0)
    assert report["failures"] and "sm_90" in report["failures"][0]["call"]


SLEEPER = 'import sys, time; sys.stdin.readline(); print(\'{"at": "f, f32"}\', flush=True); time.sleep(60)'


def test_who_interrupts_ends_the_workers(monkeypatch):
    started = []

    def start(device, module):
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        command = [sys.executable, "-c", SLEEPER]
        started.append(subprocess.Popen(command, start_new_session=True, **pipes))
        return started[-1]

    def interrupt(text, stage, share):
        assert text == "f, f32"
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(pool, "_start", start)
    job = {"name": "f.op", "device": "cpu", "examples": 4}
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # which xdist's workers ignore
    try:
        with pytest.raises(KeyboardInterrupt):
            list(pool.run_jobs([job], "cpu", say=interrupt))
    finally:
        signal.signal(signal.SIGINT, before)
    assert started[0].wait(5) != 0 and len(started) == 1


def test_a_worker_ends_in_the_middle_of_a_job_that_nobody_waits_for():
    code = (
        "import time, tritongen.proof.worker as w; w.run_job = lambda *a: time.sleep(60); w.main()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, text=True)
    process.stdin.write("{}\n")
    process.stdin.close()
    assert process.wait(5) == 0


# ---- f8 -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("stored", ["f8e4m3", "f8e5m2"])
def test_results_in_f8_are_rounded_to_even_and_nan_stays(interpreter, stored):
    text = (
        f"op f(x: f32[N, D], s: f32[N]) -> y: {stored}[N, D] {{\n  y[n, d] = x[n, d] / s[n]\n}}\n"
    )
    job = {"text": text, "name": "f.op", "device": "cpu", "examples": 12, "seed": 0}
    report = interpreter.ask(job)
    assert not report["failures"] and report["examples"] > 8


def test_beyond_the_largest_f8_there_is_it_or_an_infinity_or_nan():
    cases = [(448.0, 1e9), (448.0, -1e9), (math.nan, 1e9), (1.0, math.nan), (math.nan, 1.0)]
    found = [
        judge(
            torch.tensor([got]).to(torch.float8_e4m3fn),
            Expected(torch.tensor([want], dtype=torch.float64), None, torch.float8_e4m3fn),
        ).ok
        for got, want in cases
    ]
    assert found == [True, False, True, False, False]


def test_an_index_of_another_meaning_is_right_where_that_lets_anything_go():
    """argmin over a NaN that a product may have, and another row does (520-65)."""
    from tritongen.proof.judge import judge
    from tritongen.proof.oracle import Expected

    def places(*values, slack):
        return Expected(torch.tensor(values), torch.tensor(slack).double(), torch.int64)

    strict, shared = places(5, 0, slack=[0.0, 0.0]), places(4, 0, slack=[math.inf, 0.0])
    assert judge(torch.tensor([4, 0]), strict, shared).ok
    assert not judge(torch.tensor([3, 0]), strict, shared).ok


def test_where_tf32_lets_anything_go_a_number_keeps_seven_digits():
    """The largest numbers are left whole to the tensor cores, which take 11 digits of them (650-340)."""
    from tritongen.proof.oracle import Expected

    def number(value, slack, split=""):
        found = torch.tensor([value], dtype=torch.float64)
        return Expected(
            found, torch.tensor([slack], dtype=torch.float64), torch.float32, bool(split)
        )

    strict, parts = number(-3.3932e38, 1.8e32), number(-3.3932e38, math.inf, "ours")
    assert judge(torch.tensor([-3.3912e38]), strict, parts).ok
    assert not judge(torch.tensor([-3.3e38]), strict, parts).ok
    serial = number(0.0, math.inf)  # a mean that is added up term by term, squared (650-710)
    assert judge(torch.tensor([1.6e37]), number(0.0, 9.9e36), serial).ok


def test_a_factor_that_is_infinite_in_tf32_may_meet_two_others():
    """h[i] * h[j] * x, of which x * h[i] is multiplied with the largest number (650-771)."""
    text = "op f(h: f32[K], x: f32[K], w: f32[K, N]) -> y: f32[N] { y[n] = sum[k](h[k] * x[k] * w[k, n]) }"
    args = {
        "h": torch.tensor([-0.69]),
        "x": torch.tensor([1.1755e-38]),
        "w": torch.tensor([[3.4028e38]]),
    }
    with tritongen.precision("tf32x3"):
        values = {
            s: expect(op_of(text), args, split=s)["y"].value.item() for s in ("", "infinite", "nan")
        }
    assert values[""] < -2.7 and values["infinite"] == -math.inf and math.isnan(values["nan"])

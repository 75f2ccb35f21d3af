"""What explain says: sizes from the command line, costs from the IR, the variant that a call takes."""

import json
import re

import pytest
import torch
from click.testing import CliRunner

import tritongen
from tritongen import cost, pipeline
from tritongen.cli import main
from tritongen.explain import explain_call, explain_op, text
from tritongen.runtime.load import load_text
from tritongen.shapes import BadShape, call_of, meta_arguments, parse_shapes
from tritongen.trace import trace


def opened(text):
    built = pipeline.build(text)
    (plans,) = built.plans.values()
    return load_text(built.name, built.raw), plans


def spec(name):
    return open(f"specs/{name}.op").read()


def whole_cost(text, shape, dtype=None):
    _, plans = opened(text)
    op, case = call_of([p.op for p in plans], parse_shapes([shape])[0], dtype)
    return cost.op_cost(next(p for p in plans if p.op is op), meta_arguments(op, case))


def test_shapes_double_together():
    shapes = parse_shapes(["M=64..256,N=1..4,K=7", "batch=2x3,causal=true,slope=0.5"])
    assert [(s["M"], s["N"], s["K"]) for s in shapes[:3]] == [(64, 1, 7), (128, 2, 7), (256, 4, 7)]
    assert shapes[3] == {"...": (2, 3), "causal": True, "slope": 0.5}


def test_the_page_shows_what_is_printed():
    """`docs/tools.md`, lines left out being `...`."""
    page = open("docs/tools.md").read()
    (shown,) = re.findall(r"```\n\$ tritongen (explain .*?)```", page, re.DOTALL)
    command, *lines = shown.splitlines()
    printed = CliRunner().invoke(main, command.split()).output
    text = "\n".join(lines)
    parts = [re.escape(part.strip("\n")) for part in text.split("\n...\n")]
    assert re.fullmatch(r"[\s\S]*\n".join(parts) + r"[\s\S]*", printed), printed


@pytest.mark.parametrize(
    "shape, dtype, said",
    [
        ("D", None, "expected NAME=NUMBER"),
        ("D=4,D=5", None, "given twice"),
        ("D=64..8", None, "doubles upwards"),
        ("D=1..4,batch=1..2", None, "move together"),
        ("D=x", None, "'x' is not a number"),
        ("batch=4,5", None, "expected NAME=NUMBER"),
        ("batch=4,D=1.5", None, "D=1.5: a size is a whole number"),
        ("batch=4,D=-1", None, "D=-1: a size is a whole number"),
        ("batch=4,D=99999999999999999999", None, "does not fit in 64 bits"),
        ("D=4", None, "softmax needs batch: --shape batch=1024"),
        ("batch=4,d=4", None, "has no size d, but D, batch"),
        ("batch=4,D=4", "i64", "softmax takes T: f64 f32 f16 bf16"),
        ("batch=4,D=4", "half", "'half' is not one of"),
        ("batch=4,D=4", "U=bf16", "no type parameter U"),
    ],
)
def test_what_is_no_call_says_what_would_be(shape, dtype, said):
    _, plans = opened(spec("softmax"))
    with pytest.raises(BadShape, match=".*" + said.replace(".", r"\.")):
        for numbers in parse_shapes([shape]):
            call_of([p.op for p in plans], numbers, dtype)


def test_an_equation_settles_a_size_and_a_bad_call_is_the_wrappers_error():
    _, plans = opened(spec("conv2d"))
    ops = [p.op for p in plans]
    base = "N=2,F=8,H=9,W=9,R=3,S=3"
    _, case = call_of(ops, parse_shapes([f"{base},Cg=4,groups=2"])[0])
    assert case.sizes["C"] == 8
    _, other = call_of(ops, parse_shapes([f"{base},C=8,groups=2"])[0])
    assert other == case
    with pytest.raises(BadShape, match="divides by zero with stride=0"):
        call_of(ops, parse_shapes([f"{base},C=8,groups=2,stride=0"])[0])
    with pytest.raises(BadShape, match="C == .*"):
        call_of(ops, parse_shapes([f"{base},C=9,Cg=4,groups=2"])[0])


@pytest.mark.parametrize(
    "name, shape, dtype, moved, flops",
    [
        ("relu", "batch=1024", "f32", 8 * 1024, 1024),
        ("softmax", "batch=4x8,D=100", "bf16", 2 * 2 * 3200, None),
        ("matmul", "M=64,N=32,K=16", "bf16", 2 * (64 * 16 + 16 * 32 + 64 * 32), 2 * 64 * 32 * 16),
        ("row_sum", "N=7,D=11", "f32", 4 * (77 + 7), 77),
        # a scan looks at each element once, whatever the spec's guard says
        ("cumsum", "batch=7,D=11", "f32", 4 * 2 * 77, 77),
        # of the rows of x, the elements that windows reach
        ("max_pool2d", "N=1,C=1,H=5,W=5", "f32", 4 * (16 + 4), 16),
    ],
)
def test_costs(name, shape, dtype, moved, flops):
    found = whole_cost(spec(name), shape, dtype)
    assert found.bytes == moved
    assert flops is None or found.flops == flops


def test_what_a_gather_a_guard_and_a_stride_leave_out():
    gather = (
        "op take<T: float>(x: T[V, D], ix: i64[N]) -> y: T[N, D] { y[n, d] = (x[ix[n], d] else 0) }"
    )
    found = whole_cost(gather, "V=1000,D=8,N=3", "f32")
    assert found.reads["x"] == 3 * 8 * 4 and found.reads["ix"] == 3 * 8
    lower = "op low<T: float>(a: T[N, N], b: T[N, M]) -> y: T[N, M] { y[i, j] = sum[k <= i](a[i, k] * b[k, j]) }"
    full = 2 * 256 * 256 * 64
    assert 0.5 * full <= whole_cost(lower, "N=256,M=64", "f32").flops < 0.55 * full
    same, up = (
        whole_cost(spec("conv_transpose2d"), f"N=1,C=8,F=8,H=32,W=32,R=4,S=4,stride={s}").flops
        for s in (1, 2)
    )
    assert up == pytest.approx(
        same, rel=0.2
    )  # four times the outputs, each with a quarter of the taps


def test_scores_that_no_bound_lets_through_are_not_counted():
    shape = "B=1,H=2,G=2,S=512,E=64,F=64"
    counted = whole_cost(spec("causal_attention"), shape, "bf16").flops
    products = 2 * 2 * 2 * 512 * 512 * 64  # of all pairs
    assert 0.5 * products < counted < 0.6 * products


@pytest.mark.parametrize(
    "name, shape, variant, kernels",
    [
        ("softmax", "batch=8192,D=4096", "rows", ["softmax_rows"]),
        ("softmax", "batch=4,D=1048576", "split", ["softmax_loop, pass 1", "softmax_loop, pass 2"]),
        ("softmax", "batch=0,D=4", None, []),
        ("matmul", "M=4096,N=4096,K=4096", "persistent", ["matmul_persistent"]),
        ("matmul", "M=256,N=256,K=65536", "split", ["matmul_persistent", "matmul_combine"]),
    ],
)  # fmt: skip
def test_the_way_a_call_takes(name, shape, variant, kernels):
    module, plans = opened(spec(name))
    op, case = call_of([p.op for p in plans], parse_shapes([shape])[0])
    e = explain_call(module, plans[0], meta_arguments(op, case))
    assert [k.name for s in e.steps for k in s.kernels] == kernels
    if variant:
        assert [v.name for v in e.steps[0].variants if v.taken] == [variant]
        # what passes from part to part is written once and read by those behind it
        first, *rest = e.steps[0].kernels
        assert all(set(first.writes) <= set(k.reads) for k in rest)
        assert e.totals.plan_bytes >= e.totals.op_bytes and e.totals.plan_bytes == sum(
            sum(k.reads.values()) + sum(k.writes.values()) for k in e.steps[0].kernels
        )


@pytest.mark.parametrize("name", ["attention", "batch_norm_train", "bmm", "conv_group_norm_silu"])
def test_every_launch_is_counted(name):
    """Whatever the kernels are, each touches something, and together they do the whole work."""
    shapes = {
        "attention": "B=1,H=2,S=64,L=64,E=32",
        "batch_norm_train": "N=4,C=8,H=16,W=16",
        "bmm": "B=4,M=16,K=16,N=16",  # sums may have parts, but here have one
        "conv_group_norm_silu": "N=2,C=16,H=9,W=9,F=16,R=3,S=3",
    }
    module, plans = opened(spec(name))
    op, case = call_of([p.op for p in plans], parse_shapes([shapes[name]])[0])
    args = meta_arguments(op, case)
    calls = trace(module, name, args)
    steps = cost.step_costs(plans[0], args, calls)
    costs = [k.cost for s in steps for k in s.kernels]
    assert len(costs) == len(calls.launches)
    assert all(c.reads and c.writes for c in costs)
    whole = cost.op_cost(plans[0], args)
    assert sum(c.flops for c in costs) == pytest.approx(whole.flops, rel=0.5)
    assert set(whole.writes) <= {w for c in costs for w in c.writes}


def test_factors_split_ahead_are_bytes_of_the_plan():
    module, plans = opened(spec("matmul"))
    call = {
        "a": torch.empty(4096, 4096, device="meta"),
        "b": torch.empty(4096, 4096, device="meta"),
    }
    e = explain_call(module, plans[0], call)
    assert [k.name for k in e.steps[0].kernels] == ["_split_tf32", "_split_tf32", "matmul_tf32x3"]
    operand = 4 * 4096**2
    assert (
        e.totals.plan_bytes == (3 + 3 + 3 + 3 + 1) * operand
    )  # split, split, read for three products each, y


def test_a_constant_left_out_has_its_default():
    x, w, b = torch.empty(2, 8, 9, 9), torch.empty(4, 8, 3, 3), torch.empty(4)
    told = str(tritongen.load("specs/conv2d.op").conv2d.explain(x, w, b))
    assert "conv2d: contraction" in told


def test_the_command():
    run = CliRunner().invoke
    text = run(main, ["explain", "specs/softmax.op", "--shape", "batch=64x128,D=4096"])
    assert text.exit_code == 0 and "\x1b" not in text.output
    for said in ("softmax (batch=64x128, D=4096, bf16): 1 step, 1 kernel", "> rows", "reads  x 64.0 MiB",
                 "at least 31.8 us, by memory", "not: cdiv(rows"):  # fmt: skip
        assert said in text.output
    general = run(main, ["explain", "specs/softmax.op"])
    assert general.exit_code == 0 and "cols = D" in general.output
    assert "\n    rows: a row fits" in general.output  # none is taken
    data = run(
        main, ["explain", "specs/linear_gelu.op", "--shape", "M=64..128,N=64,K=64", "--json"]
    )
    small, large = json.loads(data.output)
    assert large["totals"]["flops"] == 2 * small["totals"]["flops"]
    bad = run(main, ["explain", "specs/softmax.op", "--shape", "D=4"])
    assert bad.exit_code == 2 and "needs batch" in bad.stderr


@pytest.mark.parametrize(
    "name, step, reason",
    [
        ("conv_group_norm_silu", "_y", "`mean` over .*p, q needs all of conv2d, which is computed"),
    ],
)
def test_why_a_step_is_apart(name, step, reason):
    _, (plan,) = opened(spec(name))
    apart = dict(next(s for s in plan.steps if s.name == name + step).apart)
    assert any(re.search(reason, why) for why in apart.values()), apart


SPLIT = {
    "needs all of h": "op f<T: float>(x: T[M, K], w: T[K, N], v: T[N, P]) -> y: T[M, P] {\n"
    "  h[m, n] = sum[k](x[m, k] * w[k, n])\n  y[m, p] = sum[n](relu(h[m, n]) * v[n, p])\n}",
    "not where it is computed": "op f<T: float>(x: T[N]) -> y: T[N] {\n"
    "  s[n] = sum[k < 3](x[n] * k)\n  y[n] = s[N - 1 - n]\n}",
    "gathered": "op f<T: float>(x: T[N, D], t: T[D]) -> y: T[N] {\n"
    "  i[n] = argmax[d](x[n, d])\n  y[n] = (t[i[N - 1 - n]] else 0)\n}",
}


@pytest.mark.parametrize("said", SPLIT)
def test_every_later_step_says_why(said):
    _, (plan,) = opened(SPLIT[said])
    first, *later = plan.steps
    assert not first.apart and later and all(s.apart for s in later)
    assert any(said in why for s in later for _, why in s.apart)


@pytest.mark.parametrize(
    "signature, line, reason",
    [
        (
            "a: T[M, K], x: T[K]) -> y: T[M]",
            "y[m] = sum[k](a[m, k] * x[k])",
            "a matrix by a vector",
        ),
        (
            "a: T[M, K], w: T[V, N], ix: i64[K]) -> y: T[M, N]",
            "y[m, n] = sum[k](a[m, k] * (w[ix[k] + n, n] else 0))",
            "a factor is read at ix[k] + n",
        ),
        ("a: T[M, K], b: T[K, N]) -> y: T[M, N]", "y[m, n] = sum[k](a[m, k] * b[k, n])", ""),
        ("a: T[M, K]) -> y: T[M]", "y[m] = sum[k](a[m, k] ** 2)", ""),
    ],
)
def test_a_step_says_why_it_is_no_contraction(signature, line, reason):
    _, (plan,) = opened(f"op f<T: float>({signature} {{ {line} }}")
    shown = text(explain_op(plan))
    assert ("no contraction by tensor cores: " in shown) == bool(reason) and reason in shown


def test_the_least_time_of_a_product_without_tensor_cores_is_not_theirs():
    spec = "op f<T: float>(a: T[M, K], w: T[V, N], ix: i64[K]) -> y: T[M, N] {{ y[m, n] = {} }}"
    times = {}
    for name, read in (("gathered", "(w[ix[k] + n, n] else 0)"), ("whole", "w[k, n]")):
        line = spec.format(f"sum[k](a[m, k] * {read})").replace("{{", "{").replace("}}", "}")
        if name == "whole":
            line = line.replace("w: T[V, N], ix: i64[K]", "w: T[K, N]")
        module, plans = opened(line)
        shape = "M=1024,K=1024,N=1024" + (",V=1024" if name == "gathered" else "")
        op, case = call_of([p.op for p in plans], parse_shapes([shape])[0], "bf16")
        plan = next(p for p in plans if p.op is op)
        times[name] = explain_call(module, plan, meta_arguments(op, case)).totals
    assert times["gathered"].flops == times["whole"].flops
    assert times["gathered"].plan_microseconds > 10 * times["whole"].plan_microseconds


@pytest.mark.parametrize("bound", ["k < n[b]", "n[b] <= k < n[b] + 2", "k >= n[b]"])
def test_what_a_bound_that_is_read_leaves_out_is_counted(bound):
    """A shape says nothing of what the operand holds: every term may be there."""
    line = f"y[b] = max[{bound}](x[b, k] * 2)"
    text = f"op f(x: f32[B, K], n: i64[B]) -> y: f32[B] {{ {line} }}"
    assert whole_cost(text, "B=4,K=100").flops >= 400


def test_what_a_pass_stores_beside_its_folds_is_counted_once():
    """The first of two passes reads x, and stores y. The second one adds up parts."""
    line = "op f(x: f32[N]) -> (y: f32[N], s: f32) { y[n] = exp(x[n])  s = sum[n](x[n]) }"
    module, plans = opened(line)
    op, case = call_of([p.op for p in plans], parse_shapes(["N=4194304"])[0], None)
    e = explain_call(module, plans[0], meta_arguments(op, case))
    first, second = e.steps[0].kernels
    assert sum(first.reads.values()) == first.writes["y"] == 4 * 4194304
    assert sum(second.reads.values()) + sum(second.writes.values()) < 100_000

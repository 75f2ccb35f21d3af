"""Contractions through tensor descriptors: every order in memory, tails, batches, parts; in the interpreter."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from inspect import signature
from pathlib import Path
from random import Random

import pytest
import torch

from tritongen import lib, pipeline
from tritongen.choice import holding, of_gpu
from tritongen.ir import nodes as ir
from tritongen.proof.crosscompile import wrong_instructions
from tritongen.runtime.load import load_text
from tritongen.schedule.classes.contraction_operands import WHOLE, ends_of, storage_dtype, stored_as
from tritongen.schedule.classes.contraction_stages import itemsizes
from tritongen.trace import Gpu, compile_launch, ptx, trace

ROOT = Path(__file__).parents[2]
USERS = ROOT / "benchmarks/users"

# Run in a process of its own: Triton decides at import whether kernels are interpreted.
PROGRAM = """
import itertools, json, sys
import torch
from tritongen import lib, pipeline
from tritongen.proof.variants import forced, ways
from tritongen.runtime.load import load_text

SPLIT = ("presplit", "presplit_lhs", "presplit_rhs")  # f32 in TF32 parts

def stored(shape, turned, dtype):
    x = torch.randn(shape).to(dtype)
    return x.mT.contiguous().mT if turned else x

TILES, TF32_TILES, EITHER = lib.tiles, lib.tf32_tiles, lib.tiles_or_parts

def check(path, name, shapes, want):
    built = pipeline.build(open(path).read(), path)
    module, plan = load_text(built.name, built.raw), built.plans[name][0]
    described = []
    lib.tiles = lambda x, *sizes, **how: described.append(x) or TILES(x, *sizes, **how)
    lib.tf32_tiles = lambda x, *sizes: described.append(x) or TF32_TILES(x, *sizes)
    lib.tiles_or_parts = lambda x, *sizes: described.append(x) or EITHER(x, *sizes)
    taken = [w for w in ways(plan) if w.name in (*SPLIT, "split", "persistent", "subtiles")]
    for turned, way in itertools.product(itertools.product((False, True), repeat=2), taken):
        dtype = torch.float32 if way.name in SPLIT else torch.float16
        args = [stored(s, t, dtype) for s, t in zip(shapes, turned)]
        args += [torch.randn(s).to(dtype) for s in shapes[2:]]
        with forced(module, plan, way, small=True):
            got = getattr(module, name)(*args)
        wanted = want(*(a.double() for a in args))
        error = ((got.double() - wanted).abs() / (1 + wanted.abs())).max().item()
        results[f"{name} {turned} {way.name}"] = error
    counts[name] = len(described)
    assert len(taken) == 6

def one_tap(name, place, stride):
    built = pipeline.build(open("specs/conv2d.op").read(), "specs/conv2d.op")
    module, plan = load_text(built.name, built.raw), built.plans["conv2d"][0]
    (way,) = (w for w in ways(plan) if w.name == name)
    x = torch.randn(2, 24, 5, 7).half().to(memory_format=place)
    w, b = torch.randn(40, 24, 1, 1).half(), torch.randn(40).half()
    with forced(module, plan, way, small=True):
        got = module.conv2d(x, w, b, stride=stride)
    wanted = torch.nn.functional.conv2d(x.double(), w.double(), b.double(), stride)
    error = ((got.double() - wanted).abs() / (1 + wanted.abs())).max().item()
    results[f"{name} {place} {stride}"] = error

def converted():
    text = "op w8<T: f16 | bf16>(x: T[M, K], w: i8[N, K]) -> y: T[M, N] { y[m, n] = sum[k](x[m, k] * w[n, k]) }"
    built = pipeline.build(text)
    module, plan = load_text(built.name, built.raw), built.plans["w8"][0]
    (way,) = (w for w in ways(plan) if w.name == "converted")
    x, w = torch.randn(24, 40).half(), torch.randint(-127, 128, (24, 40), dtype=torch.int8)
    with forced(module, plan, way, small=True):
        got = module.w8(x, w)
    wanted = x.double() @ w.double().T
    results["converted"] = ((got.double() - wanted).abs() / (1 + wanted.abs())).max().item()

def computed():
    # Weights exp(s - m) of attention; past the last term they would be exp(0 - m), infinite here.
    path = "benchmarks/users/l1_097_attention.op"
    built = pipeline.build(open(path).read(), path)
    module, plan = load_text(built.name, built.raw), built.plans["attention"][0]
    way = next(w for w in ways(plan) if ("attention_o", "presplit_rhs") in w.variants)
    q, k, v = torch.randn(1, 2, 37, 20) + 5, torch.randn(1, 2, 45, 20) - 5, torch.randn(1, 2, 45, 24)
    q, k = (torch.nn.functional.pad(x, (0, 4)) for x in (q, k))
    with forced(module, plan, way, small=True):
        got = module.attention(q, k, v)
    wanted = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double())
    results["presplit_rhs computed"] = (got.double() - wanted).abs().max().item()

def infinite():
    # What has no TF32 number: the same as in IEEE, whatever the other factor is.
    built = pipeline.build(open("specs/matmul.op").read(), "specs/matmul.op")
    module, plan = load_text(built.name, built.raw), built.plans["matmul"][0]
    inf = float("inf")
    values = torch.tensor([inf, -inf, float("nan"), 3.4028e38, -3.402e38, 1, -1.5, 0, 1 / 3, 4321])
    a, b = torch.zeros(10, 4), torch.zeros(4, 10)
    a[:, 2], b[2] = values, values
    wanted = values[:, None] * values
    for way in (w for w in ways(plan) if w.name in SPLIT):
        with forced(module, plan, way, small=True):
            got = module.matmul(a, b)
        same = torch.isclose(got, wanted, rtol=2e-3, atol=0, equal_nan=True)
        results[f"infinite {way.name}"] = float((~same).sum())

results, counts = {}, {}
infinite()
for stride in (1, 2):  # with 2 it is no product of matrices, and another variant answers
    one_tap("rows_persistent", torch.channels_last, stride)
    one_tap("planes_persistent", torch.contiguous_format, stride)
converted()
computed()
gelu, linear = torch.nn.functional.gelu, torch.nn.functional.linear
check("specs/matmul.op", "matmul", [(40, 72), (72, 24)], torch.matmul)
check("specs/matmul.op", "matmul", [(37, 171), (171, 19)], torch.matmul)
check("specs/bmm.op", "bmm", [(3, 24, 40), (3, 40, 24)], torch.bmm)
check("specs/linear_gelu.op", "linear_gelu", [(24, 40), (40, 40), (40,)], lambda *a: gelu(linear(*a)))
end = {}
for shape in ((1, 1), (1, 3), (1, 8), (3, 8), (3, 9)):
    end[str(shape)] = lib.tiles_to_store(torch.empty(shape).half(), 16, 16) is not None
json.dump([results, counts, end], sys.stdout)
"""


@pytest.mark.slow
def test_persistent_kernels_in_every_order_of_memory():
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-2000:]
    results, counts, end = json.loads(run.stdout)
    # On a GPU such a store fills the 16 bytes that it has begun, also where the tensor ends inside them.
    whole = {"(1, 1)": False, "(1, 3)": False, "(1, 8)": True, "(3, 8)": True, "(3, 9)": False}
    assert end == whole
    assert counts == {
        "matmul": 48,
        "bmm": 48,
        "linear_gelu": 48,
    }  # two operands, four orders, six ways
    assert max(results.values()) < 2e-3, results
    # A TF32 number alone would be off by 1e-3 of a factor.
    split = [e for name, e in results.items() if "presplit" in name]
    assert len(split) == 3 * 4 * 3 + 4 and max(split) < 2e-5, results


def chosen(name: str, dtype: torch.dtype = torch.bfloat16, **shapes) -> str:
    (path,) = (p for p in (ROOT / f"specs/{name}.op", USERS / f"{name}.op") if p.exists())
    built = pipeline.build(path.read_text(), path.name)
    given = {k: torch.empty(*s, dtype=dtype, device="meta") for k, s in shapes.items()}
    return trace(load_text(built.name, built.raw), built.items[0].name, given).choices[-1].variant


@pytest.mark.parametrize("arch, room", [("sm_89", 99), ("sm_80", 163)])
def test_a_gpu_takes_what_its_shared_memory_holds(arch, room):
    """Compiled for Ada, which has 99 KiB, slim tiles of 64 x 16384 x 4096 take 128."""
    built = pipeline.build((ROOT / "specs/matmul.op").read_text(), "matmul.op")
    module = load_text(built.name, built.raw)
    a, b = (
        torch.empty(s, dtype=torch.bfloat16, device="meta") for s in ((64, 4096), (4096, 16384))
    )
    for launch in trace(module, "matmul", {"a": a, "b": b}, Gpu(shared=room, tma=False)).launches:
        assert compile_launch(launch, arch).metadata.shared <= room << 10


def test_a_tile_of_one_part_stores_results_beside_its_stages():
    """A kernel that may share its sums: 3 stages of 64 KiB, and 48 KiB of both results, do not fit."""
    built = pipeline.build(
        "op f<T: f16 | bf16>(x: T[M, K], w: T[N, K]) -> (s: f32[M, N], y: T[M, N]) {\n"
        "  s[m, n] = sum[k](x[m, k] * w[n, k])\n  y[m, n] = exp(s[m, n])\n}\n",
        "f.op",
    )
    x, w = (torch.empty(s, dtype=torch.bfloat16, device="meta") for s in ((4096, 512), (8192, 512)))
    run = trace(load_text("f", built.raw), "f", {"x": x, "w": w})
    assert len(run.launches) == 1
    assert compile_launch(run.launches[0], "sm_90").metadata.shared <= 227 << 10


# M, N, K; what took least on an H200, or 2% more.
BEST = {
    "matmul": {
        "persistent": ((4096, 4096, 4096), (2048, 2048, 2048), (2560, 2560, 2560)),
        "subtiles": ((3072, 3072, 3072), (1536, 1536, 1536), (300, 13824, 5120)),
        "narrow": ((1024, 1024, 1024), (256, 4096, 4096)),
        "slim": ((16, 4096, 4096), (1, 16384, 16384), (7, 128256, 4096)),
        "split": ((256, 256, 524288), (33, 4096, 14336), (512, 4096, 4096)),
        "thin": ((64, 64, 64),),
    },
    "linear_gelu": {"persistent": ((4096, 4096, 4096),), "split": ((512, 4096, 4096),)},
    "swiglu_linear": {"persistent": ((4096, 4096, 4096),), "slim": ((16, 4096, 4096),)},
}
OPERANDS = {
    "matmul": lambda m, n, k: {"a": (m, k), "b": (k, n)},
    "linear_gelu": lambda m, n, k: {"x": (m, k), "w": (n, k), "b": (n,)},
    "swiglu_linear": lambda m, n, k: {"x": (m, k), "wg": (n, k), "wu": (n, k)},
}


@pytest.mark.parametrize("name", BEST)
def test_the_least_estimate_is_what_took_least(name):
    for variant, calls in BEST[name].items():
        for sizes in calls:
            assert chosen(name, **OPERANDS[name](*sizes)) == variant, sizes


@pytest.mark.parametrize("name", ["matmul", "bmm", "int8_linear", "swiglu_linear"])
def test_the_plan_says_what_the_module_chooses(name):
    """`explain` and `tune` ask the plan for estimates, calls the text that was printed."""
    built = pipeline.build((ROOT / f"specs/{name}.op").read_text(), f"{name}.op")
    module, (plan, *_) = load_text(name, built.raw), built.plans[name]
    (step,), random = plan.steps, Random(name)
    choose = getattr(module, f"choose_{name}")
    for _ in range(200):
        facts = {
            n: random.choice((1, 7, 64, 333, 4096, 100_000)) for n in signature(choose).parameters
        }
        facts |= {n: random.random() < 0.5 for n in facts.keys() & {"tma", "tf32x3", "vectorized"}}
        room = random.choice((64, 99, 163, 227))
        facts |= {"itemsize": random.choice((1, 2, 4)), "gpu": lib.Gpu(shared=room)}
        assert choose(**facts)[0] == holding(step, of_gpu(facts))[0].name, facts


def test_what_is_not_aligned_is_not_copied_where_little_is_multiplied():
    """Rows of 4097 numbers: 1 x 10639 x 4097 39 us by pointers, 109 where a copy is aligned."""
    assert chosen("linear", x=(1, 4097), w=(10639, 4097), b=(10639,)) == "split_pointers"
    assert chosen("linear", x=(2048, 4097), w=(10639, 4097), b=(10639,)) == "persistent"


def test_a_factor_that_all_batches_share_is_copied_where_much_is_multiplied():
    """No descriptor has a stride of 0: 5 x 9947 x 3392 x 1179 of one b by pointers 13.3 ms, cuBLAS 7.7 (H200)."""
    built = pipeline.build((ROOT / "specs/bmm.op").read_text(), "bmm.op")
    module = load_text(built.name, built.raw)

    def variant(m: int) -> str:
        a, b = (torch.empty(s, device="meta") for s in ((5, m, 1179), (1179, 3392)))
        return trace(module, "bmm", dict(a=a, b=b.expand(5, -1, -1))).choices[-1].variant

    assert variant(9947).startswith("presplit")
    assert variant(5) == "split_pointers"


def test_which_operands_of_f32_are_presplit():
    """An operand is not, where that takes longer than its products wait."""
    f32 = torch.float32
    assert chosen("matmul", f32, a=(4096, 4096), b=(4096, 4096)) == "presplit"
    assert chosen("matmul", f32, a=(1024, 1024), b=(1024, 1024)) == "presplit_rhs"
    assert chosen("matmul", f32, a=(200704, 64), b=(64, 128)) == "presplit_rhs"
    w, b = (16384, 16384), (16384,)
    assert chosen("linear", f32, x=(128, 16384), w=w, b=b) == "presplit_lhs"
    assert chosen("linear", f32, x=(1, 16384), w=w, b=b) in ("slim", "split_pointers")
    heads = (8, 16, 512, 1024)
    assert chosen("l1_097_attention", f32, q=heads, k=heads, v=heads) == "presplit_rhs"


def test_long_sums_of_f32_are_added_up_in_short_parts():
    """In 16 parts of 32,768 terms they were 15 units in the last place off; halves are rounded to fewer digits."""
    module = load_text("matmul", pipeline.build((ROOT / "specs/matmul.op").read_text()).raw)
    for dtype, terms, short in ((torch.float32, 524287, True), (torch.bfloat16, 524287, False)):
        a, b = (torch.empty(*s, dtype=dtype, device="meta") for s in ((251, terms), (terms, 263)))
        configs = [launch.config for launch in trace(module, "matmul", {"a": a, "b": b}).launches]
        (chunk,) = (config["CHUNK"] for config in configs if "CHUNK" in config)
        assert (chunk <= 4096) is short


def test_a_row_of_f32_is_multiplied_by_lanes():
    """By tensor cores 16 are, three times: 133 us for one row of 6573 x 4568, cuBLAS 50."""
    module = load_text("matmul", pipeline.build((ROOT / "specs/matmul.op").read_text()).raw)
    for rows, taken in ((1, True), (64, False)):
        a, b = (torch.empty(*s, device="meta") for s in ((rows, 4568), (4568, 6573)))
        calls = trace(module, "matmul", {"a": a, "b": b})
        assert (calls.choices[0].variant == "lanes") == taken
        parts = calls.launches[-1].config  # of 1,024 parts one after another each waits 0.2 us
        assert not taken or parts["AHEAD"] == min(64, parts["PARTS"])
    asked = signature(module.choose_matmul).parameters
    facts = {n: v for n, v in calls.choices[0].facts.items() if n in asked}
    for none in ("M", "N", "K"):  # of one output of several
        module.choose_matmul(**facts | {none: 0})


def test_several_sums_are_two_loops():
    """Flattened to one, which sets both sums back to 0, ptxas lets no two products overlap."""
    for name, flat in (("matmul", True), ("swiglu_linear", False)):
        source = pipeline.build((ROOT / "specs" / f"{name}.op").read_text(), name).raw
        kernel = source[source.index(f"def {name}_persistent") :]
        assert ("flatten=True" in kernel[: kernel.index("tl.dot")]) == flat


def test_a_computed_left_factor_is_not_overwritten_while_it_is_read():
    """wgmma reads it from registers; the loop must not go on to the next one before. 1e5 off on an H200."""
    built = pipeline.build(
        "op f<T: f16 | bf16>(x: T[M, K], w: T[K, N]) -> y: T[M, N] {\n"
        "  y[m, n] = sum[k](T(relu(x[m, k])) * w[k, n])\n}\n",
        "f.op",
    )
    for source in (built.raw, built.raw.replace("= lib.awaited(y_sum)", "= y_sum")):
        module = load_text("f", source)
        x, w = (
            torch.empty(*s, dtype=torch.bfloat16, device="meta") for s in ((256, 8192), (8192, 256))
        )
        launch = trace(module, "f", {"x": x, "w": w}).launches[0]
        found = wrong_instructions("tf32x3", ptx(launch, "sm_90"))
        assert ("runs on" in found) == (source is not built.raw), found


def test_what_is_counted_with_at_one_place_and_read_at_another_is_addressed_at_each():
    text = "op f(a: i32[L], y: f32[L, L], b: f32[L, K]) -> d: f32[L, K] { d[j, k] = %s + a[j] }"
    body = "sum[i](where(a[i] > k, y[i, j] * b[i, k], 0))"
    raw = pipeline.build(text % body).raw
    loads = re.findall(r"tl\.load\(a_ptr \+ (\w).* mask=(\w)", raw)
    assert ("k", "k") in loads and ("m", "m") in loads and ("m", "k") not in loads


def built_tiles(text: str) -> str:
    """The tiles' kernel of an op f, as it is printed."""
    raw = pipeline.build(text, "f.op").raw
    return raw[raw.index("def f_tiles(") : raw.index("def ", raw.index("def f_tiles(") + 4)]


def test_a_scale_that_a_group_of_terms_shares_is_no_factor():
    """Weights of 4 bits: both of a byte from one load, whole numbers in the half type, the sum of a step scaled."""
    said = built_tiles(Path("specs/int4_linear.op").read_text().replace("int4_linear", "f"))
    assert said.count("tl.load(w_ptr") == 1 and "BLOCK_K // 2" in said
    assert (
        "y_sum += tl.dot(left, x, input_precision=PRECISION, out_dtype=tl.float32) * scale" in said
    )
    op = "op f<T: f16 | bf16>(x: T[M, K], w: i8[N, K], s: T[N, G]) -> y: T[M, N] with K == {0} * G {{"
    line = "y[m, n] = sum[k](x[m, k] * w[n, k] * s[n, k // {0}]) }}"
    assert "* scale" in built_tiles((op + line).format(32))
    assert "* scale" not in built_tiles(
        (op + line).format(24)
    )  # no step of 16 terms lies in one group


def test_a_product_of_two_bf16_is_the_sum_of_two_bf16():
    """`lib.dot_of_whole` multiplies both by whole numbers. Products that f32 holds only in part are too small or too large."""
    bits = torch.randint(-(2**15), 2**15, (2, 4096), generator=torch.Generator().manual_seed(0))
    a, b = bits.to(torch.int16).view(torch.bfloat16).float()
    product = a * b
    high = product.bfloat16().float()
    low = (product - high).bfloat16().float()
    known = (product.abs() > 2.0**-110) & (product.abs() < 2.0**126)
    assert known.sum() > 1000 and (high + low == product)[known].all()


def test_a_factor_is_loaded_once_for_the_neighbours_that_share_it():
    """AWQ: eight numbers in a word along k, and eight zero points along n, of which a step has one row."""
    head = "op f<T: float>(x: T[M, K], w: i32[Q, N], z: i32[G, R], s: T[G, N]) -> y: T[M, N]"
    w = "bit_and(shift_right(w[k // 8, n], 4 * (k % 8)), 15)"
    z = "bit_and(shift_right(z[k // 128, n // 8], 4 * (n % 8)), 15)"
    body = f"y[m, n] = sum[k](x[m, k] * ({w} - {z}) * s[k // 128, n])"
    text = f"{head} with K == 8 * Q, K == 128 * G, N == 8 * R {{ {body} }}"
    raw = pipeline.build(text, "f.op", gradients=True).raw
    forward = built_tiles(text)
    assert "BLOCK_K // 8" in forward and "tl.cast(start, tl.int64) // 128" in forward
    backward = raw[raw.index("def f_backward_dx_tiles(") : raw.index("def f_backward_dx_combine(")]
    assert "BLOCK_M // 8" in backward and "lib.dot_of_whole(" in backward


def test_a_step_has_the_terms_that_lanes_hold():
    """Of a step of 32 terms, two in a byte, Triton 3.6 and 3.7 have lanes hold some twice, and tl.dot adds them twice."""
    text = Path("specs/int4_linear.op").read_text()
    assert "BLOCK_K // 2" not in built_tiles(text.replace("int4_linear", "f").replace("128", "32"))
    built = pipeline.build(text, "int4_linear.op")
    kinds = {"x": torch.bfloat16, "w": torch.uint8, "s": torch.bfloat16}
    sizes = {"x": (200, 128), "w": (48, 64), "s": (48, 1)}
    given = {n: torch.empty(sizes[n], dtype=kinds[n], device="meta") for n in sizes}
    launch = trace(load_text(built.name, built.raw), "int4_linear", given).launches[0]
    assert launch.config["BLOCK_K"] >= 64
    text = compile_launch(launch, "sm_90").asm["ttgir"]
    assert not re.search(r"#linear\d* = .*register = [^}]*?\[0, 0(, 0)?\].*lane", text)


def test_steps_between_bounds_that_are_read_take_few_terms():
    """Of 128 Triton 3.6 fails an assertion, and 3.7 does not: fuzz 1002-163, 1301-645."""
    text = (
        "op f<T: float>(x: i64[D + 1], a: T[D, M, K], b: T[D, K, N]) -> y: T[M, N] {"
        " y[i, j] = sum[l < D, k](where(%s, a[l, i, k] * b[l, k, j], 0)) + x[0] }"
    )
    most = []
    for bound in ("x[l] <= i and i < x[l + 1]", "l <= i"):
        built = pipeline.build(text % bound, "f.op")
        kinds = {"dtype": torch.float16, "device": "meta"}
        args = {"x": torch.empty(2, dtype=torch.int64, device="meta")} | {
            "a": torch.empty(1, 9, 256, **kinds),
            "b": torch.empty(1, 256, 16, **kinds),
        }
        launches = trace(load_text("f", built.raw), "f", args).launches
        most.append(max(one.config.get("BLOCK_K", 0) for one in launches))
    assert most == [64, 256]


def test_rows_that_are_gathered_are_a_factor():
    """`x[idx[m], k]` meets the tensor cores, and its indices are read in front of the loop."""
    said = built_tiles(
        "op f<T: f16 | bf16>(x: T[R, K], idx: i32[M], w: T[N, K]) -> y: T[M, N] {"
        " y[m, n] = sum[k]((x[idx[m], k] else 0) * w[n, k]) }"
    )
    assert said.index("tl.load(idx_ptr") < said.index("for start in range(") and "tl.dot(" in said


def test_a_factor_of_products_over_both_its_dims_is_computed_once():
    """The gradient of a product's result, by each tile of two products (f32, H200: 10,846 us, torch 1,147)."""
    built = pipeline.build(
        (ROOT / "specs/swiglu_linear.op").read_text(), "swiglu_linear", gradients=True
    )
    *_, gradient = built.items[0].printed
    assert [n.name for n in gradient.plans[0].scratch] == ["dup", "dgate", "dx_sum"]
    # One product computes it as it goes.
    one = "op f(x: f32[M, K], w: f32[N, K]) -> y: f32[M, N] { y[m, n] = sum[k](silu(x[m, k]) * w[n, k]) }"
    (plan,) = pipeline.build(one, "f.op").plans["f"]
    assert not plan.scratch


def test_what_is_rounded_is_stored_as_what_it_is_rounded_to():
    """Two products take it, as tiles of the operands' type."""
    text = """op f<T: float>(x: T[M, K], w: T[N, K], v: T[M, N]) -> (y: T[M, N], z: T[K, N]) {
      h[m, k] = T(silu(x[m, k]))
      y[m, n] = sum[k](h[m, k] * w[n, k])
      z[k, n] = sum[m](h[m, k] * v[m, n])
    }"""
    built = pipeline.build(text, "f.op")
    assert [(n.name, n.dtype) for n in built.plans["f"][0].scratch] == [("h", "T")]
    assert "h = torch.empty((M, K), dtype=x.dtype" in built.source


def test_a_window_under_a_factor_reads_what_was_computed_once():
    text = """op f(x: f32[N, C, L], w: f32[F, C, R]) -> y: f32[N, F, P] with P = L - R + 1 {
      h[n, c, l] = silu(x[n, c, l])
      y[n, f, p] = sum[c, r](h[n, c, p + r] * w[f, c, r])
    }"""
    (plan,) = pipeline.build(text, "f.op").plans["f"]
    assert [n.name for n in plan.scratch] == ["h"]


def test_bytes_that_wrap_are_any_bytes():
    """`-q` of u8 is 0 to 255, not -255 to 0: with 100 more it is no number that bf16 holds."""
    q = ir.Read("q", (), None, "u8")
    wrapped = ir.Cast(ir.Call("neg", (q,), "u8"), "compute")
    whole = ir.Call("add", (wrapped, ir.Const(100.0, "compute")), "compute")
    assert ends_of(wrapped) == (0, 255)
    assert ends_of(whole) == (100, 355) and stored_as(whole) != WHOLE


@pytest.mark.parametrize(
    "types, held",
    [
        ("f8e4m3 | f8e5m2", "f16"),
        ("f8e4m3 | f16", "f16"),
        ("f8e4m3 | bf16", ""),
        ("f16 | bf16", "T"),
    ],
)
def test_factors_that_may_be_f8_are_multiplied_exactly(types, held):
    """Tensor cores add products of f8 with 14 bits."""
    text = f"""op f<T: {types}>(a: T[M, K], b: T[K, N]) -> y: f32[M, N] {{
      y[m, n] = sum[k](a[m, k] * b[k, n])
    }}"""
    (plan,) = pipeline.build(text, "f.op").plans["f"]
    head = plan.steps[0].kernels[0].nests[0]
    assert storage_dtype(*head.fold.factors, plan.op) == held


def test_whole_numbers_beside_bytes_are_multiplied_in_f32():
    """Which of the two names a set gave first decided which variants there were."""
    text = """op f(a: i8[M, K], b: i8[K, N]) -> y: f32[M, N] {
      y[m, n] = sum[k](a[m, k] * 1.0 * b[k, n])
    }"""
    (plan,) = pipeline.build(text, "f.op").plans["f"]
    assert itemsizes(plan.steps[0].kernels[0]) == (4, 8)

"""A gradient in chunks is the gradient: both ops of a cut, evaluated by the oracle."""

from __future__ import annotations

from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tritongen import lib, pipeline
from tritongen.ir.interp import run
from tritongen.ir.nodes import may_compute_f64
from tritongen.schedule.chunks import cut, never_stored

ROOT = Path(__file__).parents[2]
HEAD = (ROOT / "tests/programs/smoothed_head.op").read_text()


def gradient():
    (item,) = pipeline.build(HEAD, gradients=True).items
    return item, item.forward.backward.plans[0]


@settings(max_examples=12, deadline=None)  # the first one builds
@given(
    st.integers(1, 4), st.integers(1, 3), st.integers(1, 9), st.integers(1, 9), st.integers(0, 99)
)
def test_the_ops_of_a_cut_are_the_op(M, K, V, chunk, seed):
    item, plan = gradient()
    _, found = cut(plan.inner, ["dz"], never_stored(item.plans[0])) or (None, None)
    assert found is not None and found.size == "V"
    random = torch.Generator().manual_seed(seed)

    def drawn(*shape):
        return torch.randn(shape, generator=random)

    args = {"x": drawn(M, K).half(), "w": drawn(V, K).half(), "bias": drawn(V), "smoothing": 0.2}
    args |= {"target": torch.randint(V, (M,), generator=random)}
    kept = run(item.forward.plans[0].op, args)
    args |= {name: kept[name].float() for name in item.forward.plans[0].op.kept}
    args["dloss"] = drawn(M)
    whole, parts = run(plan.inner, args), {name: dim for name, dim, _ in found.parts}
    sums = {n.name: torch.zeros(M, K) if n.dims[1:] else torch.zeros(M) for n in found.sums}
    rows: dict[str, list[torch.Tensor]] = {name: [] for name in ("dw", "dbias")}
    for first in range(0, V, chunk):
        own = {
            n: v.narrow(parts[n], first, min(chunk, V - first)) if n in parts else v
            for n, v in args.items()
        }
        own |= {f"{n}_before": v for n, v in sums.items()} | {found.first: first, found.whole: V}
        got = run(found.body, {p.name: own[p.name] for p in found.body.params})
        sums = {name: got[name].float() for name in sums}
        for name, each in rows.items():
            each.append(got[name])
    last = args | sums | {found.whole: V}
    last = {p.name: last[p.name] for p in found.behind.params}
    got = run(
        found.behind,
        last | dict.fromkeys((p.name for p in found.behind.free_typarams), torch.float16),
    )
    got |= {name: torch.cat(each) for name, each in rows.items()}
    for name, value in whole.items():
        torch.testing.assert_close(got[name].double(), value.double(), rtol=1e-3, atol=1e-3)


def test_what_is_stored_forwards_is_stored_whole():
    """The hidden layer of two products is scratch forwards, too: no pass over sums is added for it."""
    text = """op f<T: f16>(x: T[M, K], v: T[N, K], w: T[K, N]) -> y: T[M, K] {
        h[m, n] = sigmoid(sum[k](x[m, k] * v[n, k]))
        y[m, j] = sum[n](h[m, n] * w[j, n])
    }"""
    (item,) = pipeline.build(text, gradients=True).items
    back = (item.forward or item).backward
    assert back is not None and all(p.chunks is None for p in back.plans)


@given(st.integers(0, 1 << 20), st.integers(0, 1 << 20))
def test_chunks_are_alike(size, each):
    chunk = lib.chunk_size(size, each)
    count = -(-size // chunk)
    assert 1 <= chunk <= max(1, size) and (count < 2 or chunk >= 2048)
    assert size == 0 or count * chunk - size < 256 * count


def test_a_square_is_cut_along_its_rows():
    text = (ROOT / "tests/programs/clip_loss.op").read_text()
    (item,) = pipeline.build(text, gradients=True).items
    (plan,) = item.forward.backward.plans
    assert plan.chunks is not None and plan.chunks.size == "rows_N"
    assert all([str(d) for d in n.dims].count("N") < 2 for n in plan.scratch)


def test_what_is_behind_all_chunks_computes_as_they_do():
    """It has no operand but their sums, whose type is that of the call."""
    text = """op f<T: float>(q: T[N, M, L], k: T[N, H, L], v: T[N, H, D]) -> (o: T[N, M, D], lse: T[N, M]) {
      s[n, i, j] = sum[l](q[n, i, l] * k[n, j, l]) / 4
      m[n, i]    = max[j](s[n, i, j])
      z[n, i]    = sum[j](exp(s[n, i, j] - m[n, i]))
      o[n, i, d] = sum[j](T(exp(s[n, i, j] - m[n, i])) * v[n, j, d]) / z[n, i]
      lse[n, i]  = m[n, i] + log(z[n, i])
    }"""
    raw = pipeline.build(text, gradients=True).raw
    launch = raw.partition("def launch_f_backward_float_dq(")[2].partition("\ndef ")[0]
    assert "COMPUTE = tl.float64 if dq_sum.dtype == torch.float64 else tl.float32" in launch


def test_integers_behind_all_chunks_do_not_say_in_which_type_a_call_computes():
    """dx of f64 had the digits of f32: beside the sums stood the lengths alone."""
    text = """op f<T: float>(x: T[B, S, D], q: T[H, D], wv: T[H, E, D], len: i64[B]) -> y: T[B, H, E] {
      s[b, h, i]    = sum[d](q[h, d] * x[b, i, d])
      v[b, h, i, e] = sum[d](wv[h, e, d] * x[b, i, d])
      m[b, h]       = max[i < len[b]](s[b, h, i])
      p[b, h, i]    = exp(s[b, h, i] - m[b, h])
      y[b, h, e]    = sum[i < len[b]](p[b, h, i] * v[b, h, i, e]) / sum[i < len[b]](p[b, h, i])
    }"""
    (item,) = pipeline.build(text, gradients=True).items
    behind = [p.chunks.behind.inner for p in item.forward.backward.plans if p.chunks]
    assert [may_compute_f64(op) for op in behind] == [False, True]  # of halves, and of f32 and f64


def test_a_part_that_is_no_run_of_memory_is_not_seen_as_one():
    """The kernel of dks counts the heads and the keys of its part as one, which other keys lie between."""
    text = (ROOT / "tests/fuzz/found/parts_of_a_gradient_of_two_dims.op").read_text()
    (item,) = pipeline.build(text, gradients=True).items
    back = (item.forward or item).backward
    assert back is not None and all(p.chunks is None for p in back.plans)

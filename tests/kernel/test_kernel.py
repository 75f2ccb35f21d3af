"""Lowering of nests by walks: kernels run tile by tile in torch, on drawn sizes, and faults that the verifier sees."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import torch

from tests.kernel.interp import run
from tritongen import pipeline
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import size
from tritongen.ir.interp import run as oracle
from tritongen.kernel.lower import CannotLower, lower
from tritongen.kernel.nodes import PARTS, Fold, Loop, Store, Walk, statements
from tritongen.kernel.parts import PART, in_parts, merging
from tritongen.kernel.verify import BadKernel, verify

SOFTMAX = """op f(x: f32[M, D]) -> y: f32[M, D] {
  t[m] = max[d](x[m, d])
  e[m, d] = exp(x[m, d] - t[m])
  y[m, d] = e[m, d] / sum[d2](e[m, d2])
}"""
PRODUCT = """op f(x: f32[M, K], w: f32[D, K], b: f32[D]) -> y: f32[M, D] {
  y[m, d] = relu(sum[k](x[m, k] * w[d, k]) + b[d])
}"""
LOSS = """op f(x: f32[M, K], w: f32[D, K]) -> y: f32[M] {
  z[m, d] = sum[k](x[m, k] * w[d, k])
  t[m] = max[d](z[m, d])
  y[m] = log(sum[d](exp(z[m, d] - t[m]))) + t[m]
}"""
NEAREST = """op f(x: f32[M, K], w: f32[D, K]) -> (y: f32[M], p: i64[M]) {
  z[m, d] = sum[k](x[m, k] * w[d, k])
  y[m] = min[d](z[m, d])
  p[m] = argmin[d](z[m, d])
}"""
NORM = """op f(x: f32[M, D], dy: f32[M, D]) -> (y: f32[M, D], g: f32[D]) {
  r[m] = rsqrt(mean[d](x[m, d] ** 2) + 1e-3)
  y[m, d] = dy[m, d] * r[m] - x[m, d] * r[m] ** 3 * mean[d2](dy[m, d2] * x[m, d2])
  g[d] = sum[m](dy[m, d] * x[m, d] * r[m])
}"""
KEPT = """op f(x: f32[M, D]) -> (r: f32[M], y: f32[M, D], g: f32[D]) {
  r[m] = sum[d](x[m, d])
  y[m, d] = x[m, d] / r[m]
  g[d] = sum[m](x[m, d] ** 2 / r[m])
}"""
AGAIN = """op f(x: f32[M, D]) -> (h: f32[M, D], u: f32[M]) {
  m[m2 < M] = sum[d](x[m2, d])
  h[m2, d] = x[m2, d] - m[m2]
  v[m2 < M] = sum[d](h[m2, d] ** 2)
  u[m2] = sum[d](abs(h[m2, d] - v[m2]))
}"""
ATTENTION = """op f(q: f32[B, M, K], k: f32[B, D, K], v: f32[B, D, E]) -> (o: f32[B, M, E], l: f32[B, M]) {{
  s[b, m, d] = sum[i](q[b, m, i] * k[b, d, i])
  t[b, m] = max[d{bound}](s[b, m, d])
  p[b, m, d] = exp(s[b, m, d] - t[b, m])
  n[b, m] = sum[d{bound}](p[b, m, d])
  o[b, m, e] = sum[d{bound}](p[b, m, d] * v[b, d, e]) / n[b, m]
  l[b, m] = t[b, m] + log(n[b, m])
}}"""
FULL = ATTENTION.format(bound="")
CAUSAL = ATTENTION.format(bound=" <= m").replace("D", "M")
WAYS = {  # a spec, and how its indices are walked, the outermost first
    "rows": (SOFTMAX, "m tile, d whole"),
    "rows in a loop": (SOFTMAX, "m tile, d loop"),
    "a product": (PRODUCT, "m tile, d tile, k loop"),
    "a product at once": (PRODUCT, "m program, d tile, k whole"),
    "a loss head": (LOSS, "m tile, d loop, k loop"),
    "a loss head by whole terms": (LOSS, "m tile, d loop, k whole"),
    "the nearest row": (NEAREST, "m tile, d loop, k loop"),
    "a norm's gradient in one pass": (NORM, "m loop, d whole"),
    "what is stored and read in one pass": (KEPT, "m loop, d whole"),
    "what is stored and read in two passes": (AGAIN, "m2 tile, d loop"),
    "attention": (FULL, "b program, m tile, d loop, e whole, i whole"),
    "attention of many columns": (FULL, "b program, m tile, e tile, d loop, i loop"),
    "causal attention": (CAUSAL, "b program, m tile, d loop, e whole, i whole"),
}


def planned(spec: str, ways: str):
    """The op, its nests, the walks that `ways` says, and what is stored."""
    plan = pipeline.build(spec, "f.op").plans["f"][0]
    extents = {b.index: b.hi for n in plan.nests for b in (*n.box, *getattr(n.body, "binders", ()))}
    said = [way.split() for way in ways.split(", ")]
    rest = [x for x in extents if x not in {i for i, _ in said}]  # what a unified index is called
    walks = []
    for name, how in said:
        own = name if name in extents else rest.pop(0)
        walks.append(Walk(own, extents[own], how, "" if how == "program" else f"BLOCK_{own}"))
    walks += [Walk(x, extents[x], "whole", f"BLOCK_{x}") for x in rest]
    return plan.inner, plan.nests, tuple(walks), tuple(o.name for o in plan.inner.outputs)


def drawn(op: ir.Op, walks, random: Random):
    """Operands of drawn sizes, and blocks."""
    names = {str(d) for t in op.tensors for d in t.dims}
    sizes = {name: random.choice((1, 2, 3, 5, 8, 13)) for name in sorted(names)}
    torch.manual_seed(random.randrange(1000))
    args = {t.name: torch.randn([sizes[str(d)] for d in t.dims]) for t in op.tensors}
    return args, {w.block: random.choice((1, 2, 4, 8)) for w in walks if w.block}


@pytest.mark.parametrize("name", WAYS)
def test_a_kernel_computes_its_nests(name):
    op, nests, walks, stores = planned(*WAYS[name])
    kernel = lower(name, nests, walks, stores)
    verify(kernel, nests, stores)
    random = Random(name)
    for _ in range(6):
        args, blocks = drawn(op, walks, random)
        got, want = run(kernel, op, nests, args, blocks), oracle(op, args)
        near = 1e-6 if WAYS[name][0] in (KEPT, AGAIN) else 1e-9  # a result is f32 where it is read
        for result in stores:
            torch.testing.assert_close(
                got[result].double(), want[result].double(), rtol=near, atol=near
            )


@pytest.mark.parametrize("name", ["attention", "causal attention"])
def test_programs_may_share_a_loop(name):
    op, nests, walks, stores = planned(*WAYS[name])
    kernel = lower(name, nests, walks, stores)
    part, behind = in_parts("part", kernel, nests), merging(kernel, nests)
    columns = next(w for w in walks if w.how == "whole")
    rows = [replace(w, how="program", block="") for w in walks if w.how in ("program", "tile")]
    merge = lower("merge", behind, (*rows, Walk(PART, PARTS, "whole", "P"), columns), stores)
    verify(part, nests, [s.tensor for s in part.body if isinstance(s, Store)])
    verify(merge, behind, stores)
    random = Random(name)
    for parts in (1, 2, 3, 7):
        args, blocks = drawn(op, walks, random)
        blocks |= {"PARTS": parts, "P": 8}
        left = run(part, op, nests, args, blocks)
        got, want = run(merge, op, behind, args, blocks, left), oracle(op, args)
        for result in stores:
            torch.testing.assert_close(got[result].double(), want[result], rtol=1e-9, atol=1e-9)


def in_runs():
    """A norm's gradient, whose rows programs share: the kernel of each run, and the one that merges what they leave."""
    op, nests, walks, stores = planned(*WAYS["a norm's gradient in one pass"])
    kernel = lower("norm", nests, walks, stores)
    part, behind = in_parts("part", kernel, nests), merging(kernel, nests)
    columns = replace(walks[-1], how="tile")
    merge = lower("merge", behind, (Walk(PART, PARTS, "loop", "P"), columns), ("g",))
    return op, nests, walks, part, behind, merge


def test_programs_that_share_a_loop_store_each_its_own_run():
    op, nests, walks, part, behind, merge = in_runs()
    verify(part, nests, [s.tensor for s in statements(part.body) if isinstance(s, Store)])
    verify(merge, behind, ["g"])
    random = Random(7)
    for parts in (1, 2, 3, 7):
        args, blocks = drawn(op, walks, random)
        blocks |= {"PARTS": parts, "P": 2}
        left = run(part, op, nests, args, blocks)
        got, want = left | run(merge, op, behind, args, blocks, left), oracle(op, args)
        for result in ("y", "g"):
            torch.testing.assert_close(got[result].double(), want[result], rtol=1e-9, atol=1e-9)


RUNS = {
    "every turn stores a sum over the rows": (
        lambda s: replace(s, tensor="g", coords=s.coords[1:], axes=s.axes[1:]),
        "leaves out stores",
    ),
    "one program stores the rows of all": (
        lambda s: replace(s, once=(PART,)),
        "is stored once for each",
    ),
}


@pytest.mark.parametrize("fault", RUNS)
def test_planted_faults_in_runs_are_seen(fault):
    _, nests, _, part, _, _ = in_runs()
    change, says = RUNS[fault]
    wrong = replace(part, body=changed(part.body, Store, change))
    with pytest.raises(BadKernel, match=says):
        verify(wrong, nests, ["y"])


def test_blocks_that_no_row_has_a_term_in_are_not_visited():
    op, nests, walks, stores = planned(*WAYS["causal attention"])
    kernel = lower("causal", nests, walks, stores)
    (loop,) = (s for s in kernel.body if isinstance(s, Loop))
    assert len(loop.within) == 1
    args = {t.name: torch.full([1, 8, 2], torch.nan) for t in op.tensors}
    for t in args.values():
        t[:, :4] = torch.randn(1, 4, 2)
    blocks = {w.block: 4 for w in walks if w.block}
    got = run(kernel, op, nests, args, blocks)
    assert got["o"][:, :4].isfinite().all() and got["o"][:, 4:].isnan().all()


@pytest.mark.parametrize(
    "spec, ways",
    [
        (SOFTMAX, "m tile, d tile"),  # programs would share a row's fold
        (NORM, "m tile, d whole"),  # and the sum over rows
    ],
)
def test_walks_that_make_no_kernel_are_refused(spec, ways):
    _, nests, walks, stores = planned(spec, ways)
    with pytest.raises(CannotLower):
        lower("f", nests, walks, stores)


# ---- planted faults ------------------------------------------------------------------------------
def changed(body, kind, change):
    """The statements with the first of a kind changed, or left out for None."""
    found = []
    for s in body:
        if isinstance(s, kind) and change is not None:
            new, change = change(s), None
            found += [] if new is None else [new]
        elif (
            isinstance(s, Loop)
            and change is not None
            and any(isinstance(x, kind) for x in statements(s.body))
        ):
            inner, change = changed(s.body, kind, change), None
            found.append(replace(s, body=inner))
        else:
            found.append(s)
    return tuple(found)


def swapped(f: Fold) -> Fold:
    return replace(f, value=replace(f.value, guards=()))


FAULTS = {
    "a result is left out": (Store, lambda s: None, "stored 0 times"),
    "a result is stored elsewhere": (Store, lambda s: replace(s, coords=s.coords[::-1]), "another place"),
    "a fold forgets its bounds": (Fold, lambda f: swapped(f) if f.value.guards else replace(f, axes=()), "lies over|other terms"),
    "a loop is left out": (Loop, lambda s: None, "before it is there"),
    "a loop leaves terms out": (
        Loop,
        lambda s: replace(s, within=(ir.Guard(size("M"), ">="),)),
        "leaves out terms",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(fault):
    _, nests, walks, stores = planned(*WAYS["causal attention"])
    kernel = lower("f", nests, walks, stores)
    kind, change, says = FAULTS[fault]
    with pytest.raises(BadKernel, match=says):
        verify(replace(kernel, body=changed(kernel.body, kind, change)), nests, stores)


def test_an_index_that_is_called_as_a_value_is_seen():
    _, nests, walks, stores = planned(*WAYS["causal attention"])
    kernel = lower("f", nests, walks, stores)
    walks = tuple(replace(w, index="p") if w.how == "loop" else w for w in kernel.walks)
    with pytest.raises(BadKernel, match="both called p"):
        verify(replace(kernel, walks=walks), nests, stores)


def test_a_sum_that_does_not_move_with_its_maximum_is_seen():
    _, nests, walks, stores = planned(*WAYS["attention"])
    kernel = lower("f", nests, walks, stores)
    (loop,) = (s for s in kernel.body if isinstance(s, Loop))
    body = tuple(replace(s, moved_by="") if isinstance(s, Fold) else s for s in loop.body)
    wrong = tuple(replace(s, body=body) if s is loop else s for s in kernel.body)
    with pytest.raises(BadKernel, match="while its loop runs"):
        verify(replace(kernel, body=wrong), nests, stores)

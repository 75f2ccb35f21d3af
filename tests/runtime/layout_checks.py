"""Where results lie in memory, by torch's own ops: run by `test_batch.py`, with TRITON_INTERPRET=1."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from random import Random

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from tritongen.lib import empty, memory_format, three_dims
from tritongen.pipeline import build
from tritongen.proof.variants import forced, ways
from tritongen.runtime.load import load_text

SPECS = Path(__file__).parents[2] / "specs"
LAST = torch.channels_last


def draw(random: Random, shape: list[int]) -> torch.Tensor:
    """An operand that broadcasts to the shape: permuted, sliced, expanded, of fewer dims."""
    own = [1 if random.random() < 0.2 else n for n in shape]
    own = own[random.randrange(len(own)) if random.random() < 0.3 else 0 :]
    order = list(range(len(own)))
    if random.random() < 0.4:
        random.shuffle(order)
    elif random.random() < 0.5 and len(own) > 2:
        order = [0, *order[2:], 1]
    back = [order.index(k) for k in range(len(own))]
    if random.random() < 0.3:
        dim = random.randrange(len(own))
        wide = [own[k] * (1 + (k == dim)) for k in order]
        every = tuple(slice(None, None, 1 + (k == dim)) for k in range(len(own)))
        x = torch.randn(wide).permute(back)[every]
    else:
        x = torch.randn([own[k] for k in order]).permute(back)
    if random.random() < 0.2:
        x = x.expand(
            [
                n if random.random() < 0.5 else k
                for n, k in zip(shape[-x.dim() :], x.shape, strict=True)
            ]
        )
    return x


def test_results_are_ordered_as_tensor_iterator_does():
    for seed in range(2000):
        random = Random(seed)
        shape = [random.choice([1, 2, 3, 4]) for _ in range(random.randrange(1, 6))]
        operands = [draw(random, shape) for _ in range(random.randrange(1, 3))]
        want = torch.add(*operands) if len(operands) > 1 else torch.relu(*operands)
        got = empty(want.shape, want.dtype, *operands)
        assert got.stride() == want.stride(), [(x.shape, x.stride()) for x in operands]
        for x in operands:
            if x.dim() in (4, 5):
                assert memory_format(x) == torch._prims_common.suggest_memory_format(x), x.stride()


def of(text: str, name: str):
    built = build(text, f"{name}.op")
    return load_text(name, built.raw), built.plans[name][0]


def held(module, plan, want: torch.Tensor, *args, every: bool = False) -> None:
    """Strides and values, of every variant or of the one that is chosen, and the strides of a fake call."""
    function = getattr(module, plan.op.name)
    case = plan.op.name, [(a.shape, a.stride()) for a in args]
    for way in ways(plan) if every else [None]:
        with forced(module, plan, way, small=True) if way else nullcontext():
            got = function.__wrapped__(*args)
        assert got.stride() == want.stride(), (*case, way, got.stride(), want.stride())
        assert torch.allclose(got, want, 1e-4, 1e-4), (*case, way)
    fakes = [torch.empty_strided(a.shape, a.stride(), device="meta") for a in args]
    assert function(*fakes).stride() == want.stride(), case


def images(n: int = 2, c: int = 8, h: int = 5, w: int = 6) -> dict[str, torch.Tensor]:
    x = torch.randn(n, c, h, w)
    return {
        "contiguous": x,
        "channels last": x.to(memory_format=LAST),
        "transposed": torch.randn(c, n, h, w).transpose(0, 1),
        "permuted": torch.randn(w, h, c, n).permute(3, 2, 1, 0),
        "expanded": torch.randn(1, c, h, w).expand(n, c, h, w),
        "sliced": torch.randn(n, c, h, 2 * w)[..., ::2],
        "channels last, sliced": torch.randn(n, 2 * c, h, w).to(memory_format=LAST)[:, ::2],
    }


def test_one_operand_is_followed_and_flat_where_dense():
    for name, torch_op in {"relu": F.relu, "gelu": F.gelu}.items():
        module, plan = of((SPECS / f"{name}.op").read_text(), name)
        for kind, x in images().items():
            held(module, plan, torch_op(x), x)
            outer, middle, _ = three_dims(x, torch.empty_like(x))[0].shape
            assert outer * middle == 1 or kind in ("expanded", "channels last, sliced"), kind


ADD = {
    "batched": "op add<T: float>(x: T[...], z: T[...]) -> y: T[...] { y = x + z }",
    "named": "op add<T: float>(x: T[N, C, H, W], z: T[N, C, H, W]) -> y: T[N, C, H, W] { y = x + z }",
}


@pytest.mark.parametrize("kind", ADD)
def test_several_operands_are_ordered(kind):
    module, plan = of(ADD[kind], "add")
    forms = images()
    for x in forms.values():
        for z in forms.values():
            held(module, plan, x + z, x, z)
    held(module, plan, forms["permuted"] + z, forms["permuted"], z, every=True)
    if kind == "batched":
        for seed in range(20):
            random = Random(seed)
            shape = [random.choice([1, 2, 3]) for _ in range(random.randrange(1, 6))]
            x, z = draw(random, shape), draw(random, shape)
            held(module, plan, x + z, x, z)


def test_an_operand_of_fewer_dims_changes_no_order():
    """Named dims and batch dims, what another step left in scratch storage too."""
    b, w = torch.randn(8), torch.randn(6)
    module, plan = of((SPECS / "bias_add.op").read_text(), "bias_add")
    for x in images().values():
        held(module, plan, x + b[:, None, None], x, b, every=True)
    text = """
op f<T: float>(x: T[..., D], w: T[D]) -> y: T[..., D] {
  y[..., d] = x[..., d] * w[d]
}"""
    module, plan = of(text, "f")
    for x in images().values():
        held(module, plan, x * w, x, w, every=True)
    text = """
op f<T: float>(x: T[..., D], w: T[D], z: T[..., D]) -> y: T[..., D] {
  c[..., d < D] = sum[k <= d](x[..., k])
  y[..., d] = z[..., d] * w[d] + (c[..., d - 1] else 0) + c[..., D - 1 - d] * c[..., d]
}"""
    module, plan = of(text, "f")
    for x in images().values():
        c = x.cumsum(-1)
        want = (x * w + F.pad(c, (1, 0))[..., :-1] + c.flip(-1) * c).contiguous()
        got = module.f.__wrapped__(x, w, x)
        assert torch.allclose(got, want, 1e-4, 1e-4)


def test_operands_may_be_called_what_the_merged_dims_are():
    text = "op f<T: float>(inner: T[N, C, H, W], outer: T[C]) -> middle: T[N, C, H, W] { middle[n, c, h, w] = inner[n, c, h, w] * outer[c] }"
    module, plan = of(text, "f")
    x, w = images()["channels last"], torch.randn(8)
    held(module, plan, x * w[:, None, None], x, w, every=True)


def test_norms_pools_and_convolutions():
    w, b = torch.randn(6), torch.randn(6)
    kernel, bias = torch.randn(4, 8, 3, 3), torch.randn(4)
    calls = {
        "layer_norm": ((w, b), lambda x: F.layer_norm(x, (6,), w, b)),
        "softmax": ((), lambda x: F.softmax(x, -1)),
        "max_pool2d": ((), lambda x: F.max_pool2d(x, 2)),
        "conv2d": ((kernel, bias), lambda x: F.conv2d(x, kernel, bias)),
    }
    for name, (others, torch_op) in calls.items():
        module, plan = of((SPECS / f"{name}.op").read_text(), name)
        for x in images().values():
            held(module, plan, torch_op(x), x, *others)
    x, kernel = torch.randn(2, 8, 5, 6), kernel.to(memory_format=LAST)
    held(module, plan, F.conv2d(x, kernel, bias), x, kernel, bias)


def test_dots_that_would_be_the_channels_and_more_are_one_run():
    text = """op f<T: float>(x: T[..., C, H, W]) -> y: T[..., C, H, W] {
      y[..., c, h, w] = sum[r < 2](x[..., c, h, 2 * w + r] else 0) + (x[..., c, h + w, w] else 0)
    }"""
    module, _ = of(text, "f")
    for batch, last in ((3,), LAST), ((2, 3), torch.channels_last_3d):
        x = torch.randn(*batch, 4, 5, 6)
        got = module.f.__wrapped__(x.to(memory_format=last))
        assert torch.equal(got, module.f.__wrapped__(x))
        assert got.is_contiguous(memory_format=last) == (len(batch) == 1)


def test_an_operand_of_fewer_dims_gives_no_memory_format():
    text = """op f(x: f32[..., C, H, W], z: f32[..., C]) -> y: f32[..., C, H, W] {
      y[..., c, h, w] = max[r < 2](x[..., c, h, w + r] else 0) + z[..., c]
    }"""
    module, _ = of(text, "f")
    x = torch.randn(3, 4, 5, 6).to(memory_format=LAST)
    for batch, last in ((3,), LAST), ((2, 3), torch.contiguous_format):
        got = module.f.__wrapped__(x, torch.randn(*batch, 4))
        assert got.is_contiguous(memory_format=last), batch


def test_group_norm_of_channels_last_copies_nothing():
    gain, bias = torch.randn(8), torch.randn(8)
    for name, groups in ("group_norm", 4), ("instance_norm", 8):
        module, plan = of((SPECS / f"{name}.op").read_text(), name)
        function = getattr(module, name)
        for kind, x in images(2, 8, 3, 4).items():
            want = F.group_norm(x, groups, gain, bias).contiguous(memory_format=memory_format(x))
            given = (x, gain, bias, groups) if name == "group_norm" else (x, gain, bias)
            for way in ways(plan) if kind in ("contiguous", "channels last") else ways(plan)[-1:]:
                with forced(module, plan, way, small=True), Allocations() as made:
                    got = function.__wrapped__(*given)
                assert got.stride() == want.stride(), (name, kind, way)
                assert torch.allclose(got, want, 1e-4, 1e-4), (name, kind, way)
                assert kind != "channels last" or max(made.sizes[1:], default=0) < x.numel()


class Allocations(TorchDispatchMode):
    """Counts the elements of each new tensor."""

    def __init__(self):
        super().__init__()
        self.sizes: list[int] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func._schema.name.startswith(("aten::empty", "aten::clone", "aten::zeros")):
            self.sizes.append(result.numel())
        return result


@pytest.mark.parametrize("first", ["i > t", "2 <= i < A", "i >= t + 2"])
def test_an_outer_index_that_does_not_start_at_0(first):
    """j is a block's columns, i a turn of the loop: counted from 0, and 1 or 2 is added to it."""
    text = f"op f(b: f32[B, K], w: f32[A, K, B]) -> x: f32[B] {{ x[t] = sum[{first}, j](b[t, j] * w[i, j, t]) }}"
    built = build(text, "f.op")
    module, (plan,) = load_text("f", built.raw), built.plans["f"]
    b, w = torch.randn(7, 5), torch.randn(7, 5, 7)
    i, t = torch.arange(7)[:, None, None], torch.arange(7)
    there = {"i > t": i > t, "2 <= i < A": (i >= 2) & (t >= 0), "i >= t + 2": i >= t + 2}[first]
    want = torch.where(there, b.T * w, 0).sum((0, 1))
    seen = set()
    for way in ways(plan):
        with forced(module, plan, way, small=True):
            torch.testing.assert_close(module.f(b, w), want, msg=way.name)
        seen.add(way.name)
    assert {"loop", "split"} <= seen


def test_what_lies_apart_from_a_result_of_its_step_is_stored_too():
    """One step makes dt, which lies as dv does, and the factor of da, in scratch: no three dims walk both of them."""
    text = """
        op f<T: float>(a: T[..., W, C], h: T[..., C, D], t: T[..., W, D]) -> v: T[..., W, D] {
          v[..., i, j] = clamp(t[..., i, j], -1, 2) * sum[k]((h[..., k, j + 3] else 0) * a[..., i, k])
        }"""
    f = load_text("f", build(text, "f", gradients=True).raw).f
    a, h, t = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 4, 7), torch.randn(1, 7).expand(5, 7)
    leaves = [x.requires_grad_() for x in (a, h, t.detach())]
    for order in ((0, 1, 2, 3), (3, 2, 1, 0)):
        back = [order.index(k) for k in range(4)]
        dv = torch.randn([(2, 3, 5, 7)[k] for k in order]).permute(back)
        got = torch.autograd.grad(f(*leaves), leaves, dv)
        want = torch.autograd.grad(f.reference(*leaves), leaves, dv)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)

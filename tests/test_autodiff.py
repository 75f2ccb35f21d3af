"""Derived gradients against torch autograd of each spec's `ref`, in f64; what they cost; how they read."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tritongen.autodiff import NotDifferentiable, gradient
from tritongen.check import check
from tritongen.ir.algebra import Sym, poly, walk
from tritongen.ir.interp import count_points, run
from tritongen.ir.nodes import BATCH_SIZE, Tensor, kind_of
from tritongen.ir.print import print_op
from tritongen.ir.verify import verify
from tritongen.syntax.parse import parse
from tritongen.syntax.ref import parse_ref, ref_python

SPECS = sorted((Path(__file__).parent.parent / "specs").glob("*.op"))
BATCH_SHAPE = (2, 3)


def op_of(text: str):
    """The last op of a text, for floats; half-only ops take f64 here."""
    text = re.sub(r"<T: f16 \| bf16>", "<T: float>", text).replace("f32[", "f64[")
    return next(o for o in check(parse(text))[-1].typings)


def reference(op, args: dict) -> torch.Tensor:
    *steps, result = ref_python(parse_ref(op.ref)).split("\n")
    scope = dict(args, torch=torch)
    exec("\n".join(steps), scope)
    return eval(result, scope)


def arguments(op, sizes: dict[str, int], seed: int = 0, **given) -> dict:
    """Random operands; sizes not given are small and unlike each other."""
    generator = torch.Generator().manual_seed(seed)
    choices = itertools.cycle((3, 4, 2, 5))
    sizes, args = dict(sizes), {}
    for p in op.params:
        if not isinstance(p, Tensor):
            args[p.name] = given.get(p.name, p.default if p.default is not None else 0.7)
            continue
        for d in p.dims:
            for atom in walk(d):
                if isinstance(atom, Sym) and d == poly(atom) and d != BATCH_SIZE:
                    sizes.setdefault(atom.name, next(choices))
        shape = []
        for d in p.dims:
            shape += BATCH_SHAPE if d == BATCH_SIZE else [sizes[str(d)]]
        if p.name in given:
            args[p.name] = given[p.name](shape) if callable(given[p.name]) else given[p.name]
        elif kind_of(p.dtype, op) == "float":
            args[p.name] = torch.randn(shape, generator=generator, dtype=torch.float64)
        elif p.dtype == "bool":
            args[p.name] = torch.rand(shape, generator=generator) < 0.5
        else:
            args[p.name] = torch.randint(-3, 3, shape, generator=generator, dtype=torch_int(p.dtype))
        if kind_of(p.dtype, op) == "float" and p.dtype in ("f32", "f16", "bf16"):
            args[p.name] = args[p.name].float()
    return args


def torch_int(dtype: str) -> torch.dtype:
    return {"i64": torch.int64, "i32": torch.int32, "i8": torch.int8, "u8": torch.uint8}[dtype]


def pulled(op, args: dict, dys: dict | None = None, seed: int = 1):
    """(gradients by our backward op, the cotangents used, the forward outputs)"""
    back = gradient(op)
    verify(back)
    outputs = run(op, args)
    generator = torch.Generator().manual_seed(seed)
    dys = dys or {
        f"d{o.name}": torch.randn(outputs[o.name].shape, generator=generator, dtype=torch.float64)
        for o in op.outputs
        if kind_of(o.dtype, op) == "float"
    }
    names = {p.name for p in back.params}
    known = {**args, **outputs, **{k: v.to(torch.float64) for k, v in dys.items()}}
    return run(back, {k: v for k, v in known.items() if k in names}), dys, outputs


def assert_like_torch(op, args: dict, forward=None, seed: int = 1) -> None:
    forward = forward or (lambda **kw: reference(op, kw))
    leaves = {
        k: v.to(torch.float64).clone().requires_grad_()
        for k, v in args.items()
        if isinstance(v, torch.Tensor) and v.is_floating_point()
    }
    expected = forward(**{**args, **leaves})
    expected = expected if isinstance(expected, tuple) else (expected,)
    found, dys, outputs = pulled(op, args, seed=seed)
    floats = [y for y in expected if y.is_floating_point()]
    for y, exact in zip(floats, (outputs[o.name] for o in op.outputs)):
        torch.testing.assert_close(exact, y.detach().double(), rtol=1e-9, atol=1e-9)
    wanted = torch.autograd.grad(
        floats, list(leaves.values()), list(dys.values()), allow_unused=True
    )
    for (name, leaf), grad in zip(leaves.items(), wanted):
        grad = torch.zeros_like(leaf) if grad is None else grad
        ours = found[f"d{name}"]
        torch.testing.assert_close(ours.sum_to_size(leaf.shape), grad, rtol=1e-8, atol=1e-9, msg=lambda text: f"{name}: {text}")
    for name in set(found) - {f"d{k}" for k in leaves}:
        torch.testing.assert_close(
            float(found[name]), slope(op, args, name[1:], dys), rtol=1e-5, atol=1e-6, msg=name
        )


def slope(op, args: dict, scalar: str, dys: dict) -> float:
    """d(sum(y * dy)) / d(scalar), by a difference."""

    def total(step: float) -> float:
        outputs = run(op, {**args, scalar: args[scalar] + step})
        return sum(float((outputs[k[1:]] * v).sum()) for k, v in dys.items())

    h = 1e-6
    return (total(h) - total(-h)) / (2 * h)


# ---- every spec ---------------------------------------------------------------------------------
positive = lambda shape: torch.rand(shape, dtype=torch.float64) + 0.5  # noqa: E731
CASES = {
    "conv2d": dict(sizes=dict(C=4, Cg=2, F=6, H=7, W=6, R=3, S=2), groups=2, pad=1, stride=2, dil=2),
    "conv1d": dict(sizes=dict(C=4, Cg=2, F=6, L=9, R=3), groups=2, pad=1, stride=2),
    "conv3d": dict(sizes=dict(N=2, C=2, Cg=1, F=2, D=4, H=5, W=3, K=2, R=2, S=2), groups=2, pad=1, stride=2),
    "conv_group_norm_silu": dict(sizes=dict(N=2, C=3, F=4, H=4, W=3, R=3, S=3), groups=2),
    "conv_transpose1d": dict(sizes=dict(L=4, R=3, C=4, F=3), stride=2, pad=1, out_pad=1),
    "conv_transpose2d": dict(sizes=dict(N=2, C=2, F=3, H=3, W=4, R=3, S=2), stride=2, pad=1),
    "conv_transpose3d": dict(sizes=dict(N=1, C=2, F=2, D=2, H=3, W=2, K=2, R=2, S=3), stride=2),
    "depthwise_conv2d": dict(sizes=dict(H=6, W=5, R=3, S=2, C=3), pad=1),
    "group_norm": dict(sizes=dict(C=6), groups=3),
    "cross_entropy": dict(target=torch.tensor([1, -100, 0, 2]), sizes=dict(N=4, V=3)),
    "kl_div": dict(t=positive),
    "avg_pool2d": dict(sizes=dict(H=6, W=7), win=3, stride=2, pad=1),
    "max_pool1d": dict(sizes=dict(L=9), win=3, stride=2, pad=1),
    "max_pool2d": dict(sizes=dict(H=6, W=7), win=3, stride=2, pad=1),
    "max_pool3d": dict(sizes=dict(N=1, C=2, D=4, H=5, W=4), win=2, stride=1, pad=1),
    "max_with_index": dict(sizes=dict(N=3, D=5)),
    "bmm": dict(sizes=dict(B=2)),
}
FORWARD = {
    "attention": lambda q, k, v, scale: (
        torch.softmax(scale * torch.einsum("bhse,bhle->bhsl", q, k), -1) @ v
    ),
    "int8_linear": lambda x, w, sx, sw: (x.double() @ w.double().T) * sx[:, None] * sw,
}


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_every_spec_has_the_gradient_of_its_ref(path):
    op = op_of(path.read_text())
    case = dict(CASES.get(path.stem, {}))
    args = arguments(op, case.pop("sizes", {}), **case)
    if not any(kind_of(o.dtype, op) == "float" for o in op.outputs):
        with pytest.raises(NotDifferentiable):
            gradient(op)
        return
    assert_like_torch(op, args, FORWARD.get(path.stem))

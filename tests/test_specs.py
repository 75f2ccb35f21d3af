"""Every op of specs/ and of the prelude equals its `ref`, by the oracle in f64, at several shapes."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch

from tritongen.check import check
from tritongen.ir.algebra import evaluate
from tritongen.ir.interp import run
from tritongen.ir.nodes import BATCH_SIZE, INTS, Constant, Op, Scalar, Tensor
from tritongen.syntax import ast
from tritongen.syntax.parse import parse_file
from tritongen.syntax.ref import parse_ref, ref_python

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "specs").glob("*.op"))
SIZES = {
    **{"N": 3, "C": 4, "D": 5, "H": 7, "W": 6, "L": 9, "F": 6, "R": 3, "S": 2, "K": 2},
    **{"M": 4, "B": 2, "V": 7, "E": 8},
}
BATCHES = ((2, 3), (4,))
STRIDED = {"stride": 2, "pad": 1, "out_pad": 1}
# What an op is run with beside its defaults: constants by name, and sizes that must fit them.
CASES = {
    **dict.fromkeys(
        ("conv1d", "conv2d", "conv3d"),
        ({}, {"stride": 2, "pad": 1}, {"dil": 2, "pad": 2}, {"groups": 2, "stride": 3, "pad": 1}),
    ),
    "depthwise_conv2d": ({}, {"stride": 2, "pad": 1}),
    **dict.fromkeys(
        ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        ({}, STRIDED, STRIDED | {"dil": 2}, STRIDED | {"groups": 2}),
    ),
    **dict.fromkeys(
        ("max_pool1d", "max_pool2d", "max_pool3d"),
        ({}, {"win": 3, "stride": 2, "pad": 1}, {"win": 3, "stride": 1, "dil": 2, "pad": 1}),
    ),
    **dict.fromkeys(
        ("avg_pool1d", "avg_pool2d", "avg_pool3d"), ({}, {"win": 3, "stride": 2, "pad": 1})
    ),
    "group_norm": ({}, {"groups": 2}, {"groups": 4}),
    "conv_group_norm_silu": ({"groups": 2}, {"groups": 3, "pad": 0}),
    "huber": ({}, {"delta": 0.3}),
    "int4_linear": ({"K": 128, "H": 64, "G": 1},),
    **dict.fromkeys(("causal_attention", "decode_attention"), ({"H": 4, "G": 2},)),
}


@cache
def ops_of(path: Path) -> tuple[Op, ...]:
    return tuple(typing for checked in check(parse_file(path)) for typing in checked.typings)


def tensor(t: Tensor, op: Op, sizes: dict[str, int], batch: tuple[int, ...]) -> torch.Tensor:
    shape: list[int] = []
    for dim in t.dims:
        shape += batch if dim == BATCH_SIZE else [int(evaluate(dim, sizes))]
    kinds = {p.name: p.kind for p in op.typarams}
    random = torch.Generator().manual_seed(len(t.name) + sum(shape))
    if t.dtype in INTS:  # a gather's indices; one lies outside, at what cross_entropy ignores
        values = torch.randint(sizes["V"], shape, generator=random)
        values.view(-1)[0] = -100
        return values
    if t.dtype == "bool":
        return torch.rand(shape, generator=random) < 0.5
    if kinds.get(t.dtype) == "int":
        return torch.randint(-9, 9, shape, generator=random)
    values = torch.randn(shape, generator=random, dtype=torch.float64)
    return values.abs() if t.name in ("t", "var") else values  # probabilities, variances


def arguments(op: Op, case: dict[str, float], batch: tuple[int, ...]) -> dict[str, object]:
    sizes, args = SIZES | {n: size for n, size in case.items() if n.isupper()}, {}
    for p in op.params:
        if isinstance(p, (Scalar, Constant)):
            default = 0.7 if p.default is None else p.default
            args[p.name] = case.get(p.name, default)
            if isinstance(p, Constant) and p.dtype == "int":
                sizes[p.name] = args[p.name]
    sizes |= {
        "Cg": sizes["C"] // sizes.get("groups", 1),
        "Fg": sizes["F"] // sizes.get("groups", 1),
    }
    for p in op.params:
        if isinstance(p, Tensor):
            args[p.name] = tensor(p, op, sizes, batch)
    return args


def reference(op: Op, args: dict[str, object]) -> tuple[torch.Tensor, ...]:
    names = {"torch": torch, **args}
    *steps, result = ref_python(parse_ref(op.ref)).splitlines()
    for step in steps:
        exec(step, names)
    value = eval(result, names)
    return (value,) if isinstance(value, torch.Tensor) else tuple(value)


def assert_equals_ref(op: Op) -> None:
    for case in CASES.get(op.name, ({},)):
        for batch in BATCHES if any(BATCH_SIZE in t.dims for t in op.tensors) else BATCHES[:1]:
            args = arguments(op, case, batch)
            got = run(op, args)
            for output, want in zip(op.outputs, reference(op, args), strict=True):
                assert torch.allclose(
                    got[output.name].to(want.dtype), want, 1e-9, 1e-9
                ), f"{op.name}.{output.name} with {case or 'the defaults'}, batch {batch}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_spec_equals_its_ref(path):
    for op in ops_of(path):
        if op.ref is not None:
            assert_equals_ref(op)


PRELUDE = parse_file(ROOT / "grammar" / "prelude.op")


@pytest.mark.parametrize(
    "item", [i for i in PRELUDE.items if isinstance(i, ast.OpDef)], ids=lambda item: item.name
)
def test_prelude_op_equals_its_ref(item):
    for checked in check(ast.File((item,))):
        for op in checked.typings:
            assert_equals_ref(op)


def test_only_what_torch_lacks_has_no_ref():
    without = {op.name for path in FILES for op in ops_of(path) if op.ref is None}
    masks = {"causal_attention", "window_attention", "document_attention", "decode_attention"}
    assert (
        without
        == {"attention", "int4_linear", "int8_linear", "linear_cross_entropy", "moe_linear"}
        | {"nearest_centre"}
        | masks
    )

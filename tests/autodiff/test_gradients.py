"""Every op of this repository that has a gradient: it prints, parses back, builds, and is autograd's.

Autograd goes through the reference that the compiler emits, line by line, in f64; the gradient is run by the
oracle. `test_autodiff.py` has the corners that no spec stands on.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import pytest
import torch

from tritongen import lib, pipeline
from tritongen.autodiff import NotDifferentiable, gradient
from tritongen.check import check
from tritongen.errors import SpecError
from tritongen.ir.algebra import symbols
from tritongen.ir.interp import run
from tritongen.ir.nodes import FLOATS, Op, kind_of
from tritongen.ir.print import print_op
from tritongen.ir.verify import verify
from tritongen.proof.cases import NoCase, arguments, draw_case, satisfying
from tritongen.reference import reference_lines
from tritongen.syntax.parse import parse, parse_file

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests/programs", "specs", "benchmarks/users")
FILES = [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.op"))]
OFTEN = ("cummax", "gather_gradient", "places", "prod_min", "scaled_square", "trace")


@cache
def differentiable(path: Path) -> tuple[tuple[Op, Op], ...]:
    """The ops of a file and their gradients; one that has none says why."""
    found = []
    for op in (op for checked in check(parse_file(path)) for op in checked.typings):
        try:
            found.append((op, gradient(op)))
        except NotDifferentiable as error:
            assert error.diagnostics[0].code == "E701"
    return tuple(found)


def in_f64(op: Op) -> Op:
    """The op with type parameters that may be f64, and no `ref`."""
    wide = (replace(p, dtypes=FLOATS) if p.kind == "float" else p for p in op.typarams)
    return replace(op, typarams=tuple(wide), ref=None)


def call(op: Op, seed: int) -> dict:
    """Arguments in f64 where the op takes them, that give numbers.

    Normal ones first, then positive ones, then of sizes that leave something behind a convolution and its pools:
    those of an image are 6, all others 3, and constants are as the op has them.
    """
    random = Random(f"{op.name} {seed}")
    kinds = {p.name: "f64" if p.kind == "float" else p.dtypes[0] for p in op.typarams}
    plain = {t.name: "contiguous" for t in op.tensors}
    image, *others = (set().union(*map(symbols, t.dims)) for t in op.tensors)
    for k in range(81):
        try:
            # expanded operands have ties: torch.amax splits the gradient there, torch.max does not
            values = "normal" if k < 40 else "positive"
            case = replace(draw_case(op, random, kinds), values=values, layouts=plain)
            if k == 80:
                sizes = satisfying(op, 3, random)
                sizes |= dict.fromkeys(image.difference(*others) & sizes.keys(), 6)
                numbers = {name: sizes.get(name, n) for name, n in case.numbers.items()}
                case = replace(case, sizes=sizes, numbers=numbers)
        except NoCase:
            continue
        args = arguments(op, case, "cpu")
        given = [v for v in args.values() if isinstance(v, torch.Tensor)]
        if all(v.numel() for v in given):
            results = run(op, args).values()
            if all(y.numel() and not y.isnan().any() for y in results):
                return args
    raise AssertionError(f"every drawn call of {op.name} gives NaN, or something of it is empty")


def agrees_with_autograd(op: Op, back: Op, seed: int) -> None:
    args = call(op, seed)
    namespace = {"torch": torch, "lib": lib}
    exec("\n".join(reference_lines(op)), namespace)
    floats = {p.name for p in op.params if kind_of(p.dtype, op) == "float"}
    wanted = [o.name[1:] for o in back.outputs]
    leaves = {
        n: torch.as_tensor(args[n]).detach().clone().requires_grad_() for n in wanted if n in floats
    }
    given = namespace[f"{op.name}_reference"](**{**args, **leaves})
    given = given if isinstance(given, tuple) else (given,)
    exact = run(op, args)
    torch.manual_seed(seed)
    known = {**args, **exact}
    pairs = [(o, y) for o, y in zip(op.outputs, given, strict=True) if y.requires_grad]
    known |= {
        f"d{o.name}": torch.randn(exact[o.name].shape, dtype=torch.float64) for o in op.outputs
    }
    weights = [known[f"d{o.name}"].to(y.dtype) for o, y in pairs]
    known |= {p.name: known[p.name].float() for p in back.tensors if p.dtype == "f32"}
    ours = run(back, {p.name: known[p.name] for p in back.params})
    expected = torch.autograd.grad(
        [y for _, y in pairs], list(leaves.values()), weights, allow_unused=True
    )
    for (name, leaf), theirs in zip(leaves.items(), expected, strict=True):
        theirs = torch.zeros_like(leaf) if theirs is None else theirs
        torch.testing.assert_close(
            # where `...` of operands broadcast, autograd sums what the gradient op gives, as here
            ours[f"d{name}"].to(torch.float64).sum_to_size(leaf.shape),
            theirs.to(torch.float64),
            rtol=1e-8 if leaf.dtype == torch.float64 else 1e-3,
            atol=1e-8 if leaf.dtype == torch.float64 else 1e-3,
            equal_nan=True,
            msg=lambda text, name=name: f"{op.name}: d{name}: {text}",
        )


# Its text has more operations than a spec may: it is compiled as it was derived.
LONG = {"l2_006_conv3d_softmax_max_pools"}


def marked(path: Path):
    often = path.parent.name == "programs" and path.stem in OFTEN
    return pytest.param(path, id=path.stem, marks=[] if often else pytest.mark.slow)


@pytest.mark.parametrize("path", [marked(path) for path in FILES])
def test_a_gradient_is_text_that_autograd_agrees_with(path):
    for op, back in differentiable(path):
        verify(back)
        text = print_op(back)
        if path.stem in LONG:
            with pytest.raises(SpecError, match="E009"):
                parse(text)
            read = back
        else:
            (read,) = check(parse(text))[0].typings
            assert print_op(check(parse(print_op(read)))[0].typings[0]) == print_op(read)
            pipeline.build(text)
        agrees_with_autograd(in_f64(op), in_f64(read), seed=1)

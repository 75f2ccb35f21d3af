"""What a wrong call of attention is told: one error that names the operand, what was expected and what was given.

Nothing here is of attention alone: its specs have several operands that share sizes, facts about them, and kept values.
"""

from __future__ import annotations

import pytest
import torch
from test_backward import ops_of, spec

HALF = "torch.float16 or torch.bfloat16"
MASKED = """op masked<T: float>(x: T[B, S, L], mask: bool[S, L]) -> y: T[B, S] {
  y[b, i] = sum[j](where(mask[i, j], x[b, i, j], 0))
}"""


def operands(name: str, **changed: torch.Tensor) -> dict:
    """Of a right call, but for what is changed."""
    rows = 3 if name == "decode_attention" else 8
    heads = 4 if name == "window_attention" else 2
    made = {n: torch.ones(s, dtype=torch.bfloat16) for n, s in shapes(rows, heads).items()}
    if name == "decode_attention":
        made["len"] = torch.tensor([3, 8], dtype=torch.int32)
    return made | {"scale": 0.25} | changed


def shapes(rows: int, heads: int) -> dict:
    return {"q": (2, 4, rows, 16), "k": (2, heads, 8, 16), "v": (2, heads, 8, 16)}


def of(*shape: int, dtype=torch.bfloat16, device="cpu") -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device=device)


ALL = {
    "dtype of k": (
        {"k": of(2, 4, 8, 16, dtype=torch.float16)},
        "k: expected dtype torch.bfloat16 (T, from q), given torch.float16",
    ),
    "dtype of q": (
        {"q": of(2, 4, 8, 16, dtype=torch.float32)},
        f"q: expected dtype {HALF}, given torch.float32",
    ),
    "device of v": (
        {"v": of(2, 4, 8, 16, device="meta")},
        "v: expected device cpu (from q), given meta",
    ),
    "rank of q": ({"q": of(4, 8, 16)}, "q: expected 4 dims [B, H, S, E], given 3"),
    "width of k": ({"k": of(2, 4, 8, 12)}, "k: dim 3 (E): expected 16 (from q), given 12"),
}
GROUPS = {
    "heads that do not divide": (
        {"k": of(2, 3, 8, 16), "v": of(2, 3, 8, 16)},
        "requires H == G * R: 4 != 3 (H = 4 from q, G = 3 from k)",
    ),
    "more heads of k": (
        {"k": of(2, 8, 8, 16), "v": of(2, 8, 8, 16)},
        "requires H == G * R: 4 != 0 (H = 4 from q, G = 8 from k)",
    ),
    "no heads of k": (
        {"k": of(2, 0, 8, 16), "v": of(2, 0, 8, 16)},
        "division by zero in H // G (H = 4 from q, G = 0 from k)",
    ),
    "other heads of v": ({"v": of(2, 1, 8, 16)}, "v: dim 1 (G): expected 2 (from k), given 1"),
}
OWN = {
    "window_attention": {
        "heads of k": ({"k": of(2, 3, 8, 16)}, "k: dim 1 (H): expected 4 (from q), given 3"),
        "a window of nothing": ({"width": 0}, "requires width > 0: 0 <= 0"),
    },
    "causal_attention": GROUPS,
    "decode_attention": GROUPS
    | {
        "lengths of other sequences": (
            {"len": of(3, dtype=torch.int32)},
            "len: dim 0 (B): expected 2 (from q), given 3",
        ),
        "lengths for each head": (
            {"len": of(2, 4, dtype=torch.int32)},
            "len: expected 1 dim [B], given 2",
        ),
        "a mask for lengths": (
            {"len": of(2, dtype=torch.bool)},
            "len: expected dtype torch.int32, given torch.bool",
        ),
        "lengths elsewhere": (
            {"len": of(2, dtype=torch.int32, device="meta")},
            "len: expected device cpu (from q), given meta",
        ),
    },
}
CASES = [(name, what) for name, own in OWN.items() for what in (*ALL, *own)]


@pytest.mark.parametrize("name, what", CASES, ids=lambda value: value.replace(" ", "-"))
def test_a_wrong_call_of_attention(name, what):
    changed, told = (ALL | OWN[name])[what]
    with pytest.raises(ValueError) as caught:
        spec(name)(**operands(name, **changed))
    assert str(caught.value) == f"{name}: {told}"


def test_a_call_that_wants_a_gradient_is_told_the_same():
    """Another op runs then, which keeps values: nobody has called that by its name."""
    given = operands("causal_attention", k=of(2, 3, 8, 16), v=of(2, 3, 8, 16))
    given["q"].requires_grad_()
    with pytest.raises(ValueError) as caught:
        spec("causal_attention")(**given)
    assert str(caught.value) == f"causal_attention: {GROUPS['heads that do not divide'][1]}"


@pytest.mark.parametrize(
    "mask, told",
    [
        (of(8, 4, dtype=torch.bool), "mask: dim 0 (S): expected 4 (from x), given 8"),
        (of(2, 4, 8, dtype=torch.bool), "mask: expected 2 dims [S, L], given 3"),
        (of(4, 8, dtype=torch.float32), "mask: expected dtype torch.bool, given torch.float32"),
    ],
)
def test_a_mask_of_the_wrong_shape_or_dtype(mask, told):
    with pytest.raises(ValueError) as caught:
        ops_of(MASKED).masked(torch.ones(2, 4, 8), mask)
    assert str(caught.value) == f"masked: {told}"

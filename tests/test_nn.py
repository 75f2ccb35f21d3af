"""Layers beside torch's of the same name: parameters, states, values and gradients."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from tritongen import nn


def ints(*shape: int) -> torch.Tensor:
    return torch.randint(0, 7, shape, generator=torch.Generator().manual_seed(1))


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


LAYERS = [
    ("Linear", (6, 5), {}, [randn(2, 3, 6)]),
    ("Linear", (6, 5), {"bias": False}, [randn(4, 6)]),
    ("Conv1d", (4, 6, 3), {"stride": 2, "padding": 1}, [randn(2, 4, 9)]),
    ("Conv2d", (4, 6, 3), {"groups": 2, "padding": "same"}, [randn(2, 4, 5, 6)]),
    ("Conv3d", (2, 3, 2), {"bias": False, "dilation": 2}, [randn(1, 2, 4, 5, 4)]),
    ("ConvTranspose1d", (4, 6, 3), {"stride": 2, "output_padding": 1}, [randn(2, 4, 5)]),
    ("ConvTranspose2d", (4, 6, 3), {"bias": False, "groups": 2}, [randn(2, 4, 3, 4)]),
    ("ConvTranspose3d", (2, 3, 2), {"padding": 1}, [randn(1, 2, 3, 3, 3)]),
    ("LayerNorm", (9,), {}, [randn(3, 9)]),
    ("LayerNorm", ((3, 4),), {"bias": False}, [randn(2, 3, 4)]),
    ("RMSNorm", (9,), {}, [randn(2, 3, 9)]),
    ("RMSNorm", (9,), {"elementwise_affine": False, "eps": 1e-3}, [randn(3, 9)]),
    ("GroupNorm", (2, 6), {}, [randn(3, 6, 4)]),
    ("BatchNorm1d", (5,), {}, [randn(6, 5)]),
    ("BatchNorm2d", (5,), {"momentum": None}, [randn(3, 5, 4, 4)]),
    ("BatchNorm3d", (2,), {"affine": False, "track_running_stats": False}, [randn(3, 2, 2, 2, 3)]),
    ("Softmax", (1,), {}, [randn(3, 5, 4)]),
    ("CrossEntropyLoss", (), {"ignore_index": 3}, [randn(4, 7), ints(4)]),
    ("CrossEntropyLoss", (), {"reduction": "none"}, [randn(2, 7, 3), ints(2, 3)]),
    ("Embedding", (7, 4), {"padding_idx": 2}, [ints(3, 5)]),
]


def trained(layer: torch.nn.Module, operands) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The result, and the gradients of operands and parameters."""
    leaves = [x.clone().requires_grad_() if x.is_floating_point() else x for x in operands]
    y = layer(*leaves)
    wanted = [x for x in (*leaves, *layer.parameters()) if x.requires_grad]
    dy = torch.linspace(-1, 2, y.numel()).reshape(y.shape)
    return y, list(torch.autograd.grad(y, wanted, dy))


@pytest.mark.parametrize("name, args, kwargs, operands", LAYERS)
def test_a_layer_is_torchs(name, args, kwargs, operands):
    made = []
    for module in (nn, torch.nn):
        torch.manual_seed(7)
        made.append(getattr(module, name)(*args, **kwargs))
    ours, theirs = made
    assert repr(ours) == repr(theirs)
    for got, right in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(got, right)
    for _ in range(2):  # running statistics follow
        (y, found), (z, wanted) = trained(ours, operands), trained(theirs, operands)
        torch.testing.assert_close(y, z, rtol=1e-4, atol=1e-5)
        for got, right in zip(found, wanted, strict=True):
            torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-5)
    theirs.load_state_dict(ours.state_dict())
    ours.load_state_dict(theirs.state_dict())
    again = pickle.loads(pickle.dumps(copy.deepcopy(ours))).eval()
    torch.testing.assert_close(again(*operands), theirs.eval()(*operands), rtol=1e-4, atol=1e-5)


def test_an_activation_stands_behind_the_product():
    layer = nn.Linear(6, 5, activation="gelu")
    x = randn(4, 6)
    right = torch.nn.functional.gelu(torch.nn.functional.linear(x, layer.weight, layer.bias))
    torch.testing.assert_close(layer(x), right)
    assert "activation='gelu'" in repr(layer)


def test_swiglu():
    layer = nn.SwiGLU(6, 5)
    x = randn(2, 3, 6)
    right = torch.nn.functional.silu(layer.gate(x)) * layer.up(x)
    torch.testing.assert_close(layer(x), right)


@pytest.mark.parametrize(
    "make, match",
    [
        (lambda: nn.Linear(2, 3, activation="swish"), "activation: expected '' or 'gelu'"),
        (lambda: nn.Conv2d(2, 3, 3, stride=(1, 2)), "stride: expected one number for all dims"),
        (lambda: nn.Conv2d(2, 3, 3, padding_mode="reflect"), "padding_mode: expected 'zeros'"),
        (lambda: nn.Conv2d(2, 3, 2, padding="same"), "padding: expected as much on both sides"),
        (lambda: nn.Embedding(2, 3, sparse=True), "sparse: expected False"),
    ],
)
def test_what_a_layer_cannot_do_is_refused_when_it_is_made(make, match):
    with pytest.raises(ValueError, match=match):
        make()

"""Layers beside torch's of the same name: parameters, states, values and gradients."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from tritongen import api, nn, nn_ops


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
    ("RMSNorm", (9,), {}, [randn(2, 3, 9) * 1e-3]),
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


LAST = torch.channels_last
OTHERS = [
    ("Conv2d", (4, 6, 3), {}, [randn(4, 5, 5)]),
    ("Conv2d", (4, 6, 3), {"padding": 1}, [randn(2, 4, 5, 5).contiguous(memory_format=LAST)]),
    ("Conv1d", (4, 6, 3), {}, [randn(0, 4, 5)]),
    ("ConvTranspose1d", (4, 6, 3), {"stride": 2}, [randn(4, 5), [12]]),
    ("BatchNorm2d", (4,), {}, [randn(2, 4, 3, 3).contiguous(memory_format=LAST)]),
    ("Linear", (6, 5), {}, [randn(6)]),
    ("LayerNorm", (9,), {}, [randn(0, 9)]),
    ("LayerNorm", (9,), {}, [randn(9, 3).T]),
    ("RMSNorm", (9,), {"dtype": torch.bfloat16}, [randn(3, 9).bfloat16() * 1e-3]),
    ("CrossEntropyLoss", (), {}, [randn(7), torch.tensor(3)]),
    ("CrossEntropyLoss", (), {}, [randn(0, 7), ints(0)]),
    ("Embedding", (7, 4), {}, [ints(3).int()]),
]


def made(name, args, kwargs) -> list[torch.nn.Module]:
    """Ours and torch's, of one seed."""
    layers = []
    for module in (nn, torch.nn):
        torch.manual_seed(7)
        layers.append(getattr(module, name)(*args, **kwargs))
    return layers


def trained(layer: torch.nn.Module, operands) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The result, and the gradients of operands and parameters."""
    floats = [isinstance(x, torch.Tensor) and x.is_floating_point() for x in operands]
    pairs = zip(operands, floats, strict=True)
    leaves = [x.detach().requires_grad_() if is_float else x for x, is_float in pairs]
    y = layer(*leaves)
    floating = [x for x, is_float in zip(leaves, floats, strict=True) if is_float]
    wanted = [*floating, *layer.parameters()]
    dy = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).reshape(y.shape)
    return y, list(torch.autograd.grad(y, wanted, dy))


def assert_like(ours: torch.nn.Module, theirs: torch.nn.Module, operands) -> None:
    (y, found), (z, wanted) = trained(ours, operands), trained(theirs, operands)
    assert y.stride() == z.stride()
    for got, right in zip((y, *found), (z, *wanted), strict=True):
        tolerance = 2e-2 if y.dtype == torch.bfloat16 else 1e-4
        torch.testing.assert_close(got, right, rtol=tolerance, atol=1e-5, equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("name, args, kwargs, operands", LAYERS)
def test_a_layer_is_torchs(name, args, kwargs, operands):
    ours, theirs = made(name, args, kwargs)
    assert repr(ours) == repr(theirs)
    for got, right in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(got, right)
    for _ in range(2):  # running statistics follow
        assert_like(ours, theirs, operands)
    theirs.load_state_dict(ours.state_dict())
    ours.load_state_dict(theirs.state_dict())
    again = pickle.loads(pickle.dumps(copy.deepcopy(ours))).eval()
    torch.testing.assert_close(again(*operands), theirs.eval()(*operands), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name, args, kwargs, operands", LAYERS)
def test_the_specs_lines_say_what_torch_does(monkeypatch, name, args, kwargs, operands):
    """On CPU tensors an op with a `ref` runs that; these are its lines, in torch."""
    monkeypatch.setattr(nn_ops, "_ops", nn_ops._Compiled())
    monkeypatch.setattr(nn_ops, "compile_op", lambda text: api.compile_op(text).reference)
    ours, theirs = made(name, args, kwargs)
    y = ours(*operands)
    torch.testing.assert_close(y, theirs(*operands), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name, args, kwargs, operands", OTHERS)
def test_batches_layouts_and_types_are_torchs(name, args, kwargs, operands):
    assert_like(*made(name, args, kwargs), operands)


class Net(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.table = layers.Embedding(7, 4)
        self.conv = layers.Conv1d(4, 6, 3, bias=False)
        self.norm = layers.BatchNorm1d(6)
        self.out = layers.Linear(6, 7)
        self.loss = layers.CrossEntropyLoss()

    def forward(self, x):
        y = self.norm(self.conv(self.table(x).transpose(1, 2)))
        return self.loss(self.out(y.transpose(1, 2)).flatten(0, 1), x[:, 2:].flatten())


def test_torch_compile_takes_a_model_before_its_first_call(monkeypatch):
    monkeypatch.setattr(nn_ops, "_ops", nn_ops._Compiled())
    torch.manual_seed(3)
    net = Net(nn)
    compiled = torch.compile(copy.deepcopy(net), backend="aot_eager", fullgraph=True)
    losses = []
    for model in (compiled, net):
        for low in (False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=low):
                losses.append(model(ints(3, 6)))
                losses[-1].backward()
    assert losses[:2] == losses[2:]
    for got, right in zip(compiled.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(got.grad, right.grad)
    for got, right in zip(compiled.buffers(), net.buffers(), strict=True):
        torch.testing.assert_close(got, right)


def test_an_activation_stands_behind_the_product():
    layer = nn.Linear(6, 5, activation="gelu")
    x = randn(4, 6)
    right = torch.nn.functional.gelu(torch.nn.functional.linear(x, layer.weight, layer.bias))
    torch.testing.assert_close(layer(x), right)
    assert "activation='gelu'" in repr(layer)


@pytest.mark.parametrize("training", (True, False))
@pytest.mark.parametrize("residual", (True, False))
def test_an_activation_stands_behind_the_norm(training, residual):
    ours, theirs = nn.BatchNorm2d(4, activation="relu"), torch.nn.BatchNorm2d(4)
    given = [randn(3, 4, 5, 5).contiguous(memory_format=LAST) for _ in range(1 + residual)]
    by_torch, found = lambda x, *residual: torch.relu(sum(residual, theirs(x))), []
    for layer, call in ((ours, ours), (theirs, by_torch)):
        layer.train(training)
        leaves = [x.clone().requires_grad_() for x in given]
        y = call(*leaves)
        found.append((y, *torch.autograd.grad(y.square().sum(), (*leaves, *layer.parameters()))))
    assert found[0][0].is_contiguous(memory_format=LAST)
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    for got, right in zip(*found, strict=True):
        torch.testing.assert_close(got, right)
    assert "activation='relu'" in repr(ours)


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


@pytest.mark.parametrize(
    "call, match",
    [
        (
            lambda: nn.CrossEntropyLoss()(torch.ones(2, 5, 3, 4), torch.zeros(2, 4, 3).long()),
            r"target: expected \[2, 3, 4\], given \[2, 4, 3\]",
        ),
        (lambda: nn.Embedding(2, 3)(torch.tensor([1.7])), "index: expected integers, given"),
        (lambda: nn.Embedding(2, 3)(torch.tensor([True])), "index: expected integers, given"),
        (lambda: nn.BatchNorm1d(4, affine=False)(torch.ones(5, 1)), "expected 4 channels, given 1"),
    ],
)
def test_what_torch_refuses_is_no_result_of_something_else(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_the_statistics_of_f64_are_f64():
    ours, theirs = nn.BatchNorm1d(4).double(), torch.nn.BatchNorm1d(4).double()
    for layer in (ours, theirs):
        layer(randn(6, 4).double())
    torch.testing.assert_close(ours.running_var, theirs.running_var, rtol=1e-14, atol=0)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean, rtol=1e-14, atol=1e-17)


@pytest.mark.parametrize("shape", [(0, 4), (3, 4, 0)])
def test_a_batch_of_nothing_leaves_the_running_statistics(shape):
    ours, theirs = nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4)
    for layer in (ours, theirs):
        layer(torch.ones(shape))
    for name, value in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value), name

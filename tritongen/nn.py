"""torch's layers, computed by generated kernels, forward and backward.

    net = torch.nn.Sequential(tritongen.nn.Linear(512, 2048, activation="gelu"), tritongen.nn.Linear(2048, 512))

Each layer is a subclass of torch's layer of the same name, with another `forward`. Parameters, their initial values for a
seed, `state_dict`, `repr`, `to`, copies and pickles are torch's.

- A layer raises ValueError when you create it with an option that it does not have.
- Floating operands are f64, f32, f16 or bf16, with any strides.
- A call that does not fit raises ValueError. The message names the operand and what was expected.

`nn_ops.py` holds the ops of the layers. Their gradients are derived.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tritongen.nn_ops import call

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d",
    "ConvTranspose3d", "CrossEntropyLoss", "Embedding", "GroupNorm", "LayerNorm", "Linear", "RMSNorm", "Softmax", "SwiGLU",
]  # fmt: skip

ACTIVATIONS = ("gelu", "gelu_tanh", "leaky_relu", "mish", "relu", "sigmoid", "silu", "tanh")


def _refuse(layer: str, **given: tuple[Any, tuple[Any, ...]]) -> None:
    """Raises ValueError if a layer got an option that it does not have: `name=(given, allowed values)`."""
    for name, (value, allowed) in given.items():
        if value not in allowed:
            expected = " or ".join(map(repr, allowed))
            raise ValueError(f"{layer}: {name}: expected {expected}, given {value!r}")


class _Activated:
    """The option `activation`. A mixin in front of torch's class."""

    def __init__(self: Any, *args: Any, activation: str = "", **kwargs: Any):
        _refuse(type(self).__name__, activation=(activation, ("", *ACTIVATIONS)))
        super().__init__(*args, **kwargs)
        self.activation = activation

    def extra_repr(self: Any) -> str:
        own = f", activation={self.activation!r}" if self.activation else ""
        return super().extra_repr() + own  # type: ignore[misc]


# ---- products -----------------------------------------------------------------------------------
class Linear(_Activated, nn.Linear):
    """torch.nn.Linear with an optional activation in the same kernel: act(x @ weight.T + bias).

    Args:
        in_features, out_features, bias, device, dtype: as for torch.nn.Linear.
        activation: "" for none, or one of "gelu", "gelu_tanh", "leaky_relu" (slope 0.01), "mish", "relu", "sigmoid", "silu",
            "tanh".

    Shape:
        x: [..., in_features]. Result: [..., out_features].

    x, weight and bias share their dtype. torch.autocast casts all three.
    """

    def forward(self, x: Tensor) -> Tensor:
        return call("linear", x, self.weight, b=self.bias, activation=self.activation)


class SwiGLU(nn.Module):
    """The first half of a gated MLP, without biases: silu(x @ gate.T) * (x @ up.T).

    SwiGLU is defined in Shazeer, "GLU Variants Improve Transformer", 2020.

    Shape:
        x: [..., in_features]. Result: [..., hidden_features].

    x and both weights share their dtype. torch.autocast casts all three.
    """

    def __init__(
        self, in_features: int, hidden_features: int, device: Any = None, dtype: Any = None
    ):
        super().__init__()
        self.gate = nn.Linear(in_features, hidden_features, False, device, dtype)
        self.up = nn.Linear(in_features, hidden_features, False, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return call("swiglu", x, self.gate.weight, self.up.weight)


# ---- convolutions -------------------------------------------------------------------------------
def _one(layer: str, name: str, values: Any) -> int:
    """The one number that holds for all dims. Raises ValueError if they differ."""
    if isinstance(values, str) or values.count(values[0]) != len(values):
        raise ValueError(f"{layer}: {name}: expected one number for all dims, given {values!r}")
    return values[0]


class _Convolution:
    """The `forward` of convolutions. A mixin in front of torch's class."""

    def __init__(self: Any, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        _refuse(type(self).__name__, padding_mode=(self.padding_mode, ("zeros",)))
        self._constants()

    def forward(self: Any, input: Tensor) -> Tensor:
        return self._convolved(input)

    def _convolved(self: Any, x: Tensor, **more: Any) -> Tensor:
        rank = len(self.kernel_size)
        op = f"conv{'_transpose' if self.transposed else ''}{rank}d"
        batch = x[None] if x.dim() == rank + 1 else x
        y = call(op, batch, self.weight, b=self.bias, **self._constants(), **more)
        return y if batch is x else y[0]

    def _constants(self: Any) -> dict[str, Any]:
        layer = type(self).__name__
        stride, dil = _one(layer, "stride", self.stride), _one(layer, "dilation", self.dilation)
        pad = self.padding
        if pad == "same":  # torch refuses a stride beside it
            reach = {dil * (k - 1) for k in self.kernel_size}
            if len(reach) > 1 or min(reach) % 2:
                raise ValueError(f"{layer}: padding: expected as much on both sides, given 'same'")
            pad = (min(reach) // 2,)
        pad = 0 if pad == "valid" else _one(layer, "padding", pad)
        return {"stride": stride, "pad": pad, "dil": dil, "groups": self.groups}


class _Transposed(_Convolution):
    """The `forward` of transposed convolutions."""

    def forward(self: Any, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        rank, size = len(self.kernel_size), (self.stride, self.padding, self.kernel_size)
        padded = self._output_padding(input, output_size, *size, rank, self.dilation)
        return self._convolved(input, out_pad=_one(type(self).__name__, "output_padding", padded))


class Conv1d(_Convolution, nn.Conv1d):
    """torch.nn.Conv1d. x: [N, C, L] or [C, L].

    x, weight and bias share their dtype. torch.autocast casts all of them. Padding is zeros.
    """


class Conv2d(_Convolution, nn.Conv2d):
    """torch.nn.Conv2d. x: [N, C, H, W] or [C, H, W].

    Stride, padding and dilation are one number for all dims. The rest is as for Conv1d.
    """


class Conv3d(_Convolution, nn.Conv3d):
    """torch.nn.Conv3d. x: [N, C, D, H, W] or [C, D, H, W]. The rest is as for Conv2d."""


class ConvTranspose1d(_Transposed, nn.ConvTranspose1d):
    """torch.nn.ConvTranspose1d. x: [N, C, L] or [C, L]. The rest is as for Conv1d."""


class ConvTranspose2d(_Transposed, nn.ConvTranspose2d):
    """torch.nn.ConvTranspose2d. x: [N, C, H, W] or [C, H, W].

    Stride, padding, dilation and `output_padding` are one number for all dims. The rest is as for Conv1d.
    """


class ConvTranspose3d(_Transposed, nn.ConvTranspose3d):
    """torch.nn.ConvTranspose3d. x: [N, C, D, H, W] or [C, D, H, W]. The rest is as for ConvTranspose2d."""


# ---- norms --------------------------------------------------------------------------------------
class LayerNorm(nn.LayerNorm):
    """torch.nn.LayerNorm. x: [..., *normalized_shape]. The weights may have another dtype than x."""

    def forward(self, x: Tensor) -> Tensor:
        w, b = self.weight, self.bias
        return _over_last("layer_norm", x, self.normalized_shape, w=w, b=b, eps=self.eps)


class RMSNorm(nn.RMSNorm):
    """torch.nn.RMSNorm. x: [..., *normalized_shape]. The weight may have another dtype than x."""

    def forward(self, x: Tensor) -> Tensor:
        computed = torch.promote_types(x.dtype, torch.float32)
        eps = torch.finfo(computed).eps if self.eps is None else self.eps
        return _over_last("rms_norm", x, self.normalized_shape, gain=self.weight, eps=eps)


def _over_last(op: str, x: Tensor, shape: tuple[int, ...], eps: float, **weights: Any) -> Tensor:
    """A norm over the last dims of x, taken as one."""
    if tuple(x.shape[x.dim() - len(shape) :]) != tuple(shape):
        raise ValueError(f"{op}: x: expected the last dims {list(shape)}, given {list(x.shape)}")
    rows = x.flatten(-len(shape)) if len(shape) > 1 else x
    flat: dict[str, Any] = {name: None if w is None else w.flatten() for name, w in weights.items()}
    return call(op, rows, **flat, eps=eps).view(x.shape)


class GroupNorm(nn.GroupNorm):
    """torch.nn.GroupNorm. x: [N, num_channels, ...]. The weights may have another dtype than x."""

    def forward(self, x: Tensor) -> Tensor:
        w, b, groups = self.weight, self.bias, self.num_groups
        return call("group_norm", x, gain=w, bias=b, groups=groups, eps=self.eps)


class _BatchNorm(_Activated):
    """The `forward` of batch norms. A mixin in front of torch's class."""

    def forward(self: Any, x: Tensor) -> Tensor:
        return self._normed("", x)

    def _normed(self: Any, form: str, x: Tensor, *beside: Tensor) -> Tensor:
        """`form`: the end of the ops' names. They take `beside` behind x."""
        self._check_input_dim(x)
        running = self.running_mean  # asked once: torch looks a buffer up in Python
        if running is not None and x.shape[1] != self.num_features:
            expected = f"expected {self.num_features} channels, given {x.shape[1]}"
            raise ValueError(f"{type(self).__name__}: x: {expected}")
        rest = {"gain": self.weight, "bias": self.bias, "eps": self.eps}
        rest["activation"] = self.activation
        if not self.training and running is not None:
            seen = running, self.running_var
            return call(f"batch_norm_eval{form}", x, *beside, *seen, **rest)
        count = x.numel() // max(1, x.shape[1])
        if count == 1:
            raise ValueError(f"{type(self).__name__}: expected more than one value a channel")
        rest |= {"V": torch.float64} if x.dtype == torch.float64 else {}
        unbias = count / max(1, count - 1)
        mean, unbiased, y = call(f"batch_norm{form}", x, *beside, unbias=unbias, **rest)
        if self.training and running is not None:
            self._follow([running, self.running_var], [mean.detach(), unbiased.detach()], count)
        return y

    def _follow(self: Any, running: list[Tensor], seen: list[Tensor], count: int) -> None:
        """Updates the running statistics. The running variance is the unbiased one, as in torch."""
        self.num_batches_tracked.add_(1)
        if count == 0:  # nothing has no mean
            return
        dtype = running[0].dtype
        seen = [s if s.dtype == dtype else s.to(dtype) for s in seen]
        if self.momentum is None:
            share = 1 / self.num_batches_tracked.to(dtype)
            for old, new in zip(running, seen, strict=True):
                old.lerp_(new, share)
        else:
            torch._foreach_lerp_(running, seen, self.momentum)


class BatchNorm1d(_BatchNorm, nn.BatchNorm1d):
    """torch.nn.BatchNorm1d, with an optional activation in the same kernel.

    Args:
        activation: as for Linear; a keyword. The other arguments are those of torch.nn.BatchNorm1d.

    Shape:
        x: [N, C] or [N, C, L].

    The statistics of a batch are f32, or f64 of an f64 x.
    """


class BatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    """torch.nn.BatchNorm2d, with an optional activation, and a tensor added in front of it, in the same kernel.

        norm(x, residual)   # activation(torch.nn.BatchNorm2d(...)(x) + residual)

    Shape:
        x, and residual if given: [N, C, H, W], of one dtype.

    The rest is as for BatchNorm1d.
    """

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        if residual is None:
            return self._normed("", x)
        return self._normed("_residual", x, residual)


class BatchNorm3d(_BatchNorm, nn.BatchNorm3d):
    """torch.nn.BatchNorm3d. x: [N, C, D, H, W]. The rest is as for BatchNorm1d."""


# ---- the rest -----------------------------------------------------------------------------------
class Softmax(nn.Softmax):
    """torch.nn.Softmax. You must give `dim`. x may have any shape with that dim."""

    def __init__(self, dim: int):
        super().__init__(dim)

    def forward(self, x: Tensor) -> Tensor:
        assert self.dim is not None
        x.size(self.dim)  # torch's error where there is no such dim
        dim = self.dim % x.dim()
        if dim == x.dim() - 1:
            return call("softmax", x)
        rows = x.reshape(x.shape[:dim].numel(), *x.shape[dim:])
        return call("channel_softmax", rows).view(x.shape)


class CrossEntropyLoss(nn.CrossEntropyLoss):
    """torch.nn.CrossEntropyLoss for class indices, without weights and label smoothing.

    Args:
        ignore_index: targets of this value count for nothing.
        reduction: "mean", "sum" or "none".

    Shape:
        x: [C], [N, C] or [N, C, ...]. target: i64, of the same shape without C.

    The loss is f32.
    """

    def __init__(self, ignore_index: int = -100, reduction: str = "mean"):
        _refuse("CrossEntropyLoss", reduction=(reduction, ("mean", "sum", "none")))
        super().__init__(ignore_index=ignore_index, reduction=reduction)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        wanted = [*x.shape[:1], *x.shape[2:]]
        if x.dim() > 1 and target.shape != tuple(wanted):
            given = list(target.shape)
            raise ValueError(f"CrossEntropyLoss: target: expected {wanted}, given {given}")
        rows = x.movedim(1, -1).reshape(-1, x.shape[1]) if x.dim() > 1 else x[None]
        loss = call("cross_entropy_loss", rows, target.reshape(-1), ignore=self.ignore_index)
        if self.reduction == "none":
            return loss.view(target.shape)
        if self.reduction == "sum":
            return loss.sum()
        return loss.sum() / (target != self.ignore_index).sum()


class Embedding(nn.Embedding):
    """torch.nn.Embedding. Indices are integers of any shape. An index outside the table gives zeros.

    `max_norm`, `scale_grad_by_freq` and `sparse` are refused.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        _refuse(
            "Embedding",
            max_norm=(self.max_norm, (None,)),
            scale_grad_by_freq=(self.scale_grad_by_freq, (False,)),
            sparse=(self.sparse, (False,)),
        )

    def forward(self, index: Tensor) -> Tensor:
        if index.is_floating_point() or index.is_complex() or index.dtype is torch.bool:
            raise ValueError(f"Embedding: index: expected integers, given {index.dtype}")
        padding = -1 if self.padding_idx is None else self.padding_idx
        rows = call("embedding", self.weight, index.reshape(-1).long(), padding=padding)
        return rows.view(*index.shape, self.embedding_dim)

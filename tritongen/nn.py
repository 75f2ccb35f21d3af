"""torch's layers, computed by generated kernels: forward and backward.

    net = torch.nn.Sequential(tritongen.nn.Linear(512, 2048, activation="gelu"), tritongen.nn.Linear(2048, 512))

Each layer is torch's own class of that name with another `forward`: parameters, their initial values for a
seed, `state_dict`, `repr`, moves, copies and pickles are torch's. What a layer of torch can be told and one
of these cannot is refused when it is made. The specs are those of `grammar/prelude.op`, called or, where a
bias is left out, written here; a spec is compiled when it is first called.

Not here: the specs' compiler (`api.py`), gradients (derived, like those of any op).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tritongen.api import compile_op

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d",
    "ConvTranspose3d", "CrossEntropyLoss", "Embedding", "GroupNorm", "LayerNorm", "Linear", "RMSNorm", "Softmax", "SwiGLU",
]  # fmt: skip

ACTIVATIONS = ("gelu", "gelu_tanh", "leaky_relu", "mish", "relu", "sigmoid", "silu", "tanh")


@functools.cache
def _op(text: str) -> Callable[..., Any]:
    return compile_op(text)


def _refuse(layer: str, **given: Any) -> None:
    """Each of these was given something that the layer cannot do; (given, what it can)."""
    for name, (value, allowed) in given.items():
        if value not in allowed:
            expected = " or ".join(map(repr, allowed))
            raise ValueError(f"{layer}: {name}: expected {expected}, given {value!r}")


# ---- products -----------------------------------------------------------------------------------
class Linear(nn.Linear):
    """torch.nn.Linear, with an activation behind it: one of `ACTIVATIONS`, "" for none."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None,
                 dtype: Any = None, activation: str = ""):  # fmt: skip
        _refuse("Linear", activation=(activation, ("", *ACTIVATIONS)))
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        given = (x, self.weight) if self.bias is None else (x, self.weight, self.bias)
        return _op(_linear(self.bias is not None, self.activation))(*given)

    def extra_repr(self) -> str:
        own = f", activation={self.activation!r}" if self.activation else ""
        return super().extra_repr() + own


def _linear(bias: bool, activation: str) -> str:
    operand, term = (", b: T[N]", " + b[n]") if bias else ("", "")
    return (
        f"op linear<T: float>(x: T[..., K], w: T[N, K]{operand}) -> y: T[..., N] {{\n"
        f"  y[..., n] = {activation}(sum[k](x[..., k] * w[n, k]){term})\n"
        "  autocast low\n}"
    )


class SwiGLU(nn.Module):
    """silu(x @ gate.T) * (x @ up.T), of [..., in_features]: the first half of a gated MLP, without biases."""

    def __init__(
        self, in_features: int, hidden_features: int, device: Any = None, dtype: Any = None
    ):
        super().__init__()
        self.gate = nn.Linear(in_features, hidden_features, False, device, dtype)
        self.up = nn.Linear(in_features, hidden_features, False, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return _op(SWIGLU)(x, self.gate.weight, self.up.weight)


SWIGLU = """op swiglu<T: float>(x: T[..., K], gate: T[N, K], up: T[N, K]) -> y: T[..., N] {
  g[..., n < N] = sum[k](x[..., k] * gate[n, k])
  u[..., n < N] = sum[k](x[..., k] * up[n, k])
  y[..., n] = silu(g[..., n]) * u[..., n]
  autocast low
}"""


# ---- convolutions -------------------------------------------------------------------------------
def _axes(rank: int) -> list[tuple[str, str, str]]:
    """(side, tap, place) of each dim, as sizes."""
    return list(zip("DHW"[-rank:], "KRS"[-rank:], "OPQ"[-rank:], strict=True))


def _convolution(rank: int, bias: bool) -> str:
    axes = _axes(rank)
    sides, taps, places = (", ".join(names) for names in zip(*axes, strict=True))
    at = ", ".join(f"{p.lower()} * stride + {t.lower()} * dil - pad" for _, t, p in axes)
    sizes = "".join(
        f", {p} = ({s} + 2 * pad - dil * ({t} - 1) - 1) // stride + 1" for s, t, p in axes
    )
    operand, term = (", b: T[F]", "b[f] + ") if bias else ("", "")
    return f"""op conv{rank}d<T: float>(x: T[N, C, {sides}], w: T[F, Cg, {taps}]{operand}, const stride: int = 1,
    const pad: int = 0, const dil: int = 1, const groups: int = 1) -> y: T[N, F, {places}]
    with C == groups * Cg, F % groups == 0{sizes} {{
  y[n, f, {places.lower()}] = {term}sum[c, {taps.lower()}](
      (x[n, f // (F // groups) * Cg + c, {at}] else 0) * w[f, c, {taps.lower()}])
  autocast low
}}"""


def _transposed(rank: int, bias: bool) -> str:
    axes = _axes(rank)
    sides, taps, places = (", ".join(names) for names in zip(*axes, strict=True))
    at = ", ".join(f"({p.lower()} + pad - {t.lower()} * dil) / stride" for _, t, p in axes)
    sizes = "".join(
        f", {p} = ({s} - 1) * stride - 2 * pad + dil * ({t} - 1) + out_pad + 1" for s, t, p in axes
    )
    operand, term = (", b: T[F]", "b[f] + ") if bias else ("", "")
    size = "" if bias else ", F = groups * Fg"
    return f"""op conv_transpose{rank}d<T: float>(x: T[N, C, {sides}], w: T[C, Fg, {taps}]{operand},
    const stride: int = 1, const pad: int = 0, const out_pad: int = 0, const groups: int = 1, const dil: int = 1)
    -> y: T[N, F, {places}]
    with {"F == groups * Fg, " if bias else ""}Cg = C // groups, C % groups == 0{size}{sizes} {{
  y[n, f, {places.lower()}] = {term}sum[c < Cg, {taps.lower()}](
      (x[n, f // Fg * Cg + c, {at}] else 0) * w[f // Fg * Cg + c, f % Fg, {taps.lower()}])
  autocast low
}}"""


def _one(layer: str, name: str, values: Any) -> int:
    """The number that stands for all dims."""
    if isinstance(values, str) or len(set(values)) != 1:
        raise ValueError(f"{layer}: {name}: expected one number for all dims, given {values!r}")
    return values[0]


class _Convolution:
    """The forward of convolutions, in front of torch's class."""

    rank: int

    def __init__(self: Any, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        layer = type(self).__name__
        _refuse(layer, padding_mode=(self.padding_mode, ("zeros",)))
        self._constants()

    def forward(self: Any, input: Tensor) -> Tensor:
        given = (input, self.weight) if self.bias is None else (input, self.weight, self.bias)
        text = _convolution(self.rank, self.bias is not None)
        return _op(text)(*given, **self._constants())

    def _constants(self: Any) -> dict[str, int]:
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
    def forward(self: Any, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        if output_size is not None:
            raise ValueError(f"{type(self).__name__}: output_size: give `output_padding` instead")
        given = (input, self.weight) if self.bias is None else (input, self.weight, self.bias)
        padded = _one(type(self).__name__, "output_padding", self.output_padding)
        text = _transposed(self.rank, self.bias is not None)
        return _op(text)(*given, **self._constants(), out_pad=padded)


class Conv1d(_Convolution, nn.Conv1d):
    """torch.nn.Conv1d of [N, C, L]; stride, padding and dilation are one number for all dims."""

    rank = 1


class Conv2d(_Convolution, nn.Conv2d):
    """torch.nn.Conv2d of [N, C, H, W]; stride, padding and dilation are one number for all dims."""

    rank = 2


class Conv3d(_Convolution, nn.Conv3d):
    """torch.nn.Conv3d of [N, C, D, H, W]; stride, padding and dilation are one number for all dims."""

    rank = 3


class ConvTranspose1d(_Transposed, nn.ConvTranspose1d):
    """torch.nn.ConvTranspose1d of [N, C, L]."""

    rank = 1


class ConvTranspose2d(_Transposed, nn.ConvTranspose2d):
    """torch.nn.ConvTranspose2d of [N, C, H, W]."""

    rank = 2


class ConvTranspose3d(_Transposed, nn.ConvTranspose3d):
    """torch.nn.ConvTranspose3d of [N, C, D, H, W]."""

    rank = 3


# ---- norms --------------------------------------------------------------------------------------
LAYER_NORM = """op layer_norm<T: float{types}>(x: T[..., D]{operands}, eps: f32 = 1e-5) -> y: T[..., D] {{
  mu[...] = mean[d](x[..., d])
  var[...] = mean[d]((x[..., d] - mu[...]) ** 2)
  y[..., d] = (x[..., d] - mu[...]) * rsqrt(var[...] + eps){scaled}
}}"""

RMS_NORM = """op rms_norm<T: float{types}>(x: T[..., D]{operands}, eps: f32 = 1e-6) -> y: T[..., D] {{
  y[..., d] = x[..., d] * rsqrt(mean[k](x[..., k] ** 2) + eps){scaled}
}}"""

GROUP_NORM = """op group_norm<T: float{types}>(x: T[N, C, ...]{operands}, const groups: int = 1, eps: f32 = 1e-5)
    -> y: T[N, C, ...] with Cg = C // groups, C % groups == 0 {{
  mu[n, g < groups] = mean[c < Cg, ...](x[n, g * Cg + c, ...])
  var[n, g < groups] = mean[c < Cg, ...]((x[n, g * Cg + c, ...] - mu[n, g]) ** 2)
  y[n, c, ...] = (x[n, c, ...] - mu[n, c // Cg]) * rsqrt(var[n, c // Cg] + eps){scaled}
}}"""

BATCH_NORM = """op batch_norm<T: float{types}>(x: T[N, C, ...]{operands}, eps: f32 = 1e-5)
    -> (y: T[N, C, ...], mu: f32[C], var: f32[C]) {{
  m[c < C] = mean[n, ...](x[n, c, ...])
  v[c < C] = mean[n, ...]((x[n, c, ...] - m[c]) ** 2)
  y[n, c, ...] = (x[n, c, ...] - m[c]) * rsqrt(v[c] + eps){scaled}
  mu[c] = detach(m[c])
  var[c] = detach(v[c])
}}"""

BATCH_NORM_EVAL = """op batch_norm_eval<T: float, V: float{types}>(x: T[N, C, ...], mu: V[C], var: V[C]{operands},
    eps: f32 = 1e-5) -> y: T[N, C, ...] {{
  y[n, c, ...] = (x[n, c, ...] - mu[c]) * rsqrt(var[c] + eps){scaled}
}}"""


def _affine(text: str, dim: str, weight: Any, bias: Any) -> tuple[str, tuple[Tensor, ...]]:
    """A norm's spec with what it scales and shifts by, where there is such, and those."""
    given = [(t, name) for t, name in ((weight, "w"), (bias, "b")) if t is not None]
    index = dim.lower()
    scaled = (f" * w[{index}]" if weight is not None else "") + (
        f" + b[{index}]" if bias is not None else ""
    )
    operands = "".join(f", {name}: U[{dim}]" for _, name in given)
    types = ", U: float" if given else ""
    return text.format(types=types, operands=operands, scaled=scaled), tuple(t for t, _ in given)


class LayerNorm(nn.LayerNorm):
    """torch.nn.LayerNorm."""

    def forward(self, x: Tensor) -> Tensor:
        return _over_last(LAYER_NORM, x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.RMSNorm):
    """torch.nn.RMSNorm."""

    def forward(self, x: Tensor) -> Tensor:
        eps = torch.finfo(x.dtype).eps if self.eps is None else self.eps
        return _over_last(RMS_NORM, x, self.normalized_shape, self.weight, None, eps)


def _over_last(
    text: str, x: Tensor, shape: tuple[int, ...], weight: Any, bias: Any, eps: float
) -> Tensor:
    if tuple(x.shape[x.dim() - len(shape) :]) != tuple(shape):
        raise ValueError(f"expected the last dims {list(shape)}, given {list(x.shape)}")
    rows = x.flatten(-len(shape)) if len(shape) > 1 else x
    flat = (None if t is None else t.flatten() for t in (weight, bias))
    text, given = _affine(text, "D", *flat)
    return _op(text)(rows, *given, eps=eps).view(x.shape)


class GroupNorm(nn.GroupNorm):
    """torch.nn.GroupNorm."""

    def forward(self, x: Tensor) -> Tensor:
        text, given = _affine(GROUP_NORM, "C", self.weight, self.bias)
        return _op(text)(x, *given, groups=self.num_groups, eps=self.eps)


class _BatchNorm:
    """The forward of batch norms, in front of torch's class."""

    def forward(self: Any, x: Tensor) -> Tensor:
        self._check_input_dim(x)
        if not self.training and self.running_mean is not None:
            text, given = _affine(BATCH_NORM_EVAL, "C", self.weight, self.bias)
            return _op(text)(x, self.running_mean, self.running_var, *given, eps=self.eps)
        text, given = _affine(BATCH_NORM, "C", self.weight, self.bias)
        y, mean, variance = _op(text)(x, *given, eps=self.eps)
        if self.training and self.running_mean is not None:
            self._follow(mean, variance, x.numel() // x.shape[1])
        return y

    @torch.no_grad()
    def _follow(self: Any, mean: Tensor, variance: Tensor, count: int) -> None:
        """The running statistics, of which the variance is the unbiased one."""
        self.num_batches_tracked.add_(1)
        share = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        unbiased = variance * (count / max(1, count - 1))
        for running, seen in ((self.running_mean, mean), (self.running_var, unbiased)):
            running.mul_(1 - share).add_(seen * share)


class BatchNorm1d(_BatchNorm, nn.BatchNorm1d):
    """torch.nn.BatchNorm1d."""


class BatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    """torch.nn.BatchNorm2d."""


class BatchNorm3d(_BatchNorm, nn.BatchNorm3d):
    """torch.nn.BatchNorm3d."""


# ---- the rest -----------------------------------------------------------------------------------
SOFTMAX = """op softmax<T: float>(x: T[..., D]) -> y: T[..., D] {
  m[...] = max[d](x[..., d])
  e[..., d] = exp(x[..., d] - m[...])
  y[..., d] = e[..., d] / sum[k](e[..., k])
}"""

CROSS_ENTROPY = """op cross_entropy<T: float>(x: T[N, V], target: i64[N], const ignore: int = -100) -> loss: f32[N] {
  m[n] = max[v](x[n, v])
  total[n] = sum[v](exp(x[n, v] - m[n]))
  hit[n] = x[n, target[n]] else 0
  loss[n] = where(target[n] == ignore, 0, m[n] + log(total[n]) - hit[n])
}"""

EMBEDDING = """op embedding<T: float>(table: T[V, D], idx: i64[N]) -> y: T[N, D] {
  y[n, d] = table[idx[n], d] else 0
}"""

PADDED_EMBEDDING = """op embedding<T: float>(table: T[V, D], idx: i64[N], const padding: int) -> y: T[N, D] {
  row[n < N, d < D] = table[idx[n], d] else 0
  y[n, d] = where(idx[n] == padding, detach(row[n, d]), row[n, d])
}"""


class Softmax(nn.Softmax):
    """torch.nn.Softmax; `dim` is to be given."""

    def __init__(self, dim: int):
        super().__init__(dim)

    def forward(self, x: Tensor) -> Tensor:
        assert self.dim is not None
        return _op(SOFTMAX)(x.movedim(self.dim, -1)).movedim(-1, self.dim)


class CrossEntropyLoss(nn.CrossEntropyLoss):
    """torch.nn.CrossEntropyLoss of class indices, without weights; the loss is computed and added up in f32."""

    def __init__(self, ignore_index: int = -100, reduction: str = "mean"):
        _refuse("CrossEntropyLoss", reduction=(reduction, ("mean", "sum", "none")))
        super().__init__(ignore_index=ignore_index, reduction=reduction)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        rows = x.movedim(1, -1).reshape(-1, x.shape[1]) if x.dim() > 1 else x[None]
        loss = _op(CROSS_ENTROPY)(rows, target.reshape(-1), ignore=self.ignore_index)
        if self.reduction == "none":
            return loss.view(target.shape)
        if self.reduction == "sum":
            return loss.sum()
        return loss.sum() / (target != self.ignore_index).sum()


class Embedding(nn.Embedding):
    """torch.nn.Embedding; an index outside the table gives zeros."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        _refuse(
            "Embedding",
            max_norm=(self.max_norm, (None,)),
            scale_grad_by_freq=(self.scale_grad_by_freq, (False,)),
            sparse=(self.sparse, (False,)),
        )

    def forward(self, index: Tensor) -> Tensor:
        flat = index.reshape(-1)
        if self.padding_idx is None:
            rows = _op(EMBEDDING)(self.weight, flat)
        else:
            rows = _op(PADDED_EMBEDDING)(self.weight, flat, padding=self.padding_idx)
        return rows.view(*index.shape, self.embedding_dim)

"""83 ops that people write kernels for today, and that are not in `specs` or `benchmarks/users`: a spec, plain torch, sizes for a GPU and small ones for a CPU.

OPS["residual_rms_norm"].spec, .torch, .large, .small, .dtype, .fill, .rivals
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

Tensor = torch.Tensor


@dataclass
class Make:
    """What a fill of an operand may ask for."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str
    sizes: dict[str, int]
    gen: torch.Generator

    def randn(self, scale: float = 1.0) -> Tensor:
        x = torch.empty(self.shape, device=self.device, dtype=torch.float32).normal_(
            generator=self.gen
        )
        return (x * scale).to(self.dtype)

    def rand(self, lo: float = 0.0, hi: float = 1.0) -> Tensor:
        x = torch.empty(self.shape, device=self.device, dtype=torch.float32).uniform_(
            lo, hi, generator=self.gen
        )
        return x.to(self.dtype)

    def randint(self, lo: int, hi: int) -> Tensor:
        x = torch.randint(lo, max(hi, lo + 1), self.shape, device=self.device, generator=self.gen)
        return x.to(self.dtype)

    def offsets(self, total: int) -> Tensor:
        """Sorted numbers from 0 to total."""
        cut = torch.randint(
            0, total + 1, (self.shape[0] - 2,), device=self.device, generator=self.gen
        )
        ends = torch.tensor([0, total], device=self.device)
        return torch.cat([cut, ends]).sort().values.to(self.dtype)


Fill = Callable[[Make], Tensor]


@dataclass
class Case:
    name: str
    spec: str
    torch: Callable[..., Any]
    large: dict[str, Any]
    small: dict[str, Any]
    dtype: str = "bf16"  # of T
    fill: dict[str, Fill] = field(default_factory=dict)
    rivals: dict[str, Callable[..., Any]] = field(
        default_factory=dict
    )  # other ways; names that begin with "flex" are compiled
    grad: bool = True
    wide: bool = True  # compared with f64; else with f32
    tol: float = 1e-5  # of f32 on the CPU, as a distance
    detached: tuple[str, ...] = ()  # operands that want no gradient
    where: str = ""  # its area


OPS: dict[str, Case] = {}


def case(name: str, spec: str, large: dict[str, Any], small: dict[str, Any], **more: Any):
    def take(function: Callable[..., Any]) -> Callable[..., Any]:
        OPS[name] = Case(name, spec.strip() + "\n", function, large, small, **more)
        return function

    return take


def up(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def ints(hi: str | int, lo: int = 0) -> Fill:
    return lambda m: m.randint(lo, m.sizes[hi] if isinstance(hi, str) else hi)


def flags(p: float = 0.8) -> Fill:
    return lambda m: (torch.rand(m.shape, device=m.device, generator=m.gen) < p).to(m.dtype)


def scaled(s: float) -> Fill:
    return lambda m: m.randn(s)


def between(lo: float, hi: float) -> Fill:
    return lambda m: m.rand(lo, hi)


@torch._dynamo.assume_constant_result
def signs(n: int, device: str, dtype: torch.dtype) -> Tensor:
    """The matrix of Sylvester, which a model has as a buffer."""
    key = (n, device, dtype)
    if key not in SIGNS:
        h = torch.ones(1, 1, device=device, dtype=dtype)
        while h.shape[0] < n:
            h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)], 0)
        SIGNS[key] = h
    return SIGNS[key]


SIGNS: dict[Any, Tensor] = {}


# ---- LLM: norms, gates, quantisation -------------------------------------------------------------
@case(
    "residual_rms_norm",
    """
op residual_rms_norm<T: float>(x: T[M, D], r: T[M, D], w: T[D], eps: f32 = 1e-6) -> (h: T[M, D], y: T[M, D]) {
  h[m, d] = x[m, d] + r[m, d]
  y[m, d] = h[m, d] * rsqrt(mean[k](h[m, k] ** 2) + eps) * w[d]
}""",
    dict(M=8192, D=4096),
    dict(M=5, D=24),
)
def _(x, r, w, eps=1e-6):
    h = x + r
    return h, F.rms_norm(h, (h.shape[-1],), w, eps)


@case(
    "qk_norm_rope",
    """
op qk_norm_rope<T: float>(qkv: T[B, S, 3, H, E], gq: T[E], gk: T[E], c: f32[S, E], sn: f32[S, E], eps: f32 = 1e-6) -> (q: T[B, H, S, E], k: T[B, H, S, E], v: T[B, H, S, E]) with E % 2 == 0 {
  a[b, s, h, e] = qkv[b, s, 0, h, e] * rsqrt(mean[d](qkv[b, s, 0, h, d] ** 2) + eps) * gq[e]
  z[b, s, h, e] = qkv[b, s, 1, h, e] * rsqrt(mean[d](qkv[b, s, 1, h, d] ** 2) + eps) * gk[e]
  q[b, h, s, e] = a[b, s, h, e] * c[s, e] + where(e < E // 2, -a[b, s, h, (e + E // 2) % E], a[b, s, h, (e + E // 2) % E]) * sn[s, e]
  k[b, h, s, e] = z[b, s, h, e] * c[s, e] + where(e < E // 2, -z[b, s, h, (e + E // 2) % E], z[b, s, h, (e + E // 2) % E]) * sn[s, e]
  v[b, h, s, e] = qkv[b, s, 2, h, e]
}""",
    dict(B=2, S=4096, H=16, E=128),
    dict(B=1, S=5, H=2, E=8),
    detached=("c", "sn"),
)
def _(qkv, gq, gk, c, sn, eps=1e-6):
    q, k, v = qkv.unbind(2)

    def rope(x):
        a, b = x.chunk(2, -1)
        return (x * c[None, :, None] + torch.cat([-b, a], -1) * sn[None, :, None]).to(qkv.dtype)

    q, k = (rope(F.rms_norm(x, (x.shape[-1],), g, eps)) for x, g in ((q, gq), (k, gk)))
    return (
        q.transpose(1, 2).contiguous(),
        k.transpose(1, 2).contiguous(),
        v.transpose(1, 2).contiguous(),
    )


@case(
    "swiglu_packed",
    """
op swiglu_packed<T: float>(x: T[M, P]) -> y: T[M, D] with D = P // 2, P == 2 * D {
  y[m, d] = silu(x[m, d]) * x[m, d + D]
}""",
    dict(M=8192, P=11264),
    dict(M=5, P=24),
)
def _(x):
    a, b = x.chunk(2, -1)
    return F.silu(a) * b


@case(
    "clamped_swiglu",
    """
op clamped_swiglu<T: float>(x: T[M, P], b: T[P], limit: f32 = 7.0) -> y: T[M, D] with D = P // 2, P == 2 * D {
  g[m, d < D] = min(x[m, 2 * d] + b[2 * d], limit)
  u[m, d < D] = clamp(x[m, 2 * d + 1] + b[2 * d + 1], -limit, limit)
  y[m, d] = g[m, d] * sigmoid(1.702 * g[m, d]) * (u[m, d] + 1)
}""",
    dict(M=8192, P=5760),
    dict(M=5, P=24),
)
def _(x, b, limit=7.0):
    x = x + b
    g, u = x[..., ::2].clamp(max=limit), x[..., 1::2].clamp(-limit, limit)
    return g * torch.sigmoid(1.702 * g) * (u + 1)


@case(
    "rms_norm_fp8",
    """
op rms_norm_fp8<T: float>(x: T[M, D], w: T[D], eps: f32 = 1e-6) -> (q: f8e4m3[M, D], s: f32[M]) {
  y[m, d] = x[m, d] * rsqrt(mean[k](x[m, k] ** 2) + eps) * w[d]
  s[m]    = max(max[d](abs(y[m, d])), 1e-12) / 448
  q[m, d] = clamp(y[m, d] / s[m], -448, 448)
  grad none
}""",
    dict(M=16384, D=4096),
    dict(M=5, D=24),
    grad=False,
)
def _(x, w, eps=1e-6):
    y = F.rms_norm(up(x), (x.shape[-1],), up(w), eps)
    s = y.abs().amax(-1).clamp(min=1e-12) / 448
    return (y / s[:, None]).clamp(-448, 448).to(torch.float8_e4m3fn), s


@case(
    "rms_norm_int8",
    """
op rms_norm_int8<T: float>(x: T[M, D], w: T[D], eps: f32 = 1e-6) -> (q: i8[M, D], s: f32[M]) {
  y[m, d] = x[m, d] * rsqrt(mean[k](x[m, k] ** 2) + eps) * w[d]
  s[m]    = max(max[d](abs(y[m, d])), 1e-12) / 127
  q[m, d] = i8(round(y[m, d] / s[m]))
  grad none
}""",
    dict(M=16384, D=4096),
    dict(M=5, D=24),
    grad=False,
)
def _(x, w, eps=1e-6):
    y = F.rms_norm(up(x), (x.shape[-1],), up(w), eps)
    s = y.abs().amax(-1).clamp(min=1e-12) / 127
    return (y / s[:, None]).round().to(torch.int8), s


@case(
    "fp8_groups",
    """
op fp8_groups<T: float>(x: T[M, D]) -> (q: f8e4m3[M, D], s: f32[M, G]) with G = D // 128, D == 128 * G {
  s[m, g] = max(max[k < 128](abs(x[m, 128 * g + k])), 1e-12) / 448
  q[m, d] = x[m, d] / s[m, d // 128]
  grad none
}""",
    dict(M=16384, D=4096),
    dict(M=3, D=256),
    grad=False,
)
def _(x):
    y = up(x).unflatten(-1, (-1, 128))
    s = y.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448
    return (y / s).flatten(-2).to(torch.float8_e4m3fn), s[..., 0]


@case(
    "rms_norm_linear",
    """
op rms_norm_linear<T: float>(x: T[M, K], g: T[K], w: T[N, K], eps: f32 = 1e-6) -> y: T[M, N] {
  h[m, k] = T(x[m, k] * rsqrt(mean[d](x[m, d] ** 2) + eps) * g[k])
  y[m, n] = sum[k](h[m, k] * w[n, k])
}""",
    dict(M=8192, K=2048, N=4096),
    dict(M=5, K=24, N=7),
    fill={"w": scaled(0.03)},
)
def _(x, g, w, eps=1e-6):
    return F.linear(F.rms_norm(x, (x.shape[-1],), g, eps), w)


@case(
    "hadamard",
    """
op hadamard<T: float>(x: T[N, D]) -> y: T[N, D] with D == 128 {
  a[i < D, j < D] = bit_and(i, j)
  b[i, j] = bit_xor(a[i, j], shift_right(a[i, j], 4))
  c[i, j] = bit_xor(b[i, j], shift_right(b[i, j], 2))
  p[i, j] = bit_and(bit_xor(c[i, j], shift_right(c[i, j], 1)), 1)
  y[n, i] = 0.08838834764831845 * sum[j](x[n, j] * (1 - 2 * p[i, j]))
}""",
    dict(N=262144, D=128),
    dict(N=3, D=128),
)
def _(x):
    h = signs(x.shape[-1], str(x.device), x.dtype)
    return (x @ h) * x.shape[-1] ** -0.5


@case(
    "awq_linear",
    """
op awq_linear<T: float>(x: T[M, K], w: i32[Q, N], z: i32[G, R], s: T[G, N]) -> y: T[M, N] with K == 8 * Q, K == 128 * G, N == 8 * R {
  y[m, n] = sum[k](x[m, k] * (bit_and(shift_right(w[k // 8, n], 4 * (k % 8)), 15) - bit_and(shift_right(z[k // 128, n // 8], 4 * (n % 8)), 15)) * s[k // 128, n])
}""",
    dict(M=16, K=8192, N=14336, Q=1024, G=64, R=1792),
    dict(M=3, K=256, N=16, Q=32, G=2, R=2),
    fill={
        "w": ints(2**31 - 1, -(2**31)),
        "z": ints(2**31 - 1, -(2**31)),
        "s": between(0.001, 0.02),
    },
    detached=("s",),
)
def _(x, w, z, s):
    at = 4 * torch.arange(8, device=x.device, dtype=torch.int32)
    q = (w[:, None, :] >> at[None, :, None] & 15).flatten(0, 1)
    zero = (z[:, :, None] >> at & 15).flatten(1)
    d = (q.unflatten(0, (-1, 128)) - zero[:, None]) * s[:, None]
    return x @ d.flatten(0, 1).to(x.dtype)


@case(
    "fp8_block_linear",
    """
op fp8_block_linear<T: f32 | bf16 = bf16>(x: f8e4m3[M, K], xs: f32[M, G], w: f8e4m3[N, K], ws: f32[R, G]) -> y: T[M, N] with K == 128 * G, N == 128 * R {
  y[m, n] = sum[k](x[m, k] * w[n, k] * xs[m, k // 128] * ws[n // 128, k // 128])
  grad none
}""",
    dict(M=4096, K=4096, N=4096, G=32, R=32),
    dict(M=3, K=256, N=128, G=2, R=1),
    grad=False,
    fill={"xs": between(0.01, 0.02), "ws": between(0.01, 0.02)},
)
def _(x, xs, w, ws, T=None):
    wide = torch.float64 if xs.dtype == torch.float64 else torch.bfloat16
    a = x.to(xs.dtype).unflatten(1, (-1, 128)) * xs[:, :, None]
    b = w.to(ws.dtype).unflatten(1, (-1, 128)).unflatten(0, (-1, 128)) * ws[:, None, :, None]
    return a.flatten(1).to(wide) @ b.flatten(2).flatten(0, 1).to(wide).mT


@case(
    "lora_linear",
    """
op lora_linear<T: float>(x: T[M, K], w: T[N, K], a: T[R, K], b: T[N, R], scale: f32 = 2.0) -> y: T[M, N] {
  h[m, r] = T(sum[k](x[m, k] * a[r, k]))
  y[m, n] = sum[k](x[m, k] * w[n, k]) + scale * sum[r](h[m, r] * b[n, r])
}""",
    dict(M=4096, K=4096, N=4096, R=16),
    dict(M=5, K=24, N=7, R=3),
    fill={"w": scaled(0.02), "a": scaled(0.02)},
    detached=("w",),
)
def _(x, w, a, b, scale=2.0):
    return F.linear(x, w) + scale * F.linear(F.linear(x, a), b)


# ---- LLM: losses -------------------------------------------------------------------------------
@case(
    "softcap_cross_entropy",
    """
op softcap_cross_entropy<T: float>(x: T[N, V], t: i64[N], cap: f32 = 30.0, zw: f32 = 1e-4) -> loss: f32[N] {
  z[n, v] = cap * tanh(x[n, v] / cap)
  m[n]    = max[v](z[n, v])
  lse[n]  = m[n] + log(sum[v](exp(z[n, v] - m[n])))
  loss[n] = where(t[n] < 0, 0, lse[n] - (z[n, t[n]] else 0) + zw * lse[n] ** 2)
}""",
    dict(N=4096, V=32000),
    dict(N=6, V=40),
    fill={"t": ints("V", -3)},
)
def _(x, t, cap=30.0, zw=1e-4):
    z = cap * torch.tanh(up(x) / cap)
    lse = torch.logsumexp(z, -1)
    hit = z.gather(1, t.clamp(min=0)[:, None])[:, 0]
    return torch.where(t < 0, 0, lse - hit + zw * lse**2)


@case(
    "label_smoothed_ce",
    """
op label_smoothed_ce<T: float>(x: T[N, V], t: i64[N], eps: f32 = 0.1) -> loss: f32 {
  m[n]   = max[v](x[n, v])
  lse[n] = m[n] + log(sum[v](exp(x[n, v] - m[n])))
  l[n]   = where(t[n] == -100, 0, lse[n] - (1 - eps) * (x[n, t[n]] else 0) - eps * mean[v](x[n, v]))
  count  = sum[n](where(t[n] == -100, 0.0, 1.0))
  loss   = sum[n](l[n]) / count
}""",
    dict(N=2048, V=50304),
    dict(N=6, V=40),
    fill={"t": ints("V")},
)
def _(x, t, eps=0.1):
    return F.cross_entropy(up(x), t, label_smoothing=eps)


@case(
    "kl_distill",
    """
op kl_distill<T: float>(s: T[N, V], t: T[N, V], temp: f32 = 2.0) -> loss: f32[N] {
  ms[n] = max[v](s[n, v] / temp)
  mt[n] = max[v](t[n, v] / temp)
  ls[n] = ms[n] + log(sum[v](exp(s[n, v] / temp - ms[n])))
  lt[n] = mt[n] + log(sum[v](exp(t[n, v] / temp - mt[n])))
  loss[n] = temp ** 2 * sum[v](exp(t[n, v] / temp - lt[n]) * (t[n, v] / temp - lt[n] - s[n, v] / temp + ls[n]))
}""",
    dict(N=2048, V=32000),
    dict(N=6, V=40),
    detached=("t",),
)
def _(s, t, temp=2.0):
    p, q = F.log_softmax(up(s) / temp, -1), F.log_softmax(up(t) / temp, -1)
    return temp**2 * F.kl_div(p, q, reduction="none", log_target=True).sum(-1)


@case(
    "dpo_loss",
    """
op dpo_loss(pc: f32[B, S], pr: f32[B, S], rc: f32[B, S], rr: f32[B, S], mc: bool[B, S], mr: bool[B, S], beta: f32 = 0.1) -> loss: f32 {
  c[b] = sum[s](where(mc[b, s], pc[b, s] - rc[b, s], 0))
  r[b] = sum[s](where(mr[b, s], pr[b, s] - rr[b, s], 0))
  loss = -mean[b](logsigmoid(beta * (c[b] - r[b])))
}""",
    dict(B=4096, S=2048),
    dict(B=3, S=10),
    fill={"mc": flags(), "mr": flags()},
    detached=("rc", "rr"),
)
def _(pc, pr, rc, rr, mc, mr, beta=0.1):
    c, r = ((p - q).masked_fill(~m, 0).sum(1) for p, q, m in ((pc, rc, mc), (pr, rr, mr)))
    return -F.logsigmoid(beta * (c - r)).mean()


@case(
    "grpo_loss",
    """
op grpo_loss(lp: f32[B, S], old: f32[B, S], rf: f32[B, S], adv: f32[B], mask: bool[B, S], lo: f32 = 0.2, hi: f32 = 0.28, beta: f32 = 0.04) -> loss: f32 {
  r[b, s] = exp(lp[b, s] - old[b, s])
  a[b, s] = min(r[b, s] * adv[b], clamp(r[b, s], 1 - lo, 1 + hi) * adv[b])
  k[b, s] = exp(rf[b, s] - lp[b, s]) - (rf[b, s] - lp[b, s]) - 1
  row[b]  = sum[s](where(mask[b, s], beta * k[b, s] - a[b, s], 0)) / sum[s](where(mask[b, s], 1.0, 0.0))
  loss    = mean[b](row[b])
}""",
    dict(B=4096, S=2048),
    dict(B=3, S=10),
    fill={"lp": between(-1, 0), "old": between(-1, 0), "rf": between(-1, 0), "mask": flags()},
    detached=("old", "rf", "adv"),
)
def _(lp, old, rf, adv, mask, lo=0.2, hi=0.28, beta=0.04):
    r = torch.exp(lp - old)
    a = torch.minimum(r * adv[:, None], r.clamp(1 - lo, 1 + hi) * adv[:, None])
    k = torch.exp(rf - lp) - (rf - lp) - 1
    return (torch.where(mask, beta * k - a, 0).sum(1) / mask.sum(1)).mean()


@case(
    "group_advantage",
    """
op group_advantage(r: f32[G, N], eps: f32 = 1e-4) -> a: f32[G, N] {
  m[g]    = mean[n](r[g, n])
  v[g]    = sum[n]((r[g, n] - m[g]) ** 2) / (N - 1)
  a[g, n] = (r[g, n] - m[g]) / (sqrt(v[g]) + eps)
}""",
    dict(G=1048576, N=16),
    dict(G=5, N=8),
    dtype="f32",
)
def _(r, eps=1e-4):
    return (r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True) + eps)


@case(
    "gumbel_sample",
    """
op gumbel_sample<T: float>(x: T[N, V], u: f32[N, V], temp: f32 = 0.7) -> y: i64[N] {
  y[n] = argmax[v](x[n, v] / temp - log(-log(u[n, v])))
}""",
    dict(N=1024, V=32000),
    dict(N=5, V=40),
    fill={"u": between(1e-6, 1 - 1e-6)},
    grad=False,
)
def _(x, u, temp=0.7):
    return (up(x) / temp - torch.log(-torch.log(u))).argmax(-1)


# ---- MoE ---------------------------------------------------------------------------------------
@case(
    "moe_router",
    """
op moe_router<T: float>(x: T[N, E]) -> (w: f32[N], i: i64[N], loss: f32) {
  m[n]    = max[e](x[n, e])
  z[n]    = sum[e](exp(x[n, e] - m[n]))
  p[n, e] = exp(x[n, e] - m[n]) / z[n]
  i[n]    = argmax[e](x[n, e])
  w[n]    = 1 / z[n]
  imp[e]  = mean[n](p[n, e])
  load[e < E] = mean[n](where(i[n] == e, 1.0, 0.0))
  loss    = E * sum[e](imp[e] * load[e])
}""",
    dict(N=524288, E=64),
    dict(N=9, E=8),
    dtype="f32",
)
def _(x):
    p = torch.softmax(up(x), -1)
    w, i = p.max(-1)
    load = F.one_hot(i, x.shape[1]).to(p.dtype).mean(0)
    return w, i, x.shape[1] * (p.mean(0) * load).sum()


@case(
    "moe_combine",
    """
op moe_combine<T: float>(x: T[P, D], at: i32[N, K], g: f32[N, K]) -> y: T[N, D] {
  y[n, d] = sum[k](g[n, k] * (x[at[n, k], d] else 0))
}""",
    dict(N=8192, K=4, P=32768, D=2048),
    dict(N=4, K=2, P=8, D=10),
    fill={
        "at": lambda m: torch.randperm(m.sizes["P"], device=m.device, generator=m.gen)[
            : math.prod(m.shape)
        ]
        .reshape(m.shape)
        .to(m.dtype)
    },
)
def _(x, at, g):
    return (g[:, :, None] * x[at.long()]).sum(1).to(x.dtype)


# ---- linear attention, scans, convolutions along a sequence ------------------------------------
@case(
    "linear_attention",
    """
op linear_attention<T: float>(q: T[B, H, S, E], k: T[B, H, S, E], v: T[B, H, S, E]) -> o: T[B, H, S, E] {
  s[b, h, i, j] = sum[e](q[b, h, i, e] * k[b, h, j, e])
  o[b, h, i, e] = sum[j <= i](T(s[b, h, i, j]) * v[b, h, j, e])
}""",
    dict(B=4, H=16, S=2048, E=64),
    dict(B=1, H=2, S=10, E=8),
    fill={"k": scaled(0.1)},
)
def _(q, k, v):
    return torch.tril(q @ k.mT) @ v


@case(
    "retention",
    """
op retention<T: float>(q: T[B, H, S, E], k: T[B, H, S, E], v: T[B, H, S, E], g: f32[H]) -> o: T[B, H, S, E] {
  s[b, h, i, j] = sum[e](q[b, h, i, e] * k[b, h, j, e]) * exp(g[h] * (i - j))
  o[b, h, i, e] = sum[j <= i](T(s[b, h, i, j]) * v[b, h, j, e])
}""",
    dict(B=4, H=16, S=2048, E=64),
    dict(B=1, H=2, S=10, E=8),
    fill={"k": scaled(0.1), "g": between(-0.1, -0.01)},
    detached=("g",),
)
def _(q, k, v, g):
    i = torch.arange(q.shape[2], device=q.device)
    d = (i[:, None] - i).clamp(min=0) * g[:, None, None]
    return torch.tril((q @ k.mT) * torch.exp(d)).to(v.dtype) @ v


@case(
    "ssd",
    """
op ssd<T: float>(x: T[B, S, H, P], a: f32[B, S, H], bb: T[B, S, N], cc: T[B, S, N]) -> y: T[B, S, H, P] {
  l[b, h, t < S] = sum[r <= t](a[b, r, h])
  z[b, t, s]    = sum[n](cc[b, t, n] * bb[b, s, n])
  y[b, t, h, p] = sum[s <= t](T(z[b, t, s] * exp(l[b, h, t] - l[b, h, s])) * x[b, s, h, p])
}""",
    dict(B=2, S=2048, H=32, P=64, N=128),
    dict(B=1, S=9, H=2, P=4, N=8),
    fill={"a": between(-0.1, -0.001), "cc": scaled(0.1)},
)
def _(x, a, bb, cc):
    total = a.cumsum(1).transpose(1, 2)
    d = total[:, :, :, None] - total[:, :, None, :]
    d = d.masked_fill(torch.ones_like(d[0, 0], dtype=torch.bool).triu(1), float("-inf"))
    z = (cc @ bb.mT)[:, None] * torch.exp(d)
    return (z.to(x.dtype) @ x.transpose(1, 2)).transpose(1, 2)


@case(
    "causal_conv_silu",
    """
op causal_conv_silu<T: float>(x: T[B, D, L], w: T[D, K], c: T[D]) -> y: T[B, D, L] {
  y[b, d, l] = silu(c[d] + sum[k]((x[b, d, l + k - K + 1] else 0) * w[d, k]))
}""",
    dict(B=4, D=4096, L=2048, K=4),
    dict(B=2, D=3, L=9, K=4),
)
def _(x, w, c):
    return F.silu(F.conv1d(F.pad(x, (w.shape[1] - 1, 0)), w[:, None], c, groups=w.shape[0]))


@case(
    "gated_short_conv",
    """
op gated_short_conv<T: float>(x: T[B, L, Q], w: T[D, K]) -> y: T[B, L, D] with Q == 3 * D {
  u[b, l, d < D] = x[b, l, d] * x[b, l, d + 2 * D]
  y[b, l, d] = x[b, l, d + D] * sum[k]((u[b, l + k - K + 1, d] else 0) * w[d, k])
}""",
    dict(B=4, L=4096, Q=6144, D=2048, K=3),
    dict(B=2, L=7, Q=15, D=5, K=3),
)
def _(x, w):
    b, c, v = x.chunk(3, -1)
    u = F.conv1d(F.pad((b * v).mT, (w.shape[1] - 1, 0)), w[:, None], groups=w.shape[0])
    return c * u.mT


@case(
    "discounted_returns",
    """
op discounted_returns(r: f32[B, T], g: f32 = 0.99) -> y: f32[B, T] {
  y[b, t] = sum[k >= t](g ** (k - t) * r[b, k])
}""".replace("T]", "S]"),
    dict(B=4096, S=1024),
    dict(B=3, S=9),
    dtype="f32",
)
def _(r, g=0.99):
    i = torch.arange(r.shape[1], device=r.device)
    w = torch.tril(g ** (i[:, None] - i).clamp(min=0).to(r.dtype))
    return r @ w


@case(
    "gae",
    """
op gae(d: f32[B, S], keep: f32[B, S]) -> y: f32[B, S] {
  l[b, t < S] = sum[k <= t](log(keep[b, k]))
  y[b, t] = sum[k >= t](exp(l[b, k] - l[b, t]) * d[b, k])
}""",
    dict(B=1024, S=512),
    dict(B=3, S=9),
    dtype="f32",
    fill={"keep": between(0.9, 0.999)},
    detached=("keep",),
)
def _(d, keep):
    logs = keep.log().cumsum(1)
    w = torch.triu(torch.exp((logs[:, None, :] - logs[:, :, None]).triu()))
    return (w @ d[:, :, None])[..., 0]


@case(
    "cummax",
    """
op cummax<T: float>(x: T[N, D]) -> y: T[N, D] {
  y[n, d] = max[k <= d](x[n, k])
}""",
    dict(N=16384, D=1024),
    dict(N=3, D=9),
    dtype="f32",
)
def _(x):
    return x.cummax(1).values


# ---- attention ---------------------------------------------------------------------------------
def masked(q, k, v, s, keep):
    s = s.masked_fill(~keep, float("-inf"))
    return torch.softmax(up(s), -1).to(v.dtype) @ v


def flex(mod=None, mask=None):
    """flex_attention, compiled, with a mask over rows and columns; what does not change from call to call is made once."""
    made: dict[Any, Any] = {}

    def run(q, k, v, scale, **more):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        key = tuple(x.data_ptr() for x in more.values() if isinstance(x, Tensor))
        if key not in made:
            block = (
                create_block_mask(mask, None, None, q.shape[2], k.shape[2], device=q.device)
                if mask
                else None
            )
            made[key] = block, mod(**more) if mod else None
        if "call" not in made:
            made["call"] = torch.compile(flex_attention, dynamic=False)
        block, own = made[key]
        return made["call"](
            q,
            k,
            v,
            score_mod=own,
            block_mask=block,
            scale=scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )

    return run


@case(
    "alibi_window",
    """
op alibi_window<T: float>(q: T[B, H, S, E], k: T[B, H, S, E], v: T[B, H, S, E], slope: f32[H], scale: f32 = 0.088, const width: int = 1024) -> o: T[B, H, S, E] with width > 0 {
  s[b, h, i, j] = scale * sum[e](q[b, h, i, e] * k[b, h, j, e]) + slope[h] * (j - i)
  m[b, h, i]    = max[i - width < j <= i](s[b, h, i, j])
  p[b, h, i, j] = exp(s[b, h, i, j] - m[b, h, i])
  o[b, h, i, e] = sum[i - width < j <= i](T(p[b, h, i, j]) * v[b, h, j, e]) / sum[i - width < j <= i](p[b, h, i, j])
}""",
    dict(B=2, H=16, S=4096, E=128, width=1024),
    dict(B=1, H=2, S=12, E=8, width=4),
    fill={"slope": between(0.01, 0.1)},
    detached=("slope",),
    rivals={
        "flex": flex(
            lambda slope, width: (lambda s, b, h, i, j: s + slope[h] * (j - i)),
            lambda b, h, i, j: (j <= i) & (j > i - 1024),
        )
    },
)
def _(q, k, v, slope, scale=0.088, width=1024):
    i = torch.arange(q.shape[2], device=q.device)
    far = i[None, :] - i[:, None]
    s = scale * (q @ k.mT) + slope[:, None, None] * far
    return masked(q, k, v, s, (far <= 0) & (far > -width))


@case(
    "sink_attention",
    """
op sink_attention<T: float>(q: T[B, H, S, E], k: T[B, G, S, E], v: T[B, G, S, E], sink: f32[H], scale: f32 = 0.125) -> o: T[B, H, S, E] with R = H // G, H == G * R {
  s[b, h, i, j] = scale * sum[e](q[b, h, i, e] * k[b, h // R, j, e])
  m[b, h, i]    = max(max[j <= i](s[b, h, i, j]), sink[h])
  p[b, h, i, j] = exp(s[b, h, i, j] - m[b, h, i])
  z[b, h, i]    = sum[j <= i](p[b, h, i, j]) + exp(sink[h] - m[b, h, i])
  o[b, h, i, e] = sum[j <= i](T(p[b, h, i, j]) * v[b, h // R, j, e]) / z[b, h, i]
}""",
    dict(B=2, H=32, G=4, S=2048, E=64),
    dict(B=1, H=4, G=2, S=12, E=8),
)
def _(q, k, v, sink, scale=0.125):
    r = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(r, 1), v.repeat_interleave(r, 1)
    s = scale * up(q @ k.mT)
    s = s.masked_fill(torch.ones_like(s[0, 0], dtype=torch.bool).triu(1), float("-inf"))
    s = torch.cat(
        [s, sink[None, :, None, None].expand(s.shape[0], -1, s.shape[2], 1).to(s.dtype)], -1
    )
    return torch.softmax(s, -1)[..., :-1].to(v.dtype) @ v


@case(
    "mla_prefill",
    """
op mla_prefill<T: float>(q: T[B, H, S, E], k: T[B, H, S, E], v: T[B, H, S, F], scale: f32 = 0.0722) -> o: T[B, H, S, F] {
  s[b, h, i, j] = scale * sum[e](q[b, h, i, e] * k[b, h, j, e])
  m[b, h, i]    = max[j <= i](s[b, h, i, j])
  p[b, h, i, j] = exp(s[b, h, i, j] - m[b, h, i])
  o[b, h, i, f] = sum[j <= i](T(p[b, h, i, j]) * v[b, h, j, f]) / sum[j <= i](p[b, h, i, j])
}""",
    dict(B=2, H=16, S=4096, E=192, F=128),
    dict(B=1, H=2, S=12, E=12, F=8),
)
def _(q, k, v, scale=0.0722):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)


@case(
    "mla_decode",
    """
op mla_decode<T: float>(q: T[B, H, E], kv: T[B, L, E], len: i32[B], scale: f32 = 0.0722) -> o: T[B, H, D] with D = E - E // 9 {
  s[b, h, j] = scale * sum[e](q[b, h, e] * kv[b, j, e])
  m[b, h]    = max[j < len[b]](s[b, h, j])
  p[b, h, j] = exp(s[b, h, j] - m[b, h])
  o[b, h, d] = sum[j < len[b]](T(p[b, h, j]) * kv[b, j, d]) / sum[j < len[b]](p[b, h, j])
}""",
    dict(B=32, H=16, L=4096, E=576),
    dict(B=2, H=3, L=11, E=18),
    fill={"len": ints("L", 1)},
    grad=False,
)
def _(q, kv, len, scale=0.0722):
    s = scale * up(q @ kv.mT)
    j = torch.arange(kv.shape[1], device=q.device)
    s = s.masked_fill(j >= len[:, None, None], float("-inf"))
    return torch.softmax(s, -1).to(kv.dtype) @ kv[..., : kv.shape[2] - kv.shape[2] // 9]


@case(
    "int8_kv_decode",
    """
op int8_kv_decode<T: float>(q: T[B, H, E], k: i8[B, L, G, E], ks: f32[B, L, G], v: i8[B, L, G, E], vs: f32[B, L, G], len: i32[B], scale: f32 = 0.088) -> o: T[B, H, E] with R = H // G, H == G * R {
  s[b, h, j] = scale * ks[b, j, h // R] * sum[e](q[b, h, e] * k[b, j, h // R, e])
  m[b, h]    = max[j < len[b]](s[b, h, j])
  p[b, h, j] = exp(s[b, h, j] - m[b, h])
  o[b, h, e] = sum[j < len[b]](T(p[b, h, j] * vs[b, j, h // R]) * v[b, j, h // R, e]) / sum[j < len[b]](p[b, h, j])
  grad none
}""",
    dict(B=16, H=32, G=8, L=8192, E=128),
    dict(B=2, H=4, G=2, L=11, E=8),
    grad=False,
    fill={
        "len": ints("L", 1),
        "k": ints(127, -127),
        "v": ints(127, -127),
        "ks": between(0.005, 0.01),
        "vs": between(0.005, 0.01),
    },
)
def _(q, k, ks, v, vs, len, scale=0.088):
    b, h, e = q.shape
    k, v = ((x * s[..., None]).to(q.dtype).transpose(1, 2) for x, s in ((k, ks), (v, vs)))
    s = scale * up(q.unflatten(1, (k.shape[1], -1)) @ k.mT)
    j = torch.arange(k.shape[2], device=q.device)
    s = s.masked_fill(j >= len[:, None, None, None], float("-inf"))
    return (torch.softmax(s, -1).to(v.dtype) @ v).flatten(1, 2)


@case(
    "cross_attention",
    """
op cross_attention<T: float>(q: T[B, S, H, E], k: T[B, L, H, E], v: T[B, L, H, E], len: i32[B], scale: f32 = 0.125) -> o: T[B, S, H, E] {
  s[b, h, i, j] = scale * sum[e](q[b, i, h, e] * k[b, j, h, e])
  m[b, h, i]    = max[j < len[b]](s[b, h, i, j])
  p[b, h, i, j] = exp(s[b, h, i, j] - m[b, h, i])
  o[b, i, h, e] = sum[j < len[b]](T(p[b, h, i, j]) * v[b, j, h, e]) / sum[j < len[b]](p[b, h, i, j])
}""",
    dict(B=8, S=4096, L=512, H=16, E=64),
    dict(B=2, S=7, L=9, H=2, E=8),
    fill={"len": ints("L", 1)},
)
def _(q, k, v, len, scale=0.125):
    j = torch.arange(k.shape[1], device=q.device)
    keep = (j < len[:, None])[:, None, None]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep, scale=scale).transpose(1, 2)


@case(
    "swin_attention",
    """
op swin_attention<T: float>(q: T[N, H, 49, E], k: T[N, H, 49, E], v: T[N, H, 49, E], table: f32[169, H], scale: f32 = 0.1768) -> o: T[N, H, 49, E] {
  s[n, h, i, j] = scale * sum[e](q[n, h, i, e] * k[n, h, j, e]) + table[13 * (i // 7 - j // 7 + 6) + i % 7 - j % 7 + 6, h]
  m[n, h, i]    = max[j](s[n, h, i, j])
  p[n, h, i, j] = exp(s[n, h, i, j] - m[n, h, i])
  o[n, h, i, e] = sum[j](T(p[n, h, i, j]) * v[n, h, j, e]) / sum[j](p[n, h, i, j])
}""",
    dict(N=2048, H=6, E=32),
    dict(N=2, H=2, E=8),
)
def _(q, k, v, table, scale=0.1768):
    i = torch.arange(49, device=q.device)
    y, x = i // 7, i % 7
    at = 13 * (y[:, None] - y + 6) + x[:, None] - x + 6
    bias = table[at].permute(2, 0, 1)[None].to(q.dtype)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


@case(
    "scale_mask_softmax",
    """
op scale_mask_softmax<T: float>(x: T[B, H, S, L], mask: bool[B, L], scale: f32 = 0.125) -> y: T[B, H, S, L] {
  s[b, h, i, j] = where(mask[b, j], scale * x[b, h, i, j], -10000.0)
  m[b, h, i]    = max[j](s[b, h, i, j])
  e[b, h, i, j] = exp(s[b, h, i, j] - m[b, h, i])
  y[b, h, i, j] = e[b, h, i, j] / sum[k](e[b, h, i, k])
}""",
    dict(B=8, H=16, S=512, L=512),
    dict(B=2, H=2, S=5, L=9),
    fill={"mask": flags()},
)
def _(x, mask, scale=0.125):
    s = (scale * x).masked_fill(~mask[:, None, None, :], -10000.0)
    return torch.softmax(s, -1)


@case(
    "attention_pool",
    """
op attention_pool<T: float>(x: T[B, S, D], q: T[D], len: i32[B]) -> y: T[B, D] {
  s[b, i] = sum[d](x[b, i, d] * q[d])
  m[b]    = max[i < len[b]](s[b, i])
  p[b, i] = exp(s[b, i] - m[b])
  y[b, d] = sum[i < len[b]](p[b, i] * x[b, i, d]) / sum[i < len[b]](p[b, i])
}""",
    dict(B=64, S=1024, D=1024),
    dict(B=2, S=7, D=12),
    fill={"q": scaled(0.05), "len": ints("S", 1)},
)
def _(x, q, len):
    i = torch.arange(x.shape[1], device=x.device)
    s = up(x @ q).masked_fill(i >= len[:, None], float("-inf"))
    return (torch.softmax(s, -1).to(x.dtype)[:, None] @ x)[:, 0]


# ---- diffusion and vision ----------------------------------------------------------------------
@case(
    "patch_embed",
    """
op patch_embed<T: float>(x: T[B, C, H, W], w: T[D, C, P, P], c: T[D]) -> y: T[B, N, D] with V = W // P, N = H // P * V, H % P == 0, W % P == 0 {
  y[b, n, d] = c[d] + sum[i, r, s](x[b, i, P * (n // V) + r, P * (n % V) + s] * w[d, i, r, s])
}""",
    dict(B=256, C=3, H=224, W=224, D=768, P=16),
    dict(B=2, C=2, H=8, W=12, D=5, P=4),
    fill={"w": scaled(0.04)},
    detached=("x",),
)
def _(x, w, c):
    return F.conv2d(x, w, c, stride=w.shape[-1]).flatten(2).mT


@case(
    "adaln_modulate",
    """
op adaln_modulate<T: float>(x: T[B, S, D], scale: T[B, D], shift: T[B, D], eps: f32 = 1e-6) -> y: T[B, S, D] {
  m[b, s] = mean[d](x[b, s, d])
  v[b, s] = mean[d]((x[b, s, d] - m[b, s]) ** 2)
  y[b, s, d] = (x[b, s, d] - m[b, s]) * rsqrt(v[b, s] + eps) * (1 + scale[b, d]) + shift[b, d]
}""",
    dict(B=32, S=1024, D=1152),
    dict(B=2, S=5, D=12),
)
def _(x, scale, shift, eps=1e-6):
    return F.layer_norm(x, (x.shape[-1],), eps=eps) * (1 + scale[:, None]) + shift[:, None]


@case(
    "adaln_gate",
    """
op adaln_gate<T: float>(x: T[B, S, D], h: T[B, S, D], gate: T[B, D], scale: T[B, D], shift: T[B, D], eps: f32 = 1e-6) -> (r: T[B, S, D], y: T[B, S, D]) {
  r[b, s, d] = x[b, s, d] + gate[b, d] * h[b, s, d]
  m[b, s] = mean[d](r[b, s, d])
  v[b, s] = mean[d]((r[b, s, d] - m[b, s]) ** 2)
  y[b, s, d] = (r[b, s, d] - m[b, s]) * rsqrt(v[b, s] + eps) * (1 + scale[b, d]) + shift[b, d]
}""",
    dict(B=16, S=1024, D=1152),
    dict(B=2, S=5, D=12),
)
def _(x, h, gate, scale, shift, eps=1e-6):
    r = x + gate[:, None] * h
    return r, F.layer_norm(r, (x.shape[-1],), eps=eps) * (1 + scale[:, None]) + shift[:, None]


@case(
    "resblock_norm",
    """
op resblock_norm<T: float>(x: T[B, C, H, W], t: T[B, C], gain: T[C], bias: T[C], const groups: int = 32, eps: f32 = 1e-5) -> y: T[B, C, H, W] with K = C // groups, C == groups * K {
  h[b, c, i, j] = x[b, c, i, j] + t[b, c]
  m[b, g < groups] = mean[c < K, i, j](h[b, g * K + c, i, j])
  v[b, g < groups] = mean[c < K, i, j]((h[b, g * K + c, i, j] - m[b, g]) ** 2)
  y[b, c, i, j] = silu((h[b, c, i, j] - m[b, c // K]) * rsqrt(v[b, c // K] + eps) * gain[c] + bias[c])
}""",
    dict(B=16, C=320, H=64, W=64, groups=32),
    dict(B=2, C=4, H=3, W=5, groups=2),
    dtype="f16",
)
def _(x, t, gain, bias, groups=32, eps=1e-5):
    return F.silu(F.group_norm(x + t[:, :, None, None], groups, gain, bias, eps))


@case(
    "bilinear2x",
    """
op bilinear2x<T: float>(x: T[N, C, H, W]) -> y: T[N, C, P, Q] with P = 2 * H, Q = 2 * W {
  u[p < P] = max((p - 1) // 2, 0)
  d[p < P] = min((p + 1) // 2, H - 1)
  l[q < Q] = max((q - 1) // 2, 0)
  r[q < Q] = min((q + 1) // 2, W - 1)
  a[p < P] = where(p % 2 == 0, 0.25, 0.75)
  e[q < Q] = where(q % 2 == 0, 0.25, 0.75)
  y[n, c, p, q] = a[p] * (e[q] * (x[n, c, u[p], l[q]] else 0) + (1 - e[q]) * (x[n, c, u[p], r[q]] else 0)) + (1 - a[p]) * (e[q] * (x[n, c, d[p], l[q]] else 0) + (1 - e[q]) * (x[n, c, d[p], r[q]] else 0))
}""",
    dict(N=8, C=128, H=128, W=128),
    dict(N=1, C=2, H=3, W=4),
    dtype="f16",
)
def _(x):
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


@case(
    "pixel_shuffle",
    """
op pixel_shuffle<T: float>(x: T[N, Q, H, W], const r: int = 2) -> y: T[N, C, P, S] with C = Q // (r * r), Q == C * r * r, P = H * r, S = W * r {
  y[n, c, p, s] = x[n, c * r * r + p % r * r + s % r, p // r, s // r]
}""",
    dict(N=8, Q=256, H=128, W=128, r=2),
    dict(N=2, Q=8, H=3, W=5, r=2),
    dtype="f16",
)
def _(x, r=2):
    return F.pixel_shuffle(x, r)


@case(
    "max_pool_nhwc",
    """
op max_pool_nhwc<T: float>(x: T[N, H, W, C]) -> y: T[N, P, Q, C] with P = (H - 1) // 2 + 1, Q = (W - 1) // 2 + 1 {
  y[n, p, q, c] = max[r < 3, s < 3](x[n, 2 * p + r - 1, 2 * q + s - 1, c] else -inf)
}""",
    dict(N=64, H=112, W=112, C=64),
    dict(N=2, H=5, W=7, C=3),
    dtype="f16",
)
def _(x):
    return F.max_pool2d(x.permute(0, 3, 1, 2), 3, 2, 1).permute(0, 2, 3, 1)


@case(
    "squeeze_excite",
    """
op squeeze_excite<T: float>(x: T[N, C, H, W], a: T[R, C], b: T[C, R]) -> y: T[N, C, H, W] {
  m[n, c] = mean[h, w](x[n, c, h, w])
  u[n, r] = relu(sum[c](a[r, c] * m[n, c]))
  g[n, c] = sigmoid(sum[r](b[c, r] * u[n, r]))
  y[n, c, h, w] = x[n, c, h, w] * g[n, c]
}""",
    dict(N=64, C=256, H=56, W=56, R=16),
    dict(N=2, C=6, H=3, W=5, R=2),
    dtype="f16",
    fill={"a": scaled(0.1), "b": scaled(0.3)},
)
def _(x, a, b):
    g = torch.sigmoid(F.relu(x.mean((2, 3)) @ a.mT) @ b.mT)
    return x * g[:, :, None, None]


@case(
    "grid_sample",
    """
op grid_sample<T: float>(x: T[N, C, H, W], g: f32[N, P, Q, 2]) -> y: T[N, C, P, Q] {
  gx[n, p, q] = ((g[n, p, q, 0] + 1) * W - 1) / 2
  gy[n, p, q] = ((g[n, p, q, 1] + 1) * H - 1) / 2
  l[n, p, q]  = i64(floor(gx[n, p, q]))
  u[n, p, q]  = i64(floor(gy[n, p, q]))
  fx[n, p, q] = gx[n, p, q] - floor(gx[n, p, q])
  fy[n, p, q] = gy[n, p, q] - floor(gy[n, p, q])
  y[n, c, p, q] = (1 - fy[n, p, q]) * ((1 - fx[n, p, q]) * (x[n, c, u[n, p, q], l[n, p, q]] else 0) + fx[n, p, q] * (x[n, c, u[n, p, q], l[n, p, q] + 1] else 0)) + fy[n, p, q] * ((1 - fx[n, p, q]) * (x[n, c, u[n, p, q] + 1, l[n, p, q]] else 0) + fx[n, p, q] * (x[n, c, u[n, p, q] + 1, l[n, p, q] + 1] else 0))
}""",
    dict(N=8, C=64, H=128, W=128, P=128, Q=128),
    dict(N=2, C=2, H=4, W=5, P=3, Q=4),
    dtype="f32",
    fill={"g": between(-0.95, 0.95)},
)
def _(x, g):
    return F.grid_sample(x, g.to(x.dtype), align_corners=False)


@case(
    "layer_scale_drop_path",
    """
op layer_scale_drop_path<T: float>(x: T[B, S, D], h: T[B, S, D], gamma: T[D], keep: bool[B], rate: f32 = 0.1) -> y: T[B, S, D] {
  y[b, s, d] = x[b, s, d] + where(keep[b], gamma[d] * h[b, s, d] / (1 - rate), 0)
}""",
    dict(B=64, S=577, D=1024),
    dict(B=3, S=5, D=12),
    fill={"keep": flags()},
)
def _(x, h, gamma, keep, rate=0.1):
    return x + torch.where(keep[:, None, None], gamma * h / (1 - rate), 0)


@case(
    "box_iou",
    """
op box_iou(a: f32[N, 4], b: f32[M, 4]) -> y: f32[N, M] {
  w[n, m] = max(min(a[n, 2], b[m, 2]) - max(a[n, 0], b[m, 0]), 0)
  h[n, m] = max(min(a[n, 3], b[m, 3]) - max(a[n, 1], b[m, 1]), 0)
  sa[n]   = (a[n, 2] - a[n, 0]) * (a[n, 3] - a[n, 1])
  sb[m]   = (b[m, 2] - b[m, 0]) * (b[m, 3] - b[m, 1])
  i[n, m] = w[n, m] * h[n, m]
  y[n, m] = i[n, m] / (sa[n] + sb[m] - i[n, m])
}""",
    dict(N=8192, M=4096),
    dict(N=5, M=7),
    dtype="f32",
    grad=False,
    fill={
        n: (lambda m: torch.cat([(p := m.rand(0, 1))[:, :2], p[:, :2] + 0.05 + p[:, 2:]], 1))
        for n in "ab"
    },
)
def _(a, b):
    lo, hi = torch.maximum(a[:, None, :2], b[:, :2]), torch.minimum(a[:, None, 2:], b[:, 2:])
    i = (hi - lo).clamp(min=0).prod(-1)
    sa, sb = ((x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1]) for x in (a, b))
    return i / (sa[:, None] + sb - i)


@case(
    "total_variation",
    """
op total_variation(x: f32[N, C, H, W]) -> y: f32[N] {
  y[n] = sum[c, i, j](where(i + 1 < H, abs((x[n, c, i + 1, j] else 0) - x[n, c, i, j]), 0) + where(j + 1 < W, abs((x[n, c, i, j + 1] else 0) - x[n, c, i, j]), 0))
}""",
    dict(N=16, C=3, H=1024, W=1024),
    dict(N=2, C=2, H=3, W=5),
    dtype="f32",
)
def _(x):
    return x.diff(dim=2).abs().sum((1, 2, 3)) + x.diff(dim=3).abs().sum((1, 2, 3))


# ---- losses of vision ---------------------------------------------------------------------------
@case(
    "focal_loss",
    """
op focal_loss<T: float>(x: T[N, C], t: i64[N], alpha: f32 = 0.25) -> loss: f32 {
  p[n, c] = sigmoid(x[n, c])
  l[n, c] = where(t[n] == c, -alpha * (1 - p[n, c]) ** 2 * logsigmoid(x[n, c]), -(1 - alpha) * p[n, c] ** 2 * logsigmoid(-x[n, c]))
  loss    = sum[n, c](l[n, c]) / N
}""",
    dict(N=524288, C=80),
    dict(N=7, C=5),
    fill={"t": ints("C", -1)},
)
def _(x, t, alpha=0.25):
    x = up(x)
    hit = t[:, None] == torch.arange(x.shape[1], device=x.device)
    p = torch.sigmoid(x)
    loss = torch.where(
        hit, -alpha * (1 - p) ** 2 * F.logsigmoid(x), -(1 - alpha) * p**2 * F.logsigmoid(-x)
    )
    return loss.sum() / x.shape[0]


@case(
    "dice_loss",
    """
op dice_loss<T: float>(x: T[B, C, H, W], t: u8[B, C, H, W], eps: f32 = 1.0) -> loss: f32 {
  a[b, c] = sum[h, w](sigmoid(x[b, c, h, w]) * t[b, c, h, w])
  p[b, c] = sum[h, w](sigmoid(x[b, c, h, w]))
  q[b, c] = sum[h, w](f32(t[b, c, h, w]))
  loss    = 1 - mean[b, c]((2 * a[b, c] + eps) / (p[b, c] + q[b, c] + eps))
}""",
    dict(B=16, C=4, H=1024, W=1024),
    dict(B=2, C=2, H=3, W=5),
    dtype="f16",
    fill={"t": ints(2)},
)
def _(x, t, eps=1.0):
    p = torch.sigmoid(up(x))
    a, q, s = (p * t).sum((2, 3)), p.sum((2, 3)), t.to(p.dtype).sum((2, 3))
    return 1 - ((2 * a + eps) / (q + s + eps)).mean()


@case(
    "bce_logits",
    """
op bce_logits(x: f32[N, C], t: f32[N, C], w: f32[C]) -> loss: f32 {
  loss = mean[n, c]((1 - t[n, c]) * x[n, c] + (1 + (w[c] - 1) * t[n, c]) * softplus(-x[n, c]))
}""",
    dict(N=131072, C=128),
    dict(N=5, C=6),
    dtype="f32",
    fill={"t": flags(0.2), "w": between(1, 4)},
    detached=("t", "w"),
)
def _(x, t, w):
    return F.binary_cross_entropy_with_logits(x, t, pos_weight=w)


@case(
    "huber_masked",
    """
op huber_masked<T: float>(x: T[N, D], t: T[N, D], mask: bool[N], delta: f32 = 1.0) -> loss: f32 {
  e[n, d] = abs(x[n, d] - t[n, d])
  l[n, d] = where(e[n, d] < delta, 0.5 * e[n, d] ** 2, delta * (e[n, d] - 0.5 * delta))
  loss    = sum[n, d](where(mask[n], l[n, d], 0)) / (D * sum[n](where(mask[n], 1.0, 0.0)))
}""",
    dict(N=65536, D=512),
    dict(N=5, D=6),
    fill={"mask": flags()},
    detached=("t",),
)
def _(x, t, mask, delta=1.0):
    loss = F.huber_loss(up(x), up(t), reduction="none", delta=delta)
    return torch.where(mask[:, None], loss, 0).sum() / (x.shape[1] * mask.sum())


# ---- embeddings, recsys, contrastive ------------------------------------------------------------
@case(
    "embedding_bag",
    """
op embedding_bag<T: float>(e: T[V, D], idx: i64[N], off: i64[Q]) -> y: T[B, D] with B = Q - 1 {
  y[b, d] = sum[off[b] <= n < off[b + 1]](e[idx[n], d] else 0)
}""",
    dict(V=1000000, D=64, N=327680, Q=16385),
    dict(V=20, D=6, N=15, Q=5),
    dtype="f32",
    fill={"idx": ints("V"), "off": lambda m: m.offsets(m.sizes["N"])},
)
def _(e, idx, off):
    return F.embedding_bag(idx, e, off, mode="sum", include_last_offset=True)


@case(
    "segment_mean",
    """
op segment_mean<T: float>(x: T[N, D], off: i64[Q]) -> y: T[G, D] with G = Q - 1 {
  y[g, d] = sum[off[g] <= n < off[g + 1]](x[n, d]) / max(off[g + 1] - off[g], 1)
}""",
    dict(N=262144, D=128, Q=16385),
    dict(N=15, D=6, Q=5),
    dtype="f32",
    fill={"off": lambda m: m.offsets(m.sizes["N"])},
)
def _(x, off):
    n = torch.arange(x.shape[0], device=x.device)
    g = torch.searchsorted(off, n, right=True) - 1
    y = torch.zeros(off.shape[0] - 1, x.shape[1], dtype=x.dtype, device=x.device).index_add(0, g, x)
    return y / off.diff().clamp(min=1)[:, None]


@case(
    "fm_interaction",
    """
op fm_interaction<T: float>(x: T[B, F, D]) -> y: T[B] {
  s[b, d] = sum[f](x[b, f, d])
  q[b, d] = sum[f](x[b, f, d] ** 2)
  y[b]    = 0.5 * sum[d](s[b, d] ** 2 - q[b, d])
}""",
    dict(B=65536, F=26, D=16),
    dict(B=5, F=4, D=6),
    dtype="f32",
)
def _(x):
    return 0.5 * (x.sum(1) ** 2 - (x**2).sum(1)).sum(1)


@case(
    "dlrm_interaction",
    """
op dlrm_interaction<T: float>(x: T[B, F, D], li: i32[P], lj: i32[P]) -> y: T[B, P] {
  z[b, i, j] = sum[d](x[b, i, d] * x[b, j, d])
  y[b, p]    = z[b, li[p], lj[p]] else 0
}""",
    dict(B=16384, F=27, D=128, P=351),
    dict(B=3, F=4, D=6, P=6),
    fill={
        n: (
            lambda m, k=k: torch.tril_indices(m.sizes["F"], m.sizes["F"], -1)[k].to(
                m.device, m.dtype
            )
        )
        for k, n in enumerate(("li", "lj"))
    },
)
def _(x, li, lj):
    return (x @ x.mT)[:, li.long(), lj.long()]


@case(
    "clip_loss",
    """
op clip_loss<T: float>(a: T[N, D], c: T[N, D], scale: f32 = 10.0) -> loss: f32 {
  s[i, j] = scale * sum[d](a[i, d] * c[j, d])
  mi[i]   = max[j](s[i, j])
  mj[j]   = max[i](s[i, j])
  li[i]   = mi[i] + log(sum[j](exp(s[i, j] - mi[i]))) - s[i, i]
  lj[j]   = mj[j] + log(sum[i](exp(s[i, j] - mj[j]))) - s[j, j]
  loss    = 0.5 * (mean[i](li[i]) + mean[j](lj[j]))
}""",
    dict(N=8192, D=512),
    dict(N=7, D=12),
    fill={n: (lambda m: F.normalize(m.randn().float(), dim=-1).to(m.dtype)) for n in "ac"},
)
def _(a, c, scale=10.0):
    s = up(scale * (a @ c.mT))
    t = torch.arange(a.shape[0], device=a.device)
    return 0.5 * (F.cross_entropy(s, t) + F.cross_entropy(s.mT, t))


@case(
    "simclr_loss",
    """
op simclr_loss<T: float>(x: T[N, D], temp: f32 = 0.2) -> loss: f32 with N % 2 == 0 {
  r[i]    = rsqrt(sum[d](x[i, d] ** 2))
  u[i, d] = T(x[i, d] * r[i])
  s[i, j] = where(i == j, -inf, sum[d](u[i, d] * u[j, d]) / temp)
  m[i]    = max[j](s[i, j])
  lse[i]  = m[i] + log(sum[j](exp(s[i, j] - m[i])))
  loss    = mean[i](lse[i] - sum[d](u[i, d] * u[(i + N // 2) % N, d]) / temp)
}""",
    dict(N=8192, D=256),
    dict(N=8, D=12),
)
def _(x, temp=0.2):
    u = (up(x) * up(x).square().sum(-1, keepdim=True).rsqrt()).to(x.dtype)
    s = up(u @ u.mT) / temp
    s = s.masked_fill(torch.eye(x.shape[0], dtype=torch.bool, device=x.device), float("-inf"))
    t = (torch.arange(x.shape[0], device=x.device) + x.shape[0] // 2) % x.shape[0]
    return F.cross_entropy(s, t)


@case(
    "triplet_hard",
    """
op triplet_hard<T: float>(x: T[N, D], t: i64[N], margin: f32 = 0.3) -> loss: f32 {
  q[i]    = sum[d](x[i, d] ** 2)
  z[i, j] = q[i] + q[j] - 2 * sum[d](x[i, d] * x[j, d])
  far[i]  = max[j](where(t[j] == t[i], z[i, j], -inf))
  near[i] = min[j](where(t[j] == t[i], inf, z[i, j]))
  loss    = mean[i](relu(far[i] - near[i] + margin))
}""",
    dict(N=8192, D=256),
    dict(N=8, D=12),
    fill={"x": scaled(0.1), "t": ints(64)},
    tol=1e-4,
)
def _(x, t, margin=0.3):
    q = up(x).square().sum(-1)
    z = q[:, None] + q - 2 * up(x @ x.mT)
    same = t[:, None] == t
    far = z.masked_fill(~same, float("-inf")).amax(1)
    near = z.masked_fill(same, float("inf")).amin(1)
    return F.relu(far - near + margin).mean()


@case(
    "cosine_matrix",
    """
op cosine_matrix<T: float>(a: T[M, D], b: T[N, D], eps: f32 = 1e-8) -> y: T[M, N] {
  ra[m]   = max(sqrt(sum[d](a[m, d] ** 2)), eps)
  rb[n]   = max(sqrt(sum[d](b[n, d] ** 2)), eps)
  y[m, n] = sum[d](a[m, d] * b[n, d]) / (ra[m] * rb[n])
}""",
    dict(M=8192, N=8192, D=256),
    dict(M=5, N=7, D=12),
)
def _(a, b, eps=1e-8):
    return (a / up(a).norm(dim=1, keepdim=True).clamp(min=eps).to(a.dtype)) @ (
        b / up(b).norm(dim=1, keepdim=True).clamp(min=eps).to(b.dtype)
    ).mT


# ---- graphs and sequences -----------------------------------------------------------------------
@case(
    "gat_softmax",
    """
op gat_softmax<T: float>(h: T[N, D], al: f32[N], ar: f32[N], src: i64[E], off: i64[Q]) -> y: T[N, D] with Q == N + 1 {
  z[i, e] = leaky_relu((al[src[e]] else 0) + ar[i], 0.2)
  m[i < N] = max[off[i] <= e < off[i + 1]](z[i, e])
  p[i, e] = exp(z[i, e] - m[i])
  s[i < N] = sum[off[i] <= e < off[i + 1]](p[i, e])
  y[i, d] = sum[off[i] <= e < off[i + 1]](p[i, e] * (h[src[e], d] else 0)) / max(s[i], 1e-12)
}""",
    dict(N=8192, D=64, E=131072, Q=8193),
    dict(N=5, D=6, E=13, Q=6),
    dtype="f32",
    fill={"src": ints("N"), "off": lambda m: m.offsets(m.sizes["E"])},
)
def _(h, al, ar, src, off):
    n = h.shape[0]
    dst = torch.searchsorted(off, torch.arange(src.shape[0], device=h.device), right=True) - 1
    z = F.leaky_relu(al[src] + ar[dst], 0.2)
    m = torch.full((n,), -float("inf"), device=h.device, dtype=z.dtype).scatter_reduce(
        0, dst, z, "amax"
    )
    p = torch.exp(z - m[dst])
    s = torch.zeros(n, device=h.device, dtype=z.dtype).index_add(0, dst, p)
    return torch.zeros_like(h).index_add(0, dst, p[:, None] * h[src]) / s.clamp(min=1e-12)[:, None]


@case(
    "csr_spmm",
    """
op csr_spmm<T: float>(a: f32[E], col: i64[E], off: i64[Q], h: T[N, D]) -> y: T[N, D] with Q == N + 1 {
  y[i, d] = sum[off[i] <= e < off[i + 1]](a[e] * (h[col[e], d] else 0))
}""",
    dict(N=16384, D=64, E=262144, Q=16385),
    dict(N=5, D=6, E=13, Q=6),
    dtype="f32",
    fill={"col": ints("N"), "off": lambda m: m.offsets(m.sizes["E"])},
)
def _(a, col, off, h):
    dst = torch.searchsorted(off, torch.arange(col.shape[0], device=h.device), right=True) - 1
    return torch.zeros_like(h).index_add(0, dst, a[:, None] * h[col])


@case(
    "viterbi_step",
    """
op viterbi_step(s: f32[B, K], t: f32[K, K], e: f32[B, K]) -> (y: f32[B, K], at: i64[B, K]) {
  y[b, j]  = max[i](s[b, i] + t[i, j]) + e[b, j]
  at[b, j] = argmax[i](s[b, i] + t[i, j])
}""",
    dict(B=65536, K=64),
    dict(B=5, K=7),
    dtype="f32",
    grad=False,
)
def _(s, t, e):
    m, at = (s[:, :, None] + t).max(1)
    return m + e, at


@case(
    "crf_step",
    """
op crf_step(a: f32[B, K], t: f32[K, K], e: f32[B, K]) -> y: f32[B, K] {
  m[b, j] = max[i](a[b, i] + t[i, j])
  y[b, j] = m[b, j] + log(sum[i](exp(a[b, i] + t[i, j] - m[b, j]))) + e[b, j]
}""",
    dict(B=65536, K=64),
    dict(B=5, K=7),
    dtype="f32",
)
def _(a, t, e):
    return torch.logsumexp(a[:, :, None] + t, 1) + e


# ---- pairs of points ----------------------------------------------------------------------------
@case(
    "rbf_matvec",
    """
op rbf_matvec(x: f32[M, D], c: f32[N, D], v: f32[N, F], g: f32 = 0.05) -> y: f32[M, F] {
  qx[m]   = sum[d](x[m, d] ** 2)
  qc[n]   = sum[d](c[n, d] ** 2)
  z[m, n] = exp(-g * (qx[m] + qc[n] - 2 * sum[d](x[m, d] * c[n, d])))
  y[m, f] = sum[n](z[m, n] * v[n, f])
}""",
    dict(M=16384, N=16384, D=32, F=16),
    dict(M=5, N=7, D=4, F=3),
    dtype="f32",
    tol=3e-5,
)
def _(x, c, v, g=0.05):
    z = x.square().sum(1)[:, None] + c.square().sum(1) - 2 * x @ c.mT
    return torch.exp(-g * z) @ v


@case(
    "n_body",
    """
op n_body(x: f32[N, 3], w: f32[N], eps: f32 = 0.01) -> f: f32[N, 3] {
  r[i, j] = (x[j, 0] - x[i, 0]) ** 2 + (x[j, 1] - x[i, 1]) ** 2 + (x[j, 2] - x[i, 2]) ** 2 + eps
  k[i, j] = w[j] * rsqrt(r[i, j]) ** 3
  f[i, c] = sum[j](k[i, j] * (x[j, c] - x[i, c]))
}""",
    dict(N=8192),
    dict(N=7),
    dtype="f32",
    fill={"w": between(0.1, 1)},
)
def _(x, w, eps=0.01):
    d = x[None] - x[:, None]
    r = d.square().sum(-1) + eps
    return ((w * r.rsqrt() ** 3)[..., None] * d).sum(1)


@case(
    "splats",
    """
op splats(p: f32[P, 2], mu: f32[G, 2], s: f32[G, 3], o: f32[G], col: f32[G, 3]) -> y: f32[P, 3] {
  dx[i, g] = p[i, 0] - mu[g, 0]
  dy[i, g] = p[i, 1] - mu[g, 1]
  a[i, g]  = o[g] * exp(-0.5 * (s[g, 0] * dx[i, g] ** 2 + s[g, 2] * dy[i, g] ** 2) - s[g, 1] * dx[i, g] * dy[i, g])
  y[i, c]  = sum[g](a[i, g] * col[g, c])
}""".replace("dx", "ux").replace("dy", "uy"),
    dict(P=65536, G=2048),
    dict(P=7, G=5),
    dtype="f32",
    fill={"s": between(0.2, 1)},
    detached=("p",),
)
def _(p, mu, s, o, col):
    d = p[:, None] - mu
    e = (
        -0.5 * (s[:, 0] * d[..., 0] ** 2 + s[:, 2] * d[..., 1] ** 2)
        - s[:, 1] * d[..., 0] * d[..., 1]
    )
    return (o * torch.exp(e)) @ col


@case(
    "chamfer",
    """
op chamfer(a: f32[B, N, 3], c: f32[B, M, 3]) -> (da: f32[B, N], db: f32[B, M]) {
  z[b, i, j] = (a[b, i, 0] - c[b, j, 0]) ** 2 + (a[b, i, 1] - c[b, j, 1]) ** 2 + (a[b, i, 2] - c[b, j, 2]) ** 2
  da[b, i]   = min[j](z[b, i, j])
  db[b, j]   = min[i](z[b, i, j])
}""".replace("da", "na").replace("db", "nc"),
    dict(B=8, N=4096, M=4096),
    dict(B=2, N=6, M=5),
    dtype="f32",
)
def _(a, c):
    z = (a[:, :, None] - c[:, None]).square().sum(-1)
    return z.amin(2), z.amin(1)


@case(
    "sinkhorn",
    """
op sinkhorn(c: f32[N, M], g: f32[M], eps: f32 = 0.1) -> (f: f32[N], h: f32[M]) {
  mi[i] = max[j]((g[j] - c[i, j]) / eps)
  f[i]  = -eps * (mi[i] + log(sum[j](exp((g[j] - c[i, j]) / eps - mi[i]))))
  mj[j] = max[i]((f[i] - c[i, j]) / eps)
  h[j]  = -eps * (mj[j] + log(sum[i](exp((f[i] - c[i, j]) / eps - mj[j]))))
}""",
    dict(N=8192, M=4096),
    dict(N=6, M=5),
    dtype="f32",
    fill={"c": between(0, 1), "g": scaled(0.1)},
    tol=1e-4,
)
def _(c, g, eps=0.1):
    f = -eps * torch.logsumexp((g - c) / eps, 1)
    return f, -eps * torch.logsumexp((f[:, None] - c) / eps, 0)


# ---- science and linear algebra -----------------------------------------------------------------
@case(
    "heat2d",
    """
op heat2d(u: f32[H, W], k: f32[H, W], dt: f32 = 0.1) -> v: f32[H, W] {
  v[i, j] = u[i, j] + dt * k[i, j] * ((u[i - 1, j] else 0) + (u[i + 1, j] else 0) + (u[i, j - 1] else 0) + (u[i, j + 1] else 0) - 4 * u[i, j])
}""",
    dict(H=4096, W=4096),
    dict(H=5, W=7),
    dtype="f32",
)
def _(u, k, dt=0.1):
    p = F.pad(u, (1, 1, 1, 1))
    return u + dt * k * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * u)


@case(
    "laplacian3d",
    """
op laplacian3d(u: f32[D, H, W], w: f32[D, H, W], c: f32 = 0.2) -> v: f32[D, H, W] {
  v[k, i, j] = 2 * u[k, i, j] - w[k, i, j] + c * (u[(k + D - 1) % D, i, j] + u[(k + 1) % D, i, j] + u[k, (i + H - 1) % H, j] + u[k, (i + 1) % H, j] + u[k, i, (j + W - 1) % W] + u[k, i, (j + 1) % W] - 6 * u[k, i, j])
}""",
    dict(D=256, H=256, W=256),
    dict(D=3, H=4, W=5),
    dtype="f32",
)
def _(u, w, c=0.2):
    near = sum(torch.roll(u, s, d) for d in range(3) for s in (1, -1))
    return 2 * u - w + c * (near - 6 * u)


@case(
    "lu_update",
    """
op lu_update(a: f32[N, N], k: i64[1]) -> y: f32[N, N] {
  p       = k[0]
  y[i, j] = where(i > p and j > p, a[i, j] - (a[i, p] else 0) * (a[p, j] else 0) / (a[p, p] else 1), a[i, j])
}""",
    dict(N=4096),
    dict(N=6),
    dtype="f32",
    fill={
        "k": lambda m: torch.tensor([2], device=m.device),
        "a": lambda m: m.randn() + 4 * torch.eye(m.shape[0], device=m.device),
    },
    grad=False,
)
def _(a, k):
    i = torch.arange(a.shape[0], device=a.device)
    col, row = a.index_select(1, k), a.index_select(0, k)
    return torch.where((i[:, None] > k) & (i > k), a - col * row / row.index_select(1, k), a)


@case(
    "complex_matmul",
    """
op complex_matmul<T: float>(ar: T[M, K], ai: T[M, K], br: T[K, N], bi: T[K, N]) -> (yr: T[M, N], yi: T[M, N]) {
  yr[m, n] = sum[k](ar[m, k] * br[k, n]) - sum[k](ai[m, k] * bi[k, n])
  yi[m, n] = sum[k](ar[m, k] * bi[k, n]) + sum[k](ai[m, k] * br[k, n])
}""",
    dict(M=4096, K=2048, N=4096),
    dict(M=5, K=6, N=7),
)
def _(ar, ai, br, bi):
    return ar @ br - ai @ bi, ar @ bi + ai @ br


@case(
    "complex_multiply",
    """
op complex_multiply(ar: f32[N, D], ai: f32[N, D], br: f32[D], bi: f32[D]) -> (yr: f32[N, D], yi: f32[N, D]) {
  yr[n, d] = ar[n, d] * br[d] - ai[n, d] * bi[d]
  yi[n, d] = ar[n, d] * bi[d] + ai[n, d] * br[d]
}""",
    dict(N=8192, D=2048),
    dict(N=5, D=6),
    dtype="f32",
)
def _(ar, ai, br, bi):
    return ar * br - ai * bi, ar * bi + ai * br


@case(
    "batched_16",
    """
op batched_16<T: float>(a: T[B, N, N], c: T[B, N, N]) -> y: T[B, N, N] {
  y[b, i, j] = sum[k](a[b, i, k] * c[b, k, j])
}""",
    dict(B=65536, N=16),
    dict(B=3, N=5),
    dtype="f32",
)
def _(a, c):
    return a @ c


@case(
    "kronecker",
    """
op kronecker<T: float>(x: T[B, N, M], a: T[N, N], c: T[M, M]) -> y: T[B, N, M] {
  t[b, i, l] = T(sum[k](a[i, k] * x[b, k, l]))
  y[b, i, j] = sum[l](t[b, i, l] * c[j, l])
}""",
    dict(B=8192, N=64, M=64),
    dict(B=3, N=5, M=4),
    fill={"a": scaled(0.125), "c": scaled(0.125)},
)
def _(x, a, c):
    return a @ x @ c.mT


@case(
    "log_mel",
    """
op log_mel(re: f32[B, F, S], im: f32[B, F, S], mel: f32[M, F]) -> y: f32[B, M, S] {
  y[b, m, t] = log(max(sum[f](mel[m, f] * (re[b, f, t] ** 2 + im[b, f, t] ** 2)), 1e-10))
}""",
    dict(B=32, F=201, S=3000, M=80),
    dict(B=2, F=6, S=5, M=3),
    dtype="f32",
    fill={"mel": between(0, 1)},
    detached=("mel",),
)
def _(re, im, mel):
    return torch.log((mel @ (re**2 + im**2)).clamp(min=1e-10))


@case(
    "stft_power",
    """
op stft_power(x: f32[B, L], w: f32[N], c: f32[N, F], s: f32[N, F], const hop: int = 160) -> y: f32[B, S, F] with S = (L - N) // hop + 1, L >= N {
  re[b, t < S, f] = sum[n](x[b, hop * t + n] * (w[n] * c[n, f]))
  im[b, t < S, f] = sum[n](x[b, hop * t + n] * (w[n] * s[n, f]))
  y[b, t, f]  = re[b, t, f] ** 2 + im[b, t, f] ** 2
}""",
    dict(B=32, L=480000, N=400, F=201, hop=160),
    dict(B=2, L=30, N=8, F=5, hop=4),
    dtype="f32",
    grad=False,
)
def _(x, w, c, s, hop=160):
    u = x.unfold(1, w.shape[0], hop) * w
    return (u @ c) ** 2 + (u @ s) ** 2


# ---- optimisers ---------------------------------------------------------------------------------
@case(
    "adamw",
    """
op adamw<T: float>(p: f32[N], g: T[N], m: f32[N], v: f32[N], step: f32 = 10.0, lr: f32 = 1e-3, wd: f32 = 0.1) -> (po: f32[N], mo: f32[N], vo: f32[N], h: T[N]) {
  mo[n] = 0.9 * m[n] + 0.1 * g[n]
  vo[n] = 0.95 * v[n] + 0.05 * g[n] ** 2
  a     = 1 - 0.9 ** step
  c     = 1 - 0.95 ** step
  po[n] = p[n] * (1 - lr * wd) - lr * (mo[n] / a) / (sqrt(vo[n] / c) + 1e-8)
  h[n]  = po[n]
  grad none
}""",
    dict(N=8388608),
    dict(N=20),
    fill={"v": between(0, 1)},
    grad=False,
)
def _(p, g, m, v, step=10.0, lr=1e-3, wd=0.1):
    u = up(g)
    mo, vo = 0.9 * m + 0.1 * u, 0.95 * v + 0.05 * u**2
    po = p * (1 - lr * wd) - lr * (mo / (1 - 0.9**step)) / (
        torch.sqrt(vo / (1 - 0.95**step)) + 1e-8
    )
    return po, mo, vo, po.to(g.dtype)


@case(
    "lion_ema",
    """
op lion_ema<T: float>(p: f32[N], g: T[N], m: f32[N], e: f32[N], lr: f32 = 1e-4, wd: f32 = 0.1) -> (po: f32[N], mo: f32[N], eo: f32[N]) {
  po[n] = p[n] * (1 - lr * wd) - lr * sign(0.9 * m[n] + 0.1 * g[n])
  mo[n] = 0.99 * m[n] + 0.01 * g[n]
  eo[n] = e[n] + 0.001 * (po[n] - e[n])
  grad none
}""",
    dict(N=8388608),
    dict(N=20),
    grad=False,
)
def _(p, g, m, e, lr=1e-4, wd=0.1):
    u = up(g)
    po = p * (1 - lr * wd) - lr * torch.sign(0.9 * m + 0.1 * u)
    return po, 0.99 * m + 0.01 * u, e + 0.001 * (po - e)


@case(
    "grad_norm_clip",
    """
op grad_norm_clip<T: float>(g: T[N], most: f32 = 1.0) -> (y: T[N], norm: f32) {
  s    = sum[n](f32(g[n]) ** 2)
  norm = sqrt(s)
  y[n] = g[n] * min(most / (norm + 1e-6), 1.0)
  grad none
}""",
    dict(N=33554432),
    dict(N=50),
    grad=False,
)
def _(g, most=1.0):
    norm = torch.linalg.vector_norm(up(g))
    return g * (most / (norm + 1e-6)).clamp(max=1.0).to(g.dtype), norm

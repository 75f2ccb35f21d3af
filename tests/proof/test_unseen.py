"""Specs that no part of the compiler was written for: built, run in every variant, held to the oracle.

Each op is one unusual combination: names that the emitter wants for itself, outputs read further down
at other places, gathers by computed indices, ranges that start late or end before they start, folds
of comparisons, scalars of each kind, digits and exact division, products in odd roles.
"""

from __future__ import annotations

import re

import pytest
import torch

FAST = """
op names1<T: float>(row: T[M, ROWS]) -> col: T[M, ROWS] {
  col[i, start] = row[i, start] / sum[k](row[i, k])
}
op names2<T: float>(inside: T[BLOCK, PARTS], rows: T[PARTS]) -> start: T[BLOCK, PARTS] {
  part[n] = sum[d](inside[n, d])
  parts[n] = max[d](inside[n, d] - part[n])
  start[n, d] = inside[n, d] * rows[d] - parts[n]
}
op names4<T: float>(m: T[BLOCK_M, BLOCK_K], n: T[BLOCK_N, BLOCK_K]) -> k: T[BLOCK_M, BLOCK_N] {
  k[acc, tile] = sum[pid](m[acc, pid] * n[tile, pid])
}
op names6<T: float>(m: T[M, N], n: T[N, K]) -> right: T[M, K] {
  right[tiles_m, k] = sum[group](m[tiles_m, group] * n[group, k])
}
op names7<T: float>(x: T[N, D], x_ptr: T[D], x_n: T[N]) -> y: T[N, D] {
  y_sum[n] = sum[d](x[n, d] * x_ptr[d])
  y[n, d] = y_sum[n] + x[n, d] + x_n[n] + sum[k](x_ptr[k])
}
op names9<T: float>(x: T[N, D], place: T[N], value: T[N])
    -> (i: i64[N], i_best: T[N], i_value: T[N]) {
  i[n] = argmax[d](x[n, d])
  i_best[n] = place[n] + 1
  i_value[n] = value[n] * max[d](x[n, d])
}
op names10<T: float>(x: T[..., D], batch: T[D], b: T[D]) -> batch_shape: T[..., D] {
  batch_shape[..., d] = x[..., d] * batch[d] + b[d] - mean[k](x[..., k])
}
op names12<T: float>(x: T[LOWEST, HIGHEST], s: f32 = 1.0, x_is_tensor: f32 = 2.0)
    -> s_is_tensor: T[LOWEST] {
  s_is_tensor[n] = s * x_is_tensor * max[d](x[n, d])
}
op kadd<T: float>(x: T[N, D]) -> (y: T[N, D], z: T[N, D]) {
  y[n, d] = x[n, d] * 1.1
  z[n, d] = y[n, d] + (y[n, d - 1] else 0)
}
op padded_relu<T: float>(x: T[N, D]) -> y: T[N, D] {
  h[n, d] = relu(x[n, d])
  y[n, d] = (h[n, d - 1] else 0) + (h[n, d + 2] else -inf)
}
op spread_pairs<T: float>(x: T[N, L], w: T[R], const stride: int = 2, const pad: int = 1) -> y: T[N, P]
    with P = (L // 2 - 1) * stride - 2 * pad + R {
  h[n, l < L // 2] = x[n, 2 * l] + x[n, 2 * l + 1]
  y[n, p] = sum[r]((h[n, (p + pad - r) / stride] else 0) * w[r])
}
op one_element<T: float>(x: T[N, D], shift: T[1, 1]) -> y: T[N, D] {
  y[n, d] = (x[n, d] - mean[k](x[n, k])) * shift[0, 0]
}
op single_terms<T: float>(x: T[N, D]) -> y: T[N, 1] {
  total[n, 0] = sum[d](x[n, d])
  top[n, 0] = max[j](total[n, j])
  y[n, 0] = log(sum[j](exp(top[n, j] - mean[k](top[n, k]))) + abs(prod[j](top[n, j])))
}
op batch_norm_softmax<T: float>(x: T[N, C], gain: T[C], bias: T[C]) -> y: T[N, C] {
  y = softmax(batch_norm_train(x, gain, bias))
}
op pool_of_sum<T: float>(x: T[N, C, H, W], b: T[C, 1, 1]) -> y: T[N, C, P, Q]
    with P = H // 2, Q = W // 2 {
  y = max_pool2d(x + b)
}
op biased_moments<T: float>(x: T[N, C, L], b: T[C]) -> (mu: T[N], var: T[N]) {
  h[n, c, l] = x[n, c, l] + b[c]
  mu[n] = mean[c, l](h[n, c, l])
  var[n] = mean[c, l]((h[n, c, l] - mu[n]) ** 2)
}
op topish<T: float>(x: T[N, D]) -> (y: T[N], z: T[N]) {
  i[n] = argmax[d](x[n, d])
  y[n] = x[n, i[n]] else 0
  z[n] = max[d](where(d == i[n], -inf, x[n, d]))
}
op grid_sample1<T: float>(x: T[N, D], at: f32[N, K]) -> y: T[N, K] {
  lo[n, k] = i64(floor(at[n, k]))
  f[n, k] = at[n, k] - floor(at[n, k])
  y[n, k] = (1 - f[n, k]) * (x[n, lo[n, k]] else 0) + f[n, k] * (x[n, lo[n, k] + 1] else 0)
}
op flip_sum<T: float>(x: T[N, D]) -> y: T[N] {
  y[n] = sum[i](x[n, i] * x[n, D - 1 - i])
}
op anyf<T: float>(x: T[N, D]) -> (a: bool[N], b: bool[N]) {
  a[n] = any[d](x[n, d] > 0.5)
  b[n] = all[d](isfinite(x[n, d]))
}
op prod_rows<T: float | int>(x: T[N, D]) -> y: T[N] {
  y[n] = T(prod[d](x[n, d]))
}
op frob<T: float>(x: T[...]) -> y: T[...] {
  s = sum[...](x[...] ** 2)
  y[...] = x[...] * rsqrt(s)
}
op moments_out<T: float>(x: T[N, D]) -> (mu: T[N], r: T[N], y: T[N, D]) {
  mu[n] = mean[d](x[n, d])
  r[n] = rsqrt(mean[d]((x[n, d] - mu[n]) ** 2) + 1e-5)
  y[n, d] = (x[n, d] - mu[n]) * r[n]
}
op minmax<T: float | int>(x: T[N, D]) -> (lo: T[N], hi: T[N], span: T[N]) {
  lo[n] = min[d](x[n, d])
  hi[n] = max[d](x[n, d])
  span[n] = hi[n] - lo[n]
}
op bool_scalar<T: float>(x: T[N], neg: bool = true) -> y: T[N] {
  y[n] = where(neg, -x[n], x[n])
}
op int_scalar2(x: i64[N], k: i64) -> (y: i64[N], z: i64[N]) {
  y[n] = x[n] // max(k, 1)
  z[n] = x[n] % max(k, 1)
}
op argmax2<T: float | int>(x: T[N, H, W]) -> i: i64[N] {
  i[n] = argmax[h, w](x[n, h, w])
}
op tail_norm<T: float>(x: T[N, D]) -> y: T[N, D] {
  s[n] = sum[k >= 3](x[n, k])
  y[n, d] = x[n, d] - s[n]
}
op band_mm<T: float>(x: T[M, K], w: T[K, N]) -> y: T[M, N] {
  y[m, n] = sum[k < 5](x[m, k] * w[k, n])
}
op lo_mm<T: float>(x: T[M, K], w: T[K, N]) -> y: T[M, N] {
  y[m, n] = sum[k >= 2](x[m, k] * w[k, n])
}
op exp_mm<T: float>(x: T[M, K], w: T[N, K]) -> y: T[M, N] {
  y[m, n] = sum[k](exp(x[m, k]) * w[n, k])
}
op einsum4<T: float>(a: T[I, J, K], b: T[K, J, L]) -> y: T[I, L] {
  y[i, l] = sum[j, k](a[i, j, k] * b[k, j, l])
}
op two_types<T: float, U: float>(x: T[N, D], w: U[D]) -> (y: T[N, D], z: U[N]) {
  y[n, d] = x[n, d] * w[d]
  z[n] = sum[d](x[n, d] * w[d])
}
op bag<T: float>(ix: i32[N, L], table: T[V, D]) -> y: T[N, D] {
  y[n, d] = mean[l](table[ix[n, l], d] else 0)
}
op take_along<T: float>(x: T[N, D], ix: i64[N, K]) -> y: T[N, K] {
  y[n, k] = x[n, ix[n, k]] else -1
}
op roll_neg<T: float>(x: T[N, D], const shift: int = -2) -> y: T[N, D] {
  y[n, i] = x[n, (i - shift) % D]
}
op pixel_shuffle<T: float>(x: T[N, C, H, W], const r: int = 2)
    -> y: T[N, F, P, Q]
    with C % (r * r) == 0, F = C // (r * r), P = H * r, Q = W * r {
  y[n, f, p, q] = x[n, f * r * r + p % r * r + q % r, p // r, q // r]
}
op zero_stuff<T: float>(x: T[N, H], const s: int = 2) -> y: T[N, P] with P = H * s {
  y[n, p] = x[n, p / s] else 0
}
op interp<T: float>(x: T[N, D]) -> y: T[N, E] with E = 2 * D - 1 {
  y[n, i] = 0.5 * (x[n, i // 2] + x[n, (i + 1) // 2])
}
op concat<T: float>(x: T[N, A], z: T[N, B]) -> y: T[N, D] with D = A + B {
  y[n, i] = where(i < A, x[n, i] else 0, z[n, i - A] else 0)
}
op mid_batch<T: float>(x: T[C, ..., D], w: T[D]) -> y: T[C, ..., D] {
  s[c, ...] = sum[d](x[c, ..., d])
  y[c, ..., d] = x[c, ..., d] * w[d] + s[c, ...]
}
op i8_mm_scale(x: i8[M, K], w: i8[N, K], s: f32[M]) -> (y: f32[M, N], a: i32[M, N]) {
  acc[m, n] = sum[k](x[m, k] * w[n, k])
  y[m, n] = acc[m, n] * s[m]
  a[m, n] = i32(acc[m, n]) + 1
}
op w8_mm<T: float>(x: T[M, K], w: i8[N, K], s: f32[N]) -> y: T[M, N] {
  y[m, n] = sum[k](x[m, k] * w[n, k]) * s[n]
}
op f8_mm(x: f8e4m3[M, K], w: f8e4m3[K, N], s: f32[M]) -> y: f32[M, N] {
  y[m, n] = sum[k](x[m, k] * w[k, n]) * s[m]
}
op three_mm<T: float>(x: T[B, M, K], u: T[K, N], v: T[N, K], w: T[K, N], b: T[N])
    -> (p: T[B, M, N], q: T[B, M, N]) {
  p[i, m, n] = sum[c](u[c, n] * x[i, m, c]) + b[n]
  q[i, m, n] = sum[d](x[i, m, d] * v[n, d]) * sum[e](x[i, m, e] * w[e, n]) + p[i, m, n]
}
op u8_ops(a: u8[N], b: u8[N]) -> (s: u8[N], d: i32[N], m: u8[N]) {
  s[n] = u8(a[n] + b[n])
  d[n] = i32(a[n]) - i32(b[n])
  m[n] = max(a[n], b[n])
}
op floors(a: i32[N], b: i32[N]) -> (q: i32[N], r: i32[N], e: bool[N]) {
  q[n] = a[n] // max(b[n], 1)
  r[n] = a[n] % max(b[n], 1)
  e[n] = a[n] % 3 == 1
}
op boolmix(a: bool[N], b: bool[N]) -> (c: bool[N], d: bool[N], e: bool[N], f: bool[N]) {
  c[n] = a[n] and b[n]
  d[n] = a[n] or not b[n]
  e[n] = a[n] == b[n]
  f[n] = a[n] != b[n]
}
op outer_bcast<T: float>(x: T[B, N], p: T[1, N, 1, 1]) -> y: T[1, N, B, 1] {
  mn[b] = min[n](x[b, n])
  y[0, n, b, 0] = mn[b] + p[0, n, 0, 0]
}
op one_place<T: float>(x: T[N, F], s: T[F, 1, 1, 1]) -> y: T[N, 1, 1, 1] {
  h[n, f] = x[n, f] * 2
  y[n, 0, 0, 0] = sum[f](h[n, f] + s[f, 0, 0, 0])
}
op const_bf<T: float>(x: T[N, D], const causal: bool = true, const scale: float = 0.5) -> y: T[N, D] {
  y[n, d] = where(causal and d > n, 0, x[n, d] * scale)
}
op win_sum<T: float>(x: T[N, D], const w: int = 3) -> y: T[N, D] {
  y[n, d] = sum[d - w < k <= d](x[n, k])
}
op mm_out_read<T: float>(x: T[M, K], w: T[K, N]) -> (y: T[M, N], z: T[M, N], s: T[N]) {
  y[m, n] = sum[k](x[m, k] * w[k, n])
  z[m, n] = tanh(y[m, n])
  s[n] = sum[m](z[m, n])
}
op read_rounded2<T: float>(x: T[N, D]) -> (e: T[N, D], s: T[N], y: T[N, D]) {
  e[n, d] = exp(x[n, d])
  s[n] = sum[d](e[n, d])
  y[n, d] = e[n, d] / s[n]
}
op gather_mm<T: float>(ix: i64[M], table: T[V, K], w: T[N, K]) -> y: T[M, N] {
  y[m, n] = sum[k]((table[ix[m], k] else 0) * w[n, k])
}
op bilinear<T: float>(x: T[B, I], y: T[B, J], w: T[O, I, J]) -> z: T[B, O] {
  z[b, o] = sum[i, j](x[b, i] * w[o, i, j] * y[b, j])
}
op apart_k<T: float>(x: T[M, B, P, Q], w: T[B, N, P, Q]) -> y: T[M, N] {
  y[m, n] = sum[b, p, q](x[m, b, p, q] * w[b, n, p, q])
}
op mixed_all<T: float>(x: T[B, M, P, Q], w: T[B, N, P, R, Q]) -> y: T[N, P, M, R] {
  y[n, p, m, r] = sum[b, q](x[b, m, p, q] * w[b, n, p, r, q])
}
op batch_bool<T: float>(x: T[...]) -> (y: T[...], m: T) {
  m = max[...](x[...])
  y[...] = where(x[...] == m, 0, x[...])
}
op out_elsewhere<T: float>(x: T[N, D]) -> (y: T[N, D], z: T[N]) {
  y[n, d] = x[n, d] + 1
  z[n] = sum[d](y[n, D - 1 - d] * y[n, d])
}
op tmp_shift<T: float>(x: T[N, D]) -> y: T[N] {
  s[n] = sum[d](x[n, d])
  y[n] = s[n] * (s[N - 1 - n]) + (s[n + 1] else 1)
}
op gnames<T: float>(x: T[N, F], f0: T[F], f1: T[F], f2: T[N], const g: int = 2)
    -> y: T[N, F]
    with F % g == 0 {
  s[n, a < g] = sum[r < F // g](x[n, a * (F // g) + r])
  y[n, f] = x[n, f] * f0[f] + f1[f] + s[n, f // (F // g)] + f2[n]
}
op f2<T: float>(x: T[N, D], f0: T[N], f1: T[N], d2: T[N]) -> y: T[N, D] {
  s[n] = sum[d](x[n, d])
  y[n, d] = x[n, d] + f0[n] * f1[n] + s[n] + d2[n]
}
op crop_pool<T: float>(x: T[N, H, W], const k: int = 2)
    -> y: T[N, P]
    with H >= 4, P = (W - k) // k + 1 {
  y[n, p] = min[r < 4, s < k](x[n, r, p * k + s])
}
op pool_stats<T: float>(x: T[N, C, H, W], b: T[C], z: T[N, C, P, Q], const win: int = 3, const stride: int = 2)
    -> (y: T[N, C, P, Q], m: T[N, C, P, Q])
    with stride >= 1, P == (H - win) // stride + 1, Q == (W - win) // stride + 1 {
  a[n, c, h, w] = relu(x[n, c, h, w] + b[c])
  s[n, c, p < P, q < Q] = mean[r < win, k < win](a[n, c, p * stride + r, q * stride + k])
  m[n, c, p, q] = max[r < win, k < win](a[n, c, p * stride + r, q * stride + k])
  y[n, c, p, q] = sigmoid(s[n, c, p, q]) * m[n, c, p, q] + z[n, c, p, q]
}
op sliding_std<T: float>(x: T[..., L], const win: int = 4) -> y: T[..., K] with K = L - win + 1 {
  m[..., k < K] = mean[r < win](x[..., k + r])
  v[..., k < K] = mean[r < win]((x[..., k + r] - m[..., k]) ** 2)
  y[..., k] = sqrt(v[..., k])
}
op depthwise_nhwc<T: float>(x: T[N, H, W, C], w: T[R, S, C]) -> y: T[N, P, Q, C]
    with P = H - R + 1, Q = W - S + 1 {
  y[n, p, q, c] = silu(sum[r, s](x[n, p + r, q + s, c] * w[r, s, c]))
}
op pool_with_place<T: float>(x: T[N, H, W], const win: int = 2) -> (v: T[N, P, Q], i: i64[N, P, Q])
    with P = H // win, Q = W // win {
  v[n, p, q] = max[r < win, s < win](x[n, p * win + r, q * win + s])
  i[n, p, q] = argmax[r < win, s < win](x[n, p * win + r, q * win + s])
}
op depthwise_up<T: float>(x: T[N, C, H], w: T[C, R], const stride: int = 2, const pad: int = 1)
    -> y: T[N, C, P]
    with P = (H - 1) * stride - 2 * pad + R {
  y[n, c, p] = sum[r]((x[n, c, (p + pad - r) / stride] else 0) * w[c, r])
}
op pool_backwards<T: float>(x: T[N, L], const win: int = 3) -> y: T[N, L] {
  y[n, l] = max[r < win](x[n, L - 1 - l - r] else -inf)
}
op two_windows<T: float>(x: T[N, H, W]) -> y: T[N, P, Q] with P = H - 2, Q = W - 2 {
  y[n, p, q] = sum[r < 3](x[n, p + r, q]) + max[s < 3](x[n, p, q + s])
}
op number_in_product<T: float>(x: T[M, K], w: T[N, K], alpha: f32 = 2.0) -> y: T[M, N] {
  each = alpha / K
  y[m, n] = sum[k](x[m, k] * each * w[n, k])
}
op diagonals<T: float>(x: T[M, M]) -> y: T[K] with K = 2 * M - 1 {
  y[k] = sum[j < M](x[j + k + 1 - M, j] else 0)
}
op bytes_mm(a: u8[M, K], b: i8[K, N]) -> y: i64[M, N] {
  y[m, n] = sum[k](a[m, k] * b[k, n])
}
op upper_mm(a: i8[N, N], b: i8[N, M]) -> y: i64[N, M] {
  y[i, m] = sum[k > i](a[i, k] * b[k, m])
}
op late_mms<T: float>(a: T[M, K], b: T[K, N], c: T[K, N]) -> y: T[M, N] {
  y[m, n] = sum[k >= 3](a[m, k] * b[k, n]) * sum[k >= 3](a[m, k] * c[k, n])
}
op grouped_scores<T: float>(q: T[B, H, S, E], k: T[B, G, L, E]) -> y: T[B, H, S, L] with H % G == 0 {
  y[b, h, i, j] = sum[e](q[b, h, i, e] * k[b, h // (H // G), j, e])
}
op cosines<T: float>(x: T[N, D], w: T[M, D]) -> y: T[N, M] {
  y[n, m] = sum[d](x[n, d] * w[m, d]) * rsqrt(sum[d](x[n, d] ** 2) * sum[d](w[m, d] ** 2) + 1e-5)
}
op depth_multiplier<T: float>(x: T[N, C, L], w: T[F, R]) -> y: T[N, F, P]
    with F % C == 0, P = L - R + 1 {
  y[n, f, p] = sum[r](x[n, f // (F // C), p + r] * w[f, r])
}
op turn_pairs<T: float>(x: T[N, D], a: f32[K], b: f32[K]) -> y: T[N, D] with D == 2 * K {
  y[n, d] = x[n, d] * a[d // 2] + where(d % 2 == 0, -1, 1) * x[n, d // 2 * 2 + 1 - d % 2] * b[d // 2]
}
op three_in_a_row<T: float>(a: T[M, K], b: T[K, L], c: T[L, N]) -> y: T[M, N] {
  y[m, n] = 2 * sum[k, l](a[m, k] * b[k, l] * c[l, n])
}
op gram<T: float>(x: T[N, D]) -> y: T[N, N] {
  y[i, j] = sum[d](x[i, d] * x[j, d])
}
op any_number<T: int | bool>(x: T[N, D]) -> (hi: T[N], odd: T[N]) {
  hi[n] = max[d](x[n, d])
  odd[n] = T(sum[d](x[n, d]) % 2)
}
op apart_in_a_line<T: float>(x: T[N, L]) -> y: T[N, P] with P = L // 2 {
  y[n, p] = sum[r < 2](x[n, 2 * p + r]) - 3 * sum[s < 2]((x[n, 2 * p + s + 2] else 0))
}
op bare_numbers<T: int>(a: T[N], b: T[N]) -> (y: i64[N], z: f32[N]) {
  y[n] = relu(a[n]) % max(b[n], 1) + clamp(a[n], 2, 9) // max(3, b[n])
  z[n] = f32(shift_left(a[n], 2)) + f32(shift_right(9, bit_and(b[n], 3)))
}
op filled<T: float>(b: T[N]) -> (y: T[N, M], z: T[N]) with M = N + 1 {
  y[n, m] = 0.5
  z[n] = 2 * b[n]
}
op spread_fold<T: float>(b: T[K], x: T[N, M]) -> (y: T[N, M], z: T[N]) {
  y[n, m] = max[k](b[k])
  z[n] = max[m](x[n, m])
}
op batches_of_sums<T: float>(w: T[..., N, D], z: T[..., N, D]) -> (m: i64[..., N, D], y: T[..., N, D]) {
  m[..., n < N, d] = argmax[n <= k < N](w[..., k, d])
  y[..., k, d] = z[..., k, d] + sum[n <= k](where(k == m[..., n, d], z[..., n, d], 0))
}
op tile_and_scalar<T: float>(x: T[N], s: f32 = 1.0) -> y: T[N] {
  y[n] = where(x[n] > 0 and s > 0.5, x[n], -x[n])
}
"""

SLOW = """
op segsum<T: float>(x: T[E, D], off: i64[S1]) -> y: T[S, D] with S = S1 - 1 {
  y[s, d] = sum[off[s] <= k < off[s + 1]](x[k, d])
}
op cummax<T: float | int>(x: T[N, D]) -> (v: T[N, D], i: i64[N, D]) {
  v[n, d] = max[k <= d](x[n, k])
  i[n, d] = argmax[k <= d](x[n, k])
}
op conv_smax_pool<T: float>(x: T[N, C, H, W], w: T[F, C, R, S], b: T[F])
    -> y: T[N, F, P, Q]
    with P = (H - R + 1) // 2, Q = (W - S + 1) // 2 {
  a[n, f, p < H - R + 1, q < W - S + 1] = b[f] + sum[c, r, s](x[n, c, p + r, q + s] * w[f, c, r, s])
  m[n, p, q] = max[f](a[n, f, p, q])
  e[n, f, p, q] = exp(a[n, f, p, q] - m[n, p, q])
  z[n, p, q] = sum[f](e[n, f, p, q])
  y[n, f, p, q] = max[r < 2, s < 2](e[n, f, 2 * p + r, 2 * q + s] / z[n, 2 * p + r, 2 * q + s])
}
op conv_gn<T: float>(x: T[N, C, H, W], w: T[F, C, R, S], b: T[F], gain: T[F], bias: T[F])
    -> y: T[N, F, P, Q]
    with P = H - R + 1, Q = W - S + 1, F % 2 == 0 {
  y = silu(group_norm(conv2d(x, w, b), gain, bias, groups = 2))
}
op conv3_lse<T: float>(x: T[N, C, D, H, W], w: T[F, C, R, S, U], b: T[F])
    -> y: T[N, 1, O, P, Q]
    with O = D - R + 1, P = H - S + 1, Q = W - U + 1 {
  a[n, f, o < O, p < P, q < Q] = b[f] + sum[c, r, s, t](x[n, c, o + r, p + s, q + t] * w[f, c, r, s, t])
  m[n, o, p, q] = max[f](a[n, f, o, p, q])
  y[n, 0, o, p, q] = relu(m[n, o, p, q] + log(sum[f](exp(a[n, f, o, p, q] - m[n, o, p, q]))))
}
op conv_t_pool_tanh<T: float>(x: T[N, C, H, W], w: T[C, F, R, S], b: T[F])
    -> y: T[N, F, 1, 1]
    with P = H + R - 1, Q = W + S - 1 {
  a[n < N, f, p < P, q < Q] = b[f] + sum[c, r, s]((x[n, c, p - r, q - s] else 0) * w[c, f, r, s])
  t[n, f, p < P // 2, q < Q // 2] = max[r < 2, s < 2](a[n, f, 2 * p + r, 2 * q + s])
  h[n, f, p < P // 2, q < Q // 2] = hardtanh(t[n, f, p, q])
  y[n, f, 0, 0] = tanh(mean[p, q](h[n, f, p, q]))
}
op conv_t_group<T: float>(x: T[N, C, L], w: T[C, Fg, R], const groups: int = 2, const stride: int = 2)
    -> y: T[N, F, P]
    with F = groups * Fg, P = (L - 1) * stride + R, C % groups == 0 {
  y[n, f, p] = sum[c < C // groups, r]((x[n, f // Fg * (C // groups) + c, (p - r) / stride] else 0) * w[f // Fg * (C // groups) + c, f % Fg, r])
}
op conv_t_diagonal<T: float>(x: T[N, C, H, W], w: T[C, F, R, S]) -> y: T[N, F, P, Q]
    with P = (H - 1) * 2 + R, Q = (W - 1) * 2 + S {
  y[n, f, p, q] = sum[c, r, s]((x[n, c, (q - r) / 2, (q - s) / 2] else 0) * w[c, f, r, s])
}
op conv_moved<T: float>(x: T[N, C, L], w: T[F, C, R], const stride: int = 1) -> y: T[N, F, P]
    with P = (L - R) // stride + 1 {
  y[n, f, p] = sum[c, r]((x[n, c, p - stride + r] else 0) * w[f, c, r])
}
op unread_product<T: float>(x: T[M, K], w: T[N, K], u: T[N, K], v: T[M, N]) -> y: T[M, N] {
  gate[m, n] = sum[k](x[m, k] * w[n, k])
  up[m, n] = sum[k](x[m, k] * u[n, k])
  y[m, n] = v[m, n] * up[m, n]
}
op causal_attn<T: float>(q: T[B, S, E], k: T[B, L, E], v: T[B, L, E], scale: f32 = 0.5)
    -> o: T[B, S, E] {
  s[b, i, j] = where(j <= i, scale * sum[e](q[b, i, e] * k[b, j, e]), -inf)
  m[b, i] = max[j](s[b, i, j])
  p[b, i, j] = exp(s[b, i, j] - m[b, i])
  o[b, i, e] = sum[j](p[b, i, j] * v[b, j, e]) / sum[j](p[b, i, j])
}
op mlp<T: float>(x: T[..., K], w: T[H, K], v: T[H, K], u: T[K, H]) -> y: T[..., K] {
  a[..., h] = sum[k](x[..., k] * w[h, k])
  b[..., h] = sum[k](x[..., k] * v[h, k])
  c[..., h] = silu(a[..., h]) * b[..., h]
  y[..., k] = x[..., k] + sum[h](c[..., h] * u[k, h])
}
op argmax_all<T: float>(x: T[N, D]) -> i: i64 {
  i = argmax[n, d](x[n, d])
}
op lin_gn_min<T: float>(x: T[B, K], w: T[N, K], b: T[N], gain: T[N], bias: T[N], p: T[1, N, 1, 1])
    -> y: T[1, N, B, 1]
    with N % 2 == 0 {
  h = linear(x, w, b)
  g = group_norm(h, gain, bias, groups = 2)
  mn[i] = min[j](g[i, j])
  y[0, n, i, 0] = mn[i] + p[0, n, 0, 0]
}
op sep_conv<T: float>(x: T[N, C, H, W], w: T[C, R, S], v: T[F, C])
    -> y: T[N, F, P, Q]
    with P = H - R + 1, Q = W - S + 1 {
  d[n, c, p < P, q < Q] = sum[r, s](x[n, c, p + r, q + s] * w[c, r, s])
  y[n, f, p, q] = sum[c](v[f, c] * d[n, c, p, q])
}
op instance_norm_clamp<T: float>(x: T[N, C, H, W], p: T[C, 1, 1]) -> y: T[N, H, W] {
  a = x * p
  mu[n, c] = mean[h, w](a[n, c, h, w])
  va[n, c] = mean[h, w]((a[n, c, h, w] - mu[n, c]) ** 2)
  z[n, c, h, w] = clamp((a[n, c, h, w] - mu[n, c]) * rsqrt(va[n, c] + 1e-5), -1, 1)
  y[n, h, w] = max[c](z[n, c, h, w] * p[c, 0, 0])
}
op nearest<T: float>(a: T[M, K], b: T[N, K]) -> i: i64[M] {
  d[m, n] = sum[k]((a[m, k] - b[n, k]) ** 2)
  i[m] = argmin[n](d[m, n])
}
op gemm_softmax<T: float>(x: T[M, K], w: T[N, K], b: T[N]) -> y: T[M, N] {
  a[m, n] = gelu(sum[k](x[m, k] * w[n, k]) + b[n])
  mx[m] = max[n](a[m, n])
  e[m, n] = exp(a[m, n] - mx[m])
  y[m, n] = e[m, n] / sum[j](e[m, j])
}
op median_ish<T: float>(x: T[N, D]) -> y: T[N] {
  r[n, d] = sum[k](i64(x[n, k] < x[n, d] or x[n, k] == x[n, d] and k < d))
  y[n] = sum[d](where(r[n, d] == D // 2, x[n, d], 0))
}
op two_mm<T: float>(x: T[M, K], w: T[H, K], v: T[N, H]) -> y: T[M] {
  h[m, j] = sigmoid(sum[k](x[m, k] * w[j, k]))
  z[m, n] = sum[j](h[m, j] * v[n, j])
  mx[m] = max[n](z[m, n])
  y[m] = mx[m] + log(sum[n](exp(z[m, n] - mx[m])))
}
op bn_any<T: float>(x: T[N, C, ...], gain: T[C]) -> y: T[N, C, ...] {
  mu[c] = mean[n, ...](x[n, c, ...])
  va[c] = mean[n, ...]((x[n, c, ...] - mu[c]) ** 2)
  y[n, c, ...] = (x[n, c, ...] - mu[c]) * rsqrt(va[c] + 1e-5) * gain[c]
}
op convs_last<T: float>(x: T[N, H, C], w: T[C, F, R], g: T[N, P, F]) -> (y: T[N, H, C], z: T[C, F, R])
    with P == 2 * H + R - 3 {
  y[n, h, c] = sum[f, r]((g[n, 2 * h + r - 1, f] else 0) * w[c, f, r])
  z[c, f, r] = sum[n, p](g[n, p, f] * (x[n, (p + 1 - r) / 2, c] else 0))
}
op grouped_weights<T: float>(x: T[N, C, L], g: T[N, F, P], like: T[F, Cg, R], const groups: int = 2)
    -> y: T[F, Cg, R]
    with C == groups * Cg, F % groups == 0, P == L - R + 3 {
  y[f, c, r] = sum[n, p](g[n, f, p] * (x[n, f // (F // groups) * Cg + c, p + r - 1] else 0))
}
"""


def by_name(text: str) -> dict[str, str]:
    """The ops of a text, one entry each."""
    found = re.split(r"(?m)^(?=op )", text.strip())
    return {re.match(r"op (\w+)", op)[1]: op for op in found if op}


def proven(interpreter, text: str, name: str, seconds: float):
    job = {
        "text": text,
        "name": name,
        "device": "cpu",
        "examples": 3,
        "seed": 0,
        "seconds": seconds,
    }
    report = interpreter.ask(job, timeout=120)
    shown = "\n".join(
        f"{f['variant']}: {f['problem']}\n    {f['call']}" for f in report["failures"]
    )
    assert not report["failures"], shown
    assert report["examples"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", by_name(FAST))
def test_unseen(interpreter, name):
    proven(interpreter, by_name(FAST)[name], name, seconds=4)


@pytest.mark.slow
@pytest.mark.parametrize("name", by_name(SLOW))
def test_unseen_and_larger(interpreter, name):
    proven(interpreter, by_name(SLOW)[name], name, seconds=10)


def test_an_op_called_as_another_ones_kernel():
    """The functions of a module have names of their own, whatever the ops are called."""
    import ast

    from tritongen import pipeline

    ops = "".join(
        f"op {name}<T: float>(x: T[N, D]) -> y: T[N] {{\n  y[n] = sum[d](x[n, d])\n}}\n"
        for name in ("a", "a_rows", "a_y_loop")
    )
    tree = ast.parse(pipeline.build(ops, "several").raw)
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert len(names) == len(set(names))


PRODUCT = (
    "op y<T: float>(x: T[M, K], w: T[N, K]) -> y: T[M, N] { y[m, n] = sum[k](x[m, k] * w[n, k]) }"
)
SHIFTED = """op m<T: float>(x: T[N, D]) -> y: T[N, D] {
  m[n] = max[d](x[n, d])
  y[n, d] = x[n, d] - m[n]
}"""


@pytest.mark.parametrize("text", [PRODUCT, SHIFTED])
def test_no_local_name_hides_a_kernel(text):
    """An op called as what it computes: the tiles of y, and the parts of m, are not what kernels are called."""
    import ast

    from tritongen import pipeline

    tree = ast.parse(pipeline.build(text).raw)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    stored = {
        node.id
        for f in functions
        for node in ast.walk(f)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    assert not stored & {f.name for f in functions if "_" in f.name}


def test_two_ops_of_a_file_may_pad():
    from tritongen import pipeline
    from tritongen.runtime.load import load_text

    ops = "".join(
        f"op {name}<T: float>(x: T[N, D]) -> y: T[N, D] {{\n  y[n, d] = x[n, d - 1] else 0\n}}\n"
        for name in ("one", "other")
    )
    module = load_text("several", pipeline.build(ops, "several").raw)
    x = torch.randn(3, 4)
    for op in (module.one, module.other):
        assert torch.equal(op(x), torch.nn.functional.pad(x[:, :-1], (1, 0)))


@pytest.mark.parametrize(
    "name, steps",
    [
        ("batch_norm_softmax", ["rows", "rows"]),  # the columns' statistics are pasted
        ("pool_of_sum", ["window"]),  # not rows of 4 terms
        ("single_terms", ["rows"]),  # a reducer over one term is that term
        ("bytes_mm", ["rows"]),  # tl.dot takes no unsigned bytes
        ("upper_mm", ["contraction"]),  # though k begins at 1
        ("late_mms", ["contraction"]),
        ("grouped_scores", ["contraction"]),  # over two digits of h
        ("three_in_a_row", ["contraction", "contraction"]),  # not K * L terms for each
        ("cosines", ["rows", "rows", "contraction"]),  # whatever order the sums are written in
    ],
)
def test_planned_as(name, steps):
    from tritongen import pipeline

    ((plan,),) = pipeline.build(by_name(FAST)[name], "<text>").plans.values()
    assert [step.skeleton for step in plan.steps] == steps

import torch
import triton
import triton.language as tl

import tritongen


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, S, L, scale,
    E: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    m, e = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, E)
    rows = (head * S + m[:, None]) * E + e[None, :]
    q = tl.load(q_ptr + rows, mask=m[:, None] < S, other=0.0)
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, E), tl.float32)
    for start in range(0, L, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        at = (head * L + n[:, None]) * E + e[None, :]
        k = tl.load(k_ptr + at, mask=n[:, None] < L, other=0.0)
        v = tl.load(v_ptr + at, mask=n[:, None] < L, other=0.0)
        s = tl.where(n[None, :] < L, tl.dot(q, k.T) * scale, -float("inf"))
        higher = tl.maximum(top, tl.max(s, 1))
        p, shrink = tl.exp(s - higher[:, None]), tl.exp(top - higher)
        total = total * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        top = higher
    tl.store(o_ptr + rows, acc / total[:, None], mask=m[:, None] < S)


def attention(q, k, v, scale):
    (B, H, S, E), L = q.shape, k.shape[2]
    q, k, v, o = q.contiguous(), k.contiguous(), v.contiguous(), torch.empty_like(q)
    grid = (triton.cdiv(S, 32), B * H)
    attention_kernel[grid](q, k, v, o, S, L, scale, E=E, BLOCK_M=32, BLOCK_N=32)
    return o


if __name__ == "__main__":
    q, k, v = (torch.randn(1, 2, n, 32).half() for n in (50, 70, 70))
    by_spec = tritongen.load("specs/attention.op").attention
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=0.2)
    torch.testing.assert_close(attention(q, k, v, 0.2), expected, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(by_spec(q, k, v, 0.2), expected, rtol=1e-2, atol=1e-2)

import torch
import triton
import triton.language as tl

import tritongen


@triton.jit
def grouped_kernel(
    x_ptr, w_ptr, off_ptr, y_ptr, M, N, K, E,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for expert in range(0, E):
        low, high = tl.load(off_ptr + expert), tl.load(off_ptr + expert + 1)
        # Experts that no row of this tile meets are skipped.
        if (high > tl.program_id(0) * BLOCK_M) & (low < (tl.program_id(0) + 1) * BLOCK_M):
            mine = (m >= low) & (m < high)
            for start in range(0, K, BLOCK_K):
                k = start + tl.arange(0, BLOCK_K)
                in_x = mine[:, None] & (k[None, :] < K)
                x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=in_x, other=0.0)
                in_w = (k[:, None] < K) & (n[None, :] < N)
                at = (expert * K + k[:, None]) * N + n[None, :]
                acc = tl.dot(x, tl.load(w_ptr + at, mask=in_w, other=0.0), acc)
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


def grouped(x, w, off):
    (M, K), (E, _, N) = x.shape, w.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    sizes = dict(BLOCK_M=16, BLOCK_N=16, BLOCK_K=16)
    grouped_kernel[grid](x.contiguous(), w.contiguous(), off, y, M, N, K, E, **sizes)
    return y


if __name__ == "__main__":
    x, w = torch.randn(40, 20).half(), torch.randn(3, 20, 24).half()
    off = torch.tensor([0, 10, 10, 40], dtype=torch.int32)
    by_spec = tritongen.load("specs/moe_linear.op").moe_linear
    parts = zip(x.split([10, 0, 30]), w, strict=True)
    expected = torch.cat([rows @ weights for rows, weights in parts])
    torch.testing.assert_close(grouped(x, w, off), expected, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(by_spec(x, w, off), expected, rtol=1e-2, atol=1e-2)

import torch
import triton
import triton.language as tl

import tritongen


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, y_ptr, M, N, K, a_m, a_k, b_k, b_n, y_m, y_n,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    # Programs walk tiles in groups of rows, so that tiles of b stay in the L2 cache.
    tile, tiles_m, tiles_n = tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP * tiles_n) * GROUP
    rows = min(tiles_m - first, GROUP)
    tile_m = first + tile % (GROUP * tiles_n) % rows
    tile_n = tile % (GROUP * tiles_n) // rows
    m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        in_a = (m[:, None] < M) & (k[None, :] < K)
        in_b = (k[:, None] < K) & (n[None, :] < N)
        a = tl.load(a_ptr + m[:, None] * a_m + k[None, :] * a_k, mask=in_a, other=0.0)
        b = tl.load(b_ptr + k[:, None] * b_k + n[None, :] * b_n, mask=in_b, other=0.0)
        acc = tl.dot(a, b, acc)
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y_ptr + m[:, None] * y_m + n[None, :] * y_n, acc, mask=inside)


def matmul(a, b):
    (M, K), (_, N) = a.shape, b.shape
    y = torch.empty((M, N), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(M, 64) * triton.cdiv(N, 64),)
    strides = (*a.stride(), *b.stride(), *y.stride())
    sizes = dict(BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, GROUP=8)
    matmul_kernel[grid](a, b, y, M, N, K, *strides, **sizes)
    return y


if __name__ == "__main__":
    a, b = torch.randn(100, 70).half(), torch.randn(70, 90).half()
    by_spec = tritongen.load("specs/matmul.op").matmul
    torch.testing.assert_close(matmul(a, b), a @ b, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(by_spec(a, b), a @ b, rtol=1e-2, atol=1e-2)

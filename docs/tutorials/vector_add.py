import torch
import triton
import triton.language as tl

import tritongen


@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside)
    y = tl.load(y_ptr + at, mask=inside)
    tl.store(z_ptr + at, x + y, mask=inside)


def add(x, y):
    assert x.shape == y.shape and x.is_contiguous() and y.is_contiguous()
    z = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, z, x.numel(), BLOCK=1024)
    return z


if __name__ == "__main__":
    x, y = torch.randn(2, 3000)
    by_spec = tritongen.load("specs/vector_add.op").vector_add
    torch.testing.assert_close(add(x, y), x + y)
    torch.testing.assert_close(by_spec(x, y), x + y)

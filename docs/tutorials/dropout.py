import torch
import triton
import triton.language as tl

import tritongen


@triton.jit
def dropout_kernel(x_ptr, keep_ptr, y_ptr, n, p, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside)
    keep = tl.load(keep_ptr + at, mask=inside)
    tl.store(y_ptr + at, tl.where(keep, x / (1 - p), 0.0), mask=inside)


class Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, keep, p):
        y = torch.empty_like(x)
        dropout_kernel[(triton.cdiv(x.numel(), 1024),)](x, keep, y, x.numel(), p, BLOCK=1024)
        ctx.save_for_backward(keep)
        ctx.p = p
        return y

    @staticmethod
    def backward(ctx, dy):
        (keep,) = ctx.saved_tensors
        dx = torch.empty_like(dy)
        grid = (triton.cdiv(dy.numel(), 1024),)
        dropout_kernel[grid](dy.contiguous(), keep, dx, dy.numel(), ctx.p, BLOCK=1024)
        return dx, None, None


SPEC = """op dropout<T: float>(x: T[...], keep: bool[...], p: f32) -> y: T[...] {
  y = where(keep, x / (1 - p), 0)
}"""

if __name__ == "__main__":
    x, keep = torch.randn(3000, requires_grad=True), torch.rand(3000) > 0.3
    by_spec = tritongen.compile_op(SPEC)
    expected = torch.where(keep, x / 0.7, 0.0)
    for dropout in (Dropout.apply, by_spec):
        y = dropout(x, keep, 0.3)
        torch.testing.assert_close(y, expected)
        (dx,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(dx, keep / 0.7)

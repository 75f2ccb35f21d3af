"""Splits lines in registers into the elements that windows of neighbouring lanes share."""

import triton
import triton.language as tl


@triton.jit
def phases(x, RUN: tl.constexpr):
    """x[:, 0::RUN], x[:, 1::RUN], ...: the elements at each position of a run."""
    if RUN == 1:
        return (x,)
    else:
        even, odd = tl.split(x.reshape(x.shape[0], x.shape[1] // 2, 2))
        evens, odds = phases(even, RUN // 2), phases(odd, RUN // 2)
        out = ()
        for k in tl.static_range(RUN // 2):
            out = out + (evens[k], odds[k])
        return out


@triton.jit
def taken(line, FIRST: tl.constexpr, STEP: tl.constexpr, PER_THREAD: tl.constexpr):
    """Elements FIRST, FIRST + STEP, ... of every lane's line, PER_THREAD of them side by side."""
    if PER_THREAD == 1:
        return line[FIRST]
    else:
        even = taken(line, FIRST, 2 * STEP, PER_THREAD // 2)
        odd = taken(line, FIRST + STEP, 2 * STEP, PER_THREAD // 2)
        return tl.join(even, odd).reshape(even.shape[0], 2 * even.shape[1])

"""Combine functions of reductions, and the states of folds that one pass over a row computes together.

`tl.reduce` and `tl.associative_scan` take these by name. A state is one number per row, with the parts of a tile side by side
along axis 1. Merging takes the parts of all programs that shared a row.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from tritongen.lib.functions import cast


@triton.jit
def nan_max(a, b):
    """The larger value. NaN if either is NaN."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def nan_min(a, b):
    """The smaller value. NaN if either is NaN."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def smaller(a, b):
    return tl.minimum(a, b)


@triton.jit
def multiply(a, b):
    return a * b


@triton.jit
def first_max(a, i, b, j):
    """The larger value and its place: NaN before any number, the lower place at a tie."""
    left = (a > b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(left, a, b), tl.where(left, i, j)


@triton.jit
def first_min(a, i, b, j):
    """The smaller value and its place: NaN before any number, the lower place at a tie."""
    left = (a < b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(left, a, b), tl.where(left, i, j)


@triton.jit
def next_max(a, i, b, j):
    """The larger of a and a later b, with its place: NaN before any number, a at a tie."""
    later = ~(b <= a) & (a == a)
    return tl.where(later, b, a), tl.where(later, j, i)


@triton.jit
def next_min(a, i, b, j):
    """The smaller of a and a later b, with its place: NaN before any number, a at a tie."""
    later = ~(b >= a) & (a == a)
    return tl.where(later, b, a), tl.where(later, j, i)


@triton.jit
def scalar(value, IS_TENSOR: tl.constexpr, DTYPE: tl.constexpr):
    """A run-time scalar: the element of a 0-dim tensor, or a number."""
    if IS_TENSOR:
        return cast(tl.load(value), DTYPE)
    else:
        return tl.full((), value, DTYPE)


@triton.jit
def next_sums_behind(a, before_a, b, before_b):
    return a + b, a + before_b


@triton.jit
def sums_behind(x, start, RUN: tl.constexpr):
    """The fold of everything behind each element of x, whose runs of RUN elements are in reverse order.

    The halves of a run use the fold of what is behind the whole run, so lanes never exchange elements.
    """
    if RUN == 1:
        return tl.associative_scan((x, tl.full(x.shape, start, x.dtype)), 1, next_sums_behind)[1]
    else:
        left, right = tl.split(x.reshape(x.shape[0], x.shape[1] // 2, 2))
        behind = sums_behind(left + right, start, RUN // 2)
        return tl.join(right + behind, behind).reshape(x.shape)


@triton.jit
def next_products_behind(a, before_a, b, before_b):
    return a * b, a * before_b


@triton.jit
def products_behind(x, start, RUN: tl.constexpr):
    """Same as `sums_behind`, of products."""
    if RUN == 1:
        return tl.associative_scan((x, tl.full(x.shape, start, x.dtype)), 1, next_products_behind)[
            1
        ]
    else:
        left, right = tl.split(x.reshape(x.shape[0], x.shape[1] // 2, 2))
        behind = products_behind(left * right, start, RUN // 2)
        return tl.join(right * behind, behind).reshape(x.shape)


@triton.jit
def next_nan_max_behind(a, before_a, b, before_b):
    return nan_max(a, b), nan_max(a, before_b)


@triton.jit
def nan_max_behind(x, start, RUN: tl.constexpr):
    """Same as `sums_behind`, of maxima that keep NaN."""
    if RUN == 1:
        return tl.associative_scan((x, tl.full(x.shape, start, x.dtype)), 1, next_nan_max_behind)[1]
    else:
        left, right = tl.split(x.reshape(x.shape[0], x.shape[1] // 2, 2))
        behind = nan_max_behind(nan_max(left, right), start, RUN // 2)
        return tl.join(nan_max(right, behind), behind).reshape(x.shape)


@triton.jit
def next_nan_min_behind(a, before_a, b, before_b):
    return nan_min(a, b), nan_min(a, before_b)


@triton.jit
def nan_min_behind(x, start, RUN: tl.constexpr):
    """Same as `sums_behind`, of minima that keep NaN."""
    if RUN == 1:
        return tl.associative_scan((x, tl.full(x.shape, start, x.dtype)), 1, next_nan_min_behind)[1]
    else:
        left, right = tl.split(x.reshape(x.shape[0], x.shape[1] // 2, 2))
        behind = nan_min_behind(nan_min(left, right), start, RUN // 2)
        return tl.join(nan_min(right, behind), behind).reshape(x.shape)


@triton.jit
def next_max_behind(a, before_a, b, before_b):
    return tl.maximum(a, b), tl.maximum(a, before_b)


@triton.jit
def max_behind(x, start, RUN: tl.constexpr):
    """Same as `sums_behind`, of maxima."""
    if RUN == 1:
        return tl.associative_scan((x, tl.full(x.shape, start, x.dtype)), 1, next_max_behind)[1]
    else:
        left, right = tl.split(x.reshape(x.shape[0], x.shape[1] // 2, 2))
        behind = max_behind(tl.maximum(left, right), start, RUN // 2)
        return tl.join(tl.maximum(right, behind), behind).reshape(x.shape)


@triton.jit
def next_min_behind(a, before_a, b, before_b):
    return tl.minimum(a, b), tl.minimum(a, before_b)


@triton.jit
def min_behind(x, start, RUN: tl.constexpr):
    """Same as `sums_behind`, of minima."""
    if RUN == 1:
        return tl.associative_scan((x, tl.full(x.shape, start, x.dtype)), 1, next_min_behind)[1]
    else:
        left, right = tl.split(x.reshape(x.shape[0], x.shape[1] // 2, 2))
        behind = min_behind(tl.minimum(left, right), start, RUN // 2)
        return tl.join(tl.minimum(right, behind), behind).reshape(x.shape)


@triton.jit
def rescale(m, new):
    """exp(m - new). 1 if both are the same infinity."""
    return tl.where(m == new, 1.0, libdevice.exp(m - new))


@triton.jit
def take_sumexp(m, s, x, HALF: tl.constexpr = False):
    """Adds a block x to the maximum m of a row and its sum s of exp(x - m) (online softmax, Milakov and Gimelshein 2018)."""
    new = nan_max(m, tl.reduce(x, 1, nan_max, keep_dims=True))
    x -= tl.where(tl.abs(new) == float("inf"), 0.0, new)
    # exp2 takes terms below 2**-126 for 0, in half the instructions of exp.
    terms = tl.exp2(x * 1.4426950408889634) if HALF else libdevice.exp(x)
    return new, s * rescale(m, new) + tl.sum(terms, 1, keep_dims=True)


@triton.jit
def merge_sumexp(ms, ss):
    """The maximum and the sum of exp(x - maximum) of rows, merged from those of their parts."""
    m = tl.reduce(ms, 1, nan_max, keep_dims=True)
    return m, tl.sum(ss * rescale(ms, m), 1, keep_dims=True)


@triton.jit
def shift_sumexp(m, s, shift, count):
    """The sum of exp(x - shift), given the sum of exp(x - m). NaN if both are the same infinity, 0 for no x."""
    return tl.where(count > 0, s * libdevice.exp(m - shift), 0.0)


@triton.jit
def nearer(mean, rest):
    """Adds to a mean the mean of the remaining differences. For large terms the mean is rounded; the differences are not."""
    return mean + tl.where(tl.abs(rest) < float("inf"), rest, 0.0)


@triton.jit
def mean_of(x, inside, count, axis: tl.constexpr = None):
    """The mean of `count` values inside; x is 0 outside. The mean of equal values is exactly that value."""
    mean = tl.sum(x, axis, keep_dims=axis is not None) / count
    rest = tl.where(inside, x - mean, 0.0)
    return nearer(mean, tl.sum(rest, axis, keep_dims=axis is not None) / count)


@triton.jit
def take_block(mean, squares, n, x, inside, more, axis: tl.constexpr):
    """Adds a block of so many values to the mean of n values and their sum of (x - mean)**2 (Chan, Golub and LeVeque)."""
    block = mean_of(x, inside, more, axis)
    t = tl.where(inside, x - block, 0.0)
    mean = tl.where(n > 0, mean, block)
    apart = block - mean
    squares += tl.sum(t * t, axis, keep_dims=axis is not None)
    squares += apart * (apart * (n * (more / (n + more))))
    near = tl.abs(apart) < float("inf")
    return tl.where(near, mean + apart * (more / (n + more)), mean + block), squares, n + more


@triton.jit
def take_moments(mean, squares, n, x, inside, count):
    """Same as `take_block`, for each row of a tile."""
    return take_block(mean, squares, n, x, inside, count.to(squares.dtype), 1)


@triton.jit
def merge_moments(means, squares, counts):
    """The mean and the sum of (x - mean)**2 of rows, merged from those of their parts. The mean of nothing is NaN."""
    means = tl.where(counts > 0, means, 0.0)
    n = tl.sum(counts, 1, keep_dims=True)
    mean = tl.sum(means * counts, 1, keep_dims=True) / n
    mean = nearer(mean, tl.sum((means - mean) * counts, 1, keep_dims=True) / n)
    apart = tl.where(counts > 0, means - mean, 0.0)
    return mean, tl.sum(squares + apart * (apart * counts), 1, keep_dims=True)


@triton.jit
def take_lines(mean, squares, n, x, inside, count):
    """Same as `take_block`, for a whole tile."""
    return take_block(mean, squares, n, x, inside, count.to(squares.dtype), None)


@triton.jit
def take_each(mean, squares, n, x, inside):
    """Adds x as the n-th value to a lane's mean and its sum of (x - mean)**2 (Welford). The mean with an infinity is that."""
    apart = tl.where(inside, x - mean, 0.0)
    near = tl.abs(apart) < float("inf")
    mean += tl.where(near, apart * (1.0 / tl.where(n > 0, n, 1.0)), x)
    return mean, squares + apart * (x - mean)

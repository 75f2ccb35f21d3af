"""Operators and functions that Triton lacks or defines differently from torch, and those that kernels of a class share.

Each works on f32 and f64, because one kernel source serves both.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def sqrt(x):
    """sqrt, correctly rounded. tl.sqrt approximates in f32."""
    if x.dtype == tl.float64:
        return tl.sqrt(x)
    else:
        return tl.sqrt_rn(x)


@triton.jit
def rsqrt(x):
    """1 / sqrt(x): tl.rsqrt, which takes denormals for 0, and one Newton step."""
    if x.dtype == tl.float64:
        return 1.0 / tl.sqrt(x)
    else:
        tiny = x < 1e-30
        x = tl.where(tiny, x * 1.8446744e19, x)
        y = tl.rsqrt(x)
        rest = 1.0 - x * y * y  # NaN where y is 0 or infinite
        y = tl.where(rest == rest, y + 0.5 * y * rest, y)
        return tl.where(tiny, y * 4294967296.0, y)


@triton.jit
def pow(x, y):
    """x ** y. libdevice.pow takes a denormal x for another number."""
    if (x * y).dtype == tl.float64:
        return libdevice.pow(x, y)
    else:
        tiny = (x < 1.1754944e-38) & (x > -1.1754944e-38)
        power = libdevice.pow(tl.where(tiny, x * 16777216.0, x), y)
        return tl.where(tiny, power * tl.exp2(-24.0 * y), power)


@triton.jit
def fmod(a, b):
    """a - trunc(a / b) * b, exact. libdevice.fmod takes denormals for 0: tiny divisors are divided by in f64."""
    if (a * b).dtype == tl.float64:
        return libdevice.fmod(a, b)
    else:
        tiny = tl.abs(b) < 7.8886091e-31  # a larger divisor leaves a normal number, or a itself
        wide_a, wide_b = tl.where(tiny, a, 1.0).to(tl.float64), tl.where(tiny, b, 1.0).to(
            tl.float64
        )
        rest = tl.where(tiny, libdevice.fmod(wide_a, wide_b).to(tl.float32), libdevice.fmod(a, b))
        return tl.where(tl.abs(a) < tl.abs(b), a, rest)


@triton.jit
def hypot(a, b):
    """sqrt(a * a + b * b). libdevice.hypot takes denormals for 0."""
    if (a * b).dtype == tl.float64:
        return libdevice.hypot(a, b)
    else:
        tiny = (tl.abs(a) < 1e-18) & (tl.abs(b) < 1e-18)
        scale = tl.where(tiny, 1.8446744e19, 1.0)
        y = libdevice.hypot(a * scale, b * scale)
        return tl.where(tiny, y * 5.4210109e-20, y)


@triton.jit
def atan2(a, b):
    """The angle of (b, a). libdevice.atan2 takes denormals for 0."""
    if (a * b).dtype == tl.float64:
        return libdevice.atan2(a, b)
    else:
        scale = tl.where((tl.abs(a) < 1e18) & (tl.abs(b) < 1e18), 1.8446744e19, 1.0)
        return libdevice.atan2(a * scale, b * scale)


@triton.jit
def floor(x):
    """The largest integer at or below x. tl.floor takes denormals for 0."""
    whole = libdevice.trunc(x)
    return tl.where(whole > x, whole - 1.0, whole)


@triton.jit
def ceil(x):
    """The smallest integer at or above x. tl.ceil takes denormals for 0."""
    whole = libdevice.trunc(x)
    return tl.where(whole < x, whole + 1.0, whole)


@triton.jit
def sign(x):
    """-1, 0 or 1 in the type of x. 0 for NaN, as torch.sign."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def logaddexp(a, b):
    """log(e**a + e**b), without overflow. Two equal infinities give that infinity."""
    high = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    return tl.where(
        a == b, high + 0.6931471805599453, high + libdevice.log1p(libdevice.exp(-tl.abs(a - b)))
    )


@triton.jit
def xlogy(a, b):
    """a * log(b). 0 if a is 0, whatever b is, except for NaN."""
    return tl.where((a == 0.0) & (b == b), 0.0, a * tl.log(b))


@triton.jit
def awaited(x):
    """Makes a product wait: one whose left factor is in registers must end before the next factor is computed in them."""
    if x.dtype == tl.float32:
        return x.to(tl.int32, bitcast=True).to(tl.float32, bitcast=True)
    else:
        return x


@triton.jit
def at_run_time(count: tl.constexpr):
    """Hides a constant number of terms from the compilers: `tl.program_id(2)` is 0, since no grid has a third dim.

    ptxas 12.8 unrolls a short loop of constant length. Behind such a loop it replaced some `tl.where(c, sum, 0.0)` by 0.
    """
    if count < 2**31:
        return count + tl.program_id(2)
    else:
        return count


def triton_dtype(x):
    """Triton's dtype of the elements of a tensor."""
    name = str(x.dtype)[6:]
    return getattr(tl, {"float8_e4m3fn": "float8e4nv", "float8_e5m2": "float8e5"}.get(name, name))


@triton.jit
def cast(x, DTYPE: tl.constexpr):
    """x in DTYPE. Triton converts f8 to and from f16, bf16 and f32 only, and makes 0 of a float below 0 where torch wraps to u8."""
    if (x.dtype == tl.float8e4nv) | (x.dtype == tl.float8e5):
        return x.to(tl.float32).to(DTYPE)
    elif (DTYPE == tl.float8e4nv) | (DTYPE == tl.float8e5):
        return x.to(tl.float32).to(DTYPE)
    elif (DTYPE == tl.uint8) & x.dtype.is_floating():
        return x.to(tl.int32).to(DTYPE)
    else:
        return x.to(DTYPE)


@triton.jit
def widened(x, DTYPE: tl.constexpr):
    """x in DTYPE, widening bf16 by its bits: LLVM would compute with x.to(DTYPE) in f16 if the result is stored in f16."""
    if x.dtype == tl.bfloat16:
        bits = x.to(tl.uint16, bitcast=True).to(tl.uint32) << 16
        return bits.to(tl.float32, bitcast=True).to(DTYPE)
    else:
        return cast(x, DTYPE)


@triton.jit
def f64_factor(x):
    """A factor of tl.dot in f64, hidden behind a sum of one term so that Triton does not look for its loads.

    Triton 3.7 lays out factors in pairs or fours if the narrowest load behind them (of a mask or an index too) has 16 or 8 bits. Its
    products in f64 only know single elements.
    """
    if x.dtype == tl.float64:
        return tl.sum(x[:, :, None], 2)
    else:
        return x


@triton.jit
def blocks(n, BLOCK: tl.constexpr):
    """The number of blocks that n elements take. In tl.cdiv, n + BLOCK - 1 overflows 32 bits for n near 2^31."""
    return n // BLOCK + (n % BLOCK > 0)


@triton.jit
def multiple(n, VEC: tl.constexpr):
    """Tells the compiler that VEC divides n, so that accesses may be VEC elements wide. Triton itself only finds multiples of 16."""
    return n // VEC * VEC


@triton.jit
def multiples(sizes, VEC: tl.constexpr):
    """Applies `multiple` to each of several sizes."""
    found = ()
    for k in tl.static_range(len(sizes)):
        found = found + (sizes[k] // VEC * VEC,)
    return found


@triton.jit
def share(part, count, CHUNK, SHARED: tl.constexpr):
    """Returns the range of terms of a program: its part, or all `count` of them if programs do not share them."""
    if SHARED:
        return part * CHUNK, tl.minimum((part + 1) * CHUNK, count)
    else:
        return 0, count


@triton.jit
def share_of_rows(count, CHUNK, PASS: tl.constexpr):
    """Returns the number of a program's part of a row, and the range of that part. If PASS is 0, the program has the whole row."""
    if PASS > 0:
        part = tl.program_id(1).to(count.dtype)
        return part, part * CHUNK, tl.minimum((part + 1) * CHUNK, count)
    else:
        return 0, 0, count


@triton.jit
def load_tile(
    tiles, outer, row, col, ROWS: tl.constexpr, COLS: tl.constexpr, TRANSPOSED: tl.constexpr
):
    """Loads ROWS x COLS elements of the matrix `outer`, from (row, col) on. The descriptor may have its columns first."""
    corner = ()
    for k in tl.static_range(len(outer)):
        corner = corner + (outer[k].to(tl.int32),)
    if TRANSPOSED:
        return tiles.load(corner + (col, row)).reshape(COLS, ROWS).T
    else:
        return tiles.load(corner + (row, col)).reshape(ROWS, COLS)


@triton.jit
def store_tile(tiles, corner, at, x, inside):
    """Stores a tile by its descriptor, or by pointers where there is none."""
    if tiles is None:
        tl.store(at, x, mask=inside)
    else:
        tiles.store(corner, x.to(tiles.dtype))


@triton.jit
def load_strip(
    tiles, STRIP_DIM: tl.constexpr, at, channel, TERMS: tl.constexpr, CHANNELS: tl.constexpr
):
    """Loads TERMS x CHANNELS elements: the strip along STRIP_DIM that begins at the term `at`. The descriptor has STRIP_DIM last of its terms."""
    corner = at[:STRIP_DIM] + at[STRIP_DIM + 1 :] + (at[STRIP_DIM], channel)
    return tiles.load(corner).reshape(TERMS, CHANNELS)


@triton.jit
def tile_order(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """The row and the column of a tile: GROUP_M rows of tiles run together, so that they share what they read in L2."""
    group = tile // (GROUP_M * tiles_n)
    size_m = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)
    tile_m = group * GROUP_M + tile % (GROUP_M * tiles_n) % size_m
    return tile_m, tile % (GROUP_M * tiles_n) // size_m


@triton.jit
def dot_of_whole(a, b, sum, HALVES: tl.constexpr, PRECISION: tl.constexpr):
    """sum + a b, for whole numbers a of at most 8 bits. Where HALVES, each b is a product of two numbers of bf16.

    Such a b is the sum of two numbers of bf16, so two products of bf16 are exact. Three of TF32 take three times as long.
    """
    if HALVES:
        whole, high = a.to(tl.bfloat16), b.to(tl.bfloat16)
        low = b - high.to(tl.float32)
        # If high is infinite, low is not finite, and the sum would be NaN.
        low = tl.where(tl.abs(low) < float("inf"), low, 0.0).to(tl.bfloat16)
        sum = tl.dot(whole, high, sum)
        return tl.dot(whole, low, sum)
    else:
        return tl.dot(a, b, sum, input_precision=PRECISION, out_dtype=sum.dtype)


@triton.jit
def end_of(x, n):
    """x as the end of a loop over n elements, which counts in 32 bits: between 0 and n. An operand may say 2^40 for no end."""
    return tl.minimum(tl.maximum(x, 0), n).to(tl.int32)


@triton.jit
def floor_div(a, b):
    """Integer a // b, rounded down. Triton's own rounds towards zero."""
    # (-~a - 1) is a, but no range to Triton, which holds -16 to -1 to have one quotient by 16, as 0 to 15
    # have, and computes one lane for all. Where b is 1, rest is 0 and the quotient still a range.
    rest = (-~a - 1) % b
    quotient = (a - rest) // b
    return tl.where((rest != 0) & ((rest < 0) ^ (b < 0)), quotient - 1, quotient)


@triton.jit
def floor_mod(a, b):
    """Integer a % b, with the sign of b. Triton's own takes the sign of a."""
    # Still a, but no range to Triton, which holds the rests of -16 to -1 by 16 to be a range too, as those
    # of 0 to 15 are, and asks one lane for the sign of all.
    a = -~a - 1
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) ^ (b < 0)), rest + b, rest)


@triton.jit
def float_floor_div(a, b):
    """floor(a / b) from the exact remainder, so that a rounded quotient never steps up."""
    rest = fmod(a, b)
    if rest.dtype == tl.float64:
        quotient = (a - rest) / b
    else:
        quotient = tl.div_rn(a - rest, b)
    quotient = tl.where((rest != 0) & ((rest < 0) ^ (b < 0)), quotient - 1.0, quotient)
    down = libdevice.trunc(quotient)
    down = tl.where(down > quotient, down - 1.0, down)
    nearest = tl.where(quotient - down > 0.5, down + 1.0, down)
    return tl.where(b == 0.0, a / b, nearest)


@triton.jit
def float_mod(a, b):
    """a % b, exact, with the sign of b."""
    rest = fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) ^ (b < 0)), rest + b, rest)


@triton.jit
def int_pow(a, b):
    """Integer a ** b by squaring. It wraps as a product does. A negative b gives 0 unless a is 1 or -1."""
    power = a * 0 + 1
    base = a
    rest = b
    for _ in range(63):
        power = tl.where((rest > 0) & (rest & 1 != 0), power * base, power)
        base = base * base
        rest = rest >> 1
    odd = tl.where(b & 1 != 0, a, a * 0 + 1)
    return tl.where(b >= 0, power, tl.where((a == 1) | (a + 1 == 0), odd, a * 0))


@triton.jit
def shift_left(a, b):
    """a << b. 0 if all bits are shifted out, which the hardware leaves undefined."""
    inside = (b >= 0) & (b < a.dtype.primitive_bitwidth)
    return tl.where(inside, a << tl.where(inside, b, 0).to(a.dtype), 0)


@triton.jit
def shift_right(a, b):
    """a >> b. Only the sign is left if all bits are shifted out, which the hardware leaves undefined."""
    last = a.dtype.primitive_bitwidth - 1
    inside = (b >= 0) & (b <= last)
    return tl.where(inside | (a < 0), a >> tl.where(inside, b, last).to(a.dtype), 0)


# ---- windows -------------------------------------------------------------------------------------
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

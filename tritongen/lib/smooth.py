"""exp, erf and similar functions, where libdevice is too slow or too inaccurate.

Functions that take `HALF` have a second form for values that are rounded to a half type: a few f32 ulp of error, a third of the
instructions. All keep denormals and the sign of zero, and give NaN, infinities and zeros as torch does. The error of each is in
its row of `tritongen/ir/functions.py`.

Coefficients are minimax fits, rounded to f32. The f32 forms carry the part that a rounding lost (`low`), by fma. f64 uses
libdevice.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def exp(x, HALF: tl.constexpr = False):
    """e**x. HALF: right to half an ulp of a half type, in half the instructions."""
    if x.dtype == tl.float64:
        return libdevice.exp(x)
    elif HALF:
        return tl.exp(x)
    else:
        return libdevice.exp(x)


@triton.jit
def exp2(x, HALF: tl.constexpr = False):
    """2**x; tl.exp2 takes denormals for 0. HALF: right to half an ulp of a half type, and faster."""
    if x.dtype == tl.float64:
        return tl.exp2(x)
    elif HALF:
        root = tl.exp2(0.5 * x)
        return root * root
    else:
        x = tl.maximum(x, -152.0, propagate_nan=tl.PropagateNan.ALL)
        x = tl.minimum(x, 129.0, propagate_nan=tl.PropagateNan.ALL)
        n = libdevice.nearbyint(x)
        r = x - n
        p = 1.5196154e-05 * r + 0.000154667563
        p = p * r + 0.00133339351
        p = p * r + 0.00961803831
        p = p * r + 0.0555041023
        p = p * r + 0.240226507
        p = p * r + 0.693147182
        below = libdevice.nearbyint(0.5 * n)
        return (p * r + 1.0) * tl.exp2(below) * tl.exp2(n - below)


@triton.jit
def exp_rest(x, low):
    """e**(x + low) in f32, -125 < x < 40, as (1 + rest) * 2**n: right to 2**-26 before 1 + rest rounds."""
    n = libdevice.nearbyint(x * 1.44269504)
    rest = libdevice.fma(n, -0.693145752, x)  # n times this part of log 2 is exact
    low = n * 1.42860677e-06 - low
    r = rest - low
    p = 0.00138145382 * r + 0.00836874545
    p = p * r + 0.041668389
    p = p * r + 0.166665211
    p = p * r + 0.49999994
    return rest + libdevice.fma(p, r * r, -low), n


@triton.jit
def exp_parts(x, low):
    """e**(x + low), as (1 + rest) * scale."""
    rest, n = exp_rest(x, low)
    return rest, tl.exp2(n + 64.0) * 5.42101086e-20  # tl.exp2 takes denormals for 0


@triton.jit
def sigmoid(x, HALF: tl.constexpr = False):
    """1 / (1 + e**-x), without overflow. HALF: right to half an ulp of a half type, and faster."""
    return sigmoid_beside(tl.abs(x), x < 0, HALF)


@triton.jit
def sigmoidc(x, HALF: tl.constexpr = False):
    """1 - sigmoid(x), right in its tail too. Beside sigmoid(x), it takes three to eight instructions more."""
    return sigmoid_beside(tl.abs(x), x > 0, HALF)


@triton.jit
def sigmoid_beside(a, below, HALF: tl.constexpr):
    """sigmoid(-a) where `below`, else sigmoid(a), for a from 0 on."""
    if a.dtype == tl.float64:
        e = libdevice.exp(-a)
        return tl.where(below, e, 1.0) / (1.0 + e)
    elif HALF:
        root = tl.exp2(a * -0.72134752)  # tl.exp2 takes denormals for 0
        e = root * root
        inverse = libdevice.fast_dividef(1.0, 1.0 + e)
        return tl.where(below, e * inverse, inverse)
    else:
        rest, scale = exp_parts(tl.maximum(-a, -104.0, propagate_nan=tl.PropagateNan.ALL), 0.0)
        e = (1.0 + rest) * scale
        above = tl.where(below, e, 1.0)
        low = tl.where(below, rest * scale - (e - scale), 0.0)
        inverse = libdevice.fast_dividef(1.0, 1.0 + e)
        y = above * inverse
        return y + (libdevice.fma(-y, 1.0 + e, above) + low) * inverse  # what rounding lost


@triton.jit
def softplus(x, HALF: tl.constexpr = False):
    """log(1 + e**x), and x from 20 on, as torch. HALF: right to half an ulp of a half type, and faster."""
    if x.dtype == tl.float64:
        return tl.where(x > 20.0, x, libdevice.log1p(libdevice.exp(x)))
    else:
        return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL) + log1p_exp(-tl.abs(x), HALF)


@triton.jit
def logsigmoid(x, HALF: tl.constexpr = False):
    """log(sigmoid(x)), without overflow. HALF: right to half an ulp of a half type, and faster."""
    low = tl.minimum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    if x.dtype == tl.float64:
        return low - libdevice.log1p(libdevice.exp(-tl.abs(x)))
    else:
        return low - log1p_exp(-tl.abs(x), HALF)


@triton.jit
def log1p_exp(x, HALF: tl.constexpr):
    """log(1 + e**x) for x up to 0 in f32."""
    if HALF:
        root = tl.exp2(x * 0.72134752)  # tl.exp2 takes denormals for 0
        u = root * root
        p = -0.00853909645 * u + 0.0440892391
        p = p * u - 0.10768117
        p = p * u + 0.177452043
        p = p * u - 0.244954497
        p = p * u + 0.332754761
        p = p * u - 0.499974042
        return (p * u + 0.999999821) * u
    else:
        x = tl.maximum(x, -104.0, propagate_nan=tl.PropagateNan.ALL)
        rest, scale = exp_parts(x, 0.0)
        u = (1.0 + rest) * scale
        p = 0.00207291823 * u - 0.0136313327
        p = p * u + 0.0419810489
        p = p * u - 0.083073698
        p = p * u + 0.12467096
        p = p * u - 0.161293238
        p = p * u + 0.198979288
        p = p * u - 0.249885783
        p = p * u + 0.333326906
        p = p * u - 0.499999881
        return p * (u * u) + u


@triton.jit
def tanh_softplus(x, HALF: tl.constexpr = False):
    """tanh(log(1 + e**x)) = n / (n + 2), n = e**x * (e**x + 2). HALF: right to half an ulp of a half type."""
    x = tl.minimum(x, 20.0, propagate_nan=tl.PropagateNan.ALL)  # from here on 1
    if x.dtype == tl.float64:
        e = libdevice.exp(x)
        return e * (e + 2.0) / (e * (e + 2.0) + 2.0)
    elif HALF:
        root = tl.exp2(x * 0.72134752)  # tl.exp2 takes denormals for 0
        e = root * root
        n = e * (e + 2.0)
        return n / (n + 2.0)
    else:
        x = tl.maximum(x, -104.0, propagate_nan=tl.PropagateNan.ALL)
        rest, scale = exp_parts(x, 0.0)
        e = (1.0 + rest) * scale
        low = rest * scale - (e - scale)
        n = e * e + 2.0 * e
        low = libdevice.fma(e, e, 2.0 * e - n) + 2.0 * low * (e + 1.0)
        below = n + 2.0
        inverse = libdevice.fast_dividef(1.0, below)
        y = n * inverse
        # No libdevice.fma, which takes denormals for 0: n may be a normal number where y is none.
        lost = (n - y * below) + low - y * (n - (below - 2.0) + low)
        return y + lost * inverse


@triton.jit
def tanh(x, HALF: tl.constexpr = False):
    """tanh. HALF: right to half an ulp of a half type, and faster."""
    if x.dtype == tl.float64 or not HALF:
        return tl.where(tl.abs(x) < 1e-30, x, libdevice.tanh(x))  # it takes denormals for 0
    else:
        e = tl.exp2(tl.abs(x) * -2.88539008)
        high = libdevice.fast_dividef(1.0 - e, 1.0 + e)
        s = x * x
        p = -0.0502224378 * s + 0.133125976
        p = p * s - 0.333329618
        near = (p * s + 1.0) * x
        return tl.where(tl.abs(x) < 0.3, near, tl.where(x < 0, -high, high))


@triton.jit
def expm1(x, HALF: tl.constexpr = False):
    """e**x - 1. HALF: right to half an ulp of a half type, and faster."""
    if x.dtype == tl.float64 or not HALF:
        return tl.where(tl.abs(x) < 1e-30, x, libdevice.expm1(x))  # it takes denormals for 0
    else:
        p = 0.00138888112 * x + 0.00840768218
        p = p * x + 0.0416687019
        p = p * x + 0.166659743
        p = p * x + 0.499999821
        p = p * x + 1.00000012
        return tl.where(tl.abs(x) < 0.5, p * x, tl.exp2(x * 1.44269504) - 1.0)


@triton.jit
def erf(x, HALF: tl.constexpr = False):
    """erf. HALF: right to half an ulp of a half type, by an odd polynomial up to where both round to 1."""
    if x.dtype == tl.float64 or not HALF:
        near = x + x * 0.1283791670955126  # tl.erf takes denormals for 0
        return tl.where(tl.abs(x) < 1e-30, near, tl.erf(x))
    else:
        x = tl.maximum(x, -3.3, propagate_nan=tl.PropagateNan.ALL)
        x = tl.minimum(x, 3.3, propagate_nan=tl.PropagateNan.ALL)
        s = x * x - 5.44500017
        p = 9.59954121e-13 * s - 1.4533018e-11
        p = p * s + 1.06519925e-10
        p = p * s - 1.15756538e-09
        p = p * s + 1.51140771e-08
        p = p * s - 1.55421461e-07
        p = p * s + 1.40941847e-06
        p = p * s - 1.20309569e-05
        p = p * s + 9.55356882e-05
        p = p * s - 0.000710660359
        p = p * s + 0.00512992311
        p = p * s - 0.0388670079
        return (p * s + 0.428135216) * x


@triton.jit
def erfc(x, HALF: tl.constexpr = False):
    """1 - erf(x), right in its tail too. HALF: right to half an ulp of a half type, and faster."""
    if x.dtype == tl.float64:
        return libdevice.erfc(x)
    elif HALF:
        t = libdevice.fast_dividef(1.0, 1.0 + 0.45 * tl.abs(x))
        p = 0.0662016943 * t - 0.237380624
        p = p * t + 0.203644529
        p = p * t + 0.0452814661
        p = p * t + 0.185898826
        p = p * t + 0.228942752
        p = p * t + 0.25349313
        p = p * t + 0.253918529
        root = tl.exp2(x * x * -0.72134752)  # tl.exp2 takes denormals for 0
        tail = p * t * root * root
        return tl.where(x < 0, 2.0 - tail, tail)
    else:
        a = tl.minimum(tl.abs(x), 11.0, propagate_nan=tl.PropagateNan.ALL)
        s = a * a
        rest, scale = exp_parts(-s, libdevice.fma(-a, a, s))
        below = a + 1.25
        inverse = libdevice.fast_dividef(1.0, below)
        t = (a - 1.25) * inverse
        p = -6.43592502e-05 * t + 5.8778438e-05
        p = p * t + 0.000723346835
        p = p * t + 0.000921003579
        p = p * t - 0.00119940354
        p = p * t - 0.0054406519
        p = p * t - 0.00531536713
        p = p * t + 0.0140453288
        p = p * t + 0.048541192
        p = p * t - 0.0220358614
        p = p * t - 0.385579526
        q = libdevice.fma(p, t, 0.919557273)
        q_low = libdevice.fma(p, t, 0.919557273 - q) + 2.33059403e-08
        below_low = a - (below - 1.25)
        tail = product_over(q, q_low, rest, below, below_low, inverse) * scale
        return tl.where(x < 0, 2.0 - tail, tail)


@triton.jit
def ndtr(x, HALF: tl.constexpr = False):
    """The normal distribution function, right in its tail too. HALF: right to half an ulp of a half type."""
    if x.dtype == tl.float64:
        return 0.5 * libdevice.erfc(x * -0.7071067811865476)
    elif HALF:
        t = libdevice.fast_dividef(1.0, 1.0 + 0.3 * tl.abs(x))
        p = 0.0360364579 * t - 0.158714205
        p = p * t + 0.208965525
        p = p * t - 0.0560966544
        p = p * t + 0.129843786
        p = p * t + 0.0995229632
        p = p * t + 0.120816909
        p = p * t + 0.119625196
        tail = p * t * tl.exp2(x * x * -0.72134752)
        return tl.where(x < 0, tail, 1.0 - tail)
    else:
        a = tl.minimum(tl.abs(x), 15.0, propagate_nan=tl.PropagateNan.ALL)
        s = a * a
        rest, scale = exp_parts(-0.5 * s, 0.5 * libdevice.fma(-a, a, s))
        below = a + 1.5
        inverse = libdevice.fast_dividef(1.0, below)
        t = (a - 1.5) * inverse
        p = 0.000152097258 * t + 0.000464542245
        p = p * t + 0.000250460347
        p = p * t - 0.00103796308
        p = p * t - 0.00271133403
        p = p * t - 0.00243780506
        p = p * t + 0.00398863573
        p = p * t + 0.0176416524
        p = p * t + 0.0178964343
        p = p * t - 0.0574956127
        p = p * t - 0.195099473
        q = libdevice.fma(p, t, 0.617341995)
        q_low = libdevice.fma(p, t, 0.617341995 - q) + 7.11400716e-09
        below_low = a - (below - 1.5)
        tail = product_over(q, q_low, rest, below, below_low, inverse) * scale
        return tl.where(x < 0, tail, 1.0 - tail)


@triton.jit
def times_ndtr(x, HALF: tl.constexpr = False):
    """x times the normal distribution function (gelu), accurate in the tail, and cheaper than the product of both."""
    if x.dtype == tl.float64:
        return x * ndtr(x)
    elif HALF:
        # max(x, 0) - a * tail, where tail = root**2: one exp2, as nothing overlaps it behind a product
        a = tl.abs(tl.minimum(x, 15.0, propagate_nan=tl.PropagateNan.ALL))
        p = -1.07908926e-09 * a + 7.71195516e-08
        p = p * a - 2.42223541e-06
        p = p * a + 4.43062017e-05
        p = p * a - 0.000529290119
        p = p * a + 0.00441704923
        p = p * a - 0.0271870531
        p = p * a - 0.229130998
        p = p * a - 0.575626791
        root = tl.exp2(p * a - 0.5)  # tl.exp2 takes denormals for 0
        return tl.where(x < 0, 0.0, x) - a * root * root
    else:
        # max(x, 0) - a * tail, where tail = inverse * (1 + q(z) * z) * e**(-a**2 / 2) / 2
        part = tl.abs(tl.minimum(x, 15.0, propagate_nan=tl.PropagateNan.ALL))
        a = tl.minimum(part, 15.0, propagate_nan=tl.PropagateNan.ALL)
        b = -0.5 * a
        s = a * b
        rest, n = exp_rest(s, libdevice.fma(a, b, -s))
        below = a + 1.5
        inverse = libdevice.fast_dividef(1.0, below)
        lost = libdevice.fma(-below, inverse, 1.0)
        lost = libdevice.fma(below - 1.5 - a, inverse, lost)
        z = 0.461645067 - 3.0 * inverse
        q = 0.000298948115 * z + 0.00270005083
        q = q * z + 0.0102861961
        q = q * z + 0.0202447083
        q = q * z + 0.0166983809
        q = q * z - 0.0128044356
        q = q * z - 0.0395797454
        q = q * z + 0.00266112247
        q = q * z + 0.101315856
        q = q * z + 0.00450621033
        q = q * z - 0.45990935
        more = libdevice.fma(q * z, 1.0 + rest, rest)
        more = libdevice.fma(1.2 * lost, 1.0 + more, more)  # z moves with inverse: by a fifth more
        tail = libdevice.fma(inverse, more, inverse)
        tail_low = libdevice.fma(inverse, more, inverse - tail)
        lower = libdevice.fma(part, tail, part * tail_low) * tl.exp2(n - 1.0)
        return tl.where(x < 0, -0.0, x) - lower


@triton.jit
def product_over(q, q_low, rest, below, below_low, inverse):
    """(q + q_low) * (1 + rest) / (below + below_low), with what each rounding lost; inverse is near 1 / below."""
    above = libdevice.fma(q, rest, q)
    above_low = libdevice.fma(q, rest, q - above) + q_low * (1.0 + rest)
    y = above * inverse
    lost = libdevice.fma(-y, below, above) - y * below_low + above_low
    return y + lost * inverse

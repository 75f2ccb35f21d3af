"""Circular and hyperbolic functions and their inverses, if libdevice is too slow or takes denormals for 0.

As in `smooth.py`, functions that take `HALF` have a second form for values that are rounded to a half type: a minimax polynomial near
0, otherwise logarithms.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def atan(x, HALF: tl.constexpr = False):
    """atan. HALF: right to half an ulp of a half type, and faster."""
    if x.dtype == tl.float64 or not HALF:
        return tl.where(tl.abs(x) < 1e-30, x, libdevice.atan(x))  # it takes denormals for 0
    else:
        above = tl.abs(x) > 1.0
        t = tl.where(above, libdevice.fast_dividef(1.0, x), x)
        s = t * t
        p = -0.00469314819 * s + 0.0242519639
        p = p * s - 0.0594858043
        p = p * s + 0.099142544
        p = p * s - 0.140194684
        p = p * s + 0.199697226
        p = p * s - 0.333319902
        y = (p * s + 0.999999881) * t
        return tl.where(above, tl.where(x < 0, -1.57079633, 1.57079633) - y, y)


@triton.jit
def sinh(x, HALF: tl.constexpr = False):
    """sinh. HALF: right to half an ulp of a half type, and faster."""
    if x.dtype == tl.float64 or not HALF:
        return tl.where(tl.abs(x) < 1e-30, x, libdevice.sinh(x))  # it takes denormals for 0
    else:
        a, s = tl.abs(x), x * x
        p = 0.000203939897 * s + 0.00832991209
        p = p * s + 0.166667342
        near = (p * s + 1.0) * x
        half = tl.exp2(a * 1.44269504 - 1.0)
        far = half - libdevice.fast_dividef(0.25, half)
        return tl.where(a < 1.0, near, tl.where(x < 0, -far, far))


@triton.jit
def asinh(x, HALF: tl.constexpr = False):
    """asinh. HALF: right to half an ulp of a half type, and faster."""
    if x.dtype == tl.float64 or not HALF:
        return tl.where(tl.abs(x) < 1e-30, x, libdevice.asinh(x))  # it takes denormals for 0
    else:
        a, s = tl.abs(x), x * x
        p = -0.0326538235 * s + 0.0732806921
        p = p * s - 0.166584611
        near = (p * s + 0.999999404) * x
        root = tl.where(a < 1e9, tl.sqrt(s + 1.0), a)
        far = tl.log(0.5 * a + 0.5 * root) + 0.693147182
        return tl.where(a < 0.5, near, tl.where(x < 0, -far, far))


@triton.jit
def acosh(x, HALF: tl.constexpr = False):
    """acosh. HALF: right to half an ulp of a half type, and faster."""
    if x.dtype == tl.float64 or not HALF:
        return libdevice.acosh(x)
    else:
        u = x - 1.0
        p = -0.00408172794 * u + 0.018320173
        p = p * u - 0.0832923055
        near = (p * u + 0.999999404) * tl.sqrt(2.0 * u)
        root = tl.where(x < 1e9, tl.sqrt(x * x - 1.0), x)
        return tl.where(u < 0.5, near, tl.log(0.5 * x + 0.5 * root) + 0.693147182)


@triton.jit
def log1p(x):
    """log1p; libdevice.log1p takes denormals for 0."""
    return tl.where(tl.abs(x) < 1e-30, x, libdevice.log1p(x))


@triton.jit
def tan(x):
    """tan; libdevice.tan takes denormals for 0."""
    return tl.where(tl.abs(x) < 1e-30, x, libdevice.tan(x))


@triton.jit
def asin(x):
    """asin; libdevice.asin takes denormals for 0."""
    return tl.where(tl.abs(x) < 1e-30, x, libdevice.asin(x))


@triton.jit
def atanh(x):
    """atanh; libdevice.atanh takes denormals for 0."""
    return tl.where(tl.abs(x) < 1e-30, x, libdevice.atanh(x))


@triton.jit
def sin(x):
    """sin; tl.sin takes denormals for 0."""
    return tl.where(tl.abs(x) < 1e-30, x, tl.sin(x))

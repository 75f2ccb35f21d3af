"""Helpers for the circular and hyperbolic functions and their inverses: where libdevice is too slow or takes denormals for 0.

In: nothing. Out: `INVERSES["_atan"]`, Triton text, merged into `HELPERS`. As in `smooth.py`, those that take `HALF`
have a second form, for values that are rounded to a half type: near 0 a minimax polynomial, else logarithms.
"""

from __future__ import annotations

INVERSES: dict[str, str] = {
    "_atan": '''
@triton.jit
def _atan(x, HALF: tl.constexpr = False):
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
''',
    "_sinh": '''
@triton.jit
def _sinh(x, HALF: tl.constexpr = False):
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
''',
    "_asinh": '''
@triton.jit
def _asinh(x, HALF: tl.constexpr = False):
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
''',
    "_acosh": '''
@triton.jit
def _acosh(x, HALF: tl.constexpr = False):
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
''',
}

_NEAR_ZERO = '''
@triton.jit
def _{name}(x):
    """{name}; {function} takes denormals for 0."""
    return tl.where(tl.abs(x) < 1e-30, x, {function}(x))
'''
INVERSES |= {
    f"_{name}": _NEAR_ZERO.format(name=name, function=f"{module}.{name}")
    for module, names in {
        "libdevice": ("log1p", "tan", "asin", "atanh"),
        "tl": ("sin",),
    }.items()
    for name in names
}

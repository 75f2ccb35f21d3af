"""Reducers as monoids: how each one starts, combines and ends, in Triton text.

One row a reducer. `start` is what an empty or masked lane holds, `combine` merges two states, `end`
collapses a tile along an axis. argmax and argmin carry a pair and have functions of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from tritongen.ir.functions import ATOM

HELPERS = {
    "_nan_max": '''
@triton.jit
def _nan_max(a, b):
    """The larger; NaN where either is NaN."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "_nan_min": '''
@triton.jit
def _nan_min(a, b):
    """The smaller; NaN where either is NaN."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "_larger": """
@triton.jit
def _larger(a, b):
    return tl.maximum(a, b)
""",
    "_smaller": """
@triton.jit
def _smaller(a, b):
    return tl.minimum(a, b)
""",
    "_multiply": """
@triton.jit
def _multiply(a, b):
    return a * b
""",
    "_first_max": '''
@triton.jit
def _first_max(a, i, b, j):
    """The larger value and its place: NaN before any number, the lower place at a tie."""
    left = (a > b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(left, a, b), tl.where(left, i, j)
''',
    "_first_min": '''
@triton.jit
def _first_min(a, i, b, j):
    """The smaller value and its place: NaN before any number, the lower place at a tie."""
    left = (a < b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(left, a, b), tl.where(left, i, j)
''',
    "_next_max": '''
@triton.jit
def _next_max(a, i, b, j):
    """The larger of a and a later b, with its place: NaN before any number, a at a tie."""
    later = ~(b <= a) & (a == a)
    return tl.where(later, b, a), tl.where(later, j, i)
''',
    "_next_min": '''
@triton.jit
def _next_min(a, i, b, j):
    """The smaller of a and a later b, with its place: NaN before any number, a at a tie."""
    later = ~(b >= a) & (a == a)
    return tl.where(later, b, a), tl.where(later, j, i)
''',
    "_scalar": '''
@triton.jit
def _scalar(value, IS_TENSOR: tl.constexpr, DTYPE: tl.constexpr):
    """A run-time scalar: the element of a 0-dim tensor, or a number."""
    if IS_TENSOR:
        return tl.load(value).to(DTYPE)
    else:
        return tl.full((), value, DTYPE)
''',
}
HELPERS = {name: source.strip() + "\n" for name, source in HELPERS.items()}


@dataclass(frozen=True, slots=True)
class FoldText:
    """start: by kind (float, int, bool); LOWEST and HIGHEST stand for the ends of an int type."""

    start: dict[str, str]
    combine: dict[str, str]
    end: dict[str, str]
    helper: dict[str, str]

    def whole(self, kind: str) -> str:
        """The end of a tile along all axes: a scalar."""
        text = self.end[kind].replace(", keep_dims=True", "")
        return text.replace(", {axis}", ", None" if text.startswith("tl.reduce") else "")


def _same(text: str) -> dict[str, str]:
    return {kind: text for kind in ("float", "int", "bool")}


FOLDS = {
    "sum": FoldText(
        {"float": "0.0", "int": "0", "bool": "False"},
        _same("{a} + {b}"),
        _same("tl.sum({t}, {axis}, keep_dims=True)"),
        _same(""),
    ),
    "prod": FoldText(
        {"float": "1.0", "int": "1", "bool": "True"},
        _same("{a} * {b}"),
        _same("tl.reduce({t}, {axis}, _multiply, keep_dims=True)"),
        _same("_multiply"),
    ),
    "max": FoldText(
        {"float": 'float("-inf")', "int": "LOWEST", "bool": "False"},
        {"float": "_nan_max({a}, {b})", "int": "tl.maximum({a}, {b})", "bool": "{a} | {b}"},
        {
            "float": "tl.reduce({t}, {axis}, _nan_max, keep_dims=True)",
            "int": "tl.max({t}, {axis}, keep_dims=True)",
            "bool": "tl.max({t}.to(tl.int32), {axis}, keep_dims=True) != 0",
        },
        {"float": "_nan_max", "int": "", "bool": ""},
    ),
    "min": FoldText(
        {"float": 'float("inf")', "int": "HIGHEST", "bool": "True"},
        {"float": "_nan_min({a}, {b})", "int": "tl.minimum({a}, {b})", "bool": "{a} & {b}"},
        {
            "float": "tl.reduce({t}, {axis}, _nan_min, keep_dims=True)",
            "int": "tl.min({t}, {axis}, keep_dims=True)",
            "bool": "tl.min({t}.to(tl.int32), {axis}, keep_dims=True) != 0",
        },
        {"float": "_nan_min", "int": "", "bool": ""},
    ),
}
FOLDS["any"], FOLDS["all"] = FOLDS["max"], FOLDS["min"]

# All prefixes of a tile along axis 1.
SCANS = {
    "sum": dict.fromkeys(("float", "int"), "tl.cumsum({t}, 1)"),
    "prod": dict.fromkeys(("float", "int"), "tl.cumprod({t}, 1)"),
    "max": {
        "float": "tl.associative_scan({t}, 1, _nan_max)",
        "int": "tl.associative_scan({t}, 1, _larger)",
        "bool": "tl.associative_scan({t}.to(tl.int32), 1, _larger) != 0",
    },
    "min": {
        "float": "tl.associative_scan({t}, 1, _nan_min)",
        "int": "tl.associative_scan({t}, 1, _smaller)",
        "bool": "tl.associative_scan({t}.to(tl.int32), 1, _smaller) != 0",
    },
}
SCANS["any"], SCANS["all"] = SCANS["max"], SCANS["min"]

# From the end: what lies behind each element of a tile whose runs stand the last one first.
BEHIND = {
    "sum": dict.fromkeys(("float", "int"), "_sums_behind"),
    "prod": dict.fromkeys(("float", "int"), "_products_behind"),
    "max": {"float": "_nan_max_behind", "int": "_max_behind", "bool": "_max_behind"},
    "min": {"float": "_nan_min_behind", "int": "_min_behind", "bool": "_min_behind"},
}
BEHIND["any"], BEHIND["all"] = BEHIND["max"], BEHIND["min"]


def _behind(name: str, combine: str) -> dict[str, str]:
    """The helper of that name, and the one that it scans whole runs with."""
    both, last = f"_next{name}", combine.format(a="a", b="before_b")
    return {
        both: f"""
@triton.jit
def {both}(a, before_a, b, before_b):
    return {combine.format(a="a", b="b")}, {last}
""",
        name: f'''
@triton.jit
def {name}(x, start, RUN: tl.constexpr):
    """What lies behind each element of x, whose runs of RUN elements stand the last one first.

    Halves of a run wait for what lies behind the whole; so lanes never trade places.
    """
    if RUN == 1:
        return tl.associative_scan((x, tl.full(x.shape, start, x.dtype)), 1, {both})[1]
    else:
        left, right = tl.split(x.reshape(x.shape[0], x.shape[1] // 2, 2))
        behind = {name}({combine.format(a="left", b="right")}, start, RUN // 2)
        return tl.join({combine.format(a="right", b="behind")}, behind).reshape(x.shape)
''',
    }


for _name, _combine in {
    "_sums_behind": "{a} + {b}",
    "_products_behind": "{a} * {b}",
    "_nan_max_behind": "_nan_max({a}, {b})",
    "_nan_min_behind": "_nan_min({a}, {b})",
    "_max_behind": "tl.maximum({a}, {b})",
    "_min_behind": "tl.minimum({a}, {b})",
}.items():
    HELPERS |= {key: text.strip() + "\n" for key, text in _behind(_name, _combine).items()}


def combined(combine: str, total: str, value: tuple[str, int]) -> str:
    """The line that takes a value, with its precedence, into the accumulator `total`."""
    text, precedence = value
    if combine == "{a} + {b}":
        return f"{total} += {text}"
    if not combine.endswith(")") and precedence < ATOM:
        text = f"({text})"
    return f"{total} = {combine.format(a=total, b=text)}"


# The value that a masked lane must hold for the fold not to notice it, as a number.
IDENTITY = {
    "sum": 0.0,
    "prod": 1.0,
    "max": float("-inf"),
    "min": float("inf"),
    "argmax": float("-inf"),
    "argmin": float("inf"),
    "any": False,
    "all": True,
}

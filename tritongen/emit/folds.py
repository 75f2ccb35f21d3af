"""Reducers as monoids: how each one starts, combines and ends, in Triton text.

One row a reducer. `start` is what an empty or masked lane holds, `combine` merges two states, `end`
collapses a tile along an axis. argmax and argmin carry a pair and have functions of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from tritongen.ir.functions import ATOM


@dataclass(frozen=True, slots=True)
class FoldText:
    """start: by kind (float, int, bool); LOWEST and HIGHEST stand for the ends of an int type."""

    start: dict[str, str]
    combine: dict[str, str]
    end: dict[str, str]

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
    ),
    "prod": FoldText(
        {"float": "1.0", "int": "1", "bool": "True"},
        _same("{a} * {b}"),
        _same("tl.reduce({t}, {axis}, lib.multiply, keep_dims=True)"),
    ),
    "max": FoldText(
        {"float": 'float("-inf")', "int": "LOWEST", "bool": "False"},
        {"float": "lib.nan_max({a}, {b})", "int": "tl.maximum({a}, {b})", "bool": "{a} | {b}"},
        {
            "float": "tl.reduce({t}, {axis}, lib.nan_max, keep_dims=True)",
            "int": "tl.max({t}, {axis}, keep_dims=True)",
            "bool": "tl.max({t}.to(tl.int32), {axis}, keep_dims=True) != 0",
        },
    ),
    "min": FoldText(
        {"float": 'float("inf")', "int": "HIGHEST", "bool": "True"},
        {"float": "lib.nan_min({a}, {b})", "int": "tl.minimum({a}, {b})", "bool": "{a} & {b}"},
        {
            "float": "tl.reduce({t}, {axis}, lib.nan_min, keep_dims=True)",
            "int": "tl.min({t}, {axis}, keep_dims=True)",
            "bool": "tl.min({t}.to(tl.int32), {axis}, keep_dims=True) != 0",
        },
    ),
}
FOLDS["any"], FOLDS["all"] = FOLDS["max"], FOLDS["min"]

# All prefixes of a tile along axis 1.
SCANS = {
    "sum": dict.fromkeys(("float", "int"), "tl.cumsum({t}, 1)"),
    "prod": dict.fromkeys(("float", "int"), "tl.cumprod({t}, 1)"),
    "max": {
        "float": "tl.associative_scan({t}, 1, lib.nan_max)",
        "int": "tl.associative_scan({t}, 1, lib.larger)",
        "bool": "tl.associative_scan({t}.to(tl.int32), 1, lib.larger) != 0",
    },
    "min": {
        "float": "tl.associative_scan({t}, 1, lib.nan_min)",
        "int": "tl.associative_scan({t}, 1, lib.smaller)",
        "bool": "tl.associative_scan({t}.to(tl.int32), 1, lib.smaller) != 0",
    },
}
SCANS["any"], SCANS["all"] = SCANS["max"], SCANS["min"]

# From the end: what lies behind each element of a tile whose runs stand the last one first.
BEHIND = {
    "sum": dict.fromkeys(("float", "int"), "lib.sums_behind"),
    "prod": dict.fromkeys(("float", "int"), "lib.products_behind"),
    "max": {"float": "lib.nan_max_behind", "int": "lib.max_behind", "bool": "lib.max_behind"},
    "min": {"float": "lib.nan_min_behind", "int": "lib.min_behind", "bool": "lib.min_behind"},
}
BEHIND["any"], BEHIND["all"] = BEHIND["max"], BEHIND["min"]


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

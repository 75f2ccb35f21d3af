"""Reducers as monoids, in Triton text: the initial value, how terms enter it, how lanes and parts merge.

There is one row for each reducer, and one for each kind of paired folds (`schedule/paired.py`), which one pass computes
together. The state of argmax and argmin is a value and its index. No code asks for a row by name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tritongen.ir.functions import ATOM

NO_PLACE = "2147483647"  # the place of a masked lane: later than any other


@dataclass(frozen=True, slots=True)
class Monoid:
    """Texts of a reducer by the kind of its terms: float, int, bool. LOWEST and HIGHEST stand for the ends of an int type.

    `{a}` and `{b}` are states. `{t}` is a state of many lanes. For a mean, `{count}` terms lie where `{inside}`.
    """

    start: dict[str, str]  # what an empty or masked lane holds: of two variables, the first
    combine: dict[str, str]
    end: dict[str, str]
    first: str = ""  # of values with their places: the function that combines two
    next: str = ""  # the same, where the second place is known to be later
    widens: bool = False  # whether Triton's fold of narrow integers has 32 bits

    def whole(self, kind: str) -> str:
        """The end of a tile along all axes: a scalar."""
        text = self.end[kind].replace(", keep_dims=True", "")
        return text.replace(", {axis}", ", None" if text.startswith("tl.reduce") else "")


def _same(text: str) -> dict[str, str]:
    return {kind: text for kind in ("float", "int", "bool")}


def _of_places(extreme: str) -> Monoid:
    """The place of a largest or smallest term beside its value."""
    first = f"lib.first_{extreme}"
    end = f"tl.reduce(({{t}}), {{axis}}, {first}, keep_dims=True)"
    both = _same(f"{first}({{a}}, {{b}})"), _same(end)
    return Monoid(MONOIDS[extreme].start, *both, first, f"lib.next_{extreme}")


MONOIDS = {
    "sum": Monoid(
        {"float": "0.0", "int": "0", "bool": "False"},
        _same("{a} + {b}"),
        _same("tl.sum({t}, {axis}, keep_dims=True)"),
    ),
    "prod": Monoid(
        {"float": "1.0", "int": "1", "bool": "True"},
        _same("{a} * {b}"),
        _same("tl.reduce({t}, {axis}, lib.multiply, keep_dims=True)"),
    ),
    "max": Monoid(
        {"float": 'float("-inf")', "int": "LOWEST", "bool": "False"},
        {"float": "lib.nan_max({a}, {b})", "int": "tl.maximum({a}, {b})", "bool": "{a} | {b}"},
        {
            "float": "tl.reduce({t}, {axis}, lib.nan_max, keep_dims=True)",
            "int": "tl.max({t}, {axis}, keep_dims=True)",
            "bool": "tl.max({t}.to(tl.int32), {axis}, keep_dims=True) != 0",
        },
        widens=True,
    ),
    "min": Monoid(
        {"float": 'float("inf")', "int": "HIGHEST", "bool": "True"},
        {"float": "lib.nan_min({a}, {b})", "int": "tl.minimum({a}, {b})", "bool": "{a} & {b}"},
        {
            "float": "tl.reduce({t}, {axis}, lib.nan_min, keep_dims=True)",
            "int": "tl.min({t}, {axis}, keep_dims=True)",
            "bool": "tl.min({t}.to(tl.int32), {axis}, keep_dims=True) != 0",
        },
        widens=True,
    ),
}
# Only for a tile in registers. A loop computes a mean together with the squares about it (`PAIRS`).
MEAN = "lib.mean_of({t}, {inside}, {count}, {axis})"
MONOIDS["mean"] = Monoid({"float": "0.0"}, {}, {"float": MEAN})
MONOIDS["any"], MONOIDS["all"] = MONOIDS["max"], MONOIDS["min"]
MONOIDS |= {f"arg{extreme}": _of_places(extreme) for extreme in ("max", "min")}


@dataclass(frozen=True, slots=True)
class Paired:
    """Two folds that one pass computes: each variable of the state with its name, shape and identity. A block `{x}` enters it.

    `{s[0]}` is the first variable, `{count}` the number of terms of a block.
    """

    state: tuple[tuple[str, str, str], ...]
    take: str
    merge: str  # one state of many: of the parts of a row, or of lanes
    end: str = ""  # the state as the second fold
    counted: str = ""  # what a state a lane counts before it takes a block
    left: tuple[str, ...] = ()  # the kind that merges such a state
    stored: tuple[str, ...] = ()  # what then stands for all


ROW, LANE = "(ROWS, 1)", "(ROWS, BLOCK)"
PAIRS = {
    "max_sumexp": Paired(
        (("{first}", ROW, 'float("-inf")'), ("{second}", ROW, "0.0")),
        "{state} = lib.take_sumexp({state}, {x}{half})",
        "lib.merge_sumexp({parts})",
        "lib.shift_sumexp({state}, {shift}, {terms})",
    ),
    "moments": Paired(
        (
            ("{first}", ROW, 'float("nan")'),
            ("{second}", ROW, "0.0"),
            ("{second}_count", ROW, "0.0"),
        ),
        "{state} = lib.take_moments({state}, {x}, inside, {count})",
        "lib.merge_moments({parts})",
    ),
}
# A state a lane, merged behind the walk; and one of the whole program, as lines enter it.
BY_LANE = {
    "moments": replace(
        PAIRS["moments"],
        state=(("mean", LANE, "0.0"), ("squares", LANE, "0.0"), ("count", "(1, BLOCK)", "0.0")),
        counted="{s[2]} += ({columns}).to({dtype})",
        take="{s[0]}, {s[1]} = lib.take_each({state}, {x}, inside)",
        left=("{s[0]}", "{s[1]}", "{s[2]}"),
        stored=("{first}", "{second}", "tl.sum({s[2]}, 1, keep_dims=True)"),
    )
}
BY_LINES = {
    "moments": replace(
        PAIRS["moments"],
        state=tuple((name, "()", start) for name, _, start in PAIRS["moments"].state),
        take="{state} = lib.take_lines({state}, {x}, inside, {count})",
    )
}

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
    "mean": 0.0,
    "prod": 1.0,
    "max": float("-inf"),
    "min": float("inf"),
    "argmax": float("-inf"),
    "argmin": float("inf"),
    "any": False,
    "all": True,
}

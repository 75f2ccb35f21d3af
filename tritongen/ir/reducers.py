"""The table of reducers: one row each, with all that the compiler knows about it. Only the grammar repeats their names.

    REDUCERS["max"].identity            # -inf
    REDUCERS["max"].combine["float"]    # "lib.nan_max({a}, {b})"

A reducer is a monoid: an identity, and an operation that merges two states. A state is one value, or for argmax and argmin a
value and its place. The checker, the oracle, the reference, the gradient and the printers of kernels read this table.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf, isinf


@dataclass(frozen=True, slots=True)
class Reducer:
    """A row. Texts are Triton's, by the kind of the terms: float, int, bool.

    identity: the term that changes nothing. An infinite one is the end of its type: of bools, False or True.
    torch: the method of a tensor that folds it.
    gradient: what a term gets of the gradient of the result: "each" all of it; "taken" all of it if it was taken, else nothing;
        "others" its product with the other terms; "" where the result does not vary.
    combine, end: `{a}` and `{b}` are states, `{t}` is a state of many lanes. For a mean, `{count}` terms lie where `{inside}`.
    scan: all prefixes of a tile along axis 1.
    behind: what lies behind each element of a tile whose runs stand the last one first.
    """

    name: str
    identity: float
    torch: str
    gradient: str
    combine: dict[str, str]
    end: dict[str, str]
    scan: dict[str, str] = field(default_factory=dict)
    behind: dict[str, str] = field(default_factory=dict)
    of_two: str = ""  # the function that is the reducer of two terms
    torch_scan: str = ""  # torch's function of all prefixes
    several: bool = False  # whether torch folds several dims at once
    widens: bool = False  # whether the result may need more bits than a term
    narrow: str = ""  # what folds narrow ints as such; `end` gives them 32 bits
    first: str = ""  # of values with their places: the function that combines two
    next: str = ""  # the same, where the second place is known to be later

    @property
    def is_place(self) -> bool:
        """Whether it gives the place of a term instead of a value: argmax, argmin."""
        return bool(self.first)

    @property
    def refuses_empty(self) -> bool:
        """Whether it takes no empty dim, but no terms of one: max, min, argmax, argmin."""
        return isinf(self.identity)

    def start(self, kind: str) -> str:
        """The identity as text. LOWEST and HIGHEST stand for the ends of an int type."""
        match kind:
            case "bool":
                return str(self.identity > 0)
            case "int" if isinf(self.identity):
                return "HIGHEST" if self.identity > 0 else "LOWEST"
            case "int":
                return str(int(self.identity))
        return f'float("{self.identity}")' if isinf(self.identity) else str(self.identity)

    def whole(self, kind: str) -> str:
        """The end of a tile along all axes: a scalar."""
        text = self.end[kind].replace(", keep_dims=True", "")
        return text.replace(", {axis}", ", None" if text.startswith("tl.reduce") else "")


def _same(text: str, *kinds: str) -> dict[str, str]:
    return dict.fromkeys(kinds or ("float", "int", "bool"), text)


def _extreme(name: str, identity: float, operator: str, narrow: str) -> Reducer:
    return Reducer(
        name,
        identity,
        f"a{name}",
        "taken",
        {
            "float": f"lib.nan_{name}({{a}}, {{b}})",
            "int": f"tl.{name}imum({{a}}, {{b}})",
            "bool": f"{{a}} {operator} {{b}}",
        },
        {
            "float": f"tl.reduce({{t}}, {{axis}}, lib.nan_{name}, keep_dims=True)",
            "int": f"tl.{name}({{t}}, {{axis}}, keep_dims=True)",
            "bool": f"tl.{name}({{t}}.to(tl.int32), {{axis}}, keep_dims=True) != 0",
        },
        {
            "float": f"tl.associative_scan({{t}}, 1, lib.nan_{name})",
            "int": f"tl.associative_scan({{t}}, 1, {narrow})",
            "bool": f"tl.associative_scan({{t}}.to(tl.int32), 1, {narrow}) != 0",
        },
        _same(f"lib.{name}_behind") | {"float": f"lib.nan_{name}_behind"},
        of_two=f"{name}imum",
        torch_scan=f"cum{name}",
        several=True,
        narrow=narrow,
    )


def _of_place(extreme: Reducer) -> Reducer:
    """The place of a largest or smallest term beside its value."""
    name, first = f"arg{extreme.name}", f"lib.first_{extreme.name}"
    combine = _same(f"{first}({{a}}, {{b}})")
    end = _same(f"tl.reduce(({{t}}), {{axis}}, {first}, keep_dims=True)")
    later = f"lib.next_{extreme.name}"
    return Reducer(name, extreme.identity, name, "", combine, end, first=first, next=later)


MAX = _extreme("max", -inf, "|", "lib.larger")
MIN = _extreme("min", inf, "&", "lib.smaller")
ROWS = (
    Reducer(
        "sum",
        0.0,
        "sum",
        "each",
        _same("{a} + {b}"),
        _same("tl.sum({t}, {axis}, keep_dims=True)"),
        _same("tl.cumsum({t}, 1)", "float", "int"),
        _same("lib.sums_behind", "float", "int"),
        of_two="add",
        torch_scan="cumsum",
        several=True,
        widens=True,
    ),
    Reducer(
        "prod",
        1.0,
        "prod",
        "others",
        _same("{a} * {b}"),
        _same("tl.reduce({t}, {axis}, lib.multiply, keep_dims=True)"),
        _same("tl.cumprod({t}, 1)", "float", "int"),
        _same("lib.products_behind", "float", "int"),
        of_two="mul",
        torch_scan="cumprod",
        widens=True,
    ),
    MAX,
    MIN,
    # Only for a tile in registers. A loop computes a mean together with the squares about it (`PAIRS` of `emit/folds.py`).
    Reducer("mean", 0.0, "mean", "each", {}, {"float": "lib.mean_of({t}, {inside}, {count}, {axis})"}, widens=True),
    replace(MAX, name="any", identity=0.0, torch="any", gradient="", of_two="", torch_scan="", several=False),
    replace(MIN, name="all", identity=1.0, torch="all", gradient="", of_two="", torch_scan="", several=False),
    _of_place(MAX),
    _of_place(MIN),
)  # fmt: skip
REDUCERS: dict[str, Reducer] = {row.name: row for row in ROWS}

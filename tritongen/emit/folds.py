"""What printers of folds share: the table of paired folds (`schedule/paired.py`), and the line that takes a value.

One pass computes such a pair together. The table of single reducers is `ir/reducers.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tritongen.ir.functions import ATOM

NO_PLACE = "2147483647"  # the place of a masked lane: later than any other


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


def combined(combine: str, total: str, value: tuple[str, int]) -> str:
    """The line that takes a value, with its precedence, into the accumulator `total`."""
    text, precedence = value
    if combine == "{a} + {b}":
        return f"{total} += {text}"
    if not combine.endswith(")") and precedence < ATOM:
        text = f"({text})"
    return f"{total} = {combine.format(a=total, b=text)}"

"""Rows that teams of programs share: a team walks a row, each program its own CHUNK, and meets to merge what all found.

The second walk finds the row in the L2 cache, since few rows are under way at a time. Programs that wait for
each other must all run at once: the launch says so (`Launch.together`). Input: a `Body` over a kernel with
levels. Output: its `KernelView`.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tritongen.emit.body import Body
from tritongen.emit.tiles import open_tile, view
from tritongen.emit.view import KernelView
from tritongen.emit.walks import (
    merge_level,
    part_names,
    row_values,
    tiled_reads,
    walk_level,
    walk_outputs,
)

HELPERS = {"_meet": '''
@triton.jit
def _meet(arrived_ptr, team):
    """Waits for `team` programs to come here: what each of them stored before, all may load after."""
    tl.debug_barrier()  # one thread speaks for all of its program
    tl.atomic_add(arrived_ptr, 1, sem="acq_rel")
    while tl.atomic_add(arrived_ptr, 0, sem="acquire") < team:
        pass
'''}
HELPERS = {name: source.strip() + "\n" for name, source in HELPERS.items()}


def team(body: Body) -> KernelView:
    """Level by level: the folds over the own chunk, what all left of them, the values that follow."""
    var = open_team(body)
    opening = open_row(body)
    first, *levels = body.kernel.levels
    row_values(body, first, store=True, first_part=var["part"])
    lines, body.lines = tuple(body.lines), []
    again = tiled_reads(body)
    body.evict = dict.fromkeys(again, "last")  # read once more behind the folds
    walks = []
    for number, level in enumerate(levels):
        walk = walk_level(body, level, var, final=False)
        meet(body, var, number)
        merge_level(body, level, var, store=True)
        walks.append(replace(walk, after=(*walk.after, *body.lines)))
        body.lines = []
    body.evict = dict.fromkeys(again, "first")
    walks += walk_outputs(body, var)
    spoken = "\n".join((*lines, *(x for w in walks for x in (*w.before, *w.body, *w.after))))
    used = [line for line in opening if re.search(rf"\b{line.split()[0]}\b", spoken)]
    doc = "Program (part, team): a team shares a row at a time, each program one CHUNK of it."
    return view(body, var, ("BLOCK", "LANES"), doc, lines=(*used, *lines), loops=tuple(walks))


def open_team(body: Body) -> dict[str, str]:
    var = open_tile(body)
    turns = var["last"]
    var |= part_names(body) | {name: body.names.free(name) for name in ("team", "turn")}
    var |= {"first": f"{var['part']} * CHUNK", "last": var["stop"], "turns": turns, "height": "1"}
    var["part_cast"] = "" if var["col_outer"] else ".to(tl.int64)"
    row, col = body.kernel.axes
    body.axis_mask |= {row.run.name: "", col.run.name: var["inside"]}  # the one row is there
    body.together = {}
    body.looping = frozenset(part.name for part in (row.outer, row.run))
    if row.outer.digits:
        var["row_turns"] = body.extent(row.outer.extent, f"{var['row_outer']}s")
    # Past L1, which may hold a neighbour's line from before.
    return var | {"all_parts": var["team"], "parts_cached": ', cache_modifier=".cg"'}


def open_row(body: Body) -> tuple[str, ...]:
    """The digits of the row, ahead of the walks that read them."""
    for part in (body.kernel.axes[0].outer, body.kernel.axes[0].run):
        if len(part.digits) > 1:
            for digit in part.digits:
                body.index_text(digit.index)
    lines, body.lines = tuple(body.lines), []
    return lines


def meet(body: Body, var: dict[str, str], number: int) -> None:
    """Each level and each row has a counter of its own, so none is ever set back."""
    body.helpers["_meet"] = None
    rows = f"{var['row_turns']} * {var['rows']}" if var["row_outer"] else var["rows"]
    skip = "" if number == 0 else f"{rows} + " if number == 1 else f"{number} * {rows} + "
    body.line(f"_meet({body.pointer('arrived')} + {skip}{var['turn']}, {var['team']})")

"""Explains why two steps are separate: what keeps a group out of the step that it reads from.

    apart(groups)    # [(), ((0, "`max` over j needs all of s_sum, which is computed in tiles of (i, j)"),)]

`explain` shows this. It is derived from the groups that `group.py` found.
"""

from __future__ import annotations

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import index
from tritongen.ir.free import binders_of, fetches, reads
from tritongen.schedule.members import Group, is_reducer

Apart = tuple[tuple[int, str], ...]  # number of the other group, the reason


def apart(groups: tuple[Group, ...]) -> list[Apart]:
    """For each group, the earlier ones that it needs values of; the one before it where it needs none."""
    read = [{j for j in range(k) if _values_read(g, groups[j])} for k, g in enumerate(groups)]
    found: list[Apart] = []
    for k, group in enumerate(groups):
        needed = []
        for j in sorted(read[k]):
            between = [groups[m] for m in sorted(read[k]) if j in read[m]]
            needed.append((j, _why(group, groups[j], between)))
        found.append(tuple(needed or ([(k - 1, _unlike(group, groups[k - 1]))] if k else [])))
    return found


def _values_read(group: Group, other: Group) -> list[tuple[ir.Nest, ir.Read | None, ir.Nest]]:
    """(reader, read, value) of what the group takes from the other; no read where it gathers by it."""
    computed = {n.name for n in group.nests}
    made = {n.name: n for n in other.nests if n.name not in computed}
    found: list[tuple[ir.Nest, ir.Read | None, ir.Nest]] = []
    for nest in group.nests:
        found += [(nest, None, made[a.tensor]) for a in fetches(nest.body) if a.tensor in made]
        found += [(nest, r, made[r.tensor]) for r in reads(nest.body) if r.tensor in made]
    return found


def _why(group: Group, other: Group, between: list[Group]) -> str:
    """The most informative reason."""
    for reader, read, value in _values_read(group, other):
        if read is None:
            return f"{reader.name} is gathered by {value.name}, whose values are needed first"
    for reader, read, value in _values_read(group, other):
        for fold in filter(is_reducer, group.nests):
            along = [b.index for b in binders_of(fold) if read and index(b.index) in read.coords]
            if along:
                how = f"`{fold.fold.op}` over {', '.join(along)}"
                return f"{how} needs all of {value.name}, which is computed {_where(other)}"
        if read and read.coords != value.coords:
            at = ", ".join(map(str, read.coords))
            return f"{reader.name} reads {value.name} at [{at}], which is not where it is computed"
    for step in between:
        (_, _, value), *_ = _values_read(step, other)
        (_, _, last), *_ = _values_read(group, step)
        return f"it also needs {last.name}, which needs all of {value.name} first"
    return _unlike(group, other)


def _unlike(group: Group, other: Group) -> str:
    if group.product is not None and other.product is not None:
        return "each has a product of its own, and a tile of tl.dot holds one"
    mine, theirs = _box(group), _box(other)
    if mine != theirs:
        return f"it runs over {_listed(mine)}, the other over {_listed(theirs)}"
    mine, theirs = _folded(group), _folded(other)
    if mine != theirs:
        return f"it reduces {_listed(mine)}, the other {_listed(theirs)}"
    return f"no kernel takes both kinds: {group.kind} and {other.kind}"


def _where(group: Group) -> str:
    if group.kind == "rows":
        return f"a few of {_listed(_box(group))} at a time"
    return f"in tiles of {_listed(_box(group))}"


def _box(group: Group) -> tuple[str, ...]:
    """The indices that a group's widest value runs over."""
    widest = max(group.nests, key=lambda n: len(n.box))
    return tuple(b.index for b in widest.box)


def _folded(group: Group) -> tuple[str, ...]:
    return tuple(dict.fromkeys(b.index for n in group.nests for b in binders_of(n)))


def _listed(names: tuple[str, ...]) -> str:
    return f"({', '.join(names)})" if names else "nothing"

"""Tables of configs: `@triton.autotune(...)` as it stands in front of a kernel, where `build --autotune` asks for it.

Input: a step and the view of one of its kernels. Output: the view with what may be tried for it (`with_table`), and the
decorator's text. What is free at all is `schedule/tunable.py`'s business, the launch `launch.py`'s.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from tritongen.emit.view import KernelView
from tritongen.schedule.plan import Step
from tritongen.schedule.tunable import OPTIONS, launched, table

# Bytes in a row of a tile that is stored by descriptor, of elements of at least one.
LEAST_STORED = 16


def with_table(view: KernelView, step: Step) -> KernelView:
    parts = [more for _, _, more in view.tiles.values() if isinstance(more, int) and more > 1]
    columns = LEAST_STORED * max(parts, default=1)
    taken = {*view.names} - told_by_host(view)
    return replace(view, table=table(step, view.name, taken, columns))


def told_by_host(view: KernelView) -> set[str]:
    """Entries that follow from `choose` on the host: the tile of a descriptor, whether blocks are whole.

    The descriptors of `view.tiles` follow what is measured.
    """
    setup = (*view.setup, *view.stored_setup)
    lines = (line for line in setup if re.split(r"\W", line, maxsplit=1)[0] not in view.tiles)
    return set(re.findall(r'config\["(\w+)"\]', "\n".join((*lines, *view.arguments))))


def tabled(text: str, view: KernelView, step: Step, totals: Collection[str]) -> str:
    """A kernel's text with its table in front, behind the functions that it calls. `totals`: as `added_to` takes them."""
    if not view.table:
        return text
    lines = "\n".join(decorator(view, step, totals))
    found = rf"^(?=@triton\.jit.*\ndef {view.name}\()"
    text, count = re.subn(found, lambda _: f"{lines}\n", text, flags=re.MULTILINE)
    assert count == 1, f"{view.name} is launched as if it had a table"
    return text


def decorator(view: KernelView, step: Step, totals: Collection[str]) -> list[str]:
    tiled = [n for n in view.table[0] if n not in OPTIONS]
    walked = {n: view.ends[n] for n in tiled if view.ends.get(n) in view.keys}
    pruned = ", ".join(f'{name}="{size}"' for name, size in walked.items())
    configs = [f"        {config_text(entries)}," for entries in view.table]
    described = {name: shape for name, shape in view.tiles.items() if {*shape} & {*tiled}}
    shapes = [f"        {name}={_quoted(shape)}," for name, shape in described.items()]
    opening, closing = ("lib.with_blocks(", ")") if shapes else ("[", "]")
    return [
        "@triton.autotune(",
        f"    configs={opening}",
        *configs,
        *shapes,
        f"    {closing},",
        f"    key=[{_listed(view.keys)}],",
        f'    prune_configs_by={{"early_config_prune": lib.tiles_within({pruned})}},',
        *(f"    {how}=[{_listed(names)}]," for how, names in added_to(view, step, totals) if names),
        ")",
    ]


def config_text(entries: dict[str, int]) -> str:
    tiles = ", ".join(f"{n}={value}" for n, value in entries.items() if n not in OPTIONS)
    options = ", ".join(f"{n}={entries[n]}" for n in OPTIONS)
    return f"triton.Config({f'dict({tiles})' if tiles else '{}'}, {options})"


def added_to(
    view: KernelView, step: Step, totals: Collection[str] = ()
) -> list[tuple[str, tuple[str, ...]]]:
    """Tensors that a kernel adds to, because each timed launch would add again. They are set back before each launch.

    `totals`: sums of chunks, each of which adds its own to what lies there.
    """
    stores = step.kernel(view.name).stores
    zeroed = [{name for name, _ in v.zeroed} for v, _ in launched(step, view.name)]
    some, every = set.union(*zeroed), set.intersection(*zeroed)
    passed = {given: name for name, given in zip(view.names, view.arguments, strict=False)}
    names = [name for name in stores if name in some.union(totals)]
    return [
        ("reset_to_zero", tuple(passed[n] for n in names if n in every)),
        ("restore_value", tuple(passed[n] for n in names if n not in every)),
    ]


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _quoted(shape: tuple[str | int, ...]) -> str:
    words = (f'"{n}"' if isinstance(n, str) else str(n) for n in shape)
    return f"({', '.join(words)})"

"""What a template sees of a kernel: names, booleans and complete lines. No calls, no arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, field

from tritongen.schedule.plan import KernelPlan

# Skeletons that share a template: merging and walking one chunk, a tile whatever is done with it.
TEMPLATES = {
    "finish": "part",
    "lanes_part": "part",
    "lanes_merge": "merge",
    "scan_finish": "scan_part",
    "box": "tile",
    "scatter": "tile",
    "runs": "window",
    "tf32x3_half": "persistent",
}


def template_of(kernel: KernelPlan) -> str:
    """The template, without `.py.j2`."""
    return TEMPLATES.get(kernel.skeleton, kernel.skeleton)


@dataclass(frozen=True, slots=True)
class Loop:
    """One walk over an axis: what stands before it, in it, and after it."""

    before: tuple[str, ...]
    body: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KernelView:
    name: str
    template: str
    doc: str
    parameters: tuple[str, ...]
    arguments: tuple[str, ...]  # what the launch passes for them, `NAME=value` for constexprs
    var: dict[str, str]  # the skeleton's own variables, by role
    multiples: dict[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # a constexpr: what it divides
    prologue: tuple[str, ...] = ()
    turn: tuple[str, ...] = ()  # what begins each turn of a program that takes several tiles
    lines: tuple[str, ...] = ()
    loops: tuple[Loop, ...] = ()
    epilogue: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()  # what the host does before the launch
    sizes: tuple[str, ...] = ()  # quoted: those that the JIT must not specialise on
    blocks: tuple[str, ...] = ()  # constexprs that the variant's config gives
    flags: dict[str, bool] = field(default_factory=dict)

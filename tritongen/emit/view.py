"""What a template sees of a kernel: names, booleans and complete lines. No calls, no arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tritongen.schedule.plan import KernelPlan

WIDTH = 88  # of a line of arguments, which stands at most 12 columns in
Lines = tuple[str, ...]

# Skeletons that share a template: whole rows and parts of rows, say.
TEMPLATES = {"scan_part": "scan", "scan_finish": "scan", "runs": "window", "taps": "contraction"}


def template_of(kernel: KernelPlan) -> str:
    """The template, without `.py.j2`."""
    return TEMPLATES.get(kernel.skeleton, kernel.skeleton)


@dataclass(frozen=True, slots=True)
class Store:
    """A value, and where it is stored."""

    value: str
    lines: Sequence[str]  # of its address
    address: str
    mask: str
    fold: str = field(default="add", kw_only=True)  # of an atomic one


@dataclass(frozen=True, slots=True)
class KernelView:
    name: str
    template: str
    doc: str
    parameters: Lines
    arguments: Lines  # what the launch passes for them, `NAME=value` for constexprs
    multiples: dict[str, Lines] = field(default_factory=dict)  # a constexpr: what it divides
    prologue: Lines = ()
    per_tile: Lines = ()  # what begins each tile of a program that takes several
    lines: Lines = ()
    stores: Sequence[Store] = ()
    setup: Lines = ()  # what the host does before the launch
    stored_setup: Lines = ()  # the same, of outputs: parts of sums are not outputs
    optional: Lines = ()  # parameters with defaults, which parts of sums are given
    workspaces: Lines = ()  # and where those are left; None in a launch of whole ones
    sizes: Lines = ()  # quoted: those that the JIT must not specialise on
    blocks: Lines = ()  # constexprs that the variant's config gives
    flags: dict[str, bool] = field(default_factory=dict)
    var: dict[str, str] = field(default_factory=dict)  # the skeleton's own variables, by role
    ends: dict[str, str] = field(default_factory=dict)  # of a tile's sides, by their constexprs
    keys: Lines = ()  # parameters that are sizes of the call, and how products of f32 are computed
    # Parameters that are descriptors: rows and columns of their tiles, as `lib.with_blocks` takes them
    tiles: dict[str, tuple[str | int, ...]] = field(default_factory=dict)
    table: tuple[dict[str, int], ...] = ()  # configs to measure (`tuning.py`)

    @property
    def names(self) -> Lines:
        """The names of the parameters."""
        every = (*self.parameters, *self.optional, *self.workspaces)
        return tuple(p.partition(":")[0].partition("=")[0] for p in every)

    @property
    def said_multiples(self) -> list[str]:
        """The lines that say what divides sizes and strides, four on a line: as many whatever they are called."""
        return [
            _multiples(vec, names[k : k + 4])
            for vec, names in self.multiples.items()
            for k in range(0, len(names), 4)
        ]

    @property
    def signature(self) -> str:
        """`name(parameters):`, in groups where that is longer than a line: black would give each parameter its own."""
        plain = [p for p in self.parameters if ":" not in p]
        constants = [p for p in self.parameters if ":" in p]
        optional = (*self.optional, *(f"{name}=None" for name in self.workspaces))
        return "\n".join(call_lines(self.name, plain, constants, optional, end=":"))


def _multiples(vec: str, names: Lines) -> str:
    if len(names) == 1:
        return f"{names[0]} = lib.multiple({names[0]}, {vec})"
    said = ", ".join(names)
    return f"{said} = lib.multiples(({said}), {vec})"


def indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)


def call_lines(name: str, *groups: Sequence[str], end: str = "") -> list[str]:
    """`name(arguments)` on one line, or in groups where that is too long: black would give each its own."""
    short = f"{name}({', '.join(one for group in groups for one in group)}){end}"
    if len(short) <= WIDTH:
        return [short]
    return [f"{name}(", *in_groups(*groups), f"){end}  # fmt: skip"]


def in_groups(*groups: Sequence[str]) -> list[str]:
    """Arguments or parameters, each group on as few lines as there may be."""
    lines = list[str]()
    for group in groups:
        line = ""
        for one in group:
            if line and len(line) + len(one) + 2 > WIDTH:
                lines.append(f"    {line}")
                line = ""
            line += f"{' ' if line else ''}{one},"
        lines += [f"    {line}"] if line else []
    return lines

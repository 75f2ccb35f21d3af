"""What is worth timing for one step of one call: at most six ways, the plan's own first.

    candidates(step, chooser, facts, device)    # [Candidate("rows", {...}, {}), Candidate("loop", ...), ...]

A way is a variant whose condition holds for the call, with its free knobs as they are or one of them
changed: a stage more and less, twice and half the warps, twice and half a tile. A `tune` clause
replaces these. Tiles that would not fit the device's shared memory are left out before anything is
compiled; where none would be left, the plan's own is made smaller until it fits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tritongen.choice import holding
from tritongen.ir.nodes import Op
from tritongen.runtime.choosers import Chooser
from tritongen.runtime.tuned import LARGEST_TILE, in_range
from tritongen.schedule.classes.contraction_stages import shared_bytes
from tritongen.schedule.plan import Step, Variant
from tritongen.schedule.rules import evaluate

MOST = 6
TILES_OF_AXES = {"row": "ROWS", "col": "BLOCK", "i": "BLOCK"}


class CannotTune(ValueError):
    """A `tune` clause that fits no kernel of the step; the message says what would."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A variant, the whole config it would run with, and the knobs that differ from its rules."""

    variant: str
    config: dict[str, int]
    knobs: dict[str, int]

    def __str__(self) -> str:
        changed = ", ".join(f"{k}={v}" for k, v in self.knobs.items())
        return f"{self.variant} ({changed})" if changed else self.variant


@dataclass(frozen=True, slots=True)
class Device:
    """The limits of a config."""

    shared_bytes: int


def candidates(
    op: Op, step: Step, chooser: Chooser, facts: Mapping[str, int], device: Device
) -> list[Candidate]:
    """The plan's own choice, then others; all fit the device."""
    held = holding(step, facts)
    if op.tune:
        wished = _wished(op, step, held[0], chooser, facts)
    else:
        wished = _derived(held, chooser, facts)
    found: dict[tuple, Candidate] = {}
    variants = {v.name: v for v in held}
    for c in wished:
        if fits(step, variants[c.variant], c.config, facts, device):
            found.setdefault((c.variant, *sorted(c.config.items())), c)
    kept = list(found.values())[:MOST]
    return kept or [shrunk(step, held[-1], chooser, facts, device)]


def config_of(
    variant: Variant, facts: Mapping[str, int], knobs: Mapping[str, int]
) -> dict[str, int]:
    """The variant's config for these facts; what speaks of a changed knob follows it."""
    config: dict[str, int] = {}
    for name, rule in variant.config:
        config[name] = knobs[name] if name in knobs else evaluate(rule, {**facts, **config})
    return config


def _derived(
    held: list[Variant], chooser: Chooser, facts: Mapping[str, int]
) -> Iterator[Candidate]:
    own = held[0]
    yield Candidate(own.name, config_of(own, facts, {}), {})
    near = list(_neighbours(own, chooser, facts))
    yield from near[:2]
    for other in held[1:3]:
        yield Candidate(other.name, config_of(other, facts, {}), {})
    yield from near[2:]


def _neighbours(
    variant: Variant, chooser: Chooser, facts: Mapping[str, int]
) -> Iterator[Candidate]:
    """Candidates with one knob changed: stages first if there are any, then warps, then tiles.

    On an H200 one stage more or less won two of three matmuls (1.25x at 1024^3, 1.12x at 2048^3). Other warps won none. A wide softmax
    won by its BLOCK (1.06x).
    """
    base = config_of(variant, facts, {})
    free = chooser.knobs(variant.name)
    order = sorted(free, key=lambda k: (k != "num_stages", k != "num_warps", not k.startswith("B")))
    for name in order:
        value = base[name]
        changes = (value + 1, value - 1) if name == "num_stages" else (value * 2, value // 2)
        for knobs in ({name: changed} for changed in changes if in_range(name, changed)):
            yield Candidate(variant.name, config_of(variant, facts, knobs), knobs)


def _wished(
    op: Op, step: Step, variant: Variant, chooser: Chooser, facts: Mapping[str, int]
) -> Iterator[Candidate]:
    """The plan's own, and the combinations that the `tune` clause names, as far as they are this step's."""
    knobs = {knob_of(name, step, variant): values for name, values in op.tune}
    free = chooser.knobs(variant.name)
    own = {name: values for name, values in knobs.items() if name in free}
    yield Candidate(variant.name, config_of(variant, facts, {}), {})
    for values in itertools.product(*own.values()):
        wish = {name: int(v) for name, v in zip(own, values, strict=True)}
        if all(in_range(name, n) for name, n in wish.items()):
            yield Candidate(variant.name, config_of(variant, facts, wish), wish)


def check_clause(op: Op, taken: list[tuple[Step, Variant, Chooser]]) -> None:
    """CannotTune where the `tune` clause names what no step of the call has."""
    for name, _ in op.tune:
        if not any(knob_of(name, s, v) in chooser.knobs(v.name) for s, v, chooser in taken):
            listed = "; ".join(
                f"{s.name} ({v.name}): {', '.join(sorted(chooser.knobs(v.name)))}"
                for s, v, chooser in taken
            )
            raise CannotTune(
                f"tune {name}: no step has a free tile over it; what is free: {listed}"
            )


def knob_of(name: str, step: Step, variant: Variant) -> str:
    """The knob of a name in a `tune` clause: `m` is BLOCK_M; warps and stages are themselves."""
    if name in ("warps", "stages"):
        return f"num_{name}"
    config = {key for key, _ in variant.config}
    for axis in step.kernel(variant.launches[0].kernel).axes:
        if any(d.index == name for d in axis.digits):
            own = f"BLOCK_{axis.name.upper()}"
            return own if own in config else TILES_OF_AXES.get(axis.name, "")
    return ""


# ---- what fits ----------------------------------------------------------------------------------
def fits(
    step: Step,
    variant: Variant,
    config: Mapping[str, int],
    facts: Mapping[str, int],
    device: Device,
) -> bool:
    tile = 1
    for name, n in config.items():
        if name in ("BLOCK", "ROWS", "BLOCK_M", "BLOCK_N"):
            tile *= n
    kernel = step.kernel(variant.launches[0].kernel)
    asked = shared_bytes(kernel, variant, {**facts, **config})
    return tile <= LARGEST_TILE and asked <= device.shared_bytes


def shrunk(
    step: Step, variant: Variant, chooser: Chooser, facts: Mapping[str, int], device: Device
) -> Candidate:
    """The universal variant with its largest free tile halved, and stages dropped, until it fits."""
    free = set(chooser.knobs(variant.name))
    knobs: dict[str, int] = {}
    config = config_of(variant, facts, knobs)
    while not fits(step, variant, config, facts, device):
        tiles = {
            n: config[n] for n in free if not n.startswith("num_") and in_range(n, config[n] // 2)
        }
        if config.get("num_stages", 1) > 1 and "num_stages" in free:
            knobs["num_stages"] = config["num_stages"] - 1
        elif tiles:
            largest = max(tiles, key=lambda n: tiles[n])
            knobs[largest] = tiles[largest] // 2
        else:
            break
        config = config_of(variant, facts, knobs)
    return Candidate(variant.name, config, knobs)


def device_limits() -> Device:
    """The limits of the current GPU."""
    from tritongen.trace import at_hand

    return Device(at_hand().shared << 10)

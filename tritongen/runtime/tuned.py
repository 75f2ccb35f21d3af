"""Choices that `tritongen tune` measured on this machine, in place of those of the plan.

    <user cache>/tritongen/tuned/softmax_<digest>.json

An entry says which variant of a step runs, and with which tiles, warps and stages. It holds for one device, torch, Triton, dtypes and shape bucket
(sizes rounded up to a power of two). What follows from the sizes of a call, such as the width of a row, is never stored. A tuned
`choose` is the module's own, with the branch of that variant moved first and its free knobs replaced. Its condition stays.

`install` is called when a generated op is decorated. If nothing is stored, that costs one look at the folder, and a call costs
nothing. A file holds only numbers, each checked against a range. A file with anything else is ignored with one warning, and so is a
config that does not run.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import math
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import triton

from tritongen.files import write_atomically
from tritongen.lib.counts import pow2
from tritongen.runtime.cache import Refused, cache_path, private_folder, read_json, stored
from tritongen.runtime.choosers import Chooser, choosers, is_of

FORMAT = 1
MOST_BYTES = 1 << 20
MOST_ENTRIES = 4096
LONGEST = 1e12  # microseconds
LARGEST_TILE = 1 << 20  # elements; Triton's own limit
RANGES = {"num_warps": (1, 32), "num_stages": (1, 8), "GROUP": (1, 64), "BLOCK_": (16, 1024)}


@dataclass(frozen=True, slots=True)
class Entry:
    """One measured choice. `tensors` are (dtype, bucketed shape) of what the step's launch takes."""

    device: str
    torch: str
    triton: str
    step: str
    tensors: tuple[tuple[str, tuple[int, ...]], ...]
    flags: tuple[tuple[str, bool], ...]
    variant: str
    knobs: tuple[tuple[str, int], ...]
    microseconds: float
    default_microseconds: float

    @property
    def key(self) -> tuple[Any, ...]:
        return self.device, self.torch, self.triton, self.step, self.tensors, self.flags


# ---- the key of a call --------------------------------------------------------------------------
def tensors_of(args: tuple[Any, ...]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple(
        (str(a.dtype).removeprefix("torch."), tuple(map(pow2, a.shape)))
        for a in args
        if isinstance(a, torch.Tensor)
    )


@functools.cache
def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "the interpreter"


def digest_of(source: str, op: str) -> str:
    """Twelve hex digits that differ where a kernel or a choice of the op does; layout aside."""
    parts = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and (
            is_of(node.name, op) or is_of(node.name, op, "(choose|launch)_")
        ):
            node.decorator_list = []
            node.body = node.body[ast.get_docstring(node) is not None :]  # black changes its layout
            parts.append(ast.dump(node))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def path_of(source: str, op: str) -> Path:
    return cache_path() / "tuned" / f"{op}_{digest_of(source, op)}.json"


# ---- reading and writing ------------------------------------------------------------------------
def read(path: Path, steps: Mapping[str, Chooser]) -> tuple[Entry, ...]:
    """The entries of a file; Refused where it is anything but a file that we wrote."""
    data = read_json(path, MOST_BYTES)
    _expect(isinstance(data, dict) and set(data) == {"format", "entries"}, "other keys than ours")
    _expect(_is_int(data["format"]) and data["format"] == FORMAT, "another format")
    entries = data["entries"]
    _expect(isinstance(entries, list) and len(entries) <= MOST_ENTRIES, "entries are no list")
    return tuple(_entry(e, steps) for e in entries)


def _entry(e: Any, steps: Mapping[str, Chooser]) -> Entry:
    _expect(isinstance(e, dict) and set(e) == set(Entry.__dataclass_fields__), "an odd entry")
    for name in ("device", "torch", "triton", "step", "variant"):
        _expect(isinstance(e[name], str) and len(e[name]) < 200, f"{name} is no text")
    step = steps.get(e["step"])
    if step is None or e["variant"] not in step.branches:
        raise Refused(f"no variant {e['variant'][:40]!r} of {e['step'][:40]!r}")
    for name in ("microseconds", "default_microseconds"):
        _expect(type(e[name]) in (int, float) and 0 <= e[name] < LONGEST, f"{name} is no time")
    return Entry(
        device=e["device"],
        torch=e["torch"],
        triton=e["triton"],
        step=e["step"],
        variant=e["variant"],
        microseconds=float(e["microseconds"]),
        default_microseconds=float(e["default_microseconds"]),
        tensors=_checked_tensors(e["tensors"]),
        flags=_checked_flags(e["flags"], step),
        knobs=_checked_knobs(e["knobs"], step.knobs(e["variant"])),
    )


def _checked_tensors(value: Any) -> tuple[tuple[str, tuple[int, ...]], ...]:
    _expect(isinstance(value, list) and len(value) <= 64, "tensors are no list")
    for pair in value:
        _expect(isinstance(pair, list) and len(pair) == 2, "a tensor is no pair")
        dtype, shape = pair
        _expect(
            isinstance(dtype, str) and isinstance(getattr(torch, dtype, None), torch.dtype),
            "no dtype",
        )
        _expect(
            isinstance(shape, list) and all(_is_int(n) and pow2(n) == n for n in shape),
            "no bucket",
        )
    return tuple((dtype, tuple(shape)) for dtype, shape in value)


def _checked_flags(value: Any, step: Chooser) -> tuple[tuple[str, bool], ...]:
    _expect(isinstance(value, dict) and set(value) == set(step.flags()), "other flags than ours")
    _expect(all(isinstance(v, bool) for v in value.values()), "a flag is true or false")
    return tuple((name, value[name]) for name in step.flags())


def _checked_knobs(value: Any, free: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    _expect(isinstance(value, dict) and set(value) <= set(free), "a knob that is not free")
    for name, n in value.items():
        _expect(in_range(name, n), f"{name} = {str(n)[:20]} is out of range")
    tile = math.prod(n for name, n in value.items() if not name.startswith(("num_", "GROUP")))
    _expect(tile <= LARGEST_TILE, "a tile of over 1,048,576 elements")
    return tuple(value.items())


def in_range(name: str, n: Any) -> bool:
    """Whether a knob may have that value: a power of two, except for stages."""
    low, high = next((r for start, r in RANGES.items() if name.startswith(start)), (1, 1 << 16))
    return _is_int(n) and low <= n <= high and (name == "num_stages" or n & (n - 1) == 0)


def _is_int(value: Any) -> bool:
    return type(value) is int


def _expect(holds: bool, complaint: str) -> None:
    if not holds:
        raise Refused(complaint)


def store(source: str, op: str, new: list[Entry], stale: set[tuple[Any, ...]]) -> Path:
    """Adds entries to the op's file, in place of those with the same key; `stale` keys are dropped."""
    folder = private_folder() / "tuned"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = path_of(source, op)
    try:
        kept = read(path, choosers(source, op))
    except FileNotFoundError:
        kept = ()
    except Refused as refusal:
        _warn(path, f"{refusal}: replaced")
        kept = ()
    gone = {e.key for e in new} | stale
    entries = [*(e for e in kept if e.key not in gone), *new][-MOST_ENTRIES:]
    while len(text := _text(entries)) > MOST_BYTES:
        entries = entries[len(entries) // 4 + 1 :]  # the newest stay
    write_atomically(path, text, mode=0o600)
    return path


def _text(entries: list[Entry]) -> str:
    """A line an entry."""
    lines = ",\n".join(json.dumps(_plain(e)) for e in entries)
    return f'{{"format": {FORMAT}, "entries": [\n{lines}\n]}}\n'


def _plain(e: Entry) -> dict[str, Any]:
    fields = {name: getattr(e, name) for name in Entry.__dataclass_fields__}
    return fields | {"flags": dict(e.flags), "knobs": dict(e.knobs)}


def _warn(path: Path, text: str) -> None:
    warnings.warn(f"tritongen: tuned configs in {path} are not used: {text}", stacklevel=2)


# ---- at work ------------------------------------------------------------------------------------
def install(scope: dict[str, Any], op: str, source: str) -> None:
    """Puts stored choices of one op in force, in the globals of its module."""
    files = stored("tuned", f"{op}_*.json") if source else []
    if not files or (path := path_of(source, op)) not in files:
        return  # of none, or tuned for other kernels than these
    steps = choosers(source, op)
    try:
        entries = read(path, steps)
    except (Refused, OSError) as refusal:
        _warn(path, str(refusal))
        return
    versions = (torch.__version__, triton.__version__)
    for step, chooser in steps.items():
        own = [e for e in entries if e.step == step and (e.torch, e.triton) == versions]
        if own:
            put_in_force(scope, chooser, own, path)


@dataclass(slots=True)
class _Call(threading.local):
    """The key of a thread's current launch, and the entry that it used."""

    key: tuple[str, tuple[Any, ...]] | None = None
    used: tuple[Any, ...] | None = field(default=None)


@dataclass(frozen=True, slots=True)
class InForce:
    """The entries of one step, by device, tensors and flags, and the function of each that a call has asked for."""

    entries: dict[tuple[Any, ...], Entry]
    flags: tuple[str, ...]  # of the facts
    make: Callable[[Entry], Callable[..., Any]]
    made: dict[tuple[Any, ...], Callable[..., Any]] = field(default_factory=dict)

    def tuned(self, key: tuple[Any, ...]) -> Callable[..., Any] | None:
        """The chooser for such calls, if an entry exists."""
        if key in self.entries and key not in self.made:
            self.made[key] = self.make(self.entries[key])
        return self.made[key] if key in self.entries else None

    def key(self, device: str, tensors: tuple[Any, ...], facts: dict[str, Any]) -> tuple[Any, ...]:
        return device, tensors, tuple((name, bool(facts[name])) for name in self.flags)


def put_in_force(scope: dict[str, Any], chooser: Chooser, entries: list[Entry], path: Path) -> None:
    """Replaces a step's `choose` and `launch` by ones that look an entry up first."""
    name = chooser.tree.name
    choose, launch = scope[name], scope[name.replace("choose_", "launch_", 1)]
    force = InForce(
        {(e.device, e.tensors, e.flags): e for e in entries},
        chooser.flags(),
        lambda e: chooser.with_first(e.variant, dict(e.knobs), scope),
    )
    known = {key[:2] for key in force.entries}
    call = _Call()

    @functools.wraps(choose)
    def tuned_choose(**facts: Any) -> Any:
        if call.key is not None:
            key = force.key(*call.key, facts)
            if (tuned := force.tuned(key)) is not None:
                call.used = key
                return tuned(**facts)
        return choose(**facts)

    @functools.wraps(launch)
    def tuned_launch(*args: Any) -> Any:
        key = (device_name(args[0].device), tensors_of(args))
        if key not in known:
            return launch(*args)
        call.key, call.used = key, None
        try:
            return launch(*args)
        except Exception as error:
            if call.used is None:
                raise
            force.entries.pop(call.used, None)
            first = str(error).strip().splitlines()[:1]
            _warn(path, f"{name}: {type(error).__name__}: {''.join(first)[:200]}")
            return launch(*args)
        finally:
            call.key = None

    tuned_launch.in_force = force  # type: ignore[attr-defined]  # for `trace`
    scope[name] = tuned_choose
    scope[launch.__name__] = tuned_launch


def here() -> str:
    """The name of the GPU that a call would run on; empty without one."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""

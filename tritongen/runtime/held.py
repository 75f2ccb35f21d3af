"""Launches a kernel that Triton has compiled without its JIT, through the C function behind it.

    held = held_launch(compiled, grid, arguments)
    held.text, held.names     # "launch(4, 1, 1, stream, ...)" and the values of its names

It works with Triton 3.6 and 3.7 on CUDA: it passes what the launcher's own `__call__` passes, with descriptors filled in as
its `make_tensordesc_arg` does. Any other version, and a kernel that needs more than its arguments (scratch memory, tuples),
raises Unheld. Such a call takes the ordinary path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

VERSION = ".".join(triton.__version__.split(".")[:2])
MOST_DESCRIPTORS = 64  # of one operand of one launch, by pointer


class Unheld(Exception):
    """A launch that only the JIT can do, and why."""


@dataclass(frozen=True, slots=True)
class Held:
    """A launch as text over `stream` and the names that `name_of` gave, and objects by name."""

    text: str
    names: dict[str, Any]


def held_launch(
    compiled: Any,
    grid: tuple[int, ...],
    arguments: list[Any],
    name_of: Callable[[Any], str],
    tag: str,
) -> Held:
    """`arguments`: one for each parameter. `name_of`: how the text speaks of a pointer or a float."""
    run = compiled.run
    if torch.version.hip or run.global_scratch_size or run.profile_scratch_size:
        raise Unheld("a launch that needs scratch memory")
    names = {f"kernel{tag}": compiled, f"meta{tag}": compiled.packed_metadata}
    descriptors = iter(getattr(compiled.metadata, "tensordesc_meta", None) or ())
    passed = []
    for k, (value, kind) in enumerate(zip(arguments, compiled.src.signature.values(), strict=True)):
        passed += _passed(value, kind, descriptors, name_of, names, f"{tag}_{k}")
    x, y, z = (*grid, 1, 1)[:3]
    opening = f"launch{tag}({x}, {y}, {z}, stream, {compiled.function}"
    opening += f", {bool(run.launch_cooperative_grid)}, {bool(run.launch_pdl)}"
    if VERSION == "3.7":
        names[f"launch{tag}"] = _driver().active.utils.launch
        names |= {f"kinds{tag}": run.arg_annotations, f"packed{tag}": run.kernel_signature}
        ending = f"kinds{tag}, packed{tag}, ({''.join(f'{p}, ' for p in passed)})"
        rest = f"meta{tag}, None, None, None, None, None, {ending}"  # no hooks, no scratch memory
    elif VERSION == "3.6":
        names[f"launch{tag}"] = _behind(run.launch)
        rest = ", ".join(["None", "None", f"meta{tag}", "None", "None", "None", *passed])
    else:
        raise Unheld(f"the launcher of Triton {VERSION} is not known")
    return Held(f"{opening}, {rest})", names)


def _passed(
    value: Any,
    kind: Any,
    descriptors: Iterator[dict[str, Any]],
    name_of: Callable[[Any], str],
    names: dict[str, Any],
    tag: str,
) -> list[str]:
    """The arguments of the C function for one parameter."""
    if kind == "constexpr":
        return ["None"]
    if not isinstance(kind, str):
        raise Unheld("a tuple")
    if kind.startswith("tensordesc"):
        meta = next(descriptors, None)
        if not isinstance(value, TensorDescriptor) or meta is None or meta["fp4_padded"]:
            raise Unheld("a descriptor that is passed in parts")
        names[f"tiles{tag}"] = _descriptors(value, meta)
        sizes = [str(int(n)) for n in (*value.shape, *value.strides)]
        return [f"tiles{tag}({name_of(value.base)})", *sizes]
    if kind.startswith("*"):
        return [name_of(value)]
    if type(value) is bool or type(value) is int:
        return [repr(value)]
    if type(value) is float:
        return [name_of(value)]
    raise Unheld(f"an argument {type(value).__name__} for {kind}")


def _descriptors(like: TensorDescriptor, meta: dict[str, Any]) -> Callable[[int], Any]:
    """Descriptors such as this one by pointer: bytes that say where and how, so they outlive any tensor."""
    utils, backend = _driver().active.utils, _backend()
    fill = getattr(utils, "fill_tma_descriptor_tiled", None) or utils.fill_tma_descriptor
    kind = backend.TMA_TF32 if getattr(like, "round_f32_to_tf32", False) else meta["elem_type"]
    rest = (
        meta["swizzle"],
        meta["elem_size"],
        backend.TMA_DTYPE_DEVICE_TO_HOST[kind],
        meta["block_size"],
        [int(n) for n in like.shape],
        [int(n) for n in like.strides],
        1 if like.padding == "nan" else 0,
    )
    made: dict[int, Any] = {}

    def tiles(pointer: int) -> Any:
        found = made.get(pointer)
        if found is None:
            if len(made) >= MOST_DESCRIPTORS:
                made.clear()
            found = made[pointer] = fill(pointer, *rest)
        return found

    return tiles


def _behind(launch: Any) -> Any:
    """The C function behind Python's that fills descriptors in."""
    code = getattr(launch, "__code__", None)
    if code is None:
        return launch  # no descriptors: it is the C function itself
    cells = dict(zip(code.co_freevars, launch.__closure__ or (), strict=True))
    if "launcher" not in cells:
        raise Unheld("a launcher that fills descriptors in by other means")
    return cells["launcher"].cell_contents


def _driver() -> Any:
    from triton.runtime import driver

    return driver


def _backend() -> Any:
    from triton.backends.nvidia import driver

    return driver

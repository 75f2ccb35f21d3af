"""Checks of `allocate_<op>`. Each raises a ValueError that names the op, the operand, what was expected and what was given.

The texts are those of `tritongen/ir/messages.py`.
"""

from __future__ import annotations

from typing import Any

import torch


def check_operands(
    op: str, types: str, *operands: tuple[str, Any], later: str = ""
) -> tuple[int, ...]:
    """Checks the dtypes, ranks, devices and sizes of a call's operands, and returns the sizes.

    types: "T: float16 | bfloat16, U: float32", the dtypes of each type parameter. Its first operand settles which one it is.
    operands: ("x: T[B, D]", x) for a tensor, ("len: int64[B]", len) for one of a given dtype, ("n: int", n) for a constant,
    ("eps: number | tensor", eps) for a number or a 0-dim tensor. All are on the device of the first.

    A dim that is a name alone is a size, and its first dim settles it. The sizes are returned in the order of these dims.
    `later`: the names of sizes that the op computes, "P, Q". They and dims such as `2 * D` are checked behind this call.
    """
    accepted = {
        name: choices.split(" | ")
        for name, _, choices in (one.partition(": ") for one in types.split(", "))
    }
    origin: dict[str, str] = {}  # the operand that settled a type parameter
    first, device = "", torch.device("cpu")
    for text, x in operands:
        name, _, kind = text.partition(": ")
        who = f"{op}: {name}"
        if isinstance(x, torch.Tensor):
            if x.layout is not torch.strided:
                given = f"{x.layout}: pass {name}.to_dense()"
                raise TypeError(f"{who}: expected a strided tensor, given {given}")
            if x.is_nested:
                raise TypeError(f"{who}: expected a tensor with sizes, given a nested tensor")
        elif "[" in kind:
            raise TypeError(f"{who}: expected a tensor, given {type(x).__name__}")
        if "[" not in kind:
            check_number(who, kind, x)
        else:
            dtype, _, dims = kind.removesuffix("]").partition("[")
            source = f" ({dtype}, from {origin[dtype]})" if dtype in origin else ""
            check_dtype(who, accepted.get(dtype, [dtype]), source, x)
            if dtype in accepted and dtype not in origin:
                accepted[dtype], origin[dtype] = [str(x.dtype).removeprefix("torch.")], name
            check_rank(who, dims, x)
        if not first:
            first, device = name, x.device
        elif isinstance(x, torch.Tensor) and x.device != device:
            raise ValueError(f"{who}: expected device {device} (from {first}), given {x.device}")
    sizes: dict[str, int] = {}
    computed = later.split(", ")
    for text, x in operands:
        name, _, kind = text.partition(": ")
        dims = kind.removesuffix("]").partition("[")[2].split(", ")
        for k, size in enumerate(dims):
            if not size.isidentifier() or size in computed:
                continue
            dim = k - len(dims) if "..." in dims[:k] else k
            if size not in sizes:
                sizes[size], origin[size] = x.shape[dim], name
            source = f" (from {origin[size]})"
            check_size(x.shape[dim], f"{op}: {name}: dim {dim} ({size})", sizes[size], source)
    return tuple(sizes.values())


def check_number(who: str, kind: str, x: Any) -> None:
    """Raises ValueError unless x is of this kind: "int", "bool", or a number where "| tensor" allows a 0-dim tensor."""
    expected, _, tensor = kind.partition(" | ")
    if not tensor and type(x) is not {"int": int, "bool": bool}[expected]:
        raise ValueError(f"{who}: expected {expected}, given {x!r}")
    # A kernel would take the whole part of a float.
    if expected != "number" and not hasattr(x, "__index__"):
        raise ValueError(f"{who}: expected {expected} or a 0-dim tensor, given {x!r}")
    if isinstance(x, torch.Tensor) and x.dim() != 0:
        raise ValueError(
            f"{who}: expected {expected} or a 0-dim tensor, given a {x.dim()}-dim tensor"
        )
    if isinstance(x, torch.Tensor) and (
        x.is_complex() or x.is_floating_point() and expected != "number"
    ):
        given = f"a 0-dim {str(x.dtype).removeprefix('torch.')} tensor"
        raise ValueError(f"{who}: expected {expected} or a 0-dim tensor, given {given}")


def check_dtype(who: str, names: list[str], source: str, x: torch.Tensor) -> None:
    """Raises ValueError unless x has one of these dtypes."""
    if x.dtype not in [getattr(torch, name) for name in names]:
        *others, last = [f"torch.{name}" for name in names]
        expected = f"{', '.join(others)} or {last}" if others else last
        raise ValueError(f"{who}: expected dtype {expected}{source}, given {x.dtype}")


def check_rank(who: str, dims: str, x: torch.Tensor) -> None:
    """Raises ValueError unless x has the dims "B, D". With "..." among them their number is a minimum."""
    named = [d for d in dims.split(", ") if d not in ("", "...")]
    if x.dim() == len(named) or x.dim() > len(named) and "..." in dims:
        return
    count = f"{'at least ' * ('...' in dims)}{len(named)} dim{'s' * (len(named) != 1)} [{dims}]"
    raise ValueError(f"{who}: expected {count if dims else 'a 0-dim tensor'}, given {x.dim()}")


def check_size(given: int, who: str, expected: int, source: str = "") -> None:
    """Raises ValueError unless a dim has that size. `who` says which dim it is: "softmax: y: dim -1 (D)"."""
    if given != expected:
        raise ValueError(f"{who}: expected {expected}{source}, given {given}")


def countable(who: str, tiles: tuple[int, ...], loops: tuple[int, ...]) -> None:
    """Raises ValueError if a size is too large for the counters of a kernel.

    tiles: sizes that are cut into tiles. Programs count them in 32 bits.
    loops: sizes that loops go over. They are counted in 32 bits below 2^31, and in 64 bits from there on. So only sizes
        just below 2^31 are refused.
    """
    for size in (*tiles, *(n for n in loops if n < 2**31)):
        if size >= 2_000_000_000:
            raise ValueError(f"{who}: its kernels count up to 2,000,000,000, given {size}")

"""Parses calls from the command line: `--shape M=4096,N=1024..8192 --dtype bf16`.

    for numbers in parse_shapes(["D=1024..4096,batch=64x128"]):    # 1024, 2048, 4096
        op, case = call_of(typings, numbers, "bf16")
        args = meta_arguments(op, case)          # or random_arguments(op, case, "cuda", seed=0)

`batch` (or `...`) gives the dims behind `...`. Ranges double. Several ranges in one shape move together. Numbers that
are not a call of the op raise `BadShape`, which says what to write.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tritongen.ir.algebra import Sym, evaluate, symbols
from tritongen.ir.binding import bind, operand_dtype, type_arguments
from tritongen.ir.dtypes import TORCH_NAMES
from tritongen.ir.nodes import BATCH, BATCH_SIZE, Op
from tritongen.proof.cases import (
    Case,
    all_sizes,
    coordinate_operands,
    free_sizes,
    shape_of,
    solved,
)

Numbers = dict[str, Any]  # the values of one shape, by name; "..." is a tuple of dims
PREFERRED = ("bf16", "f32")  # where nothing is said
MOST_SHAPES = 64

_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_WHOLE = re.compile(r"-?\d+")
_DIMS = re.compile(r"\d+(x\d+)*")


class BadShape(ValueError):
    """A shape that is no call of the op; the message says what would be one."""


# ---- reading ------------------------------------------------------------------------------------
def parse_shapes(texts: Sequence[str]) -> list[Numbers]:
    """The shapes that all `--shape` options give, in order."""
    return [numbers for text in texts for numbers in _parse_shape(text)]


def _parse_shape(text: str) -> list[Numbers]:
    entries: dict[str, list[Any]] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals or not value:
            raise BadShape(f"--shape {text!r}: expected NAME=NUMBER, given {part.strip()!r}")
        name = BATCH if name == "batch" else name
        if name in entries:
            raise BadShape(f"--shape {text!r}: {name} is given twice")
        entries[name] = _values(name, value, text)
    counts = {len(values) for values in entries.values()} - {1}
    if len(counts) > 1:
        raise BadShape(f"--shape {text!r}: ranges of different lengths, but they move together")
    count = counts.pop() if counts else 1
    return [{name: v[k if len(v) > 1 else 0] for name, v in entries.items()} for k in range(count)]


def _values(name: str, value: str, text: str) -> list[Any]:
    """The values of one entry: a number, a word, or the doubling values of a range."""
    if len(value) > 400:  # Python reads no number of 4,301 digits
        raise BadShape(f"--shape {text[:40]!r}: {value[:40]}... is too long for a number")
    found = _RANGE.fullmatch(value)
    if found:
        low, high = int(found[1]), int(found[2])
        if not 0 < low <= high < 2**63 or high >= low << MOST_SHAPES:
            raise BadShape(f"--shape {text!r}: {value} is not a range that doubles upwards")
        doubling = [low << k for k in range(MOST_SHAPES) if low << k <= high]
        return [(n,) for n in doubling] if name == BATCH else doubling
    if name == BATCH:
        if not _DIMS.fullmatch(value):
            raise BadShape(f"--shape {text!r}: write batch dims as 4096 or 64x128")
        dims = tuple(int(n) for n in value.split("x"))
        if max(dims) >= 2**63:
            raise BadShape(f"--shape {text!r}: {max(dims)} does not fit in 64 bits")
        return [dims]
    if value in ("true", "false"):
        return [value == "true"]
    if _WHOLE.fullmatch(value):
        if abs(int(value)) >= 2**63:
            raise BadShape(f"--shape {text!r}: {value} does not fit in 64 bits")
        return [int(value)]
    try:
        return [float(value)]
    except ValueError:
        raise BadShape(f"--shape {text!r}: {value!r} is not a number") from None


def parse_dtypes(text: str | None) -> dict[str, str]:
    """`bf16` for every type parameter (under the name ""), or `T=bf16,U=f32`."""
    found: dict[str, str] = {}
    for part in (text or "").split(",") if text else ():
        name, equals, dtype = part.strip().rpartition("=")
        if dtype not in TORCH_NAMES:
            raise BadShape(f"--dtype: {dtype!r} is not one of {', '.join(TORCH_NAMES)}")
        found[name if equals else ""] = dtype
    return found


# ---- a call of an op ----------------------------------------------------------------------------
def call_of(typings: Sequence[Op], numbers: Numbers, dtype: str | None = None) -> tuple[Op, Case]:
    """The typing that the dtypes mean, and the call; BadShape where something is missing or wrong."""
    op, dtypes = _typing(typings, parse_dtypes(dtype))
    batched = [t.name for t in op.tensors if BATCH_SIZE in t.dims]
    _check_names(op, numbers, bool(batched))
    given = {n: v for n, v in numbers.items() if n != BATCH}
    constants = {c.name: given.get(c.name, c.default) for c in op.constants}
    scalars = {s.name: given.get(s.name, 1 if s.default is None else s.default) for s in op.scalars}
    whole = {c.name: constants[c.name] for c in op.constants if c.dtype == "int"}
    sizes = {n: given[n] for n in free_sizes(op) if n in given} | whole
    for name, n in sizes.items():
        if name not in whole and not (type(n) is int and n >= 0):
            raise BadShape(f"{name}={n}: a size is a whole number, 0 or more")
        if name in whole and n is not None and type(n) is not int:
            raise BadShape(f"{name}={n}: this constant is a whole number")
    missing = [n for n, v in constants.items() if v is None]
    sizes |= _settled(op, sizes)
    missing += [n for n in free_sizes(op) if n not in sizes]
    if batched and BATCH not in numbers:
        missing.append("batch")
    if missing:
        example = ",".join(f"{n}={8 if n in constants else 1024}" for n in missing)
        raise BadShape(f"{op.name} needs {', '.join(missing)}: --shape {example}")
    batches = {name: numbers[BATCH] for name in batched}
    layouts = {t.name: "contiguous" for t in op.tensors}
    case = Case(dtypes, sizes, constants | scalars, batches, layouts)
    try:
        bind(op, meta_arguments(op, case))
    except ZeroDivisionError:
        zeros = ", ".join(f"{name}=0" for name, n in sizes.items() if n == 0)
        raise BadShape(f"{op.name} divides by zero with {zeros}") from None
    except (ValueError, RuntimeError) as error:
        raise BadShape(str(error)) from None
    return op, case


def _typing(typings: Sequence[Op], asked: Mapping[str, str]) -> tuple[Op, dict[str, str]]:
    names = {p.name for op in typings for p in op.typarams} | {""}
    for name in set(asked) - names:
        raise BadShape(f"--dtype: {typings[0].name} has no type parameter {name}")
    for op in typings:
        dtypes = {p.name: _dtype(p, asked) for p in op.typarams}
        if None not in dtypes.values():
            return op, {name: d for name, d in dtypes.items() if d is not None}
    accepted = {p.name: " ".join(p.dtypes) for op in typings for p in op.typarams}
    listed = "; ".join(f"{name}: {dtypes}" for name, dtypes in accepted.items())
    raise BadShape(f"--dtype: {typings[0].name} takes {listed}")


def _dtype(parameter: Any, asked: Mapping[str, str]) -> str | None:
    """The dtype of a type parameter: as asked, or else a usual one that it takes."""
    named = asked.get(parameter.name)
    general = asked.get("")
    if named is not None:
        return named if named in parameter.dtypes else None
    if general is not None and general in parameter.dtypes:
        return general
    if general is not None and len(asked) == 1 and parameter.name == "T":
        return None
    return next((d for d in PREFERRED if d in parameter.dtypes), parameter.dtypes[0])


def _check_names(op: Op, numbers: Numbers, batched: bool) -> None:
    known = {*free_sizes(op), *(c.name for c in op.constants), *(s.name for s in op.scalars)}
    known |= {"batch"} if batched else set()
    for name in numbers:
        shown = "batch" if name == BATCH else name
        if shown not in known:
            near = difflib.get_close_matches(shown, known, 1, 0.5)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise BadShape(f"{op.name} has no size {shown}, but {', '.join(sorted(known))}{hint}")


def _settled(op: Op, sizes: Mapping[str, int]) -> dict[str, int]:
    """Sizes that were not given and that an equation of the op settles: `C == groups * Cg`."""
    found: dict[str, int] = {}
    for _ in free_sizes(op):
        for name in free_sizes(op):
            known = {**sizes, **found}
            if name not in known:
                number = solved(op, known, name)
                number = _quotient(op, known, name) if number is None else number
                found |= {} if number is None else {name: number}
    return found


def _quotient(op: Op, known: Mapping[str, int], name: str) -> int | None:
    """Cg of `C == groups * Cg`, where that is a whole number."""
    for fact in op.requires:
        for product, other in ((fact.left, fact.right), (fact.right, fact.left)):
            powers = [dict(factors).get(Sym(name)) for factors, _ in product.terms]
            if fact.op != "==" or powers != [1] or name in symbols(other):
                continue
            try:
                whole, rest = divmod(evaluate(other, known), evaluate(product, {**known, name: 1}))
            except (KeyError, ZeroDivisionError):
                continue
            return int(whole) if rest == 0 else None
    return None


# ---- its arguments ------------------------------------------------------------------------------
def meta_arguments(op: Op, case: Case) -> dict[str, Any]:
    """Tensors without storage, and the numbers."""
    known = all_sizes(op, case.sizes)
    tensors = {
        t.name: torch.empty(
            shape_of(t, known, case.batches), dtype=_stored(t.dtype, case), device="meta"
        )
        for t in op.tensors
    }
    return tensors | case.numbers | type_arguments(op, case.dtypes)


def random_arguments(op: Op, case: Case, device: str, seed: int = 0) -> dict[str, Any]:
    """Random arguments: normal numbers, small integers, and coordinates inside of what they index."""
    random = torch.Generator(device).manual_seed(seed)
    known = all_sizes(op, case.sizes)
    extent = min((n for n in known.values() if n > 0), default=1)
    coordinates = coordinate_operands(op)
    args: dict[str, Any] = {}
    for t in op.tensors:
        shape, dtype = shape_of(t, known, case.batches), _stored(t.dtype, case)
        if t.name in coordinates:
            value = torch.randint(0, extent, shape, generator=random, device=device)
        elif dtype.is_floating_point:
            value = torch.randn(shape, generator=random, device=device, dtype=torch.float32)
        else:
            value = torch.randint(0, 10, shape, generator=random, device=device)
        args[t.name] = value.to(dtype)
    return args | case.numbers | type_arguments(op, case.dtypes)


def _stored(dtype: str, case: Case) -> torch.dtype:
    return operand_dtype(dtype, case.dtypes)


def shape_text(op: Op, case: Case) -> str:
    """`batch=64x128, D=1024, bf16`: the call as a row of a table names it."""
    parts = [f"batch={'x'.join(map(str, b)) or '1'}" for b in list(case.batches.values())[:1]]
    parts += [f"{n}={case.sizes[n]}" for n in free_sizes(op)]
    defaults = {c.name: c.default for c in op.constants} | {s.name: s.default for s in op.scalars}
    for name, value in case.numbers.items():
        if value != defaults[name]:
            parts.append(f"{name}={value}")
    dtypes = dict.fromkeys(case.dtypes.values())
    return ", ".join([*parts, *dtypes])


def elements(op: Op, case: Case) -> int:
    """Elements of the widest operand: the size of a call, on one axis of a plot."""
    known = all_sizes(op, case.sizes)
    return max((math.prod(shape_of(t, known, case.batches)) for t in op.tensors), default=0)

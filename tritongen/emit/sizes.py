"""Where each size of an op is found on the host: in a tensor's shape, or by its formula.

shape_text(x, 1) -> "x.shape[-1]"        size_lines(op, "D * 2") -> ["D = x.shape[-1]"]
"""

from __future__ import annotations

import re

from tritongen.emit.text import bare, launch_text, wrap_text
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import (
    Poly,
    denominator,
    indices,
    is_fractional,
    numerator,
    symbols,
    weight_of,
)
from tritongen.ir.batches import broadcasting
from tritongen.ir.functions import TERM
from tritongen.reference.batches import expanded


def dim_position(tensor: ir.Tensor, dim: int) -> int:
    """The subscript of a dim in `shape`: negative behind the batch dims."""
    before = tensor.dims[:dim]
    return dim - len(tensor.dims) if ir.BATCH_SIZE in before else dim


def shape_text(tensor: ir.Tensor, dim: int) -> str:
    return f"{tensor.name}.shape[{dim_position(tensor, dim)}]"


def stride_along(tensor: str, coords: tuple[Poly, ...], name: str) -> str:
    """How far apart in memory neighbours along an index are, which moves one of these coordinates; "" where none."""
    for k, coordinate in enumerate(coords):
        weight = weight_of(coordinate, name)
        if weight is not None and weight.terms:
            back = any(ir.BATCH in indices(c) for c in coords[:k])
            stride = f"{tensor}.stride({k - len(coords) if back else k})"
            factor = launch_text(weight)
            return stride if factor == "1" else f"{wrap_text(factor, TERM)} * {stride}"
    return ""


def under(op: ir.Op, dims: tuple[Poly, ...], operand: ir.Tensor, at: tuple[int, ...]) -> str:
    """An operand that has these dims `at` of a result, seen as it broadcasts; "" where only the call knows how."""
    last = range(at[0], len(dims))
    missing = [k for k in last if k not in at]
    if any(dims[k] == ir.BATCH_SIZE for k in missing):
        return ""
    if ir.BATCH_SIZE in operand.dims[1:] and operand.name in {t.name for t in broadcasting(op)}:
        return "" if missing else expanded(operand, "batch_shape")
    if not missing:
        return operand.name
    text = ("None" if k in missing else "..." if dims[k] == ir.BATCH_SIZE else ":" for k in last)
    return f"{operand.name}[{', '.join(text)}]"


def whole(p: Poly) -> str:
    """A size as Python text; an exact division is checked elsewhere."""
    if is_fractional(p):
        return f"({launch_text(numerator(p))}) // ({launch_text(denominator(p))})"
    return launch_text(p)


def at_least_0(p: Poly) -> str:
    """An extent of what a step leaves: of the N - 1 factors before the last of none there are none."""
    return f"max(0, {whole(p)})" if any(factor < 0 for _, factor in p.terms) else whole(p)


def binding_dims(op: ir.Op) -> dict[str, tuple[ir.Tensor, int]]:
    """Size -> the first operand dim that binds it."""
    constants = {c.name for c in op.constants} | {d.name for d in op.defines}
    found: dict[str, tuple[ir.Tensor, int]] = {}
    for tensor in op.tensors:
        for k, dim in enumerate(tensor.dims):
            name = bare(dim)
            if name and name != ir.BATCH and name not in constants:
                found.setdefault(name, (tensor, k))
    return found


def names_read(text: str) -> set[str]:
    """The names in a text but for strings and those of arguments and attributes: `f(M=N.stride())` reads f and N."""
    text = re.sub(r'(?<!f)"[^"\n]*"', "", text)
    return set(re.findall(r"(?<![\w.])[A-Za-z_]\w*\b(?!=[^=])", text))


def size_lines(op: ir.Op, text: str) -> list[str]:
    """Assignments for every size that `text` names, in the order in which each can be computed."""
    bound = binding_dims(op)
    every = [(o, k) for o in reversed(op.outputs) for k in range(len(o.dims))]
    outputs = {bare(o.dims[k]): (o, k) for o, k in every}  # the first one that has it
    formulas = {d.name: d.value for d in op.defines}
    needed = names_read(text)
    lines: dict[str, str] = {}

    def add(name: str) -> None:
        if name in lines:
            return
        if name in bound:
            lines[name] = f"{name} = {shape_text(*bound[name])}"
        elif name in outputs:
            lines[name] = f"{name} = {shape_text(*outputs[name])}"
        elif name in formulas:
            for inner in sorted(symbols(formulas[name])):
                add(inner)
            lines[name] = f"{name} = {whole(formulas[name])}"

    for name in (*bound, *formulas):
        if name in needed:
            add(name)
    return together(op, lines)


def together(op: ir.Op, lines: dict[str, str]) -> list[str]:
    """`M, K = x.shape` where several dims of one tensor are asked for, `_` in place of the others."""
    for tensor in (*op.tensors, *op.outputs):
        if ir.BATCH_SIZE in tensor.dims:
            continue
        wanted = [f"{bare(dim)} = {shape_text(tensor, k)}" for k, dim in enumerate(tensor.dims)]
        own = [n for n in lines if lines[n] in wanted]
        if len(own) > 1:
            said = lines.values()
            names = [line.partition(" ")[0] if line in said else "_" for line in wanted]
            lines |= dict.fromkeys(own, "")
            lines[own[0]] = f"{', '.join(names)} = {tensor.name}.shape"  # where the first is wanted
    return [line for line in lines.values() if line]

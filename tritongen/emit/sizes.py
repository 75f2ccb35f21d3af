"""Where each size of an op is found on the host: in a tensor's shape, or by its formula.

size_text("D") -> "x.shape[-1]"        batch_shape("x") -> "x.shape[:-1]"
"""

from __future__ import annotations

import re

from tritongen.emit.text import launch_text
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, Sym, denominator, is_fractional, numerator, symbols
from tritongen.ir.batches import Own, broadcasting


def dim_position(tensor: ir.Tensor, dim: int) -> int:
    """The subscript of a dim in `shape`: negative behind the batch dims."""
    before = tensor.dims[:dim]
    return dim - len(tensor.dims) if ir.BATCH_SIZE in before else dim


def shape_text(tensor: ir.Tensor, dim: int) -> str:
    return f"{tensor.name}.shape[{dim_position(tensor, dim)}]"


def batch_slice(tensor: ir.Tensor) -> str:
    """The batch dims of a tensor's shape."""
    at = tensor.dims.index(ir.BATCH_SIZE)
    behind = len(tensor.dims) - at - 1
    if at == 0 and behind == 0:
        return f"{tensor.name}.shape"
    return f"{tensor.name}.shape[{at or ''}:{-behind if behind else ''}]"


def broadcast_text(tensors: tuple[ir.Tensor, ...]) -> str:
    """What the batch dims of these operands broadcast to."""
    shapes = ", ".join(batch_slice(t) for t in tensors)
    return shapes if len(tensors) == 1 else f"torch.broadcast_shapes({shapes})"


def expanded(tensor: ir.Tensor, batch: str) -> str:
    """An operand with its batch dims expanded; expand aligns from the right, so dims before them go behind."""
    before = tensor.dims.index(ir.BATCH_SIZE)
    rest = ["-1"] * (len(tensor.dims) - 1)
    shape = ", ".join([f"*{batch}", *rest]) if rest else batch
    if not before:
        return f"{tensor.name}.expand({shape})"
    first = ", ".join(map(str, range(before)))
    last = ", ".join(str(k - before) for k in range(before))
    if before > 1:
        first, last = f"({first})", f"({last})"
    return f"{tensor.name}.movedim({first}, {last}).expand({shape}).movedim({last}, {first})"


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


def own_lines(owns: tuple[Own, ...]) -> list[str]:
    """The operands that an op has more where it is evaluated: others with a batch dim of their own."""
    lines, shapes = [], {}
    for own in owns:
        t, name = own.tensor, own.tensor.name
        shape, seen = batch_slice(t), name
        if len(own.operands) > 1:
            if own.size not in shapes:
                shapes[own.size] = f"{own.size.lower()}_shape"
                lines.append(f"{shapes[own.size]} = {broadcast_text(own.operands)}")
            shape = shapes[own.size]
            seen = expanded(t, shape)
        at = t.dims.index(ir.BATCH_SIZE)
        behind = len(t.dims) - 1 - at
        before = f"*{name}.shape[:{at}], " if at else ""
        after = f", *{name}.shape[-{behind}:]" if behind else ""
        lines.append(f"{own.name} = {seen}.reshape({before}{shape}.numel(){after})")
    return lines


def bare(p: Poly) -> str | None:
    """The name of a dim that is a size alone."""
    if len(p.terms) == 1:
        ((monomial, value),) = p.terms
        if (
            value == 1
            and len(monomial) == 1
            and monomial[0][1] == 1
            and isinstance(monomial[0][0], Sym)
        ):
            return monomial[0][0].name
    return None


def whole(p: Poly) -> str:
    """A size as Python text; an exact division is checked elsewhere."""
    if is_fractional(p):
        return f"({launch_text(numerator(p))}) // ({launch_text(denominator(p))})"
    return launch_text(p)


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


def size_lines(op: ir.Op, text: str) -> list[str]:
    """Assignments for every size that `text` names, in the order in which each can be computed."""
    bound = binding_dims(op)
    outputs = {bare(d): (o, k) for o in op.outputs for k, d in enumerate(o.dims) if bare(d)}
    formulas = {d.name: d.value for d in op.defines}
    needed = set(re.findall(r"[A-Za-z_]\w*", text))
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
    """`M, K = x.shape` where all dims of one tensor are asked for at once."""
    for tensor in (*op.tensors, *op.outputs):
        names = [n for n in map(bare, tensor.dims) if n and n != ir.BATCH]
        if len(names) < max(2, len(tensor.dims)):
            continue
        texts = [f"{n} = {shape_text(tensor, k)}" for k, n in enumerate(names)]
        if all(t in lines.values() for t in texts):
            for k, (name, text) in enumerate(zip(names, texts, strict=True)):
                if lines.get(name) == text:
                    lines[name] = f"{', '.join(names)} = {tensor.name}.shape" if k == 0 else ""
    return [line for line in lines.values() if line]

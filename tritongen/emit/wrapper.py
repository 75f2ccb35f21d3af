"""Prints `allocate_<op>` and the public function: checks with the texts of ir/messages.py, then allocation.

All errors of a call are raised here, on the host. They name the operand, the dim, what was expected and what was given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from tritongen.emit.launch import TORCH_DTYPES
from tritongen.emit.quoted import in_docstring
from tritongen.emit.sizes import binding_dims, dim_position, shape_text, whole
from tritongen.emit.text import bare, launch_text, tuple_text, wrapped
from tritongen.ir import messages
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import (
    Floor,
    Group,
    Poly,
    denominator,
    is_fractional,
    is_size,
    numerator,
    walk,
)
from tritongen.ir.batches import batched, broadcasting, spanning
from tritongen.ir.binding import given_text
from tritongen.ir.dtypes import TORCH_NAMES
from tritongen.ir.known import Facts, facts_of, plainly_nonnegative
from tritongen.reference.batches import batch_slice, broadcast_text
from tritongen.reference.printer import default_text


def parameters(op: ir.Op) -> list[tuple[str, str, str]]:
    """(name, annotation, default) of each parameter, those without a default first as written."""
    out = []
    for p in op.params:
        match p:
            case ir.Tensor(name):
                out.append((name, "torch.Tensor", ""))
            case ir.Scalar(name, dtype, default):
                kind = "int" if dtype in ir.INTS else "bool" if dtype == "bool" else "float"
                shown = "" if default is None else default_text(default)
                out.append((name, f"{kind} | torch.Tensor", shown))
            case ir.Constant(name, dtype, default):
                out.append((name, dtype, "" if default is None else default_text(default)))
    for free in op.free_typarams:
        out.append((free.name, "torch.dtype", TORCH_DTYPES.get(free.default or "", "")))
    return sorted(out, key=lambda p: bool(p[2]))


def refuse(condition: str, message: str, **fields: object) -> list[str]:
    """The lines that raise a message, which may have fields, where a condition holds."""
    message = message.format(**fields) if fields else message
    quote = "'" if '"' in re.sub(r"\{[^}]*\}", "", message) else '"'
    prefix = "f" if "{" in message else ""
    return [f"if {condition}:", f"    raise ValueError({prefix}{quote}{message}{quote})"]


def as_written(line: str, shown: Mapping[str, str]) -> str:
    """A line whose message, if it has one, uses the names of the spec. Text in braces is code."""

    def renamed(message: re.Match[str]) -> str:
        texts = re.split(r"(\{[^}]*\})", message[0])
        of_spec = partial(re.sub, r"\w+", lambda word: shown.get(word[0], word[0]))
        texts[::2] = map(of_spec, texts[::2])
        return "".join(texts)

    return re.sub(r"""'[^']*'|"[^"]*\"""", renamed, line) if shown else line


def check_lines(ops: tuple[ir.Op, ...]) -> list[str]:
    """All checks of a call; `ops` are the typings, which differ in dtypes only."""
    op = ops[0]
    types = (line for p in op.free_typarams for line in type_check(ops, p.name))
    return [*operand_checks(ops), *types, *fact_lines(op), *dim_lines(op), *batch_checks(op)]


def operand_checks(ops: tuple[ir.Op, ...]) -> list[str]:
    """The call that checks operands one by one and against each other, and gives each size that they bind a name."""
    op, bound = ops[0], binding_dims(ops[0])
    types: dict[str, dict[str, None]] = {}
    for typed in ops:
        for p in typed.typarams:
            known = types.setdefault(p.name, {})
            known |= dict.fromkeys(map(TORCH_NAMES.__getitem__, p.dtypes))
    used = {t.dtype for t in op.tensors}
    if "compute" in used:  # what the forward kept
        types["compute"] = dict.fromkeys(("float32", "float64"))
    shown = ", ".join(f"{name}: {' | '.join(d)}" for name, d in types.items() if name in used)
    given = [
        (f"{t.name}: {TORCH_NAMES.get(t.dtype, t.dtype)}[{dims_of(t)}]", t.name) for t in op.tensors
    ]
    for s in op.scalars:
        kind = ir.kind_of(s.dtype, op)
        given.append((f"{s.name}: {'number' if kind == 'float' else kind} | tensor", s.name))
    given += [(f"{c.name}: {c.dtype}", c.name) for c in op.constants if c.dtype != "float"]
    dims = {bare(d) for t in op.tensors for d in t.dims} - {None, ir.BATCH} - bound.keys()
    said = [f'"{op.name}"', f'"{shown}"', *(f'("{text}", {name})' for text, name in given)]
    said += [f'later="{", ".join(sorted(map(str, dims)))}"'] if dims else []
    names = tuple_text([*bound]) if len(bound) == 1 else ", ".join(bound)
    target = f"{names} = " if bound else ""
    return [f"{target}lib.check_operands(", *(f"    {text}," for text in said), ")"]


def dims_of(tensor: ir.Tensor) -> str:
    return ", ".join("..." if d == ir.BATCH_SIZE else whole(d) for d in tensor.dims)


def type_check(ops: tuple[ir.Op, ...], name: str) -> list[str]:
    """A type parameter that no operand binds is one of its dtypes."""
    own = (p for o in ops for p in o.typarams if p.name == name)
    allowed = [*dict.fromkeys(TORCH_DTYPES[d] for p in own for d in p.dtypes)]
    told = {"op": ops[0].name, "typaram": name, "expected": _or(allowed), "given": f"{{{name}}}"}
    return refuse(f"{name} not in {tuple_text(allowed)}", messages.TYPE, **told)


def _or(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def fact_lines(op: ir.Op) -> list[str]:
    lines: list[str] = []
    for k, fact in enumerate(op.facts):
        known = facts_of(replace(op, facts=op.facts[:k]))
        match fact:
            case ir.Define(name, value):
                lines += division_checks(op, value, known)
                own = {"op": op.name, "size": name}
                if is_fractional(value):
                    num, den = launch_text(numerator(value)), launch_text(denominator(value))
                    given = f"{{({num}) / ({den})}}"
                    told = own | {"value": str(value), "given": given}
                    lines += refuse(f"({num}) % ({den})", messages.FRACTION, **told)
                lines.append(f"{name} = {whole(value)}")
                told = own | {"value": whole(value), "given": f"{{{name}}}"}
                lines += refuse(f"{name} < 0", messages.NEGATIVE, **told)
            case ir.Require(left, op=relation, right=right, text=text, batch=batch):
                own = {"op": op.name, "fact": text, "relation": messages.OPPOSITE[relation]}
                if batch:
                    slices = (f"0 in {batch_slice(t)}" for t in op.tensors if t.name in batch)
                    test, told = " or ".join(slices), {"left": "0", "right": "0", "given": ""}
                else:
                    lines += division_checks(op, left, known) + division_checks(op, right, known)
                    a, b = whole(left), whole(right)
                    test = f"{wrapped(a)} {own['relation']} {wrapped(b)}"
                    given = given_text(op, (left, right), "{{{}}}".format)
                    shown = (side if side.isdigit() else f"{{{side}}}" for side in (a, b))
                    told = dict(zip(("left", "right"), shown, strict=True), given=given)
                lines += refuse(test, messages.REQUIRE, **own, **told)
    return lines


def division_checks(op: ir.Op, p: Poly, known: Facts) -> list[str]:
    """A divisor that may be 0, for all that was checked before, is refused before Python divides by it."""
    lines = []
    for atom in walk(p):
        match atom:
            case Floor(_, den) | Group(den) if den.constant is None and is_size(den):
                if not plainly_nonnegative(den - 1, known):
                    given = given_text(op, (p,), "{{{}}}".format)
                    told = {"op": op.name, "value": whole(p), "given": given}
                    lines += refuse(f"{wrapped(whole(den))} == 0", messages.DIVISION, **told)
    return lines


def dim_lines(op: ir.Op) -> list[str]:
    """Dims written as expressions, or as derived sizes, against what is given."""
    lines: list[str] = []
    derived = {d.name for d in op.defines} | {c.name for c in op.constants}
    for tensor in op.tensors:
        for k, dim in enumerate(tensor.dims):
            name = bare(dim)
            if dim == ir.BATCH_SIZE or (name and name not in derived):
                continue
            who = f'"{op.name}: {tensor.name}: dim {dim_position(tensor, k)} ({whole(dim)})"'
            lines.append(f"lib.check_size({shape_text(tensor, k)}, {who}, {whole(dim)})")
    return lines


def batch_checks(op: ir.Op) -> list[str]:
    """Batch dims broadcast with each other, and to those of operands that have all of them."""
    operands = batched(op)
    whole = [t for t in operands if t.whole]
    lines: list[str] = []
    for t in whole[1:]:
        differ = f"{batch_slice(t)} != {batch_slice(whole[0])}"
        lines += refuse(differ, _batch_message(op, t, whole[0]))
    if broadcasting(op):
        last = broadcasting(op)[-1]
        message = _batch_message(op, last, spanning(op)[0])
        lines += [
            "try:",
            f"    batch_shape = {broadcast_text(operands)}",
            "except RuntimeError:",
            f'    raise ValueError(f"{message}") from None',
        ]
        if whole:
            lines += refuse(f"batch_shape != {batch_slice(whole[0])}", message)
    return lines


def _batch_message(op: ir.Op, operand: ir.Tensor, first: ir.Tensor) -> str:
    return messages.BATCH.format(
        op=op.name, operand=operand.name, given=f"{{tuple({batch_slice(operand)})}}",
        expected=f"{{tuple({batch_slice(first)})}}", source=messages.SOURCE.format(operand=first.name),
    )  # fmt: skip


def docstring(op: ir.Op) -> tuple[str, ...]:
    """The docstring: results and operands with shapes and dtypes, and errors."""

    def shape(t: ir.Tensor) -> str:
        return f"{t.name}: {t.dtype}" + (f"[{dims_of(t)}]" if t.dims else "")

    types = "; ".join(f"{p.name} is {_or(list(p.dtypes))}" for p in op.typarams)
    results, operands = (", ".join(map(shape, each)) for each in (op.outputs, op.tensors))
    first = in_docstring(op.doc or "") or f"Returns {results}, given {operands}."
    told = "Takes any strides. Raises ValueError if an operand does not fit."
    return first, "", f"{types}. {told}" if types else told

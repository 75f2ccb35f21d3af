"""Prints `allocate_<op>` and the public function: checks with the texts of ir/messages.py, then allocation.

All errors of a call are raised here, on the host. They name the operand, the dim, what was expected and what was given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from tritongen.emit.launch import TORCH_DTYPES
from tritongen.emit.quoted import in_docstring
from tritongen.emit.sizes import bare, binding_dims, dim_position, shape_text, together, whole
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
from tritongen.ir.known import Facts, facts_of, plainly_nonnegative
from tritongen.reference.batches import batch_slice, broadcast_text

PYTHON_TYPES = {"int": "int", "float": "float", "bool": "bool"}


def parameters(op: ir.Op) -> list[tuple[str, str, str]]:
    """(name, annotation, default) of each parameter, those without a default first as written."""
    out = []
    for p in op.params:
        match p:
            case ir.Tensor(name):
                out.append((name, "torch.Tensor", ""))
            case ir.Scalar(name, dtype, default):
                kind = "int" if dtype in ir.INTS else "bool" if dtype == "bool" else "float"
                out.append(
                    (name, f"{kind} | torch.Tensor", "" if default is None else repr(default))
                )
            case ir.Constant(name, dtype, default):
                out.append((name, PYTHON_TYPES[dtype], "" if default is None else repr(default)))
    for free in op.free_typarams:
        out.append((free.name, "torch.dtype", TORCH_DTYPES.get(free.default or "", "")))
    return sorted(out, key=lambda p: bool(p[2]))


def refuse(condition: str, message: str) -> list[str]:
    quote = "'" if '"' in re.sub(r"\{[^}]*\}", "", message) else '"'
    prefix = "f" if "{" in message else ""
    return [f"if {condition}:", f"    raise ValueError({prefix}{quote}{message}{quote})"]


def as_written(line: str, shown: Mapping[str, str]) -> str:
    """A line whose message, if it has one, uses the names of the spec. Text in braces is code."""

    def renamed(message: re.Match[str]) -> str:
        texts = re.split(r"(\{[^}]*\})", message[0])
        texts[::2] = [
            re.sub(r"\w+", lambda word: shown.get(word[0], word[0]), t) for t in texts[::2]
        ]
        return "".join(texts)

    return re.sub(r"""'[^']*'|"[^"]*\"""", renamed, line) if shown else line


def check_lines(ops: tuple[ir.Op, ...]) -> list[str]:
    """All checks of a call; `ops` are the typings, which differ in dtypes only."""
    op = ops[0]
    lines: list[str] = []
    bound = binding_dims(op)
    first = op.tensors[0]
    for k, tensor in enumerate(op.tensors):
        lines += dtype_check(ops, k)
        lines += rank_check(op, tensor)
        if tensor is not first:
            lines.append(device_check(op, tensor.name))
    for p in op.free_typarams:
        lines += type_check(ops, p.name)
    for s in op.scalars:
        lines += scalar_check(op, s)
    for c in op.constants:
        lines += constant_check(op, c)
    lines += together(op, {name: f"{name} = {shape_text(*place)}" for name, place in bound.items()})
    for tensor in op.tensors:
        for k, dim in enumerate(tensor.dims):
            name = bare(dim)
            if name and name != ir.BATCH and name in bound and bound[name] != (tensor, k):
                lines.append(size_check(op, tensor, k, name, name, bound[name][0].name))
    lines += fact_lines(op)
    lines += dim_lines(op, bound)
    lines += batch_checks(op)
    return lines


def check(kind: str, value: str, who: str, *asked: str, source: str = "") -> str:
    """A line that calls a check of the library; `source`: the operand that settled what is expected."""
    told = [f'"{messages.SOURCE.format(operand=source)}"'] if source else []
    return f"lib.check_{kind}({', '.join([value, who, *asked, *told])})"


def size_check(
    op: ir.Op, tensor: ir.Tensor, k: int, size: str, expected: str, source: str = ""
) -> str:
    who = f'"{op.name}: {tensor.name}: dim {dim_position(tensor, k)} ({size})"'
    return check("size", shape_text(tensor, k), who, expected, source=source)


def device_check(op: ir.Op, name: str) -> str:
    first = op.tensors[0].name
    return check("device", name, f'"{op.name}: {name}"', f"{first}.device", source=first)


def scalar_check(op: ir.Op, s: ir.Scalar) -> list[str]:
    """A tensor in the place of a number: a kernel would read its first element, wherever that is."""
    kind = ir.kind_of(s.dtype, op)
    message = messages.SCALAR.format(
        op=op.name, operand=s.name, expected="number" if kind == "float" else kind,
        given=f"a {{{s.name}.dim()}}-dim tensor",
    )  # fmt: skip
    asked = [*refuse(f"{s.name}.dim() != 0", message), device_check(op, s.name)]
    return [f"if isinstance({s.name}, torch.Tensor):", *(f"    {line}" for line in asked)]


def type_check(ops: tuple[ir.Op, ...], name: str) -> list[str]:
    """A type parameter that no operand binds is one of its dtypes."""
    allowed = dict.fromkeys(
        TORCH_DTYPES[d] for o in ops for p in o.typarams if p.name == name for d in p.dtypes
    )
    message = messages.TYPE.format(
        op=ops[0].name, typaram=name, expected=_or(list(allowed)), given=f"{{{name}}}"
    )
    return refuse(
        f"{name} not in ({', '.join(allowed)}{',' if len(allowed) == 1 else ''})", message
    )


def dtype_check(ops: tuple[ir.Op, ...], position: int) -> list[str]:
    op, tensor = ops[0], ops[0].tensors[position]
    first = next((t for t in op.tensors if t.dtype == tensor.dtype), tensor)
    params = [p for o in ops for p in o.typarams if p.name == tensor.dtype]
    who = f'"{op.name}: {tensor.name}"'
    if params and first is not tensor:
        source = messages.TYPE_SOURCE.format(typaram=tensor.dtype, operand=first.name)
        return [f'lib.check_dtype({tensor.name}, {who}, {first.name}.dtype, source="{source}")']
    names = [d for p in params for d in p.dtypes] if params else [tensor.dtype]
    if tensor.dtype == "compute":
        names = ["f32", "f64"]
    return [check("dtype", tensor.name, who, *dict.fromkeys(TORCH_DTYPES[d] for d in names))]


def _or(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def rank_check(op: ir.Op, tensor: ir.Tensor) -> list[str]:
    named = [d for d in tensor.dims if d != ir.BATCH_SIZE]
    batched = len(named) < len(tensor.dims)
    if batched and not named:
        return []
    dims = ", ".join("..." if d == ir.BATCH_SIZE else whole(d) for d in tensor.dims)
    who, shown = f'"{op.name}: {tensor.name}"', f'"[{dims}]"' if dims else '""'
    return [check("rank", tensor.name, who, str(len(named)), shown)]


def constant_check(op: ir.Op, c: ir.Constant) -> list[str]:
    if c.dtype == "float":
        return []
    kind = c.dtype
    test = f"not isinstance({c.name}, {kind})" if kind == "bool" else f"type({c.name}) is not int"
    return refuse(
        test,
        messages.CONSTANT.format(
            op=op.name, operand=c.name, expected=kind, given=f"{{{c.name}!r}}"
        ),
    )


def fact_lines(op: ir.Op) -> list[str]:
    lines: list[str] = []
    for k, fact in enumerate(op.facts):
        known = facts_of(replace(op, facts=op.facts[:k]))
        match fact:
            case ir.Define(name, value):
                lines += division_checks(op, value, known)
                if is_fractional(value):
                    num, den = whole_part(value)
                    lines += refuse(
                        f"({num}) % ({den})",
                        messages.FRACTION.format(
                            op=op.name, size=name, value=str(value), given=f"{{({num}) / ({den})}}"
                        ),
                    )
                lines.append(f"{name} = {whole(value)}")
                lines += refuse(
                    f"{name} < 0",
                    messages.NEGATIVE.format(
                        op=op.name, size=name, value=whole(value), given=f"{{{name}}}"
                    ),
                )
            case ir.Require(text=text, batch=batch) if batch:
                slices = (f"0 in {batch_slice(t)}" for t in op.tensors if t.name in batch)
                sides = {"left": 0, "relation": messages.OPPOSITE[fact.op], "right": 0, "given": ""}
                message = messages.REQUIRE.format(op=op.name, fact=text, **sides)
                lines += refuse(" or ".join(slices), message)
            case ir.Require(left, relation, right, text):
                lines += division_checks(op, left, known) + division_checks(op, right, known)
                a, b = (f"({whole(p)})" if " " in whole(p) else whole(p) for p in (left, right))
                lines += refuse(
                    f"{a} {messages.OPPOSITE[relation]} {b}",
                    messages.REQUIRE.format(
                        op=op.name, fact=text, left=f"{{{whole(left)}}}", relation=messages.OPPOSITE[relation],
                        right=f"{{{whole(right)}}}", given=given_text(op, (left, right), "{{{}}}".format),
                    ),
                )  # fmt: skip
    return lines


def whole_part(p) -> tuple[str, str]:
    from tritongen.emit.text import launch_text

    return launch_text(numerator(p)), launch_text(denominator(p))


def division_checks(op: ir.Op, p: Poly, known: Facts) -> list[str]:
    """A divisor that may be 0, for all that was checked before, is refused before Python divides by it."""
    lines = []
    for atom in walk(p):
        den = (
            atom.den if isinstance(atom, Floor) else atom.poly if isinstance(atom, Group) else None
        )
        if den is None or den.constant is not None or not is_size(den):
            continue
        if not plainly_nonnegative(den - 1, known):
            lines += refuse(
                f"{whole(den)} == 0" if " " not in whole(den) else f"({whole(den)}) == 0",
                messages.DIVISION.format(
                    op=op.name, value=whole(p), given=given_text(op, (p,), "{{{}}}".format)
                ),
            )
    return lines


def dim_lines(op: ir.Op, bound) -> list[str]:
    """Dims written as expressions, or as derived sizes, against what is given."""
    lines: list[str] = []
    derived = {d.name for d in op.defines} | {c.name for c in op.constants}
    for tensor in op.tensors:
        for k, dim in enumerate(tensor.dims):
            name = bare(dim)
            if dim == ir.BATCH_SIZE or (name and name not in derived):
                continue
            lines.append(size_check(op, tensor, k, whole(dim), whole(dim)))
    return lines


def batch_checks(op: ir.Op) -> list[str]:
    """Batch dims broadcast with each other, and to those of operands that have all of them."""
    operands = batched(op)
    whole = [t for t in operands if t.whole]
    lines: list[str] = []
    for t in whole[1:]:
        lines += refuse(
            f"{batch_slice(t)} != {batch_slice(whole[0])}", _batch_message(op, t, whole[0])
        )
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
        inside = ", ".join("..." if d == ir.BATCH_SIZE else whole(d) for d in t.dims)
        return f"{t.name}: {t.dtype}[{inside}]" if t.dims else f"{t.name}: {t.dtype}"

    types = "; ".join(f"{p.name} is {_or(list(p.dtypes))}" for p in op.typarams)
    lines = [
        in_docstring(op.doc or "")
        or f"Returns {', '.join(shape(o) for o in op.outputs)}, given {', '.join(shape(t) for t in op.tensors)}."
    ]
    lines.append("")
    lines.append(
        (f"{types}. " if types else "")
        + "Operands may have any strides. Raises ValueError if an operand does not fit."
    )
    return tuple(lines)

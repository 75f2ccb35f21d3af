"""Prints an op in torch: its body, and its `ref`.

Input: an op. Output: lines of Python over torch and `lib/references.py`:

    def softmax_reference(x: torch.Tensor) -> torch.Tensor:
        T = x.dtype
        compute = torch.float64 if x.dtype == torch.float64 else torch.float32
        x = x.to(compute)
        ...
        m = x.amax(-1)
        ...

    def softmax_torch(x: torch.Tensor) -> torch.Tensor:
        ...
        y = torch.softmax(x, dim=-1)
        return y.to(T)

The reference goes line by line (`nests.py`), and is the meaning of the spec. A `ref` is a claim, which `tritongen check`
tests. CPU tensors run it if there is one, because it is faster. The arguments are checked already: the public function
allocates first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tritongen.ir.batches import batched, broadcasting, own_batches, spanning
from tritongen.ir.dtypes import TORCH_NAMES
from tritongen.ir.nodes import (
    BATCH_SIZE,
    Constant,
    Op,
    Param,
    Scalar,
    Tensor,
    TypeParam,
    kind_of,
    may_be_f64,
)
from tritongen.reference.batches import broadcast_text, expanded, own_lines
from tritongen.reference.nests import Nests
from tritongen.reference.sizes import Names, poly_code
from tritongen.syntax.ref import parse_ref, ref_python

WIDTH = 88  # of a line of assignments, which stands at most 8 columns in
PYTHON_TYPES = {"float": "float", "int": "int", "bool": "bool"}


def reference_lines(*typings: Op, name: str = "", mark: str = "") -> list[str]:
    """`def <op>_reference(...)` for all typings of one op: one logical line per entry, without layout.

    `name`: another name for it. `mark`: as in `Names`.
    """
    doc = f"The spec of {typings[0].name} in torch, line by line."
    bodies = [_by_nests(op, mark) for op in typings]
    return _function(name or f"{typings[0].name}_reference", doc, bodies, typings)


def claim_lines(*typings: Op, name: str = "", mark: str = "") -> list[str]:
    """`def <op>_torch(...)`: the `ref`; nothing where there is none."""
    bodies = [_by_ref(op, Names(op, mark), op.ref) for op in typings if op.ref is not None]
    doc = f"The `ref` of {typings[0].name}: the torch call that it must equal. CPU tensors use it."
    return _function(name or f"{typings[0].name}_torch", doc, bodies, typings) if bodies else []


def _function(name: str, doc: str, bodies: list[list[str]], typings: tuple[Op, ...]) -> list[str]:
    op = typings[0]
    result = "torch.Tensor"
    if len(op.outputs) > 1:
        result = f"tuple[{', '.join([result] * len(op.outputs))}]"
    # In the order of the public function: Python needs parameters with a default last.
    ordered = sorted(
        (*op.params, *op.free_typarams), key=lambda p: getattr(p, "default", None) is not None
    )
    params = ", ".join(_param(p, op) for p in ordered)
    lines: list[str] = []
    for typing, body in zip(typings[:-1], bodies[:-1], strict=True):
        lines += [f"if {_is_typing(typing)}:", *_indented(body), ""]
    lines += bodies[-1]
    head = [f"def {name}({params}) -> {result}:", f'    """{doc}"""']
    return head + _indented(lines)


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" if line else "" for line in lines]


def _is_typing(op: Op) -> str:
    """Whether the operands' dtypes are of the kinds of this typing."""
    tests = []
    for p in op.typarams:
        first = next((t.name for t in op.tensors if t.dtype == p.name), None)
        dtype = p.name if first is None else f"{first}.dtype"
        listed = ", ".join(f"torch.{TORCH_NAMES[d]}" for d in p.dtypes)
        named = f"{dtype} == torch.bool" if p.kind == "bool" else f"{dtype} in ({listed},)"
        is_float = f"{dtype}.is_floating_point" if first is None else f"{first}.is_floating_point()"
        tests.append(is_float if p.kind == "float" else named)
    return " and ".join(tests)


def _param(p: Param | TypeParam, op: Op) -> str:
    match p:
        case Tensor():
            return f"{p.name}: torch.Tensor"
        case TypeParam():
            default = f" = torch.{TORCH_NAMES[p.default]}" if p.default else ""
            return f"{p.name}: torch.dtype{default}"
        case Scalar():
            annotation = f"{PYTHON_TYPES[kind_of(p.dtype, op)]} | torch.Tensor"
        case Constant():
            annotation = PYTHON_TYPES[p.dtype]
    default = "" if p.default is None else f" = {default_text(p.default)}"
    return f"{p.name}: {annotation}{default}"


def default_text(value: int | float | bool) -> str:
    return f'float("{value}")' if value in (float("inf"), float("-inf")) else repr(value)


# ---- what both begin and end with ---------------------------------------------------------------
def _dtype_lines(op: Op, names: Names, rest: list[str]) -> list[str]:
    """Storage dtypes by name, and floating operands widened; `rest` is the code that follows."""
    used = _words(rest)
    first_of = {t.dtype: t.name for t in reversed(op.tensors)}
    lines = []
    for p in op.typarams:
        if p.name in used and p.name in first_of:
            lines.append(f"{p.name} = {first_of[p.name]}.dtype")
    floats = [t for t in op.tensors if kind_of(t.dtype, op) == "float"]
    wide = {t.dtype: t.name for t in reversed(floats) if may_be_f64(t.dtype, op)}
    if not floats and names.compute not in used:
        return lines
    if not wide:
        lines.append(f"{names.compute} = torch.float32")
    else:
        dtypes = [f"{name}.dtype" for name in reversed(wide.values())]
        several = f"torch.float64 in ({', '.join(dtypes)})"
        is_wide = several if len(dtypes) > 1 else f"{dtypes[0]} == torch.float64"
        lines.append(f"{names.compute} = torch.float64 if {is_wide} else torch.float32")
    return lines + together([(t.name, f"{t.name}.to({names.compute})") for t in floats])


def together(pairs: list[tuple[str, str]]) -> list[str]:
    """Assignments `name = value`, so many on a line as there is room for."""
    lines, ready = list[str](), list[tuple[str, str]]()
    for pair in pairs:
        if ready and len(_one_line([*ready, pair])) > WIDTH:
            lines.append(_one_line(ready))
            ready = []
        ready.append(pair)
    return [*lines, _one_line(ready)] if ready else lines


def _one_line(pairs: list[tuple[str, str]]) -> str:
    return " = ".join(", ".join(side) for side in zip(*pairs, strict=True))


def torch_dtype_code(dtype: str, names: Names) -> str:
    if dtype == "compute":
        return names.compute
    return f"torch.{TORCH_NAMES[dtype]}" if dtype in TORCH_NAMES else dtype


# ---- by the ref clause --------------------------------------------------------------------------
def _by_ref(op: Op, names: Names, ref: str) -> list[str]:
    program = parse_ref(ref)
    *steps, result = ref_python(program).split("\n")
    lines = [
        # torch's own functions take numbers only.
        f"{s.name} = {PYTHON_TYPES[kind_of(s.dtype, op)]}({s.name})"
        for s in op.scalars
        if s.name in program.names
    ]
    lines += [*steps, f"{', '.join(o.name for o in op.outputs)} = {result}"]
    casts = (f"{o.name}.to({torch_dtype_code(o.dtype, names)})" for o in op.outputs)
    lines.append(f"return {', '.join(casts)}")
    return _dtype_lines(op, names, lines) + lines


# ---- line by line -------------------------------------------------------------------------------
def _by_nests(op: Op, mark: str) -> list[str]:
    checked, (op, owns) = op, own_batches(op)
    names = Names(op, mark)
    nests = Nests(op, names)
    sections = [line for nest in op.nests for line in ("", *nests.lines(nest))]
    head = []
    device = f"{op.tensors[0].name}.device"
    for s in op.scalars:
        dtype = {"float": "compute", "int": "i64", "bool": "bool"}[kind_of(s.dtype, op)]
        dtype = torch_dtype_code(dtype, names)
        head.append(f"{s.name} = torch.as_tensor({s.name}, dtype={dtype}, device={device})")
    # Of the operands that the function has.
    result = f"return {', '.join(_unflattened(checked, names))}"
    head += [*own_lines(owns), *_size_lines(op, names, [*sections, result])]
    lines = [*head, *sections, "", result]
    lines = _dtype_lines(checked, names, lines) + lines
    return lines if lines[0] else lines[1:]


def _size_lines(op: Op, names: Names, rest: list[str]) -> list[str]:
    """The sizes that `rest`, the code that follows, reads; then the batch dims of each operand flattened."""
    batches = _batch_lines(op, names)
    used = _words([*batches, *rest])
    derived: list[str] = []
    for define in reversed(op.defines):
        if define.name in used:
            derived.insert(0, f"{define.name} = {poly_code(define.value, names)}")
            used |= _words(derived[:1])
    used -= {c.name for c in op.constants} | {d.name for d in op.defines}
    lines: list[str] = []
    for t in op.tensors:
        start = next((i for i, d in enumerate(t.dims) if d == BATCH_SIZE), len(t.dims))
        named = ((str(d), i) for i, d in enumerate(t.dims) if d != BATCH_SIZE)
        new = {name: i for name, i in named if name.isidentifier() and name in used}
        used -= new.keys()
        if len(new) > 1 and start == len(t.dims):
            dims = (str(d) if new.get(str(d)) == i else "_" for i, d in enumerate(t.dims))
            lines.append(f"{', '.join(dims)} = {t.name}.shape")
        else:
            behind = ((name, i - len(t.dims) if i > start else i) for name, i in new.items())
            lines += [f"{name} = {t.name}.shape[{i}]" for name, i in behind]
    return lines + derived + batches


def _words(lines: list[str]) -> set[str]:
    """What is named in lines of code, comments left out."""
    return {word for line in lines if line[:1] != "#" for word in re.findall(r"\w+", line)}


def _batch_lines(op: Op, names: Names) -> list[str]:
    operands = batched(op)
    if not operands:
        return []
    lines = [f"{names.batch} = {broadcast_text(spanning(op))}"]
    lines.append(f"{names.rows} = {names.batch}.numel()")
    for t in operands:
        value = expanded(t, names.batch) if t in broadcasting(op) else t.name
        lines.append(f"{t.name} = {value}.reshape({_join(t.dims, names, names.rows)})")
    return lines


def _join(dims: Iterable, names: Names, batch: str) -> str:
    dims = tuple(dims)
    if len(dims) == 1:  # a batch of no dims would leave reshape without an argument
        batch = batch.removeprefix("*")
    return ", ".join(batch if d == BATCH_SIZE else poly_code(d, names) for d in dims)


def _unflattened(op: Op, names: Names) -> list[str]:
    return [
        (
            f"{o.name}.reshape({_join(o.dims, names, f'*{names.batch}')})"
            if BATCH_SIZE in o.dims
            else o.name
        )
        for o in op.outputs
    ]

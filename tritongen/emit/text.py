"""Small texts that all printers share: literals, sizes, parentheses.

literal(0.5, "float") -> "0.5"      wrap(("a + b", SUM), TERM) -> "(a + b)"
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Atom, Poly, Sym, atoms, with_modulo
from tritongen.ir.algebra import text as poly_text
from tritongen.ir.dtypes import DTYPES
from tritongen.ir.functions import ATOM, SUM, TERM, UNARY
from tritongen.kernel.nodes import PARTS

BATCH_WORDS = frozenset({"batch", "batch_shape"})  # what the launch of an op with `...` may say


def launch_text(p: Poly) -> str:
    """A size in the launch function, where every size has its own name."""
    names = {Sym(ir.BATCH): "batch"} | dict.fromkeys(atoms(PARTS), "PARTS")
    return poly_text(with_modulo(p), names.get)


def tuple_text(names: Sequence[str]) -> str:
    """`(a, b)`, and `(a,)` of one."""
    return f"({', '.join(names)}{',' * (len(names) == 1)})"


def literal(value, kind: str) -> str:
    if kind == "bool":
        return str(bool(value))
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    return str(int(value)) if kind == "int" else repr(float(value))


def exact_in_f32(const: ir.Const) -> bool:
    """Whether f32 holds the number: Triton turns a bare literal into one."""
    if not isinstance(const.value, float):
        return True
    try:
        held = struct.unpack("f", struct.pack("f", const.value))[0]
        return held == const.value or const.value != const.value
    except OverflowError:
        return False


def bytes_of(dtype: str, op: ir.Op) -> set[int]:
    """The sizes in bytes that an element may have: of a dtype, or of all dtypes of a type parameter."""
    if dtype == "compute":
        return {4, 8}
    dtypes = ir.dtypes_of(dtype, op)
    return {DTYPES[d].itemsize for d in dtypes}


def wrap(text: tuple[str, int], least: int) -> str:
    return text[0] if text[1] >= least else f"({text[0]})"


def wrapped(text: str) -> str:
    """Parentheses around what has a space."""
    return f"({text})" if " " in text else text


def wrap_text(text: str, least: int) -> str:
    return wrap((text, precedence_of(text)), least)


def without_parentheses(text: str) -> str:
    """Removes parentheses around a whole expression."""
    depth = 0
    for k, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return text[1:-1] if text[0] == "(" and k == len(text) - 1 else text
    return text


def precedence_of(text: str) -> int:
    depth, lowest = 0, ATOM
    for k, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if depth == 0 and c == " ":
            operator = text[k + 1 : k + 3].strip()
            if operator in ("+", "-"):
                lowest = min(lowest, SUM)
            elif operator in ("*", "/", "//", "%"):
                lowest = min(lowest, TERM)
    return min(lowest, UNARY) if text.startswith("-") else lowest


def only_atom(p: Poly) -> Atom | None:
    """The atom that p is and nothing else."""
    match p.terms:
        case ((((atom, 1),), 1),):
            return atom
    return None


def bare(p: Poly) -> str | None:
    """The name of a size that is a symbol alone."""
    atom = only_atom(p)
    return atom.name if isinstance(atom, Sym) else None

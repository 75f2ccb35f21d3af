"""A piece of IR with other names: of the op's one scope, and of indices.

    renamed(op, {"rows": "rows_"}, {"dw": "dw2"})

Not here: which names have to go (`emit/collisions.py`, `autodiff/backward.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Fetch, Idx, Poly, Sym, index, poly, substitute_atoms
from tritongen.syntax.ref import parse_ref, ref_python, renamed_ref

Names = Mapping[str, str]
# Fields that hold a name of the op's one scope, by class.
NAMED: dict[type, tuple[str, ...]] = {
    ir.TypeParam: ("name",),
    ir.Tensor: ("name", "dtype"),
    ir.Scalar: ("name",),
    ir.Constant: ("name",),
    ir.Define: ("name",),
    ir.Nest: ("name", "dtype", "part_of"),
    ir.Read: ("tensor", "dtype"),
    ir.ScalarRef: ("name", "dtype"),
    **{c: ("dtype",) for c in (ir.Const, ir.IndexValue, ir.Call, ir.Cast, ir.Reduce)},
}


def renamed(value: Any, names: Names, indices: Names | None = None) -> Any:
    """The piece with the names of the op's scope, and those of indices, replaced."""
    own = indices or {}
    if isinstance(value, Poly):
        return _poly(value, names, own)
    if isinstance(value, tuple):
        return tuple(renamed(v, names, own) for v in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    named = NAMED.get(type(value), ())
    changes = {}
    for field in fields(value):
        old = getattr(value, field.name)
        if isinstance(value, ir.Binder) and field.name == "index":
            new = own.get(old, old)
        elif (type(value), field.name) in ((ir.Require, "batch"), (ir.Op, "kept")):
            new = tuple(names.get(name, name) for name in old)
        elif isinstance(value, ir.Op) and field.name == "ref":
            new = old and ref_python(renamed_ref(parse_ref(old), names)).replace("\n", "; ")
        else:
            # "compute" is always the dtype: a type parameter is in upper case.
            plain = field.name == "dtype" and old[:1].islower()
            new = (
                old
                if plain
                else names.get(old, old) if field.name in named else renamed(old, names, own)
            )
        if new is not old:
            changes[field.name] = new
    return replace(value, **changes) if changes else value


def ref_names(op: ir.Op) -> frozenset[str]:
    """The names of the steps of the op's `ref`."""
    return frozenset(name for name, _ in parse_ref(op.ref).steps) if op.ref else frozenset()


def _poly(p: Poly, names: Names, indices: Names) -> Poly:
    def change(atom):
        match atom:
            case Sym(name) if name in names:
                return poly(Sym(names[name]))
            case Idx(name) if name in indices:
                return index(indices[name])
            case Fetch(tensor, coords, fill):
                inner = tuple(_poly(c, names, indices) for c in coords)
                return poly(Fetch(names.get(tensor, tensor), inner, fill))
        return None

    return substitute_atoms(p, change)

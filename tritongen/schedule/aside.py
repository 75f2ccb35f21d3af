"""Renames names of an op for the inside of a module.

    op f<T: float>(rows: T[N, BLOCK]) -> ...    is planned as    rows_: T[N, BLOCK_]

The public function, its checks and its errors keep the names of the spec: they are printed from the op as it was checked.
`emit/collisions.py` finds out which names must change.
"""

from __future__ import annotations

from collections.abc import Set

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import symbols
from tritongen.ir.free import all_indices
from tritongen.ir.rename import ref_names


def names_aside(op: ir.Op, needed: Set[str], taken: Set[str]) -> dict[str, str]:
    """Those of the op's names that are needed, each with underscores behind it until nothing is called so.

    A new name must not be part of the name of a kernel or a chooser: those of `t_`, of an op f, are f_t__rows and choose_f_t_.
    Two new names must not have one ending: `choose_f_z_` and `z_` lead to a tensor and a function choose_f_z__sum.
    """
    scope, changed = all_names(op) | taken, dict[str, str]()
    for name in sorted(all_names(op) & needed):
        new = f"{name}_"
        while any(other == new or f"{op.name}_{new}" in other for other in scope) or any(
            other.endswith(new) or new.endswith(other) for other in changed.values()
        ):
            new += "_"
        changed[name] = new
        scope = scope | {changed[name]}
    return changed


def all_names(op: ir.Op) -> frozenset[str]:
    """Those of the op's scope, its indices, and what its `ref` calls its steps."""
    return names_of(op) | all_indices(op.nests) - {ir.BATCH} | ref_names(op)


def names_of(op: ir.Op) -> frozenset[str]:
    """Operands, outputs, temporaries, scalars, constants, sizes and type parameters."""
    stored: tuple[ir.Tensor | ir.Nest, ...] = (*op.tensors, *op.outputs, *op.nests)
    sizes = {name for t in stored for d in t.dims for name in symbols(d)}
    names = {p.name for p in (*op.params, *op.outputs, *op.nests, *op.defines, *op.typarams)}
    return frozenset((names | sizes) - {ir.BATCH})

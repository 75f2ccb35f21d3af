"""Names of a spec that generated launches and kernels need for themselves, changed for the inside.

    op f<T: float>(rows: T[N, BLOCK]) -> ...    is planned as    rows_: T[N, BLOCK_]

The public function, its checks and its errors keep the spec's names: they are printed from the op as
it was checked. Input: an op. Output: the op that is planned, the same one nearly always.
"""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Fetch, Poly, Sym, poly, substitute_atoms, symbols

CONFIG = re.compile(
    r"(INDEX|STEP|BLOCK|GROUP|ROWS|LINES|STEPS|PARTS|PROGRAMS|CHUNK|PATCH|PATCHES|FLAT|TERMS|COMPUTE|HALF|PRECISION|LOWEST|HIGHEST)"
    r"(_[A-Z]+)?"
)
HOST = frozenset(
    """variant config batch batch_shape libdevice cache rows cols total batches across itemsize sms
    channels_last tma patched one_tap as_rows images num_warps num_stages num_ctas maxnreg grid warmup deterministic outers
    points width places box_rows box_cols stored_bytes added_bytes""".split()
)
KERNELS = "|".join(
    """persistent tf32x3 parts combine patches taps lanes rows lines runs planes loop part[0-9]* finish flat
    strided tile tiles nest box window channels scan scatter epilogue deal merge""".split()
)
# Fields that hold a name of the op's one scope, by class; indices are renamed where they are printed.
NAMED: dict[type, tuple[str, ...]] = {
    ir.TypeParam: ("name",),
    ir.Tensor: ("name", "dtype"),
    ir.Scalar: ("name",),
    ir.Constant: ("name",),
    ir.Define: ("name",),
    ir.Nest: ("name", "dtype"),
    ir.Read: ("tensor", "dtype"),
    ir.ScalarRef: ("name", "dtype"),
    **{c: ("dtype",) for c in (ir.Const, ir.IndexValue, ir.Call, ir.Cast, ir.Reduce)},
}


def step_aside(op: ir.Op) -> ir.Op:
    """The op with every name that the emitter needs followed by an underscore."""
    scope = names_of(op)
    changed: dict[str, str] = {}
    for name in sorted(scope):
        if is_needed(name, op):
            free = f"{name}_"
            while free in scope:
                free += "_"
            changed[name] = free
            scope = scope | {free}
    return renamed(op, changed) if changed else op


def names_of(op: ir.Op) -> frozenset[str]:
    """Operands, outputs, temporaries, scalars, constants, sizes and type parameters."""
    stored = (*op.tensors, *op.outputs)
    sizes = set().union(
        *(symbols(d) for t in stored for d in t.dims),
        *(symbols(d) for n in op.nests for d in n.dims),
    )
    names = {p.name for p in (*op.params, *op.outputs, *op.nests, *op.defines, *op.typarams)}
    return frozenset((names | sizes) - {ir.BATCH})


def is_needed(name: str, op: ir.Op) -> bool:
    return name in HOST or bool(CONFIG.fullmatch(name)) or is_generated(name, op.name)


def is_generated(name: str, own: str) -> bool:
    """Whether a function of the module may be called that, for a plan called `own`."""
    return bool(
        re.fullmatch(
            rf"{re.escape(own)}_(\w+_)?({KERNELS})|(choose|launch)_{re.escape(own)}(_\w+)?", name
        )
    )


def renamed(value, names: dict[str, str]):
    """A piece of IR with the names of the op's scope replaced."""
    if isinstance(value, Poly):
        return _poly(value, names)
    if isinstance(value, tuple):
        return tuple(renamed(v, names) for v in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    named = NAMED.get(type(value), ())
    changes = {}
    for field in fields(value):
        old = getattr(value, field.name)
        new = names.get(old, old) if field.name in named else renamed(old, names)
        if new is not old:
            changes[field.name] = new
    return replace(value, **changes) if changes else value


def _poly(p: Poly, names: dict[str, str]) -> Poly:
    def change(atom):
        match atom:
            case Sym(name) if name in names:
                return poly(Sym(names[name]))
            case Fetch(tensor, coords, fill):
                inner = tuple(_poly(c, names) for c in coords)
                return poly(Fetch(names.get(tensor, tensor), inner, fill))
        return None

    return substitute_atoms(p, change)

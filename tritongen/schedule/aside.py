"""Names of a spec that generated launches and kernels need for themselves, changed for the inside.

    op f<T: float>(rows: T[N, BLOCK]) -> ...    is planned as    rows_: T[N, BLOCK_]

The public function, its checks and its errors keep the spec's names: they are printed from the op as
it was checked. Input: an op. Output: the op that is planned, the same one nearly always.
"""

from __future__ import annotations

import re

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import symbols
from tritongen.ir.batches import own_batches
from tritongen.ir.rename import renamed

CONFIG = re.compile(
    r"(INDEX|STEP|BLOCK|GROUP|ROWS|LINES|STEPS|PARTS|PROGRAMS|CHUNK|PATCH|PATCHES|FLAT|TERMS|COMPUTE|HALF|PRECISION|LOWEST|HIGHEST)"
    r"(_[A-Z]+)?"
)
HOST = frozenset(
    """variant config batch batch_shape libdevice cache rows cols total batches across itemsize sms
    channels_last in_order outer middle inner turned tma patched one_tap as_rows images num_warps num_stages num_ctas maxnreg grid warmup deterministic outers
    points width places box_rows box_cols stored_bytes added_bytes tf32x3""".split()
)
KERNELS = "|".join(
    """persistent strips tf32x3 tf32x3_left tf32x3_right parts combine patches taps lanes rows lines runs planes loop part[0-9]* finish flat
    strided tile tiles nest box window channels scan scatter epilogue deal merge""".split()
)


def planned(op: ir.Op) -> ir.Op:
    """The op that is planned and printed inside, for the one that was checked."""
    return step_aside(own_batches(op)[0])


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

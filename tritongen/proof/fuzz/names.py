"""Names for drawn specs, and names that generated code uses itself.

Plain names come from short lists, one a role, so that no index has the name of a tensor. `renamed` gives a spec the names
of the module that was generated from it, so that its names collide with the emitter's on purpose.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from random import Random

from tritongen.syntax.names import kind_of

SIZES = "N M K D C H W L B A E F R S V P Q G J O U Z".split()
TENSORS = "x y z w a b c g h u v t e f o x2 w2 q0 bias gain mask score table rows cols".split()
INDICES = "i j k l m n p q r s d i2 k2 n2 o2 p2 r2 s2 t2 j2".split()
SCALARS = "alpha beta eps scale shift".split()
CONSTS = "win stride pad dil step groups causal span".split()
OPS = "op0 first second third fourth".split()

# Names of templates and printers, beside those of the spec's own module.
EMITTED = (
    "PARTS_POW2 LAG PER_THREAD MERGE STAGES RUN BLOCK ROWS STEPS PARTS TERMS BLOCK_M BLOCK_N BLOCK_K GROUP_M "
    "NUM SPLIT HALF INPUTS BATCH acc tile pid rows cols x_ptr y_ptr x_desc stride_x offs mask lanes part "
    "numel out flat program grid config gpu sms choose launch allocate reference forward backward grad "
    "self cls args kwargs device dtype shape size value result block num_warps num_stages i0 k0 m0 n0 "
    "lo hi total count index keep inside line row col a_0 x_0 y_0 acc_0 step size0"
).split()
WORD = re.compile(r"(?<![A-Za-z0-9_.])[A-Za-z_][A-Za-z0-9_]*")


def of_module(source: str) -> set[str]:
    """Every name that a generated module assigns, takes, defines or reads."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name):
                found.add(name)
            case ast.keyword(arg=str(name)):
                found.add(name)
    return found


def is_size_name(name: str) -> bool:
    return re.fullmatch(r"[A-Z][A-Z0-9_]*", name) is not None and not kind_of(name)


def is_value_name(name: str) -> bool:
    return re.fullmatch(r"[a-z][a-z0-9_]*", name) is not None and not kind_of(name)


def unlucky(source: str, own: Mapping[str, str], random: Random) -> dict[str, str]:
    """New names for some of a spec's (`own`: name to "size" or "value"), taken from its module."""
    taken = (of_module(source) | set(EMITTED)) - own.keys() - {"T", "U"}
    sizes = sorted(n for n in taken if is_size_name(n))
    values = sorted(n for n in taken if is_value_name(n))
    out: dict[str, str] = {}
    for name, role in own.items():
        pool = [n for n in (sizes if role == "size" else values) if n not in out.values()]
        if pool and random.random() < 0.5:
            out[name] = random.choice(pool)
    return out


def renamed(text: str, names: Mapping[str, str]) -> str:
    """The text with whole words changed, all at once."""
    return WORD.sub(lambda m: names.get(m[0], m[0]), text)

"""Products with a scale that a run of terms shares: weights that are quantised in groups.

    sum[k](x[m, k] * w[n, k] * s[n, k // 128])    is    sum over groups of s[n, group] * (x . w within the group)

Then the scale is not a factor of a term. Tensor cores multiply x and w as they are stored, exactly, and the sum of one step of
the K loop is scaled as a whole. A step must lie in one group, so BLOCK_K divides the length of a group.

Input: the two factors of a product. Output: the factors without their scales, and the product of the scales.
"""

from __future__ import annotations

from math import gcd

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Floor, Poly, index, indices, walk
from tritongen.ir.bounds import Facts, simplify
from tritongen.ir.free import coordinates, free_indices
from tritongen.schedule.classes.contraction_operands import stored_as
from tritongen.schedule.classes.packed import without_quotients
from tritongen.schedule.factored import factors_of, multiplied
from tritongen.schedule.members import Product

LEAST = 32  # terms of a step: of fewer that follow from 8 bits Triton 3.6 multiplies some twice


def scaled(product: Product, dtype: str, facts: Facts) -> ir.Expr | None:
    """The product with its scales behind it. None if it has no scales, or if the rest is not stored in half types.

    All scales have one group size. A power of two from 32 on divides it in every call.
    """
    if len(product.k) != 1 or product.taps:
        return None
    (k,) = product.k
    scales: list[ir.Expr] = []
    sides: list[ir.Expr] = []
    for side in (product.left, product.right):
        own = [f for f in factors_of(side) if k.index in free_indices(f) and group_of(f, k.index)]
        rest = [f for f in factors_of(side) if f not in own]
        if own and not any(k.index in free_indices(f) for f in rest):
            return None
        scales += own
        sides.append(multiplied(rest, dtype))
    if not scales or not all(map(stored_as, sides)):
        return None
    if run(multiplied(scales, dtype), k.index, facts) < LEAST:
        return None
    body = ir.Call("mul", (sides[0], sides[1]), dtype)
    return ir.Call("scaled", (body, multiplied(scales, dtype)), dtype)


def group_of(factor: ir.Expr, k: str) -> Poly | None:
    """How many terms share a factor that speaks of k as `k // group` alone."""
    atoms = (atom for p in coordinates(factor) for atom in walk(p))
    found = {a.den for a in atoms if isinstance(a, Floor) and a.num == index(k)}
    if len(found) != 1 or any(k in indices(without_quotients(p, k)) for p in coordinates(factor)):
        return None
    return found.pop()


def run(scale: ir.Expr, k: str, facts: Facts) -> int:
    """The largest power of two that divides the group of a scale in every call; 0 where there are several groups."""
    group = group_of(scale, k)
    values = [value for _, value in simplify(group, facts).terms] if group is not None else []
    whole = gcd(*(v for v in values if isinstance(v, int)))
    return whole & -whole if all(isinstance(v, int) for v in values) else 0

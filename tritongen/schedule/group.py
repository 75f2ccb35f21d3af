"""Which nests run together, and as what: canonical nests in, groups out.

A group is a set of nests for one step and the kernel class that its shape allows:

- *contraction*: a sum of products whose two factors share the summed indices, and the pointwise
  nests over the same box behind it (its epilogue);
- *rows*: reducers that all reduce the same indices (col) and keep the same ones (row), and the
  pointwise nests over row, or over both;
- *pointwise*: nests without reducers over one box;
- *nest*: anything, over one box; right for every op.

Only the IR's shape decides. A pointwise temporary belongs to no group: whoever reads it computes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Fetch, Poly, affine, indices, poly
from tritongen.ir.algebra import walk as walk_poly
from tritongen.ir.bounds import Facts
from tritongen.schedule.canonical import (
    binders_of,
    coordinates,
    free_indices,
    reads,
    same,
    substitute_indices,
    tensors_read,
)


@dataclass(frozen=True, slots=True)
class Product:
    """A contraction's roles: indices by role, and the two factors."""

    batch: tuple[ir.Binder, ...]
    m: tuple[ir.Binder, ...]
    n: tuple[ir.Binder, ...]
    k: tuple[ir.Binder, ...]
    left: ir.Expr
    right: ir.Expr


@dataclass(frozen=True, slots=True)
class Group:
    kind: str  # contraction | rows | pointwise | nest
    nests: tuple[ir.Nest, ...]  # roots, then whatever they read, in dependency order
    row: tuple[ir.Binder, ...] = ()
    col: tuple[ir.Binder, ...] = ()
    product: Product | None = None


def is_reducer(nest: ir.Nest) -> bool:
    return isinstance(nest.body, ir.Reduce)


def group(
    op: ir.Op, nests: tuple[ir.Nest, ...], facts: Facts, only: str | None = None
) -> tuple[Group, ...]:
    """Groups in an order in which every stored value is written before it is read."""
    outputs = {o.name for o in op.outputs}
    by_name = {n.name: n for n in nests}
    gathered = {a.tensor for n in nests for a in fetches(n.body)}
    roots = [n for n in nests if is_reducer(n) or n.name in outputs | gathered]
    virtual = {n.name: n for n in nests if n not in roots}
    places: dict[str, int] = {}
    groups: list[list[ir.Nest]] = []
    for root in roots:
        needed = closure(root, virtual)
        earliest = max(
            (places[t] for n in (root, *needed) for t in tensors_read(n.body) if t in places),
            default=0,
        )
        for place in range(earliest, len(groups)):
            if classify([*groups[place], root], virtual, by_name, facts, only, extending=True):
                groups[place].append(root)
                places[root.name] = place
                break
        else:
            groups.append([root])
            places[root.name] = len(groups) - 1
    found = []
    for members in groups:
        kind = classify(members, virtual, by_name, facts, only)
        assert kind is not None, "the general nest takes any one root"
        found.append(kind)
    return tuple(found)


def fetches(expr: ir.Expr):
    """Reads that stand in coordinates."""
    return (a for p in coordinates(expr) for a in walk_poly(p) if isinstance(a, Fetch))


def closure(root: ir.Nest, virtual: dict[str, ir.Nest]) -> list[ir.Nest]:
    """The pointwise temporaries that root needs, in dependency order."""
    found: list[ir.Nest] = []

    def visit(nest: ir.Nest) -> None:
        for name in sorted(tensors_read(nest.body)):
            if name in virtual and virtual[name] not in found:
                visit(virtual[name])
                found.append(virtual[name])

    visit(root)
    return found


def classify(members, virtual, by_name, facts, only=None, extending=False) -> Group | None:
    """The best class that takes all members together."""
    own = {n.name: n.coords for n in members}
    if any(own.get(a.tensor, a.coords) != a.coords for n in members for a in fetches(n.body)):
        return None  # gathered at another place than where it is computed: from storage
    for kind in ("contraction", "rows", "pointwise", "nest"):
        if only not in (None, kind):
            continue
        found = CLASSIFIERS[kind](members, virtual, by_name, facts, extending)
        if found is not None and _in_place(found.nests):
            return found
    return None


def _in_place(lines: tuple[ir.Nest, ...]) -> bool:
    """Whether what the group computes is read in it at its own place only; elsewhere it needs storage first."""
    own = {n.name: n.coords for n in lines}
    return all(own.get(r.tensor, r.coords) == r.coords for n in lines for r in reads(n.body))


# ---- values computed where they are read --------------------------------------------------------
def gather_lines(members, virtual, indices_in_tile: set[str]) -> tuple[ir.Nest, ...]:
    """Members and the temporaries they read, in order; a temporary read at other coordinates than

    its own, or over indices that the tile has not, is pasted into its reader.
    """
    out: dict[str, ir.Nest] = {}

    def add(nest: ir.Nest) -> None:
        nest = replace(nest, body=paste(nest.body, virtual, indices_in_tile))
        for name in sorted(tensors_read(nest.body)):
            if name in virtual and name not in out:
                add(virtual[name])
        out[nest.name] = nest

    for member in members:
        add(member)
    return tuple(out.values())


def paste(expr: ir.Expr, virtual: dict[str, ir.Nest], tile: set[str]) -> ir.Expr:
    def change(node: ir.Expr) -> ir.Expr:
        if not (isinstance(node, ir.Read) and node.tensor in virtual):
            return node
        nest = virtual[node.tensor]
        used = set().union(*(indices(c) for c in nest.coords), *(indices(c) for c in node.coords))
        if node.coords == nest.coords and used <= tile and node.fill is None:
            return node
        values = {}
        for at, own in zip(node.coords, nest.coords):
            values |= solve_digits(own, at)
        body = paste(substitute_indices(nest.body, values), virtual, tile)
        return body if node.fill is None else _filled(body, node, nest)

    return ir.rebuild(expr, change)


def solve_digits(own: Poly, at: Poly) -> dict[str, Poly]:
    """The indices that make the coordinate `own` (an index, or digits f1 * q + f0) equal `at`."""
    weights = {weight: atom.name for atom, weight in affine(own)[0].items()}
    given = affine(at)
    if given is not None and not given[1].terms and len(weights) > 1:
        by_weight = {weight: poly(atom) for atom, weight in given[0].items()}
        if set(by_weight) == set(weights):  # the same digits under other names
            return {name: by_weight[weight] for weight, name in weights.items()}
    values, rest = {}, at
    for weight, name in sorted(weights.items(), key=lambda pair: pair[0] == poly(1)):
        values[name] = rest if weight == poly(1) else rest // weight
        rest = rest - values[name] * weight
    return values


def _filled(body: ir.Expr, read: ir.Read, nest: ir.Nest) -> ir.Expr:
    """A temporary read with `else`: inside its dims its value, outside the fill."""
    inside: ir.Expr | None = None
    for coordinate, dim in zip(read.coords, nest.dims):
        at = ir.IndexValue(coordinate, "i64")
        for test in (
            ir.Call("ge", (at, ir.Const(0, "i64")), "bool"),
            ir.Call("lt", (at, ir.IndexValue(dim, "i64")), "bool"),
        ):
            inside = test if inside is None else ir.Call("and", (inside, test), "bool")
    if inside is None:
        return body
    return ir.Call("where", (inside, body, ir.Const(read.fill, nest.dtype)), nest.dtype)


# ---- the classes --------------------------------------------------------------------------------
def rows(members, virtual, by_name, facts, extending=False) -> Group | None:
    reducers = [n for n in members if is_reducer(n)]
    if (
        not reducers
        or (extending or len(reducers) > 1)
        and any(as_product(n, virtual, facts) for n in reducers)
    ):
        return None  # products share a tile of tl.dot, not a row
    first = reducers[0]
    row, col = first.box, binders_of(first)
    row_names, col_names = {b.index for b in row}, {b.index for b in col}
    tile = row_names | col_names
    if not col or row_names & col_names:
        return None
    ranges = {b.index: (b.lo, b.hi) for b in (*row, *col)}
    lines = gather_lines(members, virtual, tile)
    for nest in lines:
        own = {b.index for b in nest.box}
        if is_reducer(nest):
            if own != row_names or {b.index for b in binders_of(nest)} != col_names:
                return None
        elif own != tile and own != row_names:
            return None
        for b in (*nest.box, *binders_of(nest)):
            if not _same_range(ranges[b.index], b, facts):
                return None
        if not (_starts_at_zero(nest) and _separable(nest, row_names, col_names, facts)):
            return None
    return Group("rows", lines, row, _col_order(lines, col))


def _same_range(known, b: ir.Binder, facts: Facts) -> bool:
    return same(facts, known[0], b.lo) and same(facts, known[1], b.hi)


def _starts_at_zero(nest: ir.Nest) -> bool:
    """A value over the whole tile starts at 0 on every axis, as its storage does."""
    return all(not b.lo.terms for b in nest.box)


def _separable(nest: ir.Nest, row: set[str], col: set[str], facts: Facts) -> bool:
    """No coordinate mixes kept and reduced indices, but as digits of one number."""
    ranges = {b.index: b.hi - b.lo for b in (*nest.box, *binders_of(nest))}
    for read in reads(nest.body):
        for coordinate in read.coords:
            used = indices(coordinate)
            if not (used & row and used & col):
                continue
            parts = affine(coordinate)
            if parts is None or any(isinstance(a, Fetch) for a in walk_poly(coordinate)):
                return False
            weights = [(w, ranges.get(getattr(a, "name", ""), None)) for a, w in parts[0].items()]
            if parts[1].terms or not _mixed_radix(weights, facts):
                return False
    return True


def _mixed_radix(weights, facts: Facts) -> bool:
    weight, left = poly(1), list(weights)
    while left:
        here = [pair for pair in left if pair[1] is not None and same(facts, pair[0], weight)]
        if len(here) != 1:
            return False
        left.remove(here[0])
        weight = weight * here[0][1]
    return True


def _col_order(lines, col):
    """The reduced indices in the order of the dims of what is read, unless an argmax counts them."""
    if any(is_reducer(n) and n.body.op.startswith("arg") for n in lines):
        return col
    names = {b.index for b in col}
    widest = max(
        (r for n in lines for r in reads(n.body)),
        key=lambda r: len(set().union(*(indices(c) for c in r.coords)) & names),
        default=None,
    )
    if widest is None:
        return col
    place = {
        name: (dim, -_weight_rank(c, name))
        for dim, c in enumerate(widest.coords)
        for name in indices(c)
    }
    return tuple(sorted(col, key=lambda b: place.get(b.index, (99, 0))))


def _weight_rank(coordinate: Poly, name: str) -> int:
    """0 for the lowest digit of a number, more for higher ones."""
    parts = affine(coordinate)
    weight = (
        next((w for a, w in parts[0].items() if getattr(a, "name", "") == name), poly(1))
        if parts
        else poly(1)
    )
    return 0 if weight == poly(1) else 1


def pointwise(members, virtual, by_name, facts, extending=False) -> Group | None:
    if any(is_reducer(n) for n in members):
        return None
    names = {b.index for b in members[0].box}
    if any({b.index for b in n.box} != names for n in members):
        return None
    if len(members) > 1 and any(
        not same(facts, a.hi, b.hi)
        for n in members
        for a, b in zip(_sorted(members[0].box), _sorted(n.box))
    ):
        return None
    lines = gather_lines(members, virtual, names)
    if any({b.index for b in n.box} - names for n in lines):
        return None
    return Group("pointwise", lines, members[0].box)


def _sorted(box):
    return sorted(box, key=lambda b: b.index)


def nest(members, virtual, by_name, facts, extending=False) -> Group | None:
    """One box: every member over it, reducers as loops."""
    names = {b.index for b in members[0].box}
    if any({b.index for b in n.box} != names for n in members):
        return None
    if extending and any(is_reducer(n) for n in members[1:]):
        return None
    written = {n.name for n in members}
    lines = gather_lines(members, virtual, names)
    for (
        line
    ) in lines:  # a value of this box read elsewhere than at its own place needs storage first
        for read in reads(line.body):
            if (
                read.tensor in written
                and read.coords != next(n for n in members if n.name == read.tensor).coords
            ):
                return None
    if any({b.index for b in n.box} - names for n in lines):
        return None
    return Group("nest", lines, members[0].box)


def contraction(members, virtual, by_name, facts, extending=False) -> Group | None:
    head, *epilogue = members
    product = as_product(head, virtual, facts)
    if product is None or any(is_reducer(n) for n in epilogue):
        return None
    names = {b.index for b in head.box}
    if any({b.index for b in n.box} != names for n in epilogue):
        return None
    head = replace(
        head,
        body=replace(head.body, body=ir.Call("mul", (product.left, product.right), head.dtype)),
    )
    lines = (head, *gather_lines(epilogue, virtual, names))
    for line in lines[1:]:
        if {b.index for b in line.box} - names:
            return None
        for read in reads(line.body):
            if read.tensor == head.name and read.coords != head.coords:
                return None
    return Group("contraction", lines, product=product)


def as_product(head: ir.Nest, virtual, facts: Facts) -> Product | None:
    """sum[k...](left(batch, m, k) * right(batch, n, k)), with m and n not empty."""
    reduce = head.body
    if not isinstance(reduce, ir.Reduce) or reduce.op != "sum" or not reduce.binders:
        return None
    if head.dtype not in ("compute", "f32", "i32"):
        return None
    k = {b.index for b in reduce.binders}
    factors = _factors(paste(reduce.body, virtual, set()))
    used = [free_indices(f) for f in factors]
    left = next((i for i, names in enumerate(used) if names >= k), None)
    if left is None or any(b.lo.terms for b in reduce.binders):
        return None
    mine, others = [left], []
    for i in range(len(factors)):
        if i != left:
            (mine if used[i] - k <= used[left] else others).append(i)
    if not others or not all(set().union(*(used[i] for i in part)) >= k for part in (mine, others)):
        return None
    a, b = (set().union(*(used[i] for i in part)) - k for part in (mine, others))
    box = {binder.index for binder in head.box}
    if (a | b) != box or not (a - b) or not (b - a):
        return None
    product = Product(
        tuple(x for x in head.box if x.index in a & b),
        tuple(x for x in head.box if x.index in a - b),
        tuple(x for x in head.box if x.index in b - a),
        reduce.binders,
        _multiply([factors[i] for i in mine], head.dtype),
        _multiply([factors[i] for i in others], head.dtype),
    )
    return product if _simple(product, facts) else None


def _factors(expr: ir.Expr) -> list[ir.Expr]:
    match expr:
        case ir.Call("mul", (a, b)):
            return _factors(a) + _factors(b)
        case ir.Cast(ir.Call("mul") as product, dtype) if dtype == product.dtype:
            return _factors(product)
    return [expr]


def _multiply(factors: list[ir.Expr], dtype: str) -> ir.Expr:
    out = factors[0]
    for factor in factors[1:]:
        out = ir.Call("mul", (out, factor), dtype)
    return out


def _simple(product: Product, facts: Facts) -> bool:
    """Every read is a plain walk: no coordinate mixes the roles, none gathers or divides."""
    roles = [{b.index for b in part} for part in (product.batch, product.m, product.n, product.k)]
    for side in (product.left, product.right):
        for p in coordinates(side):
            parts = affine(p)
            if parts is None or sum(bool(indices(p) & role) for role in roles) > 1:
                return False
            if any(not hasattr(a, "name") for a in parts[0]):
                return False
    return True


CLASSIFIERS = {"contraction": contraction, "rows": rows, "pointwise": pointwise, "nest": nest}

"""Addresses of one kernel's values: indices, coordinates, addresses, masks and loads. The base of `KernelWriter`.

Input: from the printer of a skeleton, how each index reads inside the tile. If an axis covers several indices, an index is
decoded when a line first uses it. A coordinate that is more than an index gets a name. Each place is loaded once.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

from tritongen.emit.parameters import Context, Parameters
from tritongen.emit.text import (
    bare,
    exact_in_f32,
    launch_text,
    literal,
    only_atom,
    precedence_of,
    without_parentheses,
    wrap,
    wrap_text,
)
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import (
    Atom,
    Extreme,
    Fetch,
    Floor,
    Idx,
    Mod,
    Poly,
    Sym,
    affine,
    atoms,
    denominator,
    index,
    indices,
    is_fractional,
    is_size,
    numerator,
    poly,
    substitute_atoms,
    symbols,
    with_modulo,
)
from tritongen.ir.algebra import text as poly_text
from tritongen.ir.algebra import walk as walk_poly
from tritongen.ir.bounds import prove
from tritongen.ir.dtypes import is_exact
from tritongen.ir.functions import ATOM, TERM
from tritongen.schedule.plan import KernelPlan


class Addressing(Parameters):
    """What is known about the tile so far. The printer of the skeleton fills it in, and changes it when it opens loops."""

    def __init__(self, context: Context, kernel: KernelPlan):
        super().__init__(context, kernel)
        self.views = {v.tensor: v for v in kernel.views}
        self.narrow: set[str] = set()  # indices that a loop counts in 32 bits
        self.stepped: set[str] = set()  # of these, the ones that a loop over terms counts
        parts = [part for a in kernel.axes for part in (a.outer, a.run)]
        self.axis_of = {d.index: part for part in parts for d in part.digits}
        self.axis_var: dict[str, str] = {}
        self.short: set[str] = set()  # axes counted in 32 bits, in which dividing is cheap
        self.run_names: dict[tuple[str, ...], str] = {}
        self.axis_mask: dict[str, str] = {}
        self.together: dict[frozenset[str], str] = {}  # axes -> the name of their joint mask
        self.values: dict[str, tuple[str, int]] = {}  # nest -> text
        # What a name holds: a load, a run, a coordinate.
        self.cache: dict[tuple[Any, ...], str] = {}
        self.lengths: dict[str, str] = {}  # axis -> that of its runs, where a tile holds several
        self.looping: frozenset[str] = frozenset()  # axes that a loop walks right now
        self.lets = dict(kernel.lets)
        self.known: set[str] = set()  # told sizes of which a loop's terms are made
        self.divisors: dict[Poly, str] = {}  # counts that may be 0, as what divides
        self.divides_in = ""  # the constexpr with the dtype of divisions, if the kernel has one
        self.divided: dict[Poly, None] = {}  # bounds of the numbers in these divisions
        self.fill: dict[str, float] = {}  # tensor -> what its masked lanes hold
        self.loads: dict[ir.Read, str] = {}  # what is loaded in another way than by pointers
        self.evict: dict[str, str] = {}  # tensor -> what its loads tell the cache
        # tensor -> the index of the dim that is innermost where it is contiguous; "": where all lie alike
        self.along: dict[str, str] = {}
        # Sizes and strides that accesses are as wide as they allow, of one tensor or, under "", of all.
        self.multiples: dict[str, dict[str, str]] = {}
        binders = [b for n in kernel.nests for b in n.ranges]
        self.ranges: dict[str, tuple[Poly, Poly]] = {b.index: (b.lo, b.hi) for b in binders}
        self.may_be_negative: set[str] = set()
        self.may_be_negative |= {b.index for b in binders if not self._not_negative(b.lo)}

    # ---- sizes
    def size(self, p: Poly, value: bool = False) -> tuple[str, int]:
        """A size, coordinate or count in whole numbers, from arguments and index variables.

        `value`: whether it may be any number, as what is divided in it may be. A coordinate that is read lies in its dim.
        """
        p = with_modulo(p)
        long = self._long(p, value) if value or not is_size(p) else set()
        for atom in walk_poly(p):
            if isinstance(atom, Floor | Mod):
                long |= self._long(atom.num, not is_size(atom.num))
            if isinstance(atom, Extreme):
                long = long.union(*(self._long(end, not is_size(end)) for end in atom.args))

        def leaf(atom: Atom) -> str | None:
            own = self._leaf(atom)
            return f"tl.cast({own}, tl.int64)" if atom in long else own

        out = poly_text(p, leaf)
        return out, precedence_of(out)

    def _long(self, p: Poly, every: bool) -> set[Atom]:
        """What p multiplies that has 32 bits, where the product may need more: sizes, and indices that are counted in 32.

        `every`: whether numbers and constants count too. They may be large, but those of a coordinate that is read are not.
        """
        constants, found = {c.name for c in self.op.constants}, set[Atom]()
        short = set() if every else self.told | constants
        for monomial, number in p.terms:
            steps: list[Atom] = [a for a, _ in monomial if isinstance(a, Idx)]
            if not indices(Poly(((monomial, number),))) <= (self.narrow if every else self.stepped):
                continue  # that index stands first, and has 64 bits where they are needed
            sizes = [a for a, _ in monomial if isinstance(a, Sym) and a.name not in short]
            if not steps and all(a.name in constants for a in sizes):
                continue  # Python multiplies these
            factors = sum(power for a, power in monomial if every or a in (*steps, *sizes))
            if factors + (every and number not in (1, -1)) > 1:
                found.add((*steps, *sizes)[0])
        return found

    def _leaf(self, atom: Atom) -> str | None:
        match atom:
            case Sym(name):
                return self.symbol(name)
            case Idx(name):
                return self.index_text(name)
            case Fetch():
                return self._fetched(atom)
            case Floor() | Mod():
                return self._floored(atom)
        return None

    def _fetched(self, atom: Fetch) -> str:
        """An integer read that is used as a coordinate: in 64 bits, because 250 + 10 and 3 - 8 do not fit in u8."""
        cast = "" if self.context.dtypes[atom.tensor] == "i64" else "i64"
        if atom.tensor in self.values:
            value = self.values[atom.tensor]
            return f"{wrap(value, ATOM)}.to({self.dtype(cast)})" if cast else wrap(value, ATOM)
        fill = -1 if atom.fill is None else atom.fill
        dtype = self.context.dtypes[atom.tensor]
        read = ir.Read(atom.tensor, atom.coords, None if self._is_inside(atom) else fill, dtype)
        return self.read(read, cast)

    def _is_inside(self, atom: Fetch) -> bool:
        """Whether a read needs no check: it is then the one load of all who read there."""
        return not any(
            is_fractional(c) or self.checks(atom.tensor, k, "", c)
            for k, c in enumerate(atom.coords)
        )

    def _floored(self, atom: Floor | Mod) -> str | None:
        """A quotient or remainder that Triton would not floor, because it rounds towards zero. None if Triton gives the floor.

        The host divides once what no index changes. Python divides what is known when the kernel is compiled.
        """
        num, den = atom.num, atom.den
        alone = is_size(num) and is_size(den)
        if alone and symbols(num) | symbols(den) <= self.told:
            return None
        bound = None if alone or not self.divides_in else self._most(num)
        kind = self.divides_in if bound is not None else ""
        if bound is not None:
            self.divided |= {bound: None, den: None}
        if self._not_negative(num) and self._not_negative(den):
            if not kind:
                return None
            sign = "%" if isinstance(atom, Mod) else "//"
            shown, by = wrap(self.size(num, value=True), ATOM), wrap(self.size(den), ATOM)
            return f"({shown}.to({kind}) {sign} {by}).to(tl.int64)"
        wish, helper = "quotient", "lib.floor_div"
        if isinstance(atom, Mod):
            wish, helper = "rest", "lib.floor_mod"
        if alone:
            return self.count(poly(atom), wish)
        shown = self.size(num, value=not is_size(num))[0]
        if kind:
            return f"{helper}({wrap((shown, precedence_of(shown)), ATOM)}.to({kind}), {self.size(den)[0]}).to(tl.int64)"
        return f"{helper}({shown}, {self.size(den)[0]})"

    def _most(self, p: Poly) -> Poly | None:
        """A bound of |p|, made of sizes. None if p holds anything but indices, sizes and quotients of these."""
        found, maybe_below = Poly(), {c.name for c in self.op.constants}
        for monomial, number in p.terms:
            term = poly(max(number, -number))
            factor: Poly
            for atom, power in monomial:
                if isinstance(atom, Idx) and atom.name in self.ranges:
                    lo, hi = self.ranges[atom.name]
                    low = lo.constant
                    if low is None or not is_size(hi):
                        return None
                    factor = hi + poly(max(low, -low))
                elif isinstance(atom, Sym) and atom.name not in maybe_below:
                    factor = poly(atom)
                elif isinstance(atom, Floor) and (whole := self._most(atom.num)) is not None:
                    factor = whole  # divided by 1 at least
                else:
                    return None
                for _ in range(power):
                    term *= factor
            found += term
        return found

    def _not_negative(self, p: Poly) -> bool:
        """Whether p is a sum of products of indices and sizes, or proven to be at least 0.

        Constants may be negative, and so may an index whose range starts below 0.
        """
        return self._plainly_not_negative(p) or self._proven(p, ">=", poly(0))

    def _proven(self, left: Poly, op: str, right: Poly) -> bool:
        """Whether `left op right` is found to hold for all values of the indices in `left`."""
        if not indices(left) <= self.ranges.keys():
            return False
        own = {name: self.ranges[name] for name in indices(left)}
        return prove(left, op, right, self.context.facts, own) is True

    def _plainly_not_negative(self, p: Poly) -> bool:
        maybe_below = {c.name for c in self.op.constants} | self.may_be_negative

        def is_plain(atom: Atom) -> bool:
            if isinstance(atom, Floor):
                return all(map(self._plainly_not_negative, (atom.num, atom.den)))
            return isinstance(atom, (Sym, Idx)) and atom.name not in maybe_below

        return all(value > 0 and all(is_plain(a) for a, _ in factors) for factors, value in p.terms)

    def extent(self, p: Poly, wish: str) -> str:
        """An argument that holds the extent of an axis; a line of the kernel where it depends on its program."""
        if indices(p):
            self.index[wish] = self.fresh("terms" if wish == "K" else wish.lower())
            self.prologue.append(f"{self.index[wish]} = {self.size(p)[0]}")
            return self.index[wish]
        if (name := bare(p)) and name != ir.BATCH:
            return self.symbol(name)
        return self.count(p, wish) if p.constant is None else str(p)

    # ---- indices
    def index_text(self, name: str) -> str:
        """The variable of an index, decoded from its axis where the axis walks several."""
        if name in self.index:
            return self.index[name]
        if name in self.lets:
            shown = wrap(self.size(self.lets[name]), ATOM)  # its own digits come first
            self.index[name] = name
            self.narrow.add(name)
            self.prologue.append(f"{name} = {shown}.to(INDEX)")
            return name
        axis = self.axis_of[name]
        variable = self.index_name(name)
        self.index[name] = variable
        self._place(axis.name, f"{variable} = {self.digits((name,))}")
        return variable

    def index_name(self, name: str) -> str:
        if name != ir.BATCH:
            return name
        wish = f"b{self.names.mark}"
        return self.fresh("b") if wish in self.names.taken else wish

    def digits(self, run: tuple[str, ...]) -> str:
        """The number that a run of an axis's digits makes."""
        axis = self.axis_of[run[0]]
        order = axis.names
        first, last = order.index(run[0]), order.index(run[-1])
        variable = self.axis_var[axis.name]
        right = axis.extent_of(tuple(order[last + 1 :]))
        own = axis.extent_of(tuple(order[first : last + 1]))
        out = variable if right.constant == 1 else f"{variable} // {self.counted(right)}"
        if first > 0:
            out += f" % {self.counted(own)}"
        low = axis.digits[first].lo
        out = f"{out} + {self.size(low)[0]}" if low.terms and first == last else out
        if axis.name in self.short:
            return f"{out if out.isidentifier() else f'({out})'}.to(tl.int64)"
        return out

    def counted(self, p: Poly) -> str:
        """An extent as a divisor. A product of sizes is passed as an argument, because it may need 64 bits.

        A loop may have no turn: some phases of a transposed convolution have no taps, and what is known as the kernel
        is compiled may be 0. But what it divides by is hoisted, and from `x % 0`, which has no meaning, LLVM would
        conclude that there are some, or load from nowhere.
        """
        less = any(value < 0 for _, value in p.terms)
        if less or any(isinstance(a, Extreme) for a in atoms(p)):
            return self.at_least_1(p)  # Triton knows a size of 1 as it compiles, and `W - 1` then
        if indices(p) & set(self.lets) or symbols(p) <= self.known and not indices(p):
            if len(p.terms) != 1:
                return self.at_least_1(p)
            return wrap(self.size(substitute_atoms(p, self._spared)), ATOM)
        names = [a.name for m, _ in p.terms for a, _ in m if isinstance(a, Sym)]
        if len(p.terms) != 1 or indices(p) or len(names) < 2:
            return wrap(self.size(p), ATOM)
        short = all(len(name) == 1 for name in names)
        wish = ("" if short else "_").join("b" if name == ir.BATCH else name for name in names)
        return self.parameter(self.args.sizes, wish, launch_text(p))

    def _spared(self, atom: Atom) -> Poly | None:
        """A factor of a divisor, as one that is not 0; None where the compiler cannot tell that it is."""
        p = poly(atom)
        told = indices(p) & set(self.lets) or symbols(p) <= self.known
        return index(self.at_least_1(p)) if told else None

    def at_least_1(self, p: Poly) -> str:
        """A count that may be 0, as a divisor. It has a name of its own, so that products with the count stay as divisible as before."""
        if p not in self.divisors:
            shown = self.size(p)[0]
            own = self.fresh(f"{shown if shown.isidentifier() else 'count'}_or_1")
            self.divisors[p] = self.index[own] = own
            self.narrow.add(own)
            self.prologue.append(f"{own} = tl.maximum({shown}, 1)")
        return self.divisors[p]

    def _place(self, axis: str, line: str) -> None:
        """The place for the line of a decoded digit: with its axis. Loops over an axis override this."""
        if axis in self.looping:
            self.line(line)
        else:
            self.prologue.append(line)

    def run_text(self, run: tuple[str, ...]) -> str:
        axis, last = self.axis_of[run[0]], self.axis_of[run[-1]]
        if len(run) == len(axis.digits) and axis is last:
            return self.axis_var[axis.name] + (".to(tl.int64)" if axis.name in self.short else "")
        if len(run) == 1:
            return self.index_text(run[0])
        key = ("run", run)
        if key not in self.cache:
            if run not in self.run_names:
                wish = "".join("b" if d == ir.BATCH else d for d in run)
                self.run_names[run] = self.fresh(wish)
            self.cache[key] = self.run_names[run]
            text = self.digits(run) if axis is last else self._joined(run)
            self._place(last.name, f"{self.cache[key]} = {text}")
        return self.cache[key]

    def _joined(self, run: tuple[str, ...]) -> str:
        """The number of a run of digits, if a tile covers only the last ones."""
        inner = self.axis_of[run[-1]]
        cut = next(k for k, digit in enumerate(run) if self.axis_of[digit] is inner)
        high, low = self.run_text(run[:cut]), self.run_text(run[cut:])
        if inner.name not in self.lengths or len(run) - cut < len(inner.digits):
            return f"{high} * {wrap(self.size(inner.extent_of(run[cut:])), ATOM)} + {low}"
        return f"{high} * {self.lengths[inner.name]} + {low}"

    # ---- addresses
    def address(self, tensor: str, coords: tuple[Poly, ...]) -> tuple[str, list[str], list[int]]:
        """(pointer expression, coordinate texts, dims) of an access."""
        self.pointer(tensor)  # a kernel takes it before what its coordinates load
        view = self.views.get(tensor)
        terms: list[tuple[frozenset[str], str]] = []
        if view is not None:
            for k, run in enumerate(view.runs):
                if run:
                    at = self.run_text(run)
                    if self.narrow & set(run):
                        at = f"tl.cast({at}, tl.int64)"
                    stride = self.stride(tensor, _run_name(run, self), k)
                    self.say_beside(stride, tensor, k, run, view.runs)
                    terms.append((frozenset(run), f"{at} * {stride}"))
            return self.joined(tensor, terms), [], []
        shown = []
        for k, coordinate in enumerate(coords):
            at = self.coordinate(tensor, k, coordinate)
            shown.append(at)
            if at != "0":
                terms.append((indices(coordinate), self.times_stride(tensor, k, at, coordinate)))
                stride = self.stride(tensor, str(k), k)
                own, every = indices(coordinate), [indices(c) for c in coords]
                self.say_beside(stride, tensor, k, own, every)
        return self.joined(tensor, terms), shown, list(range(len(coords)))

    def say_beside(
        self,
        stride: str,
        tensor: str,
        dim: int,
        own: Container[str],
        every: Iterable[Container[str]],
    ) -> None:
        """The stride of a dim beside the innermost one: how wide accesses are that one may be."""
        group = tensor if tensor in self.along else ""
        along = self.along.get(group, "")
        if along not in own and any(along in indices_ for indices_ in every):
            self.say_multiple(stride, f"{tensor}.stride({dim})", group)

    def say_multiple(self, name: str, passed: str, tensor: str = "") -> None:
        """A size or stride of which the kernel says what power of two divides it."""
        said = {n for group in self.multiples.values() for n in group}
        if name.isidentifier() and name not in said | self.args.constants.keys():
            self.multiples.setdefault(tensor, {})[name] = passed

    def joined(self, tensor: str, terms: list[tuple[frozenset[str], str]]) -> str:
        """A pointer and what is added to it: (indices, text) each."""
        return " + ".join([self.pointer(tensor), *(text for _, text in terms)])

    def times_stride(self, tensor: str, dim: int, at: str, p: Poly) -> str:
        """A coordinate, shown as `at`, times its stride, in 64 bits."""
        stride = self.stride(tensor, str(dim), dim)
        if at == "1":
            return stride
        if self.is_wide(p):
            return f"{wrap_text(at, TERM)} * {stride}"
        return f"tl.cast({at}, tl.int64) * {stride}"

    def is_wide(self, p: Poly) -> bool:
        """Whether a coordinate is a small number or has 64 bits, so that times a stride it does not overflow."""
        return p.constant is not None or any(
            isinstance(atom, Fetch) or isinstance(atom, Idx) and atom.name not in self.narrow
            for atom in walk_poly(p)
        )

    def coordinate(self, tensor: str, dim: int, p: Poly) -> str:
        """A coordinate as text: named where it is more than an index."""
        p = self.undivided(p)
        if is_fractional(p):
            num = self._named(numerator(p), f"{self._dim_name(tensor, dim)}_num")
            return f"{num} // {wrap(self.size(denominator(p)), ATOM)}"
        if p.constant is not None or isinstance(only_atom(p), Idx):
            return self.size(p)[0]
        return self._named(p, self._dim_name(tensor, dim))

    def undivided(self, p: Poly) -> Poly:
        """p with the number of an axis in place of its digits, if they make it up: `n` for `n % C + n // C * C`.

        Triton sees that lanes along an axis are adjacent, but not that lanes along its digits are.
        """
        parts = affine(p)
        weights = {a.name: w for a, w in parts[0].items() if isinstance(a, Idx)} if parts else {}
        axes = (self.axis_of[name] for name in weights if name in self.axis_of)
        for axis in {axis.name: axis for axis in axes}.values():
            run = axis.names
            if len(run) == 1 or any(d.index not in weights or d.lo.terms for d in axis.digits):
                continue
            last = weights[run[-1]]
            if all(weights[n] == last * axis.extent_of(run[k + 1 :]) for k, n in enumerate(run)):
                whole = " ".join(run)  # what no index is called
                self.index[whole] = self.run_text(run)
                for name in run:
                    p = p - weights[name] * index(name)
                p = p + last * index(whole)
        return p

    def _named(self, p: Poly, wish: str) -> str:
        key = ("coordinate", p)
        if key not in self.cache:
            shown = without_parentheses(self.size(p)[0])
            if shown.isidentifier():
                return shown
            self.cache[key] = self.fresh(wish)
            self.line(f"{self.cache[key]} = {shown}")
        return self.cache[key]

    def _dim_name(self, tensor: str, dim: int) -> str:
        name = bare(self.context.dims[tensor][dim])
        own = name.lower() if name and name != ir.BATCH else f"at{dim}"
        return f"{tensor}_{own}"

    # ---- masks
    def mask(self, axes: frozenset[str], checks: Sequence[str] = ()) -> str:
        """The joint mask of some axes and further checks; "" where nothing can be outside."""
        axes = frozenset(a for a in axes if self.axis_mask.get(a))
        parts = []
        for group, name in self.together.items():
            if group <= axes and len(group) > 1:
                parts.append(name)
                axes -= group
        parts += [self.axis_mask[a] for a in self.axis_mask if a in axes]
        parts = list(dict.fromkeys([*parts, *checks]))
        if len(parts) == 1:
            return parts[0]
        return " & ".join(part if part.isidentifier() else f"({part})" for part in parts)

    def axes_in(self, coords: Iterable[Poly]) -> frozenset[str]:
        return self.axes_in_names(name for c in coords for name in indices(c))

    def axes_in_names(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(self.axis_of[n].name for n in names if n in self.axis_of)

    def checks(self, tensor: str, dim: int, at: str, coordinate: Poly) -> list[str]:
        """The conditions under which a coordinate, shown as `at`, lies in its dim; provable ones left out."""
        extent = self.context.dims[tensor][dim]
        if is_fractional(coordinate):
            num = self._named(numerator(coordinate), f"{self._dim_name(tensor, dim)}_num")
            whole = f"{num} % {wrap(self.size(denominator(coordinate)), ATOM)} == 0"
            # For integers, a divisor of either sign decides equally whether the division is exact.
            first = num if self._not_negative(denominator(coordinate)) else at
            return [whole, f"{first} >= 0", f"{at} < {self.size(extent)[0]}"]
        above = self._not_negative(coordinate)
        checks = [] if above else [f"{at} >= 0"]
        if not (above and self._proven(coordinate, "<", extent)):
            checks.append(f"{at} < {self.size(extent)[0]}")
        return checks

    # ---- loads
    def read(self, read: ir.Read, cast: str = "") -> str:
        """A load, once per place; the variable that holds it."""
        key = (read, cast)
        if key not in self.cache:
            load = self.load(read, cast)
            self.cache[key] = self.assign(self.wish(read), load)
        return self.cache[key]

    def wish(self, read: ir.Read) -> str:
        """What a loaded value is to be called."""
        return read.tensor

    def load(self, read: ir.Read, cast: str = "", checks: Sequence[str] = ()) -> str:
        """The text of a load, behind the lines of its address. `checks`: what else its mask asks."""
        if read in self.loads:
            load = self.loads[read]
            return self.converted((load, 0), read, cast) if cast else load
        where, shown, dims = self.address(read.tensor, read.coords)
        mask, checked = self.load_mask(read, shown, dims)
        if checks:
            every = [*([mask] if mask else []), *checks]
            mask = " & ".join(c if " & " in c or c.isidentifier() else f"({c})" for c in every)
        options = f", mask={mask}" if mask else ""
        held = read.fill if checked else self.fill.get(read.tensor)
        in_memory = held is None or is_exact(held, ir.dtypes_of(read.dtype, self.op))
        wider = read.dtype if in_memory else cast or "compute"
        outside = "" if held is None or not mask else self.outside(held, wider)
        if outside and in_memory:
            options += f", other={outside}"
        if read.tensor in self.evict:
            options += f", eviction_policy={self.evict[read.tensor]}"
        load = f"tl.load({where}{options})"
        if outside and not in_memory:
            return f"tl.where({mask}, {self.converted((load, ATOM), read, wider)}, {outside})"
        return self.converted((load, ATOM), read, cast) if cast else load

    def outside(self, held: int | float | bool, dtype: str) -> str:
        """What a load gives where its mask is false. Triton takes a bare number for an f32."""
        text = literal(held, ir.kind_of(dtype, self.op))
        wide = self.context.wide if dtype == "compute" else ir.may_be_f64(dtype, self.op)
        if wide and not exact_in_f32(ir.Const(held, dtype)):
            return f"tl.full((), {text}, {self.dtype(dtype)})"
        return text

    def load_mask(self, read: ir.Read, shown: list[str], dims: list[int]) -> tuple[str, bool]:
        """The mask of a load, and whether it asks where the coordinates are."""
        checks = []
        if read.fill is not None:
            for place in zip(dims, shown, read.coords, strict=False):
                checks += self.checks(read.tensor, *place)
        return self.mask(self.axes_in(read.coords), checks), bool(checks)


def _run_name(run: tuple[str, ...], writer: Addressing) -> str:
    axis = next(a for a in writer.kernel.axes if run[0] in a.names)
    if len(run) == len(axis.digits):
        own = writer.axis_var.get(axis.name) == axis.name or len(run) > 1 or run[0] == ir.BATCH
        return axis.name if own else run[0]
    return "".join("b" if r == ir.BATCH else r for r in run)

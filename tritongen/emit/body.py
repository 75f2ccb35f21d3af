"""The values of one kernel as Triton lines: expressions, loads, masks, and the arguments they need.

Input: IR expressions and, from the skeleton's printer, how each index reads inside the tile. Output:
lines appended to `Body.lines`, and `Args`, the kernel's parameters with what the launch passes.
What a fold or a loop looks like is the skeleton's business, not this module's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tritongen.emit.names import Names
from tritongen.emit.text import (
    exact_in_f32,
    launch_text,
    literal,
    only_atom,
    precedence_of,
    stores_directly,
    symbol_names,
    wrap,
)
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import (
    Fetch,
    Floor,
    Idx,
    Mod,
    Poly,
    Sym,
    denominator,
    indices,
    is_fractional,
    is_size,
    numerator,
    with_modulo,
)
from tritongen.ir.algebra import (
    text as poly_text,
)
from tritongen.ir.algebra import (
    walk as walk_poly,
)
from tritongen.ir.bounds import Facts, prove
from tritongen.ir.forms import HALVES
from tritongen.ir.functions import (
    ATOM,
    FUNCTIONS,
    TERM,
    UNARY,
    fill,
    helpers_of,
    power_text,
    text_for,
    uses_libdevice,
    with_flag,
)
from tritongen.schedule.canonical import binders_of
from tritongen.schedule.plan import KernelPlan

TRITON_DTYPES = {
    "f64": "tl.float64", "f32": "tl.float32", "f16": "tl.float16", "bf16": "tl.bfloat16",
    "f8e4m3": "tl.float8e4nv", "f8e5m2": "tl.float8e5", "i64": "tl.int64", "i32": "tl.int32",
    "i16": "tl.int16", "i8": "tl.int8", "u8": "tl.uint8", "bool": "tl.int1",
}  # fmt: skip


@dataclass
class Args:
    """A kernel's parameters in the order a reader expects, each with what the launch passes."""

    pointers: dict[str, str] = field(default_factory=dict)
    scalars: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, str] = field(default_factory=dict)
    strides: dict[str, str] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """What is the same for all kernels of one op."""

    op: ir.Op
    dims: dict[str, tuple[Poly, ...]]  # of every stored tensor, scratch included
    dtypes: dict[str, str]
    facts: Facts
    wide: bool  # whether the call may compute in f64
    user_names: frozenset[str]  # names that the spec chose: lifted reducers are not among them


class Body:
    """Prints one kernel's values; `lines` grows, `indent` is where the next line stands."""

    def __init__(self, context: Context, kernel: KernelPlan):
        self.context, self.kernel, self.op = context, kernel, context.op
        self.args = Args()
        self.lines: list[str] = []
        self.scalars: list[str] = []  # lines that hold for the whole kernel, in front of any loop
        self.prologue: list[str] = []
        self.indent = 0
        self.helpers: dict[str, None] = {}
        self.libdevice = False
        spec = {p.name for p in self.op.params} | {o.name for o in self.op.outputs}
        spec |= (
            {n.name for n in kernel.nests}
            | set(context.dims)
            | {s for d in context.dims.values() for p in d for s in symbol_names(p)}
        )
        spec |= {
            b.index for n in kernel.nests for b in (*n.box, *binders_of(n)) if b.index != ir.BATCH
        }
        self.names = Names(spec)
        self.given: dict[tuple[str, str], str] = {}  # (kind, what the launch passes) -> parameter
        self.views = {v.tensor: v for v in kernel.views}
        self.index: dict[str, str] = {}  # index -> variable
        self.narrow: set[str] = set()  # indices that a loop counts in 32 bits
        parts = [part for a in kernel.axes for part in (a.outer, a.run)]
        self.axis_of = {d.index: part for part in parts for d in part.digits}
        self.axis_var: dict[str, str] = {}
        self.short: set[str] = set()  # axes counted in 32 bits, in which dividing is cheap
        self.run_names: dict[tuple[str, ...], str] = {}
        self.axis_mask: dict[str, str] = {}
        self.together: dict[frozenset[str], str] = {}  # axes -> the name of their joint mask
        self.values: dict[str, tuple[str, int]] = {}  # nest -> text
        self.cache: dict[object, str] = {}
        self.assigned: set[str] = set()  # variables that have been given a value in this scope
        self.looping: frozenset[str] = frozenset()  # axes that a loop walks right now
        self.lets = dict(kernel.lets)
        self.fill: dict[str, float] = {}  # tensor -> what its masked lanes hold
        self.loads: dict[ir.Read, str] = {}  # what is loaded in another way than by pointers
        self.evict: dict[str, str] = {}  # tensor -> "first" or "last", as its loads tell the cache
        self.ranges: dict[str, tuple[Poly, Poly]] = {
            b.index: (b.lo, b.hi) for n in kernel.nests for b in (*n.box, *binders_of(n))
        }
        self.may_be_negative: set[str] = set()
        self.may_be_negative |= {
            b.index
            for n in kernel.nests
            for b in (*n.box, *binders_of(n))
            if not self._not_negative(b.lo)
        }

    # ---- lines
    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text if text else "")

    def assign(self, wish: str, text: str) -> str:
        """`wish = text` on a line of its own; the name that it got."""
        name = (
            self.names.free(wish) if wish in self.assigned or wish in self.index.values() else wish
        )
        self.names.taken.add(name)
        self.assigned.add(name)
        self.line(f"{name} = {text}")
        return name

    def fresh(self, wish: str) -> str:
        return self.names.free(wish)

    # ---- arguments
    def pointer(self, tensor: str) -> str:
        return self.parameter(self.args.pointers, f"{tensor}_ptr", tensor)

    def stride(self, tensor: str, run: str, dim: int) -> str:
        return self.parameter(self.args.strides, f"{tensor}_{run}", f"{tensor}.stride({dim})")

    def parameter(self, among: dict[str, str], wish: str, passed: str) -> str:
        """The parameter that what the launch passes arrives in; a new one steps aside for names of the spec."""
        key = str(id(among)), passed
        if key not in self.given:
            self.given[key] = self.names.free(wish)
            among[self.given[key]] = passed
        return self.given[key]

    def size(self, p: Poly) -> tuple[str, int]:
        """A size, coordinate or count in whole numbers, from arguments and index variables."""
        out = poly_text(with_modulo(p), self._leaf)
        return out, precedence_of(out)

    def _leaf(self, atom) -> str | None:
        match atom:
            case Sym(name):
                return self.symbol(name)
            case Idx(name):
                return self.index_text(name)
            case Fetch(tensor) if tensor in self.values:
                return wrap(self.values[tensor], ATOM)
            case Fetch(tensor, coords, fill_value):
                return self.read(
                    ir.Read(
                        tensor,
                        coords,
                        -1 if fill_value is None else fill_value,
                        self.dtype_of(tensor),
                    )
                )
            case Floor(num, den) if not is_size(num) and not self._not_negative(num):
                self.helpers["_floor_div"] = None
                return f"_floor_div({self.size(num)[0]}, {self.size(den)[0]})"
            case Mod(num, den):
                a, b = self.size(num), self.size(den)
                if not self._not_negative(num):
                    self.helpers["_floor_mod"] = None
                    return f"_floor_mod({a[0]}, {b[0]})"
                return f"{wrap(a, TERM)} % {wrap(b, ATOM)}"
        return None

    def _not_negative(self, p: Poly) -> bool:
        """Whether p is plainly a sum of products of indices and sizes.

        Constants may be negative, and so may an index whose range starts below 0.
        """
        maybe_below = {c.name for c in self.op.constants} | self.may_be_negative
        return all(
            value > 0
            and all(
                isinstance(atom, (Sym, Idx))
                and atom.name not in maybe_below
                or isinstance(atom, Floor)
                and self._not_negative(atom.num)
                for atom, _ in monomial
            )
            for monomial, value in p.terms
        )

    def symbol(self, name: str) -> str:
        if any(c.name == name for c in self.op.constants):
            self.args.constants.setdefault(name, name)
            return name
        if name == ir.BATCH:
            return self.parameter(self.args.sizes, "batch", "batch")
        self.args.sizes.setdefault(name, name)
        return name

    def extent(self, p: Poly, wish: str) -> str:
        """An argument that holds the extent of an axis; a line of the kernel where it depends on its program."""
        if indices(p):
            self.index[wish] = self.names.free("terms" if wish == "K" else wish.lower())
            self.prologue.append(f"{self.index[wish]} = {self.size(p)[0]}")
            return self.index[wish]
        if len(p.terms) == 1 and isinstance(only_atom(p), Sym):
            return (
                self.symbol(only_atom(p).name)
                if only_atom(p).name != ir.BATCH
                else self._count(p, wish)
            )
        if p.constant is not None:
            return str(p)
        return self._count(p, wish)

    def _count(self, p: Poly, wish: str) -> str:
        return self.parameter(self.args.sizes, wish, launch_text(p))

    def scalar(self, name: str, dtype: str) -> str:
        for c in self.op.constants:
            if c.name == name:
                self.args.constants.setdefault(name, name)
                return name
        if name not in self.args.scalars:
            self.args.scalars[name] = name
            self.helpers["_scalar"] = None
            flag = self.names.free(f"{name.upper()}_IS_TENSOR")
            self.args.constants[flag] = f"isinstance({name}, torch.Tensor)"
            # A bool arrives as a whole number: int1 is no type that one can be made of.
            kind, test = ("tl.int32", " != 0") if dtype == "bool" else (self.dtype(dtype), "")
            self.scalars.append(f"{name} = _scalar({name}, {flag}, {kind}){test}")
        return name

    def dtype(self, dtype: str) -> str:
        """A dtype inside the kernel: a constexpr, or that of a pointer."""
        if dtype == "compute":
            if not self.context.wide:
                return "tl.float32"
            self.args.constants.setdefault("COMPUTE", "COMPUTE")
            return "COMPUTE"
        if dtype in TRITON_DTYPES:
            return TRITON_DTYPES[dtype]
        for pointer, tensor in self.args.pointers.items():
            if self.context.dtypes.get(tensor) == dtype:  # parts of folds have none
                return f"{pointer}.dtype.element_ty"
        operand = next(t.name for t in (*self.op.tensors, *self.op.outputs) if t.dtype == dtype)
        self.args.constants.setdefault(dtype, f"getattr(tl, str({operand}.dtype)[6:])")
        return dtype

    def dtype_of(self, tensor: str) -> str:
        return self.context.dtypes[tensor]

    def lowest(self, dtype: str, highest: bool = False) -> str:
        """The end of an int type, as a constexpr."""
        end = "max" if highest else "min"
        if dtype in ir.INTS:
            bits = int(dtype[1:])
            low, high = (
                (0, 2**bits - 1) if dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
            )
            return str(high if highest else low)
        operand = next(t.name for t in (*self.op.tensors, *self.op.outputs) if t.dtype == dtype)
        name = "HIGHEST" if highest else "LOWEST"
        return self.parameter(self.args.constants, name, f"torch.iinfo({operand}.dtype).{end}")

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
        wish = "b" if name == ir.BATCH else name
        return wish if wish not in self.names.taken or name != ir.BATCH else self.names.free(wish)

    def digits(self, run: tuple[str, ...]) -> str:
        """The number that a run of an axis's digits makes."""
        axis = self.axis_of[run[0]]
        order = [d.index for d in axis.digits]
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
        """An extent to divide by; a product of sizes comes as an argument, since it may need 64 bits."""
        names = [a.name for m, _ in p.terms for a, _ in m if isinstance(a, Sym)]
        if len(p.terms) != 1 or indices(p) or len(names) < 2:
            return wrap(self.size(p), ATOM)
        short = all(len(name) == 1 for name in names)
        wish = ("" if short else "_").join("b" if name == ir.BATCH else name for name in names)
        return self.parameter(self.args.sizes, wish, launch_text(p))

    def _place(self, axis: str, line: str) -> None:
        """Where a decoded digit stands: with its axis. Loops over an axis override this."""
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
                self.run_names[run] = self.names.free(wish)
            self.cache[key] = self.run_names[run]
            text = self.digits(run) if axis is last else self._joined(run)
            self._place(last.name, f"{self.cache[key]} = {text}")
        return self.cache[key]

    def _joined(self, run: tuple[str, ...]) -> str:
        """The number of a run of digits of which a tile walks the last ones only."""
        inner = self.axis_of[run[-1]]
        cut = next(k for k, digit in enumerate(run) if self.axis_of[digit] is inner)
        high, low = self.run_text(run[:cut]), self.run_text(run[cut:])
        return f"{high} * {wrap(self.size(inner.extent_of(run[cut:])), ATOM)} + {low}"

    # ---- addresses
    def address(self, tensor: str, coords: tuple[Poly, ...]) -> tuple[str, list[str], list[int]]:
        """(pointer expression, coordinate texts, dims) of an access."""
        self.pointer(tensor)  # a kernel takes it before what its coordinates load
        view, terms = self.views.get(tensor), []
        if view is not None:
            for k, run in enumerate(view.runs):
                if run:
                    at = self.run_text(run)
                    if self.narrow & set(run):
                        at = f"tl.cast({at}, tl.int64)"
                    stride = self.stride(tensor, _run_name(run, self), k)
                    terms.append((set(run), f"{at} * {stride}"))
            return self.joined(tensor, terms), [], []
        shown = []
        for k, coordinate in enumerate(coords):
            at = self.coordinate(tensor, k, coordinate)
            shown.append(at)
            if at != "0":
                terms.append((indices(coordinate), self.times_stride(tensor, k, at, coordinate)))
        return self.joined(tensor, terms), shown, list(range(len(coords)))

    def joined(self, tensor: str, terms: list[tuple[set[str], str]]) -> str:
        """A pointer and what is added to it: (indices, text) each."""
        return " + ".join([self.pointer(tensor), *(text for _, text in terms)])

    def times_stride(self, tensor: str, dim: int, at: str, p: Poly) -> str:
        """A coordinate, shown as `at`, times its stride, in 64 bits."""
        stride = self.stride(tensor, str(dim), dim)
        if self.is_wide(p):
            return f"{wrap((at, precedence_of(at)), TERM)} * {stride}"
        return f"tl.cast({at}, tl.int64) * {stride}"

    def is_wide(self, p: Poly) -> bool:
        """Whether a coordinate is a small number or has 64 bits, so that times a stride it does not overflow."""
        return p.constant is not None or any(
            isinstance(atom, Idx)
            and atom.name not in self.narrow
            or isinstance(atom, Fetch)
            and self.dtype_of(atom.tensor) == "i64"
            for atom in walk_poly(p)
        )

    def coordinate(self, tensor: str, dim: int, p: Poly) -> str:
        """A coordinate as text: named where it is more than an index."""
        if is_fractional(p):
            num = self._named(numerator(p), f"{self._dim_name(tensor, dim)}_num")
            return f"{num} // {wrap(self.size(denominator(p)), ATOM)}"
        if len(p.terms) <= 1 and (p.constant is not None or isinstance(only_atom(p), Idx)):
            return self.size(p)[0]
        return self._named(p, self._dim_name(tensor, dim))

    def _named(self, p: Poly, wish: str) -> str:
        key = ("coordinate", p)
        if key not in self.cache:
            shown = self.size(p)[0]
            if shown.isidentifier():
                return shown
            self.cache[key] = self.names.free(wish)
            self.line(f"{self.cache[key]} = {shown}")
        return self.cache[key]

    def _dim_name(self, tensor: str, dim: int) -> str:
        p = self.context.dims[tensor][dim]
        atom = only_atom(p) if len(p.terms) == 1 else None
        return (
            f"{tensor}_{atom.name.lower()}"
            if isinstance(atom, Sym) and atom.name != ir.BATCH
            else f"{tensor}_at{dim}"
        )

    def mask(self, axes: frozenset[str], checks: list[str] = ()) -> str:
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

    def axes_in(self, coords) -> frozenset[str]:
        names = set().union(*(indices(c) for c in coords)) if coords else set()
        return frozenset(self.axis_of[n].name for n in names if n in self.axis_of)

    def axes_in_names(self, names) -> frozenset[str]:
        return frozenset(self.axis_of[n].name for n in names if n in self.axis_of)

    # ---- expressions
    def read(self, read: ir.Read, cast: str = "") -> str:
        """A load, once per place; the variable that holds it."""
        key = (read, cast)
        if key in self.cache:
            return self.cache[key]
        if read in self.loads:
            load = f"({self.loads[read]}).to({self.dtype(cast)})" if cast else self.loads[read]
            self.cache[key] = self.assign(read.tensor, load)
            return self.cache[key]
        where, shown, dims = self.address(read.tensor, read.coords)
        mask, checked = self.load_mask(read, shown, dims)
        options = f", mask={mask}" if mask else ""
        other = self._other(read, checked)
        if mask and other is not None:
            options += f", other={other}"
        if read.tensor in self.evict:
            options += f', eviction_policy="evict_{self.evict[read.tensor]}"'
        load = f"tl.load({where}{options})" + (f".to({self.dtype(cast)})" if cast else "")
        self.cache[key] = self.assign(read.tensor, load)
        return self.cache[key]

    def load_mask(self, read: ir.Read, shown: list[str], dims: list[int]) -> tuple[str, bool]:
        """The mask of a load, and whether it asks where the coordinates are."""
        checks = []
        if read.fill is not None:
            for place in zip(dims, shown, read.coords):
                checks += self.checks(read.tensor, *place)
        return self.mask(self.axes_in(read.coords), checks), bool(checks)

    def _other(self, read: ir.Read, checked: bool) -> str | None:
        if read.fill is not None:
            if checked:
                return literal(read.fill, ir.kind_of(read.dtype, self.op))
        held = self.fill.get(read.tensor)
        return None if held is None else literal(held, ir.kind_of(read.dtype, self.op))

    def checks(self, tensor: str, dim: int, at: str, coordinate: Poly) -> list[str]:
        """The conditions under which a coordinate, shown as `at`, lies in its dim; provable ones left out."""
        extent = self.context.dims[tensor][dim]
        if is_fractional(coordinate):
            num = self._named(numerator(coordinate), f"{self._dim_name(tensor, dim)}_num")
            whole = f"{num} % {wrap(self.size(denominator(coordinate)), ATOM)} == 0"
            return [whole, f"{num} >= 0", f"{at} < {self.size(extent)[0]}"]
        checks = []
        if not self._not_negative(coordinate):
            checks.append(f"{at} >= 0")
        if not self._below(coordinate, extent):
            checks.append(f"{at} < {self.size(extent)[0]}")
        return checks

    def _below(self, coordinate: Poly, extent: Poly) -> bool:
        """Whether the coordinate, which has no offset below 0, provably ends where the dim does."""
        if self._not_negative(coordinate) and indices(coordinate) <= set(self.ranges):
            own = {name: self.ranges[name] for name in indices(coordinate)}
            return prove(coordinate, "<", extent, self.context.facts, own) is True
        return False

    def expr(self, e: ir.Expr) -> tuple[str, int]:
        """The text of a value and its precedence; loads go to lines of their own."""
        match e:
            case ir.Const(value, dtype):
                out = literal(value, ir.kind_of(dtype, self.op))
                return out, UNARY if out.startswith("-") else ATOM
            case ir.ScalarRef(name, dtype):
                return self.scalar(name, dtype), ATOM
            case ir.IndexValue(p, dtype):
                return self._index_value(p, dtype)
            case ir.Read(tensor):
                if tensor in self.values:
                    return self.values[tensor]
                return self.read(e), ATOM
            case ir.Cast(arg, dtype):
                return self._cast(arg, dtype)
            case ir.Call():
                return self._call(e)
        raise TypeError(f"a reducer stands at the root of a nest: {e}")

    def _index_value(self, p: Poly, dtype: str) -> tuple[str, int]:
        if is_size(p) and self._is_product(p):
            return self._count(p, "count"), ATOM  # in a kernel, a product of sizes has 32 bits
        out = self.size(p)
        if not is_size(p) and not self.is_wide(p):
            return f"tl.cast({out[0]}, {self.dtype(dtype)})", ATOM
        if is_size(p) or dtype == "i64":
            return out
        return f"{wrap(out, ATOM)}.to({self.dtype(dtype)})", ATOM

    def _is_product(self, p: Poly) -> bool:
        """Whether sizes that the call binds are multiplied with each other."""
        constants = {c.name for c in self.op.constants}
        return any(
            sum(power for atom, power in monomial if getattr(atom, "name", "") not in constants) > 1
            for monomial, _ in p.terms
        )

    def _cast(self, arg: ir.Expr, dtype: str) -> tuple[str, int]:
        if isinstance(arg, ir.Read) and arg.tensor not in self.values:
            return self.read(arg, cast=dtype), ATOM
        if isinstance(arg, (ir.Const, ir.IndexValue)) and not self.strong(arg):
            return self.expr(arg) if dtype == "compute" else (self.full(arg, dtype), ATOM)
        inner = self.expr(arg)
        if _dtype(arg) == dtype and not isinstance(arg, ir.Read):
            return inner
        if dtype == "u8" and ir.kind_of(_dtype(arg), self.op) == "float":
            return f"{wrap(inner, ATOM)}.to(tl.int32).to(tl.uint8)", ATOM
        return f"{wrap(inner, ATOM)}.to({self.dtype(dtype)})", ATOM

    def half(self, stored: str) -> str:
        """Whether a dtype is a half type in the call: a constexpr."""
        if stored in HALVES:
            return "HALF=True"
        operand = next(t.name for t in (*self.op.tensors, *self.op.outputs) if t.dtype == stored)
        return self.parameter(self.args.constants, "HALF", f"{operand}.element_size() == 2")

    def full(self, e: ir.Expr, dtype: str) -> str:
        """A number or size as a tensor of a dtype."""
        return f"tl.full((), {self.expr(e)[0]}, {self.dtype(dtype)})"

    def strong(self, e: ir.Expr) -> bool:
        """Whether the text is a Triton tensor of the value's own dtype, not a bare number."""
        match e:
            case ir.Const():
                return False
            case ir.IndexValue(p):
                return not is_size(p)
            case ir.ScalarRef(name):
                return not any(c.name == name for c in self.op.constants)
            case ir.Cast(arg):
                return self.strong(arg)
            case ir.Call(_, args):
                return any(self.strong(a) for a in args)
        return True

    def _call(self, e: ir.Call) -> tuple[str, int]:
        row = FUNCTIONS[e.fn]
        args = e.args[1:] if e.fn == "where" else e.args
        kind = ir.kind_of(_dtype(args[0]), self.op)
        if e.fn == "pow_int":
            text, kept = power_text(int(e.args[1].value)), e.args[:1]
        else:
            text, kept = text_for(row, kind), e.args
        if row.half and e.stored:
            text = with_flag(text, self.half(e.stored))
        self.helpers |= dict.fromkeys(helpers_of(text))
        self.libdevice |= uses_libdevice(text)
        is_call = text.precedence == ATOM and "(" in text.template
        weak = not any(self.strong(a) for a in args)
        shown = []
        for k, arg in enumerate(kept):
            out = self.expr(arg)
            lossy = isinstance(arg, ir.Const) and is_call and not exact_in_f32(arg)
            if not self.strong(arg) and (
                lossy or (weak and k == 0) or (is_call and row.arity == 1)
            ):
                out = self.full(arg, _dtype(arg)), ATOM
            if "abc"[k] in text.repeats and not out[0].isidentifier() and out[1] != UNARY:
                out = self.assign(self.fresh("t"), out[0]), ATOM
            shown.append(out)
        return fill(text, shown)

    # ---- values
    def value(self, nest: ir.Nest) -> str:
        """A pointwise nest as a named line; what is written to an output is rounded as it is stored."""
        body, rounded = nest.body, self.read_again(nest)
        if (
            isinstance(body, ir.Cast)
            and body.dtype == nest.dtype
            and nest.dtype not in ("compute",)
            and not rounded
        ):
            if stores_directly(_dtype(body.arg), nest.dtype, self.op):
                body = body.arg
        out = self.expr(body)
        passed_on = nest.name in self.kernel.stores and not rounded
        if out[0].isidentifier() and (passed_on or nest.name not in self.context.user_names):
            self.values[nest.name] = out
            return out[0]
        name = self.assign(nest.name, out[0])
        self.values[nest.name] = (name, ATOM)
        return name

    def read_again(self, nest: ir.Nest) -> bool:
        return any(
            isinstance(e, ir.Read) and e.tensor == nest.name
            for n in self.kernel.nests
            for e in ir.walk(n.body)
        )

    def store(self, nest: ir.Nest, value: str, checks: list[str] = ()) -> None:
        where, _, _ = self.address(nest.name, nest.coords)
        axes = self.axes_in(tuple(c for c in nest.coords if c.terms))
        for axis in self.kernel.axes:  # an axis of one element: its first lane writes
            if not axis.digits and self.axis_mask.get(axis.name):
                where, axes = f"{where} + {self.axis_var[axis.name]}", axes | {axis.name}
        mask = self.mask(axes, list(checks))
        self.line(f"tl.store({where}, {value}{f', mask={mask}' if mask else ''})")


def _dtype(e: ir.Expr) -> str:
    return e.dtype


def _run_name(run: tuple[str, ...], body: Body) -> str:
    axis = next(a for a in body.kernel.axes if run[0] in {d.index for d in a.digits})
    if len(run) == len(axis.digits):
        return axis.name if len(run) > 1 or run[0] == ir.BATCH else run[0]
    return "".join("b" if r == ir.BATCH else r for r in run)

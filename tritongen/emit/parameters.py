"""The parameters and lines of one kernel. The base of `KernelWriter`.

A parameter is made when a line first uses it: a pointer, scalar, size, stride or constexpr, with what the launch passes.
`addressing.py` computes addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

from tritongen.emit.names import Names, words_of
from tritongen.emit.text import launch_text, wrap
from tritongen.emit.view import template_of
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, symbols
from tritongen.ir.bounds import Facts
from tritongen.ir.dtypes import DTYPES, HALVES, NARROW_FLOATS
from tritongen.ir.functions import ATOM
from tritongen.ir.narrowing import by_bits, key_of
from tritongen.schedule.aside import names_of
from tritongen.schedule.plan import KernelPlan

TRITON_DTYPES = {d.name: f"tl.{d.triton}" for d in DTYPES.values()}
_MET_BY_F8 = {"f32", "f16", "bf16"}  # Triton converts these to f8 and back


@dataclass
class Args:
    """A kernel's parameters in the order a reader expects, each with what the launch passes."""

    pointers: dict[str, str] = field(default_factory=dict)
    scalars: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, str] = field(default_factory=dict)
    strides: dict[str, str] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)
    # Of pointers that are descriptors: rows and columns of a tile, and the constexpr that says whether it is transposed,
    # or in how many parts its columns are stored
    tiles: dict[str, tuple[str | int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """The state that all kernels of one op share."""

    op: ir.Op
    dims: dict[str, tuple[Poly, ...]]  # of every tensor and line
    dtypes: dict[str, str]
    stored: frozenset[str]  # outputs and scratch
    facts: Facts
    wide: bool  # whether the call may compute in f64
    user_names: frozenset[str]  # names that the spec chose: lifted reducers are not among them
    outside: frozenset[str]  # what the module means by these, no variable of ours may hide
    mark: str  # behind names that we pick because they are free
    # what stands above the statements that compute a value, by its name
    comments: Mapping[str, tuple[str, ...]]
    absent: frozenset[str] = frozenset()  # tensors that may be None where this is printed
    left_out: frozenset[str] = frozenset()  # those of them that kernels store where they are there
    flat: bool = False  # whether all tensors have their batch dims as one where this is printed

    @cached_property
    def scope(self) -> frozenset[str]:
        """The names of the op, without its indices."""
        return names_of(self.op)

    @property
    def measured(self) -> ir.Op:
        """The op with the tensors in whose shapes sizes are found."""
        params = tuple(p for p in self.op.params if p.name not in self.absent)
        outputs = tuple(o for o in self.op.outputs if o.name not in self.absent)
        return replace(self.op, params=params, outputs=outputs)


class Parameters:
    """Lines and parameters grow as values are printed."""

    def __init__(self, context: Context, kernel: KernelPlan):
        self.context, self.kernel, self.op = context, kernel, context.op
        self.args = Args()
        self.lines: list[str] = []
        self.scalars: list[str] = []  # lines that hold for the whole kernel, in front of any loop
        self.prologue: list[str] = []
        self.spoken = spoken_names(context, kernel)
        taken = self.spoken | context.outside | words_of(template_of(kernel))
        self.names = Names(taken, context.mark)
        self.by_bits = by_bits(self.op, kernel.nests)
        self.told = {c.name for c in self.op.constants}  # sizes known as the kernel is compiled
        self.given: dict[tuple[str, str], str] = {}  # (kind, what the launch passes) -> parameter
        self.index: dict[str, str] = {}  # index -> variable
        self.assigned: set[str] = set()  # variables that have been given a value in this scope

    # ---- lines
    def line(self, text: str) -> None:
        self.lines.append(text)

    def assign(self, wish: str, text: str) -> str:
        """Prints `wish = text` on a line of its own. Returns the name, which may differ from the wish."""
        name = self.variable(wish)
        self.line(f"{name} = {text}")
        return name

    def variable(self, wish: str) -> str:
        """The nearest name that holds nothing yet."""
        name = self.fresh(wish) if wish in self.assigned or wish in self.index.values() else wish
        self.names.taken.add(name)
        self.assigned.add(name)
        return name

    def joined_name(self, word: str, name: str) -> str:
        """The variable `word_name`, or the nearest free name if the spec has one of that name.

        The marks of `collisions.py` cannot tell the two apart.
        """
        wish = f"{word}_{name}"
        return self.fresh(wish) if wish in self.spoken else wish

    @contextmanager
    def apart(self) -> Iterator[list[str]]:
        """The lines printed within, for another slot than those around."""
        lines, self.lines = self.lines, []
        yield self.lines
        self.lines = lines

    def taken(self) -> list[str]:
        """The lines so far, for a slot of their own."""
        lines, self.lines = self.lines, []
        return lines

    def fresh(self, wish: str) -> str:
        """The nearest name that is free, taken from now on."""
        return self.names.free(wish)

    # ---- arguments
    def pointer(self, tensor: str) -> str:
        return self.parameter(self.args.pointers, f"{tensor}_ptr", tensor)

    def descriptor(self, wish: str) -> str:
        """A parameter that lines of the host make a descriptor."""
        name = self.fresh(wish)
        self.args.pointers[name] = name
        return name

    def stride(self, tensor: str, run: str, dim: int) -> str:
        return self.parameter(self.args.strides, f"{tensor}_{run}", f"{tensor}.stride({dim})")

    def parameter(self, among: dict[str, str], wish: str, passed: str) -> str:
        """The parameter that what the launch passes arrives in; a new one steps aside for names of the spec."""
        key = str(id(among)), passed
        if key not in self.given:
            self.given[key] = self.fresh(wish)
            among[self.given[key]] = passed
        return self.given[key]

    def symbol(self, name: str) -> str:
        if name == ir.BATCH:
            known = self.args.constants if name in self.told else self.args.sizes
            return self.parameter(known, "batch", "batch")
        if name in self.told:
            self.args.constants.setdefault(name, name)
            return name
        self.args.sizes.setdefault(name, name)
        return name

    def count(self, p: Poly, wish: str) -> str:
        return self.parameter(self.args.sizes, wish, launch_text(p))

    def scalar(self, name: str, dtype: str) -> str:
        for c in self.op.constants:
            if c.name == name:
                self.args.constants.setdefault(name, name)
                return name
        if name not in self.args.scalars:
            self.args.scalars[name] = name
            flag = self.fresh(f"{name.upper()}_IS_TENSOR")
            self.args.constants[flag] = f"isinstance({name}, torch.Tensor)"
            # A bool arrives as a whole number: int1 is no type that one can be made of.
            kind, test = ("tl.int32", " != 0") if dtype == "bool" else (self.dtype(dtype), "")
            self.scalars.append(f"{name} = lib.scalar({name}, {flag}, {kind}){test}")
        return name

    def half(self, stored: str) -> str:
        """Whether a dtype is a half type in the call: a constexpr."""
        if stored in HALVES:
            return "HALF=True"
        operand = self.op.typed(stored).name
        return self.parameter(self.args.constants, "HALF", f"{operand}.element_size() == 2")

    # ---- dtypes
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
            if tensor in self.context.left_out:  # None in some calls
                continue
            if self.context.dtypes.get(tensor) == dtype:  # parts of folds have none
                return f"{pointer}.dtype.element_ty"
        if (only := next((p.dtypes for p in self.op.typarams if p.name == dtype), ())) == ("bool",):
            return TRITON_DTYPES[only[0]]  # torch and Triton call it by other names
        self.args.constants.setdefault(dtype, f"lib.triton_dtype({self.op.typed(dtype).name})")
        return dtype

    def converted(self, text: tuple[str, int], value: ir.Expr, dtype: str) -> str:
        """The text of a value, in another dtype."""
        if key_of(value) in self.by_bits:
            return f"lib.widened({text[0]}, {self.dtype(dtype)})"
        ways = self.between(value.dtype, dtype)
        if len(ways) > 1:
            return f"lib.cast({text[0]}, {self.dtype(dtype)})"
        return "".join((wrap(text, ATOM), *ways, f".to({self.dtype(dtype)})"))

    def between(self, own: str, dtype: str) -> set[str]:
        """The steps that casts take first: one for all calls, or several. See `lib.cast`."""
        wide = ("f32", "f64") if self.context.wide else ("f32",)
        given, wanted = (wide if d == "compute" else ir.dtypes_of(d, self.op) for d in (own, dtype))
        return {_between(a, b) for a in given for b in wanted}

    def lowest(self, dtype: str, highest: bool = False) -> str:
        """The end of an int type, as a constexpr."""
        end = "max" if highest else "min"
        if dtype in ir.INTS:
            signed = dtype[0] != "u"
            beyond = 2 ** (int(dtype[1:]) - signed)
            return str(beyond - 1 if highest else -beyond * signed)
        operand = self.op.typed(dtype).name
        name = "HIGHEST" if highest else "LOWEST"
        return self.parameter(self.args.constants, name, f"torch.iinfo({operand}.dtype).{end}")


def _between(own: str, dtype: str) -> str:
    if {own, dtype} & set(NARROW_FLOATS) and own != dtype and not {own, dtype} & _MET_BY_F8:
        return ".to(tl.float32)"
    if dtype == "u8" and DTYPES[own].kind == "float":
        return ".to(tl.int32)"
    return ""


def spoken_names(context: Context, kernel: KernelPlan) -> set[str]:
    """Names that the spec gave: no variable of ours takes them."""
    spec = {p.name for p in context.op.params} | {o.name for o in context.op.outputs}
    spec |= {n.name for n in kernel.nests} | set(context.dims)
    spec |= {d.name for d in context.op.defines}
    spec |= set().union(*(symbols(p) for d in context.dims.values() for p in d))
    binders = (b for n in kernel.nests for b in n.ranges)
    return spec | {b.index for b in binders if b.index != ir.BATCH}

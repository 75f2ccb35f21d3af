"""Prints the values of one kernel as Triton lines: expressions, named values and stores.

Input: IR expressions. Output: lines appended to `KernelWriter.lines`, and `Args`: the kernel's parameters with what the
launch passes. `parameters.py` makes parameters, `addressing.py` addresses. A skeleton decides what a fold or a loop looks
like.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace

from tritongen.emit.addressing import Addressing
from tritongen.emit.parameters import Context
from tritongen.emit.text import exact_in_f32, literal, wrap
from tritongen.emit.view import Lines
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import (
    Poly,
    denominator,
    index,
    is_fractional,
    is_size,
    numerator,
    substitute,
    symbols,
)
from tritongen.ir.free import free_indices, reads, with_coordinates
from tritongen.ir.functions import (
    ATOM,
    FUNCTIONS,
    TERM,
    UNARY,
    fill,
    power_text,
    text_for,
    with_flag,
)
from tritongen.ir.integers import is_plain
from tritongen.schedule.plan import KernelPlan

__all__ = ["KernelWriter", "Context"]
NARROW = ("i8", "i16", "i32", "u8")  # narrower than a size, which a kernel may hold in 64 bits


class KernelWriter(Addressing):
    """Prints one kernel's values."""

    def __init__(self, context: Context, kernel: KernelPlan):
        super().__init__(context, kernel)
        self.commented: set[tuple[str, ...]] = {()}  # what stands above some statement by now
        self.computed = ""  # the value whose text is being made
        self.extremes: dict[str, str] = {}  # the extreme that the fold of a place holds
        self.tested = ""  # the tensor that is there where the lines run that are printed now
        self.read_here = {r.tensor for n in kernel.nests for r in reads(n.body)}

    def scope(self) -> KernelWriter:
        """A writer that prints on the same lines. What it decodes and loads is not known outside, nor are its axes and masks."""
        own = copy(self)
        own.index, own.cache, own.axis_of = dict(self.index), dict(self.cache), dict(self.axis_of)
        own.axis_var, own.axis_mask = dict(self.axis_var), dict(self.axis_mask)
        return own

    # ---- expressions
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
            case ir.Call("held", (ir.Read(place),)):
                return self.extremes[place], ATOM
            case ir.Call():
                return self._call(e)
        raise TypeError(f"a reducer stands at the root of a nest: {e}")

    def _index_value(self, p: Poly, dtype: str) -> tuple[str, int]:
        if is_fractional(p):  # of a value that is read at `p / 2`: where it is, 2 divides p
            by = wrap(self.size(denominator(p)), ATOM)
            out = f"{wrap(self._index_value(numerator(p), 'i64'), TERM)} // {by}", TERM
            plain = is_size(p) or dtype == "i64"
            return out if plain else (f"({out[0]}).to({self.dtype(dtype)})", ATOM)
        if is_size(p) and self._is_large(p):
            return self.count(p, "count"), ATOM  # in a kernel, sizes have 32 bits
        out = self.size(p, value=True)
        if not is_size(p) and not self.is_wide(p):
            return f"tl.cast({out[0]}, {self.dtype(dtype)})", ATOM
        if is_size(p) or dtype == "i64":
            return out
        return f"{wrap(out, ATOM)}.to({self.dtype(dtype)})", ATOM

    def _is_large(self, p: Poly) -> bool:
        """Whether sizes that the call binds are multiplied with each other, or stand beside constants, which may be any number."""
        constants = {c.name for c in self.op.constants}
        powers = ([n for a, n in m if getattr(a, "name", "") not in constants] for m, _ in p.terms)
        products = any(sum(own) > 1 for own in powers)
        return products or bool(symbols(p) & constants and symbols(p) - constants)

    def _cast(self, arg: ir.Expr, dtype: str) -> tuple[str, int]:
        if isinstance(arg, ir.Read) and arg.tensor not in self.values:
            return self.read(arg, cast=dtype), ATOM
        if isinstance(arg, (ir.Const, ir.IndexValue, ir.ScalarRef)) and not self.strong(arg):
            bare = dtype == "compute" and arg.dtype != "bool"
            return self.expr(arg) if bare else (self.full(arg, dtype), ATOM)
        inner = self.expr(arg)
        if arg.dtype == dtype and not isinstance(arg, ir.Read):
            return inner
        if isinstance(arg, ir.Cast) and self.dtype(arg.dtype) == self.dtype(dtype):
            return inner
        return self.converted(inner, arg, dtype), ATOM

    def may_be_narrow(self, dtype: str) -> bool:
        return not set(NARROW).isdisjoint(ir.dtypes_of(dtype, self.op))

    def full(self, e: ir.Expr, dtype: str) -> str:
        """A number or size as a tensor of a dtype. One that the call gives may be too large for it: then it wraps.

        `tl.full` fails for f8, and for bf16 in the interpreter. Numbers in half and f8 types are converted from f32 or f64 instead.
        """
        if isinstance(e, ir.Const) and e.value and ir.may_be_half(dtype, self.op):
            wide = ir.Const(e.value, "f64" if ir.may_be_f64(dtype, self.op) else "f32")
            return self.converted((self.full(wide, wide.dtype), ATOM), wide, dtype)
        text, own = self.expr(e)[0], self.dtype(dtype)
        wraps = not isinstance(e, ir.Const) and self.may_be_narrow(dtype)
        return f"tl.cast({text}, {own})" if wraps else f"tl.full((), {text}, {own})"

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
        match e:
            case ir.Call("shift_left" | "shift_right", (base, ir.IndexValue(Poly(())))):
                return self.expr(base)
        row = FUNCTIONS[e.fn]
        args = e.args[1:] if e.fn == "where" else e.args
        kind = ir.kind_of(args[0].dtype, self.op)
        text, kept = text_for(row, kind), e.args
        if row.triton_plain and kind == "int" and is_plain(self._in_ranges(e)):
            text = row.triton_plain
        match e:
            case ir.Call("pow_int", (base, ir.Const(exponent))):
                text, kept = power_text(int(exponent)), (base,)
        if row.half and e.stored:
            text = with_flag(text, self.half(e.stored))
        is_call = text.precedence == ATOM and "(" in text.template
        # libdevice, and so ours that call it, takes its arguments in one dtype: beside an f64 a bare number is an f32.
        apart = self.context.wide and kind == "float" and not text.template.startswith("tl.")
        weak = not any(self.strong(a) for a in args)
        first = len(kept) - len(args)  # behind the condition of a `where`
        shown = []
        for k, arg in enumerate(kept):
            out = self.expr(arg)
            lossy = isinstance(arg, ir.Const) and not exact_in_f32(arg)
            # A function takes a bare number for i32, in which narrower ints would go on.
            narrow = kind == "int" and (k == 0 or arg.dtype not in ("i32", "i64"))
            # A size has 32 bits, and would take what it meets along: i8 * size wraps.
            size = isinstance(arg, ir.IndexValue) and arg.poly.constant is None
            size = size and self.may_be_narrow(arg.dtype)
            typed = size or is_call and (lossy or narrow or row.arity == 1 or apart)
            if not self.strong(arg) and (typed or (weak and k == first)):
                out = self.full(arg, arg.dtype), ATOM
            if "abc"[k] in text.repeats and not out[0].isidentifier() and out[1] != UNARY:
                self.say(self.computed)
                out = self.assign(self.fresh("t"), out[0]), ATOM
            shown.append(out)
        return fill(text, shown)

    def _in_ranges(self, e: ir.Call) -> ir.Call:
        """A call whose indices say their ranges: one below 8 is its own remainder by 8."""
        known = {i: self.ranges[i] for i in free_indices(e) & self.ranges.keys()}
        rests = {i: index(i) % hi for i, (lo, hi) in known.items() if hi.constant and not lo.terms}
        args = (with_coordinates(a, lambda p: substitute(p, rests)) for a in e.args)
        return replace(e, args=tuple(args)) if rests else e

    # ---- the lines of the op above what computes them
    def comment(self, name: str) -> tuple[str, ...]:
        """The comment above the statement of a value that is about to be printed. Each comment appears once in a kernel."""
        lines = self.context.comments.get(name, ())
        if lines in self.commented:
            return ()
        self.commented.add(lines)
        return lines

    def say(self, name: str) -> None:
        """The comment of a value, where the next line computes it."""
        self.lines += self.comment(name)

    @contextmanager
    def computing(self, name: str) -> Iterator[None]:
        """Makes the text of a value: the first line that computes some of it stands below its comment."""
        outer, self.computed = self.computed, name
        yield
        self.computed = outer

    # ---- values
    def value(self, nest: ir.Nest) -> str:
        """A pointwise nest as a named line. A value that is written to an output is rounded when it is stored."""
        body, rounded = nest.body, nest.name in self.read_here
        match body:
            case ir.Cast(arg, dtype) if dtype == nest.dtype != "compute" and not rounded:
                if ir.kind_of(arg.dtype, self.op) == ir.kind_of(dtype, self.op) == "float":
                    if self.between(arg.dtype, dtype) == {""}:
                        body = arg  # the conversion of tl.store is the right one
        with self.computing(nest.name):
            out = self.expr(body)
        passed_on = nest.name in self.kernel.stores and not rounded
        named = passed_on or nest.name not in self.context.user_names or out[0] == nest.name
        if not (out[0].isidentifier() and named):
            self.say(nest.name)
            out = self.assign(nest.name, out[0]), ATOM
        self.values[nest.name] = out
        return out[0]

    def store(self, nest: ir.Nest, value: str, checks: Sequence[str] = ()) -> None:
        lines, where, mask = self.stored_at(nest, checks)
        stored = f"tl.store({where}, {value}{f', mask={mask}' if mask else ''})"
        self.lines += lines
        if nest.name in self.context.left_out - {self.tested}:
            self.line(f"if {self.pointer(nest.name)} is not None:")
            stored = f"    {stored}"
        self.line(stored)

    def stored_at(self, nest: ir.Nest, checks: Sequence[str] = ()) -> tuple[Lines, str, str]:
        """The lines of an output's address, the address, and the mask."""
        with self.apart() as lines:
            where, _, _ = self.address(nest.name, nest.coords)
        axes = self.axes_in(tuple(c for c in nest.coords if c.terms))
        for axis in self.kernel.axes:  # an axis of one element: its first lane writes
            if not axis.digits and self.axis_mask.get(axis.name):
                where, axes = f"{where} + {self.axis_var[axis.name]}", axes | {axis.name}
        return tuple(lines), where, self.mask(axes, list(checks))

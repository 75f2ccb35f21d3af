"""Kernels as text, and the kernels of a text: `tritongen show SPEC --stage kernel`.

    kernel softmax_tiles<T: float>(x: T[M, D])
      tile m < M by ROWS
      whole d < D by BLOCK

      t[m] = max[d](x[m, d])
      e[m, d] = exp(x[m, d] - t[m])
      n[m] = sum[d](e[m, d])
      y[m, d] = T(e[m, d] / n[m])  # for stores of T
      store y[m, d]

Input: a kernel, the op that it is part of, what the plan keeps in scratch. Output: the text. `parse_kernels`
gives the same kernels back.

Expressions are those of the language, with the types of the IR: a value that is stored in a type of less precision is
widened where it is computed with, and every other cast is written (`compute` is f32, or f64 where an operand has it). A bound
of a binder is a guard, and so is what stands behind the first argument of `given(x, a == b)`. A call that would be read as
another one is written by the name of its row, as `add(i, 1)`, which is not the number `i + 1` of an index.
Behind `#`: the maximum that a fold moves with; the programs that store, where they share a value; the type of the stores
that a value reaches (`Call.stored`). Not here: what a kernel means (`kernel/nodes.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import nan
from typing import Any

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Fetch, Poly, extreme, index, is_fractional, poly, size
from tritongen.ir.forms import reaching
from tritongen.ir.functions import BUILTINS, FUNCTIONS, OPERATORS
from tritongen.ir.print_poly import (
    NotWritable,
    bound_ast,
    bound_of,
    condition_ast,
    number,
    poly_ast,
    read_ast,
)
from tritongen.ir.reads import reads_of
from tritongen.ir.reducers import REDUCERS
from tritongen.kernel.nodes import PARTS, Fold, Kernel, Let, Loop, Stmt, Store, Walk, statements
from tritongen.syntax import ast
from tritongen.syntax.parse import parse_expression
from tritongen.syntax.unparse import unparse

# Whether a comparison is an upper bound of what stands to its left, and whether that is strict.
COMPARED = {">=": (False, False), ">": (False, True), "<=": (True, False), "<": (True, True)}
BOUNDS = {bound: op for op, bound in COMPARED.items()}
OF_PLANS = ("held", "seen", "scaled")  # calls that the language does not have
DEFAULTS = {"index": "i64", "held": "compute", "number": "i64"}  # types that need no word
FAMILIES = {"float": ir.FLOATS, "int": ir.INTS, "bool": ("bool",)}


class BadKernelText(ValueError):
    """The text of a kernel is none; the message says which line and why."""


@dataclass(frozen=True, slots=True)
class Names:
    """What the names of one kernel are: the rest are sizes."""

    typarams: tuple[ir.TypeParam, ...]
    extents: dict[str, Poly]  # of the indices
    tensors: dict[str, str]  # operands, and the values so far, with their dtypes
    scalars: dict[str, str]

    def is_narrow(self, dtype: str) -> bool:
        """Whether a value of the dtype is widened where it is computed with."""
        return dtype != "compute" and self.is_float(dtype)

    def is_float(self, dtype: str) -> bool:
        kinds = {p.name: p.kind for p in self.typarams}
        return kinds.get(dtype, "float" if dtype in (*ir.FLOATS, "compute") else "") == "float"

    def reaching(self, e: ir.Expr, dtype: str) -> ir.Expr:
        return reaching(e, dtype, self.typarams)

    def is_number(self, e: ast.Expr) -> bool:
        """Whether it is read as one number made of indices and sizes."""
        return self._is_sum(e) and self._has_name(e)

    def _is_sum(self, e: ast.Expr) -> bool:
        match e:
            case ast.Name(name):
                return name not in self.tensors and name not in self.scalars
            case ast.Size() | ast.Number(int()):
                return True
            case ast.Unary("-", x):
                return self._is_sum(x)
            case ast.Binary("+" | "-" | "*" | "/" | "//" | "%", a, b):
                return self._is_sum(a) and self._is_sum(b)
            case ast.Call("min" | "max", args):
                return len(args) > 1 and all(map(self._is_sum, args))
        return False

    def _has_name(self, e: ast.Expr) -> bool:
        match e:
            case ast.Name() | ast.Size():
                return True
            case ast.Unary(_, x):
                return self._has_name(x)
            case ast.Binary(_, a, b):
                return self._has_name(a) or self._has_name(b)
            case ast.Call(_, args):
                return any(map(self._has_name, args))
        return False


# ---- a kernel to its text -----------------------------------------------------------------------
def print_kernel(kernel: Kernel, op: ir.Op, scratch: Sequence[ir.Nest] = ()) -> str:
    """The text. `scratch`: what other kernels of the plan leave.

    Raises:
        NotWritable: the notation has no text for something in the kernel.
    """
    given: tuple[ir.Tensor | ir.Nest, ...] = (*op.tensors, *op.outputs, *scratch)
    dims = _parts(kernel) | {t.name: t.dims for t in given}
    names, outer = _names(kernel, op.typarams, {t.name: t.dtype for t in given})
    used = {*names.tensors.values(), *(e.dtype for s in statements(kernel.body) for e in _exprs(s))}
    typarams = [_typaram(p) for p in op.typarams if p.name in used]
    inside = [f"{n}: {d}[{', '.join(map(_size, dims[n]))}]" for n, d in outer.items()]
    inside += [f"{n}: {d}" for n, d in names.scalars.items()]
    head = f"kernel {kernel.name}" + (f"<{', '.join(typarams)}>" if typarams else "")
    walked = (list(group) for _, group in groupby(kernel.walks, key=lambda w: w.how))
    lines = [f"  {group[0].how} {', '.join(map(_walk, group))}" for group in walked]
    body = [f"  {line}" for line in _Printer(names).body(kernel.body)]
    return "\n".join([f"{head}({', '.join(inside)})", *lines, "", *body])


def _names(
    kernel: Kernel, typarams: tuple[ir.TypeParam, ...], dtypes: dict[str, str]
) -> tuple[Names, dict[str, str]]:
    """The names; and of these the tensors that the kernel does not compute."""
    own = {s.name: s.dtype for s in statements(kernel.body) if isinstance(s, (Let, Fold))}
    exprs = [e for s in statements(kernel.body) for e in _exprs(s)]
    dtypes = dtypes | {e.tensor: e.dtype for e in exprs if isinstance(e, ir.Read)}
    read = dict.fromkeys(tensor for e in exprs for tensor, _, _ in reads_of(e))
    outer = {name: dtypes[name] for name in read if name not in own}
    scalars = {e.name: e.dtype for e in exprs if isinstance(e, ir.ScalarRef)}
    extents = {w.index: w.extent for w in kernel.walks}
    return Names(typarams, extents, outer | own, scalars), outer


def _parts(kernel: Kernel) -> dict[str, tuple[Poly, ...]]:
    """The dims of what is read at indices alone, as states that parts of a loop leave."""
    extents = {index(w.index): w.extent for w in kernel.walks}
    reads = (e for s in statements(kernel.body) for e in _exprs(s) if isinstance(e, ir.Read))
    return {e.tensor: tuple(extents.get(c, Poly()) for c in e.coords) for e in reads}


def _exprs(s: Stmt) -> Iterator[ir.Expr]:
    match s:
        case Let(_, value) | Fold(_, value):
            yield from ir.walk(value)
        case Loop():  # as a reducer has them
            yield ir.Reduce("any", (), s.within, ir.Const(True, "bool"), "bool")
        case Store(coords=coords) if s.adds:
            yield ir.Reduce("any", (), s.within, ir.Const(True, "bool"), "bool")
            yield from (ir.IndexValue(c, "i64") for c in coords)


def _typaram(p: ir.TypeParam) -> str:
    whole = p.dtypes == FAMILIES[p.kind]
    return f"{p.name}: {p.kind if whole else ' | '.join(p.dtypes)}"


def _size(p: Poly) -> str:
    if p == PARTS:
        return "PARTS"
    return ast.DOTS if p == ir.BATCH_SIZE else unparse(poly_ast(p))


def _walk(w: Walk) -> str:
    block = f"{w.block} + {w.rest}" if w.rest else w.block
    return f"{w.index} < {_size(w.extent)}" + (f" by {block}" if block else "")


@dataclass(frozen=True, slots=True)
class _Printer:
    names: Names
    axes: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of the values so far

    def body(self, body: tuple[Stmt, ...]) -> Iterator[str]:
        for s in body:
            match s:
                case Let() | Fold():
                    yield self.value(s)
                case Store():
                    yield self.store(s)
                case Loop():
                    yield self.head(s)
                    yield from (f"  {line}" for line in self.body(s.body))

    def head(self, loop: Loop) -> str:
        within = " and ".join(unparse(self.bound(loop.index, g)) for g in loop.within)
        head = f"loop {loop.index}" + (f" within {within}" if within else "")
        return head + (f" by {loop.part}:" if loop.part else ":")

    def value(self, s: Let | Fold) -> str:
        if isinstance(s.value, ir.Reduce) != isinstance(s, Fold):
            raise NotWritable(f"{s.name} is a reducer and no fold")
        self.axes[s.name] = s.axes
        found = (d for d in ("", *self.halves()) if self.names.reaching(s.value, d) == s.value)
        to = next(found, None)
        if to is None:
            raise NotWritable(f"parts of {s.name} reach stores of several types")
        value, dtype = s.value, ""
        match value:
            case ir.Cast(arg, "compute") if s.dtype == "compute" and self.is_narrow(arg):
                value, dtype = arg, ": compute"
            case _ if s.dtype != value.dtype:
                dtype = f": {s.dtype}"
        where = f"[{', '.join(s.axes)}]" if s.axes else ""
        said = [f"moved by {s.moved_by}"] if isinstance(s, Fold) and s.moved_by else []
        said += [f"for stores of {to}"] if to else []
        remark = f"  # {'; '.join(said)}" if said else ""
        return f"{s.name}{dtype}{where} = {unparse(self.expr(value))}{remark}"

    def halves(self) -> tuple[str, ...]:
        return (*(p.name for p in self.names.typarams), *ir.HALVES)

    def store(self, s: Store) -> str:
        name = s.value or s.tensor
        if self.axes.get(name) != s.axes:
            raise NotWritable(f"{s.tensor} is stored over {s.axes}")
        if s.adds:
            within = " and ".join(unparse(self.condition(g)) for g in s.within)
            return f"add {unparse(read_ast(s.tensor, s.coords, None))} = {s.value} within {within}"
        value = f" = {s.value}" if s.value else ""
        once = f"  # once for {', '.join(s.once)}" if s.once else ""
        return f"store {unparse(read_ast(s.tensor, s.coords, None))}{value}{once}"

    # ---- expressions
    def is_narrow(self, e: ir.Expr) -> bool:
        return self.names.is_narrow(e.dtype)

    def wide(self, e: ir.Expr) -> ast.Expr:
        """A part of another expression, where a narrow value is widened."""
        match e:
            case ir.Cast(arg, "compute") if self.is_narrow(arg):
                return self.expr(arg)
        if self.is_narrow(e):
            raise NotWritable(f"a value of {e.dtype} is computed with as it is")
        return self.expr(e)

    def expr(self, e: ir.Expr) -> ast.Expr:
        match e:
            case ir.Const(bool(value), "bool"):
                return ast.Bool(value)
            case ir.Const(value, "compute"):
                return number(float(value)) if value == value else ast.Call("nan", ())
            case ir.Const(int(value), "i64"):
                return number(value)
            case ir.Const(int(value), dtype):
                return _typed("number", number(value), dtype)
            case ir.ScalarRef(name):
                return ast.Name(name)
            case ir.IndexValue(p, dtype):
                return _typed("index", poly_ast(p), dtype)
            case ir.Read(tensor, coords, fill):
                return read_ast(tensor, coords, fill)
            case ir.Cast(arg, dtype):
                return ast.Call(dtype, (self.wide(arg),))
            case ir.Call("held", (place,), dtype):  # the extreme whose place this is
                return _typed("held", self.expr(place), dtype)
            case ir.Call():
                return self.call(e)
            case ir.Reduce():
                return self.reduce(e)
        raise NotWritable(f"{e} has no text")

    def call(self, e: ir.Call) -> ast.Expr:
        if _result(e.fn, e.args) != e.dtype:
            raise NotWritable(f"{e.fn} gives {e.dtype}")
        context = _context(self.names, [a for a in e.args if not isinstance(a, ir.IndexValue)])
        args = tuple(self.argument(a, context) for a in e.args)
        written = _notation(e.fn, args)
        is_lost = self.names.is_number(written) or _row(written) != e.fn
        match written:
            case ast.Unary("-", ast.Number()):
                is_lost = True
            case ast.Binary("**"):  # a number is of one type there
                is_lost = (e.fn == "pow_int") != (_exponent(written.b) is not None)
        return ast.Call(e.fn, args) if is_lost else written

    def argument(self, e: ir.Expr, context: str) -> ast.Expr:
        if isinstance(e, ir.IndexValue) and e.dtype == context:
            written = poly_ast(e.poly)
            if self.names.is_number(written):
                return written
        return self.wide(e)

    def reduce(self, e: ir.Reduce) -> ast.Expr:
        if e.dtype != ("i64" if e.is_place else e.body.dtype):
            raise NotWritable(f"{e.op} gives {e.dtype}")
        body = self.wide(e.body)
        for b in e.binders:
            if b.lo.terms or b.hi != self.names.extents.get(b.index):
                raise NotWritable(f"{b.index} is folded over another range than it is walked")
        binders = tuple(ast.Binder(b.index) for b in e.binders)
        guards = list(e.guards)
        bound = tuple(_bounded(b, guards) for b in binders)
        again = [g for b in bound for g in _guards_of(self.names, b)]
        if (*again, *guards) == e.guards:
            binders = bound
        else:
            guards = list(e.guards)
        inner = isinstance(e.body, ir.Reduce) and not e.body.binders
        if guards or not binders or inner:
            body = ast.Call("given", (body, *map(self.condition, guards)))
        return ast.Reduce(e.op, binders, body) if binders else body

    def bound(self, name: str, g: ir.Guard) -> ast.Expr:
        """A guard as a bound of the index, if it is one."""
        if g.op == ">=" and (found := bound_of(name, g.poly)):
            end, strict = bound_ast(*found)
            return ast.Compare(BOUNDS[found[0], strict], ast.Name(name), end)
        return self.condition(g)

    def condition(self, g: ir.Guard) -> ast.Expr:
        if is_fractional(g.poly):
            return ast.Compare(g.op, poly_ast(g.poly), number(0))
        return condition_ast(g.poly, g.op)


def _typed(name: str, e: ast.Expr, dtype: str) -> ast.Call:
    """`index(N, compute)`, `index(N, T = f32)`: a value of a type that is not that of most."""
    if dtype == DEFAULTS[name]:
        return ast.Call(name, (e,))
    if dtype == "compute":  # which is no type of the language
        return ast.Call(name, (e, ast.Name(dtype)))
    return ast.Call(name, (e,), (), (ast.TypeKeyword("T", dtype),))


def _type_of(call: ast.Call) -> str:
    if call.types:
        return call.types[0].dtype
    return "compute" if len(call.args) > 1 else DEFAULTS[call.name]


def _bounded(b: ast.Binder, guards: list[ir.Guard]) -> ast.Binder:
    """The binder with its bounds. Removes the guards that are one."""
    for guard in tuple(guards):
        if guard.op != ">=" or (found := bound_of(b.name, guard.poly)) is None:
            continue
        upper, bound = found
        end, strict = bound_ast(upper, bound)
        if upper and b.high is None:
            b = replace(b, high=end, high_strict=strict)
            guards.remove(guard)
        elif not upper and b.low is None:
            b = replace(b, low=end, low_strict=strict)
            guards.remove(guard)
    return b


def _notation(fn: str, args: tuple[ast.Expr, ...]) -> ast.Expr:
    """A call as the language writes it."""
    surface = fn if fn in OF_PLANS else FUNCTIONS[fn].surface or fn
    if surface in ("==", "!=", "<", "<=", ">", ">="):
        return ast.Compare(surface, *args)
    if surface in ("and", "or"):
        return ast.BoolOp(surface, *args)
    if surface == "not":
        return ast.Not(*args)
    if surface[0].isalpha():
        return ast.Call(surface, args)
    return ast.Unary(surface, *args) if len(args) == 1 else ast.Binary(surface, *args)


def _row(e: ast.Expr) -> str:
    """The row of the table that a notation means."""
    match e:
        case ast.Call(name):
            return BUILTINS.get(name, name if name in FUNCTIONS or name in OF_PLANS else "")
        case ast.Binary("**", _, b):
            return "pow_int" if _exponent(b) is not None else "pow"
        case ast.Binary(op) | ast.Compare(op) | ast.BoolOp(op):
            return OPERATORS[op]
        case ast.Not():
            return "not"
        case ast.Unary():
            return "neg"
    return ""


def _exponent(e: ast.Expr) -> int | None:
    match e:
        case ast.Number(int(value)):
            return value
        case ast.Unary("-", ast.Number(int(value))):
            return -value
    return None


def _result(fn: str, args: tuple[ir.Expr, ...]) -> str:
    """The dtype of a call."""
    if fn not in OF_PLANS and FUNCTIONS[fn].result == "bool":
        return "bool"
    return args[0 if fn == "pow_int" else -1].dtype


def _context(names: Names, args: Sequence[ir.Expr]) -> str:
    """The dtype of numbers made of indices and sizes, beside these arguments of a call."""
    return "compute" if any(names.is_float(a.dtype) for a in args) else "i64"


# ---- a text to its kernels ----------------------------------------------------------------------
def parse_kernels(text: str) -> tuple[Kernel, ...]:
    """The kernels of a text, as `print_kernel` writes them.

    Raises:
        BadKernelText: a line is none of a kernel.
        SpecError: an expression is none.
    """
    found: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("kernel "):
            found.append([])
        if line.strip():
            if not found:
                raise _bad(line, "a text begins with `kernel name(...)`")
            found[-1].append(line)
    return tuple(_Parser(lines).kernel() for lines in found)


HEAD = re.compile(r"kernel (\w+)(?:<(.*?)>)?\((.*)\)")
OPERAND = re.compile(r"(\w+): (\w+)(\[[^\]]*\])?(?:, |$)")
WALKS = re.compile(r"  (program|tile|whole|each|loop) +(\S+ < [^:]*)")
WALK = re.compile(r"(\S+) < (.+?)(?: by (\w+)(?: \+ (\w+))?)?")
LOOP = re.compile(r"loop (\S+)(?: within (.*?))?(?: by (\w+))?:")
STORE = re.compile(r"store (.+?)(?: = (\w+))?(?:  # once for (.*))?")
ADD = re.compile(r"add (.+?) = (\w+) within (.*)()")
VALUE = re.compile(r"(\w+)(?:: (\w+))?(?:\[(.*?)\])? = (.*?)(?:  # (.*))?")
MOVED, FOR = "moved by ", "for stores of "


def _bad(line: str, why: str) -> BadKernelText:
    return BadKernelText(f"`{line.strip()}`: {why}")


def _matched(pattern: re.Pattern[str], line: str, why: str) -> re.Match[str]:
    found = pattern.fullmatch(line)
    if found is None:
        raise _bad(line, why)
    return found


class _Parser:
    def __init__(self, lines: list[str]):
        head = _matched(HEAD, lines[0], "expected `kernel name<T: float>(x: T[N])`")
        self.name = head[1]
        operands = OPERAND.findall(head[3])
        tensors = {name: dtype for name, dtype, dims in operands if dims}
        scalars = {name: dtype for name, dtype, dims in operands if not dims}
        walks: list[Walk] = []
        self.at = 1
        self.names = Names(tuple(_typarams(head[2] or "")), {}, tensors, scalars)
        while self.at < len(lines) and (found := WALKS.fullmatch(lines[self.at])):
            for each in _split(found[2]):
                one = _matched(WALK, each, "expected `i < N by BLOCK`")
                extent = self.names.extents[one[1]] = _extent(self.names, one[2])
                walks.append(Walk(one[1], extent, found[1], one[3] or "", one[4] or ""))
            self.at += 1
        self.walks = tuple(walks)
        self.lines = lines
        self.axes: dict[str, tuple[str, ...]] = {}

    def kernel(self) -> Kernel:
        body = self.body(2)
        if self.at < len(self.lines):
            raise _bad(self.lines[self.at], "it belongs to no loop")
        return Kernel(self.name, self.walks, body)

    def body(self, indent: int) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if len(line) - len(line.lstrip()) != indent:
                break
            self.at += 1
            out.append(self.statement(line.strip(), indent))
        return tuple(out)

    def statement(self, line: str, indent: int) -> Stmt:
        if found := LOOP.fullmatch(line):
            guards = _conditions(self.names, found[2]) if found[2] else ()
            return Loop(found[1], self.body(indent + 2), guards, found[3] or "")
        if line.startswith(("store ", "add ")):
            return self.store(line)
        return self.value(line)

    def store(self, line: str) -> Store:
        adds = line.startswith("add ")
        found = _matched(ADD if adds else STORE, line, "expected `store y[i, j]`")
        place = parse_expression(found[1])
        coords = place.indices if isinstance(place, ast.Read) else ()
        if not isinstance(place, (ast.Read, ast.Name)):
            raise _bad(line, "expected `store y[i, j]`")
        axes = self.axes.get(found[2] or place.name)
        if axes is None:
            raise _bad(line, "it is stored before it is there")
        own = tuple(_poly_of(self.names, c) for c in coords)
        if adds:
            within = _conditions(self.names, found[3])
            return Store(place.name, own, axes, (), found[2], adds, within)
        once = tuple(found[3].split(", ")) if found[3] else ()
        return Store(place.name, own, axes, once, found[2] or "")

    def value(self, line: str) -> Let | Fold:
        found = _matched(VALUE, line, "expected `y[i] = ...`")
        name, dtype, where, text, remark = found.groups()
        axes = tuple(where.split(", ")) if where else ()
        value = _Values(self.names).expr(parse_expression(text))
        if dtype == "compute" and self.names.is_narrow(value.dtype):
            value = ir.Cast(value, "compute")
        said = (remark or "").split("; ")
        to = next((s.removeprefix(FOR) for s in said if s.startswith(FOR)), "")
        moved = next((s.removeprefix(MOVED) for s in said if s.startswith(MOVED)), "")
        value = self.names.reaching(value, to)
        dtype = dtype or value.dtype
        self.names.tensors[name] = dtype
        self.axes[name] = axes
        if isinstance(value, ir.Reduce):
            return Fold(name, value, axes, dtype, moved)
        return Let(name, value, axes, dtype)


def _split(text: str) -> list[str]:
    """`i < N by A, j < min(M, N)` at its outer commas."""
    out, depth = [""], 0
    for c in text:
        depth += (c in "([") - (c in ")]")
        if c == "," and not depth:
            out.append("")
        else:
            out[-1] += c
    return [part.strip() for part in out]


def _typarams(text: str) -> Iterator[ir.TypeParam]:
    for each in text.split(", ") if text else ():
        name, _, said = each.partition(": ")
        dtypes = FAMILIES.get(said) or tuple(said.split(" | "))
        kind = next(kind for kind, members in FAMILIES.items() if set(dtypes) <= set(members))
        yield ir.TypeParam(name, kind, dtypes)


def _extent(names: Names, text: str) -> Poly:
    if text == "PARTS":
        return PARTS
    return ir.BATCH_SIZE if text == ast.DOTS else _poly_of(names, parse_expression(text))


def _poly_of(names: Names, e: ast.Index) -> Poly:
    """A size or a coordinate."""

    def part(e: ast.Index) -> Poly:
        return _poly_of(names, e)

    match e:
        case ast.Dots():
            return index(ir.BATCH)
        case ast.Number(int(value)):
            return poly(value)
        case ast.Name(name) if name in names.tensors:
            return poly(Fetch(name, (), None))
        case ast.Name(name) | ast.Size(name):
            return index(name) if name in names.extents else size(name)
        case ast.Unary("-", x):
            return -part(x)
        case ast.Binary(op, a, b) if op in ARITHMETIC:
            return ARITHMETIC[op](part(a), part(b))
        case ast.Call("min" | "max" as op, args):
            return extreme(op, map(part, args))
        case ast.Read(tensor, coords, fill):
            given = None if fill is None else int(fill.value)
            return poly(Fetch(tensor, tuple(map(part, coords)), given))
    raise BadKernelText(f"`{unparse(e)}` is no index and no size")


ARITHMETIC: dict[str, Callable[[Poly, Poly], Poly]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}


def _guards_of(names: Names, b: ast.Binder) -> Iterator[ir.Guard]:
    """The bounds of a binder, the lower one first."""
    own = index(b.name)
    if b.low is not None:
        yield ir.Guard(own - _poly_of(names, b.low) - int(b.low_strict), ">=")
    if b.high is not None:
        yield ir.Guard(_poly_of(names, b.high) - own - int(b.high_strict), ">=")


def _guard(names: Names, e: ast.Expr) -> ir.Guard:
    match e:
        case ast.Compare("==", a, b):
            return ir.Guard(_poly_of(names, a) - _poly_of(names, b), "==")
        case ast.Compare(op, a, b) if op in COMPARED:
            upper, strict = COMPARED[op]
            p = _poly_of(names, a) - _poly_of(names, b)
            return ir.Guard((-p if upper else p) - int(strict), ">=")
    raise BadKernelText(f"`{unparse(e)}` is no condition on indices")


def _conditions(names: Names, text: str) -> tuple[ir.Guard, ...]:
    """`a <= b and c == d`."""

    def flat(e: ast.Expr) -> Iterator[ast.Expr]:
        match e:
            case ast.BoolOp("and", a, b):
                yield from flat(a)
                yield from flat(b)
            case _:
                yield e

    return tuple(_guard(names, e) for e in flat(parse_expression(text)))


@dataclass(frozen=True, slots=True)
class _Values:
    """Expressions of the syntax tree to those of the IR."""

    names: Names

    def wide(self, e: ast.Expr) -> ir.Expr:
        value = self.expr(e)
        return ir.Cast(value, "compute") if self.names.is_narrow(value.dtype) else value

    def expr(self, e: ast.Expr) -> ir.Expr:
        match e:
            case ast.Bool(value):
                return ir.Const(value, "bool")
            case ast.Number(value):
                return _const(value)
            case ast.Unary("-", ast.Number(value)):
                return _const(-value)
            case ast.Name(name) if name in self.names.scalars:
                return ir.ScalarRef(name, self.names.scalars[name])
            case ast.Name(name) if name in self.names.tensors:
                return ir.Read(name, (), None, self.names.tensors[name])
            case ast.Read(tensor, coords, fill):
                own = tuple(_poly_of(self.names, c) for c in coords)
                return ir.Read(tensor, own, fill.value if fill else None, self.dtype(tensor))
            case ast.Call("nan", ()):
                return ir.Const(nan, "compute")
            case ast.Call("number", (x, *_)):
                return replace(self.expr(x), dtype=_type_of(e))
            case ast.Call("index", (p, *_)):
                return ir.IndexValue(_poly_of(self.names, p), _type_of(e))
            case ast.Call("given", (x, *conditions)):
                guards = tuple(_guard(self.names, c) for c in conditions)
                body = self.wide(x)
                return ir.Reduce("sum", (), guards, body, body.dtype)
            case ast.Call("held", (place, *_)):
                return ir.Call("held", (self.expr(place),), _type_of(e))
            case ast.Call(dtype, (x,)) if not _row(e):
                return ir.Cast(self.wide(x), dtype)
            case ast.Reduce():
                return self.reduce(e)
        if self.names.is_number(e):
            return ir.IndexValue(_poly_of(self.names, e), "i64")
        return self.call(e)

    def dtype(self, tensor: str) -> str:
        if tensor not in self.names.tensors:
            raise BadKernelText(f"`{tensor}` is read before it is there")
        return self.names.tensors[tensor]

    def call(self, e: ast.Expr) -> ir.Call:
        fn = _row(e)
        if not fn:
            raise BadKernelText(f"`{unparse(e)}` is no expression of a kernel")
        match e:
            case ast.Call(_, args):
                pass
            case ast.Binary(_, a, b) | ast.Compare(_, a, b) | ast.BoolOp(_, a, b):
                args = (a, b)
            case ast.Unary(_, x) | ast.Not(x):
                args = (x,)
        given = [None if self.names.is_number(a) else self.wide(a) for a in args]
        context = _context(self.names, [v for v in given if v is not None])
        values = tuple(
            ir.IndexValue(_poly_of(self.names, a), context) if v is None else v
            for a, v in zip(args, given, strict=True)
        )
        return ir.Call(fn, values, _result(fn, values))

    def reduce(self, e: ast.Reduce) -> ir.Reduce:
        for b in e.binders:
            if b.name not in self.names.extents:
                raise BadKernelText(f"`{b.name}` is no index that the kernel walks")
        extents = self.names.extents
        binders = tuple(ir.Binder(b.name, Poly(), extents[b.name]) for b in e.binders)
        guards = [g for b in e.binders for g in _guards_of(self.names, b)]
        term = e.body
        if isinstance(term, ast.Call) and term.name == "given":
            guards += [_guard(self.names, c) for c in term.args[1:]]
            term = term.args[0]
        body = self.wide(term)
        dtype = "i64" if REDUCERS[e.op].is_place else body.dtype
        return ir.Reduce(e.op, binders, tuple(guards), body, dtype)


def _const(value: Any) -> ir.Const:
    return ir.Const(value, "i64" if isinstance(value, int) else "compute")

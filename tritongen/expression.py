"""An expression to an op: the signature that a bare line of the language leaves out.

    Draft("y[m, n] = relu(sum[k](a[m, k] * b[k, n]) + bias[n])") and three f16 tensors give

    op expr_y_m_n_relu_sum_k_a_m_k_b_k_n_bias_n<T: float, U: float, V: float>(
        a: T[M, K], b: U[K, N], bias: V[N]) -> y: T[M, N] { ... }

Operands stand in order of appearance, one type parameter each. A size is named after the first index
that subscripts the dim alone. What each argument is (a dtype, or a Python number) is known only at
the call, so one draft becomes several ops. Not here: compiling and caching them (`api.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tritongen.errors import Diagnostic, SpecError
from tritongen.syntax import ast
from tritongen.syntax.names import BUILTINS
from tritongen.syntax.parse import has_assignments, parse_assignments, parse_expression
from tritongen.syntax.unparse import unparse

FLOATS = ("f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2")
FAMILY = {d: "float" for d in FLOATS} | {"bool": "bool"}
NUMBERS = {float: "f32", int: "i64", bool: "bool"}


@dataclass(frozen=True, slots=True)
class Argument:
    """What was passed for one operand: a tensor's dtype, or a number's; rank 0 promotes weakly."""

    dtype: str
    is_tensor: bool
    is_rank0: bool = False


@dataclass(slots=True)
class Use:
    """How the text uses one name that it does not assign."""

    name: str
    start: int
    dims: tuple[ast.Index, ...] | None = None  # of the first read with brackets
    is_static: bool = False  # bare in a coordinate or bound: a compile-time value
    is_integer: bool = False  # anywhere in a coordinate or bound
    is_indexed_line: bool = False  # bare in a line with indices: a scalar


@dataclass(slots=True)
class Draft:
    """The lines of an expression and what they use."""

    text: str
    lines: tuple[ast.Assign, ...] = ()
    uses: tuple[Use, ...] = ()
    sizes: dict[str, str] = field(default_factory=dict)  # index -> size
    borrowed: set[str] = field(
        default_factory=set
    )  # indices sized by a dim they do not stand alone in

    def __post_init__(self) -> None:
        if has_assignments(self.text):
            self.lines = parse_assignments(self.text)
        else:
            value = parse_expression(self.text)
            self.lines = (ast.Assign(_free("y", self.text), None, value, span=value.span),)
        self.uses = _uses(self.lines)
        _refuse_functions(self.lines, self.uses)
        if not any(self.takes_tensor(use) for use in self.uses):
            message = "an expression needs a tensor to run on"
            raise SpecError([Diagnostic("E303", message, self.lines[-1].value.span)])
        dims = [d for use in self.uses for d in use.dims or ()]
        for d in dims:
            if isinstance(d, ast.Name):
                self.sizes.setdefault(d.name, _size_name(d.name, self.sizes))
        for name in self._unsized():  # `y[i] = x[i + 1] else 0` is as long as x
            if any(name in _names(d) for d in dims):
                self.sizes[name] = _size_name(name, self.sizes)
                self.borrowed.add(name)

    @property
    def name(self) -> str:
        words = re.sub(r"[^a-z0-9]+", "_", self.text.lower()).strip("_")[:40].rstrip("_")
        return f"expr_{words}"

    def _unsized(self) -> list[str]:
        indices = self.lines[-1].indices or ()
        return [i.name for i in indices if isinstance(i, ast.Name) and i.name not in self.sizes]

    def op(self, arguments: tuple[Argument, ...], result: str) -> ast.OpDef:
        """The op for these arguments; `result` is the output's dtype, or an operand's name for its."""
        types = self._type_parameters(arguments)
        params = tuple(
            self._param(use, argument, types)
            for use, argument in zip(self.uses, arguments, strict=True)
        )
        typarams = tuple(
            ast.TypeParam(types[use.name], (FAMILY.get(argument.dtype, argument.dtype),))
            for use, argument in zip(self.uses, arguments, strict=True)
            if use.name in types
        )
        last = self.lines[-1]
        output = ast.Operand(last.name, ast.Type(types.get(result, result), self._out_dims(last)))
        return ast.OpDef(self.name, typarams, params, (output,), (), self.lines, ())

    def probe(self, arguments: tuple[Argument, ...]) -> ast.OpDef:
        """An op in which the last line is a temporary, of the type that the expression has."""
        op = self.op(arguments, "f64")
        last, (output,) = op.lines[-1], op.outputs
        copy = _free(f"{last.name}_out", self.text)
        value: ast.Expr = ast.Name(last.name)
        if last.indices is not None:
            plain = (ast.Name(i.name) if isinstance(i, ast.Binder) else i for i in last.indices)
            value = ast.Read(last.name, tuple(plain))
        lines = (*op.lines, replace(last, name=copy, value=value))
        return replace(op, lines=lines, outputs=(replace(output, name=copy),))

    @staticmethod
    def takes_tensor(use: Use) -> bool:
        return not use.is_static and (use.dims is not None or not use.is_indexed_line)

    def _type_parameters(self, arguments: tuple[Argument, ...]) -> dict[str, str]:
        taken = set(self.sizes.values())
        free = (n for n in [*"TUVWXYZABCDEFGHIJKLMNOPQRS"] if n not in taken)
        tensors = zip(self.uses, arguments, strict=True)
        return {u.name: next(free) for u, a in tensors if a.is_tensor and self.takes_tensor(u)}

    def _param(self, use: Use, argument: Argument, types: dict[str, str]) -> ast.Param:
        if use.is_static:
            return ast.ConstParam(use.name, "int")
        if use.name not in types:
            family = FAMILY.get(argument.dtype, "int")
            return ast.Operand(
                use.name, ast.Type({"float": "f32", "int": "i64"}.get(family, "bool"))
            )
        if use.dims is None:
            return ast.Operand(use.name, ast.Type(types[use.name], (ast.Dots(),)))
        taken = {*self.sizes.values(), *types.values()}
        dims: list[ast.Index] = []
        for d in use.dims:
            if isinstance(d, ast.Dots):
                dims.append(d)
            elif sized := [self.sizes[n] for n in _names(d) if n in self.sizes]:
                dims.append(ast.Size(sized[0]))
            else:
                size = _unused(f"{use.name.upper()}{len(dims)}", taken)
                taken.add(size)
                dims.append(ast.Size(size))
        return ast.Operand(use.name, ast.Type(types[use.name], tuple(dims)))

    def _out_dims(self, last: ast.Assign) -> tuple[ast.Index, ...] | None:
        if last.indices is None:
            pointwise = not any(use.is_indexed_line or use.dims is not None for use in self.uses)
            return (ast.Dots(),) if pointwise else None
        return tuple(self._out_dim(i) for i in last.indices)

    def _out_dim(self, entry: ast.Name | ast.Number | ast.Dots | ast.Binder) -> ast.Index:
        match entry:
            case ast.Dots():
                return entry
            case ast.Number():
                return ast.Number(1)
            case ast.Binder(high=high) if high is not None:
                return high if entry.high_strict else ast.Binary("+", high, ast.Number(1))
            case ast.Binder(name=name) | ast.Name(name=name):
                if name in self.sizes:
                    return ast.Size(self.sizes[name])
        message = f"nothing gives the range of `{entry.name}`"
        help = f"give it: `{self.lines[-1].name}[{entry.name} < 8] = ...`, or write an op"
        raise SpecError([Diagnostic("E203", message, entry.span, help=help)])


def text_of(op: ast.OpDef) -> str:
    return unparse(ast.File((op,)))


# ---- what the text uses -------------------------------------------------------------------------
def _uses(lines: tuple[ast.Assign, ...]) -> tuple[Use, ...]:
    found: dict[str, Use] = {}
    assigned: set[str] = set()
    for line in lines:
        bound = _indices(line)
        for node, static in _leaves(line):
            if node.name in assigned or (isinstance(node, ast.Name) and node.name in bound):
                continue
            start = node.span.start if node.span else 0
            use = found.setdefault(node.name, Use(node.name, start))
            use.is_integer |= static
            if isinstance(node, ast.Read):
                use.dims = _better(use.dims, node.indices)
            else:
                use.is_static |= static
                use.is_indexed_line |= bool(bound) or line.indices is not None
        assigned.add(line.name)
    return tuple(sorted(found.values(), key=lambda use: use.start))


def _refuse_functions(lines: tuple[ast.Assign, ...], uses: tuple[Use, ...]) -> None:
    """In `"relu"` and `"relu + x"` the call is missing: no operand is meant, though one may be called so."""
    bare = {use.name for use in uses if use.dims is None} & BUILTINS
    for line in lines:
        for node, _ in _leaves(line):
            if node.name in bare:
                message = f"`{node.name}` is a function; an operand of that name has its indices"
                help = f"call it: `{node.name}(x)`"
                raise SpecError([Diagnostic("E501", message, node.span, help=help)])


def _better(old: tuple[ast.Index, ...] | None, new: tuple[ast.Index, ...]) -> tuple[ast.Index, ...]:
    """Per dim, the first read that subscripts it with an index alone names its size."""
    if old is None or len(old) != len(new):
        return old or new
    plain = (ast.Name, ast.Dots)
    return tuple(a if isinstance(a, plain) else b for a, b in zip(old, new, strict=True))


def _indices(line: ast.Assign) -> set[str]:
    names = {i.name for i in line.indices or () if isinstance(i, (ast.Name, ast.Binder))}
    for node in _walk(line.value):
        if isinstance(node, ast.Reduce):
            names.update(b.name for b in node.binders)
    return names


def _leaves(line: ast.Assign) -> Iterator[tuple[ast.Name | ast.Read, bool]]:
    """The names and reads of a line, and whether each stands in a coordinate or a bound."""
    for entry in line.indices or ():
        if isinstance(entry, ast.Binder):
            yield from _expression_leaves(entry, True)
    yield from _expression_leaves(line.value, False)


def _expression_leaves(node: ast.Node, static: bool) -> Iterator[tuple[ast.Name | ast.Read, bool]]:
    if isinstance(node, (ast.Name, ast.Read)):
        yield node, static
    inside = static or isinstance(node, (ast.Read, ast.Binder))
    for child in _children(node):
        if isinstance(node, ast.Read) and isinstance(child, ast.Name):
            continue  # an index; the checker says so where nothing binds it
        yield from _expression_leaves(child, inside)


def _names(node: ast.Node) -> list[str]:
    return [n.name for n in _walk(node) if isinstance(n, ast.Name)]


def _walk(node: ast.Node) -> Iterator[ast.Node]:
    yield node
    for child in _children(node):
        yield from _walk(child)


def _children(node: ast.Node) -> list[ast.Node]:
    values = (getattr(node, name) for name in node.__dataclass_fields__ if name != "span")
    flat = (v for value in values for v in (value if isinstance(value, tuple) else (value,)))
    return [v for v in flat if isinstance(v, ast.Node)]


# ---- names --------------------------------------------------------------------------------------
def _free(name: str, text: str) -> str:
    return _unused(name, set(re.findall(r"\w+", text)))


def _size_name(index: str, sizes: dict[str, str]) -> str:
    return _unused(index.lstrip("_").upper() or "SIZE", set(sizes.values()))


def _unused(name: str, taken: set[str]) -> str:
    candidate, count = name, 2
    while candidate in taken:
        candidate, count = f"{name}{count}", count + 1
    return candidate

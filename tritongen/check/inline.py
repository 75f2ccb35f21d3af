"""A callee's IR under the caller's names.

Input: a nest of the callee and a `Renaming`: what its tensors, sizes, indices, scalars and dtypes are
in the caller. Output: the nest of the caller. The callee's `...` may stand for several of the
caller's dims: its index is then several indices. Not here: what is bound to what (`calls`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tritongen.ir.algebra import (
    Atom,
    Fetch,
    Idx,
    Poly,
    Sym,
    index,
    poly,
    size,
    substitute_atoms,
)
from tritongen.ir.nodes import (
    Binder,
    Call,
    Cast,
    Const,
    Expr,
    Guard,
    IndexValue,
    Nest,
    Read,
    Reduce,
    ScalarRef,
    rebuild,
)

ZERO, ONE = poly(0), poly(1)
Space = tuple[tuple[str, Poly], ...]


@dataclass(frozen=True, slots=True)
class Renaming:
    """Callee's name -> caller's. `spaces`: the indices and dims that `...`, or a part of it, stands for."""

    tensors: Mapping[str, str]
    stored: Mapping[str, str]  # callee's tensor -> dtype of what the caller has there
    floats: frozenset[str]  # the callee's tensors that hold floats
    own_batch: Mapping[str, tuple[Poly, ...]]  # an argument's dims where the callee has `...`
    sizes: Mapping[str, Poly]
    indices: Mapping[str, str]
    scalars: Mapping[str, Expr]
    dtypes: Mapping[str, str]
    spaces: Mapping[str, Space]  # by the callee's index, and by its size

    def dtype(self, name: str) -> str:
        return self.dtypes.get(name, name)

    def poly(self, p: Poly) -> Poly:
        def change(atom: Atom) -> Poly | None:
            match atom:
                case Sym(name) if name in self.spaces:
                    total = ONE
                    for _, dim in self.spaces[name]:
                        total = total * dim
                    return total
                case Sym(name) if name in self.sizes:
                    return self.sizes[name]
                case Idx(name) if name in self.indices:
                    return index(self.indices[name])
                case Fetch(tensor, coords, fill):
                    return poly(Fetch(self.tensors[tensor], self.coords(tensor, coords), fill))
            return None

        return substitute_atoms(p, change)

    def coords(self, tensor: str, coords: tuple[Poly, ...]) -> tuple[Poly, ...]:
        """A tensor's coordinates; `...` aligned from the right with the dims that it has there."""
        result: list[Poly] = []
        for c in coords:
            space = next((s for name, s in self.spaces.items() if c == index(name)), None)
            if space is None:
                result.append(self.poly(c))
                continue
            own = self.own_batch.get(tensor, tuple(dim for _, dim in space))
            used = space[len(space) - len(own) :]
            result.extend(
                ZERO if dim == ONE else index(name)
                for dim, (name, _) in zip(own, used, strict=True)
            )
        return tuple(result)

    def dims(self, dims: tuple[Poly, ...]) -> tuple[Poly, ...]:
        result: list[Poly] = []
        for d in dims:
            space = next((s for name, s in self.spaces.items() if d == size(name)), None)
            result.extend([self.poly(d)] if space is None else [dim for _, dim in space])
        return tuple(result)

    def binders(self, binders: tuple[Binder, ...]) -> tuple[Binder, ...]:
        result: list[Binder] = []
        for b in binders:
            if b.index in self.spaces:
                space = self.spaces[b.index]
                result.extend(Binder(name, ZERO, dim) for name, dim in space if dim != ONE)
            else:
                name = self.indices.get(b.index, b.index)
                result.append(Binder(name, self.poly(b.lo), self.poly(b.hi)))
        return tuple(result)


def renamed_nest(nest: Nest, to: Renaming) -> Nest:
    """The nest under the caller's names."""
    coords = to.coords("", nest.coords)
    return Nest(
        to.tensors[nest.name],
        to.binders(nest.box),
        coords,
        to.dims(nest.dims),
        renamed(nest.body, to),
        to.dtype(nest.dtype),
    )


def renamed(expr: Expr, to: Renaming) -> Expr:
    return rebuild(expr, lambda node: _change(node, to))


def _change(node: Expr, to: Renaming) -> Expr:
    match node:
        case Read(tensor, coords, fill, dtype):
            stored = to.stored.get(tensor, to.dtype(dtype))
            read = Read(to.tensors[tensor], to.coords(tensor, coords), fill, stored)
            # A narrower or wider integer than declared; a float is always cast by what wraps it.
            return read if tensor in to.floats else _cast(read, to.dtype(dtype))
        case IndexValue(p, dtype):
            return IndexValue(to.poly(p), to.dtype(dtype))
        case ScalarRef(name, dtype) if name in to.scalars:
            return to.scalars[name]
        case Const(value, dtype):
            return Const(value, to.dtype(dtype))
        case Reduce(op, binders, guards, body, dtype):
            return Reduce(
                op,
                to.binders(binders),
                tuple(g for g in (Guard(to.poly(g.poly), g.op) for g in guards) if not _holds(g)),
                body,
                to.dtype(dtype),
            )
        case Call(dtype=dtype):
            return folded(replace(node, dtype=to.dtype(dtype)))
        case Cast(arg, dtype):
            return _cast(arg, to.dtype(dtype))
    return node


def _cast(arg: Expr, dtype: str) -> Expr:
    return arg if arg.dtype == dtype else Cast(arg, dtype)


def _holds(guard: Guard) -> bool:
    value = guard.poly.constant
    return value is not None and (value >= 0 if guard.op == ">=" else value == 0)


def folded(call: Call) -> Expr:
    """A condition whose value the arguments settled."""
    match call:
        case Call("where", (Const(bool(value)), a, b)):
            return a if value else b
        case Call("and", (Const(bool(value)), b)) | Call("and", (b, Const(bool(value)))):
            return b if value else Const(False, "bool")
        case Call("or", (Const(bool(value)), b)) | Call("or", (b, Const(bool(value)))):
            return Const(True, "bool") if value else b
        case Call("not", (Const(bool(value)),)):
            return Const(not value, "bool")
    return call

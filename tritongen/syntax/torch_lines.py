"""Reads a line as Python over tensors, and writes it in index notation.

    y = x.mean(dim=-1)      y[n] = mean[d](x[n, d])
    y = relu(a @ b + c)     y[m, n] = relu(sum[k](a[m, k] * b[k, n]) + c[n])

Input: Python's tree of a line, and the shapes of the names in it. Output: the line of the spec, or `Unread`. A value is its
axes, and a function from coordinates to the text of its element. So a slice, a transposition or a sum only changes
coordinates. `torch_axes` has these changes, and `torch_names` says what a function is in terms of others.
"""

from __future__ import annotations

import ast as python
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tritongen.syntax.names import REDUCERS, SAME
from tritongen.syntax.torch_axes import (
    DOTS,
    ONE,
    Coords,
    Value,
    concatenated,
    counted,
    each,
    element,
    fitted,
    kept,
    moved,
    names_in,
    permuted,
    sliced,
    taken,
    unread,
)
from tritongen.syntax.torch_names import (
    BITS,
    CASTS,
    FORMS,
    KEYWORDS,
    MODULES,
    NUMBERS,
    OF_WHOLE,
    SAME_VALUE,
    TORCH,
    WITHOUT_MEANING,
)
from tritongen.syntax.torch_sums import Sums
from tritongen.syntax.torch_trees import (
    HOLE,
    NONE,
    Node,
    are_plain,
    bound_to,
    digits,
    holes,
    is_constant,
    is_number,
    items_of,
    literal,
    pasted,
    root_of,
)

ALL = python.Slice()


@dataclass(slots=True)
class Reader(Sums):
    """One line."""

    # ---- lines --------------------------------------------------------------------------------------
    def line(self, node: python.stmt) -> str:
        match node:
            case python.Return(Node() as value) if len(self.results) == 1:
                return self.assigned(python.Name(self.results[0]), value)
            case python.Expr(value) if not self.results and self.whole:
                return self.value(value).at(())
            case python.Expr(value) if not self.results:
                return self.assigned(python.Name("y"), value)
            case python.Assign([target], value):
                return self.assigned(target, value)
            case python.AugAssign(target, python.Add() | python.Mult() as op, value):
                over = "sum" if isinstance(op, python.Add) else "prod"
                return self.assigned(target, value, over)
            case python.For(python.Name(index), _, [inner], []):
                self.indices.add(index)
                return self.line(inner)
            case python.If(test, [python.Assign([target], value)], []):
                return self.assigned(target, python.IfExp(test, value, python.Constant(0)))
        unread()

    def assigned(self, target: Node, value: Node, over: str = "") -> str:
        """The line. `over`: the reducer of the indices that its left side lacks."""
        lefts: list[Node] = []
        while isinstance(target, python.Subscript):
            lefts, target = [*items_of(target.slice), *lefts], target.value
        name = target.id if isinstance(target, python.Name) else unread()
        if self.whole:
            plain = all(isinstance(i, (python.Name, python.Slice)) for i in lefts)
            return f"{name} = {self.value(value).at(())}" if plain and not over else unread()
        dims = self.shapes[name].dims if name in self.shapes else ()
        lefts += [ALL] * (len(dims) - len(lefts)) if lefts else []  # `y[n]` is a row of y
        for k, item in enumerate(lefts):
            if isinstance(item, python.BinOp):
                new = self.picked(dims[k] if k < len(dims) else "")
                lefts[k] = python.Name(new)
                value = pasted(value, digits(item, new, self.indices))
        self.bound += [i.id for i in lefts if isinstance(i, python.Name)]
        result = self.value(value, dims if name in self.shapes else None)
        axes = dims if len(dims) >= len(result.axes) else result.axes
        if lefts and len(lefts) != len(axes):
            axes = tuple(i.id.upper() if isinstance(i, python.Name) else ONE for i in lefts)
        shown = [self.left(i, a) for i, a in zip(lefts or [ALL] * len(axes), axes, strict=True)]
        body = result.at(fitted(result.axes, axes, tuple(i.partition(" ")[0] for i in shown)))
        body = self.summed(over, body) if over else body
        return f"{name}[{', '.join(shown)}] = {body}" if shown else f"{name} = {body}"

    def left(self, node: Node, axis: str) -> str:
        match node:
            case python.Name(index) if index not in self.shapes:
                return index
            case python.Slice(None, None, None):
                return "0" if axis == ONE else self.picked(axis, self.bound)
            case python.Constant(0):
                return "0"
            case python.Constant(value) if value is ...:
                return self.picked(DOTS)
            case python.Compare(python.Name(index), [python.Lt()], [end]):
                self.bound.append(index)
                return f"{index} < {self.value(end).at(())}"
        unread()

    # ---- expressions --------------------------------------------------------------------------------
    def value(self, node: Node, kept: Sequence[str] | None = None) -> Value:
        """`kept`: the dims that a sum without `dim` must leave, where the line says so."""
        self.step()
        match node:
            case python.Constant(bool() | int() | float() as value):
                is_bool = isinstance(value, bool)
                return element(repr(value).lower() if is_bool else repr(value), is_bool)
            case python.Name(name):
                return self.name(name)
            case python.Attribute(inner, "T" | "mT"):
                return self.swapped(inner, -2, -1)
            case python.Attribute(python.Name(module), name) if module in MODULES:
                return element(NUMBERS.get(name) or unread())
            case python.Attribute(python.Call() as call, "values" | "indices" as part):
                return self.of_pair(call, part == "indices")
            case python.Subscript(python.Call() as call, python.Constant(0 | 1 as part)):
                return self.of_pair(call, part == 1)
            case python.Subscript(python.Attribute(inner, "shape"), place):
                return self.size(inner, place)
            case python.Subscript(python.Subscript(inner, first), items) if are_plain(first):
                both = python.Tuple([*items_of(first), *items_of(items)])
                return self.value(python.Subscript(inner, both))
            case python.Subscript(inner, items):
                return self.subscript(self.value(inner), items_of(items))
            case python.UnaryOp(op, x):
                inside = self.value(x)
                form = python.unparse(python.UnaryOp(op, HOLE))
                if isinstance(op, python.Invert):
                    form = "not ({})" if inside.is_bool else "bit_not({})"
                return each(form, inside, is_bool=form.startswith("not"))
            case python.BinOp(a, python.MatMult(), b):
                left, right = self.factor(a), self.factor(b)
                return self.product(self.stored(left, right), self.stored(right, left))
            case python.BinOp(a, op, b):
                values = [self.value(a), self.value(b)]
                if type(op) in BITS:
                    form = BITS[type(op)][all(v.is_bool for v in values)]
                    return each(form, *values, is_bool=all(v.is_bool for v in values))
                return each(python.unparse(python.BinOp(HOLE, op, HOLE)), *values)
            case python.BoolOp(op, values):
                word = " and " if isinstance(op, python.And) else " or "
                return each(
                    word.join(["({})"] * len(values)), *map(self.value, values), is_bool=True
                )
            case python.Compare(first, ops, others):
                pairs = zip(ops, [first, *others], others, strict=False)
                forms = [python.unparse(python.Compare(HOLE, [op], [HOLE])) for op in ops]
                values = [self.value(v) for _, a, b in pairs for v in (a, b)]
                return each(" and ".join(forms), *values, is_bool=True)
            case python.IfExp(python.Constant(bool(known)), a, b):
                return self.value(a if known else b)
            case python.IfExp(test, a, b):
                return each("where({}, {}, {})", *map(self.value, (test, a, b)))
            case python.Call():
                return self.call(node, kept)
        unread()

    def name(self, name: str) -> Value:
        if name in self.held:
            return self.held[name]
        shape, is_index = self.shapes.get(name), name in self.bound or name in self.indices
        if shape is None and (name in NUMBERS or name in ("true", "false") or name[0].isupper()):
            return element(NUMBERS.get(name, name), name in ("true", "false"))
        if shape is None and (self.results or is_index):
            return element(name) if not self.whole else unread()
        axes = self.ranks.get(name) or (shape.dims if shape else (DOTS,))
        is_bool = shape is not None and shape.dtype == "bool"
        if not axes or self.whole:
            return Value(axes, lambda _: name, is_bool, name)
        return Value(axes, lambda c: f"{name}[{', '.join(c)}]", is_bool, name)

    def subscript(self, value: Value, items: list[Node], fill: str = "") -> Value:
        """`x[n, 1:]`, `x[:, None]`, `x[idx]`: each axis is kept, moved or left out."""
        self.unless_whole()
        rest = [i for i in items if not is_constant(i, None)]
        if value.leaf and value.axes == (DOTS,):
            value = self.ranked(
                value, [DOTS if is_constant(i, ...) else "IJKLMPQR"[k] for k, i in enumerate(rest)]
            )
        gap = len(value.axes) - sum(not is_constant(i, ...) for i in rest)
        items = items if any(is_constant(i, ...) for i in items) else [*items, python.Constant(...)]
        axes: list[str] = []
        spread: list[int] = []  # the axes that slices leave
        said: set[str] = set()  # the names in the other items
        moves: list[Callable[[Coords], str]] = []  # the coordinates of `value`
        sizes, gathers = iter(value.axes), self.filled and bool(value.leaf)
        for item in items if gap >= 0 else unread():
            first = len(axes)
            if is_constant(item, None):
                axes.append(ONE)
            elif is_constant(item, ...):
                axes += [next(sizes) for _ in range(gap)]
                spread += range(first, first + gap)
                moves += map(kept, range(first, first + gap))
            elif isinstance(item, python.Slice):
                ends = [self.value(e).at(()) if e else "" for e in (item.lower, item.upper)]
                move, axis = sliced(next(sizes), first, ends, literal(item.step))
                moves.append(move)
                axes.append(axis)
                spread.append(first)
            else:
                at = self.value(item)
                gathers |= bool(at.leaf) or isinstance(item, python.Subscript)
                moves.append(taken(at, next(sizes), first))
                axes += at.axes
                said |= set() if at.axes else names_in(at.at(()))

        def read(coords: Coords) -> str:
            if any(names_in(coords[k]) & said for k in spread):
                unread()  # the diagonal is none of the slice
            found = tuple(move(coords) for move in moves)
            is_plain = all(f == DOTS or f.isidentifier() for f in found)
            if fill or (gathers and not is_plain):
                return f"otherwise({value.at(found)}, {fill or 0})"
            return value.at(found)

        return Value(tuple(axes), read, value.is_bool)

    # ---- calls --------------------------------------------------------------------------------------
    def call(self, node: python.Call, kept: Sequence[str] | None) -> Value:
        args, func, root = list(node.args), node.func, root_of(node.func)
        if isinstance(func, python.Subscript) and len(args) == 1:
            op, binders = python.unparse(func.value), items_of(func.slice)
            if op in FORMS and op not in REDUCERS:
                return self.along(op, binders, args[0])
            return self.reducer(op, binders, args[0])
        own = getattr(func, "attr", getattr(func, "id", ""))
        is_torch = isinstance(func, python.Attribute)
        if isinstance(func, python.Attribute) and root not in MODULES:
            args.insert(0, func.value)
        given = {KEYWORDS.get(k.arg or "", k.arg or ""): k.value for k in node.keywords}
        given = {k: v for k, v in given.items() if k not in WITHOUT_MEANING}
        args = [*([given.pop("input")] if "input" in given else []), *args]
        own = own.rstrip("_") if is_torch else own
        name = SAME.get(own, own)
        match args:
            case [python.GeneratorExp(body, loops)] if name in REDUCERS:
                return self.reducer(name, [loop.target for loop in loops], body)
            case [python.Name(index), body] if name in REDUCERS and index in self.indices:
                return self.reducer(name, args[:1], body)  # `sum(k, x[k])`
            case [_, second, *more] if name in ("max", "min") and "dim" not in given:
                if not is_torch or own.endswith("imum") or more or not is_number(second):
                    return each(f"{name}({holes(args)})", *map(self.value, args))
        if name in REDUCERS and args:
            dim, keeps = (*args[1:], NONE, NONE)[:2]
            keeps = literal(given.get("keepdim", keeps))
            return self.reduced(name, args[0], given.get("dim", dim), keeps is True, kept)
        if name in ("var", "std") and root in MODULES - TORCH:
            given.setdefault("unbiased", python.Constant(False))
        if name in FORMS and not (self.whole and name in OF_WHOLE):
            return self.form(FORMS[name], bound_to(FORMS[name], args, given), kept)
        return self.function(name, args, given)

    def factor(self, node: Node) -> Value:
        """A factor of a product. A sum in it gets a line of its own."""
        value = self.value(node)
        name = "" if value.leaf else self.named(value)
        return self.value(python.Name(name)) if name else value

    def stored(self, value: Value, other: Value) -> Value:
        """A temporary, converted to the type of the other factor, as torch has it and tensor cores take it."""
        dtypes = {name: shape.dtype for name, shape in self.shapes.items()}
        dtype = dtypes.get(other.leaf, "")
        is_temporary = dtypes.get(value.leaf) == ""
        converts = is_temporary and dtype not in ("", "f32", "f64")
        return each(f"{dtype}({{}})", value) if converts else value

    def form(
        self, form: python.Lambda, given: dict[str, Node], kept: Sequence[str] | None
    ) -> Value:
        """What a function is in terms of others. A sum that it repeats gets a line of its own."""
        said = [n.id for n in python.walk(form.body) if isinstance(n, python.Name)]
        for name, node in given.items():
            if said.count(name) > 1 and isinstance(node, (python.BinOp, python.Call)):
                temporary = self.named(self.value(node))
                given[name] = python.Name(temporary) if temporary else node
        return self.value(pasted(form.body, given), kept)

    def function(self, name: str, args: list[Node], given: dict[str, Node]) -> Value:
        match name, args:
            case "float", [python.Constant(str(text))]:
                return element("-inf" if text.strip().startswith("-") else "inf")
            case "otherwise", [python.Subscript(inner, items), fill]:
                return self.subscript(self.value(inner), items_of(items), self.value(fill).at(()))
            case "to" | "type" | "astype", [x, kind]:
                cast = CASTS.get(getattr(kind, "attr", getattr(kind, "id", "")))
                return each(f"{cast}({{}})" if cast else "{}", self.value(x))
            case _, [x] if name in CASTS and not given:
                return each(f"{CASTS[name]}({{}})", self.value(x))
            case _, [x, *_] if name in SAME_VALUE:
                return self.value(x)
            case "einsum", [python.Constant(str(equation)), *operands]:
                return self.einsum(equation, [self.value(x) for x in operands])
            case "transpose" | "swapaxes", [x, a, b]:
                return self.swapped(x, literal(a), literal(b))
            case "t", [x]:
                return self.swapped(x, 0, 1)
            case "permute", [x, *places]:
                places = items_of(places[0]) if len(places) == 1 else places
                return permuted(self.matrix(self.value(x)), [literal(p) for p in places])
            case "unsqueeze", [x, place]:
                value = self.value(x)
                at = literal(place) % (len(value.axes) + 1)
                return self.subscript(value, [*[ALL] * at, NONE])
            case "size", [x, place]:
                return self.size(x, place)
            case "flip" | "roll", [x, *rest]:
                dim = given.get("dims", given.get("dim", rest[-1] if rest else NONE))
                form = "{} - 1 - ({})"
                if name == "roll":
                    shift = self.value(given.get("shifts", rest[0])).at(())
                    form = f"(({{1}}) - ({shift})) % ({{0}})"
                return moved(*self.places(self.value(x), dim), form)
            case "cat", [python.List([a, b]) | python.Tuple([a, b]), *dims]:
                dim = given.get("dim", dims[0] if dims else python.Constant(0))
                (first, at), (second, _) = (self.places(self.value(v), dim) for v in (a, b))
                return concatenated(first, second, *at)
            case "cumulated", [python.Constant(str(op)), x, dim]:
                value, over = self.places(self.value(x), dim)
                return self.cumulated(op, value, *over)
            case "picked", [x, place]:
                self.unless_whole()
                value, at = self.value(x), self.value(place)
                one = Value(at.axes, lambda c: value.at((*c, at.at(c))))
                fits = len(at.axes) == len(value.axes) - 1
                return each("otherwise({}, 0)", one) if fits else unread()
            case "causal", [x, is_causal]:
                value = self.value(x)
                masked = Value(
                    value.axes, lambda c: f"where({c[-1]} <= {c[-2]}, {value.at(c)}, -inf)"
                )
                return masked if literal(is_causal) else value
            case "terms", [x, dim]:
                value, over = self.places(self.value(x), dim)
                return element(" * ".join(f"({value.axes[k]})" for k in over))
        name, args, given = self.adapted(name, args, given)
        keywords = "".join(f", {k} = {{}}" for k in given)
        values = [self.value(v) for v in (*args, *given.values())]
        return each(f"{name}({holes(args)}{keywords})", *values, is_bool=name.startswith("is"))

    def adapted(
        self, name: str, args: list[Node], given: dict[str, Node]
    ) -> tuple[str, list[Node], dict[str, Node]]:
        """A call of torch with the arguments that the spec's function of that name takes."""
        match name, args:
            case "clamp", [x, *bounds]:
                low, high = (*bounds, NONE, NONE)[:2]
                low, high = given.get("min", low), given.get("max", high)
                if is_constant(low, None) or is_constant(high, None):
                    name = "min" if is_constant(low, None) else "max"
                return name, [x, *(b for b in (low, high) if not is_constant(b, None))], {}
            case "gelu", _ if "approximate" in given:
                name = "gelu_tanh" if literal(given.pop("approximate")) == "tanh" else name
            case "softmax" | "log_softmax" | "logsumexp", [x, *dims]:
                axes, dim = self.value(x).axes, given.pop("dim", dims[0] if dims else NONE)
                at = -1 if is_constant(dim, None) else literal(dim)
                is_last = at == -1 or (at == len(axes) - 1 and DOTS not in axes)
                name = name if is_last else f"channel_{name}" if at == 1 else unread()
                args = [x]
            case "layer_norm" | "rms_norm", [x, python.Tuple() | python.List(), *rest]:
                args = [x, *rest]  # the dims are those of the weights
            case _, [x, window] if "_pool" in name and "stride" not in given:
                args = [x, window, window]  # in torch a window moves by its own size
        return name, args, given

    # ---- reducers -----------------------------------------------------------------------------------
    def reducer(self, op: str, binders: list[Node], body: Node) -> Value:
        """`sum[k < K](...)`, which is the spec's own."""
        self.unless_whole()
        hidden = {b.id for b in binders if isinstance(b, python.Name)} & {*self.bound}
        with self.scope():
            others = {i: python.Name(self.picked("")) for i in sorted(hidden)}
            binders, body = [pasted(b, others) for b in binders], pasted(body, others)
            for b in binders:
                self.bound += [n.id for n in python.walk(b) if isinstance(n, python.Name)]
            inner = self.value(body)
        shown = ", ".join(map(python.unparse, binders))
        said = {n.id for n in python.walk(body) if isinstance(n, python.Name)}
        match binders:
            case [python.Name(own)] if len(inner.axes) == 1 and own not in said:
                return element(
                    f"{op}[{own}]({inner.at((own,))})", inner.is_bool
                )  # `sum[d](x[n, :])`
        return Value(inner.axes, lambda c: f"{op}[{shown}]({inner.at(c)})", inner.is_bool)

    def along(self, name: str, binders: list[Node], body: Node) -> Value:
        """`softmax[j](s[i, j])` and `std[j](s[i, j])`: the function over the axes of indices."""
        indices = [b.id if isinstance(b, python.Name) else unread() for b in binders]
        inner, many = self.value(body), len(indices)

        def at(coords: Coords) -> str:
            places = (python.parse(c, mode="eval").body for c in coords)
            moved = pasted(body, dict(zip(indices, places, strict=False)))
            return self.value(moved).at(coords[many:])

        whole = Value((*(self.axis_of(i, body) for i in indices), *inner.axes), at)
        own = python.Name(f"{len(self.held)}'")
        self.held[own.id] = whole
        dims = python.Tuple([python.Constant(k) for k in range(many)])
        found = self.form(FORMS[name], bound_to(FORMS[name], [own], {"dim": dims}), None)
        if len(found.axes) < len(whole.axes):
            return found
        return Value(inner.axes, lambda c: found.at((*indices, *c)))

    def axis_of(self, index: str, body: Node) -> str:
        """The dim that an index alone subscripts."""
        for node in python.walk(body):
            match node:
                case python.Subscript(python.Name(name), items) if name in self.shapes:
                    dims, own = self.shapes[name].dims, [python.unparse(i) for i in items_of(items)]
                    if own.count(index) == 1 and own.count(DOTS) == dims.count(DOTS):
                        if len(own) == len(dims):
                            return dims[own.index(index)]
        unread()

    def reduced(
        self, op: str, x: Node, dim: Node, keeps: bool, kept: Sequence[str] | None
    ) -> Value:
        """`x.sum(dim=-1)`, `sum(x[n, d], d)`, and `x.sum()` over all that the line does not keep."""
        value = self.value(x)
        if not value.axes:
            items = items_of(x.slice) if isinstance(x, python.Subscript) else []
            place = literal(dim)
            over = items_of(dim) if place is None else [items[place]]
            names = None if is_constant(dim, None) else [python.unparse(n) for n in over]
            return element(self.summed(op, value.at(()), names))
        value, places = self.places(value, dim)
        if is_constant(dim, None) and kept and set(kept) <= set(value.axes):
            places = [k for k, a in enumerate(value.axes) if a not in kept] or places
        return self.over(op, value, places, keeps)

    def of_pair(self, call: python.Call, is_place: bool) -> Value:
        """`x.max(dim=-1).values`, and `.indices`."""
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if name not in ("max", "min"):
            unread()
        own = getattr(call.func, "value", python.Name("torch"))
        args = call.args if root_of(own) in MODULES else [own, *call.args]
        func = python.Attribute(python.Name("torch"), f"arg{name}" if is_place else name)
        return self.value(python.Call(func, args, call.keywords))

    # ---- axes ---------------------------------------------------------------------------------------
    def places(self, value: Value, dim: Node) -> tuple[Value, list[int]]:
        """The axes that `dim` counts; an operand without a shape gets as many as are counted."""
        self.unless_whole()
        if is_constant(dim, None):
            return value, list(range(len(value.axes)))
        found = literal(dim)
        dims = list(found) if isinstance(found, (tuple, list)) else [found]
        if value.leaf and value.axes == (DOTS,):
            ahead = max(dims) >= 0
            value = self.ranked(
                value, [*"NCHW"[: max(dims) + 1], DOTS] if ahead else [DOTS, *"FED"[min(dims) :]]
            )
        return value, counted(value.axes, dims)

    def swapped(self, x: Node, a: int, b: int) -> Value:
        value = self.matrix(self.value(x))
        order = list(range(len(value.axes)))
        order[a], order[b] = order[b], order[a]
        return permuted(value, order)

    def size(self, x: Node, place: Node) -> Value:
        value, (at,) = self.places(self.value(x), place)
        return element(value.axes[at])

"""Python's tree of a line: what its nodes say, and expressions with others in the place of names.

    literal(tree of "(0, -1)")                 (0, -1)
    digits(tree of "c * K + k", "i", {...})    c: i // K, k: i % K

`torch_lines` turns trees into values.
"""

from __future__ import annotations

import ast as python
import copy
from collections.abc import Mapping

from tritongen.syntax.torch_axes import unread

Node = python.expr
NONE = python.Constant(None)
HOLE = python.Name("({})")


class _Paste(python.NodeTransformer):
    def __init__(self, given: Mapping[str, Node]):
        self.given = given

    def visit_Name(self, node: python.Name) -> Node:
        return self.given.get(node.id, node)


def pasted(node: Node, given: Mapping[str, Node]) -> Node:
    """The expression with others in the place of names."""
    return _Paste(given).visit(copy.deepcopy(node))


def bound_to(form: python.Lambda, args: list[Node], given: Mapping[str, Node]) -> dict[str, Node]:
    """The arguments of a call by the names of a form."""
    names, defaults = [a.arg for a in form.args.args], form.args.defaults
    found = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    found |= {**dict(zip(names, args, strict=False)), **given}
    return found if set(found) == set(names) and len(args) <= len(names) else unread()


def holes(args: list[Node]) -> str:
    return ", ".join(["{}"] * len(args))


def items_of(node: Node) -> list[Node]:
    items = list(node.elts) if isinstance(node, (python.Tuple, python.List)) else [node]
    return [NONE if getattr(i, "attr", "") == "newaxis" else i for i in items]


def are_plain(items: Node) -> bool:
    """Whether each item takes one place of its dim, as in `x[n][d]`."""
    return all(isinstance(i, (python.Name, python.BinOp)) for i in items_of(items))


def is_constant(node: Node | None, value: object) -> bool:
    return isinstance(node, python.Constant) and node.value is value


def is_number(node: Node) -> bool:
    return isinstance(literal(node), (int, tuple))


def root_of(node: Node) -> str:
    while isinstance(node, python.Attribute):
        node = node.value
    return node.id if isinstance(node, python.Name) else ""


def literal(node: Node | None):
    """A number, a tuple of numbers, a bool or a string; None for all else."""
    if isinstance(node, python.Name):
        return {"true": True, "false": False}.get(node.id)
    try:
        return python.literal_eval(node) if node is not None else None
    except (ValueError, TypeError):
        return None


def digits(node: python.expr, new: str, indices: set[str]) -> dict[str, python.expr]:
    """The indices of `c * kh * kw + r * kw + s` as digits of a new one: r is `new // kw % kh`."""
    terms: list[tuple[str, list[str]]] = []
    rest, waiting = new, [(node, "-")]
    while waiting:
        part, sign = waiting.pop()
        if isinstance(part, python.BinOp) and isinstance(part.op, (python.Add, python.Sub)):
            turned = isinstance(part.op, python.Sub)
            waiting += [(part.left, sign), (part.right, "+" if turned == (sign == "-") else "-")]
            continue
        factors = [python.unparse(f) for f in _factors(part)]
        found = [f for f in factors if f in indices]
        if not found:
            rest += f" {sign} ({python.unparse(part)})"
        elif len(found) == 1 and sign == "-":
            terms.append((found[0], [f for f in factors if f != found[0]]))
        else:
            unread()
    shown: dict[str, python.expr] = {}
    above: list[str] | None = None
    for name, stride in sorted(terms, key=lambda term: -len(term[1])):
        divides = "/" if len(terms) == 1 else "//"
        text = f"({rest}) {divides} ({' * '.join(stride)})" if stride else f"({rest})"
        if above is not None:
            over = [*above]
            for factor in stride:
                over.remove(factor)  # ValueError: the strides are no digits
            text += f" % ({' * '.join(over)})" if over else unread()
        shown[name], above = python.parse(text, mode="eval").body, stride
    return shown


def _factors(node: python.expr) -> list[python.expr]:
    if isinstance(node, python.BinOp) and isinstance(node.op, python.Mult):
        return [*_factors(node.left), *_factors(node.right)]
    return [node]

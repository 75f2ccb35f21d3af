"""Builds the nodes of the syntax tree, one method for each rule of the grammar.

Input: the parts of a rule, in order: tokens and nodes. Output: the node, with its span. Some mistakes pass the grammar,
such as a reserved name, a number that does not fit in 64 bits, or a malformed binder. They are collected in `errors`, so
that one run finds all of them. A limit raises at once. `clauses` checks the values of clauses, and `tritongen.check`
scopes and types.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from typing import Any

from tritongen.errors import Diagnostic, Fix, Source, Span, SpecError
from tritongen.syntax import ast, clauses, names
from tritongen.syntax.foreign import python_bool, python_none
from tritongen.syntax.head import typed
from tritongen.syntax.lexer import Token
from tritongen.syntax.limits import MAX_INTEGER, MAX_OPERATIONS, MAX_RANK
from tritongen.syntax.torch_names import UNFIT

FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

# The term that does not count.
NOTHING = {"sum": "0", "prod": "1", "max": "-inf", "min": "inf", "any": "false", "all": "true"}


class Builder:
    def __init__(self, source: Source, most: int = MAX_OPERATIONS):
        self.source, self.most = source, most
        self.errors: list[Diagnostic] = []
        self.operations = 0
        self.odd: dict[Span, int] = {}  # the error of each binder that is a condition
        self.refused: set[str] = set()  # names of this op that were refused already

    def __call__(self, action: str, start: int, end: int, children: list[Any]) -> Any:
        return getattr(self, action)(Span(self.source, start, end), *children)

    # ---- help for the rules --------------------------------------------------

    def text(self, span: Span) -> str:
        return self.source.text[span.start : span.end]

    def place(self, token: Token) -> Span:
        return Span(self.source, token.start, token.end)

    def error(self, code: str, message: str, span: Span | None, help="", label="", fix=""):
        corrected = Fix(span, fix) if fix and span else None
        self.errors.append(Diagnostic(code, message, span, label, help=help, fix=corrected))

    def declare(self, token: Token, what: str) -> str:
        self._check_name(token.text, self.place(token), what)
        return token.text

    def _check_name(self, name: str, span: Span, what: str) -> None:
        """An output is declared and assigned, an index may serve in several lines: one error says it."""
        finding = names.check_name(name, span, what) if name not in self.refused else None
        if finding:
            self.refused.add(name)
            self.errors.append(finding)

    def _operation(self, node: ast.Expr) -> ast.Expr:
        self.operations += 1
        if self.operations > self.most:
            message = f"more than {self.most} operations in one op"
            help = "split it into several ops"
            raise SpecError([Diagnostic("E009", message, node.span, help=help)])
        return node

    def _rank(self, items: tuple, span: Span, what: str) -> tuple:
        if len(items) > MAX_RANK:
            self.error("E010", f"{len(items)} {what}; {MAX_RANK} are the most", span)
        return items

    # ---- files and signatures ------------------------------------------------

    def start(self, span, *items):
        return ast.File(items, span=span)

    def fn(self, span, name, params, body):
        self.operations = 0
        where, name = self.place(name), self.declare(name, "function")
        self.refused = set()
        return ast.Fn(name, params, body, span=where)

    def fnparams(self, span, *params):
        return params

    def fnparam(self, span, name, default=None):
        return ast.FnParam(self.declare(name, "parameter"), default, span=span)

    def op(self, span, name, typarams, params, outputs, facts, lines, parts):
        self.operations = 0
        self.errors += clauses.repeated(parts)
        where, name = self.place(name), self.declare(name, "op")
        self.refused = set()
        return ast.OpDef(name, typarams, params, outputs, facts, lines, parts, span=where)

    def typarams(self, span, *items):
        return items

    def typaram(self, span, name, *parts):
        finding = names.check_size(name.text, self.place(name))
        self.errors += [finding] if finding else []
        dtypes = tuple(part.text for part in parts if isinstance(part, Token))
        default = parts[-1] if isinstance(parts[-1], str) else None
        return ast.TypeParam(name.text, dtypes, default, span=span)

    def default(self, span, dtype):
        if dtype.text in ("float", "int"):
            message = f"`{dtype.text}` is a family of dtypes"
            self.error("E110", message, self.place(dtype), "a default is one dtype")
        return dtype.text

    def params(self, span, *items):
        return items

    def operand(self, span, name, type, default=None):
        if default is not None and type.dims is not None:
            help = "only scalars and constants have defaults"
            self.error("E109", "a tensor has no default", default.span, help)
        return ast.Operand(self.declare(name, "operand"), type, default, span=self.place(name))

    def const(self, span, name, dtype, default=None):
        where, dtype_span = self.place(name), self.place(dtype)
        if dtype.text not in names.FAMILIES:
            help = f"a scalar of the call, without recompiling: `{name.text}: {dtype.text}`"
            self.error("E110", "a constant is int, float or bool", dtype_span, help)
        elif default is not None and not _fits(default, dtype.text):
            message = f"this default is not of type {dtype.text}"
            self.error(
                "E109", message, default.span, label=f"for `const {name.text}: {dtype.text}`"
            )
        return ast.ConstParam(self.declare(name, "constant"), dtype.text, default, span=where)

    def outs(self, span, *items):
        return items

    def out(self, span, name, type):
        return ast.Operand(self.declare(name, "output"), type, span=self.place(name))

    def type(self, span, dtype, *dims):
        has_dims = self.text(span).endswith("]")
        if dtype.text in ("float", "int"):
            place, message = self.place(dtype), f"`{dtype.text}` is a family of dtypes"
            if has_dims:
                fix = typed(place, dtype.text, dtype.text)
                self.errors.append(Diagnostic("E110", message, place, help="name it: {}", fix=fix))
            else:
                one = {"float": "f32", "int": "i64"}[dtype.text]
                self.error("E110", message, place, "a number has one dtype: {}", fix=one)
        self._rank(dims, span, "dims")
        return ast.Type(dtype.text, dims if has_dims else None, span=span)

    def facts(self, span, *items):
        return items

    def define(self, span, name, value):
        finding = names.check_size(name.text, self.place(name))
        self.errors += [finding] if finding else []
        return ast.Define(name.text, value, span=span)

    def require(self, span, value):
        return ast.Require(value, span=span)

    # ---- lines ---------------------------------------------------------------

    def lines(self, span, *items):
        return items

    def assign(self, span, name, *rest):
        indices = None if len(rest) == 1 else tuple(self._left(index) for index in rest[0])
        own = self.declare(name, "temporary")
        return ast.Assign(own, indices, rest[-1], span=self.place(name), whole=span)

    def _left(self, index):
        match index:
            case ast.Name(name):
                self._declare_index(name, index.span)
            case ast.Binder(name):
                self._declare_index(name, index.span)
                return index if index.low or index.high else ast.Dots(span=index.span)
            case ast.Number(int()):
                pass
            case ast.Size(name):
                message = f"`{name}` is a size, not an index"
                help = "an index is lower case"
                self.error("E104", message, index.span, help, fix=name.lower())
            case _:
                help = "compute the coordinate on the right, as in `y[i] = x[i + 1]`"
                help = UNFIT["scatter"] if isinstance(index, ast.Read) else help
                self.error("E104", "the left side takes indices", index.span, help)
        return index

    def _declare_index(self, name, span):
        if name != ast.DOTS:
            self._check_name(name, span, "index")

    def indices(self, span, *items):
        return self._rank(items, span, "indices")

    def dots(self, span, _):
        return ast.Dots(span=span)

    def binders(self, span, *items):
        return self._rank(items, span, "indices")

    def any_binder(self, span, _):
        return ast.Binder(ast.DOTS, span=span)

    def binder(self, span, *parts):
        match parts:
            case [only]:
                return only
            case [ast.Name(name), op, high] if op.text in ("<", "<="):
                return ast.Binder(name, None, False, high, op.text == "<", span=span)
            case [ast.Name(name), op, low] if op.text in (">", ">="):
                return ast.Binder(name, low, op.text == ">", span=span)
            case [low, op, ast.Name(name), op2, high] if _same_way(op.text, op2.text, "<"):
                return ast.Binder(name, low, op.text == "<", high, op2.text == "<", span=span)
            case [high, op, ast.Name(name), op2, low] if _same_way(op.text, op2.text, ">"):
                return ast.Binder(name, low, op2.text == ">", high, op.text == ">", span=span)
            case [bound, op, ast.Name(name)] if op.text in FLIPPED:
                fix = f"{name} {FLIPPED[op.text]} {self.text(bound.span)}"
                self.error("E105", "this is not a range of an index", span, fix=fix)
            case _:
                help = "a range has the form `k < K`, `k >= i` or `lo <= k < hi`"
                self.odd[span] = len(self.errors)
                self.error("E105", "this is not a range of an index", span, help)
        return ast.Binder("k", span=span)

    # ---- expressions ---------------------------------------------------------

    def reduce(self, span, op, binders, body):
        bound = tuple(self._bound(binder, op.text) for binder in binders)
        if len(odd := [b.span for b in bound if b.span in self.odd]) == 1 and op.text in NOTHING:
            self._as_condition(span, op.text, bound, odd[0], body)
        return self._operation(ast.Reduce(op.text, bound, body, span=span))

    def _as_condition(self, span, op, binders, odd, body):
        """The correction of `sum[k % 2 == 0](x[k])`: `sum[k](where(k % 2 == 0, x[k], 0))`."""
        asked, at = self.text(odd), self.odd[odd]
        name = re.search(r"\b[a-z]\w*", asked)
        if name is None or body.span is None:
            return
        shown = ", ".join(name[0] if b.span == odd else self.text(b.span) for b in binders)
        text = f"{op}[{shown}](where({asked}, {self.text(body.span)}, {NOTHING[op]}))"
        old = self.errors[at]
        help = "put other conditions into `where`: {}"
        self.errors[at] = replace(old, help=help, fix=Fix(span, text), otherwise=old.help)

    def _bound(self, binder, op):
        match binder:
            case ast.Binder(name):
                self._declare_index(name, binder.span)
                return binder
            case ast.Name(name):
                self._declare_index(name, binder.span)
                return ast.Binder(name, span=binder.span)
            case ast.Size(name):
                help = f"write an index, which is lower case: `{op}[{name.lower()}](...)`"
                self.error("E105", f"`{name}` is a size, not an index", binder.span, help)
            case _:
                help = f"name the indices that it runs over: `{op}[k](x[k])`"
                self.error("E105", "a reducer binds indices", binder.span, help)
        return ast.Binder("k", span=binder.span)

    def call(self, span, name, args):
        named = (ast.Keyword, ast.TypeKeyword)
        values = tuple(a for a in args if not isinstance(a, named))
        keywords = tuple(a for a in args if isinstance(a, ast.Keyword))
        types = tuple(a for a in args if isinstance(a, ast.TypeKeyword))
        self._check_arguments(args, (*keywords, *types))
        if name.type == "REDUCER" and (name.text not in ("max", "min") or len(args) == 1):
            inside = f"{values[0].name}[k]" if args and isinstance(args[0], ast.Name) else "x[k]"
            help = f"name the indices that it runs over, as in `{name.text}[k]({inside})`"
            label = f"what does `{name.text}` run over?"
            self.error("E106", "a reducer without its indices", self.place(name), help, label)
        elif name.text in ("float", "int"):
            help = "cast to one dtype, as `f32(x)`, or to a type parameter, as `T(x)`"
            self.error("E110", f"`{name.text}` is a family of dtypes", self.place(name), help)
        return self._operation(ast.Call(name.text, values, keywords, types, span=span))

    def _check_arguments(self, args, keywords):
        seen: dict[str, ast.Node] = {}
        for keyword in keywords:
            if keyword.name in seen:
                self.error("E111", f"`{keyword.name}` is given twice", keyword.span)
            seen[keyword.name] = keyword
        for before, arg in itertools.pairwise(args):
            if before in keywords and arg not in keywords:
                self.error("E111", "a positional argument follows a named one", arg.span)

    def args(self, span, *items):
        return items

    def keyword(self, span, name, value):
        return ast.Keyword(name.text, value, span=span)

    def type_keyword(self, span, name, dtype):
        return ast.TypeKeyword(name.text, dtype.text, span=span)

    def padded(self, span, read, fill):
        return replace(read, fill=fill, span=span)

    def read(self, span, name, indices):
        return ast.Read(name.text, indices, span=span)

    def name(self, span, token):
        return ast.Name(token.text, span=span)

    def size(self, span, token):
        if token.text in ("True", "False"):
            return self.boolean(span, token)
        if token.text == "None":
            self.errors.append(python_none(span))
        return ast.Size(token.text, span=span)

    def boolean(self, span, token):
        if token.text[0].isupper():
            self.errors.append(python_bool(span, token.text))
        return ast.Bool(token.text.lower() == "true", span=span)

    def number(self, span, token):
        text = token.text
        whole = text.isdigit()
        if whole and (len(text.lstrip("0")) > 19 or int(text) > MAX_INTEGER):
            self.error("E011", "an integer over 2^63 - 1", span)
            return ast.Number(0, span=span)
        value = int(text) if whole else float(text)
        if math.isinf(value) and text != "inf":
            self.error("E011", "a number over 1.8e308", span, help="infinity is written `inf`")
        return ast.Number(value, text, span=span)

    def negative(self, span, number):
        return ast.Number(-number.value, f"-{number.text}", span=span)

    def logical(self, span, a, op, b):
        return self._operation(ast.BoolOp(op.text, a, b, span=span))

    def negation(self, span, x):
        return self._operation(ast.Not(x, span=span))

    def compare(self, span, a, op, b):
        return self._operation(ast.Compare(op.text, a, b, span=span))

    def binary(self, span, a, op, b):
        return self._operation(ast.Binary(op.text, a, b, span=span))

    def unary(self, span, op, x):
        return self._operation(ast.Unary(op.text, x, span=span))

    # ---- clauses -------------------------------------------------------------

    def clauses(self, span, *items):
        return items

    def grad(self, span, lines):
        return ast.GradBlock(lines, span=span)

    def grad_none(self, span, word):
        self.errors += clauses.wrong_word("grad", word.text, self.place(word))
        return ast.GradNone(span=span)

    def ref(self, span, *strings):
        inside = Span(self.source, strings[0].start, strings[-1].end)
        return ast.Ref(_join(strings), span=inside)

    def doc(self, span, *strings):
        return ast.Doc(_join(strings), span=span)

    def precision(self, span, mode):
        self.errors += clauses.wrong_word("precision", mode.text, self.place(mode))
        return ast.Precision(mode.text, span=span)

    def autocast(self, span, mode):
        self.errors += clauses.wrong_word("autocast", mode.text, self.place(mode))
        return ast.Autocast(mode.text, span=span)

    def tol(self, span, dtype, *bounds):
        self.errors += clauses.wrong_tolerance(dtype.text, self.place(dtype), bounds)
        return ast.Tol(dtype.text, *(bound.value for bound in bounds), span=span)

    def tune(self, span, *knobs):
        return ast.Tune(knobs, span=span)

    def knob(self, span, name, *values):
        self.errors += clauses.wrong_settings(name.text, values)
        return ast.Knob(name.text, tuple(value.value for value in values), span=span)


def _join(strings: tuple[Token, ...]) -> str:
    return "".join(token.text[1:-1] for token in strings)


def _same_way(op: str, op2: str, way: str) -> bool:
    return op[0] == way and op2[0] == way


def _fits(literal: ast.Literal, family: str) -> bool:
    match literal:
        case ast.Bool():
            return family == "bool"
        case ast.Number(int()):
            return family in ("int", "float")
        case _:
            return family == "float"

"""`ref` strings: the torch expression that an op must equal.

Input: the text of a `ref` clause. Output: a `RefProgram`, Python's own tree of it, in which only
torch functions on an allow-list of modules, the operands and plain arithmetic occur. Example:

    parse_ref("h = torch.relu(x); h / h.shape[-1]", span).names == {"x"}

Nothing is evaluated here: the tree is walked, and printed again by `ref_python`. Whether the names
are operands of the op is the checker's to say.
"""

from __future__ import annotations

import ast as python
import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tritongen.errors import Diagnostic, Source, Span, SpecError
from tritongen.syntax.limits import MAX_DEPTH
from tritongen.syntax.names import PYTHON

MODULES = ("torch", "torch.nn.functional", "torch.special", "torch.linalg")
# torch itself also holds functions that load files, compile, or set global state: it is listed
TORCH = frozenset(
    """abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr adjoint all allclose amax
    amin aminmax angle any arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin
    argsort asin asinh atan atan2 atanh atleast_1d atleast_2d baddbmm batch_norm bincount bitwise_and
    bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor block_diag bmm
    broadcast_tensors broadcast_to bucketize cat ceil celu chain_matmul chunk clamp clamp_max
    clamp_min clip column_stack concat concatenate constant_pad_nd conv1d conv2d conv3d
    conv_transpose1d conv_transpose2d conv_transpose3d convolution copysign cos cosh
    cosine_similarity count_nonzero cov cross cummax cummin cumprod cumsum cumulative_trapezoid deg2rad
    detach diag diag_embed diagflat diagonal diff digamma dist div divide dot dstack einsum eq
    equal erf erfc erfinv exp exp2 expand_copy expm1 eye flatten flip fliplr flipud float_power floor
    floor_divide fmax fmin fmod frac full full_like gather gcd ge greater greater_equal group_norm gt
    hardshrink heaviside histc hstack hypot index_add index_copy index_fill index_select
    inner instance_norm inverse isclose isfinite isin isinf isnan isneginf isposinf kron kthvalue
    layer_norm lcm ldexp le lerp less less_equal lgamma linspace log log10 log1p log2 log_softmax
    logaddexp logaddexp2 logcumsumexp logical_and logical_not logical_or logical_xor logit logsumexp
    lt masked_fill masked_select matmul max maximum mean median meshgrid min minimum mm mode moveaxis
    movedim mul multiply mv nan_to_num nanmean nanmedian nansum narrow native_group_norm
    native_layer_norm ne neg negative norm not_equal numel one_hot ones ones_like outer
    pairwise_distance permute pixel_shuffle pixel_unshuffle polar positive pow prelu prod put
    quantile rad2deg ravel reciprocal relu remainder renorm repeat_interleave reshape rms_norm roll
    rot90 round rsqrt scatter scatter_add scatter_reduce searchsorted select select_scatter selu
    sgn sigmoid sign signbit sin sinc sinh slice_scatter softmax sort split sqrt square squeeze stack
    std std_mean sub subtract sum swapaxes swapdims t take take_along_dim tan tanh tensor tensor_split
    tensordot threshold tile topk trace transpose trapezoid tril triu true_divide trunc unbind
    unflatten unfold unique unsqueeze var var_mean vdot vstack where xlogy zeros zeros_like""".split()
)
# Arguments that make a function write to an operand: keyword and position. Each must be left out, or None, or False.
WRITES = {
    **dict.fromkeys("hardsigmoid hardswish mish relu relu6 selu silu".split(), ("inplace", 1)),
    **dict.fromkeys("celu elu leaky_relu".split(), ("inplace", 2)),
    **dict.fromkeys(
        "hardtanh threshold alpha_dropout feature_alpha_dropout".split(), ("inplace", 3)
    ),
    **dict.fromkeys("dropout dropout1d dropout2d dropout3d".split(), ("inplace", 3)),
    **dict.fromkeys("embedding embedding_bag".split(), ("max_norm", 3)),
    **dict.fromkeys("normalize norm".split(), ("out", 4)),
    "rrelu": ("inplace", 4),
    "tensordot": ("out", 3),
}
# Functions that update running statistics where a flag, at position 5, asks for the batch's own.
STATISTICS = {"batch_norm": "training", "instance_norm": "use_input_stats"}
MAX_EXPONENT = 64
OPERATORS = (
    python.Add, python.Sub, python.Mult, python.MatMult, python.Div, python.FloorDiv, python.Mod,
    python.Pow, python.USub, python.Eq, python.NotEq, python.Lt, python.LtE, python.Gt, python.GtE,
)  # fmt: skip
MAX_REF_INTEGER = 2**31


@dataclass(frozen=True, slots=True)
class RefProgram:
    """`steps` are (name, expression) in order; `names` are those that no step assigns."""

    steps: tuple[tuple[str, python.expr], ...]
    result: python.expr
    names: frozenset[str]


def parse_ref(text: str, span: Span | None = None) -> RefProgram:
    places = _Places(text, span)
    if not text.strip():
        raise places.error("E603", "this `ref` is empty", 0, help='`ref "torch.relu(x)"`')
    _check_depth(text, places)
    steps: list[tuple[str, python.expr]] = []
    names: set[str] = set()
    pieces = _pieces(text)
    for number, (start, piece) in enumerate(pieces):
        tree = _parse_piece(piece, start, places)
        is_last = number == len(pieces) - 1
        match tree:
            case python.Expr(value) if is_last:
                walker = _Walker(places, start, piece)
                walker.expression(value)
                names |= walker.names - {name for name, _ in steps}
                return RefProgram(tuple(steps), value, frozenset(names))
            case python.Assign([python.Name(name)], value) if not is_last:
                walker = _Walker(places, start, piece)
                walker.own_name(name, tree)
                walker.expression(value)
                names |= walker.names - {name for name, _ in steps}
                steps.append((name, value))
            case _:
                help = "`h = torch.relu(x); h * 2`"
                message = "a `ref` is steps `name = expression;` and a final expression"
                raise places.error("E603", message, start, len(piece), help)
    raise AssertionError("the last piece returns or raises")


def ref_python(program: RefProgram) -> str:
    """The steps and the final expression as lines of Python."""
    lines = [f"{name} = {python.unparse(value)}" for name, value in program.steps]
    return "\n".join([*lines, python.unparse(program.result)])


def renamed_ref(program: RefProgram, names: Mapping[str, str]) -> RefProgram:
    """A ref with other names for operands and steps. `torch` is not renamed."""

    def change(value: python.expr) -> python.expr:
        value = copy.deepcopy(value)
        for node in python.walk(value):
            if isinstance(node, python.Name) and node.id != "torch":
                node.id = names.get(node.id, node.id)
        return value

    steps = tuple((names.get(name, name), change(value)) for name, value in program.steps)
    own = frozenset(names.get(name, name) for name in program.names)
    return RefProgram(steps, change(program.result), own)


class _Places:
    """From offsets in the joined text to the strings of the source."""

    def __init__(self, text: str, span: Span | None):
        self.text, self.span = text, span
        self.offsets: list[int] = []
        if span is not None:
            source = span.source.text[span.start : span.end]
            for found in re.finditer(r'"([^"\n]*)"|#[^\n]*', source):
                if found.group(1) is not None:
                    self.offsets += range(span.start + found.start(1), span.start + found.end(1))
            if len(self.offsets) != len(text):  # built by a program, or given without its quotes
                self.offsets = []

    def error(
        self, code: str, message: str, start: int, length: int = 1, help: str = ""
    ) -> SpecError:
        return SpecError([Diagnostic(code, message, self._span(start, length), help=help)])

    def _span(self, start: int, length: int) -> Span | None:
        if self.span is None:
            return Span(Source("<ref>", self.text), start, start + length)
        if not self.offsets:
            return self.span
        first = self.offsets[min(start, len(self.offsets) - 1)]
        last = self.offsets[min(start + max(length, 1), len(self.offsets)) - 1]
        return Span(self.span.source, first, last + 1)


def _check_depth(text: str, places: _Places) -> None:
    """Python's parser recurses, so brackets are counted first."""
    depth = 0
    for position, char in enumerate(text):
        if not (char.isascii() and char.isprintable()):
            raise places.error("E603", "a `ref` is plain ASCII", position)
        depth += (char in "([{") - (char in ")]}")
        if depth > MAX_DEPTH:
            raise places.error("E008", f"brackets nest deeper than {MAX_DEPTH}", position)
    words = re.findall(r"[^\s\w]|\w+", text)
    if len(words) > 1000:
        raise places.error("E603", "this `ref` is too long", 0, len(text), "1,000 words at most")


def _pieces(text: str) -> list[tuple[int, str]]:
    """The parts between semicolons outside string literals, each with its offset."""
    pieces, start = [], 0
    for found in re.finditer(r"'[^']*'|(;)", text):
        if found.group(1):
            pieces.append((start, text[start : found.start()]))
            start = found.end()
    pieces.append((start, text[start:]))
    kept = [(at + len(p) - len(p.lstrip()), p.strip()) for at, p in pieces]
    return kept if kept[-1][1] or len(kept) == 1 else kept[:-1]


def _parse_piece(piece: str, start: int, places: _Places) -> python.stmt:
    if re.search(r"\d{20}", piece):  # Python refuses to print what it reads from long digits
        raise places.error("E011", "a number in a `ref` is too long", start, len(piece))
    try:
        module = python.parse(piece)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        at = start + max(0, (getattr(error, "offset", None) or 1) - 1)
        message = "this is no Python expression"
        raise places.error(
            "E603", message, min(at, start + len(piece) - 1 if piece else at)
        ) from None
    if len(module.body) != 1:
        raise places.error("E603", "expected an expression", start, len(piece))
    _check_tree(module.body[0], start, piece, places)
    return module.body[0]


def _check_tree(tree: python.stmt, start: int, piece: str, places: _Places) -> None:
    """Checks the depth of the tree without recursion, because the walker and Python's printer recurse."""
    level: list[python.AST] = [tree]
    for _ in range(2 * MAX_DEPTH):
        level = [child for node in level for child in python.iter_child_nodes(node)]
        if not level:
            return
    raise places.error("E008", "this `ref` nests too deep", start, len(piece))


def _is_text(node: python.expr) -> bool:
    return isinstance(node, python.Constant) and isinstance(node.value, str)


class _Walker:
    """Refuses every node that is not on the list; collects the names that are read."""

    def __init__(self, places: _Places, start: int, piece: str):
        self.places, self.start, self.piece = places, start, piece
        self.names: set[str] = set()

    def refuse(self, node: python.AST, message: str, help: str = "") -> SpecError:
        start = getattr(node, "col_offset", 0)
        end = getattr(node, "end_col_offset", len(self.piece))
        return self.places.error("E604", message, self.start + start, end - start, help)

    def own_name(self, name: str, node: python.AST) -> None:
        if name in PYTHON or name == "torch" or not re.fullmatch(r"[a-z][A-Za-z0-9_]*", name):
            raise self.refuse(node, f"`{name}` may not be named in a `ref`")

    def expression(self, node: python.expr) -> None:
        match node:
            case python.Constant(value):
                self.constant(node, value)
            case python.Name(name):
                self.own_name(name, node)
                self.names.add(name)
            case python.Tuple(items) | python.List(items):
                for item in items:
                    self.expression(item)
            case python.UnaryOp(op, x):
                self.operator(node, op)
                self.expression(x)
            case python.BinOp(a, op, b):
                self.operator(node, op)
                self.sizes(node, a, op, b)
                self.expression(a)
                self.expression(b)
            case python.Compare(a, [op], [b]):
                self.operator(node, op)
                self.expression(a)
                self.expression(b)
            case python.Subscript(value, index):
                self.subscript(value, index)
            case python.Call(function, args, keywords):
                self.call(node, function, args, keywords)
            case python.Attribute(value, "shape"):
                raise self.refuse(node, "`.shape` is read one dim at a time", "`x.shape[-1]`")
            case python.Attribute():
                help = "`torch.*` functions are called; of a tensor only `.shape[i]` is read"
                raise self.refuse(node, "a `ref` has no attributes", help)
            case _:
                help = "calls of torch functions, arithmetic, tuples, numbers and subscripts"
                raise self.refuse(node, "this may not stand in a `ref`", help)

    def constant(self, node: python.AST, value: object) -> None:
        match value:
            case None | bool():
                return
            case int() if abs(value) < MAX_REF_INTEGER:
                return
            case float() if abs(value) < float("inf"):
                return
            case str() if re.fullmatch(r"[A-Za-z0-9_ ,.>-]{1,80}", value):
                return  # an option such as 'none', the equation of an einsum
        raise self.refuse(node, "this literal may not stand in a `ref`")

    def operator(self, node: python.AST, op: python.AST) -> None:
        if not isinstance(op, OPERATORS):
            raise self.refuse(node, "this operator may not stand in a `ref`")

    def sizes(self, node: python.AST, a: python.expr, op: python.AST, b: python.expr) -> None:
        """Arithmetic of Python itself must not make a huge number or a huge tuple."""
        for side in (a, b):
            if isinstance(side, (python.Tuple, python.List)) or _is_text(side):
                raise self.refuse(node, "arithmetic in a `ref` is on tensors and numbers")
        if isinstance(op, python.Pow):
            exponent = b.operand if isinstance(b, python.UnaryOp) else b
            value = exponent.value if isinstance(exponent, python.Constant) else None
            small = isinstance(value, (int, float)) and value <= MAX_EXPONENT
            if not small or any(isinstance(part, python.Pow) for part in python.walk(a)):
                help = "`torch.pow(x, y)` takes any exponent"
                raise self.refuse(node, f"`**` takes a number up to {MAX_EXPONENT}", help)

    def subscript(self, value: python.expr, index: python.expr) -> None:
        match value:
            case python.Attribute(tensor, "shape"):
                self.expression(tensor)
            case _:
                self.expression(value)
        for item in index.elts if isinstance(index, python.Tuple) else [index]:
            match item:
                case python.Slice(low, high, step):
                    for part in (low, high, step):
                        if part is not None:
                            self.expression(part)
                case python.Constant(literal) if literal is Ellipsis:
                    pass
                case _:
                    self.expression(item)

    def call(self, node, function, args, keywords) -> None:
        self.function(node, function)
        self.writes(node, function, args, keywords)
        for arg in args:
            self.expression(arg)
        for keyword in keywords:
            if (
                not keyword.arg
                or keyword.arg[0] == "_"
                or keyword.arg in ("out", "dtype", "device", "generator")
            ):
                help = "the harness passes float64 tensors and compares the result"
                raise self.refuse(keyword, "this keyword may not stand in a `ref`", help)
            self.expression(keyword.value)

    def writes(self, node: python.expr, function: python.expr, args, keywords) -> None:
        """Refuses a call that would write to an operand: a `ref` gets the caller's own tensors."""
        given = {keyword.arg: keyword.value for keyword in keywords}
        name = (_dotted(function) or "").rpartition(".")[2]

        def is_given(keyword: str, position: int) -> bool:
            value = given.get(keyword, args[position] if position < len(args) else None)
            off = isinstance(value, python.Constant) and value.value in (None, False)
            return not (value is None or off)

        if name in WRITES and is_given(*WRITES[name]):
            help = f"leave out `{WRITES[name][0]}`: a `ref` only computes a result"
            raise self.refuse(node, f"this call of `{name}` writes to its operand", help)
        if name in STATISTICS:
            # torch.batch_norm takes them third, torch.nn.functional.batch_norm first.
            first = 3 if _dotted(function) == f"torch.{name}" else 1
            flag = STATISTICS[name]
            asks = (
                is_given(flag, 5) or name == "instance_norm" and len(args) < 6 and flag not in given
            )
            kept = [("running_mean", first), ("running_var", first + 1)]
            if asks and any(is_given(*own) for own in kept):
                help = f"None for both, or `{flag} = False`"
                message = f"this call of `{name}` updates its running statistics"
                raise self.refuse(node, message, help)

    def function(self, node: python.AST, function: python.expr) -> None:
        path = _dotted(function)
        if path is None or not path.startswith("torch."):
            help = "a tensor's method is a function of torch: `torch.sum(x, -1)`"
            raise self.refuse(function, "a `ref` calls functions of torch only", help)
        module, _, _ = path.rpartition(".")
        if module not in MODULES:
            help = f"the modules are {', '.join(MODULES)}"
            raise self.refuse(function, f"`{module}` may not be used in a `ref`", help)
        if not is_torch_function(path):
            raise self.refuse(function, f"`{path}` may not be used in a `ref`")


def is_torch_function(path: str) -> bool:
    """Whether a `ref` may call it."""
    module, _, name = path.rpartition(".")
    # lower case leaves out classes; a leading or trailing underscore, private and in-place ones
    plain = re.fullmatch(r"[a-z]([a-z0-9_]*[a-z0-9])?", name)
    return module in MODULES and plain is not None and (module != "torch" or name in TORCH)


def _dotted(node: python.expr) -> str | None:
    match node:
        case python.Name(name):
            return name
        case python.Attribute(value, name):
            path = _dotted(value)
            return None if path is None else f"{path}.{name}"
        case _:
            return None

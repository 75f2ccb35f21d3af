"""The table of functions: one row for each operator and builtin, with all that the compiler knows about it.

`FUNCTIONS["exp"]` is a row of strings. `Call.fn` in the IR names a row. `OPERATORS` and `BUILTINS` find the row of an
operator (`+`) or of a name that differs (`max(a, b)` is the row maximum). A new builtin is one row here.

    row = FUNCTIONS["div"]
    fill(text_for(row, "float"), [("x + 1", SUM), ("y", ATOM)])  ->  ("(x + 1) / y", TERM)

Rows work on f32 and f64: loads widen half types. One text serves both, because one kernel source does. `texts.py` fills
texts, `lib/` holds the functions that they call, and `emit` prints casts, reducers and literals.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf

from tritongen.ir.texts import (
    ATOM,
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    COMPARE,
    POWER_OPERATOR,
    SHIFT,
    SUM,
    TERM,
    UNARY,
    Text,
    call,
    fill,
    infix,
    nan_call,
    prefix,
    product,
    with_flag,
)

# Helpers for printers of calls.
__all__ = [
    "ATOM", "BUILTINS", "COMPARE", "FUNCTIONS", "OPERATORS", "SMALL_POWERS", "SUM", "TERM",
    "UNARY", "Function", "Text", "fill", "power_derivative", "power_text",
    "text_for", "with_flag",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Function:
    """A row.

    args: what the arguments may be, once promoted to one dtype (the condition of `where` aside):
        "float"  floats; ints and bools promote to the compute type
        "number" floats and ints; bool is an error
        "any"    floats, ints, bools
        "int"    ints and bools
        "bool"   bools
    result: "same" (the dtype of the promoted arguments) or "bool".
    derivative: per argument the partial derivative in the language, in a, b, c and y (the result),
        or None where it is 0; None for the whole: the result does not vary smoothly, all are 0.
    ulp: how far the Triton text may be off in f32, on normal numbers, in units in the last place of
        the exact result; 0: exact, 0.5: correctly rounded. Measured on an H200, over all 2**32
        arguments of one-argument rows, over 10**9 pairs of the others. Only ever tightened.
    half: the same for the helper's form with HALF, which values take that are rounded to a half type
        (2**15 such units are half an ulp of bf16, 2**12 half an ulp of f16); 0: there is none.
    swing: how far apart the values of a periodic row lie; 0: it is none.
    """

    name: str
    arity: int
    args: str
    result: str
    triton: Text
    torch: Text
    derivative: tuple[str | None, ...] | None
    ulp: float
    triton_int: Text | None = None  # where ints need another text than floats
    triton_bool: Text | None = None
    triton_plain: Text | None = None  # where `ir.integers.is_plain`
    surface: str = ""  # an operator, or the name in the language where it is not the row's
    half: float = 0
    swing: float = 0

    @property
    def exact(self) -> bool:
        return self.ulp == 0


def text_for(row: Function, kind: str) -> Text:
    """The Triton text for arguments of a kind: float, int or bool."""
    special = {"int": row.triton_int, "bool": row.triton_bool}.get(kind)
    return special or row.triton


# ---- integer literal powers -----------------------------------------------------------------------
# The n of an `x ** n` that is Call("pow_int", (x, Const(n))); the negative ones for floats only.
SMALL_POWERS = (2, 3, 4, -1, -2)


def power_text(exponent: int) -> Text:
    """Triton text of x ** n, n one of SMALL_POWERS."""
    if exponent == -1:
        return Text("1 / {a}", TERM, (UNARY,))
    if exponent < 0:
        return Text(f"1 / ({product(-exponent).template})", TERM, (UNARY,))
    return product(exponent)


def power_ulp(exponent: int) -> float:
    """How far off that text may be; x * x is a denormal where 1 / (x * x) is large."""
    return 4.6 if exponent == -2 else 2


def power_derivative(exponent: int) -> str:
    """d(a ** n)/da in the language."""
    return "2 * a" if exponent == 2 else f"{exponent} * a ** {exponent - 1}"


# ---- rows -----------------------------------------------------------------------------------------
def unary(
    name: str,
    triton: str | Text,
    derivative: str | None,
    ulp: float,
    torch: str | Text = "",
    half: float = 0,
    swing: float = 0,
) -> Function:
    """A function of one float."""
    partials = None if derivative is None else (derivative,)
    triton = triton if isinstance(triton, Text) else call(triton)
    torch = torch if isinstance(torch, Text) else call(torch or f"torch.{name}")
    return Function(name, 1, "float", "same", triton, torch, partials, ulp, half=half, swing=swing)


def predicate(name: str, triton: str, least: int = 0) -> Function:
    """A test of one float."""
    text = Text(triton, COMPARE, (least,))
    return Function(name, 1, "float", "bool", text, call(f"torch.{name}"), None, 0)


def binary(
    name: str, triton: str, derivative: tuple[str | None, ...] | None, ulp: float
) -> Function:
    """A function of two floats."""
    return Function(
        name, 2, "float", "same", call(triton, 2), call(f"torch.{name}", 2), derivative, ulp
    )


def comparison(name: str, operator: str) -> Function:
    text = infix(operator, COMPARE)
    return Function(name, 2, "any", "bool", text, text, None, 0, surface=operator)


def logical(name: str, operator: str) -> Function:
    text = infix(operator, BIT_OR if operator == "|" else BIT_AND)
    return Function(name, 2, "bool", "bool", text, text, None, 0, surface=name)


def bits(name: str, triton: Text, torch: Text, plain: Text | None = None) -> Function:
    arity = len(set(re.findall(r"\{.\}", triton.template)))
    return Function(name, arity, "int", "same", triton, torch, None, 0, triton_plain=plain)


def arithmetic(
    name: str, args: str, symbol: str, precedence: int, derivative: tuple, ulp: float, **texts
) -> Function:
    """An operator. Its text is the target's own operator, unless `texts` gives another one."""
    text = infix(symbol, precedence)
    fields = {"triton": text, "torch": text, "surface": symbol, **texts}
    return Function(name, 2, args, "same", derivative=derivative, ulp=ulp, **fields)


def extreme(name: str, worse: str) -> Function:
    """Two-argument max or min: NaN wins, a tie splits the gradient evenly, as torch."""
    partials = tuple(f"where({p} {worse} {q}, 0, where(a == b, 0.5, 1))" for p, q in ("ab", "ba"))
    return Function(
        name,
        2,
        "any",
        "same",
        nan_call(f"tl.{name}"),
        call(f"torch.{name}", 2),
        partials,
        0,
        triton_int=call(f"tl.{name}", 2),
        triton_bool=infix("|", BIT_OR) if name == "maximum" else infix("&", BIT_AND),
        surface=name[:3],
    )


OPERATOR_ROWS = (
    arithmetic("add", "any", "+", SUM, ("1", "1"), 0.5, triton_bool=infix("|", BIT_OR)),
    arithmetic("sub", "number", "-", SUM, ("1", "-1"), 0.5),
    arithmetic("mul", "any", "*", TERM, ("b", "a"), 0.5, triton_bool=infix("&", BIT_AND)),
    arithmetic("div", "float", "/", TERM, ("1 / b", "-y / b"), 2.11),
    arithmetic(
        "floordiv",
        "number",
        "//",
        TERM,
        (None, None),
        2,
        triton=call("lib.float_floor_div", 2),
        triton_int=call("lib.floor_div", 2),
        triton_plain=infix("//", TERM),
    ),
    arithmetic(
        "mod",
        "number",
        "%",
        TERM,
        ("1", "-(a // b)"),
        0.5,
        triton=call("lib.float_mod", 2),
        triton_int=call("lib.floor_mod", 2),
        triton_plain=infix("%", TERM),
    ),
    arithmetic(
        "pow",
        "number",
        "**",
        ATOM,
        ("where(b == 0, 0, b * a ** (b - 1))", "where(a == 0 and b >= 0, 0, y * log(a))"),
        24,  # where |b * log2(a)| nears 128; 8 without fp fusion
        triton=call("lib.pow", 2),
        torch=POWER_OPERATOR,
        triton_int=call("lib.int_pow", 2),
    ),
    # Its Triton text and derivative depend on the exponent: power_text, power_derivative.
    Function(
        "pow_int",
        2,
        "number",
        "same",
        product(2),
        POWER_OPERATOR,
        ("b * a ** (b - 1)", None),
        2,
        surface="**",
    ),
    Function("neg", 1, "number", "same", prefix("-"), prefix("-"), ("-1",), 0, surface="-"),
    comparison("eq", "=="),
    comparison("ne", "!="),
    comparison("lt", "<"),
    comparison("le", "<="),
    comparison("gt", ">"),
    comparison("ge", ">="),
    logical("and", "&"),
    logical("or", "|"),
    Function("not", 1, "bool", "bool", prefix("~"), prefix("~"), None, 0, surface="not"),
)

SELECT_ROWS = (
    Function(
        "where",
        3,
        "any",
        "same",
        call("tl.where", 3),
        call("torch.where", 3),
        (None, "where(a, 1, 0)", "where(a, 0, 1)"),
        0,
    ),
    extreme("maximum", "<"),
    extreme("minimum", ">"),
    Function(
        "clamp",
        3,
        "number",
        "same",
        Text(
            "tl.minimum(tl.maximum({a}, {b}, propagate_nan=tl.PropagateNan.ALL), {c},"
            " propagate_nan=tl.PropagateNan.ALL)"
        ),
        call("torch.clamp", 3),
        (
            "where(a >= b and a <= c, 1, 0)",
            "where(a < b and b < c, 1, 0)",
            "where(a > c or c < b, 1, 0)",
        ),
        0,
        triton_int=Text("tl.minimum(tl.maximum({a}, {b}), {c})"),
    ),
    Function(
        "relu",
        1,
        "number",
        "same",
        Text("tl.maximum({a}, 0, propagate_nan=tl.PropagateNan.ALL)"),
        call("torch.relu"),
        ("where(y <= 0, 0, 1)",),
        0,
        triton_int=Text("tl.where({a} > 0, {a}, 0)"),
    ),
    Function("abs", 1, "number", "same", call("tl.abs"), call("torch.abs"), ("sign(a)",), 0),
    Function("sign", 1, "number", "same", call("lib.sign"), call("torch.sign"), None, 0),
    Function("square", 1, "number", "same", product(2), call("torch.square"), ("2 * a",), 0.5),
    Function("detach", 1, "any", "same", Text("{a}"), Text("{a}.detach()", ATOM, (ATOM,)), None, 0),
    predicate("isnan", "{a} != {a}", BIT_OR),
    predicate("isinf", 'tl.abs({a}) == float("inf")'),
    predicate("isfinite", 'tl.abs({a}) < float("inf")'),
)

BIT_ROWS = (
    bits("bit_and", infix("&", BIT_AND), infix("&", BIT_AND)),
    bits("bit_or", infix("|", BIT_OR), infix("|", BIT_OR)),
    bits("bit_xor", infix("^", BIT_XOR), infix("^", BIT_XOR)),
    bits("bit_not", prefix("~"), prefix("~")),
    bits("shift_left", call("lib.shift_left", 2), infix("<<", SHIFT), infix("<<", SHIFT)),
    bits("shift_right", call("lib.shift_right", 2), infix(">>", SHIFT), infix(">>", SHIFT)),
)

# log 2, log 10 and sqrt(pi) stand in the derivatives as literals.
FLOAT_ROWS = (
# Its half form rounds x * log2(e) once: an error of |x| f32 ulp, at most 88 for finite results.
unary(
    "exp", "lib.exp", "y", 1.94, half=128
), unary(
    "exp2", "lib.exp2", "0.6931471805599453 * y", 1, half=8
), unary(
    "expm1", "lib.expm1", "y + 1", 1.45, half=250
), unary(
    "log", "tl.log", "1 / a", 0.87
), unary(
    "log2", "tl.log2", "1.4426950408889634 / a", 0.92
), unary(
    "log10", "libdevice.log10", "0.4342944819032518 / a", 2.09
), unary(
    "log1p", "lib.log1p", "1 / (1 + a)", 0.89
), unary(
    "sqrt", "lib.sqrt", "0.5 / y", 0.5
), unary(
    "rsqrt", "lib.rsqrt", "-0.5 * y / a", 1.1
), unary(
    "sin", "lib.sin", "cos(a)", 1.5, swing=2
), unary(
    "cos", "tl.cos", "-sin(a)", 1.52, swing=2
), unary(
    "tan", "lib.tan", "1 + y * y", 3.1, swing=float("inf")
), unary(
    "asin", "lib.asin", "rsqrt(1 - a * a)", 2.39
), unary(
    "acos", "libdevice.acos", "-rsqrt(1 - a * a)", 1.82
), unary(
    "atan", "lib.atan", "1 / (1 + a * a)", 2.06, half=16
), unary(
    "sinh", "lib.sinh", "cosh(a)", 2.94, half=128
), unary(
    "cosh", "libdevice.cosh", "sinh(a)", 2.34
), unary(
    "tanh", "lib.tanh", "1 - y * y", 1.82, half=16
), unary(
    "asinh", "lib.asinh", "rsqrt(a * a + 1)", 1.79, half=32
), unary(
    "acosh", "lib.acosh", "rsqrt(a * a - 1)", 2.3, half=32
), unary(
    "atanh", "lib.atanh", "1 / (1 - a * a)", 3.16
), unary(
    "erf", "lib.erf", "1.1283791670955126 * exp(-(a * a))", 1.14, half=64
), unary(
    "erfc", "lib.erfc", "-1.1283791670955126 * exp(-(a * a))", 2, half=400
), unary(
    "erfinv", "libdevice.erfinv", "0.886226925452758 * exp(y * y)", 2.45
),
# torch.special.ndtr is 1 + erf, which has no tail.
 unary(
    "ndtr",
    "lib.ndtr",
    "0.3989422804014327 * exp(-0.5 * a * a)",
    2,
    Text("0.5 * torch.erfc({a} * -0.7071067811865476)", TERM, (TERM,)),
    half=400,
),
# gelu; `x * ndtr(x)` is this row. Its half form is off by 210 f32 ulp down to -5.8, where f16 ends, and by up to 900
# in the tail that bf16 has beyond.
 unary(
    "times_ndtr",
    "lib.times_ndtr",
    "ndtr(a) + 0.3989422804014327 * a * exp(-0.5 * a * a)",
    2,
    Text("{a} * (0.5 * torch.erfc({a} * -0.7071067811865476))", TERM, (ATOM,)),
    half=900,
    ),  # fmt: skip
    unary("sigmoid", "lib.sigmoid", "y * (1 - y)", 2, half=250),
    # `1 - sigmoid(x)` becomes this row.
    unary(
        "sigmoidc",
        "lib.sigmoidc",
        "-y * sigmoid(a)",
        2,
        Text("torch.sigmoid(-{a})", ATOM, (UNARY,)),
        half=250,
    ),
    unary(
        "logsigmoid", "lib.logsigmoid", "sigmoid(-a)", 2, "torch.nn.functional.logsigmoid", half=250
    ),
    unary(
        "softplus",
        "lib.softplus",
        "where(a > 20, 1, sigmoid(a))",
        2,
        "torch.nn.functional.softplus",
        half=250,
    ),
    # The factor of x in mish. `tanh(softplus(x))` becomes this row.
    unary(
        "tanh_softplus",
        "lib.tanh_softplus",
        "(1 - y * y) * sigmoid(a)",
        2,
        Text("torch.tanh(torch.nn.functional.softplus({a}))"),
        half=250,
    ),
    unary("floor", "lib.floor", None, 0),
    unary("ceil", "lib.ceil", None, 0),
    unary("trunc", "libdevice.trunc", None, 0),
    # rint is missing on HIP in Triton 3.6; nearbyint rounds the same way, half to even.
    unary("round", "libdevice.nearbyint", None, 0),
    unary("reciprocal", Text("1 / {a}", TERM, (UNARY,)), "-y * y", 0.98),
    binary(
        "atan2",
        "lib.atan2",
        tuple(f"where(a == 0 and b == 0, 0, {side} / (a * a + b * b))" for side in ("b", "-a")),
        2.15,
    ),
    binary("hypot", "lib.hypot", ("a / y", "b / y"), 1.38),
    binary("fmod", "lib.fmod", ("1", "-trunc(a / b)"), 0),
    binary("xlogy", "lib.xlogy", ("where(a == 0 and b <= 0, 0, log(b))", "a / b"), 1.82),
    # As in torch, a result near 0 is the difference of larger numbers, so there is no bound in its ulp.
    binary("logaddexp", "lib.logaddexp", ("sigmoid(a - b)", "sigmoid(b - a)"), inf),
)

FUNCTIONS: dict[str, Function] = {
    row.name: row for row in (*OPERATOR_ROWS, *SELECT_ROWS, *BIT_ROWS, *FLOAT_ROWS)
}

# Notation of the language -> row: binary operators, and calls by name.
OPERATORS: dict[str, str] = {
    row.surface: row.name for row in OPERATOR_ROWS if row.arity == 2 and row.name != "pow_int"
}
BUILTINS: dict[str, str] = {
    row.surface or row.name: row.name for row in (*SELECT_ROWS, *BIT_ROWS, *FLOAT_ROWS)
} | {"pow": "pow"}

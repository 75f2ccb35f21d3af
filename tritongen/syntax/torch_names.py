"""Names of torch, NumPy, JAX and Triton, and what they are in a spec.

`SAME` of `names` has functions that have only another name. A row of `FORMS` is Python: what a function is in terms of
others. `torch_lines` puts the arguments in. `terms(a, dim)` is the number of terms of a reducer.
"""

from __future__ import annotations

import ast as python
import math

from tritongen.syntax.names import DTYPES

MODULES = frozenset(
    "math torch np numpy F nn jnp jax tl scipy libdevice cmath special functional".split()
)
TORCH = frozenset("torch F nn special functional".split())  # where `var` divides by n - 1
KEYWORDS = {
    "axis": "dim", "keepdims": "keepdim", "padding": "pad", "dilation": "dil", "negative_slope": "slope", "min_val": "lo",
    "max_val": "hi", "kernel_size": "win", "output_padding": "out_pad", "num_groups": "groups", "a_min": "min", "a_max": "max",
}  # fmt: skip
WITHOUT_MEANING = frozenset(
    "inplace dtype device non_blocking copy memory_format keep_dims input_precision".split()
)
SAME_VALUE = frozenset(
    "contiguous clone cuda cpu copy expand expand_as broadcast_to view_as".split()
)
BITS = {  # of integers, and of bools
    python.BitAnd: ("bit_and({}, {})", "({}) and ({})"), python.BitOr: ("bit_or({}, {})", "({}) or ({})"),
    python.BitXor: ("bit_xor({}, {})", "({}) != ({})"), python.LShift: ("shift_left({}, {})",) * 2,
    python.RShift: ("shift_right({}, {})",) * 2,
}  # fmt: skip
TORCH_DTYPES = {
    "float64": "f64", "double": "f64", "fp64": "f64",
    "float32": "f32", "single": "f32", "fp32": "f32",
    "float16": "f16", "half": "f16", "fp16": "f16", "bfloat16": "bf16",
    "int64": "i64", "long": "i64", "int32": "i32", "int16": "i16", "short": "i16", "int8": "i8",
    "uint8": "u8", "byte": "u8", "boolean": "bool",
}  # fmt: skip
CASTS = {**TORCH_DTYPES, **{name: name for name in DTYPES}, "float": "f32", "int": "i32"}
NUMBERS = {"inf": "inf", "Inf": "inf", "pi": repr(math.pi)}
OF_WHOLE = frozenset("softmax log_softmax logsumexp linear matmul".split())  # ops of the prelude

FORMS: dict[str, python.Lambda] = {
    name: python.parse(f"lambda {form}", mode="eval").body  # type: ignore[misc]
    for name, form in {
        "add": "a, other: a + other",
        "sub": "a, other: a - other",
        "mul": "a, other: a * other",
        "div": "a, other: a / other",
        "floor_divide": "a, other: a // other",
        "remainder": "a, other: a % other",
        "neg": "a: -a",
        "eq": "a, other: a == other",
        "ne": "a, other: a != other",
        "lt": "a, other: a < other",
        "le": "a, other: a <= other",
        "gt": "a, other: a > other",
        "ge": "a, other: a >= other",
        "logical_and": "a, other: a and other",
        "logical_or": "a, other: a or other",
        "logical_not": "a: not a",
        "masked_fill": "a, mask, value: where(mask, value, a)",
        "lerp": "a, end, weight: a + weight * (end - a)",
        "addcmul": "a, b, c: a + b * c",
        "clamp_min": "a, min: max(a, min)",
        "clamp_max": "a, max: min(a, max)",
        "outer": "a, other: a[:, None] * other[None, :]",
        "matmul": "a, other: a @ other",
        "dot": "a, other: a @ other",
        "zeros_like": "a: 0",
        "ones_like": "a: 1",
        "linear": "a, weight: a @ weight.T",
        "embedding": "idx, weight: weight[idx]",
        "cumsum": "a, dim: cumulated('sum', a, dim)",
        "cumprod": "a, dim: cumulated('prod', a, dim)",
        "var": "a, dim=None, keepdim=False, unbiased=True, correction=1:"
        " sum((a - mean(a, dim, True)) ** 2, dim, keepdim)"
        " / (terms(a, dim) - correction if unbiased else terms(a, dim))",
        "std": "a, dim=None, keepdim=False, unbiased=True, correction=1:"
        " sqrt(var(a, dim, keepdim, unbiased, correction))",
        "norm": "a, p=2, dim=None, keepdim=False: sqrt(sum(a ** 2, dim, keepdim))",
        "softmax": "a, dim=-1: exp(a - max(a, dim=dim, keepdim=True))"
        " / sum(exp(a - max(a, dim=dim, keepdim=True)), dim, True)",
        "log_softmax": "a, dim=-1: a - logsumexp(a, dim, True)",
        "logsumexp": "a, dim=-1, keepdim=False: max(a, dim=dim, keepdim=keepdim)"
        " + log(sum(exp(a - max(a, dim=dim, keepdim=True)), dim, keepdim))",
        "scaled_dot_product_attention": "q, k, v, is_causal=False:"
        " softmax(causal(q @ k.mT / sqrt(q.shape[-1]), is_causal), -1) @ v",
        "cross_entropy": "a, target: mean(logsumexp(a, -1) - picked(a, target))",
        "nll_loss": "a, target: -mean(picked(a, target))",
        "mse_loss": "a, other: mean((a - other) ** 2)",
        "l1_loss": "a, other: mean(abs(a - other))",
    }.items()
}
MATHEMATICS = {  # characters that are not ASCII
    "Σ": "sum", "∑": "sum", "Π": "prod", "∏": "prod", "√": "sqrt ", "σ": "sigmoid", "∞": "inf", "×": "*", "·": "*", "⋅": "*",
    "⊙": "*", "÷": "/", "−": "-", "–": "-", "≤": "<=", "≥": ">=", "≠": "!=", "²": "**2", "³": "**3", "∧": "and ", "∨": "or ",
    "¬": "not ", "…": "...", "→": "->", "“": '"', "”": '"', "‘": "'", "’": "'",
}  # fmt: skip
UNFIT = {  # functions without a form of their own, and what takes their place
    **dict.fromkeys(
        "view reshape flatten ravel unflatten".split(),
        "another shape is arithmetic on indices: `y[i] = x[i // D, i % D]`",
    ),
    **dict.fromkeys(
        "cat concat concatenate stack hstack vstack".split(),
        "parts are put together by `where`: `where(i < A, a[i] else 0, b[i - A] else 0)`",
    ),
    **dict.fromkeys(
        "gather index_select take gather_nd".split(),
        "a gather is a read: `y[n, d] = x[i[n], d] else 0`",
    ),
    **dict.fromkeys(
        "scatter scatter_add scatter_reduce index_add index_put scatter_nd".split(),
        "a scatter sums what may land at a place: `y[v] = sum[n](where(i[n] == v, x[n], 0))`",
    ),
    **dict.fromkeys(
        "tile repeat repeat_interleave".split(),
        "an index may read an element again: `y[p] = x[p % N]`, `y[p] = x[p // 2]`",
    ),
    "pad": "`else` gives the value outside: `y[p] = x[p - 1] else 0`",
    "tril": "a condition on indices picks elements: `where(j <= i, x[i, j], 0)`",
    "triu": "a condition on indices picks elements: `where(j >= i, x[i, j], 0)`",
    "one_hot": "a comparison with an index is one hot: `y[n, v] = where(i[n] == v, 1, 0)`",
    **dict.fromkeys("arange iota linspace".split(), "an index is a value: `y[n] = x[n] * n`"),
    **dict.fromkeys(
        "zeros ones full empty eye".split(), "a number needs no tensor: `y[n] = 0 * x[n] + 1`"
    ),
    **dict.fromkeys(
        "load store program_id".split(),
        "a spec says what is computed: reads and writes are `x[i]` and `y[i] = ...`",
    ),
    **dict.fromkeys(
        "dropout rand randn bernoulli rand_like".split(), "pass what is drawn as an operand"
    ),
    **dict.fromkeys(
        "sort topk argsort unique nonzero median quantile mode".split(),
        "the language does not sort",
    ),
}

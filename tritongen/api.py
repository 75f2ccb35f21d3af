"""The Python API: turns a spec file, a text or an expression into functions that run.

    f = compile_expr("max(x, 0)")                 # operands in order of appearance
    g = compile_op("op relu<T: float>(x: T[...]) -> y: T[...] { y = max(x, 0) }")
    ops = load("specs/softmax.op")
    ops.softmax(x)

You call the results like functions. They have `.spec`, `.source`, `.explain` and `.reference` (the body in torch). CPU
tensors run the spec's `ref` if there is one. The same text compiles once per process. The compiler itself is
`pipeline.py`; `runtime/load.py` imports the generated modules.
"""

from __future__ import annotations

import functools
import inspect
import os
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from tritongen import explain, pipeline
from tritongen.autodiff import derived_again, gradient_to_derive
from tritongen.emit.op_plans import OpPlans
from tritongen.emit.wrapper import parameters
from tritongen.errors import Diagnostic, NoBlack, SpecError
from tritongen.expression import NUMBERS, Argument, Draft, text_of
from tritongen.faults import doing, reporting
from tritongen.ir.binding import dtype_name, typing_of
from tritongen.ir.dtypes import DTYPES
from tritongen.ir.nodes import Op
from tritongen.ir.print import print_op
from tritongen.ir.print_poly import NotWritable
from tritongen.lib import runs_kernels
from tritongen.runtime.kinds import wants_gradient
from tritongen.runtime.load import load_file, load_text
from tritongen.syntax import ast
from tritongen.syntax.limits import read_source
from tritongen.syntax.parse import parse
from tritongen.trace import at_hand

CASTS = tuple(DTYPES)

_lock = (
    threading.RLock()
)  # a forked child gets a new one: the thread that held it does not exist there
_compiled: dict[tuple[str, str, Op | None], Ops] = {}
_expressions: dict[str, Expression] = {}


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class CompiledOp:
    """One compiled op. Call it with tensors, by position or by name.

    A call checks its operands: dtypes against the type parameters, dims against the sizes, and the facts of the spec.
    Operands may have any strides, and must share one device. A call that does not fit raises ValueError or TypeError,
    which name the operand, what was expected and what was given. The result is a tensor, or a tuple of tensors in the
    order of the spec's outputs.

    CUDA tensors run the kernels. CPU tensors run the spec's `ref`, or the body in torch if there is none. With
    TRITON_INTERPRET=1 they run the kernels in Triton's interpreter.

    Attributes:
        spec: the text of the spec.
        reference: the body as a torch function, with the same signature.
    """

    __name__: str
    _PUBLIC = ("explain", "reference", "source", "spec")

    def __init__(self, function: Any, spec: str, file: str, op: Op | None = None):
        functools.update_wrapper(self, function)
        self._function = function
        self._file = file
        self.spec = spec
        self.reference = function.reference
        self.__doc__ = _documented(function.__doc__ or "", spec)
        self._differentiable = function  # replaced when `_derive` runs
        self._derive: Callable[[], None] | None = _deriving(self, op)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        derive = self._derive  # another thread may be done with it between two reads
        if derive is not None and wants_gradient((*args, *kwargs.values())):
            derive()
            if not torch.compiler.is_compiling():
                self._function, self._derive = self._differentiable, None
            return self._differentiable(*args, **kwargs)
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        """`<op softmax(x: Tensor) -> Tensor>`: how it is called."""
        return f"<op {self.__name__}{_signature(self._function)}>"

    def __dir__(self) -> list[str]:
        """What is documented."""
        return [*self._PUBLIC, *(n for n in object.__dir__(self) if n.startswith("__"))]

    def _repr_html_(self) -> str:
        from tritongen.notebook import op_html

        return op_html(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is the same op. A pickle holds the text."""
        return _recompiled, (self.spec, self._file, self.__name__)

    @property
    def source(self) -> str:
        """The text of the generated module, as `tritongen build` writes it."""
        return _source(self.spec, self._file)

    def explain(self, /, *args: Any, **kwargs: Any) -> str:
        """Says which kernel each step of this call would run, and why. Takes the arguments of the call; runs nothing."""
        built = pipeline.build(self.spec, self._file, gradients=True)
        values = _by_name(self._function, args, kwargs)
        plans = built.plans[self.__name__]
        op = typing_of([p.op for p in plans], values)
        plan = next(p for p in plans if p.op is op)
        devices = [v.device for v in values.values() if isinstance(v, torch.Tensor) and v.is_cuda]
        gpu = at_hand(devices[0] if devices else None)
        forward, module = built.forwards.get(self.__name__), load_text(built.name, built.raw)
        found = explain.text(explain.explain_call(module, plan, values, gpu, forward=forward))
        if devices or runs_kernels(next(iter(v for v in values.values() if torch.is_tensor(v)))):
            return found
        return f"{_ON_CPU.format(_by_what(self))}\n\n{found}"


_ON_CPU = "On CPU tensors no kernel runs: this call computes {} in torch. On a GPU it would run:"


def _by_what(op: CompiledOp) -> str:
    """Whether a call on CPU tensors goes through the `ref` of a spec, or through its body."""
    file = parse(op.spec, op._file, proposals=False)
    own = next(item for item in file.items if item.name == op.__name__)
    has_ref = any(isinstance(clause, ast.Ref) for clause in getattr(own, "clauses", ()))
    return "the `ref` of its spec" if has_ref else "the body of its spec"


class Ops:
    """The ops of one spec file, as attributes. Iterating gives each `CompiledOp`."""

    def __init__(self, name: str, ops: dict[str, CompiledOp]):
        self.__name__ = name
        self._ops = ops
        self.__dict__.update(ops)

    def __iter__(self) -> Iterator[CompiledOp]:
        return iter(self._ops.values())

    def __repr__(self) -> str:
        return f"<ops {', '.join(self._ops)} of {self.__name__}>"


class Expression:
    """A compiled expression. Call it with its operands in order of appearance, or by name.

    Each operand is a tensor or a Python number. The first call with a new combination of dtypes compiles an op for it.
    The result has the promoted dtype of the floating operands, or the dtype that the expression casts to.

    Raises TypeError if an argument is missing, or is neither a tensor nor a number. Raises ValueError if the shapes do
    not fit.
    """

    def __init__(self, text: str):
        self.spec = text
        self._draft = Draft(text)
        self._names = tuple(use.name for use in self._draft.uses)
        self._ops: dict[tuple[Any, ...], CompiledOp] = {}
        self._kind = _kind_and_rank if self._draft.by_rank else _kind

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != len(self._names):
            args = self._positional(args, kwargs)
        key = tuple([self._kind(a) for a in args])
        if torch.compiler.is_compiling():
            return getattr(self, self._named(key))(*args)
        op = self._ops.get(key)
        if op is None:
            op = self._compile(key)
        return op(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return compile_expr, (self.spec,)

    def __repr__(self) -> str:
        return f"<expression {self.spec!r} of {', '.join(self._names)}>"

    @property
    def source(self) -> str:
        """The text of the module for f32 operands. Operands that the text uses as coordinates are i64."""
        return self._default.source

    @property
    def reference(self) -> Callable[..., Any]:
        """The expression as a torch function, for operands of the same dtypes as `source`."""
        return self._default.reference

    def explain(self, /, *args: Any, **kwargs: Any) -> str:
        """Says which kernel each step of this call would run, and why. Runs nothing."""
        args = self._positional(args, kwargs)
        return self._compile(tuple(self._kind(a) for a in args)).explain(*args)

    @functools.cached_property
    def _default(self) -> CompiledOp:
        constants = {"int": int, "float": float, "bool": bool}
        key = (
            constants.get(u.constant, torch.int64 if u.is_integer else torch.float32)
            for u in self._draft.uses
        )
        return self._compile(tuple(key))

    def _positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        rest = self._names[len(args) :]
        if len(args) > len(self._names) or set(rest) != set(kwargs):
            raise TypeError(
                f"{self.spec!r} takes {', '.join(self._names) or 'nothing'}; "
                f"given {len(args)} by position, {', '.join(kwargs) or 'none'} by name"
            )
        return (*args, *(kwargs[name] for name in rest))

    def _named(self, key: tuple[Any, ...]) -> str:
        """The attribute that holds the op of these kinds of arguments. It runs while a graph is traced, which then has no break."""
        op = self._compile(key)
        name = f"_op_{[*self._ops].index(key)}"
        setattr(self, name, op)
        return name

    _named._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as in runtime/precision.py

    def _compile(self, key: tuple[Any, ...]) -> CompiledOp:
        with _lock:
            if key not in self._ops:
                named = zip(key, self._names, strict=True)
                arguments = tuple(_argument(kind, name) for kind, name in named)
                if not any(a.is_tensor for a in arguments):
                    raise TypeError(f"{self.spec!r} needs a tensor; given numbers only")
                value = self._draft.value(arguments)
                op = self._draft.op(arguments, _result(self._draft, arguments, value.dtype), value)
                (self._ops[key],) = _compile(text_of(op), "<text>")
            return self._ops[key]


def compile_expr(text: str) -> Expression:
    """Compiles an expression, or several lines, to a function of its operands.

    Args:
        text: an expression such as `"max(x, 0) * scale"`, or lines such as `"y[m] = sum[k](a[m, k] * b[k])"`. Its
            operands are the names that it does not define, in order of appearance. Indices give an operand its rank;
            without indices it may have any rank, and operands broadcast.

    Returns:
        An `Expression`. The same text gives the same object.

    Raises:
        SpecError: the text has errors.
        TypeError: `text` is not a string.

    Example:
        >>> f = tritongen.compile_expr("max(x, 0) * scale")
        >>> f(torch.tensor([-1.0, 2.0]), 3.0)
        tensor([0., 6.])
    """
    if not isinstance(text, str):
        raise TypeError(f"an expression is a text, given {type(text).__name__}")
    found = _expressions.get(text)
    if found is None:
        with _lock:
            found = _expressions.setdefault(text, Expression(text))
    return found


def compile_op(text: str, name: str | None = None) -> CompiledOp:
    """Compiles the text of a spec, and gives one of its ops.

    Args:
        text: the text of a spec. For a file use `load`.
        name: the name of the op. You may leave it out if the text holds one op.

    Returns:
        A `CompiledOp`. Its gradient is derived when it is first needed.

    Raises:
        SpecError: the text has errors, or holds no op called `name`.
        TypeError: `text` is not a string.
    """
    if not isinstance(text, str):
        raise TypeError(f"a spec is a text, given {type(text).__name__}; a file is for `load`")
    ops = {op.__name__: op for op in _compile(text, "<text>")}
    if name is None and len(ops) == 1:
        return next(iter(ops.values()))
    if name not in ops:
        wanted = "several ops" if name is None else f"no op `{name}`"
        message = f"the text holds {wanted}: {', '.join(ops) or 'none at all'}"
        raise SpecError([Diagnostic("E113", message, help="pass `name=`")])
    return ops[name]


def load(path: str | os.PathLike[str]) -> Any:
    """Loads the ops of a spec file.

    Args:
        path: a spec file, or a generated `.py` file.

    Returns:
        An object whose attributes are the ops of the file (`CompiledOp`). For a `.py` file, the module.

    Raises:
        SpecError: the spec has errors, or cannot be read.
    """
    if Path(path).suffix == ".py":
        return load_file(path)
    return _compile(read_source(Path(path)).text, str(path))


def _compile(text: str, name: str, op: Op | None = None) -> Ops:
    key = (text, name, op)
    found = _compiled.get(key)
    if found is not None:
        return found
    with _lock:
        if key not in _compiled:
            built = pipeline.build(text, name, op=op)
            with reporting(name, text), doing("import"):
                module = load_text(built.name, built.raw)
            ops = {n: CompiledOp(getattr(module, n), text, name, op) for n in built.plans}
            _compiled[key] = Ops(name, ops)
        return _compiled[key]


def _deriving(op: CompiledOp, meant: Op | None) -> Callable[[], None]:
    """Returns a function that builds an op again, with its gradient. That takes several times as long, so it waits until one is wanted."""

    def derive() -> None:
        with _lock:
            built = pipeline.build(op.spec, op._file, gradients=True, again=True, op=meant)
            module = load_text(built.name, built.raw)
            for item in built.items:
                _let_derive_again(module, item)
            op._differentiable = getattr(module, op.__name__)

    derive._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as in runtime/precision.py
    return derive


def _let_derive_again(module: ModuleType, item: OpPlans) -> None:
    """Enables second derivatives: if a gradient is wanted of an op's gradient, that gradient is compiled as an op with its own gradient."""
    behind = (item.forward or item).backward
    if behind is None or getattr(module, behind.name).again:
        return
    back = behind.typings[0]
    op = derived_again(item.differentiated, (item.forward or item).differentiated)
    names = [*(name for name, _, _ in parameters(back)), *behind.flags.values()]

    @functools.cache
    def compiled(*wanted: str) -> tuple[CompiledOp, dict[str, str], list[str]]:
        try:
            derivable, were = gradient_to_derive(op, wanted, names)
            try:
                text = print_op(derivable)
            except NotWritable as why:
                text = f"# {derivable.name} has no text: {why}"
            (twice,) = _compile(text, "<text>", derivable)
        except SpecError as error:
            raise RuntimeError(f"{back.name}: no second derivative: {error}") from None
        taken = {t.name: were.get(t.name, t.name) for t in derivable.params}
        given = [were.get(t.name, t.name) for t in derivable.outputs]
        if missing := set(taken.values()) - set(names):
            reason = f"{item.name} does not keep {', '.join(sorted(missing))}"
            raise RuntimeError(f"{back.name}: no second derivative: {reason}")
        return twice, taken, given

    incoming = {f"d{o.name}" for o in item.differentiated.outputs} & {*names}

    def again(*values: Any) -> Any:
        known = dict(zip(names, values, strict=True))
        if incoming and not any(known[name].numel() for name in incoming):
            return _constant(getattr(module, behind.name), values)
        # The gradient of one that nobody asks for is 0 times its terms: NaN where these are infinite.
        needs = (known.get(behind.flags.get(o.name, ""), True) for o in back.outputs)
        asked = [o.name[1:] for o, need in zip(back.outputs, needs, strict=True) if need]
        twice, taken, given = compiled(*asked)
        found = twice(**{name: known[was] for name, was in taken.items()})
        results = dict(zip(given, found if isinstance(found, tuple) else (found,), strict=True))
        every = tuple(results.get(o.name) for o in back.outputs)
        return every if len(every) > 1 else every[0]

    getattr(module, behind.name).again.append(again)


def _constant(back: Callable[..., Any], values: Sequence[Any]) -> Any:
    """A gradient of results without elements: it is 0 whatever the operands are, though a mean of theirs may be NaN."""
    with torch.no_grad():
        found = back(*values)
    zero: Any = sum(v.flatten()[:0].sum() for v in values if torch.is_tensor(v) and v.requires_grad)
    every = [
        None if g is None else g + zero.to(g)
        for g in (found if isinstance(found, tuple) else (found,))
    ]
    return tuple(every) if isinstance(found, tuple) else every[0]


def _signature(function: Any) -> str:
    return str(inspect.signature(function)).replace("torch.", "").replace("'", "")


def _documented(doc: str, spec: str) -> str:
    """What `help` shows: the signature in words, and the spec."""
    return f"{inspect.cleandoc(doc)}\n\nIts spec:\n\n{textwrap.indent(spec.strip(), '    ')}\n"


@functools.lru_cache(maxsize=16)
def _source(text: str, file: str) -> str:
    built = pipeline.build(text, file, gradients=True)
    try:
        return built.source
    except NoBlack:  # which `build` needs, and nothing that runs
        return built.raw


def _recompiled(text: str, file: str, name: str) -> CompiledOp:
    return getattr(_compile(text, file), name)


# ---- the types of a call's arguments --------------------------------------------------------------
def _kind(value: Any) -> Any:
    """The key of an argument: the dtype of a tensor (with its rank if that is 0), or the type of a number."""
    if isinstance(value, torch.Tensor):
        return value.dtype if value.dim() else (value.dtype, 0)
    return type(value)


def _kind_and_rank(value: Any) -> Any:
    return (value.dtype, value.dim()) if isinstance(value, torch.Tensor) else type(value)


def _argument(kind: Any, name: str) -> Argument:
    dtype = kind[0] if isinstance(kind, tuple) else kind
    if isinstance(dtype, torch.dtype) and dtype_name(dtype) not in DTYPES:
        raise TypeError(f"{name}: expected one of {', '.join(DTYPES)}, given a tensor of {dtype}")
    if isinstance(kind, tuple):
        return Argument(dtype_name(kind[0]), is_tensor=True, rank=kind[1])
    if isinstance(kind, torch.dtype):
        return Argument(dtype_name(kind), is_tensor=True)
    if kind not in NUMBERS:
        given = f"{name}: expected a tensor or a number, given {kind.__name__}"
        raise TypeError(f"{given}: {_remedy(kind, name)}" if _remedy(kind, name) else given)
    return Argument(NUMBERS[kind], is_tensor=False)


def _remedy(kind: type, name: str) -> str:
    if kind.__module__.partition(".")[0] == "numpy":
        return (
            f"pass torch.from_numpy({name})"
            if kind.__name__ == "ndarray"
            else f"pass {name}.item()"
        )
    return f"pass torch.tensor({name})" if kind in (list, tuple) else ""


def _result(draft: Draft, arguments: tuple[Argument, ...], dtype: str) -> str:
    """The dtype of the output: the promoted dtype of the floating operands, or what the expression casts to."""
    value = draft.lines[-1].value
    if isinstance(value, ast.Call) and value.name in CASTS:
        return value.name
    if dtype != "compute":
        return dtype
    floats = [
        (a, use.name)
        for a, use in zip(arguments, draft.uses, strict=True)
        if a.is_tensor and a.dtype.startswith(("f", "bf")) and draft.takes_tensor(use)
    ]
    strong = [pair for pair in floats if not pair[0].is_rank0] or floats
    dtypes = {a.dtype for a, _ in strong}
    wide = next((d for d in ("f64", "f32") if d in dtypes), None)
    promoted = dtypes.pop() if len(dtypes) == 1 else wide or "f32"
    return next((name for a, name in floats if a.dtype == promoted), promoted)


def _by_name(function: Callable[..., Any], args: tuple, kwargs: dict) -> dict[str, Any]:
    return inspect.signature(function).bind(*args, **kwargs).arguments

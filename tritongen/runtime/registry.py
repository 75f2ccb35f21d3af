"""The decorator of a generated op: the function itself where that is right, else a registered torch op.

    @runtime.op("specs/softmax.op", allocate=allocate_softmax, reference=softmax_reference)
    def softmax(x: torch.Tensor) -> torch.Tensor: ...

A plain eager call runs the function, or launches what it launched for a like call (`replay.py`).
torch.compile, export, fake tensors, functorch, forward-mode AD, tracing, tensor subclasses and calls
that want a gradient go to the torch op `tritongen::softmax_<hash>`, whose fake implementation is
`allocate` and whose backward raises unless the op was given one. The hash is that of the module's
text, so one text is registered once.

Not here: checks and launches (the generated function), the gradient itself (`Backward.function`).
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import linecache
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import forward_ad

from tritongen.runtime import tuned
from tritongen.runtime.autocast import cast, disabled
from tritongen.runtime.precision import SWITCHES, decided, f32_precision
from tritongen.runtime.replay import Replay

_LIBRARY = torch.library.Library("tritongen", "FRAGMENT")
_REGISTERED: dict[str, Callable[..., Any]] = {}
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})

_is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled
_dispatch_modes = torch._C._len_torch_dispatch_stack
_functorch_level = torch._C._functorch.peek_interpreter_stack
_tracing_state = torch._C._get_tracing_state


@dataclass(frozen=True, slots=True)
class Backward:
    """How an op is differentiated: `function(...)` gives the gradients of the operands in `wrt`, in order.

    Its parameters are named: an operand, scalar or constant as in the op, an output as in `outputs`,
    the gradient of output `y` as `dy`. Tensors that it names are saved by the forward call.
    """

    function: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]
    wrt: tuple[str, ...]
    outputs: tuple[str, ...] = ("y",)


def op(
    spec: str,
    *,
    allocate: Callable[..., Any],
    reference: Callable[..., Any],
    equals: Callable[..., Any] | None = None,
    backward: Backward | None = None,
    autocast: str = "",
    precision: tuple[str, ...] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates the function of one generated op; `allocate` and `reference` take its parameters.

    `equals`: the spec's `ref`. `autocast`: "low" or "f32", where the spec says what torch.autocast makes of
    the operands. `precision`: what the function asks `f32_precision`; the torch op takes the answers as arguments.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        source = "".join(linecache.getlines(function.__code__.co_filename))
        replay = Replay(function, _scalars(function), precision)
        registered = _register(replay, allocate, backward, source)
        tuned.install(function.__globals__, function.__name__, source)

        def call(*args: Any, **kwargs: Any) -> Any:
            if autocast:
                args, kwargs = cast(args, kwargs, autocast)
            if _is_compiling():
                return registered(*args, **kwargs)
            try:
                return eager(*args, **kwargs)
            except (AttributeError, ValueError):
                _expect_tensors(function, args, kwargs)
                raise

        def otherwise(*args: Any, **kwargs: Any) -> Any:
            if not _eager(args) or (kwargs and not _eager(kwargs.values())):
                return registered(*args, **kwargs)
            with disabled():
                return function(*args, **kwargs)

        eager = replay.over(otherwise)
        # Code of its own: torch.compile counts recompilations per code object, not per function.
        call.__code__ = call.__code__.replace(co_name=function.__name__)
        functools.update_wrapper(call, function)
        vars(call).update(
            spec=spec, source=source, reference=reference, equals=equals, replay=replay
        )
        return call

    return decorate


def _scalars(function: Callable[..., Any]) -> frozenset[str]:
    """Parameters that are numbers at run time: they reach kernels as they are, and decide nothing."""
    params = inspect.signature(function, eval_str=True).parameters.values()
    return frozenset(p.name for p in params if _param(p).kind == "optional")


def _eager(values: Iterable[Any]) -> bool:
    """Whether calling the function itself on these is all that is asked for."""
    grad = _is_grad_enabled()
    for value in values:
        if isinstance(value, torch.Tensor):
            if type(value) not in _PLAIN or (grad and value.requires_grad):
                return False
            if value.is_neg() or value.is_meta:  # memory holds the opposite, or there is none
                return False
    return (
        _dispatch_modes() == 0
        and _functorch_level() is None
        and forward_ad._current_level < 0
        and _tracing_state() is None
    )


def _expect_tensors(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict) -> None:
    """TypeError where a call gave something else for a tensor; asked only once it has failed."""
    params = inspect.signature(function, eval_str=True)
    for name, value in params.bind(*args, **kwargs).arguments.items():
        wants_tensor = params.parameters[name].annotation is torch.Tensor
        if wants_tensor and not isinstance(value, torch.Tensor):
            given = type(value).__name__
            raise TypeError(
                f"{function.__name__}: {name}: expected a tensor, given {given}"
            ) from None


# ---- the torch op -------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Param:
    """One parameter: a "tensor", "optional" (a run-time scalar: a number or a 0-dim tensor), or a constant."""

    name: str
    kind: str
    type: str  # in the schema
    default: Any


def _register(
    replay: Replay,
    allocate: Callable[..., Any],
    backward: Backward | None,
    source: str,
) -> Callable[..., Any]:
    """The registered torch op behind the function's own signature."""
    function = replay.function
    below = replay.over(function)
    name = f"{function.__name__}_{_digest(function, source)}"
    if name in _REGISTERED:
        return _REGISTERED[name]
    signature = inspect.signature(function, eval_str=True)
    params = tuple(_param(p) for p in signature.parameters.values())
    returns = _returns(signature.return_annotation)
    schema = _schema(params, replay.precision)
    _LIBRARY.define(f"{name}({schema}) -> {returns}", tags=(torch.Tag.pt2_compliant_tag,))
    qualname = f"tritongen::{name}"

    def run(*values: Any) -> Any:
        # Autograd is behind us, and asks nothing of what is launched.
        with torch.no_grad(), decided(_answers(replay.precision, values)):
            return below(*_merge(params, values))

    def run_reference(*values: Any) -> Any:
        args = _merge(params, values)
        with disabled():
            return _settle(function(*args), allocate(*args))

    def fake(*values: Any) -> Any:
        return allocate(*_merge(params, values))

    _LIBRARY.impl(name, run, "CUDA")
    _LIBRARY.impl(name, run_reference, "CPU")
    torch.library.register_fake(qualname, fake, lib=_LIBRARY)
    setup_context, run_backward = _gradient(function.__name__, params, backward, replay.precision)
    torch.library.register_autograd(
        qualname, run_backward, setup_context=setup_context, lib=_LIBRARY
    )
    overload = getattr(torch.ops.tritongen, name).default
    transformed = _autograd_function(function.__name__, overload, setup_context, run_backward)

    def registered(*args: Any, **kwargs: Any) -> Any:
        values = _split(function.__name__, params, args, kwargs)
        values += [f32_precision(asked) for asked in replay.precision]
        # What torch makes of register_autograd refuses functorch's grad, and drops a forward tangent.
        if not _is_compiling() and (_functorch_level() or forward_ad._current_level >= 0):
            return transformed.apply(*values)
        return overload(*values)

    _REGISTERED[name] = registered
    return registered


def _digest(function: Callable[..., Any], source: str) -> str:
    """Eight hex digits that differ where the module's text or the function's place in it does."""
    text = source or repr((function.__code__.co_code, function.__code__.co_consts))
    return hashlib.sha256(f"{function.__qualname__}\n{text}".encode()).hexdigest()[:8]


def _param(p: inspect.Parameter) -> _Param:
    if p.annotation is torch.Tensor:
        return _Param(p.name, "tensor", "Tensor", p.default)
    if p.annotation is torch.dtype:
        return _Param(p.name, "constant", "ScalarType", p.default)
    if p.annotation in (int, float, bool):
        type_ = p.annotation.__name__
        return _Param(p.name, "constant", type_, p.default)
    numbers = [t for t in getattr(p.annotation, "__args__", ()) if t in (int, float, bool)]
    if len(numbers) == 1 and torch.Tensor in p.annotation.__args__:
        type_ = {int: "SymInt", float: "float", bool: "bool"}[numbers[0]]
        return _Param(p.name, "optional", type_, p.default)
    raise TypeError(f"parameter {p.name}: no torch schema for the annotation {p.annotation!r}")


def _returns(annotation: Any) -> str:
    if annotation is torch.Tensor:
        return "Tensor"
    parts = getattr(annotation, "__args__", ())
    if parts and all(t is torch.Tensor for t in parts):
        return f"({', '.join(['Tensor'] * len(parts))})"
    raise TypeError(f"no torch schema for the result annotation {annotation!r}")


def _answers(asked: tuple[str, ...], values: Sequence[Any]) -> dict[str, str]:
    """The last arguments of the torch op, by what they answer."""
    return dict(zip(asked, values[len(values) - len(asked) :], strict=True))


def _schema(params: tuple[_Param, ...], precision: tuple[str, ...]) -> str:
    """All values by position; a scalar takes two: the number, and the 0-dim tensor in its place."""
    slots = []
    for i, p in enumerate(params):
        slots.append(f"{p.type} a{i}")
        if p.kind == "optional":
            slots.append(f"Tensor? a{i}_tensor")
    slots += [f"str precision{i}" for i in range(len(precision))]
    return ", ".join(slots)


def _split(name: str, params: tuple[_Param, ...], args: Sequence[Any], kwargs: dict) -> list[Any]:
    """The values of a call as the schema wants them."""
    if len(args) > len(params):
        raise TypeError(f"{name}() takes {len(params)} arguments but {len(args)} were given")
    rest = dict(kwargs)
    values: list[Any] = []
    for i, p in enumerate(params):
        if i < len(args):
            value = args[i]
        elif p.name in rest:
            value = rest.pop(p.name)
        elif p.default is not inspect.Parameter.empty:
            value = p.default
        else:
            raise TypeError(f"{name}() missing the argument {p.name!r}")
        if p.kind == "optional" and isinstance(value, torch.Tensor):
            values += [False if p.type == "bool" else 0, value]
        elif p.kind == "optional":
            values += [value, None]
        else:
            values.append(value)
    if rest:
        raise TypeError(f"{name}() got an unexpected or repeated argument {next(iter(rest))!r}")
    return values


def _merge(params: tuple[_Param, ...], values: Sequence[Any]) -> list[Any]:
    """The inverse of `_split`: what the function's own parameters take."""
    rest = iter(values)
    args = []
    for p in params:
        value = next(rest)
        if p.kind == "optional":
            tensor = next(rest)
            value = value if tensor is None else tensor
        args.append(value)
    return args


def _settle(given: Any, allocated: Any) -> Any:
    """The reference's results laid out as `allocate` promised, and never an alias of an operand."""
    if isinstance(allocated, torch.Tensor):
        return allocated.copy_(given)
    return tuple(a.copy_(g) for g, a in zip(given, allocated, strict=True))


# ---- gradients ----------------------------------------------------------------------------------
def _gradient(
    name: str, params: tuple[_Param, ...], backward: Backward | None, precision: tuple[str, ...]
) -> tuple[Callable[..., None], Callable[..., Any]]:
    """`setup_context` and `backward`, as torch.library and torch.autograd.Function take them."""
    if backward is None:

        def refuse(ctx: Any, *gradients: Any) -> Any:
            raise RuntimeError(
                f"{name}: no backward yet: call it under torch.no_grad(), or detach its operands"
            )

        return lambda ctx, inputs, output: None, refuse

    wanted = tuple(inspect.signature(backward.function).parameters)
    gradient_names = tuple(f"d{output}" for output in backward.outputs)

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        known = dict(zip((p.name for p in params), _merge(params, inputs), strict=True))
        known.update(zip(backward.outputs, outputs, strict=True))
        kept = {k: v for k, v in known.items() if k in wanted}
        ctx.saved_names = [k for k, v in kept.items() if isinstance(v, torch.Tensor)]
        ctx.save_for_backward(*(kept[k] for k in ctx.saved_names))
        ctx.numbers = {k: v for k, v in kept.items() if not isinstance(v, torch.Tensor)}
        ctx.given = [isinstance(v, torch.Tensor) for v in inputs]
        answers = _answers(precision, inputs)
        # Where the backward asks the other switch, it is as precise as the forward.
        ctx.precision = (
            {**dict.fromkeys(SWITCHES, *answers.values()), **answers}
            if len(answers) == 1
            else answers
        )

    def run_backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        known = dict(zip(ctx.saved_names, ctx.saved_tensors, strict=True)) | ctx.numbers
        named = zip(gradient_names, gradients, strict=True)
        known.update((k, g) for k, g in named if k in wanted)
        with decided(ctx.precision):
            results = backward.function(**known)
        results = results if isinstance(results, tuple) else (results,)
        by_name = dict(zip(backward.wrt, results, strict=True))
        slots: list[Any] = []
        for p in params:
            slots.append(by_name.get(p.name) if p.kind == "tensor" else None)
            if p.kind == "optional":
                slots.append(by_name.get(p.name) if ctx.given[len(slots)] else None)
        return (*slots, *(None for _ in precision))

    return setup_context, run_backward


def _autograd_function(
    name: str, overload: Callable[..., Any], setup_context: Callable, run_backward: Callable
) -> type[torch.autograd.Function]:
    def refuse_tangent(ctx: Any, *tangents: Any) -> Any:
        raise RuntimeError(f"{name}: no forward-mode derivative: use reverse mode")

    return type(
        "GeneratedOp",
        (torch.autograd.Function,),
        {
            "generate_vmap_rule": True,
            "forward": staticmethod(overload),
            "setup_context": staticmethod(setup_context),
            "backward": staticmethod(run_backward),
            "jvp": staticmethod(refuse_tangent),
        },
    )

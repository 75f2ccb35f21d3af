"""The decorator of a generated op: the function itself where that is right, else a registered torch op.

    @runtime.op("specs/softmax.op", allocate=allocate_softmax, reference=softmax_reference)
    def softmax(x: torch.Tensor) -> torch.Tensor: ...

A plain eager call runs the function, or launches what it launched for a like call (`replay.py`).
A call that wants a gradient does the same behind an autograd.Function. torch.compile, export, fake tensors,
functorch, forward-mode AD, tracing and tensor subclasses go to the torch op `tritongen::softmax_<hash>`, whose
fake implementation is `allocate`. The hash is that of the module's text, so one text is registered once.

Not here: checks and launches (the generated function), what a gradient saves and calls (`gradients.py`).
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import linecache
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch.autograd import forward_ad

from tritongen.runtime import tuned
from tritongen.runtime.autocast import cast, disabled
from tritongen.runtime.functional import Batch, transformed, vmap_rule
from tritongen.runtime.gradients import Backward, first_results, keep_and_pull, without
from tritongen.runtime.precision import SWITCHES, answers_to, decided, f32_precision
from tritongen.runtime.replay import Replay

_LIBRARY = torch.library.Library("tritongen", "FRAGMENT")
_REGISTERED: dict[str, Callable[..., Any]] = {}
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})

_is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled
_dispatch_modes = torch._C._len_torch_dispatch_stack
_functorch_level = torch._C._functorch.peek_interpreter_stack
_tracing_state = torch._C._get_tracing_state


def op(
    spec: str,
    *,
    allocate: Callable[..., Any],
    reference: Callable[..., Any],
    equals: Callable[..., Any] | None = None,
    backward: Backward | None = None,
    forward: str = "",
    no_gradient: str = "it was given none",
    autocast: str = "",
    precision: tuple[str, ...] = (),
    batch: Batch | None = None,
    linear: tuple[tuple[str, ...], ...] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates the function of one generated op; `allocate` and `reference` take its parameters.

    `equals`: the spec's `ref`. `backward`: its gradient, or `no_gradient`: why there is none. `forward`: the op of
    its module that runs in its place where a gradient is wanted: the same results, and what it keeps for that.
    `autocast`: "low" or "f32", where the spec says what torch.autocast makes of the operands. `precision`: what the
    function asks `f32_precision`; the torch op takes the answers as arguments. `batch`: for vmap, where one launch may
    do for all entries. `linear`: for forward mode, operands in which it is linear together.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        source = "".join(linecache.getlines(function.__code__.co_filename))
        replay = Replay(function, _scalars(function), precision)
        params = _params(function)
        registered = _register(
            replay, allocate, params, backward, no_gradient, batch, linear, source
        )
        differentiable = _differentiable(replay, params, backward, no_gradient)
        tuned.install(function.__globals__, function.__name__, source)

        def call(*args: Any, **kwargs: Any) -> Any:
            if autocast:
                args, kwargs = cast(args, kwargs, autocast)
            if _is_compiling():
                if (
                    keeping is not None
                    and _is_grad_enabled()
                    and _wants_gradient((*args, *kwargs.values()))
                ):
                    return keeping(*args, **kwargs)
                return registered(*args, **kwargs)
            try:
                return eager(*args, **kwargs)
            except (AttributeError, ValueError):
                _expect_tensors(function, args, kwargs)
                raise

        def otherwise(*args: Any, **kwargs: Any) -> Any:
            values = (*args, *kwargs.values())
            wanted = _is_grad_enabled() and _wants_gradient(values)
            if wanted and keeping is not None:
                return keeping(*args, **kwargs)
            if not _plain(values):
                return registered(*args, **kwargs)
            if wanted:
                return differentiable(*in_order(args, kwargs))
            with disabled():
                return function(*args, **kwargs)

        in_order = _binder(function.__name__, params)
        keeping = _keeping(function, forward) if forward else None
        eager = replay.over(otherwise)
        # Code of its own: torch.compile counts recompilations per code object, not per function.
        call.__code__ = call.__code__.replace(co_name=function.__name__)
        functools.update_wrapper(call, function)
        vars(call).update(
            spec=spec, source=source, reference=reference, equals=equals, replay=replay
        )
        return call

    return decorate


def _keeping(function: Callable[..., Any], forward: str) -> Callable[..., Any]:
    """What gives the results of `forward` that are also the function's."""
    returned = inspect.signature(function, eval_str=True).return_annotation
    count = 1 if returned is torch.Tensor else len(returned.__args__)
    return first_results(function.__globals__, forward, count)


def _scalars(function: Callable[..., Any]) -> frozenset[str]:
    """Parameters that are numbers at run time: they reach kernels as they are, and decide nothing."""
    return frozenset(p.name for p in _params(function) if p.kind == "optional")


def _wants_gradient(values: Iterable[Any]) -> bool:
    """Whether a gradient may be wanted: what vmap wraps does not tell."""
    if any(isinstance(v, torch.Tensor) and v.requires_grad for v in values):
        return True
    return _functorch_level() is not None and forward_ad._current_level < 0


def _plain(values: Iterable[Any]) -> bool:
    """Whether nobody watches or transforms a call on these: the function itself is what is asked for."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if type(value) not in _PLAIN:
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


def _params(function: Callable[..., Any]) -> tuple[_Param, ...]:
    return tuple(_param(p) for p in inspect.signature(function, eval_str=True).parameters.values())


def _register(
    replay: Replay,
    allocate: Callable[..., Any],
    params: tuple[_Param, ...],
    backward: Backward | None,
    no_gradient: str,
    batch: Batch | None,
    linear: tuple[tuple[str, ...], ...],
    source: str,
) -> Callable[..., Any]:
    """The registered torch op behind the function's own signature."""
    function = replay.function
    below = replay.over(function)
    name = f"{function.__name__}_{_digest(function, source)}"
    if name in _REGISTERED:
        return _REGISTERED[name]
    returns = _returns(inspect.signature(function, eval_str=True).return_annotation)
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
    names = _names(params)
    setup_context, pull = _autograd(function, names, backward, no_gradient, replay.precision)
    torch.library.register_autograd(qualname, pull, setup_context=setup_context, lib=_LIBRARY)
    overload = getattr(torch.ops.tritongen, name).default
    rule = vmap_rule(function.__name__, overload, names, batch)
    torch.library.register_vmap(qualname, rule, lib=_LIBRARY)
    applied = transformed(function.__name__, overload, setup_context, pull, names, batch, linear)

    def registered(*args: Any, **kwargs: Any) -> Any:
        values = _split(function.__name__, params, args, kwargs)
        values += [f32_precision(asked) for asked in replay.precision]
        # What torch makes of register_autograd refuses functorch's grad, and drops a forward tangent.
        has_tangents = forward_ad._current_level >= 0
        if not _is_compiling() and (_functorch_level() or has_tangents):
            return applied(*values)
        if has_tangents:
            raise RuntimeError(f"{function.__name__}: no forward mode inside torch.compile")
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
    """What is not asked for is None; torch's schemas know no better word for it than Tensor."""
    if annotation is torch.Tensor:
        return "Tensor"
    parts = getattr(annotation, "__args__", ())
    if parts and all(t in (torch.Tensor, torch.Tensor | None) for t in parts):
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


def _binder(
    name: str, params: tuple[_Param, ...]
) -> Callable[[Sequence[Any], dict[str, Any]], list[Any]]:
    """What gives the values of a call in the order of the parameters, defaults filled in."""

    def in_order(args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        if len(args) > len(params):
            raise TypeError(f"{name}() takes {len(params)} arguments but {len(args)} were given")
        values, rest = list(args), dict(kwargs)
        for p in params[len(args) :]:
            if p.name in rest:
                values.append(rest.pop(p.name))
            elif p.default is not inspect.Parameter.empty:
                values.append(p.default)
            else:
                raise TypeError(f"{name}() missing the argument {p.name!r}")
        if rest:
            raise TypeError(f"{name}() got an unexpected or repeated argument {next(iter(rest))!r}")
        return values

    return in_order


def _split(name: str, params: tuple[_Param, ...], args: Sequence[Any], kwargs: dict) -> list[Any]:
    """The values of a call as the schema wants them."""
    values: list[Any] = []
    for p, value in zip(params, _binder(name, params)(args, kwargs), strict=True):
        if p.kind == "optional" and isinstance(value, torch.Tensor):
            values += [False if p.type == "bool" else 0, value]
        elif p.kind == "optional":
            values += [value, None]
        else:
            values.append(value)
    return values


def _names(params: tuple[_Param, ...]) -> tuple[str, ...]:
    """The parameter that each of those values is of."""
    return tuple(p.name for p in params for _ in range(2 if p.kind == "optional" else 1))


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
    pairs = zip(given, allocated, strict=True)
    return tuple(None if a is None else a.copy_(g) for g, a in pairs)


# ---- gradients ----------------------------------------------------------------------------------
def _rule(
    function: Callable[..., Any], names: tuple[str, ...], backward: Backward | None, reason: str
) -> tuple[Callable[..., None], Callable[..., tuple[Any, ...]]]:
    """What a call with the values of `names` leaves for its backward, and that; or what says why there is none."""
    if backward is not None:
        said = {f.name: getattr(backward, f.name) for f in fields(backward)}
        return keep_and_pull(function.__globals__, names, said.pop("name"), **said)
    return without(function.__name__, reason)


def _autograd(
    function: Callable[..., Any],
    names: tuple[str, ...],
    backward: Backward | None,
    no_gradient: str,
    precision: tuple[str, ...],
) -> tuple[Callable[..., None], Callable[..., Any]]:
    """`setup_context` and `backward` for values as `_split` gives them, with the precisions behind."""
    keep, pull = _rule(function, names, backward, no_gradient)

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        keep(ctx, inputs, output)
        ctx.answers = _for_backward(_answers(precision, inputs))

    def run_backward(ctx: Any, *gradients: Any) -> Any:
        with decided(ctx.answers):
            return pull(ctx, *gradients)

    return setup_context, run_backward


def _differentiable(
    replay: Replay, params: tuple[_Param, ...], backward: Backward | None, no_gradient: str
) -> Callable[..., Any]:
    """The function as autograd sees it in eager calls, values by position: replayed where it can be."""
    function, below, asked = replay.function, replay.over(replay.function), replay.precision
    keep, pull = _rule(function, tuple(p.name for p in params), backward, no_gradient)

    def forward(ctx: Any, *values: Any) -> Any:
        with disabled():
            output = below(*values)
        keep(ctx, values, output)
        answers = zip(asked, answers_to(asked), strict=True) if asked else ()
        ctx.answers = _for_backward(dict(answers))
        return output

    def run_backward(ctx: Any, *gradients: Any) -> Any:
        with decided(ctx.answers):
            return pull(ctx, *gradients)

    members = {"forward": staticmethod(forward), "backward": staticmethod(run_backward)}
    own: Any = type(function.__name__, (torch.autograd.Function,), members)
    return own.apply


def _for_backward(answers: Mapping[str, str]) -> Mapping[str, str]:
    """Where the backward asks the other switch, it is as precise as the forward."""
    if len(answers) == 1:
        return {**dict.fromkeys(SWITCHES, *answers.values()), **answers}
    return answers

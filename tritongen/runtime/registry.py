"""The decorator of a generated op. It calls the function itself if that is right, else a registered torch op.

    @runtime.op("specs/softmax.op", lib=1, allocate=allocate_softmax, reference=softmax_reference)
    def softmax(x: torch.Tensor) -> torch.Tensor: ...

- A plain eager call runs the function, or repeats what it launched for a similar call (`replay.py`).
- A call that wants a gradient does the same behind an autograd.Function.
- torch.compile, export, fake tensors, functorch, forward-mode AD, tracing and tensor subclasses use the torch op
  `tritongen::softmax_<hash>`, whose fake implementation is `allocate`.

The hash is that of the module's text, so one text is registered once. The generated function checks and launches.
`gradients.py` says what a gradient saves and calls.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch.autograd import forward_ad

from tritongen.lib import VERSION, mend_kernels
from tritongen.lib.alone import first_results, own
from tritongen.runtime import calibrated, tuned
from tritongen.runtime.autocast import cast, disabled
from tritongen.runtime.functional import Batch
from tritongen.runtime.gradients import Backward, NoRule, Rule
from tritongen.runtime.kinds import PLAIN, is_watched, wants_gradient
from tritongen.runtime.precision import (
    SWITCHES,
    while_decided,
)
from tritongen.runtime.replay import Replay
from tritongen.runtime.schema import (
    Param,
    answers_of,
    binder,
    expect,
    merge,
    params_of,
    quick_binder,
)
from tritongen.runtime.torch_op import register

_is_compiling = torch.compiler.is_compiling
_functorch_level = torch._C._functorch.peek_interpreter_stack
_is_batched = torch._C._functorch.is_legacy_batchedtensor


def op(
    spec: str,
    *,
    lib: int = VERSION,
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
    """Decorates the function of one generated op.

    Args:
        spec: the name of the spec.
        lib: the version of `tritongen.lib` that the module was generated for.
        allocate: checks the operands and allocates the results. Takes the parameters of the function.
        reference: the body in torch. Takes the parameters of the function.
        equals: the spec's `ref`.
        backward: the gradient of the op.
        forward: the op of the module that runs in its place if a gradient is wanted. It returns the same results, and the
            values that it keeps for the gradient.
        no_gradient: the reason why there is no gradient.
        autocast: "low" or "f32", if the spec says what torch.autocast does to its operands.
        precision: the questions of the function to `f32_precision`. The torch op takes the answers as arguments.
        batch: the batch dims for vmap, if one launch can handle all entries.
        linear: for forward mode, the groups of operands in which the op is linear together.

    The result has a list `again`: a function in it runs if the gradient of a gradient is wanted.

    Raises:
        ImportError: the module was generated for another version of `tritongen.lib`.
    """

    if lib != VERSION:
        raise ImportError(
            f"{spec} was built for version {lib} of tritongen.lib, but this is version {VERSION}. Run `tritongen build {spec}`."
        )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        source = "".join(linecache.getlines(function.__code__.co_filename))
        params = params_of(function)
        replay = Replay(function, params, precision)

        rule: Rule | NoRule = NoRule(function.__name__, no_gradient)
        if backward is not None:
            rule = Rule(function.__globals__, tuple(p.name for p in params), backward)
        autograd = _autograd(params, precision, rule)
        registered = register(replay, allocate, params, autograd, batch, linear, source)
        differentiable = _differentiable(replay, rule)
        keeping = _keeping(function, forward) if forward else None
        again: list[Callable[..., Any]] = []
        call = _call(replay, params, differentiable, registered, keeping, again, autocast)
        mend_kernels(function.__globals__.values())
        _mend_library()
        calibrated.install()
        tuned.install(function.__globals__, function.__name__, source)
        functools.update_wrapper(call, function)
        vars(call).update(
            spec=spec,
            source=source,
            reference=reference,
            equals=equals,
            replay=replay,
            again=again,
        )
        return call

    return decorate


@cache
def _mend_library() -> None:
    """The kernels that the library launches itself are compiled as those of modules are."""
    own = [m for name, m in [*sys.modules.items()] if name.startswith("tritongen.lib.")]
    mend_kernels(value for module in own for value in vars(module).values())


def _call(
    replay: Replay,
    params: tuple[Param, ...],
    differentiable: Any,
    registered: Callable[..., Any],
    keeping: Callable[..., Any] | None,
    again: Sequence[Callable[..., Any]],
    autocast: str,
) -> Callable[..., Any]:
    """The replacement of the function. It sends each call to the right implementation."""
    function = replay.function

    def traced(values: Sequence[Any]) -> Any:
        if keeping is not None and wants_gradient(values):
            return keeping(*values)
        return registered(*values)

    def plainly(values: Sequence[Any], run: Any = None) -> Any:
        with disabled():
            return function(*values)

    def otherwise(values: Sequence[Any]) -> Any:
        expect(function.__name__, params, values)
        if keeping is not None and wants_gradient(values):
            return keeping(*values)
        if not _plain(values):
            return registered(*values)
        if wants_gradient(values):
            return differentiable.apply((lambda *given: own(plainly(*given)),), *values)
        return plainly(values)

    before = _BOUND.format(count=len(params))
    if autocast:
        given = [(f"args[{k}]", p.kind != "constant") for k, p in enumerate(params)]
        cast_ = [f"cast({a}, {autocast!r}), " if may else f"{a}, " for a, may in given]
        before += _CAST.format("".join(cast_))
    before += _TRACED
    if keeping is not None:
        tensors = [k for k, p in enumerate(params) if p.kind == "tensor"]
        scalars = [k for k, p in enumerate(params) if p.kind == "optional"]
        wanted = [f"args[{k}].requires_grad" for k in tensors]
        wanted += [f"isinstance(args[{k}], Tensor) and args[{k}].requires_grad" for k in scalars]
        before += _KEEPING.format(wanted=" or ".join(wanted))
    before += _AGAIN
    return replay.over(
        otherwise,
        # Function's own `apply` first looks for wrappers of functorch. A replay has none.
        super(torch.autograd.Function, differentiable).apply,
        before,
        Tensor=torch.Tensor,
        again=again,
        bind=quick_binder(params),
        cast=cast,
        functorch_level=_functorch_level,
        in_order=binder(function.__name__, params),
        is_any_autocast=torch._C._is_any_autocast_enabled,
        is_compiling=_is_compiling,
        is_grad_enabled=torch.is_grad_enabled,
        keeping=keeping,
        traced=traced,
        wants_gradient=wants_gradient,
    )


# The first lines of a call, for `Replay.over`.
_BOUND = """
    if kwargs or len(args) != {count}:
        try:
            args = bind(*args, **kwargs)
        except TypeError:
            args = in_order(args, kwargs)  # says what is wrong
"""
_CAST = """
    if is_any_autocast():
        args = ({})
"""
_TRACED = """
    if is_compiling():
        return traced(args)
"""
_KEEPING = """
    try:
        wants = is_grad_enabled() and ({wanted})
    except AttributeError:  # no tensor
        return otherwise(args)
    if wants:
        return keeping(*args)
"""
_AGAIN = """
    if again and is_grad_enabled() and functorch_level() is None and wants_gradient(args):
        return again[0](*args)
"""


def _keeping(function: Callable[..., Any], forward: str) -> Callable[..., Any]:
    """A function that returns the results of `forward` that are also the function's own."""
    returned = inspect.signature(function, eval_str=True).return_annotation
    count = 1 if returned is torch.Tensor else len(returned.__args__)
    return first_results(function.__globals__, forward, count)


def _plain(values: Iterable[Any]) -> bool:
    """Whether no tool watches or transforms a call on these values, so that the function itself may run."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if type(value) not in PLAIN:
                return False
            if value.is_neg() or value.is_meta:  # memory holds the opposite, or no value
                return False
            if _is_batched(value):  # by the vmap of torch.autograd.grad(is_grads_batched=True)
                return False
    return forward_ad._current_level < 0 and not is_watched()


# ---- gradients ----------------------------------------------------------------------------------
def _autograd(
    params: tuple[Param, ...], precision: tuple[str, ...], rule: Rule | NoRule
) -> tuple[Callable[..., None], Callable[..., Any]]:
    """`setup_context` and `backward` for values as `splitter` has them, with the precisions behind."""
    # Where the gradient of each parameter goes: a scalar's to the tensor in its place.
    at: list[int] = []
    for p in params:
        at.append((at[-1] + 1 if at else 0) + (p.kind == "optional"))

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        rule.keep(ctx, merge(params, inputs), output)
        ctx.answers = _for_backward(precision, (*answers_of(precision, inputs).values(),))

    def run_backward(ctx: Any, *gradients: Any) -> Any:
        given = ctx.needs_input_grad
        pull = rule.pulls[tuple([given[k] for k in at])]
        found = dict(zip(at, while_decided(ctx.answers, pull, ctx, *gradients), strict=True))
        return tuple(found.get(k) for k in range(len(given)))

    return setup_context, run_backward


def _differentiable(replay: Replay, rule: Rule | NoRule) -> Any:
    """The autograd.Function of eager calls: it applies `run[0](values, run)`."""
    asked, answers = replay.precision, replay.answers

    def forward(ctx: Any, run: tuple[Any, ...], *values: Any) -> Any:
        output = run[0](values, run)
        rule.keep(ctx, values, output)
        if asked:
            ctx.answers = _for_backward(asked, answers())
        return output

    def run_backward(ctx: Any, *gradients: Any) -> Any:
        pull = rule.pulls[ctx.needs_input_grad]
        return while_decided(ctx.answers, pull, ctx, *gradients) if asked else pull(ctx, *gradients)

    members = {"forward": staticmethod(forward), "backward": staticmethod(run_backward)}
    return type(replay.function.__name__, (torch.autograd.Function,), members)


@functools.cache
def _for_backward(asked: tuple[str, ...], answers: tuple[str, ...]) -> Mapping[str, str]:
    """The precision of the backward. If it would use the other switch, it is as precise as the forward."""
    own = dict(zip(asked, answers, strict=True))
    return {**dict.fromkeys(SWITCHES, *answers), **own} if len(own) == 1 else own

"""The torch op behind a generated op: what torch.compile, export, fake tensors, functorch and subclasses call.

    call = register(replay, allocate, params, autograd, batch, linear, source)

There are two torch ops. `tritongen::softmax_<hash>` has a gradient, a rule for vmap, and kernels. Its kernel of the Autograd
key calls `tritongen::softmax_<hash>_launch`, which has kernels alone. So the second one is what stands in a compiled graph:
the dispatcher goes straight to its kernel, where the first one costs a detour through Python of 6 us.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from tritongen.runtime.autocast import disabled
from tritongen.runtime.functional import Batch, transformed, vmap_rule
from tritongen.runtime.precision import decided, f32_precision
from tritongen.runtime.replay import Replay
from tritongen.runtime.schema import (
    Param,
    merge,
    results,
    slot_names,
    slots,
    splitter,
    without_symbols,
)

LIBRARY = torch.library.Library("tritongen", "FRAGMENT")
REGISTERED: dict[str, Callable[..., Any]] = {}

_is_compiling = torch.compiler.is_compiling
_is_exporting = torch.compiler.is_exporting
_functorch_level = torch._C._functorch.peek_interpreter_stack


def register(
    replay: Replay,
    allocate: Callable[..., Any],
    params: tuple[Param, ...],
    autograd: tuple[Callable[..., None], Callable[..., Any]],
    batch: Batch | None,
    linear: tuple[tuple[str, ...], ...],
    source: str,
) -> Callable[..., Any]:
    """The torch op behind the function's own parameters, by position. `autograd`: `setup_context` and `backward` of its gradient."""
    function = replay.function
    name = f"{function.__name__}_{_digest(function, source)}"
    if name in REGISTERED:
        return REGISTERED[name]
    returned = results(inspect.signature(function, eval_str=True).return_annotation)
    taken = slots(params, replay.precision)
    launching = launcher(replay, params)

    def run_reference(*values: Any) -> Any:
        args = merge(params, values)
        with disabled():
            return _settle(function(*args), allocate(*args))

    def fake(*values: Any) -> Any:
        _tell_inductor(launch)
        return allocate(*merge(params, values))

    tags = torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides
    for own in (name, f"{name}_launch"):
        LIBRARY.define(f"{own}({taken}) -> {returned}", tags=tags)
        LIBRARY.impl(own, launching, "CUDA")
        LIBRARY.impl(own, run_reference, "CPU")
        torch.library.register_fake(f"tritongen::{own}", fake, lib=LIBRARY)
    overload, launch = (
        getattr(torch.ops.tritongen, own).default for own in (name, f"{name}_launch")
    )
    setup_context, pull = autograd
    LIBRARY.impl(name, differentiable(launch, setup_context, pull), "Autograd")
    names = slot_names(params)
    rule = vmap_rule(function.__name__, overload, names, batch)
    torch.library.register_vmap(f"tritongen::{name}", rule, lib=LIBRARY)
    applied = transformed(function.__name__, overload, setup_context, pull, names, batch, linear)
    symbolic = slots(params, replay.precision, symbolic=True)
    compiled = _symbolic(name, symbolic, returned, params, overload)

    split, precision = splitter(params), replay.precision

    def registered(*args: Any) -> Any:
        values = split(*args)
        if precision:
            values = (*values, *[f32_precision(asked) for asked in precision])
        # An autograd.Function in a kernel refuses functorch's grad, and drops a forward tangent.
        has_tangents = forward_ad._current_level >= 0
        if not _is_compiling() and (_functorch_level() or has_tangents):
            return applied(*values)
        if has_tangents:
            raise RuntimeError(
                f"{function.__name__}: forward mode does not work inside torch.compile"
            )
        if _is_compiling() and not _is_exporting():
            return compiled(*values)
        return overload(*values)

    REGISTERED[name] = registered
    return registered


def launcher(replay: Replay, params: tuple[Param, ...]) -> Callable[..., Any]:
    """The kernel of a GPU: a function of the op's values, as text, since it is called between kernels of a compiled graph."""
    taken, given = list[str](), list[str]()
    for k, p in enumerate(params):
        taken.append(f"a{k}")
        given.append(f"a{k}")
        if p.kind == "optional":
            taken.append(f"a{k}_tensor")
            given[-1] = f"a{k} if a{k}_tensor is None else a{k}_tensor"
    words = [f"precision{k}" for k in range(len(replay.precision))]
    arguments = ", ".join((*taken, *words))
    call = f"below({', '.join(given)})"
    lines = [
        f"def launch({arguments}):",
        "    if is_grad_enabled():  # autograd is behind us, and asks nothing of what is launched",
        f"        with no_grad(): return launch({arguments})",
    ]
    if words:
        said = f"({', '.join(words)},)"
        lines += [
            f"    if answers() != {said}:",
            f"        with decided(dict(zip(asked, {said}))): return {call}",
        ]
    scope: dict[str, Any] = dict(
        answers=replay.answers,
        asked=replay.precision,
        below=replay.over(lambda values: replay.function(*values)),
        decided=decided,
        is_grad_enabled=torch.is_grad_enabled,
        no_grad=torch.no_grad,
    )
    exec("\n".join([*lines, f"    return {call}"]), scope)
    return scope["launch"]


def differentiable(
    launch: Callable[..., Any], setup_context: Callable[..., None], pull: Callable[..., Any]
) -> Callable[..., Any]:
    """The kernel of the Autograd key: `launch`, behind an autograd.Function where a gradient is wanted."""

    def forward(ctx: Any, *values: Any) -> Any:
        output = below(*values)
        setup_context(ctx, values, output)
        return output

    def below(*values: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return launch(*values)

    members = {"forward": staticmethod(forward), "backward": staticmethod(pull)}
    function: Any = type(str(launch), (torch.autograd.Function,), members)

    def kernel(*values: Any) -> Any:
        if torch.is_grad_enabled() and any(
            [isinstance(v, torch.Tensor) and v.requires_grad for v in values]
        ):
            return function.apply(*values)
        return below(*values)

    return kernel


def _tell_inductor(launch: torch._ops.OpOverload) -> None:
    """Registers the lowering that Inductor gives to an op it does not know: a call between its kernels.

    Inductor of torch 2.11 would register it too, but it first prints the op with its operands, their operands, and so on. In a
    chain of ops, this takes time exponential in the length of the chain.
    """
    lowering: Any = sys.modules.get("torch._inductor.lowering")
    if lowering is not None and launch not in lowering.lowerings:
        lowering.make_fallback(launch, warn=False)


def _symbolic(
    name: str, taken: str, returned: str, params: tuple[Param, ...], overload: Callable[..., Any]
) -> Callable[..., Any]:
    """The torch op as torch.compile calls it, if a Python float may change from call to call.

    An op without run-time floats is called directly.
    """
    if not any(p.kind == "optional" and p.type == "float" for p in params):
        return overload
    own = f"{name}_symbolic"
    LIBRARY.define(f"{own}({taken}) -> {returned}", tags=(torch.Tag.pt2_compliant_tag,))

    def call(*values: Any) -> Any:
        return overload(*without_symbols(params, values))

    LIBRARY.impl(own, call, "CompositeImplicitAutograd")
    return getattr(torch.ops.tritongen, own).default


def _digest(function: Callable[..., Any], source: str) -> str:
    """Eight hex digits that differ where the module's text or the function's place in it does."""
    text = source or repr((function.__code__.co_code, function.__code__.co_consts))
    return hashlib.sha256(f"{function.__qualname__}\n{text}".encode()).hexdigest()[:8]


def _settle(given: Any, allocated: Any) -> Any:
    """The reference's results laid out as `allocate` promised, and never an alias of an operand."""
    if isinstance(allocated, torch.Tensor):
        return allocated.copy_(given)
    pairs = zip(given, allocated, strict=True)
    return tuple(None if a is None else a.copy_(g) for g, a in pairs)

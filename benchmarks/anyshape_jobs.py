"""The jobs of a child process for one draw: compile ahead, compare and time, time every variant. Started by `pool.py`.

Each job makes the operands anew from the seed of the draw, so nothing large is kept between jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch._functorch import config as functorch

from benchmarks.anyshape_draws import Draw, built, call, draw, laid_out
from benchmarks.users.jobs import SPACE, compiled_by_torch, is_device_lost, reserve
from tritongen.bench.measure import Call, Comparison, compare, interleaved, on_poison
from tritongen.bench.run import eager_function
from tritongen.ir.dtypes import DTYPES
from tritongen.ir.nodes import Op
from tritongen.proof.crosscompile import nvidia
from tritongen.proof.factors import words_of
from tritongen.proof.variants import Way, forced, watched, ways
from tritongen.runtime.load import load_text
from tritongen.schedule.plan import Plan
from tritongen.shapes import meta_arguments, random_arguments
from tritongen.trace import Choice, at_hand, compile_launch, trace

__all__ = ["is_device_lost", "measure", "prepare", "prepare_variants", "spills", "variants"]
SECONDS = 0.06  # of timing, a contender
# By torch.compile, in this process: torch's first way, and those that are meant to be compiled.
COMPILED: dict[tuple[str, int, int], dict[str, Callable[..., Any]]] = {}
FOR_COMPILERS = ("flex",)
WRONG = 0.25  # what no rounding of halves is off by
Key = tuple[str, int, int]  # class, seed, k


def prepare(key: Key, device: str, gradients: bool = False) -> dict[str, Any]:
    """Our kernels into Triton's cache, and torch.compile's function, which this process keeps."""
    drawn = draw(*key)
    op, case, module, plan = parts(drawn, gradients)
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        calls = trace(module, op.name, meta_arguments(op, case), at_hand())
        for launch in calls.launches:
            compile_launch(launch, f"sm_{properties.major}{properties.minor}")
        more = drawn.source.made(drawn.numbers) if drawn.source.made else 0
        reserve((12 if gradients else 6) * drawn.bytes + more + SPACE)  # others compile beside
    problems = {}
    try:
        args = operands(drawn, device, gradients)
        run = partial(backward, drawn) if gradients else bound
        if gradients:  # kernels of gradients compile as they run
            functorch.donated_buffer = False  # buffers serve each of many backwards
            run(getattr(module, op.name), args)()
        ready = COMPILED[key] = {}
        for name, function in compiled(rivals(drawn, op, args), device).items():
            try:  # torch's own; it has no figure where that fails
                run(function, args)()
                ready[name] = function
            except Exception as error:
                if is_device_lost(str(error)):
                    raise
                problems[name] = str(error)[:300]
    finally:
        clear(device)
    return {"compile_error": problems} if problems else {}


def compiled(
    functions: dict[str, Callable[..., Any]], device: str
) -> dict[str, Callable[..., Any]]:
    """What torch.compile makes of torch's first way, and of those that are meant for it; as they are, on a CPU."""
    wanted = {n: f for n, f in functions.items() if n in FOR_COMPILERS}
    if "eager" in functions:
        wanted["compile"] = functions["eager"]
    return {n: compiled_by_torch(f) if device == "cuda" else f for n, f in wanted.items()}


def measure(key: Key, device: str, gradients: bool = False) -> dict[str, Any]:
    """Microseconds of ours, eager and compiled, each compared with f64 before; and what ours chose.

    `gradients`: of the gradients of a call, which has been made; what each kept for them is there.
    """
    drawn = draw(*key)
    op, _, module, plan = parts(drawn, gradients)
    args = operands(drawn, device, gradients)
    theirs = {n: f for n, f in rivals(drawn, op, args).items() if n not in FOR_COMPILERS}
    functions = theirs | COMPILED.get(key, {}) | {"ours": getattr(module, op.name)}
    bind = partial(backward, drawn) if gradients else bound
    row: dict[str, Any] = {"problems": {}}
    calls = {}
    for name, function in functions.items():
        try:
            calls[name] = bind(function, args)
        except Exception as error:
            if name == "ours" or is_device_lost(str(error)):
                raise
            row["problems"][name] = f"{type(error).__name__}: {str(error)[:200]}"
    try:
        want = bind(exact(drawn, module, op), widened(args))()
        right, beside, errors = {}, 0.0, list[float]()
        for name, one in calls.items():
            found = judged(
                one if gradients else partial(on_poison, one), want, name == "ours", op, beside
            )
            if drawn.source.truth and name != "ours" and found.error < WRONG:
                errors.append(found.error)
                beside = min(errors)  # what torch's best way is off by
            # Autograd rounds what it keeps: as wrong as it is, ours may be.
            elif gradients and name != "ours" and math.isfinite(found.error):
                beside = max(beside, found.error)
            elif not found.ok:
                row["problems"][name] = found.problem
                continue
            right[name] = one
        del want
        row["choice"] = chosen(module, op, args)
        if "ours" in right:
            row |= {name: 1e6 * s for name, s in timed(right, device).items()}
        return row
    finally:
        clear(device)


def prepare_variants(key: Key, device: str) -> dict[str, Any]:
    """The kernels of every variant that the call may run by, into Triton's cache."""
    drawn = draw(*key)
    op, _, module, plan = parts(drawn)
    args = operands(drawn, "meta")
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        for way in legal(module, op, args, plan):
            with forced(module, plan, way, small=False):
                calls = trace(module, op.name, args, at_hand())
            for launch in calls.launches:
                compile_launch(launch, f"sm_{properties.major}{properties.minor}")
    return {}


def variants(key: Key, device: str) -> dict[str, Any]:
    """Microseconds of every variant that can run the call and that gives the same answer as the chosen one.

    The best three take turns again. It also returns the chosen variant, and the facts by which each step is chosen.
    """
    drawn = draw(*key)
    op, _, module, plan = parts(drawn)
    args = operands(drawn, device)
    own = getattr(module, op.name)
    try:
        want, found, calls = own(**args), {}, {}
        for way in legal(module, op, metas(args), plan):
            one = bound(forced_call(module, plan, way, own.__wrapped__), args)
            try:
                if compare(one(), want, tf32=True).ok:
                    found[way.name] = 1e6 * timed({"it": one}, device)["it"]
                    calls[way.name] = one
            except Exception as error:
                if is_device_lost(str(error)):
                    raise
        best = sorted(found, key=found.__getitem__)[:3]
        found |= {n: 1e6 * s for n, s in timed({n: calls[n] for n in best}, device).items()}
        choices = trace(module, op.name, metas(args), at_hand()).choices
        facts = {c.step: {n: v for n, v in c.facts.items() if n != "gpu"} for c in choices}
        return {"choice": taken(choices, plan).name, "us": found, "facts": facts}
    finally:
        clear(device)


def spills(key: Key, target: str) -> dict[str, Any]:
    """Bytes that a thread of each kernel of what is chosen spills, compiled for a GPU that need not be there."""
    drawn = draw(*key)
    op, _, module, _ = parts(drawn)
    calls = trace(module, op.name, operands(drawn, "meta"), at_hand())
    found = []
    for launch in calls.launches:
        _, count = nvidia(compile_launch(launch, target).asm["cubin"])
        if count is None:
            raise RuntimeError("Triton's cuobjdump, which counts spills, is missing")
        found.append((launch.kernel.fn.__name__, count))
    return {"choice": "+".join(c.variant for c in calls.choices), "spills": found}


def legal(module: ModuleType, op: Op, args: dict[str, Any], plan: Plan) -> Iterator[Way]:
    """The ways that the call, of operands on meta, does not rule out; and what it chooses, if that is none of them."""
    names = set()
    for way in ways(plan):
        with forced(module, plan, way, small=False), watched(module, plan) as told:
            trace(module, op.name, args, at_hand())
        if all(told.get(step, variant) == variant for step, variant in way.variants):
            names.add(way.name)
            yield way
    chosen = taken(trace(module, op.name, args, at_hand()).choices, plan)
    if chosen.name not in names:
        yield chosen


def taken(choices: Iterable[Choice], plan: Plan) -> Way:
    """What a call chose, called as `ways` calls it; what packs choose is their own business."""
    steps = {s.name for s in plan.steps}
    found = tuple((c.step, c.variant) for c in choices if c.step in steps)
    return Way("+".join(dict.fromkeys(variant for _, variant in found)), found)


def forced_call(
    module: ModuleType, plan: Plan, way: Way, function: Callable[..., Any]
) -> Callable[..., Any]:
    def run(**args: Any) -> Any:
        with forced(module, plan, way, small=False):
            return function(**args)

    return run


# ---- what is called -----------------------------------------------------------------------------
def parts(drawn: Draw, gradients: bool = False) -> tuple[Op, Any, ModuleType, Plan]:
    op, case = call(drawn)
    whole = built(drawn.source.spec, gradients)
    plan = next(p for p in whole.plans[op.name] if p.op == op)
    return op, case, load_text(whole.name, whole.raw), plan


def operands(drawn: Draw, device: str, gradients: bool = False) -> dict[str, Any]:
    """Laid out as drawn; `gradients`: floats want theirs."""
    op, case = call(drawn)
    if device == "meta":
        args = meta_arguments(op, case)
    else:
        args = random_arguments(op, case, device, seed=drawn.seed + drawn.k)
        if drawn.source.filled is not None:
            args = drawn.source.filled(args, torch.Generator(device).manual_seed(drawn.seed))
    args |= {n: laid_out(args[n], how) for n, how in drawn.layouts.items()}
    if gradients:
        for value in args.values():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                value.requires_grad_()
    return args


def metas(args: dict[str, Any]) -> dict[str, Any]:
    """The same operands, strides too, on meta."""

    def meta(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")

    return {n: meta(v) if isinstance(v, torch.Tensor) else v for n, v in args.items()}


def bound(function: Callable[..., Any], args: dict[str, Any]) -> Call:
    return lambda: function(**args)


def backward(drawn: Draw, function: Callable[..., Any], args: dict[str, Any]) -> Call:
    """The gradients of a call, which is made here, for incoming ones of the drawn seed and dtype."""
    results = function(**args)
    results = results if isinstance(results, tuple) else (results,)
    results = [y for y in results if y.requires_grad]
    of_seed = torch.Generator(results[0].device).manual_seed(drawn.seed)
    rounded = getattr(torch, DTYPES[drawn.numbers[""]].torch)
    incoming = [
        torch.randn(y.shape, generator=of_seed, device=y.device).to(rounded).to(y.dtype)
        for y in results
    ]
    wanted = [v for v in args.values() if isinstance(v, torch.Tensor) and v.requires_grad]

    def run() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(results, wanted, incoming, retain_graph=True)

    return run


def rivals(drawn: Draw, op: Op, args: dict[str, Any]) -> dict[str, Callable[..., Any]]:
    """What torch is asked: the spec's `ref`, or what the table says."""
    if drawn.source.functions is not None:
        return drawn.source.functions(args)
    if not drawn.source.rivals:
        return {"eager": eager_function(op)}
    return {f"eager{k or ''}": function_of(text, op) for k, text in enumerate(drawn.source.rivals)}


def function_of(text: str, op: Op) -> Callable[..., Any]:
    names = ", ".join(p.name for p in op.params)
    return eval(f"lambda {names}, **_: {text}", {"torch": torch})


# ---- comparing and timing -----------------------------------------------------------------------
def exact(drawn: Draw, module: ModuleType, op: Op) -> Callable[..., Any]:
    """What computes the results of f64 operands: what CPU tensors get."""
    if drawn.source.truth is not None:
        return drawn.source.truth
    if drawn.source.exact:
        return function_of(drawn.source.exact, op)
    own = getattr(module, op.name)
    return own.equals or own.reference


def widened(args: dict[str, Any]) -> dict[str, Any]:
    """The same numbers in f64, which want the gradients that they did."""
    found = dict(args)
    for name, value in args.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            found[name] = value.detach().double().requires_grad_(value.requires_grad)
    return found


def judged(one: Call, want: Any, is_ours: bool, op: Op, beside: float) -> Comparison:
    try:
        return compare(one(), want, not is_ours or "tf32" in words_of(op), beside)
    except Exception as error:
        if is_ours:
            raise
        return Comparison(math.inf, f"{type(error).__name__}: {str(error)[:200]}")


def chosen(module: ModuleType, op: Op, args: dict[str, Any]) -> str:
    return "+".join(c.variant for c in trace(module, op.name, metas(args), at_hand()).choices)


def timed(calls: dict[str, Call], device: str) -> dict[str, float]:
    """Seconds; products of f32 exact to f32, convolutions TF32 as torch has them, cuDNN searching."""
    if device == "cpu":  # to see that the script runs
        from time import perf_counter

        found = {}
        for name, one in calls.items():
            start = perf_counter()
            one()
            found[name] = perf_counter() - start
        return found
    torch.backends.cudnn.benchmark = True
    return interleaved(calls, seconds=SECONDS)


def clear(device: str) -> None:
    if device == "cuda":
        torch.cuda.empty_cache()

"""Compiles every kernel of a file of ops for GPUs that are not there, and checks their limits.

    for built in crosscompile(text, "specs/softmax.op", targets=("sm_90", "gfx942")): ...
    # Built("softmax_rows", "rows", "f32", "sm_90", registers=64, spills=0, shared=128, problem="")

It compiles what each variant would launch for operands of a common size. Arguments are specialised as the JIT does it
(strides of 1, multiples of 16). The process must not have TRITON_INTERPRET.

Not here: running kernels (`runner.py`), their PTX as text (`tritongen.trace.ptx`).
"""

from __future__ import annotations

import math
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from triton.compiler.compiler import make_backend

from tritongen import pipeline, trace
from tritongen.choice import holding
from tritongen.ir.binding import operand_dtype, type_arguments
from tritongen.ir.nodes import Constant, Op, Scalar, kind_of
from tritongen.lib.compilers import descriptors_of_two_layouts, pairs_of_f8
from tritongen.proof.cases import all_sizes, dtype_choices, satisfying, shape_of
from tritongen.proof.variants import Way, forced, may_run, ways
from tritongen.runtime.load import load_text
from tritongen.runtime.precision import PRECISIONS, precision
from tritongen.schedule.plan import Plan, Step, Variant
from tritongen.schedule.rules import evaluate

GPUS = {
    "sm_80": trace.Gpu(108, 163, tma=False),
    "sm_86": trace.Gpu(84, 99, tma=False),
    "sm_89": trace.Gpu(128, 99, tma=False),
    "sm_90": trace.H200,
    "sm_100": trace.Gpu(148),
    "sm_120": trace.Gpu(170, 99, tma=False),
    "gfx942": trace.Gpu(304, 64, tma=False, forward_progress=False),
}
COMMON_SIZE = 64


@dataclass(frozen=True, slots=True)
class Built:
    """One kernel for one target; `registers` a thread, `spills` in bytes (AMD: in registers)."""

    kernel: str
    variant: str
    dtype: str
    target: str
    shared: int = 0
    registers: int | None = None
    spills: int | None = None
    problem: str = ""
    own: bool = True  # a call comes this way of its own, and not for NVIDIA's ieee: no spills then


def crosscompile(
    text: str,
    name: str,
    targets: Sequence[str] = ("sm_90",),
    dtypes: Sequence[str] | None = None,
    size: int = COMMON_SIZE,
    source: str | None = None,
    first_only: bool = False,
) -> Iterator[Built]:
    """Compiles every kernel of every variant, for each target and dtype (of the first type parameter).

    `source` is compiled in place of the spec's module. `first_only`: compile one dtype only, the first that fits.
    """
    built = pipeline.build(text, name)
    module = load_text(built.name, source or built.raw)
    for plans in built.plans.values():
        for plan in plans:
            for choice in dtype_choices(plan.op, "cuda"):
                label = "+".join(dict.fromkeys(choice.values())) or "fixed"
                if dtypes is None or label in dtypes or not choice:
                    yield from compiled_plan(module, plan, choice, label, targets, size)
                    if first_only:
                        break


def compiled_plan(module, plan: Plan, choice, label: str, targets, size: int) -> Iterator[Built]:
    for target in targets:
        for variant, word, own, launch in launches_of(module, plan, choice, target, size):
            moves = moves_sums(plan, launch.kernel.fn.__name__)
            built = compile_one(launch, word, variant, label, target, moves)
            # Only NVIDIA has other products of f32: there ieee ones are slow, and rarely asked for.
            slow = launch.config.get("PRECISION") == "ieee" and not target.startswith("gfx")
            yield replace(built, own=own and not slow)


def launches_of(
    module: ModuleType, plan: Plan, choice: dict[str, str], target: str, size: int
) -> Iterator[tuple[str, str, bool, trace.Launch]]:
    """Every kernel that some variant would launch, once for each config.

    Each comes with its variant, the precision, and whether the call takes this way by itself.
    """
    seen: set[tuple[Any, ...]] = set()
    for way, word in product(ways(plan), precisions_for(plan, choice, target)):
        with precision(word):
            args, own = _fitting(module, plan, way, choice, size, target)
            if args is None:
                continue
            sharing = forced(module, plan, way, small=False, least_parts=2)
            with sharing, _torch_for(module, target):
                launches = trace.trace(module, plan.op.name, args, GPUS[target]).launches
        for launch in launches:
            name = launch.kernel.fn.__name__
            key = (name, tuple(sorted((k, str(v)) for k, v in launch.config.items())))
            if key not in seen:
                seen.add(key)
                yield way.name, word, own, launch


def moves_sums(plan: Plan, name: str) -> bool:
    """Whether a kernel has sums that move with a maximum: those are NaN where a term is, and the maximum need not be."""
    own = (k.kernel for step in plan.steps for k in step.kernels if k.name == name and k.kernel)
    return any(s.moved_by for k in own for s in k.folds)


def each_kernel(
    launches: Iterable[tuple[str, str, bool, trace.Launch]], random: Random
) -> list[tuple[str, str, bool, trace.Launch]]:
    """One launch of each kernel, in the config of one of its variants."""
    every = list(launches)
    random.shuffle(every)
    return list({one[-1].kernel.fn.__name__: one for one in every}.values())


def precisions_for(plan: Plan, choice: dict[str, str], target: str) -> tuple[str, ...]:
    """The precisions of f32 products to compile for a target: all, but on AMD only what the spec says."""
    if target.startswith("gfx"):
        return ("tf32",) if plan.op.precision == "tf32" else ("ieee",)
    products = any(s.precision for s in plan.steps)
    narrow = {"f16", "bf16"} & set(choice.values())
    return PRECISIONS if products and not narrow else ("tf32x3",)


def _fitting(
    module, plan: Plan, way: Way, choice, size: int, target: str
) -> tuple[dict[str, Any] | None, bool]:
    """A call that takes this way by itself, or one that could. None if the device rules it out."""
    chosen = dict(way.variants)
    steps = {s.name: s for s in plan.steps}
    variants = {(s.name, v.name): v for s in plan.steps for v in s.variants}
    layout = ["strided", *(o.fact for s in plan.steps for o in s.orders)]
    could = None
    for n in (size, 8, 1024):
        args = meta_arguments(plan.op, choice, n)
        if args is None:
            continue
        asked = trace.trace(module, plan.op.name, args, GPUS[target]).choices
        own = [c for c in asked if c.step in chosen]  # packs make their own choices
        found = [(steps[c.step], variants[c.step, chosen[c.step]], c.facts) for c in own]
        if not all(may_run(v, facts) for _, v, facts in found):
            continue
        if all(
            any(_is_chosen(s, v, facts | dict.fromkeys(layout, a)) for a in (False, True))
            for s, v, facts in found
        ):
            return args, True
        could = could or args
    return could, False


def _is_chosen(step: Step, variant: Variant, facts: Mapping[str, int]) -> bool:
    """Whether such a call may take it: where estimates are compared, only the least; else other layouts may, too."""
    if variant.estimate is not None:
        return holding(step, facts)[0] is variant
    return bool(evaluate(variant.when, facts))


@contextmanager
def _torch_for(module: ModuleType, target: str) -> Iterator[None]:
    """The module sees a torch built for AMD where the target is AMD's: some precisions differ."""
    before = module.__dict__["torch"]
    if target.startswith("gfx"):
        module.__dict__["torch"] = _AmdTorch()
    try:
        yield
    finally:
        module.__dict__["torch"] = before


class _AmdTorch:
    version = SimpleNamespace(hip="6.0", cuda=None)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def meta_arguments(
    op: Op, dtypes: dict[str, str], size: int = COMMON_SIZE
) -> dict[str, Any] | None:
    """A call of common sizes, on meta tensors. None if torch could not count their bytes."""
    sizes = satisfying(op, size, Random(0))
    known = all_sizes(op, sizes)
    args: dict[str, Any] = {}
    for t in op.tensors:
        shape = shape_of(t, known, {t.name: (4, 16) for t in op.tensors})
        dtype = operand_dtype(t.dtype, dtypes)
        if math.prod(shape) >= 2**59:
            return None
        args[t.name] = torch.empty(shape, dtype=dtype, device="meta")
    params: tuple[Constant | Scalar, ...] = (*op.constants, *op.scalars)
    for p in params:
        kind = p.dtype if isinstance(p, Constant) else kind_of(p.dtype, op)
        some = {"float": 0.5, "int": 1, "bool": True}[kind]
        args[p.name] = sizes.get(p.name, some if p.default is None else p.default)
    return args | type_arguments(op, dtypes)


def compile_one(
    launch: trace.Launch, word: str, variant: str, dtype: str, target: str, moves: bool = False
) -> Built:
    """One kernel; `word`: how products of f32 were asked for, `moves`: what `moves_sums` says of it."""
    name = launch.kernel.fn.__name__
    try:
        compiled = trace.compile_launch(launch, target)
    except _Enough:
        raise
    except Exception as error:  # any error of the compiler is the finding
        return Built(name, variant, dtype, target, problem=f"{type(error).__name__}: {error}"[:600])
    asm = compiled.asm
    registers, spills = nvidia(asm["cubin"]) if "cubin" in asm else amd(asm["amdgcn"])
    shared = compiled.metadata.shared
    problem = wrong_instructions(word, asm.get("ptx", ""), asm["ttir"], asm["llir"], moves)
    room = GPUS[target].shared << 10
    if shared > room:
        problem = f"{shared} bytes of shared memory, {room} allowed"
    return Built(name, variant, dtype, target, shared, registers, spills, problem)


class _Enough(Exception):
    """Raised instead of producing machine code that nobody needs."""


def lower_one(
    launch: trace.Launch, word: str, variant: str, dtype: str, target: str, moves: bool = False
) -> Built:
    """Through Triton's own passes: a sixth of the time, and nearly all that a compiler may refuse."""
    backend = type(make_backend(trace.target(target)))
    whole = backend.add_stages

    def add_stages(self: Any, stages: dict[str, Any], *rest: Any) -> None:
        def enough(*_: Any) -> None:
            raise _Enough

        whole(self, stages, *rest)
        stages["llir"] = enough

    backend.add_stages = add_stages
    try:
        return compile_one(launch, word, variant, dtype, target, moves)
    except _Enough:
        return Built(launch.kernel.fn.__name__, variant, dtype, target)
    finally:
        backend.add_stages = whole


def wrong_instructions(
    word: str, ptx: str, ttir: str = "", llir: str = "", moves: bool = False
) -> str:
    """Wrong instructions that a run in the interpreter cannot show: a max that drops NaN, products rounded to TF32.

    Others are products rounded to f16, and bf16 as f16.

    For max, Triton's own code says what is asked for: LLVM may turn `x <= 0 or y <= 0` into a min that drops NaN, and is
    right.
    """
    drops = r"arith\.(max|min)numf|__nv_f(max|min)|clampf.*propagateNan = none"
    if not moves and re.search(drops, ttir):
        return "max or min that drops NaN"
    if word == "ieee" and ".tf32" in ptx:
        return "tf32 products where ieee is asked for"
    if re.search(r"mma\S*\.f16\.(f16|bf16)\S*", ptx) and not re.search(r"mma\S*\.f32\.", ptx):
        return "sums of products kept in half precision"
    if any(_runs_on(part) for part in (ptx, *(2 * body for body in _loops(ptx)))):
        return "a product of registers runs on while the loop computes the next factor into them"
    if "add.s16x2" in ptx:
        return "sums of two 16-bit integers in one register, which ptxas gets wrong (`lib/compilers.py`)"
    if pairs_of_f8(ptx):
        return "two pairs of f8 values in one `mov`, which ptxas gets wrong (`lib/compilers.py`)"
    if descriptors_of_two_layouts(ptx):
        return "tiles of two layouts at one address, which ptxas gets wrong (`lib/compilers.py`)"
    if _divides_by_0(ttir):
        return "divides by the constant 0: what is loaded in front of a loop without a turn is loaded from nowhere"
    if _narrowed(llir):
        return "bf16 is computed with in f16, which ends at 65504"
    return ""


def _runs_on(ptx: str) -> bool:
    """Whether what is waited for next, behind a product whose left factor is in registers, may leave it running."""
    product, wait = r"wgmma\.mma_async[^{;]*\{[^}]*\}, *\{", r"wgmma\.wait_group"
    return bool(re.search(rf"{product}(?:(?!{wait}).)*{wait}\S* [1-9]", ptx, re.S))


def _loops(ptx: str) -> list[str]:
    """The text of each loop, from its label to the branch back."""
    places = {m[1]: m.start() for m in re.finditer(r"^(\$\w+):", ptx, re.M)}
    jumps = re.finditer(r"bra(?:\.uni)?\s+(\$\w+);", ptx)
    return [ptx[places[m[1]] : m.end()] for m in jumps if places.get(m[1], len(ptx)) < m.start()]


def _divides_by_0(ttir: str) -> bool:
    """LLVM takes what has no meaning for any address, and for any mask."""
    zeros = set(
        re.findall(r"(%\w+) = arith\.constant (?:dense<0> : tensor<[^>]*xi\d+>|0 : i\d+)", ttir)
    )
    return not zeros.isdisjoint(re.findall(r"arith\.(?:div|rem)[su]i .*?, (%\w+)", ttir))


def _narrowed(llir: str) -> bool:
    """Whether LLVM goes on in f16 with what was bf16, since that has no more digits (`ir/narrowing.py`).

    A sum of one term is 0 and that term: it may be rounded before as well as after.
    """
    wide = set(re.findall(r"(%\w+) = fpext [^%]*bfloat", llir))
    cut = re.findall(r"(%\w+) = fptrunc [^%]*(%\w+) to [^%]*half", llir)
    rounded = {name for name, before in cut if before in wide}
    made = re.findall(r"= f(?:add|sub|mul|div|rem) [^%]*half>? (%.*)", llir)
    made = [text for text in made if not re.search(r"zeroinitializer|\b0xH0000|\b0\.0+e\+00", text)]
    return any(rounded & set(re.findall(r"%\w+", operands)) for operands in made)


def amd(assembly: str) -> tuple[int | None, int | None]:
    """The same as the compiler wrote it down, spills in registers."""

    def count(kind: str) -> int | None:
        found = re.search(rf"\.{kind}: +(\d+)", assembly)
        return int(found[1]) if found else None

    return count("vgpr_count"), count("vgpr_spill_count")


def nvidia(cubin: bytes) -> tuple[int | None, int | None]:
    """Registers a thread and bytes spilled, as the assembler counted them."""
    tool = _tool("cuobjdump")
    if tool is None:
        return None, None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [tool, "--dump-resource-usage", file.name]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", shown)
    return (int(found[1]), int(found[2])) if found else (None, None)


def serialized(ptx: str) -> str | None:
    """Why ptxas for sm_90 runs the products of a kernel one after another, as its warnings say (C7510 to C7518).

    "" if it does not, and None without ptxas.
    """
    tool = _tool("ptxas")
    if tool is None:
        return None
    command = [tool, "--gpu-name=sm_90a", "--verbose", "--output-file=/dev/null", "-"]
    done = subprocess.run(command, input=ptx, capture_output=True, text=True, timeout=120)
    said = re.search(r"\(C751\d\)[^\n]*serialized[^\n]*", done.stderr)
    return said[0] if said else ""


@cache
def _tool(name: str) -> str | None:
    """One of CUDA's programs in Triton's wheel."""
    import triton.backends.nvidia as backend

    tool = Path(backend.__file__).parent / "bin" / name
    return str(tool) if tool.exists() else None

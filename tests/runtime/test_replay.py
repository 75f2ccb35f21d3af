"""Replay is proven in a process of its own, since it needs Triton's interpreter: `replay_checks.py`."""

import ast
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from triton.backends.nvidia.driver import CudaLauncher, wrap_handle_tensordesc
from triton.runtime import driver
from triton.tools.tensor_descriptor import TensorDescriptor

from tritongen.runtime.held import held_launch
from tritongen.runtime.load import load_file

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_replay(run_checks):
    run_checks("replay_checks.py", "-k", "not every_spec")


@pytest.mark.slow
def test_every_spec_is_replayed(run_checks):
    run_checks("replay_checks.py", "-k", "every_spec")


def test_a_note_does_not_import_what_compiles():
    """torch._dynamo would cost the first second call of a process six seconds."""
    lines = (
        "import sys, torch",
        "from tritongen.runtime.tape import Tape",
        "Tape((), ()).record(lambda: torch.empty(3))",
        "sys.exit('torch._dynamo' in sys.modules)",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, cwd=ROOT)


class Noting:
    """Stands for a C function: what it is called with is kept."""

    def __init__(self):
        self.calls = []

    def __call__(self, *args):
        self.calls.append(args)
        return "map"


def test_a_held_launch_passes_what_triton_does(monkeypatch):
    """The launcher of the Triton that is installed, over C functions that take note."""
    launch, fill = Noting(), Noting()
    utils = SimpleNamespace(launch=launch, fill_tma_descriptor=fill)
    utils.fill_tma_descriptor_tiled = fill
    monkeypatch.setattr(driver, "_active", SimpleNamespace(utils=utils))
    signature = {"x": "*fp32", "a": "tensordesc<fp32[8, 16]>", "n": "i32", "s": "fp32"}
    meta = dict(swizzle=2, elem_size=4, elem_type=7, block_size=[8, 16], fp4_padded=False)
    run = object.__new__(CudaLauncher)
    vars(run).update(
        num_ctas=1, launch_cooperative_grid=False, launch_pdl=True, arg_annotations=["kinds"]
    )
    sizes = ("global_scratch_size", "profile_scratch_size")
    vars(run).update(dict.fromkeys(sizes, 0), kernel_signature=b"packed")
    vars(run).update(global_scratch_align=1, profile_scratch_align=1)
    run.launch = wrap_handle_tensordesc(launch, signature | {"B": "constexpr"}, [meta])
    compiled = SimpleNamespace(
        run=run,
        function=99,
        packed_metadata=(4, 1, 0),
        metadata=SimpleNamespace(tensordesc_meta=[meta]),
        src=SimpleNamespace(signature=signature | {"B": "constexpr"}),
    )
    tiles = TensorDescriptor(torch.ones(32, 64), [32, 64], [64, 1], [8, 16])
    arguments = [torch.ones(3), tiles, 5, 0.5, None]
    run(2, 3, 1, 7, 99, (4, 1, 0), None, None, None, *arguments)
    places = {id(arguments[0]): "x", id(tiles.base): "a", id(arguments[3]): "s"}
    held = held_launch(compiled, (2, 3), arguments, lambda v: places[id(v)], "0")
    known = dict(stream=7, x=arguments[0], a=tiles.base.data_ptr(), s=0.5)
    eval(held.text, {**held.names, **known})
    (triton_s, ours), (filled, filled_by_us) = launch.calls, fill.calls
    as_lists = [
        [list(a) if isinstance(a, (list, tuple)) else a for a in c] for c in (triton_s, ours)
    ]
    assert as_lists[0] == as_lists[1] and filled == filled_by_us


@pytest.mark.gpu
def test_replay_on_a_gpu():
    """Fresh operands at other places, memory poisoned before each call."""
    random = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.float16)  # noqa: E731
    calls = {
        "relu": lambda: (random(4096),),
        "layer_norm": lambda: (random(64, 1000), random(1000), random(1000), 1e-3),
        "softmax": lambda: (random(2, 100_000),),
        "matmul": lambda: (random(1024, 1024), random(1024, 1024)),
    }
    for name, operands in calls.items():
        f = getattr(load_file(ROOT / "generated" / f"{name}.py"), name)
        held = []
        for k in range(5):
            held.append(operands())
            want = f.__wrapped__(*held[-1]).clone()
            torch.cuda.synchronize()
            torch.full_like(want, float("nan"))
            assert torch.equal(f(*held[-1]), want), (name, k)
        assert not any(ways[0].refused for ways in f.replay.entries.values()), name


GENERATED = sorted((ROOT / "generated").glob("*.py"))


def test_a_run_time_scalar_decides_nothing():
    """What replay relies on: such a number is handed on, to kernels at last, and never looked at.

    Where it is turned into a tensor or an int, a torch op or another object tells the tape; the device and dims of
    one that is a tensor are part of the call's kind.
    """
    found = 0
    told = {path: text for path in GENERATED if "| torch.Tensor" in (text := path.read_text())}
    for path, text in told.items():
        functions = [f for f in ast.parse(text).body if isinstance(f, ast.FunctionDef)]
        scalars = {
            a.arg
            for f in functions
            for a in f.args.args
            if a.annotation is not None and "| torch.Tensor" in ast.unparse(a.annotation)
        }
        host = [f for f in functions if f.name.startswith(("allocate_", "launch_", "choose_"))]
        for function in host:
            nodes = list(ast.walk(function))
            parents = {c: p for p in nodes for c in ast.iter_child_nodes(p)}
            for node in nodes:
                if isinstance(node, ast.Name) and node.id in scalars and is_read(node):
                    found += 1
                    parent = parents[node]
                    if isinstance(parent, ast.Tuple):
                        parent = parents[parent]
                        if is_handed_on(function, parent):
                            continue
                    use = ast.unparse(parent)
                    known = (ast.Call, ast.keyword)
                    assert isinstance(parent, known), f"{path.name}: {use}"
                    assert not use.startswith("choose_"), f"{path.name}: {use}"
    assert found > 50


def is_handed_on(function: ast.FunctionDef, statement: ast.AST) -> bool:
    """`arguments = (...)`, which calls take as `*arguments`, and nothing else does."""
    text = ast.unparse(function)
    return ast.unparse(statement).startswith("arguments = (") and text.count("arguments") == 1 + (
        text.count("*arguments")
    )


def is_read(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)

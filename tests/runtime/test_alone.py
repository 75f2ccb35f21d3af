"""Modules that import nothing of tritongen: later calls do what an earlier one did. See `alone_checks.py`."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from triton.backends.nvidia import driver as nvidia
from triton.runtime import driver
from triton.tools.tensor_descriptor import TensorDescriptor

from tritongen.lib.replayed import launch_of, tiles_like
from tritongen.pipeline import build
from tritongen.runtime.load import load_text

SPECS = Path(__file__).parents[2] / "specs"


@pytest.mark.slow
def test_calls_of_a_module_that_stands_alone(run_checks):
    run_checks("alone_checks.py")


def test_a_launch_with_descriptors_passes_what_triton_does(monkeypatch):
    """The launcher of the Triton that is installed, over C functions that take note; a descriptor is made once a pointer."""
    passed, filled = [], []

    def fill(*how):
        filled.append(how)
        return f"map {how[0]}"

    utils = SimpleNamespace(launch=lambda *a: passed.append(a))
    utils.fill_tma_descriptor_tiled = utils.fill_tma_descriptor = fill
    monkeypatch.setattr(driver, "_active", SimpleNamespace(utils=utils))
    signature = {"x": "*fp32", "a": "tensordesc<fp32[8, 16]>", "n": "i32", "B": "constexpr"}
    meta = dict(swizzle=2, elem_size=4, elem_type=7, block_size=[8, 16], fp4_padded=False)
    run = object.__new__(nvidia.CudaLauncher)
    sizes = ("global_scratch_size", "profile_scratch_size")
    vars(run).update(dict.fromkeys(sizes, 0), kernel_signature=b"packed", arg_annotations=["kinds"])
    vars(run).update(num_ctas=1, launch_cooperative_grid=False, launch_pdl=True)
    vars(run).update(global_scratch_align=1, profile_scratch_align=1)
    run.launch = nvidia.wrap_handle_tensordesc(utils.launch, signature, [meta])
    compiled = SimpleNamespace(
        run=run,
        function=99,
        packed_metadata=(4, 1, 0),
        metadata=SimpleNamespace(tensordesc_meta=[meta]),
        src=SimpleNamespace(signature=signature),
    )
    x, tiles = torch.ones(3), TensorDescriptor(torch.ones(32, 64), [32, 64], [64, 1], [8, 16])
    run(2, 3, 1, 7, 99, (4, 1, 0), None, None, None, x.data_ptr(), tiles, 5, None)
    places = {x.data_ptr(): 0, tiles.base.data_ptr(): 1}
    kernel = SimpleNamespace(pre_run_hooks=[])
    named = {"x": x, "a": tiles, "n": 5, "B": 64, "grid": (2, 3)}
    _, run, given, at = launch_of((kernel, compiled, named), places, tiles_like)
    for _ in range(2):
        for k, place, described in at:
            pointer = [*places][place]
            given[k] = described(pointer) if described else pointer
        given[3] = 7
        run(*given)
    as_lists = [[list(a) if isinstance(a, (list, tuple)) else a for a in c] for c in passed]
    assert as_lists[0] == as_lists[1] == as_lists[2] and filled[0] == filled[1] and len(filled) == 2


@pytest.mark.gpu
def test_a_module_that_stands_alone_on_a_gpu():
    """Fresh operands at other places, memory poisoned before each call; then in the capture of a graph."""
    random = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.float16)  # noqa: E731
    calls = {
        "relu": lambda: (random(4096),),
        "softmax": lambda: (random(2, 100_000),),
        "matmul": lambda: (random(1024, 1024), random(1024, 1024)),
    }
    for name, operands in calls.items():
        text = build((SPECS / f"{name}.op").read_text(), f"{name}.op", True, gradients=True).raw
        f, kept = getattr(load_text(name, text), name), []
        for k in range(5):
            kept.append(operands())
            want = f.__wrapped__.__wrapped__(*kept[-1]).clone()
            torch.full_like(want, float("nan"))
            assert torch.equal(f(*kept[-1]), want), (name, k)
        graph, held = torch.cuda.CUDAGraph(), operands()
        with torch.cuda.graph(graph):
            y = f(*held)
        for x, fresh in zip(held, operands(), strict=True):
            x.copy_(fresh)
        graph.replay()
        assert torch.equal(y, f.__wrapped__.__wrapped__(*held)), name


def test_a_wrong_call_of_a_module_that_stands_alone_is_told_what_is_wrong():
    text = "op f<T: float>(x: T[N, D], w: T[D]) -> y: T[N, D] { y[n, d] = x[n, d] * w[d] }"
    f = load_text("f", build(text, "f.op", True, gradients=True).raw).f
    x, w = torch.ones(2, 3, requires_grad=True), torch.ones(3)
    wrong = [
        (lambda: f(x.detach().to_sparse(), w), "x: expected a strided .* pass x.to_dense"),
        (lambda: f(x, w.to_sparse()), "w: expected a strided tensor, given torch.sparse_coo"),
        (lambda: f([1.0], w), "f: x: expected a tensor, given list"),
        (lambda: f(x, torch.nested.nested_tensor([w, w])), "f: w: .* given a nested tensor"),
        (lambda: f(x, weight=w), r"f\(\) got an unexpected keyword argument 'weight'"),
        (lambda: f(x), r"f\(\) missing 1 required positional argument: 'w'"),
    ]
    for call, message in wrong:
        with pytest.raises(TypeError, match=message):
            call()

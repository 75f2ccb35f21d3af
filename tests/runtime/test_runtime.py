"""What a generated module gets from the runtime, on a module written by hand."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from tritongen.runtime import load, torch_op

HANDMADE = Path(__file__).with_name("handmade_module.py")


@pytest.fixture(scope="module")
def ops():
    return load.load_file(HANDMADE)


def test_attributes_and_plain_call(ops):
    x = torch.randn(5, 7)
    assert ops.axpb.spec == "specs/handmade.op"
    assert ops.axpb.source == HANDMADE.read_text()
    assert ops.axpb.reference is ops.axpb_reference
    torch.testing.assert_close(ops.axpb(x, 3.0), x * 3)
    torch.testing.assert_close(ops.axpb(x, torch.tensor(3.0), flip=True), x * -3)


def test_plain_calls_bypass_the_torch_op(ops, monkeypatch):
    seen = []
    monkeypatch.setattr(torch_op, "_functorch_level", lambda: seen.append("asked"))
    ops.axpb(torch.ones(2))
    ops.axpb(torch.nn.Parameter(torch.ones(2), requires_grad=False))
    with torch.no_grad():
        ops.axpb(torch.ones(2, requires_grad=True))
    assert not seen


def test_gradient_raises_until_there_is_one(ops):
    x = torch.randn(4, requires_grad=True)
    y = ops.axpb(x, 2.0)
    with pytest.raises(RuntimeError, match="axpb: no gradient: it was given none"):
        y.sum().backward()
    values, where = ops.top(torch.randn(3, 4, requires_grad=True))
    assert values.requires_grad and not where.requires_grad
    factor = torch.tensor(2.0, requires_grad=True)
    assert ops.axpb(torch.ones(3), factor).requires_grad
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x.detach(), torch.ones(4))
        with pytest.raises(RuntimeError, match="forward-mode"):
            ops.axpb(dual)


def test_given_backward(ops):
    x = torch.randn(4, requires_grad=True)
    ops.square(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())
    functional = torch.func.grad(lambda v: ops.square(v).sum())(x.detach())
    torch.testing.assert_close(functional, 2 * x.detach())


SCALED = """
import torch
from tritongen import runtime

def backward(x, s, dy):
    return dy * s, (dy * x).sum()

def forward(x, s=2.0, flip=False):
    return (x * s, x.sum())

@runtime.op(
    "specs/scaled.op", allocate=forward, reference=forward,
    backward=runtime.Backward("backward", wrt=("x", "s"), outputs=("y", "total")),
)
def scaled(x: torch.Tensor, s: float | torch.Tensor = 2.0, flip: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    return forward(x, s, flip)
"""


def test_a_scalar_gets_a_gradient_where_it_is_a_tensor(cache):
    scaled = load.load_text("scaled", SCALED).scaled
    x = torch.randn(4, requires_grad=True)
    s = torch.tensor(3.0, requires_grad=True)
    scaled(x, s)[0].sum().backward()
    torch.testing.assert_close(x.grad, torch.full((4,), 3.0))
    torch.testing.assert_close(s.grad, x.detach().sum())
    x.grad = None
    scaled(x, flip=True)[0].sum().backward()
    torch.testing.assert_close(x.grad, torch.full((4,), 2.0))


def test_vmap_and_fake_tensors(ops):
    x = torch.randn(3, 4)
    torch.testing.assert_close(torch.func.vmap(ops.axpb)(x), 2 * x)
    with torch._subclasses.FakeTensorMode():
        fake = ops.axpb(torch.empty(3, 4))
    assert type(fake) is not torch.Tensor and fake.shape == (3, 4)


def test_opcheck(ops):
    x = torch.randn(3, 4)
    registered = {n.rpartition("_")[0]: n for n in torch_op.REGISTERED}
    overload = getattr(torch.ops.tritongen, registered["axpb"]).default
    torch.library.opcheck(overload, (x.t(), 2.0, None, False))
    torch.library.opcheck(overload, (x, 0.0, torch.tensor(3.0), True))


def test_compile_and_export_keep_one_node(ops):
    x = torch.randn(3, 4)
    both = torch.compile(
        lambda v: ops.axpb(v, 3.0) + ops.top(v)[0][:, None], backend="aot_eager", fullgraph=True
    )
    torch.testing.assert_close(both(x), 3 * x + x.max(-1, keepdim=True).values)

    class Module(torch.nn.Module):
        def forward(self, v):
            return ops.axpb(v, 2.0)

    rows = torch.export.Dim("rows")
    program = torch.export.export(Module(), (x,), dynamic_shapes={"v": {0: rows}})
    calls = [n for n in program.graph.nodes if n.op == "call_function"]
    assert len(calls) == 1 and "axpb" in str(calls[0].target)
    torch.testing.assert_close(program.module()(torch.ones(9, 4)), torch.full((9, 4), 2.0))


def test_many_ops_compile_each_on_its_own(cache):
    text = HANDMADE.read_text()
    with torch._dynamo.config.patch(recompile_limit=2):
        for k in range(4):
            square = load.load_text("many", f"{text}\n# {k}\n").square
            compiled = torch.compile(square, backend="aot_eager", fullgraph=True)
            assert compiled(torch.tensor(3.0)).item() == 9


def test_wrong_arguments_read_like_python(ops):
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(TypeError, match="takes 3 arguments but 4"):
        ops.axpb(x, 1.0, True, 4)
    with pytest.raises(TypeError, match="missing the argument 'x'"):
        ops.square()
    with pytest.raises(TypeError, match="has no argument 'y': it has x"):
        ops.square(**{"y": x})


# ---- loading ------------------------------------------------------------------------------------
TEXT = "import sys\nVALUE = [1]\ndef who():\n    return __name__\n"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(load, "_modules", {})
    return tmp_path / "tritongen"


def test_a_text_is_imported_once_and_copied_privately(cache):
    module = load.load_text("thing", TEXT)
    assert load.load_text("thing", TEXT) is module
    assert sys.modules[module.who()] is module
    path = Path(module.__file__)
    assert path.parent == cache and path.read_text() == TEXT
    assert path.stat().st_mode & 0o777 == 0o600 and cache.stat().st_mode & 0o777 == 0o700
    assert not list(cache.glob(".*"))


def test_a_damaged_copy_is_never_run(cache):
    path = Path(load.load_text("thing", TEXT).__file__)
    path.write_text("raise SystemExit('poison')")
    load._modules.clear()
    with pytest.warns(UserWarning, match="is stale, or was not"):
        module = load.load_text("thing", TEXT)
    assert module.VALUE == [1] and path.read_text() == TEXT


@pytest.mark.parametrize("spoil", ["open", "symlink", "file"])
def test_an_unsafe_cache_folder_is_left_alone(cache, tmp_path, spoil):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if spoil == "open":
        cache.mkdir()
        cache.chmod(0o777)
    elif spoil == "symlink":
        cache.symlink_to(elsewhere)
    else:
        cache.write_text("")
    with pytest.warns(UserWarning, match="no cached copy"):
        module = load.load_text("thing", TEXT)
    assert module.__file__.startswith("<tritongen") and module.VALUE == [1]
    assert not list(elsewhere.iterdir())


def test_a_full_disk_costs_the_copy_only(cache, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(load, "write_atomically", full)
    with pytest.warns(UserWarning, match="No space left"):
        # A text of its own: modules of one text share their torch ops, and `ops` has some already.
        kernels = load.load_text("handmade", HANDMADE.read_text() + "# full\n")
    # Triton reads a kernel's text through inspect: it must be there without a file
    assert "def axpb_pointwise" in kernels.axpb_pointwise.src


def test_a_module_that_fails_leaves_nothing_behind(cache):
    with pytest.raises(ZeroDivisionError):
        load.load_text("broken", "1 / 0\n")
    assert not [name for name in sys.modules if name.startswith("tritongen_generated_broken")]


def test_threads_share_one_import(cache):
    found = []
    slow = "import time\ntime.sleep(0.05)\n" + TEXT
    threads = [
        threading.Thread(target=lambda: found.append(load.load_text("slow", slow)))
        for _ in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({id(m) for m in found}) == 1


def test_a_fork_does_not_inherit_held_locks(cache):
    with load._lock(load_key := "held"):
        child = os.fork()
        if child == 0:
            os._exit(0 if load._lock(load_key).acquire(timeout=1) else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_importing_a_module_starts_no_driver():
    script = (
        "import torch, sys; from tritongen.runtime.load import load_file; from triton.runtime import driver\n"
        f"load_file({str(HANDMADE)!r})\n"
        "assert not torch.cuda.is_initialized() and driver._active is None\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_memory_that_holds_the_opposite_goes_to_the_torch_op(ops, monkeypatch):
    """`.conj().imag` is a view whose sign is a flag: a kernel would read the memory as it is."""
    seen = []
    monkeypatch.setattr(ops, "axpb_reference", lambda x, *a: seen.append(x.is_neg()) or x * 2)
    x = torch.randn(4, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    torch.testing.assert_close(ops.axpb(x), 2 * x.resolve_neg())
    assert seen == [False]
    assert ops.axpb(x.to("meta")).is_meta


INTERPRETED = """
import warnings, torch, triton, triton.language as tl, tritongen
from tritongen import runtime
from tritongen.runtime.load import load_text
from triton.language.extra import libdevice

# Functions of libdevice, of which it has none.
kernel = load_text("libdevice", '''
import triton, triton.language as tl
from triton.language.extra import libdevice
@triton.jit
def kernel(x_ptr, y_ptr, n, scale, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    y = libdevice.tanh(x) * libdevice.exp(scale) + libdevice.pow(x, 2.0)
    tl.store(y_ptr + i, tl.where(libdevice.isnan(x), 7.0, y), mask=i < n)
''').kernel
x = torch.randn(60); x[5] = float("nan"); y = torch.empty_like(x)
kernel[(1,)](x, y, 60, 1.5, BLOCK=64)
want = torch.where(x.isnan(), 7.0, x.tanh() * 2.718281828459045 ** 1.5 + x * x)
torch.testing.assert_close(y, want)

# It counts to a number: Triton 3.6 converted an array, which numpy 2.5 refuses, and before warns of.
kernel = load_text("counts", '''
import triton, triton.language as tl
@triton.jit
def kernel(y_ptr, n):
    total = tl.zeros((4,), tl.int64)
    for k in range(n):
        total += k
    tl.store(y_ptr + tl.arange(0, 4), total)
''').kernel
y = torch.empty(4, dtype=torch.int64)
with warnings.catch_warnings():
    warnings.simplefilter("error")
    kernel[(1,)](y, 5)
assert y.tolist() == [10] * 4

# bf16 is rounded, and its values multiplied.
x = torch.randn(3000)
y = tritongen.compile_expr("bf16(x * 1.0)")(x)
assert torch.equal(y, x.bfloat16()), "cut off, not rounded"
a, b = torch.randn(17, 40).bfloat16(), torch.randn(40, 19).bfloat16()
y = tritongen.compile_expr("y[m, n] = sum[k](a[m, k] * b[k, n])")(a, b)
torch.testing.assert_close(y.double(), a.double() @ b.double(), rtol=2**-8, atol=1e-3)

# Unsigned integers are numbers with bits: numpy 2 refuses the -1 that Triton takes for all bits of them.
x = torch.tensor([0, 3, 250], dtype=torch.uint8)
assert tritongen.compile_expr("bit_not(x)")(x).tolist() == [255, 252, 5]
assert tritongen.compile_expr("x // (x + 2)")(x + 2).tolist() == [0, 0, 0]
assert tritongen.compile_expr("x % 7")(x).tolist() == [0, 3, 5]
"""


def test_the_interpreter_does_what_kernels_need():
    """In one process, since each that starts imports torch and Triton anew."""
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", INTERPRETED], check=True, env=env)

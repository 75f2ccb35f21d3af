"""Tuned choices: what is tried, what is stored, what a damaged file does, and how a call finds one."""

import inspect
import json
import os
import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest
import torch
import triton

from tritongen import explain, lib, pipeline, trace
from tritongen.choice import of_gpu
from tritongen.lib import copies
from tritongen.runtime import tuned
from tritongen.runtime.choosers import choosers
from tritongen.runtime.load import load_text
from tritongen.schedule.classes.contraction_stages import shared_bytes
from tritongen.tune.candidates import (
    MOST,
    CannotTune,
    Device,
    candidates,
    check_clause,
    config_of,
    fits,
)

H200 = Device(232_448)
SMALL = Device(48 * 1024)
TMA = {
    **{"tma": True, "tf32x3": True, "stored_bytes": 2},
    **{"copied_bytes": 0, "transposed_bytes": 0, "vectorized": True},
}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(tuned, "cache_path", lambda: tmp_path / "tritongen")
    monkeypatch.setattr("tritongen.runtime.cache.cache_path", lambda: tmp_path / "tritongen")
    monkeypatch.setattr(tuned, "device_name", lambda device: "a GPU")
    return tmp_path / "tritongen"


def built_of(name, more=""):
    text = open(f"specs/{name}.op").read()
    return pipeline.build(text.replace("\n}", f"\n{more}\n}}") if more else text)


def step_of(built):
    ((name, plans),) = built.plans.items()
    step = plans[0].steps[0]
    return plans[0].op, step, choosers(built.raw, name)[step.name]


ROWS = {
    "rows": 8192,
    "cols": 4096,
    "strided": False,
    "aligned": True,
    "in_f64": False,
    "itemsize": 2,
    **of_gpu({"gpu": lib.Gpu()}),
}


def test_a_chooser_by_a_second_name_is_noted_and_tuned_by_itself():
    """`choose_matmul_backward_da = choose_matmul`: the same rules, of another step."""
    built = pipeline.build(open("specs/matmul.op").read(), gradients=True)
    module, steps = load_text("matmul", built.raw), choosers(built.raw, "matmul_backward")
    assert module.choose_matmul_backward_da is module.choose_matmul
    a, b, dy = (torch.empty(64, 64, device="meta") for _ in range(3))
    calls = trace.trace(module, "matmul_backward", dict(a=a, b=b, dy=dy))
    assert (
        [c.step for c in calls.choices] == [*steps] == ["matmul_backward_da", "matmul_backward_db"]
    )
    first = steps["matmul_backward_da"].with_first("small", {"num_warps": 2}, vars(module))
    asked = inspect.signature(first).parameters
    variant, config = first(**{n: v for n, v in calls.choices[0].facts.items() if n in asked})
    assert (variant, config["num_warps"], first.__name__) == (
        "small",
        2,
        "choose_matmul_backward_da",
    )


# ---- candidates ---------------------------------------------------------------------------------
@pytest.mark.parametrize("name, facts", [
    ("softmax", ROWS),
    ("softmax", {**ROWS, "rows": 4, "cols": 1 << 20}),
    ("matmul", {"M": 4096, "N": 4096, "K": 4096, "batches": 1, "itemsize": 2, **of_gpu({"gpu": lib.Gpu()}), **TMA}),
    ("relu", {"outer": 1, "middle": 1, "inner": 4096, "transposed": False, "total": 4096, "itemsize": 4}),
])  # fmt: skip
def test_at_most_six_the_plans_own_first(name, facts):
    op, step, chooser = step_of(built_of(name))
    found = candidates(op, step, chooser, facts, H200)
    assert 1 < len(found) <= MOST and found[0].knobs == {}
    assert len({(c.variant, *c.config.items()) for c in found}) == len(found)
    for c in found:
        variant = next(v for v in step.variants if v.name == c.variant)
        assert c.config == config_of(variant, facts, c.knobs)
        assert set(c.knobs) <= set(chooser.knobs(c.variant)) and fits(
            step, variant, c.config, facts, H200
        )


def test_what_follows_from_a_size_is_no_knob():
    """BLOCK is the whole row of `rows`, PARTS and CHUNK cut it: another number would leave elements out."""
    _, _, chooser = step_of(built_of("softmax"))
    assert set(chooser.knobs("rows")) == {"ROWS", "num_warps"}
    assert not {"PARTS", "CHUNK"} & set(chooser.knobs("split"))
    forced = chooser.with_first("loop", {"BLOCK": 512, "num_warps": 4}, {"lib": lib})
    assert forced(8192, 4096, False, True, False, 2, lib.Gpu(forward_progress=False)) == (
        "loop",
        {"ROWS": 1, "BLOCK": 512, "num_warps": 4},
    )
    # Its own condition still holds it back, and then the plan chooses.
    forced = chooser.with_first("rows", {"num_warps": 16}, {"lib": lib})
    assert (
        forced(8192, 4096, False, True, False, 2, lib.Gpu(forward_progress=False))[1]["num_warps"]
        == 16
    )
    assert (
        forced(8192, 1 << 16, False, True, False, 2, lib.Gpu(forward_progress=False))[0] == "loop"
    )
    # What speaks of a changed knob follows it: a part is a whole number of blocks.
    forced = chooser.with_first("split", {"BLOCK": 512}, {"lib": lib})
    name, config = forced(4, 1 << 20, False, True, False, 2, lib.Gpu(forward_progress=False))
    assert name == "split" and config["CHUNK"] * config["PARTS"] >= 1 << 20
    assert config["CHUNK"] % 512 == 0


def test_tiles_over_shared_memory_are_left_out_and_one_stays():
    op, step, chooser = step_of(built_of("matmul"))
    facts = {
        "M": 8192,
        "N": 8192,
        "K": 8192,
        "batches": 1,
        "itemsize": 2,
        **of_gpu({"gpu": lib.Gpu()}),
        **TMA,
    }

    def asked(c):
        variant = next(v for v in step.variants if v.name == c.variant)
        kernel = step.kernel(variant.launches[0].kernel)
        return shared_bytes(kernel, variant, {**facts, **c.config})

    wide, narrow = (candidates(op, step, chooser, facts, d) for d in (H200, SMALL))
    assert max(map(asked, wide)) <= H200.shared_bytes
    assert narrow and all(asked(c) <= SMALL.shared_bytes for c in narrow)
    (last,) = candidates(op, step, chooser, facts, Device(4096))
    assert asked(last) <= 4096 and last.config["BLOCK_K"] >= 16


def test_the_tune_clause_replaces_the_rest():
    built = built_of("matmul", "tune m = [64, 128], warps = [4, 8]")
    op, step, chooser = step_of(built)
    facts = {
        "M": 4096,
        "N": 4096,
        "K": 64,
        "batches": 1,
        "itemsize": 2,
        **of_gpu({"gpu": lib.Gpu()}),
        **TMA,
    }
    first, *rest = candidates(op, step, chooser, facts, H200)
    assert first.knobs == {} and all(set(c.knobs) == {"BLOCK_M", "num_warps"} for c in rest)
    assert {c.knobs["BLOCK_M"] for c in rest} == {64, 128}
    op, step, chooser = step_of(built_of("softmax", "tune d = [1024], warps = [16]"))
    rows = next(v for v in step.variants if v.name == "rows")
    with pytest.raises(
        CannotTune, match="tune d: no step has .* softmax \\(rows\\): ROWS, num_warps"
    ):
        check_clause(op, [(step, rows, chooser)])
    assert [c.knobs for c in candidates(op, step, chooser, ROWS, H200)] == [{}, {"num_warps": 16}]


# ---- the file -----------------------------------------------------------------------------------
def entry(**changes):
    fields = {
        "device": "a GPU",
        "torch": torch.__version__,
        "triton": triton.__version__,
        "step": "softmax",
        "tensors": (("bfloat16", (8192, 4096)), ("bfloat16", (8192, 4096))),
        "flags": (("strided", False), ("aligned", True), ("in_f64", False)),
        "variant": "rows",
        "knobs": (("num_warps", 16),),
        "microseconds": 9.0,
        "default_microseconds": 10.0,
    }
    return tuned.Entry(**{**fields, **changes})


class Kernel:
    """Notes what it is launched with, and refuses some of it."""

    def __init__(self, refuses=()):
        self.configs, self.refuses = [], refuses

    def __getitem__(self, grid):
        def launch(*args, **config):
            if config["num_warps"] in self.refuses:
                raise RuntimeError("out of resource: shared memory")
            self.configs.append(config)

        return launch


def softmax_module(built, refuses=()):
    """A new import of the module, its kernels noting."""
    module = load_text(f"{built.name}_{os.urandom(4).hex()}", built.raw)
    module.softmax_rows = module.softmax_loop = Kernel(refuses)
    module.__dict__["lib"] = SimpleNamespace(**vars(lib) | {"gpu": lambda device: lib.Gpu()})
    return module


def launched(module, rows=8192, cols=4096, dtype=torch.bfloat16):
    x = torch.empty(rows, cols, dtype=dtype, device="meta")
    module.softmax_rows.configs.clear()
    module.launch_softmax(x, torch.empty_like(x))
    return module.softmax_rows.configs[-1]


def test_nothing_stored_nothing_changed(cache):
    built = built_of("softmax")
    module = load_text(f"plain_{os.urandom(4).hex()}", built.raw)
    assert not hasattr(module.choose_softmax, "__wrapped__")
    assert not hasattr(module.launch_softmax, "__wrapped__")
    assert not (cache / "tuned").exists()


def test_a_stored_choice_serves_its_bucket_and_nothing_else(cache):
    built = built_of("softmax")
    plain = launched(softmax_module(built))
    path = tuned.store(built.raw, "softmax", [entry()], set())
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    module = softmax_module(built)
    assert launched(module)["num_warps"] == 16 != plain["num_warps"]
    assert launched(module, 5000, 3008)["num_warps"] == 16  # the same bucket, its own BLOCK
    assert launched(module, 5000, 3008)["BLOCK"] == 4096
    for other in ({"cols": 4097}, {"rows": 4096}, {"dtype": torch.float16}):
        assert launched(module, **other)["num_warps"] != 16
    # The same module as `tritongen build` writes it finds the same entry.
    assert tuned.path_of(built.source, "softmax") == path
    assert module.softmax(torch.ones(2, 4)).shape == (2, 4)
    # Another version's measurement, or another GPU's, says nothing here.
    for foreign in ({"triton": "3.0.0"}, {"torch": "1.0"}, {"device": "another GPU"}):
        tuned.store(built.raw, "softmax", [entry(**foreign)], {entry().key})
        assert launched(softmax_module(built))["num_warps"] == plain["num_warps"]


def test_explain_tells_a_tuned_choice(cache, monkeypatch):
    built = built_of("softmax")
    tuned.store(built.raw, "softmax", [entry()], set())
    module = load_text(f"told_{os.urandom(4).hex()}", built.raw)
    args = {"x": torch.empty(8000, 4000, dtype=torch.bfloat16, device="meta")}
    for gpu, tuned_here in (("a GPU", True), ("another", False)):
        monkeypatch.setattr(trace, "here", lambda gpu=gpu: gpu)
        (choice,) = trace.trace(module, "softmax", args).choices
        assert choice.tuned is tuned_here and (choice.config["num_warps"] == 16) is tuned_here
    monkeypatch.setattr(trace, "here", lambda: "a GPU")
    (plan,) = built.plans["softmax"]
    said = explain.text(explain.explain_call(module, plan, args))
    assert "config, tuned on this machine: BLOCK = 4096" in said


def test_a_config_that_does_not_run_gives_way(cache):
    built = built_of("softmax")
    tuned.store(built.raw, "softmax", [entry()], set())
    module = softmax_module(built, refuses=(16,))
    with pytest.warns(UserWarning, match="out of resource"):
        assert launched(module)["num_warps"] != 16
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert launched(module)["num_warps"] != 16
    module.softmax_rows.refuses = (2, 4, 8, 16, 32)  # and a fault of the plan's own stays one
    with pytest.raises(RuntimeError, match="out of resource"):
        launched(module)


POISON = {
    "code for a number": ("knobs", {"num_warps": "__import__('os')"}),
    "999 stages": ("knobs", {"num_warps": 999}),
    "a tile of 3": ("knobs", {"ROWS": 3}),
    "a bool": ("knobs", {"num_warps": True}),
    "a float": ("knobs", {"num_warps": 4.0}),
    "a tile that is the row": ("knobs", {"BLOCK": 16}),
    "an unknown knob": ("knobs", {"maxnreg": 8}),
    "no variant": ("variant", "../../x"),
    "no step": ("step", "os"),
    "no dtype": ("tensors", [["__doc__", [8192, 4096]]]),
    "no bucket": ("tensors", [["bfloat16", [8191, 4096]]]),
    "another flag": ("flags", {"strided": False, "aligned": True, "in_f64": False, "x": True}),
    "a flag of another kind": ("flags", {"strided": 0, "aligned": True, "in_f64": False}),
    "a time that is none": ("microseconds", float("nan")),
    "a time that no float holds": ("microseconds", 10**400),
    "a default time that no float holds": ("default_microseconds", -(10**400)),
    "a size of 400 digits": ("tensors", [["bfloat16", [10**400, 4096]]]),
    "400 digits of warps": ("knobs", {"num_warps": 10**400}),
    "a key too many": ("x", 1),
}


@pytest.mark.parametrize("what", [*POISON, "bytes", "a list", "deep", "huge", "digits", "format", "mode", "link", "fifo", "folder"])  # fmt: skip
def test_a_damaged_file_is_ignored_with_one_warning(cache, tmp_path, what):
    built = built_of("softmax")
    path = tuned.store(built.raw, "softmax", [entry()], set())
    data = json.loads(path.read_text())
    if what in POISON:
        name, value = POISON[what]
        data["entries"][0][name] = value
        path.write_text(json.dumps(data))
    elif what == "mode":
        path.chmod(0o666)
    elif what == "link":
        path.rename(tmp_path / "elsewhere.json")
        path.symlink_to(tmp_path / "elsewhere.json")
    elif what == "folder":
        path.parent.chmod(0o777)
    elif what == "fifo":
        path.unlink()
        os.mkfifo(path)
    else:
        texts = {"bytes": b"\x80\x04\x95cos\nsystem\n", "a list": b"[]", "deep": b"[" * 100_000}
        texts |= {"digits": b'{"format": ' + b"1" * 5000 + b', "entries": []}'}
        texts |= {"huge": b" " * (2 << 20), "format": json.dumps({**data, "format": 2}).encode()}
        path.write_bytes(texts[what])
    with pytest.warns(UserWarning) as seen:
        module = softmax_module(built)
    assert len([w for w in seen if "are not used" in str(w.message)]) == 1
    assert launched(module)["num_warps"] != 16


def test_storing_over_a_damaged_file_replaces_it(cache):
    built = built_of("softmax")
    path = tuned.store(built.raw, "softmax", [entry()], set())
    path.write_text("{")
    with pytest.warns(UserWarning, match="replaced"):
        tuned.store(built.raw, "softmax", [entry()], set())
    assert len(json.loads(path.read_text())["entries"]) == 1
    again = entry(microseconds=8.0)
    tuned.store(built.raw, "softmax", [again], set())  # one key, one entry
    (kept,) = json.loads(path.read_text())["entries"]
    assert kept["microseconds"] == 8.0
    assert not [p for p in path.parent.iterdir() if p != path]


def test_thousands_of_entries_are_kept_and_compiled_as_calls_ask(cache):
    built = built_of("softmax")
    sizes = [1 << k for k in range(63)]
    many = [entry(tensors=(("bfloat16", (n, m)),) * 2) for n in sizes for m in sizes][:3900]
    path = tuned.store(built.raw, "softmax", [*many, entry()], set())
    assert path.stat().st_size <= tuned.MOST_BYTES
    assert len(tuned.read(path, tuned.choosers(built.raw, "softmax"))) > 2000
    module = softmax_module(built)
    assert launched(module)["num_warps"] == 16  # the newest stay
    assert len(module.launch_softmax.in_force.made) == 1  # else each is compiled at the import


# ---- from end to end, kernels in the interpreter -----------------------------------------------------
SCRIPT = """
import sys, warnings
from pathlib import Path
import torch
from tritongen import lib, pipeline
from tritongen.runtime import tuned
from tritongen.runtime.load import load_file, load_text
from tritongen.shapes import call_of
from tritongen.tune import run

warnings.filterwarnings("error", message="tritongen.*")
built = pipeline.build(Path("specs/softmax.op").read_text(), "specs/softmax.op")
(plan,) = built.plans["softmax"]
op, case = call_of([plan.op], {"...": (6,), "D": 40}, "f32")
module = load_text(built.name, built.raw)
real, seen = module.softmax_rows, []

class Spy:
    arg_names, fn, warmup = real.arg_names, real.fn, None
    def __getitem__(self, grid):
        def launch(*args, **config):
            seen.append(config)
            real[grid](*args, **config)
            if config["ROWS"] == 8:  # this candidate computes something else
                args[1].zero_()
        return launch

class Clock:  # two warps are fastest
    def run(self, call):
        seen.clear()
        call()
        seconds = 1.0 if seen and seen[-1]["num_warps"] == 2 else 2.0
        return lambda: seconds
    def settle(self): pass

module.softmax_rows = Spy()
lib.runs_kernels = lambda x: True
trials = run.tune(built, op, case, device="cpu", timer=Clock())
for t in trials:
    print(t.candidate, t.seconds, t.wins, t.problem)
assert [str(t.candidate) for t in trials if t.wins] == ["rows (num_warps=2)"], trials
assert any(t.problem for t in trials if t.candidate.config["ROWS"] == 8)
path = run.keep(built, "softmax", trials)
assert path == tuned.path_of(built.raw, "softmax")
Path(sys.argv[1]).write_text(built.source)
fresh = load_file(sys.argv[1])
used = []
inner = fresh.softmax_rows
class Count:
    def __getitem__(self, grid):
        return lambda *a, **c: (used.append(c["num_warps"]), inner[grid](*a, **c))
fresh.softmax_rows = Count()
x = torch.randn(7, 38)
torch.testing.assert_close(fresh.softmax(x), torch.softmax(x, -1))
torch.testing.assert_close(fresh.softmax(x.half()).float(), torch.softmax(x, -1), atol=1e-3, rtol=1e-2)
assert used == [2, 1], used
# Tuned again, with a clock that finds the plan's own fastest: the entry goes.
class Even(Clock):
    def run(self, call):
        return lambda: 1.0
run.keep(built, "softmax", run.tune(built, op, case, device="cpu", timer=Even()))
assert tuned.read(path, tuned.choosers(built.raw, "softmax")) == ()
print("done")
"""


@pytest.mark.slow
def test_tune_store_and_use(tmp_path):
    env = {**os.environ, "TRITON_INTERPRET": "1", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "softmax.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    assert done.stdout.endswith("done\n"), done.stdout + done.stderr


# ---- compiles -----------------------------------------------------------------------------------
@pytest.mark.parametrize("name, shapes, kernels", [
    ("relu", [dict(x=(n,)) for n in (1040, 1536, 2048)], 1),
    ("softmax", [dict(x=(n, d)) for n, d in ((5008, 528), (6016, 800), (8192, 1024))], 1),
    ("linear_gelu", [dict(x=(n, 64), w=(96, 64), b=(96,)) for n in (5008, 6016, 8192)], 1),
    ("column_sum", [dict(x=(n, 4096)) for n in (272, 400, 512)], 1),
    ("cumsum", [dict(x=(n, 4096)) for n in (5008, 6016, 8192)], 1),
    ("softmax", [dict(x=(n, 1 << 20)) for n in (5, 6, 8)], 2),
    ("conv2d", [dict(x=(n, 64, 18, 18), w=(64, 64, 3, 3), b=(64,)) for n in (272, 400, 512)], 3),
])  # fmt: skip
def test_one_size_bucket_is_one_compile(name, shapes, kernels):
    """Counted: what Triton's JIT compiles anew for sm_90, over calls whose sizes round up alike.

    Triton itself tells a size of 1, and one that 16 divides, from others; all sizes here are of one kind.
    """
    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("the interpreter compiles nothing")
    built = built_of(name)
    module = load_text(f"{name}_{os.urandom(4).hex()}", built.raw)
    used = {}
    copies._copy.device_caches.clear()  # the library's: what other tests compiled does not count
    for shape in shapes:
        args = {k: torch.empty(s, dtype=torch.bfloat16, device="meta") for k, s in shape.items()}
        for launch in trace.trace(module, name, args).launches:
            trace.compile_launch(launch, "sm_90")
            used[launch.kernel.fn.__name__] = launch.kernel
    compiled = sum(len(c[0]) for kernel in used.values() for c in kernel.device_caches.values())
    assert compiled == kernels

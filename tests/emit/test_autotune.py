"""`build --autotune`: what is free, what is printed, and that compilers take every config of a table."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner
from triton.tools.tensor_descriptor import TensorDescriptor

from tritongen import lib, pipeline, trace
from tritongen.emit.tuning import added_to
from tritongen.emit.view import KernelView
from tritongen.proof.crosscompile import launches_of, lower_one
from tritongen.runtime.load import load_text
from tritongen.runtime.tuned import digest_of
from tritongen.schedule.tunable import MOST, OPTIONS, asked, free, launched, table

ROOT = Path(__file__).parents[2]
SPECS = sorted((ROOT / "specs").glob("*.op"))


def build(name: str, **how):
    return pipeline.build((ROOT / f"specs/{name}.op").read_text(), f"{name}.op", **how)


def step_of(name: str):
    return build(name).plans[name][0].steps[0]


# ---- what is free -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "kernel", "expected"),
    [
        ("relu", "flat", {"BLOCK", *OPTIONS}),
        ("softmax", "rows", {"ROWS", *OPTIONS}),  # a BLOCK is a row
        ("softmax", "loop", {"BLOCK", "ROWS", *OPTIONS}),
        ("softmax", "two_pass", set()),  # programs wait for each other
        ("matmul", "tiles", {"BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", *OPTIONS}),
        ("matmul", "combine", set()),  # a config of its own
        ("conv2d", "patches", {*OPTIONS}),  # the host shapes patches
        ("int4_linear", "tiles", {"BLOCK_M", "BLOCK_N", "GROUP_M", *OPTIONS}),  # within a group
    ],
)
def test_what_is_free(name, kernel, expected):
    assert set(free(step_of(name), f"{name}_{kernel}")) == expected


@pytest.mark.parametrize(
    "spec", ["softmax", "matmul", "conv2d", "max_pool2d", "cumsum", "embedding"]
)
def test_nothing_that_is_asked_for_or_spoken_of_is_in_a_table(spec):
    for plan in build(spec).plans[spec]:
        for step in plan.steps:
            for kernel in step.kernels:
                rows = table(step, kernel.name, free(step, kernel.name))
                assert len(rows) <= MOST and len({*map(str, rows)}) == len(rows) != 1
                for variant, run in launched(step, kernel.name) if rows else ():
                    assert not asked(step, variant) & rows[0].keys() and not run.config


# ---- what is printed ----------------------------------------------------------------------------
def test_the_table():
    text = build("softmax", autotune=True).source
    assert text.count("@triton.autotune(") == 2
    opening = text.index("@triton.autotune(")
    assert text[opening : text.index("def softmax_rows")].splitlines() == [
        "@triton.autotune(",
        "    configs=[",
        *(
            f"        triton.Config(dict(ROWS={rows}), num_warps={warps}, num_stages=3),"
            for rows, warps in TRIED
        ),
        "    ],",
        '    key=["batch", "D"],',
        '    prune_configs_by={"early_config_prune": lib.tiles_within(ROWS="batch")},',
        ")",
        "@triton.jit",
    ]
    assert (
        '        grid = lambda META: (lib.cdiv(batch, META["ROWS"]),)\n'
        "        lib.tuned(softmax_rows, grid, config)(*arguments, **constants, BLOCK=BLOCK)\n"
    ) in text


TRIED = [
    *((8, 4), (16, 4), (32, 2), (32, 4), (128, 2), (128, 4), (256, 2), (256, 4)),
    *((1, 1), (1, 4), (1, 32), (2, 1), (8, 1), (64, 4), (8, 8), (16, 8)),
]


def test_descriptors_follow_a_config():
    text = build("matmul", autotune=True).source
    assert 'a_tiles=("BLOCK_M", "BLOCK_K", "TRANS_A"),' in text
    assert 'b_tiles=("BLOCK_K", "BLOCK_N", "TRANS_B"),' in text
    assert 'y_tiles=("BLOCK_M", "BLOCK_N", 2),' in text
    assert 'key=["M", "N", "K", "PRECISION"],' in text
    assert (
        'key=["M", "N", "K", "LHS"],' in text
    )  # of two forms of one kernel, each has what was measured of it


def test_what_is_added_to_is_zeros_again():
    assert 'reset_to_zero=["y_sum_copies_ptr"],' in build("index_add", autotune=True).source


def test_what_is_not_zeros_at_first_is_restored():
    """Where a variant adds to what it does not set to zero; none of ours does."""
    step = step_of("index_add")
    copies, *rest = step.variants
    taken = ("x_ptr", "y_sum_copies_ptr"), ("x", "y_sum_copies")
    view = KernelView("index_add_deal", "tile", "", *taken, {})
    assert added_to(view, step)[0] == ("reset_to_zero", ("y_sum_copies_ptr",))
    again = replace(copies, name="again", zeroed=())
    kept = added_to(view, replace(step, variants=(copies, again, *rest)))
    assert kept == [("reset_to_zero", ()), ("restore_value", ("y_sum_copies_ptr",))]


def test_names_of_a_spec_step_aside():
    """META and ROWS are sizes here."""
    spec = "op f(x: f32[N, META, ROWS]) -> y: f32[N] { y[n] = sum[i, j](x[n, i, j]) + META }"
    text = pipeline.build(spec, "f.op", autotune=True).raw
    assert 'lambda META: (lib.cdiv(N, META["ROWS"]),)' in text
    assert "N, META_, ROWS_ = x.shape" in text and 'key=["N", "cols", "META_"]' in text


ALONE = ("softmax", "matmul", "index_add")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "alone"), [*((spec.stem, False) for spec in SPECS), *((name, True) for name in ALONE)]
)
def test_every_spec_builds_to_the_same_kernels(name, alone):
    """Tables and launches aside. A build holds its text to what it may say, and to its names."""
    how = dict(standalone=alone, gradients=True)
    plain, tuned = (build(name, **how, autotune=on).raw for on in (False, True))
    compile(tuned, name, "exec")
    assert "@triton.autotune(" in tuned and functions(plain) == functions(tuned)


def functions(text: str) -> dict[str, str]:
    """Those of a module that no table reaches."""
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith(("launch_", "_")):
            node.decorator_list = []
            found[node.name] = ast.dump(node)
    return found


def test_what_was_tuned_for_a_plain_module_is_not_taken():
    plain, tuned = (build("softmax", autotune=on).raw for on in (False, True))
    assert digest_of(plain, "softmax") != digest_of(tuned, "softmax")


# ---- the library --------------------------------------------------------------------------------
def configs(*tiles: tuple[int, int, int]) -> list[triton.Config]:
    return [triton.Config(dict(BLOCK_M=m, BLOCK_N=n), num_warps=w) for m, n, w in tiles]


@pytest.mark.parametrize(
    ("m", "n", "kept"),
    [
        (4096, 4096, [0, 1, 2]),
        (40, 4096, [1, 2]),  # 128 rows for 40
        (1, 4096, [2]),  # all have too many: the fewest
    ],
)
def test_tiles_that_do_not_suit_a_call_are_pruned(m, n, kept):
    every = configs((128, 256, 8), (64, 64, 4), (16, 64, 4), (256, 256, 4), (16, 1, 8))
    prune = lib.tiles_within(BLOCK_M="M", BLOCK_N="N")
    assert prune(every, {"M": m, "N": n}, BLOCK_K=64) == [every[k] for k in kept]


def test_what_choose_settled_counts_as_much():
    every = [
        triton.Config(dict(ROWS=r), num_warps=w) for r, w in [(1, 32), (1, 4), (8, 4), (512, 4)]
    ]
    prune = lib.tiles_within(ROWS="rows")
    assert prune(every, {"rows": 4096}, BLOCK=16384) == [every[0], every[1]]
    assert prune(every, {"rows": 4096}, BLOCK=16) == [every[2], every[3]]


def test_blocks_of_descriptors():
    a, y = (TensorDescriptor(torch.empty(2, 64, 64), [2, 64, 64], [4096, 64, 1], [1, 8, 8]) for _ in "ay")  # fmt: skip
    (config,) = lib.with_blocks(
        *configs((32, 16, 4)), a=("BLOCK_M", "BLOCK_K", "TRANS_A"), y=("BLOCK_M", "BLOCK_N", 2)
    )
    given = dict(BLOCK_M=32, BLOCK_N=16, BLOCK_K=64, TRANS_A=True, a=a, y=y)
    config.pre_hook(given)
    assert (a.block_shape, y.block_shape) == ([1, 64, 32], [1, 32, 8])
    config.pre_hook(given | dict(TRANS_A=False, y=None))
    assert a.block_shape == [1, 32, 64]


class Kernel:
    """Stands for one that is tuned: notes what it is launched with."""

    def __init__(self, error: Exception | None = None):
        self.configs = configs((32, 32, 4))
        self.keys, self.arg_names, self.cache, self.launched = ["N"], ["x", "N"], {}, []
        self.fn = Plain(self.launched)
        self.error = error

    def __getitem__(self, grid):
        def launch(*args, **given):
            if self.error:
                raise self.error
            self.launched.append(("tuned", grid, args, given))

        return launch


class Plain:
    def __init__(self, launched: list):
        self.launched = launched

    def __getitem__(self, grid):
        return lambda *args, **given: self.launched.append(("chosen", grid, args, given))


CONFIG = {"BLOCK_M": 64, "BLOCK_N": 16, "PARTS": 3, "num_warps": 8, "num_stages": 2}


@pytest.mark.parametrize("capturing", [False, True])
@pytest.mark.parametrize("measured", [False, True])
def test_nothing_is_measured_in_a_capture(capturing, measured, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    kernel, x = Kernel(), torch.empty(3)
    kernel.cache = {(3, "torch.float32"): kernel.configs[0]} if measured else {}
    lib.tuned(kernel, (1,), CONFIG)(x, 3, PARTS=3)
    own = {"BLOCK_M": 64, "BLOCK_N": 16, "num_warps": 8, "num_stages": 2}
    chosen = capturing and not measured
    assert kernel.launched == [
        ("chosen" if chosen else "tuned", (1,), (x, 3), {"PARTS": 3, **(own if chosen else {})})
    ]


def test_products_in_f64_are_not_measured(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    kernel, x = Kernel(), torch.empty(3)
    for dtype, terms in [
        (tl.float64, {"BLOCK_K": 32}),
        (tl.float32, {"BLOCK_K": 32}),
        (tl.float64, {}),
    ]:
        lib.tuned(kernel, (1,), CONFIG)(x, 3, COMPUTE=dtype, **terms)
    assert [how for how, *_ in kernel.launched] == ["chosen", "tuned", "tuned"]


def test_a_config_that_does_not_fit_gives_way(monkeypatch):
    """What was measured for a call of this key may have been for operands that lie otherwise."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    kernel = Kernel(triton.OutOfResources(300000, 232448, "shared memory"))
    lib.with_blocks(*kernel.configs, a=("BLOCK_M", "BLOCK_N", 1))
    kernel.arg_names = ["a", "N"]
    a = TensorDescriptor(torch.empty(64, 64), [64, 64], [64, 1], [32, 32])
    lib.tuned(kernel, (1,), CONFIG)(a, 3, PARTS=3)
    assert [how for how, *_ in kernel.launched] == ["chosen"] and a.block_shape == [64, 16]


# ---- compilers ----------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("name", ["softmax", "matmul"])
def test_every_config_compiles(name):
    """For sm_90, but for the machine code: what does not fit its shared memory only the GPU says, and is not taken then."""
    built = build(name, autotune=True)
    module, (plan,) = load_text(name, built.raw), built.plans[name]
    seen = set()
    for dtype in ("f16", "f32"):
        for way, word, _, launch in launches_of(module, plan, {"T": dtype}, "sm_90", 256):
            kernel = vars(module).get(launch.kernel.__name__)
            for config in kernel.configs if isinstance(kernel, Autotuner) else ():
                entries = launch.config | config.all_kwargs()
                key = (launch.kernel.__name__, dtype, str(entries))
                if key in seen:
                    continue
                seen.add(key)
                if config.pre_hook is not None:
                    named = dict(zip(kernel.arg_names, launch.args, strict=False))
                    config.pre_hook(named | entries)
                found = lower_one(replace(launch, config=entries), word, way, dtype, "sm_90")
                assert not found.problem, (
                    launch.kernel.__name__,
                    dtype,
                    str(config),
                    found.problem,
                )
    assert len({name for name, *_ in seen}) > 1


def test_a_trace_shows_what_choose_says():
    module = load_text("softmax", build("softmax", autotune=True).raw)
    x = torch.empty(4096, 1024, device="meta", dtype=torch.float16)
    calls = trace.trace(module, "softmax", {"x": x})
    (choice,), (launch,) = calls.choices, calls.launches
    assert launch.kernel is module.softmax_rows.fn
    assert choice.config.items() <= launch.config.items()
    assert launch.grid == (4096 // choice.config["ROWS"],)

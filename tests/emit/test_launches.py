"""How launches of one step are written."""

from dataclasses import replace
from pathlib import Path

import torch

from tritongen import lib, pipeline, trace
from tritongen.emit.launch import by_one_kernel
from tritongen.emit.launches import Call, Everywhere, call_texts
from tritongen.runtime.load import load_text

SHORT = Call((), "f", "f", False, "(N,)", ("x",), (), ("**config",))
LONG = replace(SHORT, arguments=tuple(f"x.stride({k})" for k in range(9)))


def test_a_grid_has_a_name_before_a_launch_says_it():
    """Of two launches of one grid the first may be a line, which needs no name for it; of further ones it is said once."""
    lines = call_texts([SHORT, LONG, replace(LONG, kernel="g", called="g")], Everywhere())
    assert lines[:3] == ["f[(N,)](x, **config)", "grid = (N,)", "f[grid]("]
    assert "g[grid](" in lines and sum(line.startswith("grid = ") for line in lines) == 1


def test_launches_that_differ_in_their_pass_are_a_loop():
    first, last = (replace(SHORT, number=n) for n in "12")
    assert call_texts([first, last], Everywhere()) == [
        "grid = (N,)",
        "for PASS in (1, 2):",
        "    f[grid](x, PASS=PASS, **config)",
    ]
    assert call_texts([first], Everywhere()) == ["f[(N,)](x, PASS=1, **config)"]


def test_branches_that_differ_in_their_kernel_are_one():
    given = "(x, y, **config)"
    ways = ("if variant == 'rows':", (f"f[grid]{given}",)), ("else:", (f"g[grid]{given}",))
    kernel = "kernel = f if variant == 'rows' else g"
    assert by_one_kernel(ways) == (("else:", (kernel, f"kernel[grid]{given}")),)
    other = (ways[0], ("else:", ("g[grid](y, x, **config)",)))
    assert by_one_kernel(other) == other


class Kernel:
    """Notes its launches."""

    def __init__(self):
        self.launches = []

    def __getitem__(self, grid):
        return lambda *args, **given: self.launches.append((grid, args, given))


def test_the_library_launches_what_programs_share():
    kernel, config = Kernel(), dict(ROWS=4, BLOCK=64, PARTS=8, MERGE=16, CHUNK=128, num_warps=2)
    lib.launch_split(kernel, 40, config, "x", VEC=2, part_ptr="part")
    lib.launch_split(kernel, (3, 40), config)
    own = dict(BLOCK=64, CHUNK=128, num_warps=2, VEC=2, part_ptr="part", PARTS=8)
    first, last, again, _ = kernel.launches
    assert first == ((10, 8), ("x",), own | dict(ROWS=4, PASS=1))
    assert last == ((3,), ("x",), own | dict(ROWS=16, PARTS_POW2=8, PASS=2))
    assert again[0] == (30, 8) and config["ROWS"] == 4


def test_the_library_launches_what_adds_up_tiles():
    kernel = Kernel()
    lib.launch_combine(kernel, (5, 3, 100), 16, "parts", "y", COMPUTE=1)
    blocks = dict(BLOCK_M=2, BLOCK_N=128, PARTS=16, AHEAD=16)
    assert kernel.launches == [((5 * 2 * 1,), ("parts", "y"), blocks | dict(COMPUTE=1))]


def test_a_place_behind_products_has_as_many_bits_as_it_needs():
    text = (Path(__file__).parents[2] / "specs/nearest_centre.op").read_text()
    module = load_text("nearest", pipeline.build(text, "nearest").raw)
    for centres, bits in ((64, 32), (2**31 + 8, 64)):
        x, c = (torch.empty((n, 16), dtype=torch.float16, device="meta") for n in (64, centres))
        launches = trace.trace(module, "nearest_centre", {"x": x, "c": c}, trace.H200).launches
        (place,) = (one.config["PLACE"] for one in launches if "PLACE" in one.config)
        assert place.primitive_bitwidth == bits

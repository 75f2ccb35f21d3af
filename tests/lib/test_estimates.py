"""What `choose_<step>` calls: numbers of parts, and the least of a table."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from tritongen import lib
from tritongen.runtime import choosers
from tritongen.schedule.classes import contraction_tiles

NUMBERS = st.tuples(*[st.integers(0, 1 << 20)] * 3)


@given(NUMBERS)
def test_parts_keep_programs_busy_and_have_work(numbers):
    programs, tiles, steps = numbers
    parts = lib.parts(programs, tiles, steps)
    assert parts == 1 or parts * max(1, tiles) <= programs and parts <= lib.cdiv(steps, 4)
    assert parts & (parts - 1) == 0
    least = lib.parts(programs, tiles, steps, 100)
    assert least == (max(parts, 128) if parts > 1 else 1)
    shared = lib.spread(programs, tiles, steps)
    assert shared & (shared - 1) == 0 and shared < 2 * max(1, steps)
    assert shared * tiles >= programs or shared >= steps or not tiles


def test_the_numbers_of_a_tile_stand_in_one_order():
    """As the plan's printer, the reader of choosers and the library take them."""
    names = [n for n in lib.tile(1, 2, 3, 4, 5) if n != "GROUP_M"]
    assert [*contraction_tiles.TILE] == [*choosers.TILE] == names
    assert [lib.tile(1, 2, 3, 4, 5)[n] for n in names] == [1, 2, 3, 4, 5]


def test_the_least_of_those_that_may_run():
    rows = [("a", True, {"us": 3}, 0), ("b", False, {"us": 1}, 0), ("c", True, {"us": 1}, 1)]

    def model(call, config, more):
        return call[0] * config["us"] + more

    assert lib.least(model, (1,), *rows) == ("c", {"us": 1})
    assert lib.least(model, (1,), rows[1]) is None
    assert lib.config_without(lib.tile(128, 256, 64, 8, 3, PROGRAMS=2), "PROGRAMS") == {
        "BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 8, "num_stages": 3,
    }  # fmt: skip


def test_a_factor_that_is_copied_by_columns_is_counted_once():
    aligned, odd = torch.empty(10, 16), torch.empty(10, 13)
    found = [(lib.copied_bytes(x), lib.transposed_bytes(x)) for x in (aligned, aligned.mT, odd)]
    assert found == [(0, aligned.nbytes), (0, 0), (odd.nbytes, 0)]


def test_halves_that_no_lane_loads_side_by_side_go_in_small_tiles():
    """Copied through registers, 128 x 256 of them took three times as long as was estimated."""
    sizes, gpu = (1, 42, 20008, 863), lib.Gpu()
    tiles = {64: lib.tile(64, 64, 64, 4, 4), 256: lib.tile(128, 256, 64, 8, 3)}

    def us(itemsize, vectorized):
        call = (sizes, itemsize, itemsize, 0, 0, vectorized, False, gpu)
        return {n: lib.product_us(call, config, "pointers") for n, config in tiles.items()}

    narrow, wide = us(2, False), us(2, True)
    assert narrow[256] > 2 * narrow[64] and wide[256] < 2 * wide[64]

"""Models of the time of a product and of a convolution on a GPU. `choose_<step>` compares its variants by them.

call = (1, M, N, K), itemsize, stored_bytes, copied, transposed, vectorized, tf32x3, gpu
product_us(call, tile(128, 256, 64, 8, 3, PROGRAMS=1), "descriptors")      # microseconds
call = (groups, M, N), phases, operand_bytes, itemsize, stored_bytes, gpu
convolution_us(call, config, "taps", taps * channels, copied)
least(product_us, call, ("persistent", True, config, "descriptors"), ...)  # ("persistent", config)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tritongen.lib.coefficients import coefficients
from tritongen.lib.counts import cdiv


def tile(m: int, n: int, k: int, warps: int, stages: int, **more: int) -> dict[str, int]:
    """The config of a product in tiles of m x n sums, k terms a step. `more`: PROGRAMS per multiprocessor, PARTS of K, ..."""
    return {
        "BLOCK_M": m,
        "BLOCK_N": n,
        "BLOCK_K": k,
        "GROUP_M": 8,
        "num_warps": warps,
        "num_stages": stages,
        **more,
    }


def config_without(config: dict[str, int], *names: str) -> dict[str, int]:
    """A config without entries that no kernel takes. PROGRAMS only sets the grid."""
    return {name: value for name, value in config.items() if name not in names}


def least(
    model: Callable[..., float], call: tuple[Any, ...], *candidates: tuple[Any, ...]
) -> tuple[str, dict[str, int]] | None:
    """The name and the config of the candidate with the least estimate, of those that may run. None if none may.

    A candidate: its name, whether it may run, its config, and the other arguments of `model`.
    """
    found = [
        (model(call, config, *asked), name, config)
        for name, may_run, config, *asked in candidates
        if may_run
    ]
    return min(found)[1:] if found else None


def product_us(
    call: tuple[Any, ...], config: dict[str, int], kind: str, ahead: int = 0, sums: int = 1
) -> float:
    """Microseconds of sum[k](x[batch, m, k] * y[batch, k, n]) in these tiles.

    Args:
        call: a tuple of
            - the sizes (batches, M, N, K);
            - the bytes of an element, and of a stored one;
            - the bytes of operands that must be copied for a descriptor, and of those that must be transposed first;
            - whether lanes that load by pointers load 16 bytes;
            - whether products of f32 are three of TF32;
            - the GPU.
        ahead: the bytes that a kernel in front writes for this one.
        sums: the number of products that share a tile.

    A step takes as long as the slowest of its wait, its products and its loads. Programs on one multiprocessor share the last two.
    """
    sizes, itemsize, stored_bytes, copied, transposed, vectorized, tf32x3, gpu = call
    own = coefficients(gpu)
    start, tile, wait, flops, edge, load, store, odd = own.products[kind, min(itemsize, 4)]
    # Times what it is where lanes load 16 bytes. Of single bytes: 13976 x 9 x 4864 by `thin` 994 us, copied first 97. Few
    # rows of f32 hide it: 5 x 13801 x 4367 127, by 5.02 estimated 403.
    few = itemsize == 4 and kind != "slim" and config["BLOCK_M"] <= 32
    narrow_load, narrow_wait = (50, 45) if itemsize == 1 else (1.5, 1.5) if few else (5.02, 4.52)
    pointed = kind in ("pointers", "slim", "lanes")
    batches, M, N, K = sizes
    # Divisions are written out: a call of a function takes a thirtieth of all this, and a choice asks for twenty.
    rows, terms = config["BLOCK_M"] * (3 if kind == "subtiles" else 1), config["BLOCK_K"]
    width, stages = config["BLOCK_N"], config["num_stages"]
    columns = width * sums
    parts, beside = config.get("PARTS", 1), config.get("PROGRAMS", 1)
    programs = batches * -(-M // rows) * -(-N // width) * parts
    steps = -(-config.get("CHUNK", K) // terms)
    if pointed:  # as many as there are registers and shared memory for
        beside = _beside(config, columns, itemsize)
        copied = transposed = 0
    elif ahead:  # what is split or converted needs no other copy
        copied, transposed = max(0, copied - ahead), 0
    each = -(-programs // gpu.sms)
    beside = min(beside, each) or 1

    full = rows if pointed else max(64, rows)  # what is multiplied at once
    thrice = tf32x3 and itemsize == 4 and kind != "lanes"
    multiplied = 2e-6 * full * columns * terms * (3 if thrice else 1)
    multiplied *= (1 + edge * (1 / full + 1 / columns)) / flops
    loaded = 1e-6 * (min(rows, M) + min(columns, N * sums)) * min(terms, K) * itemsize / load
    waited = wait / (stages - 1 or 1)
    if kind in ("pointers", "slim") and not vectorized and stages > 1:
        loaded, waited = loaded * narrow_load, waited * narrow_wait
        if itemsize == 2 and rows + columns > 96:
            # Two bytes are copied through registers, which large tiles run out of: bf16 42 x 20008 x 863 of w[n, k] in
            # tiles of 64 x 64 58 us, 128 x 128 144, 128 x 256 158.
            loaded, waited = loaded * (rows + columns) / 96, waited * (rows + columns) / 96
    step = _slowest(waited, beside * multiplied, beside * loaded)
    stored = 1e-4 * store * rows * columns * (2 if parts > 1 else 1)
    if stored_bytes * N % 16:
        stored *= 1 + odd * columns / 128
    tiles = -(-each // beside) * (tile + steps * step + beside * stored)

    moved = itemsize * (M * K + K * N * sums) + stored_bytes * M * N
    read = programs * steps * terms * (rows + columns) * itemsize
    us = start + _slowest(tiles, 1e-6 * batches * moved / own.memory, 1e-6 * read / own.l2)
    if copied:
        us += own.copy_us + 2e-6 * copied / own.copy
    if transposed:
        us += own.copy_us + 2e-6 * transposed / own.transpose
    if ahead:
        us += own.copy_us + 3e-6 * ahead / own.split
    if parts > 1:
        us += own.join_us + 4e-6 * (parts + 1) * batches * M * N * sums / own.join
    return us


def _slowest(a: float, b: float, c: float) -> float:
    """A smooth maximum: overlapped work is never hidden completely."""
    a, b, c = a * a, b * b, c * c
    return math.sqrt(math.sqrt(a * a + b * b + c * c))


def _beside(config: dict[str, int], columns: int, itemsize: int) -> int:
    """The number of programs for which a multiprocessor of an H200 has registers and shared memory."""
    rows, warps = config["BLOCK_M"], config["num_warps"]
    held = max(4, itemsize) * rows * columns // 2 + 8192 * warps
    staged = config["num_stages"] * config["BLOCK_K"] * (rows + columns) * itemsize
    return max(1, min(32 // warps, 227 * 1024 // staged, 2**17 // held))


# ---- convolutions --------------------------------------------------------------------------------
def convolution_us(
    call: tuple[Any, ...],
    config: dict[str, int],
    kind: str,
    terms: int,
    copied: int = 0,
    digits: int = 2,
    together: int = 8,
    places: int = 0,
    uneven: bool = False,
) -> float:
    """Microseconds of a convolution in these tiles.

    Args:
        call: a tuple of
            - the sizes (batches, M, N) of a product whose rows are places;
            - the phases of a transposed convolution, which are among the batches, and its channels;
            - the bytes of its operands, of an element, and of a stored one;
            - the GPU.
        terms: the terms of a sum of all phases together, taps and channels.
        copied: the bytes of operands that are packed before it.
        digits: the indices that a term is split into.
        together: the elements that a lane loads at once, 8 for as many as fit.
        places: the number of computed places, if it is not M. For lanes that add up one sum each, the number of sums.
        uneven: whether a lane stores single elements instead of 16 bytes, or each sum goes to a sector of its own.

    One tap by "descriptors" is a product of matrices whose terms are the channels; by "planes" it is one product for each image of
    `places` places.
    """
    sizes, phases, channels, operand_bytes, itemsize, stored_bytes, gpu = call
    if kind in ("descriptors", "planes"):
        _, M, N = sizes
        matrices = (M // places, places, N, terms) if places else (1, M, N, terms)
        return product_us(
            (matrices, max(2, itemsize), stored_bytes, copied, 0, True, False, gpu), config, kind
        )
    own = coefficients(gpu)
    row = own.convolutions[kind, max(2, min(itemsize, 4))]
    start, tile, wait, flops, edge, load, store, slower = row
    batches, M, N = sizes
    if kind in ("channels", "runs", "window"):  # lanes that add up one each, without tensor cores
        added = 1e-4 * store + 1e-6 * terms * itemsize / load * max(1, 4 / together)
        sector = 32 if uneven else stored_bytes
        moved = 1e-6 * (operand_bytes + sector * batches * M * N) / own.memory
        return start + wait * terms + _slowest(places * added / gpu.sms, moved, 0.0)
    # There are no asynchronous copies of fewer than four bytes.
    narrow = 6 if together * itemsize < 4 else 8 / (together * itemsize)
    rows, columns, depth = config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"]
    parts = config.get("PARTS", 1)
    each = cdiv(batches * cdiv(places or M, rows) * cdiv(N, columns) * parts, gpu.sms)
    beside = 3 if config.get("FLAT") else _beside(config, columns, itemsize)
    beside = max(1, min(beside, each))
    steps = cdiv(cdiv(terms, depth), parts) / phases

    full, apart = max(64, rows), slower ** max(0, digits - 3) * max(1, narrow)
    multiplied = 2e-6 * full * columns * depth * (1 + edge * (1 / full + 1 / columns)) / flops
    # Weights lie side by side: of "gathered" ones lanes load several, where each place is loaded by itself. Lanes of terms
    # that are not there take their time, too: f16 of six channels, one tap, 3,805 us, by "patches" 1,416.
    others = min(columns, max(8, N)) * (0.25 if kind == "gathered" else 1)
    walked = depth if kind in ("gathered", "packed") else min(depth, terms / phases)
    loaded = 1e-6 * (rows + others) * walked * itemsize / load
    waited = wait / max(1, config["num_stages"] - 1)
    step = _slowest(apart * waited, beside * multiplied, beside * apart * loaded)
    stored = 1e-4 * store * rows * columns * (0.5 + 4 / stored_bytes if uneven else 1)
    # Patches take the phases of one place in turn; others fill a share of a sector at a time.
    stored *= min(2, phases) if kind == "patches" else 2 if parts > 1 else phases
    tiles = cdiv(each, beside) * (tile + steps * step + beside * stored)

    moved = 1e-6 * (operand_bytes + stored_bytes * batches * M * N) / own.memory
    again = 0.0
    if kind not in ("patches", "strips"):
        # A tap follows all channels of the one before. What all programs hold of these is in L2 still, or is not: of 30 MB
        # most was found again (287 channels), of 39 MB little (389), of an H200's 50.
        held = beside * gpu.sms * rows * channels * itemsize
        again = 1e-6 * batches * M * terms / phases * itemsize
        again /= own.memory if held > 35e6 else own.l2
    us = start + _slowest(tiles, moved, again)
    if parts > 1:
        us += own.join_us + 4e-6 * (parts + 1) * batches * M * N / own.join
    return us + (own.pack_us + 2e-6 * copied / own.pack if copied else 0)

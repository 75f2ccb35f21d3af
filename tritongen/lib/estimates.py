"""How long a product or a convolution takes on a GPU, by a model: what `choose_<step>` compares its variants by.

call = (1, M, N, K), itemsize, stored_bytes, copied, turned, wide, tf32x3, sms
product_us(call, tile(128, 256, 64, 8, 3, PROGRAMS=1), "descriptors")      # microseconds
call = (groups, M, N), phases, operand_bytes, itemsize, stored_bytes, sms
convolution_us(call, config, "taps", taps * channels, copied)
least(product_us, call, ("persistent", True, config, "descriptors"), ...)  # ("persistent", config)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any


def cdiv(a: int, b: int) -> int:
    """triton.cdiv, in a tenth of its time."""
    return -(-a // b)


def pow2(n: int) -> int:
    """The least power of two that is at least n, as triton.next_power_of_2."""
    return 1 << (n - 1).bit_length() if n > 0 else 0


def parts(programs: int, tiles: int, steps: int) -> int:
    """Programs that share a tile: a power of two, as many as are free, each with four steps of a loop at least."""
    return max(1, pow2(min(programs // max(1, tiles), cdiv(steps, 4)) + 1) // 2)


def spread(programs: int, tiles: int, most: int) -> int:
    """The same where each needs little: rounded up, so that all programs have work, `most` at most."""
    return pow2(max(1, min(most, cdiv(programs, max(1, tiles)))))


def tile(m: int, n: int, k: int, warps: int, stages: int, **more: int) -> dict[str, int]:
    """The config of a product in tiles of m x n sums, k terms a step. `more`: PROGRAMS a multiprocessor, PARTS of K, ..."""
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
    """A config but for entries that no kernel takes: what follows from PROGRAMS is the grid."""
    return {name: value for name, value in config.items() if name not in names}


def least(
    model: Callable[..., float], call: tuple[Any, ...], *candidates: tuple[Any, ...]
) -> tuple[str, dict[str, int]] | None:
    """The name and the config of the candidate that takes least, of those that may run; None where none may.

    A candidate: its name, whether it may run, its config, and what else `model` takes.
    """
    found = [
        (model(call, config, *asked), name, config)
        for name, may_run, config, *asked in candidates
        if may_run
    ]
    return min(found)[1:] if found else None


@cache
def reached(kind: str, itemsize: int) -> tuple[float, ...]:
    """What kernels reach on an H200, by how factors come to the tensor cores and by the bytes of an element there.

    us before the first tile, of host and GPU; us a tile beside its steps; us until what is loaded is there; TFLOP/s of a
    multiprocessor; rows and columns that tensor cores lose a tile; TB/s that a multiprocessor loads; us to store 10,000
    sums; and, for 128 columns, how many times that more where rows are not aligned. Fitted to 2,800 times of 170 drawn and 66 listed
    calls (`benchmarks/anyshape.py --regret`). What 16 bits make of 8 for each tile anew has 0.6 of the products.
    """
    return {
        ("both ahead", 4): (8.42, 1.19, 0.803, 5.6, 24, 0.0451, 2.39, 0.888),
        ("converting", 4): (4.75, 1.41, 1.06, 2.17, 10.7, 0.0566, 0.728, 0.767),
        ("descriptors", 1): (8.53, 0.634, 1.37, 12.8, 35, 0.0671, 0.589, 2.22),
        ("converting", 2): (5.67, 0.906, 0.895, 11.9, 168, 0.198, 0.309, 1.81),
        ("descriptors", 2): (5.67, 0.906, 0.895, 19.8, 168, 0.198, 0.309, 1.81),
        ("descriptors", 4): (4.75, 1.41, 1.06, 2.17, 10.7, 0.0566, 0.728, 0.767),
        ("left ahead", 4): (4.36, 1.03, 1.49, 3.5, 10.8, 0.119, 1.2, 0.819),
        ("pointers", 1): (3.6, 1.64, 0.349, 7.51, 18.7, 0.0496, 0.895, 0.855),
        ("pointers", 2): (4, 0.917, 0.726, 10.3, 84.4, 0.0885, 1.14, 0.529),
        ("pointers", 4): (2.73, 1.27, 1.47, 1.03, 4.79, 0.0481, 3.7, 0.312),
        ("right ahead", 4): (3.42, 0.659, 1.16, 3.86, 11.8, 0.123, 0.56, 0.747),
        ("strips", 2): (3.91, 1.04, 0.808, 8.01, 20.5, 0.15, 1.3, 0.865),
    }[kind, min(itemsize, 4)]


def product_us(
    call: tuple[Any, ...], config: dict[str, int], kind: str, ahead: int = 0, sums: int = 1
) -> float:
    """Microseconds of sum[k](x[batch, m, k] * y[batch, k, n]) in such tiles.

    `call`: its sizes (batches, M, N, K); bytes of an element, and of one that is stored; bytes of operands that no
    descriptor takes as they are, and of those that it takes transposed first; whether lanes that load by pointers load 16
    bytes; whether products of f32 are three of TF32; multiprocessors. `ahead`: bytes that a kernel in front writes for
    this one. `sums` of products share a tile. A step takes as long as the slowest of what it waits for, multiplies and
    loads; programs beside each other on a multiprocessor share the last two.
    """
    sizes, itemsize, stored_bytes, copied, turned, wide, tf32x3, sms = call
    start, tile, wait, flops, edge, load, store, odd = reached(kind, itemsize)
    memory, l2, copy, turn, split, join = 3.52, 15.6, 3.3, 2.9, 2.24, 2.63  # TB/s
    launch, second = 4.73, 2.59  # us of a copy, and of the kernel that adds parts up
    narrow_load, narrow_wait = 5.02, 4.52  # times what it is where lanes load 16 bytes
    batches, M, N, K = sizes
    rows, terms = config["BLOCK_M"] * (3 if kind == "strips" else 1), config["BLOCK_K"]
    columns, stages = config["BLOCK_N"] * sums, config["num_stages"]
    parts, beside = config.get("PARTS", 0), config.get("PROGRAMS", 1)
    programs = batches * cdiv(M, rows) * cdiv(N, config["BLOCK_N"]) * max(1, parts)
    steps = cdiv(config.get("CHUNK", K), terms)
    if kind == "pointers":  # as many as there are registers and shared memory for
        beside = _beside(config, columns, itemsize)
        copied = turned = 0
    elif ahead:  # what is split or converted needs no other copy
        copied, turned = max(0, copied - ahead), 0
    each = cdiv(programs, sms)
    beside = max(1, min(beside, each))

    full = max(64, rows) if kind != "pointers" else rows  # what tensor cores multiply at once
    multiplied = 2e-6 * full * columns * terms * (3 if tf32x3 and itemsize == 4 else 1)
    multiplied *= (1 + edge * (1 / full + 1 / columns)) / flops
    loaded = 1e-6 * (min(rows, M) + min(columns, N * sums)) * min(terms, K) * itemsize / load
    waited = wait / max(1, stages - 1)
    if kind == "pointers" and not wide:
        loaded, waited = loaded * narrow_load, waited * narrow_wait
    step = _slowest(waited, beside * multiplied, beside * loaded)
    stored = 1e-4 * store * rows * columns * (2 if parts else 1)
    if stored_bytes * N % 16:
        stored *= 1 + odd * columns / 128
    tiles = cdiv(each, beside) * (tile + steps * step + beside * stored)

    moved = itemsize * (M * K + K * N * sums) + stored_bytes * M * N
    read = programs * steps * terms * (rows + columns) * itemsize
    us = start + _slowest(tiles, 1e-6 * batches * moved / memory, 1e-6 * read / l2)
    for count, rate in ((2 * copied, copy), (2 * turned, turn), (3 * ahead, split)):
        if count:
            us += launch + 1e-6 * count / rate
    if parts:
        us += second + 4e-6 * (parts + 1) * batches * M * N * sums / join
    return us


def _slowest(a: float, b: float, c: float) -> float:
    """About the largest: what overlaps is never hidden wholly."""
    return (a**4 + b**4 + c**4) ** 0.25


def _beside(config: dict[str, int], columns: int, itemsize: int) -> int:
    """How many programs a multiprocessor of an H200 has registers and shared memory for."""
    rows, warps = config["BLOCK_M"], config["num_warps"]
    held = max(4, itemsize) * rows * columns // 2 + 8192 * warps
    staged = config["num_stages"] * config["BLOCK_K"] * (rows + columns) * itemsize
    return max(1, min(32 // warps, 227 * 1024 // staged, 2**17 // held))


# ---- convolutions --------------------------------------------------------------------------------
@cache
def slid(kind: str, itemsize: int) -> tuple[float, ...]:
    """What kernels of convolutions reach on an H200, by how the sliding factor comes to the tensor cores.

    us before the first tile, of host and GPU; us a tile beside its steps; us until what is loaded is there; TFLOP/s of a
    multiprocessor; rows and columns that tensor cores lose a tile; TB/s that a multiprocessor loads; us to store 10,000
    sums; how many times that for each index beyond three that a term is taken apart into, those of phases twice. Fitted
    to 740 times of 120 drawn and 20 listed calls.
    """
    return {
        ("gathered", 2): (5.6, 0.54, 0.881, 1.37, 56.3, 0.014, 2.19, 1.44),
        ("gathered", 4): (5.17, 0.678, 1.61, 1.13, 47.5, 0.0214, 1.97, 1.44),
        ("lanes", 2): (7.11, 1.42, 0.788, 5.43, 53, 0.028, 0.941, 1),
        ("lanes", 4): (6.76, 1.92, 0.971, 2.66, 43.5, 0.058, 1.42, 1),
        ("packed", 2): (4.43, 1.36, 1.09, 9.13, 47.1, 0.096, 2.52, 1.44),
        ("packed", 4): (4.27, 1.1, 0.444, 1.96, 62.6, 0.0825, 2.33, 1.44),
        ("patches", 2): (2.78, 1.82, 0.858, 14.1, 45.1, 0.156, 1.19, 1),
        ("patches", 4): (8.93, 1.39, 0.777, 7.12, 43, 0.123, 1.3, 1),
        ("taps", 2): (9.79, 2.18, 0.552, 6.54, 60.2, 0.0527, 1.85, 1),
        ("taps", 4): (6.36, 2.86, 0.875, 4.12, 47.3, 0.051, 1.48, 1),
    }[kind, max(2, min(itemsize, 4))]


def convolution_us(
    call: tuple[Any, ...],
    config: dict[str, int],
    kind: str,
    terms: int,
    copied: int = 0,
    digits: int = 2,
    alone: bool = False,
) -> float:
    """Microseconds of a convolution in such tiles.

    `call`: the sizes (batches, M, N) of a product whose rows are places; the phases of a transposed convolution, which are
    among the batches; bytes of its operands, of an element, and of one that is stored; multiprocessors. `terms`: of a sum
    of all phases together, taps and channels, as steps walk them. `copied`: bytes of operands that are packed in front;
    `digits`: the indices that a term is taken apart into; `alone`: whether lanes load one element, where others load 16
    bytes.
    """
    sizes, phases, operand_bytes, itemsize, stored_bytes, sms = call
    start, tile, wait, flops, edge, load, store, slower = slid(kind, itemsize)
    memory, copy, launch, narrow = 3.57, 1.84, 6.58, 3.88  # TB/s, TB/s, us, times
    batches, M, N = sizes
    rows, columns, depth = config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"]
    each = cdiv(batches * cdiv(M, rows) * cdiv(N, columns), sms)
    beside = 3 if config.get("FLAT") else _beside(config, columns, itemsize)
    beside = max(1, min(beside, each))
    steps = cdiv(terms, depth) / phases

    full, apart = max(64, rows), slower ** max(0, digits - 3) * (narrow if alone else 1)
    multiplied = 2e-6 * full * columns * depth * (1 + edge * (1 / full + 1 / columns)) / flops
    loaded = 1e-6 * (rows + min(columns, max(8, N))) * depth * itemsize / load
    waited = wait / max(1, config["num_stages"] - 1)
    step = _slowest(apart * waited, beside * multiplied, beside * apart * loaded)
    tiles = cdiv(each, beside) * (tile + steps * step + 1e-4 * beside * store * rows * columns)

    moved = 1e-6 * (operand_bytes + stored_bytes * batches * M * N) / memory
    us = start + _slowest(tiles, moved, 0)
    return us + (launch + 2e-6 * copied / copy if copied else 0)

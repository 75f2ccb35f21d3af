"""How long a product takes on a GPU, by a model: what `choose_<step>` compares its variants by.

    call = (1, M, N, K), itemsize, stored_bytes, copied, turned, wide, tf32x3, sms
    product_us("descriptors", config, 1, 0, *call)      # microseconds

A module that is generated to stand alone holds the text of these functions: they import nothing.
"""

from __future__ import annotations


def cdiv(a: int, b: int) -> int:
    """triton.cdiv, in a tenth of its time."""
    return -(-a // b)


def pow2(n: int) -> int:
    """The least power of two that is at least n, as triton.next_power_of_2."""
    return 1 << (n - 1).bit_length() if n > 0 else 0


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
    kind: str,
    config: dict[str, int],
    sums: int,
    ahead: int,
    sizes: tuple[int, int, int, int],
    itemsize: int,
    stored_bytes: int,
    copied: int,
    turned: int,
    wide: bool,
    tf32x3: bool,
    sms: int,
) -> float:
    """Microseconds of sum[k](x[batch, m, k] * y[batch, k, n]) in such tiles, by as many multiprocessors.

    `sizes`: batches, M, N, K. `sums` of products share a tile. `ahead`: bytes that a kernel in front writes for this one.
    `copied`: bytes of operands that no descriptor takes as they are; `turned`: of those that it takes transposed first;
    `wide`: whether lanes that load by pointers load 16 bytes. A step takes as long as the slowest of what it waits for,
    multiplies and loads; programs beside each other on a multiprocessor share the last two.
    """
    start, tile, wait, flops, edge, load, store, odd = reached(kind, itemsize)
    memory, l2, copy, turn, split, join = 3.52, 15.6, 2.32, 0.855, 2.24, 2.63  # TB/s
    launch, second = 4.73, 2.59  # us of a copy, and of the kernel that adds parts up
    narrow_load, narrow_wait = 5.02, 4.52  # times what it is where lanes load 16 bytes
    batches, M, N, K = sizes
    rows, terms = config["BLOCK_M"] * (3 if kind == "strips" else 1), config["BLOCK_K"]
    columns, stages = config["BLOCK_N"] * sums, config["num_stages"]
    parts, beside = config.get("PARTS", 0), config.get("PROGRAMS", 1)
    programs = batches * cdiv(M, rows) * cdiv(N, config["BLOCK_N"]) * max(1, parts)
    steps = cdiv(config.get("CHUNK", K), terms)
    if kind == "pointers":  # as many as there are registers and shared memory for
        warps = config["num_warps"]
        held = max(4, itemsize) * rows * columns // 2 + 8192 * warps
        staged = stages * terms * (rows + columns) * itemsize
        beside = max(1, min(32 // warps, 227 * 1024 // staged, 2**17 // held))
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

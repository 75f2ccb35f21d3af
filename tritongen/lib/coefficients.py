"""The speed of kernels on a GPU, for `estimates.py`: calibrated, measured by us, or scaled from an H200's.

own = coefficients(gpu)               # the first of these three that exists
calibrated()["NVIDIA L40S"]           # from `tritongen calibrate`
measured()["NVIDIA H200"].products["descriptors", 2]
scaled(gpu).memory                    # of another GPU, from its driver's numbers
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from tritongen.lib.device import Gpu


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The coefficients of one GPU. Rates are in TB/s of the whole GPU, times in microseconds.

    `products`: one row for each way in which factors come to the tensor cores, and for the bytes of an element there:

    1. us before the first tile, of host and GPU;
    2. us a tile beside its steps;
    3. us until a load arrives;
    4. TFLOP/s of a multiprocessor;
    5. rows and columns of a tile that tensor cores lose;
    6. TB/s that a multiprocessor loads;
    7. us to store 10,000 sums, and, for 128 columns, how many times as long that takes if rows are not aligned.

    `convolutions`: the same, by how the image is loaded. The last entry is different: how many times as long a load takes for each
    index beyond three that a term is split into; indices of phases count twice. Windows that lanes add up use four entries: us before,
    us a term, TB/s that the lanes of a multiprocessor load (terms times bytes), and us to store 10,000 sums.
    """

    products: Mapping[tuple[str, int], tuple[float, ...]]
    convolutions: Mapping[tuple[str, int], tuple[float, ...]]
    memory: float = 3.52  # what is read or written once
    l2: float = 15.6  # what is read again
    copy: float = 3.3  # factors of products that are copied in front
    transpose: float = 2.9  # those whose order is another then
    split: float = 2.24  # those whose parts in TF32 are written
    pack: float = 3.33  # operands of convolutions that are copied in front
    join: float = 2.63  # parts of sums that are added up behind
    copy_us: float = 4.73  # beside its bytes, of a kernel that copies, turns or splits
    pack_us: float = 5.77  # of one that packs
    join_us: float = 2.59  # of one that adds up
    source: str = "measured"


@cache
def measured() -> dict[str, Coefficients]:
    """Measured coefficients, by the name of a GPU.

    An H200:

    - Products are fitted to 2,800 times of 170 random and 66 listed products.
    - Convolutions are fitted to 1,400 times of 246 random and seven listed convolutions (`benchmarks/anyshape.py --regret`).
    - "planes" is fitted to 110 times of 24 random convolutions of one tap.
    - Products whose 16 bits are made from 8 for each tile reach 0.6 of the others.
    - "gathered" is an H100's fit, changed by the earlier difference between the two, since its model weighs weights less.
    - 16 bits by "patches" and "pad4" are fitted to 34 and 132 times of 40 random calls and gradients of few tiles.

    An H100:

    - Convolutions, except for patches, taps and 16 bits "packed", are fitted to 455 times of 69 random ones.
    - Products are an H200's; rates are those of `tritongen calibrate`.
    - "slim" of f32 and "lanes" are fitted to 17 and 11 times.
    - Windows are set by hand from 80 times, and the cost of odd rows for "presplit rhs" from four.
    """
    products = {
        ("presplit", 4): (8.42, 1.19, 0.803, 5.6, 24, 0.0451, 2.39, 0.888),
        ("converting", 4): (4.75, 1.41, 1.06, 2.17, 10.7, 0.0566, 0.728, 0.767),
        ("descriptors", 1): (8.53, 0.634, 1.37, 12.8, 35, 0.0671, 0.589, 2.22),
        ("converting", 2): (5.67, 0.906, 0.895, 11.9, 168, 0.198, 0.309, 1.81),
        ("descriptors", 2): (5.67, 0.906, 0.895, 19.8, 168, 0.198, 0.309, 1.81),
        ("descriptors", 4): (4.75, 1.41, 1.06, 2.17, 10.7, 0.0566, 0.728, 0.767),
        ("presplit lhs", 4): (4.36, 1.03, 1.49, 3.5, 10.8, 0.119, 1.2, 0.819),
        ("pointers", 1): (3.6, 1.64, 0.349, 7.51, 18.7, 0.0496, 0.895, 0.855),
        ("pointers", 2): (4, 0.917, 0.726, 10.3, 84.4, 0.0885, 1.14, 0.529),
        ("pointers", 4): (2.73, 1.27, 1.47, 1.03, 4.79, 0.0481, 3.7, 0.312),
        ("slim", 4): (4.38, 1.42, 0.509, 0.612, 4.79, 0.101, 3.7, 0.312),
        ("lanes", 4): (3.75, 1, 1.43, 0.25, 1, 0.05, 1, 0.3),
        ("presplit rhs", 4): (3.42, 0.659, 1.16, 3.86, 11.8, 0.123, 0.56, 8),
        ("planes", 2): (4.76, 2.74, 1.04, 14.6, 211, 0.197, 0.365, 1.16),
        ("planes", 4): (6.39, 1.32, 2.68, 1.31, 10.5, 0.0718, 0.963, 0.519),
        ("subtiles", 2): (3.91, 1.04, 0.808, 8.01, 20.5, 0.15, 1.3, 0.865),
    }
    convolutions = {
        ("gathered", 2): (5.28, 0.625, 1.03, 0.541, 9.32, 0.0126, 0.297, 1.5),
        ("gathered", 4): (6.48, 0.196, 1.42, 0.383, 6.68, 0.0246, 0.738, 1.21),
        ("packed", 2): (4.94, 2.02, 1.23, 11.3, 42.3, 0.0598, 0.368, 1.38),
        ("packed", 4): (3.25, 2.45, 0.467, 4.74, 41.1, 0.0464, 0.488, 1.09),
        ("pad4", 2): (4.56, 2.4, 1.03, 3.95, 45.1, 0.0655, 0.164, 1),
        ("pad4", 4): (3.14, 2.66, 0.972, 3, 55.4, 0.0658, 0.292, 1.07),
        ("patches", 2): (3.23, 0.607, 0.56, 13.4, 43.7, 0.07, 0.74, 1.08),
        ("patches", 4): (5.17, 1.23, 0.639, 8.99, 40.4, 0.0887, 1.38, 1.12),
        ("strips", 2): (3, 2, 0.79, 12.6, 85, 0.3, 0.5, 1),
        ("taps", 2): (4.31, 3.85, 0.701, 5.41, 26.2, 0.112, 0.231, 1.16),
        ("taps", 4): (2.65, 2.74, 0.788, 3.6, 64.3, 0.075, 0.185, 1.1),
        ("channels", 2): (3.5, 1, 0.1, 1, 1, 0.02, 0.4, 1),
        ("channels", 4): (3.5, 1, 0.1, 1, 1, 0.012, 0.4, 1),
        ("runs", 2): (3.5, 1, 0.1, 1, 1, 0.069, 0.4, 1),
        ("runs", 4): (3.5, 1, 0.1, 1, 1, 0.1, 0.4, 1),
        ("window", 2): (3.5, 1, 0.1, 1, 1, 0.056, 0.8, 1),
        ("window", 4): (3.5, 1, 0.1, 1, 1, 0.08, 0.66, 1),
    }
    of_h100 = {
        ("gathered", 2): (6.64, 0.591, 0.877, 0.764, 9.32, 0.00646, 0.649, 1.31),
        ("gathered", 4): (4.76, 0.192, 1.95, 0.523, 6.68, 0.0201, 0.676, 1.81),
        ("packed", 4): (4.54, 3.03, 0.55, 4.64, 41.1, 0.0365, 0.575, 1.09),
        ("pad4", 2): (4.23, 2.6, 0.732, 3.82, 45.1, 0.0325, 0.194, 1),
        ("pad4", 4): (3.95, 2.74, 0.899, 3.01, 55.4, 0.0707, 0.337, 1),
    }
    products |= {("slim", size): products["pointers", size] for size in (1, 2)}
    return {
        "NVIDIA H200": Coefficients(products, convolutions),
        "NVIDIA H100 80GB HBM3": Coefficients(
            products,
            convolutions | of_h100,
            memory=2.51,
            copy=2.35,
            transpose=2.07,
            split=1.6,
            pack=2.37,
            join=1.88,
        ),
    }


def scaled(gpu: Gpu) -> Coefficients:
    """Coefficients of another GPU, scaled from an H200's by its multiprocessors, clock, bandwidth and tensor cores."""
    like = Gpu()
    clock, memory = gpu.clock / like.clock, gpu.memory / like.memory
    flops = clock * gpu.flops / like.flops

    def faster(row: tuple[float, ...]) -> tuple[float, ...]:
        start, tile, wait, rate, edge, load, store, more = row
        times = start, tile / clock, wait / clock
        return *times, rate * flops, edge, load * clock, store / clock, more

    own = measured()["NVIDIA H200"]
    return Coefficients(
        {kind: faster(row) for kind, row in own.products.items()},
        {kind: faster(row) for kind, row in own.convolutions.items()},
        memory=own.memory * memory,
        l2=own.l2 * clock * (gpu.sms / like.sms),
        copy=own.copy * memory,
        transpose=own.transpose * memory,
        split=own.split * memory,
        pack=own.pack * memory,
        join=own.join * memory,
        source="scaled from an H200's",
    )


@cache
def calibrated() -> dict[str, Coefficients]:
    """Coefficients from the user's cache, by the name of a GPU."""
    return {}


@cache
def coefficients(gpu: Gpu) -> Coefficients:
    """The best known coefficients of a GPU: calibrated, measured, or scaled."""
    if gpu.coefficients is not None:
        return gpu.coefficients
    known = {**measured(), **calibrated()}
    return known[gpu.name] if gpu.name in known else scaled(gpu)

"""Measured configs: what a module of `tritongen build --autotune` needs beside `triton.autotune`.

    @triton.autotune(
        configs=lib.with_blocks(triton.Config(...), ..., a_tiles=("BLOCK_M", "BLOCK_K", "TRANS_A")),
        key=["M", "N", "K"],
        prune_configs_by={"early_config_prune": lib.tiles_within(BLOCK_M="M", BLOCK_N="N")},
    )

    lib.tuned(matmul_tiles, grid, config)(a, b, c, ...)     # in place of `matmul_tiles[grid](a, b, c, ..., **config)`

All configs of a table give the same results. They differ only in speed.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction


def tiles_within(**extents: str) -> Callable[..., list[triton.Config]]:
    """For `early_config_prune`: the configs of a table whose tiles suit a call, or else the nearest ones.

    A tile is at most twice as long as its axis (`BLOCK_M="M"`). A thread has 1 to 128 of its elements, in f64 at most 64. Entries that
    `choose` set for the call count too.
    """

    def suiting(
        configs: list[triton.Config], named: dict[str, Any], **given: Any
    ) -> list[triton.Config]:
        most = 64 if given.get("COMPUTE") == tl.float64 else 128

        def excess(config: triton.Config) -> float:
            entries = {**given, **config.all_kwargs()}
            tile = ("OUTER", "LINES", "ROWS", "BLOCK", "BLOCK_M", "BLOCK_N")
            each = math.prod(entries.get(name, 1) for name in tile) / (32 * config.num_warps)
            long = (entries[name] / max(1, 2 * named[size]) for name, size in extents.items())
            return max(1, each / most, 1 / each, *long)

        least = min(map(excess, configs))
        return [config for config in configs if excess(config) == least]

    return suiting


def with_blocks(
    *configs: triton.Config, **tiles: tuple[str, str, str | int]
) -> list[triton.Config]:
    """Configs that give descriptors the shapes of their tiles: `a_tiles=("BLOCK_M", "BLOCK_K", "TRANS_A")`.

    The names are rows, columns, and the constexpr that says whether the descriptor sees its operand transposed. A number in its place is the
    number of parts in which columns are stored. There is no descriptor if pointers store.
    """

    def shape(given: dict[str, Any]) -> None:
        for name, (rows, cols, more) in tiles.items():
            block = [given[rows], given[cols]]
            if isinstance(more, int):
                block[1] //= more
            elif given[more]:
                block.reverse()
            if given[name] is not None:
                outer = len(given[name].block_shape) - 2
                given[name].block_shape = [*[1] * outer, *block]

    for config in configs:
        config.pre_hook = shape
    return [*configs]


@cache
def _measuring() -> Any:
    """Lets one thread at a time measure: Triton's autotuner stores the arguments of the current call in itself."""
    return threading.RLock()


def is_measured(kernel: Any, named: dict[str, Any]) -> bool:
    """Whether the autotuner has a config for calls like this one. `named`: its arguments by parameter."""
    key = [named[name] for name in kernel.keys if name in named]
    known = (value for name, value in named.items() if name in kernel.arg_names)
    key += [str(value.dtype) for value in known if hasattr(value, "dtype")]
    return tuple(key) in kernel.cache


def tuned(kernel: Any, grid: Any, config: dict[str, int]) -> Callable[..., Any]:
    """A launcher of an autotuned kernel, given the entries that its table does not decide. It uses the measured config.

    It uses the config of `choose`

    - in the interpreter, where there is nothing to measure;
    - in the capture of a graph, unless the shape was measured before;
    - for products in f64, for which there are no tables;
    - if the config that was measured for a similar call does not fit this one.
    """
    names = (*kernel.configs[0].kwargs, "num_warps", "num_stages")
    chosen = {name: config[name] for name in names if name in config}

    def launch(*args: Any, **given: Any) -> Any:
        def as_chosen() -> Any:
            return kernel.fn[grid](*args, **given, **chosen)

        named = {**dict(zip(kernel.arg_names, args, strict=False)), **given}
        in_f64 = named.get("COMPUTE") == tl.float64 and "BLOCK_K" in {**named, **chosen}
        if in_f64 or isinstance(kernel.fn, InterpretedFunction):
            return as_chosen()
        if torch.cuda.is_current_stream_capturing() and not is_measured(kernel, named):
            return as_chosen()
        with _measuring():
            try:
                return kernel[grid](*args, **given)
            except triton.OutOfResources:
                if kernel.configs[0].pre_hook is not None:
                    kernel.configs[0].pre_hook({**named, **chosen})
                return as_chosen()

    return launch

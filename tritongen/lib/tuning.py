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
    """For `early_config_prune`: the configs of a table whose tiles suit a call, or those that come nearest.

    No tile is more than twice as long as what it walks (`BLOCK_M="M"`), and a thread has 1 to 128 of its elements, in
    f64 to 64: what `choose` settled for the call counts as much as what the table has.
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
    """Configs in front of which descriptors get the shapes of their tiles: `a_tiles=("BLOCK_M", "BLOCK_K", "TRANS_A")`.

    Rows, columns, and the constexpr that says whether the descriptor sees its operand transposed; or a number, the parts
    in which columns are stored. Where pointers store, there is no descriptor.
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
    """Whether the autotuner has a config for calls like this one; `named`: its arguments by parameter."""
    key = [named[name] for name in kernel.keys if name in named]
    known = (value for name, value in named.items() if name in kernel.arg_names)
    key += [str(value.dtype) for value in known if hasattr(value, "dtype")]
    return tuple(key) in kernel.cache


def tuned(kernel: Any, grid: Any, config: dict[str, int]) -> Callable[..., Any]:
    """What launches an autotuned kernel, given what its table does not decide: by the config that was measured.

    By that of `choose` in the interpreter, where there is nothing to measure; in the capture of a graph, where nothing can
    be measured, unless it was before; for products in f64, which tables are not for; and where what was measured for a
    like call does not fit this one.
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

"""Limits the work of one compile. It is counted in steps that depend on the spec alone.

A limit in seconds would refuse a spec on a busy machine and accept it on an idle one. So the few functions that all
expressions, sizes and texts pass through count their work (`spend`), and `limited` sets the limit. A value that a cache
may hold from an earlier compile counts the same, whether it is found or computed: as one step (`remembered`), or, if it is
a proof, as what it takes to compute, once in each compile (`priced`).
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

MOST_STEPS = 4_000_000  # some ten seconds on one core; the largest of our own specs takes a fifth
CHARACTERS = 3  # of a printed text that cost as much as a step

P = ParamSpec("P")
R = TypeVar("R")


class Overworked(Exception):
    """A compile took all the steps that it has."""


class _Count(threading.local):
    def __init__(self) -> None:
        self.steps = 0
        self.most: int | None = None  # no limit outside `limited`
        self.paid: set[Hashable] | None = None  # what this compile was counted the price of


_count = _Count()


def spend(steps: int = 1) -> None:
    """Count steps; Overworked where they are more than the compile may take."""
    _count.steps += steps
    if _count.most is not None and _count.steps > _count.most:
        raise Overworked


def spent() -> int:
    """The steps of this compile so far; of the last one, outside of any."""
    return _count.steps


@contextmanager
def limited(most: int | None = None) -> Iterator[bool]:
    """A compile; whether it is the outermost, whose steps those of compiles within it count among."""
    if _count.most is not None:
        yield False
        return
    _count.steps, _count.most, _count.paid = 0, MOST_STEPS if most is None else most, set()
    try:
        yield True
    finally:
        _count.most = _count.paid = None


@contextmanager
def uncounted() -> Iterator[None]:
    """Marks work that is done once per process, and that no compile counts."""
    before = _count.steps, _count.most, _count.paid
    _count.most, _count.paid = None, set()
    try:
        yield
    finally:
        _count.steps, _count.most, _count.paid = before


@contextmanager
def uncollected() -> Iterator[None]:
    """Looks for no cycles of garbage meanwhile: a compile makes hardly any, and the search takes a quarter of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def remembered(maxsize: int | None, each: int = 1) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """An lru_cache whose calls are as many steps `each`: counts must not depend on what ran before."""

    def around(function: Callable[P, R]) -> Callable[P, R]:
        @lru_cache(maxsize=maxsize)
        def made(*args: Hashable) -> R:
            with uncounted():
                return function(*args)  # type: ignore[call-arg,arg-type]

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            spend(each)
            return made(*args)  # type: ignore[arg-type]

        return call if each else made  # type: ignore[return-value]

    return around


def priced(maxsize: int | None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """An lru_cache whose calls are one step, but the first one of a compile as many as the value takes from nothing."""

    def around(function: Callable[P, R]) -> Callable[P, R]:
        @lru_cache(maxsize=maxsize)
        def made(*args: Hashable) -> tuple[R, int]:
            with uncounted():
                before = spent()
                value = function(*args)  # type: ignore[call-arg,arg-type]
                return value, spent() - before

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            value, steps = made(*args)  # type: ignore[arg-type]
            spend()
            if _count.paid is not None and (function, args) not in _count.paid:
                _count.paid.add((function, args))
                spend(steps)
            return value

        return call

    return around

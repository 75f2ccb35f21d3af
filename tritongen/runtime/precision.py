"""How products of f32 are computed.

    f32_precision("conv")               # "tf32" if torch.backends.cudnn.conv.fp32_precision is
    f32_precision("tf32x3")             # the word of a spec comes before torch's switches
    with precision("ieee"): ...         # this comes before both, in this thread

A call asks once. The answer is an argument of the registered op, and part of the key of a replay. The switches of torch
before 2.9 (`allow_tf32`, `set_float32_matmul_precision`) set those of today.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch

PRECISIONS = "ieee", "tf32x3", "tf32"
SWITCHES = "matmul", "conv"  # as torch calls them

# Without TF32. AMD's compiler has no products in parts, and torch's convolutions there are never TF32.
_EXACT = "ieee" if torch.version.hip else "tf32x3"
_ALLOWED = _EXACT if torch.version.hip else "tf32"  # where a switch allows TF32
_SPOKEN = {"ieee": "ieee", "tf32x3": _EXACT, "tf32": "tf32"}
_switch = torch._C._get_fp32_precision_getter  # what its properties read, seven times as fast


class _Decided(threading.local):
    """The answers that a thread has fixed, by question of `f32_precision`."""

    def __init__(self) -> None:
        self.answers: Mapping[str, str] = {}


_decided = _Decided()


def f32_precision(asked: str) -> str:
    """One of PRECISIONS, for what a spec says or, where it says nothing, for one of SWITCHES."""
    return _decided.answers.get(asked) or _by_default(asked)


def _by_default(asked: str) -> str:
    return _SPOKEN.get(asked) or (_ALLOWED if _switch("cuda", asked) == "tf32" else _EXACT)


# torch.compile asks once, when it traces: torch.compiler.assume_constant_result, which takes seconds to import.
_by_default._dynamo_marked_constant = True  # type: ignore[attr-defined]


def asker(asked: tuple[str, ...]) -> Callable[[], tuple[str, ...]]:
    """A function that gives the answers to all questions of an op. Each replay calls it; nearly always it asks for one switch."""

    def answers() -> tuple[str, ...]:
        return tuple(map(f32_precision, asked))

    if len(asked) != 1 or asked[0] not in SWITCHES:
        return answers
    (name,), allowed, exact = asked, (_ALLOWED,), (_EXACT,)

    def answer() -> tuple[str, ...]:
        said = _decided.answers.get(name)
        if said:
            return (said,)
        return allowed if _switch("cuda", name) == "tf32" else exact

    return answer


def reason(asked: str) -> str:
    """The reason for the answer of `f32_precision`."""
    if asked in _decided.answers:
        return "as `with tritongen.precision` says"
    if asked in PRECISIONS:
        return "as the spec says"
    name = f"torch.backends.{'cudnn.conv' if asked == 'conv' else 'cuda.matmul'}.fp32_precision"
    return f"since {name} is {_switch('cuda', asked)!r}"


def while_decided(answers: Mapping[str, str], function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)` in the context `decided(answers)`, in half the time."""
    before = _decided.answers
    _decided.answers = {**before, **answers} if before else answers
    try:
        return function(*args)
    finally:
        _decided.answers = before


class decided:
    """A context that fixes the answers to some questions in this thread: `with decided({"conv": "tf32"}):`."""

    def __init__(self, answers: Mapping[str, str]):
        self._answers = answers
        self._before: list[Mapping[str, str]] = []

    def __enter__(self) -> None:
        self._before.append(_decided.answers)
        _decided.answers = {**_decided.answers, **self._answers}

    def __exit__(self, *exception: Any) -> None:
        _decided.answers = self._before.pop()


class precision(decided):
    """A context that sets how matrix products of f32 are computed. It holds in the current thread.

        with tritongen.precision("ieee"):
            y = ops.matmul(a, b)

    It comes before the `precision` clause of a spec, and before torch's switches.

    Args:
        word: one of
            - "ieee": f32 arithmetic, without tensor cores.
            - "tf32x3": three TF32 products on tensor cores, as accurate as f32.
            - "tf32": one TF32 product. Factors have 10 bits behind the point.

    Raises:
        ValueError: another word.
    """

    def __init__(self, word: str):
        if word not in PRECISIONS:
            raise ValueError(f"precision: expected one of {', '.join(PRECISIONS)}, given {word!r}")
        super().__init__(dict.fromkeys((*SWITCHES, *PRECISIONS), _SPOKEN[word]))

"""How products of f32 are computed: as torch's own switches say when an op is called.

    f32_precision("conv")               # "tf32", where torch.backends.cudnn.conv.fp32_precision is
    f32_precision("tf32x3")             # what the spec says comes before the switches
    with precision("ieee"): ...         # and this before both, in this thread

Of a call it is asked once: it is an argument of the registered op, and part of what a replay is looked up
by. Switches of torch before 2.9 (`allow_tf32`, `set_float32_matmul_precision`) set those of today.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
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
    """What a thread has decided of each question that `f32_precision` is asked."""

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


def answers_to(asked: tuple[str, ...]) -> tuple[str, ...]:
    """All that an op asks; nearly always one thing, and each replay pays for it."""
    first = _decided.answers.get(asked[0]) or _by_default(asked[0])
    return (first,) if len(asked) == 1 else (first, *map(f32_precision, asked[1:]))


def reason(asked: str) -> str:
    """Why `f32_precision` answers as it does."""
    if asked in _decided.answers:
        return "as `with tritongen.precision` says"
    if asked in PRECISIONS:
        return "as the spec says"
    name = f"torch.backends.{'cudnn.conv' if asked == 'conv' else 'cuda.matmul'}.fp32_precision"
    return f"since {name} is {_switch('cuda', asked)!r}"


class decided:
    """`with decided({"conv": "tf32"}):` that question is answered so, in this thread."""

    def __init__(self, answers: Mapping[str, str]):
        self._answers = answers
        self._before: list[Mapping[str, str]] = []

    def __enter__(self) -> None:
        self._before.append(_decided.answers)
        _decided.answers = {**_decided.answers, **self._answers}

    def __exit__(self, *exception: Any) -> None:
        _decided.answers = self._before.pop()


class precision(decided):
    """`with tritongen.precision("ieee"):` products of f32 are computed so, whatever specs and switches say.

    "ieee", "tf32x3" (as exact, by three products on the tensor cores) or "tf32"; in this thread.
    """

    def __init__(self, word: str):
        if word not in PRECISIONS:
            raise ValueError(f"precision: expected one of {', '.join(PRECISIONS)}, given {word!r}")
        super().__init__(dict.fromkeys((*SWITCHES, *PRECISIONS), _SPOKEN[word]))

"""Coefficients that `tritongen calibrate` measured on this machine, in place of those of other GPUs.

    <user cache>/tritongen/gpus/NVIDIA_L40S.json

`install` is called when a generated op is decorated, and looks once. A file holds only numbers, in the rows of
`lib.Coefficients`. A file with anything else is ignored, with one warning.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from dataclasses import asdict, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from tritongen import lib
from tritongen.files import write_atomically
from tritongen.runtime.cache import Refused, cache_path, private_folder, read_json, stored

FORMAT = 1
MOST_BYTES = 1 << 16
TABLES = ("products", "convolutions")
SOURCE = "calibrated on this machine"


def path_of(name: str) -> Path:
    return cache_path() / "gpus" / f"{re.sub('[^A-Za-z0-9.-]', '_', name)}.json"


def store(name: str, found: lib.Coefficients) -> Path:
    """Keeps what was measured on the GPU of that name; the file's path."""
    folder = private_folder() / "gpus"
    folder.mkdir(mode=0o700, exist_ok=True)
    numbers = {n: value for n, value in asdict(found).items() if n != "source"}
    tables = {
        n: {f"{kind} {size}": list(row) for (kind, size), row in numbers[n].items()} for n in TABLES
    }
    data = {"format": FORMAT, "gpu": name, **numbers, **tables}
    write_atomically(path_of(name), json.dumps(data, indent=1) + "\n", mode=0o600)
    return path_of(name)


def read(path: Path) -> tuple[str, lib.Coefficients]:
    """The name of a GPU, and its coefficients; Refused where the file is anything but one that we wrote."""
    data = read_json(path, MOST_BYTES)
    known = next(iter(lib.measured().values()))
    rates = {f.name for f in fields(known)} - {*TABLES, "source"}
    if not isinstance(data, dict) or data.keys() != {"format", "gpu", *TABLES, *rates}:
        raise Refused("unknown keys")
    if data["format"] != FORMAT or not isinstance(data["gpu"], str):
        raise Refused("unknown format")
    found: dict[str, Any] = {n: _number(data[n]) for n in rates}
    found |= {n: _table(data[n], getattr(known, n)) for n in TABLES}
    return data["gpu"], replace(known, source=SOURCE, **found)


def _table(value: Any, known: Any) -> dict[tuple[str, int], tuple[float, ...]]:
    names = {f"{kind} {size}": (kind, size) for kind, size in known}
    if not isinstance(value, dict) or value.keys() != names.keys():
        raise Refused("unknown rows")
    for name, row in value.items():
        if not isinstance(row, list) or len(row) != len(known[names[name]]):
            raise Refused(f"{name}: a row of the wrong length")
    return {names[name]: tuple(map(_number, row)) for name, row in value.items()}


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value < 1e6 or not math.isfinite(value):
        raise Refused(f"{str(value)[:20]} is neither a rate nor a time")
    return float(value)


@cache
def install() -> None:
    """Gives stored coefficients to `lib.calibrated` before they are first needed."""
    for path in stored("gpus", "*.json"):
        try:
            name, found = read(path)
        except (Refused, OSError) as refusal:
            warnings.warn(f"tritongen: {path} is not used: {refusal}", stacklevel=2)
        else:
            lib.calibrated()[name] = found

"""Imports the text of a generated module, with a copy on disk for people and debuggers.

    module = load_text("softmax", text)          # via <user cache>/tritongen/softmax_<hash>.py
    module = load_file("generated/softmax.py")   # a file that somebody built

The text in hand is what runs. The cached copy is compared with it and never executed. `inspect.getsource`, and so Triton,
gets the lines from memory. If the cache cannot be written, or others can write it, there is no copy and one warning. The import still
works. Importing starts no driver.
"""

from __future__ import annotations

import hashlib
import linecache
import os
import stat
import sys
import threading
import types
import warnings
from pathlib import Path

from tritongen.files import read_regular, write_atomically
from tritongen.runtime.cache import private_folder, warn_once

_modules: dict[str, types.ModuleType] = {}
_locks: dict[str, threading.Lock] = {}
_guard = threading.Lock()


def load_text(name: str, text: str) -> types.ModuleType:
    """The module of this text; the same text is imported once per process."""
    key = f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    module = _modules.get(key)
    if module is not None:
        return module
    with _lock(key):
        if key not in _modules:
            path = _cached_copy(f"{key}.py", text)
            _modules[key] = _execute(key, text, str(path) if path else f"<tritongen {key}>")
        return _modules[key]


def load_file(path: str | os.PathLike[str]) -> types.ModuleType:
    """The module of a generated file; imported anew only when its text has changed."""
    where = Path(path).resolve()
    text = read_regular(where).decode()
    digest = hashlib.sha256(f"{where}\n{text}".encode()).hexdigest()[:16]
    key = f"{where.stem}_{digest}"
    with _lock(key):
        if key not in _modules:
            _modules[key] = _execute(key, text, str(where))
        return _modules[key]


def _execute(key: str, text: str, filename: str) -> types.ModuleType:
    module = types.ModuleType(f"tritongen_generated_{key}")
    module.__file__ = filename
    # An entry without a modification time is never read again from disk.
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    sys.modules[module.__name__] = module  # where torch.compile and inspect look a function up
    try:
        exec(compile(text, filename, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


def _lock(key: str) -> threading.Lock:
    with _guard:
        return _locks.setdefault(key, threading.Lock())


def _after_fork() -> None:
    """A lock that another thread held while this process was forked would never be released."""
    global _guard
    _guard = threading.Lock()
    _locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# ---- the copy on disk ---------------------------------------------------------------------------
def _cached_copy(filename: str, text: str) -> Path | None:
    """The path of the text on disk. None if there is no place for it."""
    try:
        folder = private_folder()
        path = folder / filename
        if _holds(path, text):
            return path
        write_atomically(path, text, mode=0o600)
        return path
    except OSError as error:
        warn_once(error)
        return None


def _holds(path: Path, text: str) -> bool:
    """Whether the file is exactly the text; a stale or foreign one is reported, then replaced."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()
    if ours and read_regular(path) == text.encode():
        return True
    warnings.warn(
        f"tritongen: {path} is stale, or was not written by tritongen: replaced", stacklevel=4
    )
    return False

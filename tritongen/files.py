"""Reads files without blocking, and writes them so that no reader sees half of one. Compiler and runtime use it."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

TEMPORARY = ".tritongen-"  # what such names begin with
STALE = 3600.0  # seconds, after which no process still writes a temporary file


def read_regular(path: str | os.PathLike[str], most: int = -1) -> bytes:
    """The content of a file, or its first bytes. OSError if it is not a regular file, because a FIFO would block."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return file.read(most)


def write_atomically(path: Path, text: str, mode: int | None = None) -> None:
    """The whole file or nothing, whoever else writes it and wherever this process dies."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{TEMPORARY}{path.name[:100]}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            now = os.fstat(file.fileno()).st_mtime  # by the clock of that disk
        os.chmod(temporary, 0o666 & ~_umask() if mode is None else mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    _sweep(path.parent, now - STALE)


def _sweep(folder: Path, before: float) -> None:
    """Removes temporary files of ours that were last written before that: whoever wrote them was killed."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(TEMPORARY):
                with suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()
                    if ours and found.st_mtime < before:
                        os.unlink(entry.path)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

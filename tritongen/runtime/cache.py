"""The per-user cache folder. It holds generated texts, tuned configs and coefficients.

It must belong to this user alone; otherwise it is not used. No op needs it: a problem costs what would have been stored, and
one warning.
"""

from __future__ import annotations

import json
import os
import stat
import warnings
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tritongen.files import read_regular

_told: set[tuple[str, int | str]] = set()


class Refused(ValueError):
    """Raised for a file that tritongen did not write."""


def cache_path() -> Path:
    """The path of the cache, whether or not it exists. FileNotFoundError without a home folder."""
    import platformdirs

    folder = Path(platformdirs.user_cache_dir("tritongen"))
    if not folder.is_absolute():  # `~` without a user: it would be a folder in the current one
        raise FileNotFoundError(f"{folder} is not an absolute path: set HOME or XDG_CACHE_HOME")
    return folder


def private_folder() -> Path:
    """The folder, made where it is missing; PermissionError where others could write to it."""
    folder = cache_path()
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    if complaint := complaint_about(folder):
        raise PermissionError(complaint)
    return folder


def complaint_about(folder: Path) -> str:
    """Why an existing folder is not ours alone; empty where it is."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder} is not a folder (a symlink?)"
    if found.st_uid != os.getuid():
        return f"{folder} belongs to another user"
    if found.st_mode & 0o077:
        return f"{folder} is open to other users: chmod 700 it"
    return ""


def stored(kind: str, pattern: str) -> list[Path]:
    """The stored files of one kind, by name. None if the folder cannot be searched."""
    try:
        folder = cache_path() / kind
        with os.scandir(folder) as entries:
            return sorted(folder / e.name for e in entries if fnmatch(e.name, pattern))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        warn_once(error)
        return []


def read_json(path: Path, most: int) -> Any:
    """The content of a file that only this user may write. Refused for any other."""
    for folder in (path.parent.parent, path.parent):
        if complaint := complaint_about(folder):
            raise Refused(complaint)
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise Refused("not a regular file that only you can write")
    if found.st_size > most:
        raise Refused(f"larger than {most >> 10} KiB")
    try:
        return json.loads(read_regular(path, most).decode())
    except (ValueError, RecursionError) as error:
        raise Refused(f"not JSON: {error}") from None


def warn_once(error: OSError) -> None:
    """One warning for each way in which the cache fails, however many ops meet it."""
    import platformdirs

    reason = platformdirs.user_cache_dir("tritongen"), error.errno or str(error)
    if reason not in _told:
        _told.add(reason)
        lost = "no cached copy of modules, or no tuned configs; ops work without"
        warnings.warn(f"tritongen: {lost}: {error}", stacklevel=3)

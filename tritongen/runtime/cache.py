"""The per-user cache folder: ours alone, or not used. Generated texts and tuned configs lie there."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def cache_path() -> Path:
    """Where it is, whether or not it exists."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("tritongen"))


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

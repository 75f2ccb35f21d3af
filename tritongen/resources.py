"""Finds the grammar, the prelude and the templates: `folder("grammar") / "op.lark"`.

They are top-level folders of the repository. A wheel holds them as `tritongen/_data/`. An editable install and a
checkout read them from the repository.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """The folder `grammar`, `templates` or `docs`. A wheel has only `language.md` of the latter."""
    packed = _PACKAGE / "_data" / name
    return packed if packed.is_dir() else _PACKAGE.parent / name


def package_folder(name: str) -> Path:
    """A folder of the package, for parts that are printed elsewhere too."""
    return _PACKAGE / name

"""The playground as static files: `python website/playground/bundle.py build/site/play`.

The folder holds the page, one JavaScript file with the editor, the worker, Pyodide, and the memory of a Pyodide
that has the compiler, jinja2 and black imported (`snapshot.mjs`). All of it comes from this environment and from
`node_modules` (`npm ci`); nothing is fetched from elsewhere when a reader opens the page.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGES = "jinja2 markupsafe black click mypy_extensions packaging pathspec platformdirs pytokens"
PAGE = "index.html style.css worker.js"
PYODIDE = "pyodide.mjs pyodide.asm.mjs pyodide.asm.wasm python_stdlib.zip pyodide-lock.json"
LEFT_OUT = {"bench", "tune", "doctor.py", "calibrate.py", "nn.py", "nn_ops.py", "api.py"}
AS_TEXT = "tritongen/lib", "templates", "grammar", "docs"  # the compiler reads these


def bundle(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    if not (HERE / "node_modules" / "pyodide").is_dir():
        subprocess.run(["npm", "ci", "--silent"], cwd=HERE, check=True)
    for name in PAGE.split():
        shutil.copyfile(HERE / name, out / name)
    (out / "pyodide").mkdir(exist_ok=True)
    for name in PYODIDE.split():
        shutil.copyfile(HERE / "node_modules" / "pyodide" / name, out / "pyodide" / name)
    (out / "data.json").write_text(json.dumps(data()), encoding="utf-8")
    _editor(out)
    with tempfile.TemporaryDirectory() as folder:
        _stage(Path(folder))
        command = ["node", "snapshot.mjs", folder, str(out / "compiler.bin")]
        subprocess.run(command, cwd=HERE, check=True)
        (out / "compiler.bin.raw").unlink()
        (out / "files.json").write_text(json.dumps(_texts(Path(folder))), encoding="utf-8")


def data() -> dict:
    """The examples, and the words that the editor colours."""
    from tritongen.syntax import _tables
    from tritongen.syntax.highlight import KINDS

    terminals = [(name, pattern) for name, pattern in _tables.TERMINALS if name in KINDS]
    examples = json.loads((HERE / "examples.json").read_text(encoding="utf-8"))
    return dict(
        examples={
            title: (ROOT / path).read_text(encoding="utf-8") for title, path in examples.items()
        },
        terminals=[(KINDS[name], pattern) for name, pattern in terminals],
        keywords=sorted(_tables.KEYWORDS),
    )


def _editor(out: Path) -> None:
    options = ["--bundle", "--minify", "--format=esm", "--log-level=warning"]
    command = ["node_modules/.bin/esbuild", "main.js", *options, f"--outfile={out / 'main.js'}"]
    subprocess.run(command, cwd=HERE, check=True)


def _stage(folder: Path) -> None:
    """The sources as they lie in the browser."""
    for name in PACKAGES.split():
        for file in metadata.files(name) or ():
            is_source = file.suffix in (".py", ".txt") and ".." not in file.parts
            if is_source and "dist-info" not in str(file):
                _copy(Path(str(file.locate())), folder / file)
    for file in (ROOT / "tritongen").rglob("*.py"):
        inside = file.relative_to(ROOT)
        if inside.parts[1] not in LEFT_OUT:
            _copy(file, folder / inside)
    for part in ("grammar", "templates"):
        for file in (ROOT / part).iterdir():
            _copy(file, folder / part / file.name)
    _copy(ROOT / "docs" / "language.md", folder / "docs" / "language.md")
    for name in ("session.py", "explaining.py"):
        _copy(HERE / name, folder / name)
    shutil.copytree(HERE / "stubs", folder, dirs_exist_ok=True)


def _copy(source: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, to)


def _texts(folder: Path) -> dict[str, str]:
    """The files that the compiler reads while it runs."""
    files = (f for part in AS_TEXT for f in sorted((folder / part).iterdir()) if f.is_file())
    return {f.relative_to(folder).as_posix(): f.read_text(encoding="utf-8") for f in files}


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    bundle(Path(sys.argv[1]).resolve())

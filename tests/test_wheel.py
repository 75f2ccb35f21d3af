"""The wheel: built, installed in an environment of its own, used outside the checkout."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RELU = "op relu<T: float>(x: T[...]) -> y: T[...] {\n  y = max(x, 0)\n}\n"


def run(*command, cwd, **more):
    """In an environment that knows nothing of the checkout."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "TRITON_INTERPRET")}
    done = subprocess.run(command, cwd=cwd, env={**env, **more}, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder of a project beside an environment that holds the wheel; torch and the rest are lent."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    code, said = run(*pip, "wheel", "--no-deps", "-w", folder, ROOT, cwd=folder)
    if code and ("hatchling" in said or "connection" in said.lower()):
        pytest.skip("pip cannot fetch hatchling, which builds the wheel")
    assert code == 0, said
    (wheel,) = folder.glob("tritongen-*.whl")
    assert run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)[0] == 0
    code, said = run(
        folder / "venv/bin/python", "-m", "pip", "install", "--no-deps", wheel, cwd=folder
    )
    assert code == 0, said
    (site,) = (folder / "venv/lib").glob("python*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    (folder / "project").mkdir()
    (folder / "project/relu.op").write_text(RELU)
    return folder


@pytest.mark.slow
def test_the_wheel_works_outside_the_checkout(installed):
    project, own = installed / "project", installed / "venv/bin"

    def tritongen(*args):
        return run(own / "tritongen", *args, cwd=project, XDG_CACHE_HOME=str(installed / "cache"))

    code, where = run(
        own / "python", "-c", "import tritongen; print(tritongen.__file__)", cwd=project
    )
    assert code == 0 and where.startswith(str(installed / "venv"))
    code, said = tritongen("build", "relu.op")
    assert code == 0 and "def relu_flat" in (project / "generated/relu.py").read_text(), said
    assert tritongen("build", "relu.op", "--check")[0] == 0
    code, said = tritongen("check", "relu.op", "--device", "cpu", "--examples", "4")
    assert code == 0 and "all right" in said, said
    code, said = tritongen("explain", "relu.op", "--shape", "batch=1024")
    assert code == 0 and "relu_flat[" in said, said
    code, said = tritongen("doctor")
    assert "python" in said and "could not be examined" not in said

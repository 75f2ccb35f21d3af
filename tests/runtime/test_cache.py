"""No op needs a cache: what is wrong with its folder costs one warning, and nothing in it is waited for or believed."""

from __future__ import annotations

import json
import os
import signal
import time
import warnings
from contextlib import contextmanager

import platformdirs
import pytest
import torch

import tritongen
from tritongen import lib
from tritongen.errors import SpecError
from tritongen.files import STALE, write_atomically
from tritongen.output import OutputError, target
from tritongen.runtime import cache, calibrated, load, tuned
from tritongen.syntax.limits import read_source

NOBODY = 65534


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name: str(tmp_path / "home" / name))
    (tmp_path / "home").mkdir()
    calibrated.install.cache_clear()
    yield tmp_path / "home"
    calibrated.install.cache_clear()
    lib.calibrated().clear()


@contextmanager
def closed(folder, mode):
    """The folder with that mode, met by somebody who is not root."""
    folder.chmod(mode)
    if os.getuid() == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(os.getuid())
        folder.chmod(0o700)


@pytest.fixture(autouse=True)
def in_time():
    """A FIFO is waited for without end."""

    def late(*args):
        raise TimeoutError("something waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def works_with_one_warning(spec: str) -> str:
    """What was warned of, once, as two modules with ops were made and called."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for k in (1, 2):
            f = tritongen.compile_op(
                f"op f(x: f32[N]) -> y: f32[N] {{ y[n] = x[n] + {k} }} # {spec}"
            )
            assert f(torch.zeros(2)).tolist() == [k, k]
    (told,) = (str(w.message) for w in seen if "tritongen: " in str(w.message))
    return told


@pytest.mark.parametrize("mode", [0o000, 0o600, 0o500])
def test_a_home_that_cannot_be_searched_or_written(home, mode):
    cache.private_folder()
    (home / "tritongen" / "tuned").mkdir()
    with closed(home, mode):
        assert "Permission denied" in works_with_one_warning(f"{mode:o}")


def test_a_folder_within_that_cannot_be_searched(home):
    folder = cache.private_folder() / "gpus"
    folder.mkdir()
    with closed(folder, 0o000):
        works_with_one_warning("gpus")


def test_without_a_home_nothing_is_made_where_we_are_called(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name: f"~/.cache/{name}")
    calibrated.install.cache_clear()
    assert "not an absolute path" in works_with_one_warning("nowhere")
    assert not list(tmp_path.iterdir())


def spoiled(path, how):
    if how == "fifo":
        path.unlink()
        os.mkfifo(path)
    elif how == "link":
        path.rename(path.with_name("elsewhere"))
        path.symlink_to(path.with_name("elsewhere"))
    elif how == "mode":
        path.chmod(0o666)
    elif how == "owner":
        os.chown(path, NOBODY, -1)
    else:
        path.write_text(json.dumps({**json.loads(path.read_text()), "memory": 10**400}))


@pytest.mark.parametrize("how", ["fifo", "link", "mode", "owner", "400 digits"])
def test_coefficients_that_others_may_have_written_are_not_used(home, how):
    if how == "owner" and os.getuid():
        pytest.skip("only root gives files away")
    path = calibrated.store("a GPU", next(iter(lib.measured().values())))
    spoiled(path, how)
    with pytest.warns(UserWarning, match="a_GPU.json is not used") as seen:
        calibrated.install()
    assert len(seen) == 1 and not lib.calibrated()


def test_what_a_killed_process_left_is_swept(tmp_path):
    old = time.time() - STALE - 60
    names = ".tritongen-a.py.x1", ".tritongen-b.json.x2", ".tritongen-c.py.new", ".other", "d.py"
    for name in names:
        (tmp_path / name).write_text("half")
        if not name.endswith("new"):
            os.utime(tmp_path / name, (old, old))
    (tmp_path / ".tritongen-link").symlink_to(tmp_path / "d.py")
    (tmp_path / ".tritongen-folder").mkdir()
    write_atomically(tmp_path / "a.py", "whole")
    left = {p.name for p in tmp_path.iterdir()}
    assert left == {"a.py", *names[2:], ".tritongen-link", ".tritongen-folder"}
    assert (tmp_path / "a.py").read_text() == "whole"


def test_a_fifo_is_no_spec_no_module_and_no_target(tmp_path):
    for name in ("f.op", "f.py"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(SpecError, match="E012.*not a regular file"):
        read_source(tmp_path / "f.op")
    with pytest.raises(OSError, match="not a regular file"):
        load.load_file(tmp_path / "f.py")
    with pytest.raises(OutputError, match="is not a file"):
        target(tmp_path, "f")


def test_a_fifo_in_the_place_of_a_copy_is_replaced(home):
    path = cache.private_folder() / "thing.py"
    os.mkfifo(path)
    with pytest.warns(UserWarning, match="is stale, or was not"):
        assert load._cached_copy("thing.py", "A = 1\n") == path
    assert path.read_text() == "A = 1\n"


def test_nothing_is_stored_where_it_cannot_be(home):
    with closed(home, 0o500), pytest.raises(OSError):
        tuned.store("", "f", [], set())

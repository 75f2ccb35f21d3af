"""The doctor on machines that are ill in one way each: a faked PATH, faked versions, a faked torch."""

import json
import os
import sys
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from tritongen import doctor
from tritongen.cli import main

LDCONFIG = "#!/bin/sh\necho '\tlibcuda.so.1 (libc6,x86-64) => /usr/lib/libcuda.so.1'\n"
PTXAS = "#!/bin/sh\necho 'Cuda compilation tools, release 12.8, V12.8.93'\n"


def program(path, text="#!/bin/sh\n"):
    path.write_text(text)
    path.chmod(0o755)
    return path


class Cuda:
    """torch.cuda of a machine with one H200."""

    available = True

    def is_available(self):
        return self.available

    def get_device_name(self):
        return "NVIDIA H200"

    def get_device_capability(self):
        return 9, 0

    def device_count(self):
        return 1

    def init(self):
        raise RuntimeError("The NVIDIA driver on your system is too old\nand more")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A healthy one; a test makes it ill."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    program(bin_ / "gcc")
    program(bin_ / "ldconfig", LDCONFIG)
    ptxas = program(tmp_path / "ptxas", PTXAS)
    header = tmp_path / "include" / "Python.h"
    header.parent.mkdir()
    header.touch()
    (tmp_path / "cache").mkdir(mode=0o700)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for name in ("CC", "TRITON_INTERPRET", "CUDA_VISIBLE_DEVICES", "TRITON_LIBCUDA_PATH", "LD_LIBRARY_PATH"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(bin_))
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(ptxas))
    versions = {"torch": "2.11.0+cu130", "triton": "3.6.0", "numpy": "2.4.6"}
    torch = SimpleNamespace(cuda=Cuda(), version=SimpleNamespace(hip=None, cuda="13.0"))
    monkeypatch.setattr(doctor, "version_of", versions.get)
    monkeypatch.setattr(doctor.metadata, "requires", lambda name: ['triton==3.6.0; x == "y"'])
    monkeypatch.setattr(doctor.importlib, "import_module", lambda name: torch)
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(doctor.sysconfig, "get_paths", lambda: {"include": str(header.parent)})
    monkeypatch.setattr(doctor.platform, "python_version", lambda: "3.12.3")
    monkeypatch.setattr(doctor, "driver_version", lambda: "580.65")
    monkeypatch.setattr(doctor, "cache_path", lambda: tmp_path / "cache")
    monkeypatch.setattr(doctor, "_existing", lambda *paths: None)
    monkeypatch.setattr(doctor, "_try_kernel", lambda: "")
    return SimpleNamespace(path=tmp_path, bin=bin_, versions=versions, torch=torch, ptxas=ptxas)


def text(machine):
    shown = "\n".join(line.rstrip() for _, line in doctor.lines(list(doctor.examine())))
    return shown.replace(str(machine.path), "/m").replace(sys.executable, "/m/python")


HEALTHY = """\
ok       python    3.12.3 at /m/python
ok       torch     2.11.0+cu130
ok       triton    3.6.0
ok       gpu       NVIDIA H200, 1 in all, compute capability 9.0
ok       ptxas     12.8 at /m/ptxas
ok       libcuda   /usr/lib/libcuda.so.1
ok       compiler  /m/bin/gcc
ok       headers   /m/include/Python.h
ok       cache     /m/cache
ok       kernel    compiles, runs, and gives the right result
kernels run here"""

SICK = """\
ok       python    3.12.3 at /m/python
problem  torch     2.11.0+cpu, a CPU build: it cannot run kernels
                   -> pip install --force-reinstall torch  (a CUDA build: see pytorch.org)
problem  triton    3.5.1, older than 3.6
                   -> pip install 'triton>=3.6'
problem  gpu       no NVIDIA driver is loaded
                   -> use a machine with an NVIDIA GPU and its driver; TRITON_INTERPRET=1 runs kernels on the CPU
problem  ptxas     /m/ptxas is missing or not executable
                   -> pip install --force-reinstall triton, or set TRITON_PTXAS_PATH to CUDA's bin/ptxas
problem  libcuda   Triton finds libcuda through ldconfig, which is missing
                   -> apt install libc-bin, or set TRITON_LIBCUDA_PATH to the folder of libcuda.so.1
problem  compiler  no gcc or clang on the PATH
                   -> apt install gcc, or set CC
ok       headers   /m/include/Python.h
warning  cache     /m/cache is open to other users: not used
                   -> chmod 700 /m/cache
kernels do not run on a GPU here"""


def test_a_healthy_machine(machine):
    assert text(machine) == HEALTHY


def test_everything_at_once(machine, monkeypatch):
    machine.versions.update(torch="2.11.0+cpu", triton="3.5.1")
    machine.torch.cuda.available = False
    monkeypatch.setattr(doctor, "driver_version", lambda: None)
    machine.ptxas.unlink()
    for tool in machine.bin.iterdir():
        tool.unlink()
    (machine.path / "cache").chmod(0o755)
    assert text(machine) == SICK


def ill(name, machine, monkeypatch):
    """Makes the machine ill in one way."""
    if name == "no torch":
        machine.versions.pop("torch")
    elif name == "another triton":
        machine.versions["triton"] = "3.7.1"
    elif name == "hidden":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        machine.torch.cuda.available = False
    elif name == "old driver":
        machine.torch.cuda.available = False
    elif name == "old gpu":
        monkeypatch.setattr(Cuda, "get_device_capability", lambda self: (7, 5))
    elif name == "broken ptxas":
        program(machine.ptxas, "#!/bin/sh\nexit 127\n")
    elif name == "wrong CC":
        monkeypatch.setenv("CC", "icc")
    elif name == "no headers":
        (machine.path / "include" / "Python.h").unlink()
    elif name == "no libcuda":
        program(machine.bin / "ldconfig")
    elif name == "ldconfig off the PATH":
        found = (machine.bin / "ldconfig").rename(machine.path / "ldconfig")
        monkeypatch.setattr(doctor, "_existing", lambda *paths: str(found))
    elif name == "numpy":
        machine.versions["numpy"] = "2.5.0"
    elif name == "a cache that is a link":
        (machine.path / "cache").rename(machine.path / "elsewhere")
        (machine.path / "cache").symlink_to(machine.path / "elsewhere")
    elif name == "a cache of another user":
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    elif name == "tuned choices that others may write":
        (machine.path / "cache" / "tuned").mkdir()
        (machine.path / "cache" / "tuned").chmod(0o777)
    elif name == "a cache below a file":
        monkeypatch.setattr(doctor, "cache_path", lambda: machine.ptxas / "cache")
    elif name == "a cache of Triton's below a file":
        monkeypatch.setenv("TRITON_CACHE_DIR", str(machine.ptxas / "cache"))
    elif name == "a folder without libcuda":
        monkeypatch.setenv("TRITON_LIBCUDA_PATH", str(machine.path))
    elif name == "interpreter":
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    elif name == "a kernel that is wrong":
        monkeypatch.setattr(doctor, "_try_kernel", lambda: "its result is off by 1.0")
    elif name == "a kernel that fails":
        monkeypatch.setattr(doctor, "_try_kernel", lambda: 1 / 0)
    elif name == "a torch that cannot be imported":
        monkeypatch.setattr(doctor.importlib, "import_module", lambda name: 1 / 0)


@pytest.mark.parametrize(
    "illness, name, state, found, remedy",
    [
        ("no torch", "torch", "problem", "not installed", "pip install 'torch>=2.11'"),
        ("another triton", "triton", "warning", "built for 3.6.0", "pip install triton==3.6.0"),
        ("hidden", "gpu", "problem", "CUDA_VISIBLE_DEVICES=''", "unset CUDA_VISIBLE_DEVICES"),
        ("old driver", "gpu", "problem", "too old", "a driver for CUDA 13.0 or newer"),
        ("old gpu", "gpu", "warning", "capability 7.5", "8.0 (Ampere)"),
        ("broken ptxas", "ptxas", "problem", "does not run", "TRITON_PTXAS_PATH"),
        ("wrong CC", "compiler", "problem", "CC=icc", "unset CC"),
        ("no headers", "headers", "problem", "Python.h is missing", "-dev"),
        ("no libcuda", "libcuda", "problem", "does not list libcuda.so.1", "sudo ldconfig"),
        ("ldconfig off the PATH", "libcuda", "warning", "off the PATH", "export PATH="),
        ("numpy", "numpy", "warning", "interpreter of Triton 3.6.0 fails", "numpy<2.5"),
        ("a cache that is a link", "cache", "warning", "(a symlink?): not used", "move"),
        ("a cache of another user", "cache", "warning", "another user: not used", "move"),
        (
            "tuned choices that others may write",
            "cache",
            "warning",
            "tuned is open to",
            "chmod 700",
        ),
        ("a cache below a file", "cache", "warning", "cannot be created", "XDG_CACHE_HOME"),
        (
            "a cache of Triton's below a file",
            "cache",
            "problem",
            "Triton's own",
            "TRITON_CACHE_DIR",
        ),
        ("a folder without libcuda", "libcuda", "problem", "holds no libcuda.so.1", "unset it"),
        ("interpreter", "interpret", "warning", "on the CPU", "unset TRITON_INTERPRET"),
        ("a kernel that is wrong", "kernel", "problem", "off by 1.0", "report it"),
        ("a kernel that fails", "kernel", "problem", "ZeroDivisionError", "report it"),
        ("a torch that cannot be imported", "gpu", "problem", "could not be examined", ""),
    ],
)
def test_one_illness_one_finding(machine, monkeypatch, illness, name, state, found, remedy):
    ill(illness, machine, monkeypatch)
    checks = list(doctor.examine())
    wrong = [c for c in checks if c.state != "ok"]
    (check,) = wrong
    assert (check.name, check.state) == (name, state)
    assert found in check.found and remedy in check.remedy
    last = doctor.lines(checks)[-1][1]
    assert last == (
        "kernels run here" if state == "warning" else "kernels do not run on a GPU here"
    )


def test_the_command(machine):
    good = CliRunner().invoke(main, ["doctor"])
    assert good.exit_code == 0 and "kernels run here" in good.output
    (machine.bin / "gcc").unlink()
    bad = CliRunner().invoke(main, ["doctor", "--json"])
    assert bad.exit_code == 1
    assert [c["name"] for c in json.loads(bad.output) if c["state"] == "problem"] == ["compiler"]


def test_this_machine_is_examined_to_the_end():
    """Whatever it lacks, nothing raises."""
    checks = list(doctor.examine())
    assert {"python", "torch", "triton", "gpu", "compiler", "cache"} <= {c.name for c in checks}
    assert all(c.state in ("ok", "warning", "problem") and c.found for c in checks)
    assert not any("could not be examined" in c.found for c in checks)

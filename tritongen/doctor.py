"""Finds out why kernels do not run on this machine. Each finding has a remedy.

    for check in examine(): print(check)     # Check("compiler", "problem", "no C compiler: ...", "apt install gcc")

The checks run in the order in which they depend on each other. They install nothing, change nothing and do not raise. The
last one compiles and runs a kernel, if the earlier ones allow it. "problem": kernels do not run on a GPU. "warning": something
less.
"""

from __future__ import annotations

import importlib
import importlib.metadata as metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tritongen.runtime.cache import cache_path, complaint_about

OLDEST_TRITON = (3, 6)
# Which Triton a torch release was built for: what its CUDA wheels pin.
TRITON_OF_TORCH: dict[tuple[int, ...], tuple[int, ...]] = {
    (2, 11): (3, 6),
    (2, 12): (3, 7),
    (2, 13): (3, 7),
}
INSTALL_CUDA_TORCH = "pip install --force-reinstall torch  (a CUDA build: see pytorch.org)"


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    state: str  # ok | warning | problem
    found: str
    remedy: str = ""


def examine() -> Iterator[Check]:
    """All checks; those of NVIDIA's tools only where torch is for NVIDIA, the kernel where the GPU is fine."""
    yield from _safely(_python)
    yield from _safely(_versions)
    gpu = list(_safely(_gpu))
    yield from gpu
    nvidia = (_ptxas, _libcuda) if not _is_rocm() else ()
    for look in (*nvidia, _compiler, _headers, _triton_cache, _cache, _interpreter):
        yield from _safely(look)
    if gpu[0].state != "problem":
        yield from _safely(_kernel)


def _safely(look: Callable[[], Check | Iterator[Check]]) -> Iterator[Check]:
    """Runs the checks. An exception in a check is a finding."""
    try:
        found = look()
        yield from (found,) if isinstance(found, Check) else found
    except Exception as error:
        name = look.__name__.strip("_")
        yield Check(name, "problem", f"could not be examined: {type(error).__name__}: {error}")


def lines(checks: list[Check]) -> list[tuple[str, str]]:
    """Pairs (style, line): one for each check, then the verdict."""
    styles = {"ok": "green", "warning": "yellow", "problem": "bold red"}
    width = max(len(c.name) for c in checks)
    out = []
    for c in checks:
        out.append((styles[c.state], f"{c.state:8} {c.name:{width}}  {c.found}"))
        if c.remedy:
            out.append(("", f"{'':8} {'':{width}}  -> {c.remedy}"))
    problems = sum(c.state == "problem" for c in checks)
    verdict = "kernels run here" if not problems else "kernels do not run on a GPU here"
    out.append(("bold", verdict))
    return out


# ---- versions -----------------------------------------------------------------------------------
def _python() -> Check:
    found = f"{platform.python_version()} at {sys.executable}"
    if platform.system() != "Linux":
        return Check("python", "problem", f"{found}, {platform.system()}", "Triton needs Linux")
    return Check("python", "ok", found)


def _versions() -> Iterator[Check]:
    torch, triton = version_of("torch"), version_of("triton")
    if torch is None:
        yield Check("torch", "problem", "not installed", "pip install 'torch>=2.11'")
    else:
        build = "a CPU build" if "+cpu" in torch else ""
        state = "problem" if build else "ok"
        found = f"{torch}{', ' + build + ': it cannot run kernels' if build else ''}"
        yield Check("torch", state, found, INSTALL_CUDA_TORCH if build else "")
    yield _triton(torch, triton)
    numpy = version_of("numpy")
    if numpy and triton and numbers(numpy) >= (2, 5) and numbers(triton) < (3, 7):
        found = f"{numpy}, and the interpreter of Triton {triton} fails with it"
        yield Check("numpy", "warning", found, "pip install 'numpy<2.5'")


def _triton(torch: str | None, triton: str | None) -> Check:
    wanted = pinned_triton(torch)
    if triton is None:
        remedy = f"pip install triton=={wanted}" if wanted else "pip install 'triton>=3.6'"
        return Check("triton", "problem", "not installed", remedy)
    if numbers(triton) < OLDEST_TRITON:
        return Check("triton", "problem", f"{triton}, older than 3.6", "pip install 'triton>=3.6'")
    if wanted and numbers(wanted) != numbers(triton):
        found = f"{triton}, but torch {torch} was built for {wanted}"
        return Check("triton", "warning", found, f"pip install triton=={wanted}")
    return Check("triton", "ok", triton)


def pinned_triton(torch: str | None) -> str:
    """The version of Triton that the installed torch asks for: from its metadata, or from the table below."""
    if torch is None:
        return ""
    for line in metadata.requires("torch") or ():
        if found := re.match(r"triton\s*\(?==\s*([\d.]+)", line):
            return found[1]
    return ".".join(map(str, TRITON_OF_TORCH.get(numbers(torch), ())))


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def numbers(version: str) -> tuple[int, ...]:
    """Major and minor."""
    return tuple(int(n) for n in re.findall(r"\d+", version)[:2])


def _is_rocm() -> bool:
    return "+rocm" in (version_of("torch") or "")


# ---- the GPU ------------------------------------------------------------------------------------
def _gpu() -> Check:
    """The GPU that torch sees, or the first reason why it sees none."""
    if importlib.util.find_spec("torch") is None:
        return Check("gpu", "problem", "unknown without torch", "install torch first")
    torch = importlib.import_module("torch")
    if torch.cuda.is_available():
        name, (major, minor) = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
        found = f"{name}, {torch.cuda.device_count()} in all, compute capability {major}.{minor}"
        if torch.version.hip is None and major < 8:
            return Check("gpu", "warning", found, "tl.dot in bf16 needs 8.0 (Ampere) or newer")
        return Check("gpu", "ok", found)
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and hidden.strip() in ("", "-1"):
        found = f"hidden by CUDA_VISIBLE_DEVICES={hidden!r}"
        return Check("gpu", "problem", found, "unset CUDA_VISIBLE_DEVICES")
    driver = driver_version()
    if driver is None:
        remedy = "use a machine with an NVIDIA GPU and its driver; TRITON_INTERPRET=1 runs kernels on the CPU"
        return Check("gpu", "problem", "no NVIDIA driver is loaded", remedy)
    cuda = torch.version.cuda
    if cuda is None:
        found = f"driver {driver}, but this torch has no CUDA"
        return Check("gpu", "problem", found, INSTALL_CUDA_TORCH)
    found = f"driver {driver} is too old for torch's CUDA {cuda}: {_refusal(torch)}"
    remedy = f"install a driver for CUDA {cuda} or newer, or a torch built for an older CUDA; in a container, pass --gpus all"
    return Check("gpu", "problem", found, remedy)


def driver_version() -> str | None:
    """Version of the driver's kernel module. None if none is loaded."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    found = re.search(r"Kernel Module\D*([\d.]+)", text)
    return found[1] if found else "of unknown version"


def _refusal(torch: object) -> str:
    try:
        torch.cuda.init()  # type: ignore[attr-defined]
    except Exception as error:
        return str(error).strip().splitlines()[0][:160]
    return "it lists no device"


# ---- what Triton runs to build and launch a kernel --------------------------------------------------
def _ptxas() -> Check:
    path = os.environ.get("TRITON_PTXAS_PATH") or _bundled_ptxas()
    if path is None:
        return Check("ptxas", "problem", "unknown without triton", "install triton first")
    remedy = "pip install --force-reinstall triton, or set TRITON_PTXAS_PATH to CUDA's bin/ptxas"
    if not os.access(path, os.X_OK):
        return Check("ptxas", "problem", f"{path} is missing or not executable", remedy)
    found = _output(path, "--version")
    version = re.search(r"release ([\d.]+)", found or "")
    if not version:
        return Check("ptxas", "problem", f"{path} does not run", remedy)
    return Check("ptxas", "ok", f"{version[1]} at {path}")


def _bundled_ptxas() -> str | None:
    spec = importlib.util.find_spec("triton")
    if spec is None or not spec.submodule_search_locations:
        return None
    return str(Path(spec.submodule_search_locations[0], "backends", "nvidia", "bin", "ptxas"))


def _compiler() -> Check:
    """Triton builds each kernel's launcher as C: `CC`, else gcc, else clang."""
    given = os.environ.get("CC")
    path = shutil.which(given) if given else shutil.which("gcc") or shutil.which("clang")
    if path:
        return Check("compiler", "ok", path)
    found = f"CC={given} does not exist" if given else "no gcc or clang on the PATH"
    remedy = "unset CC, or set it to a C compiler" if given else "apt install gcc, or set CC"
    return Check("compiler", "problem", found, remedy)


def _headers() -> Check:
    header = Path(sysconfig.get_paths()["include"], "Python.h")
    if header.is_file():
        return Check("headers", "ok", str(header))
    package = f"python3.{sys.version_info.minor}-dev"
    return Check("headers", "problem", f"{header} is missing", f"apt install {package}")


def _libcuda() -> Check:
    """Triton asks `ldconfig -p` for libcuda, and fails without an answer."""
    if path := os.environ.get("TRITON_LIBCUDA_PATH"):
        if Path(path, "libcuda.so.1").exists() or Path(path, "libcuda.so").exists():
            return Check("libcuda", "ok", f"TRITON_LIBCUDA_PATH={path}")
        found = f"TRITON_LIBCUDA_PATH={path} holds no libcuda.so.1"
        return Check(
            "libcuda", "problem", found, "unset it, or set it to the folder of libcuda.so.1"
        )
    tool = shutil.which("ldconfig") or _existing("/sbin/ldconfig", "/usr/sbin/ldconfig")
    if tool is None:
        remedy = "apt install libc-bin, or set TRITON_LIBCUDA_PATH to the folder of libcuda.so.1"
        return Check(
            "libcuda", "problem", "Triton finds libcuda through ldconfig, which is missing", remedy
        )
    where = re.search(r"libcuda\.so\.1 .*=> (\S+)", _output(tool, "-p") or "")
    if where is None and not _on_library_path():
        remedy = "install the driver, then sudo ldconfig; or set TRITON_LIBCUDA_PATH to the folder of libcuda.so.1"
        return Check("libcuda", "problem", f"{tool} does not list libcuda.so.1", remedy)
    found = where[1] if where else "on LD_LIBRARY_PATH"
    if shutil.which("ldconfig") is None:
        found = f"{found}, but ldconfig is off the PATH ({tool})"
        return Check("libcuda", "warning", found, "export PATH=$PATH:/sbin:/usr/sbin")
    return Check("libcuda", "ok", found)


def _existing(*paths: str) -> str | None:
    return next((p for p in paths if os.access(p, os.X_OK)), None)


def _on_library_path() -> bool:
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return any(Path(folder, "libcuda.so.1").exists() for folder in folders if folder)


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout


# ---- the rest -----------------------------------------------------------------------------------
def _cache() -> Check:
    """The cache of tritongen. Everything works without it, but nothing that was tuned is kept."""
    try:
        return _cache_at(cache_path())
    except OSError as error:
        remedy = "set XDG_CACHE_HOME to a folder of yours"
        return Check("cache", "warning", f"the cache cannot be searched: {error}", remedy)


def _cache_at(folder: Path) -> Check:
    if not folder.exists() and not folder.is_symlink():
        if _may_be_made(folder):
            return Check("cache", "ok", f"{folder}, not created yet")
        remedy = "make it writable, or set XDG_CACHE_HOME to a folder of yours"
        return Check("cache", "warning", f"{folder} cannot be created", remedy)
    for own in (folder, folder / "tuned"):
        if own.is_symlink() or own.exists():
            if complaint := complaint_about(own):
                remedy = f"chmod 700 {own}" if "open to" in complaint else f"move {own} away"
                found = f"{complaint.partition(': chmod')[0]}: not used"
                return Check("cache", "warning", found, remedy)
    return Check("cache", "ok", str(folder))


def _triton_cache() -> Iterator[Check]:
    """The cache of Triton. Triton raises if it cannot write there."""
    home = os.environ.get("TRITON_HOME") or Path.home()
    folder = Path(os.environ.get("TRITON_CACHE_DIR") or Path(home, ".triton", "cache"))
    if not (folder.is_dir() and os.access(folder, os.W_OK) or _may_be_made(folder)):
        remedy = "make it writable, or set TRITON_CACHE_DIR to a folder of yours"
        yield Check("cache", "problem", f"Triton's own {folder} cannot be written", remedy)


def _may_be_made(folder: Path) -> bool:
    parent = next(p for p in folder.absolute().parents if p.exists())
    return not folder.exists() and parent.is_dir() and os.access(parent, os.W_OK)


def _interpreter() -> Iterator[Check]:
    if os.environ.get("TRITON_INTERPRET") == "1":
        found = "TRITON_INTERPRET=1: kernels run on the CPU, slowly"
        yield Check("interpret", "warning", found, "unset TRITON_INTERPRET")


def _kernel() -> Check:
    """Compiles and runs a kernel."""
    try:
        error = _try_kernel()
    except Exception as problem:
        first = str(problem).strip().splitlines()[:1]
        error = f"{type(problem).__name__}: {''.join(first)[:200]}"
    if error:
        return Check("kernel", "problem", error, "fix the findings above first; then report it")
    return Check("kernel", "ok", "compiles, runs, and gives the right result")


def _try_kernel() -> str:
    import torch

    from tritongen.api import compile_expr

    x = torch.randn(1000, device="cuda")
    difference = (compile_expr("max(x, 0) * 2")(x) - x.relu() * 2).abs().max().item()
    return f"its result is off by {difference}" if difference else ""

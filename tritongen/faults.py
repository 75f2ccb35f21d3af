"""Reports an internal error of the compiler: five lines, and a file with the details.

    with reporting("specs/softmax.op", text):
        with doing("plan", "softmax"):
            ...                                 # KeyError

    an internal error of tritongen, not an error in the spec: KeyError: 'n'
      op: softmax of specs/softmax.op
      stage: plan
      details: /tmp/tritongen_fault_x1y2.txt (traceback, spec, versions)
      report it: open an issue, with that file, where you got tritongen

A `SpecError` passes through, because it is about the spec. So do errors of the machine (`OSError`, `ImportError`, `MemoryError`).
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, metadata, version

from tritongen.errors import Diagnostic, Span, SpecError

PACKAGES = ("tritongen", "torch", "triton", "jinja2", "black")


class CompilerFault(RuntimeError):
    """An internal error of tritongen. `str()` is the report of five lines; `__cause__` is the original exception."""


@contextmanager
def doing(stage: str, op: str = "", span: Span | None = None) -> Iterator[None]:
    """Notes on any exception raised inside where it happened: the innermost stage and the outermost op."""
    try:
        yield
    except Exception as error:
        inner = getattr(error, "doing", (stage, op, span))
        error.doing = inner[0], op or inner[1], span or inner[2]  # type: ignore[attr-defined]
        raise


@contextmanager
def reporting(name: str, text: str) -> Iterator[None]:
    """Turns an unexpected exception into a CompilerFault. Text that nests too deep for Python becomes E009."""
    try:
        yield
    except (SpecError, CompilerFault, OSError, ImportError, MemoryError):
        raise
    except RecursionError as error:
        _, op, span = getattr(error, "doing", ("", "", None))
        message = f"{f'`{op}`' if op else 'this'} nests too deep"
        help = "give a part a name on a line of its own"
        raise SpecError([Diagnostic("E009", message, span, help=help)]) from error
    except Exception as error:
        raise fault(error, name, text) from error


def fault(error: Exception, name: str, text: str, stage: str = "") -> CompilerFault:
    """The report about an exception. `stage` is used if the exception has no note of its stage."""
    stage, op, _ = getattr(error, "doing", (stage, "", None))
    first = "".join(traceback.format_exception_only(type(error), error)).strip().split("\n")[0]
    lines = [
        f"an internal error of tritongen, not an error in the spec: {_shown(first)}",
        f"  op: {_shown(f'{op} of {name}' if op else name)}",
        f"  stage: {stage}",
    ]
    return CompilerFault("\n".join([*lines, *_where_the_rest_is(error, lines, text)]))


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:300])


def _where_the_rest_is(error: Exception, lines: list[str], text: str) -> list[str]:
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    rest = "\n\n".join(["\n".join(lines), " ".join(sys.argv), _versions(), trace, text]) + "\n"
    try:
        handle, path = tempfile.mkstemp(prefix="tritongen_fault_", suffix=".txt")
        with os.fdopen(handle, "wb") as file:
            file.write(rest.encode(errors="backslashreplace"))
    except OSError as refusal:
        where = f"no file could be written ({_shown(str(refusal))}); the exception's cause"
        return [f"  the rest: {where}", f"  report it: open an issue with that {_tracker()}"]
    rest = f"  the rest: {path} (traceback, spec, versions)"
    return [rest, f"  report it: open an issue with that file {_tracker()}"]


def _tracker() -> str:
    """Where issues are: what `[project.urls]` of pyproject.toml calls Issues, if it does."""
    try:
        urls = metadata("tritongen").get_all("Project-URL", [])
    except PackageNotFoundError:
        urls = []
    address = dict(url.split(", ", 1) for url in urls).get("Issues")
    return f"at {address}" if address else "where you have tritongen from"


def _versions() -> str:
    found = [f"python {platform.python_version()} on {platform.platform()}"]
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} is not installed")
    return "\n".join(found)

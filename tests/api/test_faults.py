"""A fault of ours comes to five lines, wherever it is, and a file that holds the rest; never to a bare traceback."""

from __future__ import annotations

import tempfile
from email.message import Message
from pathlib import Path

import pytest
from click.testing import CliRunner

import tritongen
from tritongen import api, check, faults, manual, pipeline
from tritongen.cli import main
from tritongen.emit import module
from tritongen.errors import SpecError
from tritongen.faults import CompilerFault

OP = "op f<T: float>(x: T[N, D]) -> y: T[N, D] {{ y[n, d] = {} }}"
STAGES = [
    (pipeline, "read", "parse", ""),
    (check, "check_op", "check", "f of "),
    (pipeline, "with_gradient", "derive", "f of "),
    (pipeline, "verify", "verify", "f of "),
    (pipeline, "plan_op", "plan", "f of "),
    (pipeline, "collisions", "print", "f of "),
    (module, "op_view", "print", "f of "),
    (module.scopes, "check_names", "print", ""),
    (pipeline, "format_source", "format", ""),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where files of faults go."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def planted(*args, **kwargs):
    raise KeyError("a key\n  that is\x1b[2J long" + "g" * 1000)


def held(said: str, folder: Path, op: str, stage: str) -> str:
    """What the file of a fault holds, its five lines checked."""
    lines = said.strip().split("\n")
    assert len(lines) == 5 and all(len(line) < 400 for line in lines), said
    assert lines[0].startswith(
        "an internal error of tritongen, not an error in the spec: KeyError: "
    )
    assert lines[1:3] == [f"  op: {op}", f"  stage: {stage}"]
    (file,) = folder.glob("tritongen_fault_*.txt")
    assert str(file) in lines[3] and "report it: " in lines[4]
    assert file.stat().st_mode & 0o777 == 0o600
    return file.read_text()


@pytest.mark.parametrize("place, name, stage, op", STAGES)
def test_a_fault_comes_to_five_lines(folder, monkeypatch, place, name, stage, op):
    text = f"# {stage}: {name}\n{OP.format('x[n, d] * 2')}"  # what was built before is at hand
    monkeypatch.setattr(place, name, planted)
    with pytest.raises(CompilerFault) as caught:
        print(pipeline.build(text, "a/f.op", gradients=True).source)
    assert isinstance(caught.value.__cause__, KeyError)
    rest = held(str(caught.value), folder, f"{op}a/f.op", stage)
    assert "in planted" in rest and "\npython 3." in rest and "\ntorch " in rest
    assert rest.rstrip().endswith("}") or stage == "format"  # the spec; else what is formatted


def test_so_does_one_of_what_is_imported(folder, monkeypatch):
    monkeypatch.setattr(api, "load_text", planted)
    with pytest.raises(CompilerFault) as caught:
        tritongen.compile_op(OP.format("x[n, d] * 3"))
    held(str(caught.value), folder, "<text>", "import")


def test_the_command_line_says_no_more(folder, monkeypatch):
    spec = folder / "f.op"
    spec.write_text(OP.format("x[n, d] * 4"))
    monkeypatch.setattr(pipeline, "plan_op", planted)
    done = CliRunner().invoke(main, ["build", str(spec), "-o", str(folder / "out")])
    assert done.exit_code == 3 and not (folder / "out").exists()
    held(done.stderr.removeprefix("error: "), folder, f"f of {spec}", "plan")


def test_nor_does_a_command_that_compiles_nothing(folder, monkeypatch):
    monkeypatch.setattr(manual, "entries", planted)
    done = CliRunner().invoke(main, ["docs", "max"])
    assert done.exit_code == 3
    held(done.stderr.removeprefix("error: "), folder, "tritongen docs", "tritongen docs")


def test_where_no_file_can_be_written_the_lines_say_so(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    lines = str(faults.fault(KeyError("n"), "f.op", "", "plan")).split("\n")
    assert len(lines) == 5 and "no file could be written" in lines[3]


def test_the_address_of_issues_is_the_package_s_own(monkeypatch):
    said = Message()
    said["Project-URL"] = "Documentation, https://docs.example"
    monkeypatch.setattr(faults, "metadata", lambda name: said)
    last = "  report it: open an issue with that file "
    assert str(faults.fault(KeyError("n"), "f.op", "")).endswith(
        f"{last}where you have tritongen from"
    )
    said["Project-URL"] = "Issues, https://issues.example"
    assert str(faults.fault(KeyError("n"), "f.op", "")).endswith(f"{last}at https://issues.example")


def test_what_is_too_deep_for_python_is_located(monkeypatch):
    def deep(*args, **kwargs):
        return deep(*args)

    monkeypatch.setattr(pipeline, "plan_op", deep)
    text = OP.format("x[n, d] * 5")
    with pytest.raises(SpecError, match=r"E009\]: `f` nests too deep\n --> f.op:1:4"):
        pipeline.build(text, "f.op")


def test_the_names_of_ops_as_deep_as_they_may_be_are_found():
    """Their trees are deeper than Python lets `repr` of them go, which looked for names once."""
    text = "op f(x: f32[N]) -> y: f32[N] {{ y[n] = {} }}".format(" * ".join(["x[n]"] * 256))
    checked = check.check(pipeline.read(text))
    said = pipeline._said("", checked, {})
    assert {"f", "x", "y", "n", "N"} == set(said.split())


def test_an_expression_has_as_many_operands_as_it_has():
    import torch

    names = [f"x{k}" for k in range(40)]
    y = tritongen.compile_expr(" + ".join(names))(*[torch.tensor([k * 1.0]) for k in range(40)])
    assert y.tolist() == [780.0]


@pytest.mark.parametrize(
    "args",
    [
        ["explain", "softmax.op", "--shape", "batch="],
        ["explain", "softmax.op", "--shape", "batch=3,D=" + "1" * 4301],
        ["explain", "softmax.op", "--shape", "batch=3,D=1.." + "1" * 4301],
        ["explain", "softmax.op", "--shape", "batch=1x" + "1" * 4301],
        ["explain", "softmax.op", "--shape", f"batch=3,D={2**62}"],
        ["explain", "softmax.op", "--shape", f"batch={2**70},D=4"],
        ["show", "softmax.op", "--stage", "ptx", "--size", "D=" + "1" * 4301],
    ],
)
def test_numbers_of_the_command_line_are_read_or_refused(folder, args):
    spec = folder / "softmax.op"
    spec.write_text("op softmax(x: f32[..., D]) -> y: f32[..., D] { y[..., d] = x[..., d] * 2 }")
    done = CliRunner().invoke(main, [str(spec) if a == "softmax.op" else a for a in args])
    assert done.exit_code in (0, 2) and done.output.count("\n") < 40, done.output
    assert not [*folder.glob("tritongen_fault_*")]

"""The command line: exit codes, what is written, and what is refused."""

import ast
import functools
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from tritongen import proof
from tritongen.cli import main
from tritongen.emit import library

ROOT = Path(__file__).resolve().parents[2]

RELU = "op relu<T: float>(x: T[...]) -> y: T[...] {\n  y = max(x, 0)\n}\n"
LOSS = """op loss<T: f16 | bf16>(x: T[M, K], w: T[V, K]) -> y: f32[M] {
  z[m, v] = sum[k](x[m, k] * w[v, k])
  t[m] = max[v](z[m, v])
  y[m] = log(sum[v](exp(z[m, v] - t[m]))) + t[m]
}
"""
BROKEN = "op bad<T: float>(x: T[N, D]) -> y: T[N] {\n  y[n] = x[n, d]\n}\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs/relu.op").write_text(RELU)
    (tmp_path / "specs/bad.op").write_text(BROKEN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*args: str):
    return CliRunner().invoke(main, list(args))


def test_the_readme_shows_the_kernel_that_is_generated():
    root = Path(__file__).parents[2]
    readme, module = (root / p for p in ("README.md", "generated/softmax.py"))
    (shown,) = re.findall(r"```python\n(@triton.*?)```", readme.read_text(), re.DOTALL)
    (kernel,) = ast.parse(shown).body
    assert ast.dump(kernel) in map(ast.dump, ast.parse(module.read_text()).body)


def test_no_help_is_cut_off_or_missing():
    assert "..." not in run("--help").output.split("Commands:")[1]
    for name, command in main.commands.items():
        assert command.help, name
        for option in (p for p in command.params if isinstance(p, click.Option)):
            assert option.help, f"{name} {option.name}"


def test_build_writes_what_check_accepts(project):
    assert run("build", "specs/relu.op").exit_code == 0
    text = Path("generated/relu.py").read_text()
    assert "from specs/relu.op" in text and "def relu_flat" in text
    assert run("build", "specs/relu.op", "--check").exit_code == 0
    again = run("build", str(project / "specs/relu.op"))
    assert "unchanged" in again.output  # an absolute path builds the same bytes
    assert list(Path("generated").glob("*.py")) == [Path("generated/relu.py")]


def test_stale_and_missing_files_fail_the_check(project):
    missing = run("build", "specs/relu.op", "--check")
    assert missing.exit_code == 1 and "stale: generated/relu.py" in missing.stderr
    assert not Path("generated").exists()
    run("build", "specs/relu.op")
    Path("specs/relu.op").write_text(RELU.replace("0", "1"))
    assert run("build", "specs/relu.op", "--check").exit_code == 1
    assert run("build", "specs/relu.op").exit_code == 0
    assert run("build", "specs/relu.op", "--check").exit_code == 0


def test_one_bad_spec_and_nothing_is_written(project):
    result = run("build", "specs/relu.op", "specs/bad.op")
    assert result.exit_code == 2 and result.stdout == ""
    assert "error[E202]: index `d` is not bound" in result.stderr
    assert "--> specs/bad.op:2" in result.stderr
    assert not Path("generated").exists()


def test_warnings_are_shown_and_refuse_nothing(project):
    Path("specs/odd.op").write_text(RELU.replace("y = max", "t = x\n  y = max"))
    result = run("build", "specs/odd.op")
    assert result.exit_code == 0 and "warning[W001]: `t` is never read" in result.stderr
    assert Path("generated/odd.py").exists()


def test_a_build_says_why_an_op_has_no_gradient(project):
    (project / "d.op").write_text(
        "op f(u: f32[N]) -> (du: f32[N], y: f32[N]) { du[n] = u[n] * 2 y[n] = u[n] + 1 }"
        " op g(u: i32[N]) -> y: i32[N] { y[n] = u[n] + 1 }"
    )
    told = run("build", "d.op", "--output", "out").stderr
    assert "the gradient of `f` cannot be derived: `du` is a name" in told and "`g`" not in told


def test_a_spec_elsewhere_is_found_by_its_path_and_built_under_its_name(project, monkeypatch):
    (project / "elsewhere").mkdir()
    monkeypatch.chdir(project / "elsewhere")
    assert "--> ../specs/bad.op:2" in run("build", "../specs/bad.op").stderr
    run("build", "../specs/relu.op")
    assert "from relu.op (" in Path("generated/relu.py").read_text()


def test_a_reader_that_has_seen_enough_is_no_error(project):
    show = f"{sys.executable} -m tritongen show --stage ast specs/relu.op"
    done = subprocess.run(  # `true` ends before anything is printed
        ["bash", "-c", f"{show} | true; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_check_tells_a_failure_from_a_bad_spec(project):
    good = run("check", "specs/relu.op", "--examples", "2", "--device", "cpu")
    assert good.exit_code == 0 and "specs/relu.op" in good.stdout
    assert re.search(r"\b[1-8] kernels compile for sm_90", good.stdout)
    bad = run("check", "specs/relu.op", "specs/bad.op", "--device", "cpu")
    assert bad.exit_code == 2 and bad.stdout == "" and "E202" in bad.stderr


def test_a_finding_is_exit_code_1(project, monkeypatch):
    found = SimpleNamespace(ok=False)
    monkeypatch.setattr(proof, "check_specs", lambda *args, **how: iter([found]))
    assert run("check", "specs/relu.op").exit_code == 1


def test_standalone_drops_the_runtime_and_nothing_else(project):
    run("build", "specs/relu.op", "-o", "with")
    run("build", "specs/relu.op", "-o", "without", "--standalone")
    one, other = (Path(f"{way}/relu.py").read_text() for way in ("with", "without"))
    assert "tritongen import" not in other
    bodies = [{f.name: f for f in ast.parse(t).body if hasattr(f, "args")} for t in (one, other)]
    names = "|".join(library.functions())
    for name, f in bodies[0].items():  # whatever black makes of longer names
        same = re.sub(rf"\blib\.(?=({names})\b)", "_", "\n".join(map(ast.unparse, f.body)))
        assert same == "\n".join(map(ast.unparse, bodies[1][name].body)), name
    assert all(name.startswith("_") for name in bodies[1].keys() - bodies[0].keys())


def test_autotune_is_a_build_of_its_own(project):
    both = ["--autotune", "--standalone"]
    for options in (both[:1], both):
        assert run("build", "specs/relu.op", *options).exit_code == 0
        assert "@triton.autotune(" in Path("generated/relu.py").read_text()
        assert run("build", "specs/relu.op", "--check", *options).exit_code == 0
        assert run("build", "specs/relu.op", "--check").exit_code == 1
    stale = run("build", "specs/relu.op", "--check", "--autotune")
    assert stale.exit_code == 1
    assert "run `tritongen build specs/relu.op -o generated --autotune`" in stale.stderr


@pytest.mark.parametrize(
    "args, message",
    [
        (["build"], "Missing argument"),
        (["build", "specs/none.op"], "specs/none.op"),
        (["build", "specs"], "a spec is named like"),
        (["build", "specs/relu.txt"], "a spec is named like"),
        (["build", "specs/relu.op", "specs/../specs/relu.op"], "two of the specs"),
        (["show", "specs/relu.op", "--stage", "llvm"], "llvm"),
        (["show", "specs/relu.op", "--stage", "ptx", "--target", "z80"], "unknown target"),
        (["show", "specs/relu.op", "--stage", "ptx", "--size", "D"], "NAME=N"),
        (["show", "specs/relu.op", "--stage", "ptx", "--size", f"D={10**20}"], "NAME=N"),
        (["show", "specs/relu.op", "--stage", "ptx", "--size", "D=3"], "relu has no size D"),
    ],
)
def test_bad_usage_is_exit_code_2(project, args, message):
    result = run(*args)
    assert result.exit_code == 2 and message in result.stderr
    assert not Path("generated").exists()


@pytest.mark.parametrize("spoil", ["by hand", "symlink", "folder symlink", "folder is a file"])
def test_what_is_not_ours_is_not_overwritten(project, spoil):
    precious = project / "precious.py"
    precious.write_text("print('mine')\n")
    out = project / "generated"
    if spoil == "by hand":
        out.mkdir()
        (out / "relu.py").write_text('"""Mine.\n"""\n# Generated by tritongen? No.\n')
    elif spoil == "symlink":
        out.mkdir()
        (out / "relu.py").symlink_to(precious)
    elif spoil == "folder symlink":
        (project / "elsewhere").mkdir()
        out.symlink_to(project / "elsewhere")
    else:
        out.write_text("")
    before = {p: p.read_bytes() for p in project.rglob("*") if p.is_file()}
    result = run("build", "specs/relu.op")
    assert result.exit_code == 2 and "generated" in result.stderr
    assert {p: p.read_bytes() for p in project.rglob("*") if p.is_file()} == before


def test_a_name_that_is_no_module(project):
    for name in ("Relu", "_relu", "re-lu", "1relu", "relu.py"):
        path = project / "specs" / f"{name}.op"
        path.write_text(RELU)
        result = run("build", str(path))
        assert result.exit_code == 2 and "a spec is named like" in result.stderr


def test_a_folder_name_never_becomes_code(project):
    folder = project / 'x"""\nimport os  # '
    folder.mkdir()
    (folder / "relu.op").write_text(RELU)
    assert run("build", str(folder / "relu.op")).exit_code == 0
    assert "import os" not in Path("generated/relu.py").read_text()


@pytest.mark.parametrize(
    "stage, shown",
    [("ast", "OpDef("), ("ir", "op relu<T: float>"), ("plan", "pointwise"), ("source", "tl.load")],
)
def test_show(project, stage, shown):
    result = run("show", "specs/relu.op", "--stage", stage)
    assert result.exit_code == 0 and shown in result.output


def test_show_the_kernels_of_an_op_that_is_fused(project):
    (project / "specs" / "loss.op").write_text(LOSS)
    result = run("show", "specs/loss.op", "--stage", "kernel")
    assert result.exit_code == 0 and "loop v:" in result.output
    result = run("show", "specs/relu.op", "--stage", "kernel")
    assert result.exit_code == 2 and "no kernel here" in result.output


def test_show_ptx_without_a_gpu(project):
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tritongen", "show", "specs/relu.op", "--stage", "ptx"]
    result = subprocess.run(
        [*command, "--target", "sm_80"], capture_output=True, text=True, env=env
    )
    assert ".target sm_80" in result.stdout, result.stderr


def test_build_is_quick_and_imports_neither_torch_nor_triton(project):
    """Of modules whose bytecode stands, as after any first run: where Python is told to write none, it compiles them all.

    About 0.8 s, 40 times what Python takes to parse a module of 2,600 lines: a measure of the machine.
    """
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(project / "bytecode")
    subprocess.run([sys.executable, "-c", "import tritongen.pipeline, black"], check=True, env=env)
    script = (
        "import argparse, ast, pathlib, sys, time\n"
        "from tritongen.cli import main\n"
        "main(['build', 'specs/relu.op'], standalone_mode=False)\n"
        "main(['show', 'specs/relu.op', '--stage', 'plan'], standalone_mode=False)\n"
        "assert not {'torch', 'triton', 'rich', 'numpy'} & set(sys.modules), sys.modules.keys()\n"
        "spent, parsing = time.process_time(), []\n"
        "text = pathlib.Path(argparse.__file__).read_text()\n"
        "for _ in range(5):\n"
        "    ast.parse(text)\n"
        "    parsing.append(time.process_time() - spent - sum(parsing))\n"
        "assert spent < 60 * min(parsing), (spent, parsing)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env=env)


def test_build_keeps_an_edit(tmp_path):
    """A file that was edited since we wrote it is left alone, unless the edit may go."""
    (tmp_path / "relu.op").write_text("op relu(x: f32[N]) -> y: f32[N] { y[n] = max(x[n], 0) }\n")
    command = ["build", str(tmp_path / "relu.op"), "-o", str(tmp_path)]
    assert CliRunner().invoke(main, command).exit_code == 0
    module = tmp_path / "relu.py"
    written = module.read_text()
    module.write_text(written + "# mine\n")
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 2 and "edited since tritongen wrote it" in refused.output
    assert module.read_text().endswith("# mine\n")
    assert CliRunner().invoke(main, [*command, "--overwrite"]).exit_code == 0
    assert module.read_text() == written


def test_what_runs_needs_no_black(tmp_path):
    """Black is asked for when a file is written, and missed with a message; `.source` goes without."""
    (tmp_path / "black.py").write_text("raise ImportError('none here')\n")
    program = (
        "import torch, tritongen; f = tritongen.compile_op('op f<T: float>(x: T[...]) -> y: T[...] { y = x ** 2 }');"
        "print(f(torch.ones(2)).sum().item(), 'def f_' in f.source)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    run = functools.partial(subprocess.run, env=env, capture_output=True, text=True)
    done = run([sys.executable, "-c", program])
    assert done.stdout.split() == ["2.0", "True"], done.stderr[-1000:]
    out = ["build", "specs/attention.op", "-o", str(tmp_path / "out")]
    done = run([sys.executable, "-m", "tritongen", *out], cwd=ROOT)
    assert done.returncode == 2 and "pip install 'tritongen[build]'" in done.stderr


def test_show_html_marks_the_same_lines(tmp_path):
    """Each line of the spec is found in each column."""
    page = tmp_path / "page.html"
    command = ["show", str(ROOT / "specs" / "softmax.op"), "--html", str(page), "--size", "D=1024"]
    assert CliRunner().invoke(main, command).exit_code == 0
    columns = page.read_text().split("<section>")[1:]
    assert [c.partition("</h2>")[0] for c in columns] == [
        "<h2>Spec",
        "<h2>IR",
        "<h2>Kernels",
        "<h2>PTX, sm_90",
    ]
    for column in columns:
        assert set(re.findall(r'data-n="(\d+)"', column)) == {"0", "1", "2"}
    assert "http" not in page.read_text()

"""What comes from outside is text in a generated module, whatever it holds; and nothing runs there that no template prints."""

from __future__ import annotations

import ast
import os

import pytest

from tritongen import pipeline
from tritongen.emit import allow
from tritongen.emit.quoted import in_docstring, quoted

EVIL = (
    'a", **{str(torch.os.system("id > PWN")): 1}, x="',
    "a', **{str(torch.os.system('id > PWN')): 1}, x='",
    'a"""\nimport os\nos.system("id > PWN")\n"""',
    '"""',
    '""""',
    "'''\"",
    "ends in a backslash\\",
    "\\\"\\'",
    "\\x \\N \\u \\N{DASH} \\777",
    "{torch.os} {{x}} %s {0.__class__}",
    "cr\rlf\nff\x0cfs\x1cnel\x85ls\u2028ps\u2029esc\x1b[2J",
    "\u202eright to left\u202c \N{PILE OF POO} \xa0",
    os.fsdecode(b"\xff\xfe"),  # a file name that is no UTF-8
)
SPEC = """op f<T: float>(x: T[N, D]) -> y: T[N, D] { y[n, d] = x[n, d] - max[k](x[n, k]) }
op g(x: i32[...]) -> y: i32[...] { y = x + 1 }  # a comment '''"""


@pytest.mark.parametrize("text", EVIL)
def test_text_is_one_string(text):
    assert ast.literal_eval(quoted(text)) == text
    (line,) = ast.parse(f'"""{in_docstring(text)}\n"""').body
    assert isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
    assert all(c.isprintable() or c == "\n" for c in quoted(text) + in_docstring(text))


def shape_of(source: str) -> str:
    """The module but for its strings, which are told apart by nothing."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.dump(tree)


@pytest.mark.parametrize("standalone", [False, True])
def test_a_path_is_no_code(standalone):
    plain = shape_of(pipeline.build(SPEC, "a/plain.op", standalone).raw)
    for text in EVIL:
        for name in (f"{text}/plain.op", f"{text}.op"):
            built = pipeline.build(SPEC, name, standalone)
            assert shape_of(built.raw) == plain, name
            assert built.name.isidentifier() and len(built.name) <= 64
            built.raw.encode()
            if not standalone:
                assert quoted(name) in built.raw


@pytest.mark.parametrize(
    "text", [t for t in EVIL if '"' not in t and t.isascii() and t.isprintable()]
)
def test_a_doc_is_no_code(text):
    def spec(doc: str) -> str:
        return f'op f(x: f32[N]) -> y: f32[N] {{ y[n] = x[n] + 1 doc "{doc}" }}'

    built = pipeline.build(spec(text))
    assert shape_of(built.raw) == shape_of(pipeline.build(spec("plain")).raw)
    (f,) = (n for n in ast.parse(built.source).body if getattr(n, "name", "") == "f")
    assert (ast.get_docstring(f) or "").startswith(text)  # as the spec has it


RUNS = 'torch.os.system("id")'


@pytest.mark.parametrize(
    "text",
    [
        f"def f(x):\n    return {RUNS}",
        f"@runtime.op({RUNS})\ndef f(x):\n    return x",
        f"@{RUNS}\ndef f(x):\n    return x",
        f"def f(x={RUNS}):\n    return x",
        f"def f(*, x={RUNS}):\n    return x",
        f"def f(x: {RUNS}):\n    return x",
        f"def f(x) -> {RUNS}:\n    return x",
        "def f(x):\n    return f'{torch.os.system(x)}'",
        "def f(x):\n    return f'{x:{torch.os.system(x)}}'",
        "def f(x):\n    return [torch.load(x) for x in x if x]",
        "def f(x):\n    y = [torch for torch in x]\n    return torch.load(x)",  # the module, still
        "@torch.load\ndef f(torch):\n    return torch",
        "def f(x):\n    def g(torch):\n        return torch\n    return torch.load(x)",
        "def f(x):\n    y = eval\n    return x",
        "def f(x):\n    return [eval for eval in [eval]]",
        "def f(x=eval):\n    return x",
        "def f(x):\n    return (torch.nn.functional.torch,)[0].load(x)",
        "def f(x):\n    return torch.nn.functional.torch.load(x)",
        "def f(x):\n    return torch.hub.load(x)",
        "def f(x):\n    return lib.os",
        "def f(x):\n    return tl.core",
        "def f(x):\n    return math.os",
        "def f(x):\n    return x.__class__",
        "def f(x):\n    return x.numpy()",
        "def f(x):\n    return '{0.a}'.format(x)",
        "def f(x):\n    return getattr(x, 'a')",
        "def f(x):\n    return __builtins__",
        "def f(x):\n    match x:\n        case 1:\n            pass",
        "async def f(x):\n    return x",
        "def f(x):\n    return {a for a in x}",
        "def f(x):\n    return lambda: x",
        "def f(x):\n    import os",
        "x = 1",
    ],
)
def test_what_no_template_prints_is_refused(text):
    with pytest.raises(allow.NotAllowed):
        allow.walk(text)


def test_the_functions_of_templates_are_allowed():
    allow.walk("def f(x):\n    return torch.nn.functional.gelu(torch.exp(x)).to(torch.float16)")
    with pytest.raises(allow.NotAllowed):
        allow.walk(
            "def f(x):\n    return torch.nn.functional.gelu(torch.load(x)).to(torch.float16)"
        )


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("def f(torch):", "    return torch.to(tl.float32)"),  # a line of a spec, in a kernel
        ("def f(x):\n    lib = x", "    return lib.shape"),
        ("def f(eval, id):", "    return eval + id"),
    ],
)
def test_a_name_of_a_spec_may_be_any(head, body):
    allow.walk(f"{head}\n{body}")
    with pytest.raises(allow.NotAllowed):  # where it is no name of a spec
        allow.walk(f"def f(x):\n{body}")

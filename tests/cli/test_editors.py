"""`tritongen fmt` and `tritongen lsp`, as editors run them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tritongen.cli import main
from tritongen.syntax.highlight import tokens
from tritongen.syntax.layout import laid_out

ROOT = Path(__file__).parents[2]
SPECS = [*sorted((ROOT / "specs").glob("*.op")), *sorted((ROOT / "grammar").glob("*.op"))]
PAGES = (ROOT / "docs" / "language.md", ROOT / "docs" / "cookbook.md")
SHOWN = [b for p in PAGES for b in re.findall(r"^```op\n(.*?)^```", p.read_text(), re.M | re.S)]
CROOKED = """# head
op   f<T:float|int>( x:T[N,2*K],const s:int=-1 )->y:T[N]
with K>0 , N==K{


h[n]=sum[k<K](  -x[n,k]*(1-x[n , 2*k])  )
    +1
# a note
   y[n]=where(h[n]<0 and not h[n]>2,-h[n],x[n,0]else 0)   # why

}
fn g(x,a=-1)=x**a"""
STRAIGHT = """# head
op f<T: float | int>(x: T[N, 2 * K], const s: int = -1) -> y: T[N]
    with K > 0, N == K {
  h[n] = sum[k < K](-x[n, k] * (1 - x[n, 2 * k]))
      + 1
  # a note
  y[n] = where(h[n] < 0 and not h[n] > 2, -h[n], x[n, 0] else 0)   # why
}
fn g(x, a = -1) = x ** a
"""


def words(text: str) -> list[str]:
    return [t.text.rstrip() for t in tokens(text) if t.kind != "space"]


def test_layout():
    assert laid_out(CROOKED) == STRAIGHT
    assert laid_out("y = $") == "y = $"


@pytest.mark.parametrize("text", [CROOKED, *SHOWN, *(p.read_text() for p in SPECS)])
def test_a_second_pass_changes_nothing(text):
    once = laid_out(text)
    assert laid_out(once) == once and words(once) == words(text)


def test_our_specs_are_laid_out():
    done = CliRunner().invoke(main, ["fmt", "--check", *map(str, SPECS)])
    assert done.exit_code == 0, done.output


def test_fmt_writes(tmp_path):
    spec = tmp_path / "f.op"
    spec.write_text("op f(x:f32[N])->y:f32[N]{ y[n]=x[n] }")
    assert CliRunner().invoke(main, ["fmt", "--check", str(spec)]).exit_code == 1
    assert CliRunner().invoke(main, ["fmt", str(spec)]).exit_code == 0
    assert spec.read_text() == "op f(x: f32[N]) -> y: f32[N] { y[n] = x[n] }\n"
    spec.write_text("op f(")
    assert CliRunner().invoke(main, ["fmt", str(spec)]).exit_code == 2


# ---- the language server ------------------------------------------------------------------------
class Client:
    """Speaks to `tritongen lsp` as an editor does."""

    def __init__(self):
        command = [sys.executable, "-m", "tritongen", "lsp"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        self.asked = 0

    def send(self, method: str, params, **more) -> None:
        body = json.dumps(dict(jsonrpc="2.0", method=method, params=params, **more)).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def read(self) -> dict:
        length = 0
        while (line := self.process.stdout.readline().strip()) or not length:
            if line.lower().startswith(b"content-length"):
                length = int(line.split(b":")[1])
            elif self.process.poll() is not None:
                raise AssertionError("the server has ended")
        return json.loads(self.process.stdout.read(length))

    def ask(self, method: str, params):
        self.asked += 1
        self.send(method, params, id=self.asked)
        while (found := self.read()).get("id") != self.asked:
            pass
        return found["result"]

    def told(self, method: str):
        while (found := self.read()).get("method") != method:
            pass
        return found["params"]


def test_lsp():
    client = Client()
    try:
        able = client.ask("initialize", dict(processId=None, rootUri=None, capabilities={}))
        assert {"hoverProvider", "definitionProvider"} <= able["capabilities"].keys()
        client.send("initialized", {})
        text = "op f(x: f32[M, K]) -> y: f32[M] {\n  y[m]=x[m, k]\n}\n"
        document = dict(uri="file:///f.op", languageId="op", version=1, text=text)
        client.send("textDocument/didOpen", dict(textDocument=document))
        (found,) = client.told("textDocument/publishDiagnostics")["diagnostics"]
        assert found["code"] == "E202" and found["range"]["start"] == dict(line=1, character=12)
        at = dict(textDocument=dict(uri=document["uri"]), position=dict(line=1, character=7))
        place = client.ask("textDocument/definition", at)
        assert place["range"]["start"] == dict(line=0, character=5)
        options = dict(options=dict(tabSize=2, insertSpaces=True))
        (edit,) = client.ask("textDocument/formatting", at | options)
        assert "  y[m] = x[m, k]\n" in edit["newText"]
        asked = dict(range=found["range"], context=dict(diagnostics=[]))
        (action,) = client.ask("textDocument/codeAction", at | asked)
        (change,) = action["edit"]["changes"][document["uri"]]
        assert change["newText"] == "y[m] = sum[k](x[m, k])"
    finally:
        client.process.kill()

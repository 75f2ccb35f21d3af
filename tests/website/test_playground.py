"""The playground: `explain` over its stand-ins for torch and Triton, and the page itself in a headless browser."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from tritongen import explain, pipeline, trace
from tritongen.runtime.load import load_text
from tritongen.shapes import call_of, meta_arguments, parse_shapes, shape_text

ROOT = Path(__file__).resolve().parents[2]
PLAYGROUND = ROOT / "website" / "playground"
# One spec of each kind of kernel that has host code of its own.
CALLS = {
    "softmax": "batch=8192,D=4096",
    "attention": "B=2,H=8,S=512,L=512,E=64",
    "matmul": "M=1024,N=1000,K=512",
    "conv2d": "N=8,C=64,F=128,H=56,W=56,R=3,S=3,pad=1",
    "cumsum": "batch=64,D=65536",
    "max_pool2d": "N=8,C=64,H=112,W=112",
    "moe_linear": "N=4096,E=8,K=512,M=512",
    "add2d": "M=1024,N=1024",
}
READY, ANSWERED = 10_000, 300  # milliseconds, on a machine that is idle
IDLE = 0.6  # seconds that a loop of 10 million turns takes there


def slowness() -> float:
    """How many times as long as an idle machine this one takes just now."""
    begun = time.perf_counter()
    for _ in range(10_000_000):
        pass
    return max(1.0, (time.perf_counter() - begun) / IDLE)


def by_torch(name: str) -> str:
    built = pipeline.build(
        (ROOT / "specs" / f"{name}.op").read_text(), "playground.op", gradients=True
    )
    plans, forward = built.plans[name], built.forwards.get(name)
    (numbers,) = parse_shapes([CALLS[name]])
    op, case = call_of([p.op for p in plans], numbers, None)
    plan = next(p for p in plans if p.op is op)
    found = explain.explain_call(
        load_text(built.name, built.raw),
        plan,
        meta_arguments(op, case),
        trace.H200,
        call=shape_text(op, case),
        forward=forward,
    )
    return explain.text(found)


@pytest.fixture(scope="module")
def without_torch() -> dict[str, str]:
    """What the playground prints, in a process whose torch and Triton are the stand-ins."""
    program = (
        "import json, sys; from session import show; specs = json.load(sys.stdin);"
        "print(json.dumps({n: json.loads(show(t, 'explain', s)) for n, (t, s) in specs.items()}))"
    )
    specs = {n: ((ROOT / "specs" / f"{n}.op").read_text(), sizes) for n, sizes in CALLS.items()}
    path = os.pathsep.join(map(str, (PLAYGROUND / "stubs", PLAYGROUND, ROOT)))
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(specs),
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture
def new_switch():
    """torch's switch for products of f32 as a new process has it, whatever another test left."""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "none"
    yield
    matmul.fp32_precision = before


@pytest.mark.parametrize("name", CALLS)
def test_explain_needs_no_torch(without_torch, new_switch, name):
    assert without_torch[name].get("text") == by_torch(name), without_torch[name]


# ---- in a browser -------------------------------------------------------------------------------
class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        """Nothing: each file is a line of its own."""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The playground, bundled and served on this machine."""
    pytest.importorskip("selenium", reason="no selenium: `make browser` installs it")
    for program in ("chromium", "chromedriver", "node"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program}: `make browser` installs it")
    if not (PLAYGROUND / "node_modules").is_dir():
        pytest.skip("no website/playground/node_modules: `make browser` installs them")
    folder = tmp_path_factory.mktemp("playground")
    command = [sys.executable, str(PLAYGROUND / "bundle.py"), str(folder)]
    subprocess.run(command, check=True)
    handler = functools.partial(Quiet, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/index.html"
    server.shutdown()


@pytest.fixture
def page(address):
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.binary_location = shutil.which("chromium")
    browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    yield Page(browser, address)
    browser.quit()


class Page:
    """What a test does with the page; `noted` is what the page notes about itself on its body."""

    def __init__(self, browser, address):
        self.browser = browser
        browser.get(address)

    def noted(self, name: str, wanted=None, seconds: float = 60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.browser.execute_script(f"return document.body.dataset.{name}")
            if found and (wanted is None or found == wanted):
                return found
            time.sleep(0.02)
        raise AssertionError(f"{name} is {found!r}, not {wanted!r}, after {seconds} s")

    def type(self, *keys: str) -> int:
        """Milliseconds until the last key was answered."""
        self.browser.execute_script("document.body.dataset.answered = ''")
        self.find("#editor .cm-content").send_keys(*keys)
        return int(self.noted("answered"))

    def open(self, tab: str) -> str:
        self.browser.execute_script("document.body.dataset.shown = ''")
        self.click(f"[data-tab={tab}]")
        self.noted("shown", tab)
        return self.text("#output .cm-content")

    def find(self, selector: str):
        return self.browser.find_element("css selector", selector)

    def says(self, selector: str, wanted: str, seconds: float = 10):
        end = time.monotonic() + seconds
        while wanted not in self.text(selector) and time.monotonic() < end:
            time.sleep(0.02)
        assert wanted in self.text(selector)

    # In one step each: the page may replace an element between finding and using it.
    def text(self, selector: str) -> str:
        return self.browser.execute_script(
            f"return document.querySelector('{selector}')?.innerText ?? ''"
        )

    def click(self, selector: str) -> None:
        self.browser.execute_script(f"document.querySelector('{selector}').click()")


@pytest.mark.slow
def test_a_spec_is_typed_mended_and_read(page):
    from selenium.webdriver.common.keys import Keys

    ready = int(page.noted("ready"))
    page.noted("shown", "kernel")
    page.find("#editor .cm-content").send_keys(Keys.CONTROL + "a")
    page.type("op linear<T: float>(x: T[M, K], w: T[N, K]) -> y: T[M, N] {\n")
    page.type("y[m, n] = x[m, k] * w[n, k]\n")
    page.noted("errors", "1")
    page.says(".finding", "index k is not bound")
    page.click(".finding button")
    page.noted("errors", "0")
    answered = page.type(" ")
    page.noted("shown", "kernel")
    page.says("#output .cm-content", "def linear_")
    assert "op linear_backward" in page.open("gradient")
    assert "def linear_backward_" in page.open("backward")
    assert "1 step, 1 kernel" in page.open("explain")
    slow = slowness()
    assert ready <= READY * slow, f"ready after {ready} ms on a machine {slow:.1f} times as slow"
    assert answered <= ANSWERED * slow, f"a key took {answered} ms, {slow:.1f} times as slow"


@pytest.mark.slow
def test_a_link_holds_the_spec(page, address):
    page.noted("shown")
    page.type("# by hand\n")
    page.click("#share")
    end = time.monotonic() + 5
    while "#spec=" not in page.browser.current_url and time.monotonic() < end:
        time.sleep(0.05)
    link = page.browser.current_url
    page.browser.get("about:blank")
    page.browser.get(link)
    page.noted("ready")
    page.says("#editor .cm-content", "# by hand")

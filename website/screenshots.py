"""Screenshots of the site at two widths, in a headless Chromium: `python -m website.screenshots [FOLDER]` after `make site`.

Writes `docs/screenshots`: the start page, a page of the gallery, and the playground with an error and with a gradient.
"""

from __future__ import annotations

import functools
import io
import shutil
import sys
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from website.hooks import link
from website.output import DOCS, ROOT

SITE = ROOT / "build" / "site"
WIDTHS = {"": (1280, 900), "_narrow": (420, 900)}
ERROR = "op linear<T: float>(x: T[M, K], w: T[N, K]) -> y: T[M, N] {\n  y[m, n] = x[m, k] * w[n, k]\n}\n"
SECONDS = 120  # a page may take so long


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        """Nothing."""


def playground(text: str) -> str:
    """The address of the playground with a spec in it."""
    return "play/" + link(text).partition("/play/")[2].partition(")")[0]


def browser(width: int, height: int) -> Any:
    options = webdriver.ChromeOptions()
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--hide-scrollbars",
    ):
        options.add_argument(argument)
    found = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    found.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    return found


def wait(page: Any, condition: str) -> None:
    end = time.monotonic() + SECONDS
    while not page.execute_script(f"return {condition}"):
        if time.monotonic() > end:
            raise TimeoutError(condition)
        time.sleep(0.1)


def shoot(page: Any, file: Path) -> None:
    """192 colours keep the file small."""
    time.sleep(1)  # for what moves
    image = Image.open(io.BytesIO(page.get_screenshot_as_png())).convert("RGB")
    image.quantize(192, dither=Image.Dither.NONE).save(file, optimize=True)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    site = f"http://127.0.0.1:{server.server_port}/"
    attention = (ROOT / "specs" / "attention.op").read_text(encoding="utf-8")
    for ending, size in WIDTHS.items():
        page = browser(*size)
        for name, path in {"start": "", "gallery": "gallery/softmax/"}.items():
            page.get(site + path)
            shoot(page, folder / f"{name}{ending}.png")
        page.get(site + playground(ERROR))
        wait(
            page, "document.body.dataset.errors === '1' && document.body.dataset.shown === 'kernel'"
        )
        shoot(page, folder / f"playground_error{ending}.png")
        page.get("about:blank")
        page.get(site + playground(attention))
        wait(page, "document.body.dataset.shown === 'kernel'")
        page.find_element("css selector", "[data-tab=gradient]").click()
        wait(page, "document.body.dataset.shown === 'gradient'")
        shoot(page, folder / f"playground_gradient{ending}.png")
        page.quit()
    server.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "screenshots")

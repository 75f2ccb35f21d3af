"""What MkDocs does beside rendering Markdown: the gallery, and the compiler's output in pages.

A line `{{ word arguments }}` of a page becomes what one of WORDS makes of it, each of which runs the compiler:

    {{ spec specs/softmax.op }}              the text of a spec, with a link into the playground
    {{ kernel specs/softmax.op rows }}       the kernels of its module whose names end so; all, without a name
    {{ gradient specs/softmax.op }}          its derived gradient, in the language
    {{ stage specs/softmax.op plan }}        one stage, as `tritongen show` prints it
    {{ explain specs/softmax.op batch=8192,D=4096 }}
    {{ python tutorials/softmax.py }}        a file beside the pages, which the tests run

An `op` block of the cookbook gets its kernels, folded. Nothing here is fetched, and nothing is committed.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Callable
from typing import Any

from mkdocs.structure.files import File
from pygments.lexers._mapping import LEXERS

from website import gallery, notebooks
from website.output import DOCS, ROOT, explain, fenced, folded, gradient, kernels, stage

LEXERS["OpLexer"] = ("tritongen.syntax.pygments_lexer", "tritongen", ("op",), ("*.op",), ())
MARK = re.compile(r"^\{\{ (\w+) (.*?) \}\}$", re.M)
FENCE_WITH_CODE = re.compile(
    r"^```(\w+) [EW]\d+$", re.M
)  # "```op E202": tests read the code, Markdown does not
SPEC_BLOCK = re.compile(r"^```op\n(.*?)^```\n", re.M | re.S)

# Files beside docs/, and what they are on the site.
FROM_ROOT = {name: name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")}
FROM_ROOT["README.md"] = "index.md"
WIDE = "---\nhide: [navigation]\n---\n\n"  # a page without others beside it
BUTTONS = (
    "[Open the playground](/play/index.html){ .md-button .md-button--primary }\n"
    "[Tutorials](tutorials/index.md){ .md-button }\n"
    "[Gallery](gallery/index.md){ .md-button }"
)


def on_config(config: Any) -> Any:
    """The navigation without the pages that are not there."""
    config.nav = [entry for entry in map(_there, config.nav) if entry]
    return config


def _there(entry: Any) -> Any:
    if isinstance(entry, str):
        return entry if _exists(entry) else None
    ((title, inside),) = entry.items()
    if inside == "gallery/":
        return {title: gallery.pages()}
    if isinstance(inside, str):
        return {title: inside} if _exists(inside) else None
    found = [e for e in map(_there, inside) if e]
    return {title: found} if found else None


def _exists(page: str) -> bool:
    made = page in FROM_ROOT.values() or page.startswith("notebooks/")
    return made or (DOCS / page).is_file()


def on_files(files: Any, config: Any) -> Any:
    """The pages that the build writes."""
    for name, page in FROM_ROOT.items():
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        wide = WIDE if page == "index.md" else ""
        files.append(File.generated(config, page, content=wide + text))
    shown = {f"notebooks/{name}.md": notebooks.as_markdown(name) for name in notebooks.NOTEBOOKS}
    for name, text in {**gallery.written(), **shown}.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(text: str, page: Any, **_: Any) -> str:
    if page.file.src_uri == "index.md":
        text = text.replace("```\nop ", "```op\nop ", 1).replace("\n\n", f"\n\n{BUTTONS}\n\n", 1)
    text = FENCE_WITH_CODE.sub(r"```\1", text)
    text = MARK.sub(lambda found: WORDS[found[1]](*found[2].split()), text)
    if page.file.src_uri == "cookbook.md":
        text = SPEC_BLOCK.sub(lambda found: recipe(found[1]), text)
    return text


def recipe(text: str) -> str:
    """A spec of the cookbook with its kernels."""
    return f"{fenced('op', text)}\n{link(text)}\n\n{folded('Kernels', kernels(text))}\n"


def spec(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    return f"{fenced('op', text)}\n{link(text)}\n"


def link(text: str) -> str:
    """To the playground, with the spec in the address."""
    packer = zlib.compressobj(9, wbits=-15)
    packed = packer.compress(text.encode()) + packer.flush()
    code = base64.urlsafe_b64encode(packed).decode().rstrip("=")
    return f"[Open in the playground](/play/index.html#spec={code}){{ .open }}"


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Links to the playground, relative to the page: the site may lie anywhere."""
    up = "../" * page.url.count("/")
    return output.replace('href="/play/', f'href="{up}play/')


def python(path: str) -> str:
    return fenced("python", (DOCS / path).read_text(encoding="utf-8"))


def of_file(show: Callable[..., str]) -> Callable[..., str]:
    return lambda path, *rest: show((ROOT / path).read_text(encoding="utf-8"), *rest)


WORDS: dict[str, Callable[..., str]] = {
    "spec": spec,
    "python": python,
    "kernel": of_file(lambda text, *name: fenced("python", kernels(text, *name))),
    "gradient": of_file(lambda text: fenced("op", gradient(text))),
    "stage": of_file(lambda text, name: fenced("text", stage(text, name))),
    "explain": of_file(lambda text, shape: fenced("text", explain(text, shape))),
}

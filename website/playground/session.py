"""What the playground's page asks of the compiler, as JSON: runs in the browser, inside Pyodide.

    check(text)                 # the findings, with character offsets
    hover(text, 40)             # what the word there is, as Markdown
    show(text, "kernel", "")    # one tab; `sizes` are what one types for `explain`

`worker.js` calls it. Every function answers, whatever the text: a fault of the compiler is a message too.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from explaining import example_sizes, explained

from tritongen import editor, pipeline
from tritongen.errors import SpecError
from tritongen.faults import CompilerFault
from tritongen.shapes import BadShape
from tritongen.show import CannotShow, gradient_text, kernels, stage_text

NAME = "playground.op"
LANGUAGES = {
    **dict.fromkeys(("kernel", "source", "backward"), "python"),
    **dict.fromkeys(("ir", "gradient"), "op"),
}
WARM = """op warm<T: float>(x: T[N, K], w: T[M, K]) -> (y: T[N, M], m: T[N]) {
  y[n, j] = sum[k](x[n, k] * w[j, k])
  m[n] = max[k](exp(x[n, k]))
}"""


def check(text: str) -> str:
    """Everything that is wrong with a text."""
    try:
        found = editor.findings(text, NAME)
    except CompilerFault as error:
        return json.dumps([dict(start=0, end=1, severity="error", code="", message=str(error))])
    return json.dumps(
        [
            dict(
                start=d.span.start if d.span else 0,
                end=d.span.end if d.span else 1,
                severity=d.severity,
                code=d.code,
                message=d.message + (f": {d.label}" if d.label else ""),
                help=d.advice,
                fix=d.fix and dict(start=d.fix.span.start, end=d.fix.span.end, text=d.fix.text),
            )
            for d in found
        ]
    )


def show(text: str, tab: str, sizes: str) -> str:
    """The text of one tab; `language` is how to colour it."""
    language = LANGUAGES.get(tab, "text")
    try:
        shown = TABS[tab](text, sizes)
    except SpecError as error:
        if tab in ("gradient", "backward") and not any(
            d.severity == "error" for d in editor.findings(text, NAME)
        ):
            return json.dumps(dict(problem=str(error)))
        return json.dumps(dict(problem="Correct the marked lines to see this."))
    except CannotShow as error:
        return json.dumps(dict(problem=str(error)))
    except Exception as error:  # the page goes on, whatever one text does
        return json.dumps(dict(problem=f"{type(error).__name__}: {error}"))
    return json.dumps(dict(text=shown, language=language))


def hover(text: str, offset: int) -> str:
    try:
        return editor.hover(text, offset, NAME)
    except CompilerFault:  # `check` has said so
        return ""


def warm() -> None:
    """Everything once, before the memory is kept: what is imported late, and caches."""
    for tab in TABS:
        if "problem" in (found := json.loads(show(WARM, tab, "N=64,M=64,K=64"))):
            raise RuntimeError(f"{tab}: {found['problem']}")
    for wrong in ("op x(", WARM.replace("w[j, k]", "w[j, q]")):
        check(wrong)
    check(WARM)
    hover(WARM, WARM.index("exp"))


def _kernels(source: str) -> str:
    """The kernels of a generated module alone."""
    return "\n\n\n".join(text for _, _, text in kernels(source))


def _kernel(text: str, sizes: str) -> str:
    return _kernels(pipeline.build(text, NAME).source)


def _backward(text: str, sizes: str) -> str:
    return _kernels(pipeline.build(gradient_text(text, NAME), "gradient.op").source)


def _explain(text: str, sizes: str) -> str:
    try:
        return explained(text, sizes)
    except (BadShape, ValueError) as error:
        raise CannotShow(str(error)) from None


def example(text: str) -> str:
    """Sizes of a call, to begin with."""
    try:
        return example_sizes(text)
    except Exception:  # of a text that is wrong there is no call
        return ""


TABS: dict[str, Callable[[str, str], str]] = {
    "ir": lambda text, sizes: stage_text(text, NAME, "ir"),
    "plan": lambda text, sizes: stage_text(text, NAME, "plan"),
    "kernel": _kernel,
    "source": lambda text, sizes: pipeline.build(text, NAME, gradients=True).source,
    "gradient": lambda text, sizes: gradient_text(text, NAME),
    "backward": _backward,
    "explain": _explain,
}

"""A line of an op as a comment, in the language: what stands above the code that computes it, in torch and in Triton.

    # y[n, d] = x[n, d] * w[d] / sqrt(mean[k](x[n, k] ** 2) + 1e-06)

Not here: which statements a line stands above (`nests.py`, `emit/comments.py`).
"""

from __future__ import annotations

import re
import textwrap

GLUE = "\0"  # a space at which no line ends
LONG = 40  # of coordinates that need not stand on one line


def commented(text: str, width: int) -> list[str]:
    """The text as comment lines. It never becomes code: every line break, in any script, is replaced by a space."""
    plain = " ".join(text.replace(GLUE, " ").split())
    lines = textwrap.wrap(
        re.sub(r"\[[^][]*\]", lambda found: _glued(found[0]), plain),
        width,
        initial_indent="# ",
        subsequent_indent="#     ",
        break_on_hyphens=False,
    )
    return [line.replace(GLUE, " ") for line in lines]


def _glued(coordinates: str) -> str:
    """`[n, p * stride + r]` is broken behind a comma if at all."""
    return re.sub("(?<!,) " if len(coordinates) > LONG else " ", GLUE, coordinates)

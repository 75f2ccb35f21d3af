"""The notebooks of the site, written and run: `python website/notebooks.py` (needs nbformat, nbclient and ipykernel).

Their cells stand here, so that a change of the compiler is a new run and no edit by hand. A test runs the cells.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "notebooks"
SETUP = "import torch\nimport tritongen\n\n%load_ext tritongen\ntorch.manual_seed(0);"
NOTEBOOKS: dict[str, list[str]] = {
    "first_op": [
        "# A first op\n\nA cell that begins with `%%op` holds a spec. Its ops become variables.",
        SETUP,
        "%%op\nop row_softmax<T: float>(x: T[N, D]) -> y: T[N, D] {\n"
        "  m[n]    = max[d](x[n, d])\n"
        "  e[n, d] = exp(x[n, d] - m[n])\n"
        "  y[n, d] = e[n, d] / sum[k](e[n, k])\n}",
        "Call it like a function. On CPU tensors it computes its body in torch.",
        "x = torch.randn(2, 5)\nrow_softmax(x) - torch.softmax(x, 1)",
        "`explain` says what a call would run on a GPU.",
        "print(row_softmax.explain(torch.randn(4, 1024)))",
        "A mistake is shown under its cell, with a correction where there is one.",
        "%%op\nop wrong<T: float>(a: T[M, K], b: T[K, N]) -> y: T[M, N] {\n  y[m, n] = a[m, k] * b[k, n]\n}",
        "For one expression you need no cell.",
        'f = tritongen.compile_expr("max(x, 0) * scale")\nf(torch.tensor([-1.0, 2.0]), 3.0)',
    ],
    "block": [
        "# A block with a gradient\n\nThe gradient of an op is derived. `loss.backward()` runs it.",
        SETUP,
        "%%op\nop block<T: float>(x: T[N, D], w: T[H, D], v: T[D, H]) -> y: T[N, D] {\n"
        "  h[n, j] = gelu(sum[d](x[n, d] * w[j, d]))\n"
        "  y[n, d] = x[n, d] + sum[j](h[n, j] * v[d, j])\n}",
        "w, v = (torch.nn.Parameter(torch.randn(64, 64) / 8) for _ in 'wv')\n"
        "optimizer = torch.optim.AdamW([w, v], lr=3e-3)\n"
        "for step in range(101):\n"
        "    x = torch.randn(32, 64)\n"
        "    loss = (block(x, w, v) - x.flip(1)).square().mean()\n"
        "    loss.backward(); optimizer.step(); optimizer.zero_grad()\n"
        "    if step % 50 == 0:\n"
        "        print(step, f'{loss.item():.2f}')",
        "The derived op, in the language:",
        "from tritongen.show import gradient_text\n\nprint(gradient_text(block.spec, 'block.op'))",
    ],
}


def main() -> None:
    import nbformat
    from nbclient import NotebookClient

    FOLDER.mkdir(exist_ok=True)
    for name, cells in NOTEBOOKS.items():
        made = nbformat.v4.new_notebook()
        for k, text in enumerate(cells):
            new = nbformat.v4.new_code_cell if is_code(text) else nbformat.v4.new_markdown_cell
            made.cells.append(new(text, id=f"{name}-{k}"))
        NotebookClient(made, timeout=600, kernel_name="python3").execute()
        for cell in made.cells:
            cell.metadata = {}  # without the times of this run
        nbformat.write(made, FOLDER / f"{name}.ipynb")


def as_markdown(name: str) -> str:
    """A notebook as a page."""
    parts = []
    for cell in json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "text/html" in data:
                parts.append(f"<div>{''.join(data['text/html']).strip()}</div>")
            else:
                text = "".join(output.get("text") or data["text/plain"])
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts)


def is_code(text: str) -> bool:
    return text.startswith(("%", "import", "from", "print", "x =", "f =", "w, v"))


if __name__ == "__main__":
    sys.exit(main())

"""Contractions through tensor descriptors: every order in memory, tails, batches, parts; in the interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

# Run in a process of its own: Triton decides at import whether kernels are interpreted.
PROGRAM = """
import itertools, json, sys
import torch
from tritongen import pipeline
from tritongen.proof.variants import forced, ways
from tritongen.runtime.load import load_text

def stored(shape, turned, dtype):
    x = torch.randn(shape).to(dtype)
    return x.mT.contiguous().mT if turned else x

def check(path, name, shapes, want):
    built = pipeline.build(open(path).read(), path)
    module, plan = load_text(built.name, built.raw), built.plans[name][0]
    described, tiles, split = [], module._tiles, module._tf32_tiles
    module._tiles = lambda x, *sizes, **how: described.append(x) or tiles(x, *sizes, **how)
    module._tf32_tiles = lambda x, *sizes: described.append(x) or split(x, *sizes)
    for turned, way in itertools.product(itertools.product((False, True), repeat=2), ways(plan)[:3]):
        dtype = torch.float32 if way.name == "prepared" else torch.float16
        args = [stored(s, t, dtype) for s, t in zip(shapes, turned)]
        args += [torch.randn(s).to(dtype) for s in shapes[2:]]
        with forced(module, plan, way, small=True):
            got = getattr(module, name)(*args)
        wanted = want(*(a.double() for a in args))
        error = ((got.double() - wanted).abs() / (1 + wanted.abs())).max().item()
        results[f"{name} {turned} {way.name}"] = error
    counts[name] = len(described)
    assert {w.name for w in ways(plan)[:3]} == {"prepared", "split", "persistent"}

results, counts = {}, {}
gelu, linear = torch.nn.functional.gelu, torch.nn.functional.linear
check("specs/matmul.op", "matmul", [(40, 72), (72, 24)], torch.matmul)
check("specs/matmul.op", "matmul", [(37, 171), (171, 19)], torch.matmul)
check("specs/bmm.op", "bmm", [(3, 24, 40), (3, 40, 24)], torch.bmm)
check("specs/linear_gelu.op", "linear_gelu", [(24, 40), (40, 40), (40,)], lambda *a: gelu(linear(*a)))
end = {}
module = load_text("matmul", pipeline.build(open("specs/matmul.op").read(), "specs/matmul.op").raw)
for shape in ((1, 1), (1, 3), (1, 8), (3, 8), (3, 9)):
    end[str(shape)] = module._tiles_to_store(torch.empty(shape).half(), 16, 16) is not None
json.dump([results, counts, end], sys.stdout)
"""


def test_persistent_kernels_in_every_order_of_memory():
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-2000:]
    results, counts, end = json.loads(run.stdout)
    # On a GPU such a store fills the 16 bytes that it has begun, also where the tensor ends inside them.
    whole = {"(1, 1)": False, "(1, 3)": False, "(1, 8)": True, "(3, 8)": True, "(3, 9)": False}
    assert end == whole
    assert counts == {
        "matmul": 24,
        "bmm": 24,
        "linear_gelu": 24,
    }  # two operands, four orders, three ways
    assert max(results.values()) < 2e-3, results
    # A TF32 number alone would be off by 1e-3 of a factor.
    assert max(e for name, e in results.items() if "prepared" in name) < 2e-5, results

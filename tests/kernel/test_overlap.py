"""Products of a loop run while others are computed: ptxas does not put one behind another."""

import pytest
import torch

from tritongen.pipeline import build
from tritongen.proof.crosscompile import serialized, wrong_instructions
from tritongen.runtime.load import load_text
from tritongen.trace import H200, compile_launch, trace

ATTENTION = """
op attention<T: f16 | bf16>(q: T[B, H, S, E], k: T[B, H, L, E], v: T[B, H, L, E]) -> o: T[B, H, S, E] {
  s[b, h, i, j] = sum[e](q[b, h, i, e] * k[b, h, j, e])
  m[b, h, i]    = max[BOUND](s[b, h, i, j])
  p[b, h, i, j] = exp(s[b, h, i, j] - m[b, h, i])
  o[b, h, i, e] = sum[BOUND](T(p[b, h, i, j]) * v[b, h, j, e]) / sum[BOUND](p[b, h, i, j])
}"""


@pytest.mark.slow
@pytest.mark.parametrize("bound", ["j", "j <= i"])
@pytest.mark.parametrize("heads, length", [(64, 4096), (64, 4232), (2, 4096)])  # the last in parts
@pytest.mark.parametrize("width", [64, 128])
def test_products_overlap(bound, heads, length, width):
    text = ATTENTION.replace("BOUND", bound)
    module = load_text("attention", build(text, "attention.op", gradients=True).raw)

    def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    q, of_rows = meta(1, heads, length, width), meta(1, heads, length, dtype=torch.float32)
    forward = {"q": q, "k": q, "v": q}
    kept = {"o": q, "m_kept": of_rows, "o_sum2_kept": of_rows, "do": q}
    seen = 0
    for name, args in (("forward", forward), ("backward", forward | kept)):
        for launch in trace(module, f"attention_{name}", args, H200).launches:
            ptx = compile_launch(launch, "sm_90").asm["ptx"]
            if "wgmma" in ptx:
                seen += 1
                assert serialized(ptx) == "", launch.kernel.fn.__name__
    assert seen == 3  # the forward, dq, and dk with dv


def test_a_product_ends_before_its_next_factor_is_computed():
    """Rotated queries of many columns: a loop over these columns computes each tile of them in registers."""
    text = ATTENTION.replace("BOUND", "j").replace("k: T", "c: T[S, E], k: T")
    text = text.replace("  s[", "  r[b, h, i, e] = T(q[b, h, i, e] * c[i, e])\n  s[", 1)
    text = text.replace("sum[e](q[b", "sum[e](r[b")
    source = build(text, "attention.op").raw
    q, c = (
        torch.empty(d, dtype=torch.bfloat16, device="meta") for d in ((1, 8, 512, 320), (512, 320))
    )
    for each in (source, source.replace("= lib.awaited(s_sum)", "= s_sum")):
        (launch,) = trace(
            load_text("attention", each), "attention", {"q": q, "c": c, "k": q, "v": q}, H200
        ).launches
        ptx = compile_launch(launch, "sm_90").asm["ptx"]
        assert bool(wrong_instructions("", ptx)) == (each is not source)


def test_a_tile_stays_in_shared_memory():
    """Heads may lie between rows. If tiles went through registers, the products of dk and dv would wait for one another."""
    text = ATTENTION.replace("BOUND", "j")
    for dims in ("[B, H, S, E]", "[B, H, L, E]"):
        text = text.replace(dims, dims.replace("H, S", "S, H").replace("H, L", "L, H"))
    for read in ("q[b, h, i, e]", "k[b, h, j, e]", "v[b, h, j, e]", "o[b, h, i, e]"):
        text = text.replace(read, f"{read[:5]}{read[8]}, h, e]")
    q = torch.empty((1, 4096, 64, 128), dtype=torch.bfloat16, device="meta")
    module = load_text("attention", build(text, "attention.op").raw)
    (launch,) = trace(module, "attention", {"q": q, "k": q, "v": q}, H200).launches
    ttgir = compile_launch(launch, "sm_90").asm["ttgir"]
    assert "async_tma_copy" in ttgir and "local_load" not in ttgir

"""The arguments of `lib.estimates`: those of one variant, those that all variants of a step share, and their order.

of_convolution("taps", TAPPED, "padded_bytes", 2)      # of one variant
sizes, others = shared(step)                           # ("1", "M", "N", "K"), ("itemsize", "stored_bytes", ...)
"""

from __future__ import annotations

from tritongen.schedule.plan import Estimate, Rule, Step, Variant

TAPPED = "taps * BLOCK_K * cdiv(padded, BLOCK_K)"  # terms, where a step is of one tap


# The entries behind the config in a row of candidates, by model.
COLUMNS = {
    "product_us": "how its factors are loaded, bytes written before it, sums",
    "convolution_us": "how the image is loaded, terms, bytes packed before it, indices per term, elements per load, places, one element per store",
}


def of_product(kind: str, sums: int, ahead: Rule) -> Estimate:
    """`ahead`: bytes of an operand that is split or converted first, by a kernel in front."""
    return Estimate("product_us", kind, _without((ahead, str(sums)), ("0", "1")))


def of_convolution(
    kind: str,
    terms: Rule,
    copied: Rule,
    digits: int = 2,
    together: Rule = "8",
    places: Rule = "0",
    uneven: Rule = "False",
) -> Estimate:
    """The estimate of a convolution. `terms` of all phases; `copied`: the fact that counts bytes packed before it."""
    asked = copied, str(digits), together, places, uneven
    more = _without(asked, ("0", "2", "8", "0", "False"))
    return Estimate("convolution_us", kind, (terms, *more))


def _without(asked: tuple[Rule, ...], defaults: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Without the last ones, as far as the model takes them by default."""
    while asked and asked[-1] == defaults[len(asked) - 1]:
        asked = asked[:-1]
    return asked


def shared(step: Step) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
    """The sizes, and what else; nothing where no variant has an estimate."""
    models = {v.estimate.model for v in step.variants if v.estimate is not None}
    batches = "batches" if step.kernels[0].axes[0].digits else "1"
    if not models:
        return (), ()
    if models == {"convolution_us"}:
        others = "phases", "channels", "operand_bytes", "itemsize", "stored_bytes", "gpu"
        return (batches, "M", "N"), others
    exact = "tf32x3" if step.precision else "False"  # halves and whole numbers have one product
    copies = ("copied_bytes", "transposed_bytes", "vectorized")
    return (batches, "M", "N", "K"), ("itemsize", "stored_bytes", *copies, exact, "gpu")


def in_turn(step: Step) -> tuple[list[Variant], list[Variant], list[Variant]]:
    """The variants as a call asks them: those in front, those that are compared, and the others."""
    compared = [v for v in step.variants if v.estimate is not None]
    at = step.variants.index(compared[0]) if compared else 0
    others = [v for v in step.variants[at:] if v.estimate is None]
    return list(step.variants[:at]), compared, others

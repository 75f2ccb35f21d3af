"""What the estimates of a step are asked of a call, whatever the variant; in the order of `runtime.products`.

sizes, others = shared(step)      # ("1", "M", "N", "K"), ("itemsize", "stored_bytes", ...)
"""

from __future__ import annotations

from tritongen.schedule.plan import Rule, Step, Variant


def shared(step: Step) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
    """The sizes, and what else; nothing where no variant has an estimate."""
    models = {v.estimate.model for v in step.variants if v.estimate is not None}
    batches = "batches" if step.kernels[0].axes[0].digits else "1"
    if not models:
        return (), ()
    if models == {"convolution_us"}:
        return (batches, "M", "N"), ("phases", "operand_bytes", "itemsize", "stored_bytes", "sms")
    exact = "tf32x3" if step.precision else "False"  # halves and whole numbers have one product
    copies = ("copied_bytes", "turned_bytes", "wide")
    return (batches, "M", "N", "K"), ("itemsize", "stored_bytes", *copies, exact, "sms")


def in_turn(step: Step) -> tuple[list[Variant], list[Variant], list[Variant]]:
    """The variants as a call asks them: those in front, those that are compared, and the others."""
    compared = [v for v in step.variants if v.estimate is not None]
    at = step.variants.index(compared[0]) if compared else 0
    others = [v for v in step.variants[at:] if v.estimate is None]
    return list(step.variants[:at]), compared, others

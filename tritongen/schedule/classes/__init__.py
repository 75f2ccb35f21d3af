"""The kernel classes, the most special one first. Each module says which nests belong to it and how they run.

- `classify(members, virtual, by_name, facts, extending)` gives a `Group` or None. It looks at the IR alone, not at sizes.
- `make(name, group, stores, dims, facts)` gives the `Step`.

A new class is a module here, a template, and its printer in `emit`.
"""

from __future__ import annotations

from tritongen.schedule.classes import (
    box,
    contraction,
    crossed,
    fused,
    nest,
    pointwise,
    ragged,
    rows,
    scan,
    scatter,
    segments,
    window,
)

CLASSES = {
    "fused": fused,
    "segments": segments,
    "contraction": contraction,
    "ragged": ragged,
    "crossed": crossed,
    "scan": scan,
    "scatter": scatter,
    "window": window,
    "rows": rows,
    "pointwise": pointwise,
    "box": box,
    "nest": nest,
}

"""The kernel classes, the most special first: each module says what belongs to it and how it runs.

`classify(members, virtual, by_name, facts, extending)` gives a `Group` or None, from the IR's shape
alone; `make(name, group, stores, dims, facts)` gives the `Step`. A new class is a module here, a
template and its printer in `emit`.
"""

from __future__ import annotations

from tritongen.schedule.classes import (
    box,
    contraction,
    contractions,
    crossed,
    fused,
    nest,
    pointwise,
    ragged,
    rows,
    scan,
    scatter,
    window,
)

CLASSES = {
    "fused": fused,
    "contraction": contraction,
    "contractions": contractions,
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

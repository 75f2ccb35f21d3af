"""Skeleton to printer: how each kind of kernel becomes the view that its template sees."""

from __future__ import annotations

from tritongen.emit import lanes, lines, relay, scan, tiles, walks
from tritongen.emit.body import Body, Context
from tritongen.emit.contraction import combine_view, contraction_view
from tritongen.emit.nest import box_view, nest_view
from tritongen.emit.patches import patches_view
from tritongen.emit.persistent import persistent_view
from tritongen.emit.ragged import ragged_view
from tritongen.emit.runs import runs_view
from tritongen.emit.scatter import scatter
from tritongen.emit.strips import strips_view
from tritongen.emit.tf32x3 import tf32x3_half_view, tf32x3_view
from tritongen.emit.view import KernelView
from tritongen.emit.window import window_view
from tritongen.schedule.plan import KernelPlan

PRINTERS = {
    "flat": lambda body: tiles.flat(tiles.FlatBody(body.context, body.kernel)),
    "tile": tiles.tile,
    "strided": tiles.strided,
    "rows": tiles.rows,
    "lines": lambda body: lines.lines(lines.LinesBody(body.context, body.kernel)),
    "lines_loop": lambda body: lines.lines_loop(lines.LinesBody(body.context, body.kernel)),
    "loop": walks.loop,
    "part": walks.part,
    "lanes_part": lanes.lanes_part,
    "lanes_merge": lanes.lanes_merge,
    "finish": walks.finish,
    "merge": walks.merge,
    "relay": relay.relay,
    "contraction": contraction_view,
    "ragged": ragged_view,
    "scatter": scatter,
    "window": window_view,
    "runs": runs_view,
    "box": box_view,
    "scan": scan.scan,
    "scan_part": scan.scan_part,
    "scan_finish": scan.scan_finish,
    "taps": contraction_view,
    "persistent": persistent_view,
    "strips": strips_view,
    "patches": patches_view,
    "combine": combine_view,
    "tf32x3": tf32x3_view,
    "tf32x3_half": tf32x3_half_view,
    "nest": nest_view,
}


def kernel_view(context: Context, kernel: KernelPlan) -> KernelView:
    """The view of one kernel."""
    return PRINTERS[kernel.skeleton](Body(context, kernel))

"""Skeleton to printer: how each kind of kernel becomes the view that its template sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tritongen.emit import scan, tiles, walks
from tritongen.emit.contraction import combine_view, contraction_view
from tritongen.emit.fused import FusedWriter, fused_view
from tritongen.emit.kernel_writer import Context, KernelWriter
from tritongen.emit.nest import box_view, nest_view
from tritongen.emit.patches import patches_view
from tritongen.emit.persistent import persistent_view, subtiles_view
from tritongen.emit.ragged import ragged_view
from tritongen.emit.runs import RunsWriter, runs_view
from tritongen.emit.scatter import scatter
from tritongen.emit.sliding import SlidingWriter
from tritongen.emit.strips import strips_view
from tritongen.emit.tf32x3 import tf32x3_half_view, tf32x3_view
from tritongen.emit.view import KernelView
from tritongen.emit.window import WindowWriter, window_view
from tritongen.schedule.plan import KernelPlan

PRINTERS: dict[str, Callable[[Any], KernelView]] = {
    "flat": tiles.flat,
    "tile": tiles.tile,
    "strided": tiles.strided,
    "rows": tiles.rows,
    "lines": walks.lines,
    "lines_loop": walks.lines_loop,
    "loop": walks.loop,
    "per_thread_part": walks.per_thread_part,
    "parts_merge": walks.parts_merge,
    "two_pass": walks.two_pass,
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
    "subtiles": subtiles_view,
    "patches": patches_view,
    "strips": strips_view,
    "combine": combine_view,
    "tf32x3": tf32x3_view,
    "tf32x3_half": tf32x3_half_view,
    "nest": nest_view,
    "fused": fused_view,
}
WRITERS: dict[str, type[KernelWriter]] = {
    "flat": tiles.FlatWriter,
    "window": WindowWriter,
    "runs": RunsWriter,
    "patches": SlidingWriter,
    "strips": SlidingWriter,
    "fused": FusedWriter,
}


def kernel_view(context: Context, kernel: KernelPlan) -> KernelView:
    """The view of one kernel."""
    writer = WRITERS.get(kernel.skeleton, KernelWriter)
    return PRINTERS[kernel.skeleton](writer(context, kernel))

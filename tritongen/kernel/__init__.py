"""Kernels as data: nests, and one word an index that says how a kernel walks it.

    kernel = lower("attention", nests, walks, stores)    # statements (`lower.py`)
    verify(kernel, nests)                                # held to the nests (`verify.py`)

The classes are in `nodes.py`. Tests run kernels tile by tile in torch (`tests/kernel/interp.py`). Triton's text is printed
in `emit`; which nests and which walks make a kernel is decided in `schedule`.
"""

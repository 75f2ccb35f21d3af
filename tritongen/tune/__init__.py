"""Timing on request: a few candidates a step, each compared first, the fastest stored for next time.

`candidates.py` says what is worth a try, `run.py` tries it. What is stored, and how a call finds it,
is `tritongen.runtime.tuned`.
"""

"""Whole specs drawn at random, and everything that must hold of any spec.

    python -m tritongen.proof.fuzz --specs 1000 --seed 0 --jobs 8     # draw and prove
    python -m tritongen.proof.fuzz tests/fuzz/found/some.op           # one file again

`draw` makes a spec from a `random.Random`, motif by motif; `trial` builds it and holds its kernels, its
reference, its oracle and its gradient against each other in the interpreter; `compiled` compiles every
kernel; `shrink` makes a finding small; `drive` runs many in processes and writes what was found.
What is drawn, and how to read a finding: `docs/fuzzing.md`. Importing this imports neither torch nor triton.
"""

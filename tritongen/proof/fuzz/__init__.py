"""Random specs, and everything that must hold of any spec.

    python -m tritongen.proof.fuzz --specs 1000 --seed 0 --jobs 8     # draw and test
    python -m tritongen.proof.fuzz tests/fuzz/found/some.op           # one file again

- `draw` makes a spec from a `random.Random`, motif by motif.
- `trial` builds it, and compares its kernels, reference, oracle and gradient in the interpreter.
- `compiled` compiles every kernel.
- `shrink` makes a finding small.
- `drive` runs many specs in processes, and writes the findings.

`docs/fuzzing.md` explains what is drawn and how to read a finding. Importing this imports neither torch nor triton.
"""

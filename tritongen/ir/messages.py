"""The texts of errors of a call. The generated wrapper and the oracle share them.

Input: the fields in braces. Output: the text of a ValueError, in the form `op: operand: what`. The emitter fills a field
with an expression in braces and prints the whole as an f-string:

    >>> RANK.format(op="softmax", operand="x", expected="2 dims [M, K]", given="{x.ndim}")
    'softmax: x: expected 2 dims [M, K], given {x.ndim}'
"""

TENSOR = "{op}: {operand}: expected a tensor, given {given}"
LAYOUT = "{op}: {operand}: expected a strided tensor, given {given}"
RANK = "{op}: {operand}: expected {expected}, given {given}"
DIM = "{op}: {operand}: dim {dim} ({size}): expected {expected}{source}, given {given}"
BATCH = "{op}: {operand}: batch shape {given} does not broadcast with {expected}{source}"
DTYPE = "{op}: {operand}: expected dtype {expected}{source}, given {given}"
TYPE = "{op}: {typaram}: expected {expected}, given {given}"
DEVICE = "{op}: {operand}: expected device {expected}{source}, given {given}"
SCALAR = "{op}: {operand}: expected {expected} or a 0-dim tensor, given {given}"
CONSTANT = "{op}: {operand}: expected {expected}, given {given}"
REQUIRE = "{op}: requires {fact}: {left} {relation} {right}{given}"
NEGATIVE = "{op}: size {size} = {value} is negative: {given}"
FRACTION = "{op}: size {size} = {value} is not a whole number: {given}"
DIVISION = "{op}: division by zero in {value}{given}"

SOURCE = " (from {operand})"  # the operand that settled what is expected
TYPE_SOURCE = " ({typaram}, from {operand})"

GIVEN = " ({sizes})"  # what the sizes of a fact are
SIZE = "{size} = {value} from {operand}"
NUMBER = "{size} = {value}"  # of a constant

# The relation that holds if a fact does not: `C == groups * Cg` fails as `6 != 4`.
OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def dims_text(dims: tuple[str, ...]) -> str:
    """`2 dims [M, K]`, `at least 1 dim [..., D]`, `a 0-dim tensor`."""
    named = [d for d in dims if d != "..."]
    count = f"{len(named)} dim" + "s" * (len(named) != 1)
    if len(named) < len(dims):
        return f"at least {count} [{', '.join(dims)}]"
    return f"{count} [{', '.join(dims)}]" if dims else "a 0-dim tensor"

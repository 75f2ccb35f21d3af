"""The table of reducers agrees with the grammar, and each row with torch."""

import pytest
import torch

from tritongen.ir.interp import fold
from tritongen.ir.reducers import REDUCERS
from tritongen.syntax import names
from tritongen.syntax.build import NOTHING

FOLDED = sorted(REDUCERS.keys() - {"mean"})


def test_the_grammar_has_the_names_of_the_table():
    assert set(names.REDUCERS) == set(REDUCERS), "change REDUCER in grammar/op.lark, too"


def test_the_parser_proposes_the_identities_of_the_table():
    shown = {"0": 0, "1": 1, "-inf": -torch.inf, "inf": torch.inf, "false": 0, "true": 1}
    assert all(shown[text] == REDUCERS[op].identity for op, text in NOTHING.items())


@pytest.mark.parametrize("op", FOLDED)
@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.bool], ids=str)
def test_a_dropped_term_changes_nothing(op, dtype):
    x = torch.tensor([[3, 0, -2, 3], [0, 0, 0, 0], [-1, -5, -5, -1]]).to(dtype)
    more = torch.cat([x, x.flip(-1)], -1)
    terms = torch.arange(8).expand(3, 8) < 4
    assert torch.equal(fold(op, more, terms), fold(op, x, terms[:, :4]))
    nothing = fold(op, x, terms[:, 4:])
    if not REDUCERS[op].is_place:  # and merged with a state it leaves that
        both = torch.stack([nothing, fold(op, x, terms[:, :4])], -1)
        assert torch.equal(fold(op, both, both == both), both[:, 1])

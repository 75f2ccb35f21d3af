"""Modules of `build --autotune` in the interpreter: `autotune_checks.py`; their text is `tests/emit/test_autotune.py`'s."""

import pytest


@pytest.mark.slow
def test_modules_with_tables_of_configs(run_checks):
    run_checks("autotune_checks.py")

"""Gradients of which a call asks for some run in the interpreter, in a process of their own: `asked_checks.py`."""


def test_some_gradients_are_those_of_all(run_checks):
    run_checks("asked_checks.py")

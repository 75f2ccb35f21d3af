from __future__ import annotations


def expand_calls(scope, line):
    return line.value

"""Findings of one op, collected so that all independent ones are shown at once.

Input: what is wrong and where. Output: `Report.diagnostics`, in the order of the text. `fail` ends
the line at hand by raising `Skip`; the next line is still checked. Not here: how a finding looks
(`tritongen.errors`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from tritongen.errors import Diagnostic, Fix, Span


class Skip(Exception):
    """Raised to stop checking a line whose finding is already in the report."""


@dataclass(slots=True)
class Report:
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def add(
        self,
        code: str,
        message: str,
        span: Span | None,
        label: str = "",
        help: str = "",
        notes: tuple[tuple[Span | None, str], ...] = (),
        fix: Fix | None = None,
        others: tuple[Fix, ...] = (),
        otherwise: str = "",
    ) -> None:
        shown = tuple((place, text) for place, text in notes if place is not None)
        severity = "warning" if code.startswith("W") else "error"
        found = Diagnostic(
            code, message, span, label, shown, help, severity, fix, others, otherwise
        )
        if found not in self.diagnostics:
            self.diagnostics.append(found)

    def fail(self, code: str, message: str, span: Span | None, **details) -> NoReturn:
        self.add(code, message, span, **details)
        raise Skip

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        return self._of("error")

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        return self._of("warning")

    def _of(self, severity: str) -> tuple[Diagnostic, ...]:
        found = [d for d in self.diagnostics if d.severity == severity]
        return tuple(sorted(found, key=lambda d: d.span.start if d.span else -1))

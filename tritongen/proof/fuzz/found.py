"""Findings as files: the spec behind a header that says what failed and how to see it again."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any


def write(folder: Path, finding: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    words = re.findall(r"[a-z0-9]+", finding["stage"].lower())
    path = (
        folder / f"{'_'.join(words)}_{hashlib.sha256(finding['text'].encode()).hexdigest()[:8]}.op"
    )
    problem = [line.rstrip() for line in finding["problem"].split("\n")][:6]
    head = [
        f"{finding['stage']}: {problem[0]}",
        *problem[1:],
        *([finding["call"]] if finding.get("call") else []),
        f"seed {finding['seed']}; drawn as {finding.get('drawn', '?')}",
        f"again: python -m tritongen.proof.fuzz {path.name}",
    ]
    comment = "\n".join(f"# {_ascii(line)[:160]}" for line in head)
    path.write_text(f"{comment}\n{finding['text']}", encoding="utf-8")
    return path


def note(folder: Path, finding: dict[str, Any]) -> None:
    """A line of `findings.jsonl`: every finding as it was met, where `write` has one small spec of a kind."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "findings.jsonl", "a", encoding="utf-8") as lines:
        lines.write(json.dumps(finding) + "\n")


def parts_of(*stages: str) -> dict[str, Any]:
    """What of `drive.Pair.report` meets findings of these stages; whatever comes before it is drawn as it was."""
    compiles = {bool(re.search("compile|trace", stage)) for stage in stages}
    only = "" if len(compiles) != 1 else "compile" if compiles == {True} else "trial"
    grad = not stages or any(map(_is_of_a_gradient, stages))
    return {"only": only, "grad": grad, "twice": "second" in stages if stages else None}


def _is_of_a_gradient(stage: str) -> bool:
    return re.match("build|names|kernels|reference|compile|trace", stage) is None


def stages_of(text: str) -> list[str]:
    """The stages of a file, which its first line says: `# build: a constant NaN; compile: a number beside it`."""
    return re.findall(rf"(?:^# |; )(?:Triton [0-9.]+ )?({_STAGES}): ", text.split("\n")[0])


_STAGES = "(?:gradient )?(?:build|names|kernels|reference|compile|trace|text)|derive|backward|autograd|second"


def _ascii(line: str) -> str:
    return line.encode("ascii", "replace").decode()


def seed_of(text: str) -> int:
    """The seed with which the calls of a file were drawn."""
    match = re.search(r"^# seed (\d+)", text, re.M)
    return int(match[1]) if match else 0

"""The docker daemon: there, allowed, and answering."""

from __future__ import annotations

from bench.doctor.check import OK, Finding, Here, Simple
from bench.doctor.daemon import ask, where


def _look(here: Here) -> Finding:
    answer = ask(here, "/version")
    if isinstance(answer, Finding):
        return answer
    return Finding(OK, f"daemon {answer.get('Version', 'of unknown version')} at {where(here)}")


CHECK = Simple("docker", 30, _look)

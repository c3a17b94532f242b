"""How many files and sockets a process may have open."""

from __future__ import annotations

import resource

from bench.doctor.check import MISSING, OK, Finding, Here, Simple

STREAMS = 2000
NEEDED = 2 * STREAMS + 500
"""A gateway has two sockets per stream."""


def _look(here: Here) -> Finding:  # noqa: ARG001
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = hard if hard != resource.RLIM_INFINITY else 1 << 30
    text = f"nofile {soft} (may be raised to {'any' if hard == resource.RLIM_INFINITY else hard})"
    if most < NEEDED:
        return Finding(
            MISSING, text, f"{STREAMS} streams through a gateway need {NEEDED}: ulimit -Hn {NEEDED}"
        )
    return Finding(OK, text)


CHECK = Simple("files", 13, _look)

"""A docker daemon of one's own, for tests: the program, and the right to start it."""

from __future__ import annotations

import os

from bench.doctor.check import MISSING, OK, Finding, Here, Simple


def _look(here: Here) -> Finding:
    tool = here.which("dockerd")
    if tool is None:
        return Finding(MISSING, "there is no dockerd", "install docker.io (only tests start a daemon)")
    if os.geteuid():
        return Finding(MISSING, f"{tool}, but only root can start it", "run the docker tests as root")
    return Finding(OK, f"{tool}, and we are root")


CHECK = Simple("dockerd", 31, _look)

"""Locust, the second load driver."""

from __future__ import annotations

from importlib import metadata

from bench.doctor.check import BROKEN, MISSING, OK, Finding, Here, Simple

OLDEST = (2, 40)


def _look(here: Here) -> Finding:  # noqa: ARG001
    todo = "pip install 'agent-serving-bench[locust]'"
    try:
        version = metadata.version("locust")  # importing it would patch this process
    except metadata.PackageNotFoundError:
        return Finding(MISSING, "not installed; the asyncio driver does without", todo)
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        return Finding(BROKEN, f"Locust {version} is older than 2.40", todo)
    return Finding(OK, f"Locust {version}")


CHECK = Simple("locust", 40, _look)

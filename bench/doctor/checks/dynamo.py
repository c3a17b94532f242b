"""NVIDIA Dynamo's mocker, a simulator to compare with."""

from __future__ import annotations

from bench.doctor.check import MISSING, OK, Finding, Here, Simple, distribution


def _look(here: Here) -> Finding:
    python = here.python("BENCH_DYNAMO_PYTHON", ".venv-dynamo")
    found = distribution(python, "ai-dynamo-runtime")
    if not python.is_file() or found is None:
        return Finding(
            MISSING, "no environment with it; only benchmarks/simulator.py asks", "make dynamo (250 MB)"
        )
    return Finding(OK, f"{found[0]} {found[1]}")


CHECK = Simple("dynamo", 42, _look)

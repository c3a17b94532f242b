"""SGLang: an environment that has it, and the GPU it needs (its CPU kernels are in no package)."""

from __future__ import annotations

from pathlib import Path

from bench.doctor.check import BROKEN, MISSING, OK, Finding, Here, Simple, distribution

VARIABLE = "BENCH_SGLANG_PYTHON"


def _look(here: Here) -> Finding:
    named = here.environ.get(VARIABLE)
    todo = f"name the Python that has SGLang in {VARIABLE}"
    if not named:
        return Finding(MISSING, f"{VARIABLE} names no Python", f"{todo} (a GPU machine)")
    if not Path(named).is_file():
        return Finding(BROKEN, f"{VARIABLE} names {named}, which is not there", todo)
    found = distribution(Path(named), "sglang")
    if found is None:
        return Finding(BROKEN, f"{named} has no SGLang", todo)
    if here.which("nvidia-smi") is None:
        return Finding(BROKEN, f"SGLang {found[1]}, but no GPU", "see gpu")
    return Finding(OK, f"SGLang {found[1]}")


CHECK = Simple("sglang", 23, _look)

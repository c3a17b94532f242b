"""Third-party routers, each in an environment of its own (systems/fronts)."""

from __future__ import annotations

from bench.doctor.check import MISSING, OK, Finding, Here, Simple


def _look(here: Here) -> Finding:  # noqa: ARG001
    from systems.engines.vllm_virtual import EngineUnavailable
    from systems.provision.venvs import python_of
    from systems.slots import front_names, policy_class

    there, gone = [], []
    names = front_names()
    if not names:
        return Finding(MISSING, "systems/fronts names none", "add a file there")
    for name in names:
        front = policy_class("front", name, "bench doctor")()
        try:
            python_of(front)
            there.append(front.requirement)
        except EngineUnavailable:
            gone.append(front.name)
    if gone:
        have = f"{', '.join(there)} built; " if there else ""
        todo = f"python -m systems.provision.venvs {' '.join(gone)} (150 MB each)"
        return Finding(MISSING, f"{have}no environment for {', '.join(gone)}", todo)
    return Finding(OK, ", ".join(there))


CHECK = Simple("routers", 41, _look)

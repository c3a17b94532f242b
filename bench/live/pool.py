"""Deployments that are kept up, as many as memory has room for; one is driven at a time."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.errors import MissingError
from bench.live.deployment import Deployment, cores, engine_key, front_key, make_engines, make_front
from bench.live.plan import LivePlan
from bench.live.warm import warm
from systems.engines.vllm_virtual import EngineUnavailable
from systems.provision.engine import LiveEngine
from systems.provision.fleet import Fleet

ENGINE_GB = 2.0
"""Memory of an engine on a CPU with a small model (measured: 1.8)."""
SPARE_GB = 1.5
Make = Callable[[LivePlan, Path], list[LiveEngine]]
MakeFront = Callable[[LivePlan, Sequence[LiveEngine], Path], LiveEngine | None]


@dataclass
class _Up:
    """Engines that are up, with the fronts before them by key; ``used``: when last, in turns."""

    fleet: Fleet
    fronts: dict[str, Deployment] = field(default_factory=dict)
    used: int = 0

    def stop(self) -> None:
        """Fronts first."""
        try:
            for deployment in self.fronts.values():
                if deployment.front is not None:
                    deployment.front.stop()
        finally:
            self.fleet.stop()


class Pool:
    """Use as ``with``: nothing of it outlives the block. ``folder`` gets a folder of logs per deployment.

    ``room``: engines that may be up at once; None: as many as fit. Those used last longest ago go first.
    """

    def __init__(
        self,
        folder: Path,
        say: Callable[[str], None],
        *,
        room: int | None = None,
        engines: Make = make_engines,
        front: MakeFront = make_front,
    ) -> None:
        self.folder = folder
        self.say = say
        self.room = room
        self._engines = engines
        self._front = front
        self._up: dict[str, _Up] = {}
        self._turn = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything; idempotent."""
        errors: list[BaseException] = []
        while self._up:
            _, up = self._up.popitem()
            try:
                up.stop()
            except BaseException as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def prepare(self, plans: Iterable[LivePlan]) -> None:
        """Start what these need together, as far as there is room. Raises MissingError."""
        wanted = {key: plan for plan in plans if (key := engine_key(plan)) not in self._up}
        fitting: dict[str, LivePlan] = {}
        free = self._room() - self._engines_up()
        for key, plan in wanted.items():
            if plan.config.replicas <= free:
                fitting[key], free = plan, free - plan.config.replicas
        if len(fitting) > 1:
            self._start(fitting)

    def get(self, plan: LivePlan) -> Deployment:
        """What serves the plan, up and warm. Raises MissingError if it does not start."""
        key = engine_key(plan)
        if key not in self._up:
            self._make_room(plan.config.replicas)
            self._start({key: plan})
        up, self._turn = self._up[key], self._turn + 1
        up.used = self._turn
        name = front_key(plan)
        if name not in up.fronts:
            with _explained():
                up.fronts[name] = self._deploy(up, plan, self._place(key) / f"front-{_short(name)}")
        return up.fronts[name]

    def drop(self, plan: LivePlan) -> None:
        """Something of it has ended: stop the rest, so that ``get`` starts it anew."""
        if (up := self._up.pop(engine_key(plan), None)) is not None:
            up.stop()

    def _deploy(self, up: _Up, plan: LivePlan, folder: Path) -> Deployment:
        front = self._front(plan, up.fleet.engines, folder)
        if front is not None:
            with on_cores(cores()[1] if plan.config.replicas == 1 else frozenset()):
                try:
                    front.begin()
                    front.ready()
                except BaseException:  # Ctrl-C, too
                    front.stop()
                    raise
        return Deployment(up.fleet.engines, front, plan)

    def _start(self, plans: dict[str, LivePlan]) -> None:
        """All engines of these begin together."""
        fleets = {key: Fleet(self._engines(plan, self._place(key)), self.say) for key, plan in plans.items()}
        names = ", ".join(f"{p.config.replicas} x {p.spec.scheduler}" for p in plans.values())
        self.say(f"{sum(p.config.replicas for p in plans.values())} vLLM engines start ({names})")
        together = Fleet([engine for fleet in fleets.values() for engine in fleet.engines], self.say)
        with _explained():
            together.start()
            try:
                for key, plan in plans.items():
                    warm(fleets[key].engines, plan)
            except BaseException:
                together.stop()
                raise
        self._up |= {key: _Up(_Held(fleet.engines, self.say)) for key, fleet in fleets.items()}

    def _place(self, key: str) -> Path:
        return self.folder / f"deployment-{_short(key)}"

    def _room(self) -> int:
        return self.room if self.room is not None else self._engines_up() + fitting_engines()

    def _engines_up(self) -> int:
        return sum(len(up.fleet.engines) for up in self._up.values())

    def _make_room(self, engines: int) -> None:
        while self._up and self._engines_up() + engines > self._room():
            key = min(self._up, key=lambda name: self._up[name].used)
            self.say("no memory for more engines: those used longest ago are stopped")
            self._up.pop(key).stop()


class _Held(Fleet):
    """Engines that were started together with others, and are stopped by themselves."""

    def __init__(self, engines: Sequence[LiveEngine], say: Callable[[str], None]) -> None:
        super().__init__(engines, say)
        self._started = list(engines)


def fitting_engines() -> int:
    """How many more engines the machine's free memory has room for, at least 1."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return max(1, int((int(line.split()[1]) / 1e6 - SPARE_GB) / ENGINE_GB))
    return 1


@contextmanager
def on_cores(chosen: frozenset[int]) -> Iterator[None]:
    """This process, and what it starts, on some cores (none: as it is)."""
    before = os.sched_getaffinity(0)
    if chosen:
        os.sched_setaffinity(0, chosen)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except EngineUnavailable as error:
        raise MissingError(str(error)) from None


def _short(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:10]

"""Deployments that are kept up, as many as memory has room for; one is driven at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.affinity import on_cores
from bench.errors import MissingError
from bench.live.deployment import (
    Deployment,
    cores,
    engine_key,
    front_key,
    make_engines,
    make_front,
    swept,
)
from bench.live.plan import LivePlan
from bench.live.room import Machine, engines_of
from bench.live.warm import warm
from bench.signals import terminated_as_interrupted
from systems.engines.vllm_virtual import EngineUnavailable
from systems.provision.engine import LiveEngine
from systems.provision.fleet import Fleet

Make = Callable[[LivePlan, Path, Sequence[str]], list[LiveEngine]]
MakeFront = Callable[[LivePlan, Sequence[LiveEngine], Path], LiveEngine | None]


@dataclass
class _Up:
    """Engines that are up, with what was served through them, by front; ``gpus``: each engine's, as dealt;
    ``used``: when last, in turns."""

    fleet: Fleet
    gpus: Sequence[str]
    size: int
    served: dict[str, Deployment] = field(default_factory=dict)
    used: int = 0


class Pool:
    """Use as ``with``: nothing of it outlives the block, SIGTERM and SIGHUP included. ``folder`` gets a
    folder of logs per deployment.

    ``machine`` says how many engines may be up at once: those used last longest ago go first. At most one
    front is up: that of the deployment taken last.
    """

    def __init__(
        self,
        folder: Path,
        say: Callable[[str], None],
        *,
        machine: Machine = Machine(),  # noqa: B008 (frozen)
        engines: Make = make_engines,
        front: MakeFront = make_front,
        sweep: Callable[[], list[str]] = swept,
    ) -> None:
        self.folder = folder
        self.say = say
        self.machine = machine
        self._engines = engines
        self._front = front
        self._sweep = sweep
        self._swept = False
        self._up: dict[str, _Up] = {}
        self._taken: Deployment | None = None
        self._turn = 0
        self._handlers = ExitStack()

    def __enter__(self) -> Self:
        self._handlers.enter_context(terminated_as_interrupted())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._handlers:
            self.close()

    def close(self) -> None:
        """Stop everything; idempotent."""
        errors: list[BaseException] = []
        while self._up:
            try:
                self._take_down(next(reversed(self._up)))
            except BaseException as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def prepare(self, plans: Iterable[LivePlan]) -> None:
        """Start what these need together, as far as there is room. Raises MissingError."""
        wanted = {key: plan for plan in plans if (key := engine_key(plan)) not in self._up}
        fitting: dict[str, LivePlan] = {}
        up, more = self._engines_up(), 0
        for key, plan in wanted.items():
            if more + engines_of(plan) <= self.machine.fitting(plan, up):
                fitting[key], more = plan, more + engines_of(plan)
        if len(fitting) > 1:
            self._start(fitting)

    def get(self, plan: LivePlan) -> Deployment:
        """What serves the plan, up and warm; every other front is stopped. Raises MissingError if it does
        not start."""
        key = engine_key(plan)
        if key not in self._up:
            self._make_room(plan)
            self._start({key: plan})
        up, self._turn = self._up[key], self._turn + 1
        up.used = self._turn
        name = front_key(plan)
        if self._taken is None or up.served.get(name) is not self._taken:
            self._stop_front()
            with _explained():
                self._taken = self._deploy(up, plan, name, self._place(key) / f"front-{_short(name)}")
        return self._taken

    def drop(self, plan: LivePlan) -> None:
        """Something of it has ended, or hangs: stop the rest, so that ``get`` starts it anew."""
        if (key := engine_key(plan)) in self._up:
            self._take_down(key)

    def _deploy(self, up: _Up, plan: LivePlan, name: str, folder: Path) -> Deployment:
        """Start a front; what was served through one like it before goes on, so that runs keep counting."""
        front = self._front(plan, up.fleet.engines, folder)
        try:
            if front is not None:
                with on_cores(cores()[1] if plan.config.replicas == 1 else frozenset()):
                    front.begin()
                    front.ready()
            if name in up.served:
                up.served[name].front = front
            else:
                up.served[name] = Deployment(up.fleet.engines, front, plan)
        except BaseException:  # Ctrl-C, too
            if front is not None:
                front.stop()
            raise
        return up.served[name]

    def _stop_front(self) -> None:
        """Of what was taken last: it would go on asking engines how they are while others are driven."""
        taken, self._taken = self._taken, None
        if taken is not None and taken.front is not None:
            taken.front.stop()

    def _take_down(self, key: str) -> None:
        """Front first."""
        up = self._up.pop(key)
        try:
            if any(one is self._taken for one in up.served.values()):
                self._stop_front()
        finally:
            up.fleet.stop()

    def _start(self, plans: dict[str, LivePlan]) -> None:
        """All engines of these begin together."""
        with _explained():
            self._sweep_once(plans.values())
            gpus = self._dealt(plans)
            fleets = {
                key: Fleet(self._engines(plan, self._place(key), gpus[key]), self.say)
                for key, plan in plans.items()
            }
            names = ", ".join(f"{p.config.replicas} x {p.spec.scheduler}" for p in plans.values())
            self.say(f"{sum(p.config.replicas for p in plans.values())} vLLM engines start ({names})")
            together = Fleet([engine for fleet in fleets.values() for engine in fleet.engines], self.say)
            together.start()
            try:
                for key, plan in plans.items():
                    warm(fleets[key].engines, plan)
            except BaseException:
                together.stop()
                raise
        self._up |= {
            key: _Up(_Held(fleet.engines, self.say), gpus[key], engines_of(plans[key]))
            for key, fleet in fleets.items()
        }

    def _sweep_once(self, plans: Iterable[LivePlan]) -> None:
        """Containers of runs that were killed would hold memory, and GPUs."""
        if not self._swept and any(_in_containers(plan) for plan in plans):
            self._swept = True
            if names := self._sweep():
                self.say(f"containers of runs that are gone were removed: {', '.join(names)}")

    def _dealt(self, plans: dict[str, LivePlan]) -> dict[str, list[str]]:
        """The GPUs of each engine, by key of the plans. Raises MissingError."""
        taken = [one for up in self._up.values() for gpus in up.gpus for one in gpus.split(",")]
        found: dict[str, list[str]] = {}
        for key, plan in plans.items():
            found[key] = self.machine.deal(plan, taken)
            taken += [one for gpus in found[key] for one in gpus.split(",")]
        return found

    def _place(self, key: str) -> Path:
        return self.folder / f"deployment-{_short(key)}"

    def _engines_up(self) -> int:
        return sum(up.size for up in self._up.values())

    def _make_room(self, plan: LivePlan) -> None:
        while self._up and engines_of(plan) > self.machine.fitting(plan, self._engines_up()):
            key = min(self._up, key=lambda name: self._up[name].used)
            self.say("no room for more engines: those used longest ago are stopped")
            self._take_down(key)
        if engines_of(plan) > self.machine.fitting(plan, self._engines_up()):
            self.say(f"{engines_of(plan)} engines start, though there may be no room for so many")


class _Held(Fleet):
    """Engines that were started together with others, and are stopped by themselves."""

    def __init__(self, engines: Sequence[LiveEngine], say: Callable[[str], None]) -> None:
        super().__init__(engines, say)
        self._started = list(engines)


def _in_containers(plan: LivePlan) -> bool:
    return plan.options.how == "docker" and not plan.options.attach


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except EngineUnavailable as error:
        raise MissingError(str(error)) from None


def _short(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:10]

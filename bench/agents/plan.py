"""A run of agents that is ready to start: tasks instead of programs, engines and systems as in a live run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from bench.agents.options import AgentOptions, with_agent_defaults
from bench.agents.pythons import Guests, guests_of
from bench.arriving import explained
from bench.config import AGENTS, RunConfig
from bench.errors import MissingError, UsageError
from bench.live.options import LiveOptions, check_model, device, with_defaults
from bench.live.plan import LivePlan, Room, check_served
from bench.live.served import served
from bench.offline import Offline
from bench.plan import source_hash, spec_of
from bench.serving import serving
from systems.catalog import SystemSpec, build_front
from systems.slots import DEFAULTS
from workloads.agents import catalog
from workloads.agents.contract import Agent, Script, Suite, Task
from workloads.base import ProgramSet, ProgramSpec, WorkloadError
from workloads.sandboxes.catalog import sandbox_kind
from workloads.session import Session

CALLS_EACH = 20
"""Calls of a program, about: nobody knows before it runs. Only room on the disk is reckoned with it."""
T = TypeVar("T")


@dataclass(kw_only=True)
class AgentPlan(LivePlan):
    """``asked``: what agents are asked to do; ``guests``: the Python that they run in, and versions there."""

    asked: AgentOptions
    agent: Agent
    suite: Suite
    tasks: Sequence[Task]
    guests: Guests

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that decides what is measured; the tasks of a seed are in its ``programs``."""
        return {**super().identity, "agents": self.facts_of_agents(), "agent_code": agent_code()}

    def facts_of_agents(self) -> dict[str, Any]:
        """Who does what, where its tools run, and what answers it."""
        asked = self.asked
        return {
            "agent": asked.agent,
            "suite": self.suite.name,
            "sandbox": self.sandbox,
            **({"limits": {**asked.limits, "share": asked.share}} if self.sandbox else {}),
            "llm": "scripted" if asked.scripted else "model",
            **({"tool_parser": self.options.tool_parser} if self.options.tool_parser else {}),
            "budget": asdict(asked.budget),
            "parameters": dict(asked.parameters),
            "versions": dict(self.guests.versions),
            "sources": {name: source_hash(name) for name in (asked.agent, asked.suite) if ":" in name},
        }

    @property
    def sandbox(self) -> str:
        """Kind of the sandboxes; "" where the suite's tools need none."""
        return self.asked.sandbox if self.suite.needs_sandbox else ""

    @property
    def badge(self) -> str:
        """As of a live run, and who answers."""
        said = "replies scripted, engine work real" if self.asked.scripted else "replies of the model"
        where = f", tools in {self.sandbox}" if self.sandbox else ""
        return f"{super().badge}; agents: {said}{where}"

    @property
    def tools(self) -> str:
        """A real model's replies name them; behind a script they say nothing, and we do."""
        return "told" if self.asked.scripted else "reply"

    @cached_property
    def offline(self) -> Offline:
        """Nothing: what agents ask is not known before they run."""
        return Offline(0, 0, 0, 0, 0, 0, len(self.tasks), fixed=False)

    @property
    def calls_estimate(self) -> int:
        """A guess, for room on the disk."""
        return CALLS_EACH * len(self.tasks)

    def scripts(self) -> dict[int, Script]:
        """By program. Empty with a real model."""
        if not self.asked.scripted:
            return {}
        seed = self.config.seed
        return {number: self.agent.script(task, seed) for number, task in enumerate(self.tasks)}

    def details(self) -> dict[str, Any]:
        """The manifest's part beside the identity."""
        return {
            **super().details(),
            "agents": {**self.facts_of_agents(), "tasks": [t.name for t in self.tasks]},
        }


def agent_plan(config: RunConfig) -> AgentPlan:
    """Resolve a run of agents.

    Raises UsageError, or MissingError where this machine cannot do it: no vLLM, no sandboxes of that kind, no
    data, no such guest installed.
    """
    config = with_agent_defaults(config)
    options, asked = LiveOptions.of(config), AgentOptions.of(config)
    kind = device()
    config = replace(with_defaults(config, kind), replicas=options.engines(config))
    if not options.attach:
        check_model(config, kind)
    spec, limits = spec_of(config), config.limits()
    room = Room(limits["kv_blocks"], limits["max_model_len"])
    able = explained(lambda: serving(config, spec, room))
    check_served(spec, options)
    _check(spec)
    agent, suite = _chosen(asked)
    tasks = _tasks(suite, asked, config)
    programs = _programs(config, asked, agent, suite, tasks)
    return AgentPlan(
        config, programs, None, None, spec, able, options, served(config, options),
        asked=asked, agent=agent, suite=suite, tasks=tasks, guests=guests_of(agent),
    )  # fmt: skip


def _check(spec: SystemSpec) -> None:
    """Raises UsageError for systems about what agents have of their own."""
    if spec.environment != DEFAULTS["environment"]:
        raise UsageError(
            f"environment {spec.environment} prepares simulated sandboxes; those of agents are real, made "
            "by their host: leave it out"
        )
    if (front := build_front(spec)) is not None:
        raise UsageError(
            f"system {spec.name} has the front {front.requirement}, which is told of programs in its own "
            f"way, and {AGENTS} go through our gateway: take another system"
        )


def _chosen(asked: AgentOptions) -> tuple[Agent, Suite]:
    if not asked.agent:
        known = [
            f"{AGENTS}:{name} ({', '.join(catalog.agent(name).suites)})" for name in catalog.agent_names()
        ]
        raise UsageError(f"which agent? --workload takes one of (its tasks): {'; '.join(known)}")
    agent = _named(lambda: catalog.agent(asked.agent, asked.parameters))
    suite = _named(lambda: catalog.suite_of(agent, asked.suite))
    if why := suite.missing(asked.data):
        raise MissingError(f"-p tasks={suite.name}: {why}")
    if suite.needs_sandbox:
        sandbox = _named(lambda: sandbox_kind(asked.sandbox))
        if why := sandbox.missing():
            raise MissingError(f"-p sandbox={asked.sandbox}: {why}")
    return agent, suite


def _named(find: Callable[[], T]) -> T:
    try:
        return find()
    except (WorkloadError, LookupError) as error:
        raise UsageError(str(error.args[0] if error.args else error)) from None


def _tasks(suite: Suite, asked: AgentOptions, config: RunConfig) -> list[Task]:
    tasks = suite.tasks(config.n or 0, config.seed, asked.data)
    names = [task.name for task in tasks]
    if len(set(names)) != len(names) or len(names) != config.n:
        raise UsageError(
            f"suite {suite.name} gave {len(names)} tasks of {len(set(names))} names, not {config.n}"
        )
    return tasks


def _programs(
    config: RunConfig, asked: AgentOptions, agent: Agent, suite: Suite, tasks: Sequence[Task]
) -> ProgramSet:
    """A program per task. Its key is of the task's content, so that the cell's address changes with it."""
    parameters: dict[str, object] = {
        "tasks": suite.name, "sandbox": asked.sandbox if suite.needs_sandbox else "none",
        "llm": "scripted" if asked.scripted else "model", **asdict(asked.budget), **asked.parameters,
    }  # fmt: skip
    deciding = {name: value for name, value in parameters.items() if name != "sandbox"}
    digest = hashlib.sha256(json.dumps([asked.agent, deciding], sort_keys=True).encode()).hexdigest()
    specs = [ProgramSpec(i, agent.name, task_key(task), not_launched) for i, task in enumerate(tasks)]
    return ProgramSet(specs, config.workload, digest, parameters, None)


def task_key(task: Task) -> int:
    """64 bits of all that is plain data of a task."""
    solution = [[(a.text, [(n, dict(v)) for n, v in a.calls]) for a in turn] for turn in task.solution]
    parts = [task.name, task.system, list(task.turns), dict(task.files), solution, dict(task.data)]
    text = json.dumps(parts, sort_keys=True, default=repr)
    return int(hashlib.sha256(text.encode()).hexdigest()[:16], 16)


def not_launched(_: Session) -> NoReturn:
    """Agents have no coroutine of ours. Raises TypeError."""
    raise TypeError("an agent runs in its host, not in a session")


_HERE = Path(__file__).parent


@cache
def agent_code() -> str:
    """16 hex digits over the files of this folder."""
    digest = hashlib.sha256()
    for path in sorted(_HERE.glob("*.py")):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]

"""Engines and what stands in front of them: made from a plan, checked, flushed between cells."""

from __future__ import annotations

import contextlib
import json
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.files import explain
from bench.live.books import FrontLog
from bench.live.logs import Logs
from bench.live.options import TINY
from bench.live.plan import LivePlan
from bench.live.room import VISIBLE
from bench.live.served import python_of
from systems.catalog import build_front, build_retention
from systems.engines.vllm_server import ServerOptions, VllmServer
from systems.gateway.options import GatewayOptions, Target
from systems.gateway.process import GatewayProcess
from systems.provision.attach import Attached
from systems.provision.engine import LiveEngine
from systems.provision.front import FrontProcess
from systems.slots import DEFAULTS
from systems.vllm_host.control import Client
from systems.vllm_host.tiny import TinyLlama, write
from vocabulary import BLOCK

FLUSH_S = 10.0
EVENTS = "events.jsonl"
PLAIN_VOCABULARY = 1000
"""Token ids that any model has; which ones a prompt has does not matter to an engine."""


class Deployment:
    """Engines that are up, and a front (None: the only engine is called directly). Its own folder keeps logs.

    ``runs`` counts what was driven through it: no two runs have the same name. ``front`` may be replaced by
    one like it: only that of the system that is driven is up.
    """

    def __init__(self, engines: Sequence[LiveEngine], front: LiveEngine | None, plan: LivePlan) -> None:
        self.engines = list(engines)
        self.front = front
        self.third_party = build_front(plan.spec)
        self.model = plan.config.model
        self.vocabulary = TinyLlama().vocabulary - 1 if self.model == TINY else PLAIN_VOCABULARY
        self.logs = Logs(engines)
        self.front_log = _front_log(plan, front)
        self.runs = 0

    @property
    def url(self) -> str:
        """Where calls go."""
        return (self.front or self.engines[0]).url

    def check(self) -> None:
        """Raises EngineUnavailable, with its last words, if anything of it has ended."""
        for part in (*self.engines, *([self.front] if self.front else ())):
            part.check()

    def flush(self) -> str:
        """Empty the engines' prefix caches; why it could not be done, or nothing."""
        reasons = [why for engine in self.engines if (why := _flushed(engine.url))]
        return "; ".join(dict.fromkeys(reasons))

    def facts(self) -> dict[str, Any]:
        """For the manifest: every engine's, and the front's."""
        front = {"front": dict(self.front.facts())} if self.front else {}
        return {"engines": [dict(engine.facts()) for engine in self.engines], **front}

    def over(self, program: str) -> None:
        """A program is over: the engines are told, unless our gateway does it."""
        ours = self.front is not None and self.third_party is None
        for engine in () if ours else self.engines:
            if engine.control is not None:
                with contextlib.suppress(OSError, ValueError), Client(engine.control) as told:
                    told.send("end", program=program)


def _front_log(plan: LivePlan, front: LiveEngine | None) -> FrontLog | None:
    """Our gateway's, where it tells what no scheduler does: holds, what is kept, service over several
    engines."""
    ours = front is not None and plan.served.front == DEFAULTS["front"]
    tells = plan.config.replicas > 1 or any(
        getattr(plan.spec, slot) != DEFAULTS[slot] for slot in ("gate", "retention")
    )
    return FrontLog(front.folder / EVENTS) if front is not None and ours and tells else None


def _flushed(url: str) -> str:
    request = urllib.request.Request(f"{url}/reset_prefix_cache", method="POST")
    try:
        with urllib.request.urlopen(request, timeout=FLUSH_S):
            return ""
    except urllib.error.HTTPError as error:
        return f"POST /reset_prefix_cache answers {error.code}"
    except OSError as error:
        return f"POST /reset_prefix_cache: {error}"


def engine_key(plan: LivePlan) -> str:
    """Equal for plans that the same engines can serve."""
    engine, options = plan.engine, plan.options
    limits = (engine.kv_blocks, engine.max_num_seqs, engine.max_num_batched_tokens, engine.max_model_len)
    knobs = dict(plan.spec.scheduler_knobs)
    what = [
        options.how, str(options.python), options.attach, plan.config.model, plan.config.replicas,
        plan.spec.scheduler, knobs, engine.preemption, engine.prefix_cache, limits,
        _firm(plan), _tiny_name(plan) if plan.config.model == TINY else "", options.tool_parser,
    ]  # fmt: skip
    return json.dumps(what, sort_keys=True)


def make_engines(plan: LivePlan, folder: Path, gpus: Sequence[str]) -> list[LiveEngine]:
    """The plan's engines, not started; each has a folder of its own in ``folder``.

    ``gpus``: ids, with commas, of each engine's; "" on a CPU.
    """
    if plan.options.attach:
        return [Attached(url, folder=folder / f"engine-{i}") for i, url in enumerate(plan.options.attach)]
    alone = plan.config.replicas == 1
    found: list[LiveEngine] = []
    for i in range(plan.config.replicas):
        options = server_options(plan, folder, i, cores() if alone else (frozenset(), frozenset()))
        found.append(_engine(plan, options, folder / f"engine-{i}", gpus[i]))
    return found


def _engine(plan: LivePlan, options: ServerOptions, folder: Path, gpus: str) -> LiveEngine:
    if plan.options.how == "docker":
        from systems.provision.docker import ContainerOptions, ContainerServer

        return ContainerServer(options, folder, ContainerOptions(gpus=gpus))
    extra = {VISIBLE: gpus} if gpus else {}
    return VllmServer(options, folder, python=python_of(plan.options), extra=extra)


def swept() -> list[str]:
    """Remove containers of runs that are gone (killed, so that they could not); their names.

    Raises EngineUnavailable if there is no Docker engine.
    """
    from systems.provision.docker_engine import connect, leftovers, remove

    found = leftovers(connect())
    for container in found:
        remove(container)
    return [str(container.name) for container in found]


def server_options(
    plan: LivePlan, folder: Path, number: int, pinned: tuple[frozenset[int], frozenset[int]]
) -> ServerOptions:
    """How an engine is started; the model of the tiny one is written into ``folder``."""
    engine, size = plan.engine, plan.served.block_size
    limits: dict[str, Any] = {
        "kv_blocks": engine.kv_blocks * BLOCK // size,
        "block_size": size,
        "max_num_seqs": engine.max_num_seqs,
        "max_num_batched_tokens": engine.max_num_batched_tokens,
        "max_model_len": engine.max_model_len,
    }
    policy: dict[str, Any] = {
        "scheduler": plan.spec.scheduler,
        "knobs": dict(plan.spec.scheduler_knobs),
        "preemption": engine.preemption,
        "engine": number,
        "control": True,
        "host": {"firm": True} if _firm(plan) else {},
        "flags": _flags(plan),
    }
    if plan.served.kind == "gpu":
        return ServerOptions.on_gpu(_model(plan, folder), plan.config.model, **limits, **policy)
    first, others = pinned
    return ServerOptions(
        _model(plan, folder), plan.config.model, **limits, **policy, model_cores=first, other_cores=others
    )


def _flags(plan: LivePlan) -> tuple[str, ...]:
    """What no field of ServerOptions has."""
    parser = plan.options.tool_parser
    return (
        *(() if plan.engine.prefix_cache else ("--no-enable-prefix-caching",)),
        *(("--enable-auto-tool-choice", "--tool-call-parser", parser) if parser else ()),
    )


def _firm(plan: LivePlan) -> bool:
    """Whether newcomers wait in the engines for what the gateway has them keep."""
    return bool(getattr(build_retention(plan.spec), "firm", False))


def _model(plan: LivePlan, folder: Path) -> Path | str:
    if plan.config.model == TINY:
        try:
            return write(folder.parent / _tiny_name(plan), tiny_model(plan)).resolve()
        except OSError as error:
            raise explain(error, folder) from None
    path = Path(plan.config.model)
    return path.resolve() if path.is_dir() else plan.config.model


def tiny_model(plan: LivePlan) -> TinyLlama:
    """As long as the run may be; agents' has no end: their replies have scripted lengths in every API."""
    usual, longest = TinyLlama(), plan.engine.max_model_len
    return replace(usual, context=max(usual.context, longest), ends=not plan.config.agents)


def _tiny_name(plan: LivePlan) -> str:
    """Of its folder: runs of one pool may need several."""
    model, usual = tiny_model(plan), TinyLlama()
    longer = f"-{model.context}" if model.context != usual.context else ""
    return f"{TINY}{longer}{'' if model.ends else '-endless'}"


def cores() -> tuple[frozenset[int], frozenset[int]]:
    """(of the only engine's model, of all others); empty on a machine of one core.

    Several engines share all cores: which of them is busy changes from step to step.
    """
    mine = sorted(os.sched_getaffinity(0))
    return (frozenset(mine[:1]), frozenset(mine[1:])) if len(mine) > 1 else (frozenset(), frozenset())


def front_key(plan: LivePlan) -> str:
    """Equal for plans that the same front can serve, before the same engines."""
    return json.dumps([plan.served.front, plan.spec.digest, plan.config.system])


def make_front(plan: LivePlan, engines: Sequence[LiveEngine], folder: Path) -> LiveEngine | None:
    """What stands before the engines, which are up; None where there is nothing."""
    if plan.served.front == "none":
        return None
    if (third_party := build_front(plan.spec)) is not None:
        return FrontProcess(third_party, [engine.url for engine in engines], folder)
    options = GatewayOptions(
        tuple(_target(engine, plan) for engine in engines), plan.config.system, plan.config.router,
        knobs=plan.config.policy_knobs(), log=str((folder / EVENTS).resolve()),
        scheduler=plan.config.scheduler, tools=plan.tools,
    )  # fmt: skip
    return GatewayProcess(options, folder)


def _target(engine: LiveEngine, plan: LivePlan) -> Target:
    calls = None if engine.calls is None else str(engine.calls.resolve())
    return Target(
        engine.url, calls, engine.control, plan.engine.kv_blocks,
        max_num_batched_tokens=plan.engine.max_num_batched_tokens,
    )  # fmt: skip

"""What agents are asked to do: the workload ``agents:NAME`` and its parameters."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.agents import limits
from bench.config import AGENTS, RunConfig
from bench.errors import UsageError, unknown
from bench.live.options import TINY
from systems.vllm_host.smollm2.words import SOURCE
from workloads.agents.contract import Budget

CONCURRENCY, PROGRAMS = 8, 24
"""Where --concurrency and --n are not given."""
LIMITS: Mapping[str, int] = {
    "kv_blocks": 4096, "max_num_seqs": 8, "max_num_batched_tokens": 2048, "max_model_len": 32_768,
}  # fmt: skip
"""Of an engine with the tiny model, where none are given: guests' own prompts take 2 500 tokens, and grow."""
ANSWERS = ("scripted", "model")
PARAMETERS = ("tasks", "sandbox", "llm", "data", "calls", "seconds", "tool_s", *limits.PARAMETERS)
DEFAULT_SANDBOX = "bwrap"


@dataclass(frozen=True)
class AgentOptions:
    """``agent``: its name, or ``pkg.mod:NAME``. ``suite`` "": the agent's first. ``scripted``: a script
    answers in the model's place, while the engine computes. ``data``: folder of data sets. ``parameters``:
    all others, which are the agent's own. ``limits``: of its sandboxes (fields of ``SandboxOptions``), of
    which ``share`` programs share one."""

    agent: str
    suite: str
    sandbox: str
    scripted: bool
    data: Path | None
    budget: Budget
    parameters: Mapping[str, str]
    limits: Mapping[str, Any] = field(default_factory=dict)
    share: int = 1

    @classmethod
    def of(cls, config: RunConfig) -> AgentOptions:
        """From a run's workload and parameters. Raises UsageError naming the parameter."""
        said = dict(config.parameters)
        default = ANSWERS[0] if config.model == TINY else ANSWERS[1]
        llm = said.get("llm", default)
        if llm not in ANSWERS:
            raise unknown("-p llm", llm, ANSWERS)
        data, sandbox = said.get("data"), said.get("sandbox", DEFAULT_SANDBOX)
        return cls(
            agent=config.workload.partition(":")[2],
            suite=said.get("tasks", ""),
            sandbox=sandbox,
            scripted=llm == ANSWERS[0],
            data=None if data is None else _folder(data),
            budget=_budget(said),
            parameters={name: value for name, value in said.items() if name not in PARAMETERS},
            limits=limits.limits_of(said, sandbox),
            share=limits.share_of(said),
        )


def _folder(text: str) -> Path:
    path = Path(text)
    if not path.is_dir():
        raise UsageError(f"-p data={text}: there is no such folder")
    return path.resolve()


def _budget(said: Mapping[str, str]) -> Budget:
    usual = Budget()
    return Budget(
        calls=int(_number("calls", said.get("calls", str(usual.calls)), whole=True)),
        seconds=_number("seconds", said.get("seconds", str(usual.seconds))),
        tool_s=_number("tool_s", said.get("tool_s", str(usual.tool_s))),
    )


def _number(name: str, text: str, whole: bool = False) -> float:
    try:
        value = float(int(text)) if whole else float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        what = "a whole number of calls" if whole else "a number of seconds"
        raise UsageError(f"-p {name} must be {what} above 0, got {text!r}")
    return value


def with_agent_defaults(config: RunConfig) -> RunConfig:
    """The run with its load and limits said, so that its command line has them.

    Raises UsageError for what only programs with arrivals have.
    """
    if config.rate is not None or config.horizon is not None or config.arrivals != "poisson":
        raise UsageError(
            f"{AGENTS} run in a closed loop, {CONCURRENCY} at all times unless --concurrency says otherwise: "
            "leave --rate out, and give --n as a number of programs"
        )
    if config.on_overflow is not None:
        raise UsageError(f"--on-overflow is for programs that are known before; {AGENTS} are not")
    n = PROGRAMS if config.n is None else config.n
    if config.concurrency is not None and config.concurrency > n:
        raise UsageError(f"--concurrency {config.concurrency} needs at least as many programs; --n is {n}")
    limits = {f"engine.{name}": str(value) for name, value in LIMITS.items()} if config.model == TINY else {}
    return replace(
        config, n=n, concurrency=config.concurrency or min(CONCURRENCY, n),
        knobs={**limits, **_tool_parser(config), **config.knobs},
    )  # fmt: skip


def _tool_parser(config: RunConfig) -> dict[str, str]:
    """The knob for engines that we start with a model whose folder says how its replies name tools."""
    if "live.attach" in config.knobs:
        return {}
    try:
        said = json.loads((Path(config.model) / SOURCE).read_text(encoding="utf-8"))
        return {"live.tool_parser": str(said["tool_parser"])}
    except (OSError, ValueError, LookupError, TypeError):
        return {}

"""What a run is asked to be, checked before anything heavy is loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from bench.errors import UsageError, unknown
from workloads.arrivals import parse
from workloads.base import WorkloadError

LIVE_ENGINE = "vllm"
ENGINES = ("sim", "reference", "vllm-virtual", LIVE_ENGINE)
"""``vllm`` is a real server (docs/live-runs.md); the others run on virtual time."""
OVERFLOW = ("refuse", "skip", "truncate")
LIMITS = ("kv_blocks", "max_num_seqs", "max_num_batched_tokens", "max_model_len")
"""Engine limits that ``--knob engine.NAME=N`` sets."""
DECISIONS = "engine.record_decisions"
"""Knob: whether the log has a row per decision; false saves 13-20 % of a run's time, a third of its disk."""
FACTORS = ("latency.prefill", "latency.decode", "latency.overhead", "engine.kv_scale")
"""Factors on parts of a step's time (docs/latency.md), and on the KV blocks: knobs, too."""
CALIBRATION = "latency.calibration"
"""Knob: a shipped calibration or a file of ``bench calibrate``, which corrects step times."""
TOOL_CORES = "tools.cores"
"""Knob: cores on which the tools of all programs run (processor sharing); no limit where it is not given."""
LIVE = tuple(
    f"live.{name}" for name in ("how", "python", "attach", "front", "driver", "client", "load", "tool_parser")
)
"""Knobs: how live engines are run (``bench.live.options``)."""
AGENTS = "agents"
"""Workload: agents that decide, on live engines (``agents:react``; docs/agent-runs.md)."""
PRICE = "cost.per_hour"
"""Knob: what an engine costs an hour, for the cost per program of agents; it decides no result."""
MOST = {"n": 10_000_000, "replicas": 1_024}
"""More than this is refused: a slip of the hand, or more than memory holds."""
MOST_SEEDS = 10_000
_OWN_WORDS = ("system", "workload", "format", "knobs", "parameters", "horizon", "arrivals")


@dataclass(frozen=True)
class RunConfig:
    """One run. ``rate`` in programs per second (None: the workload's, or the recorded
    arrivals); ``concurrency`` programs at all times instead (closed loop).
    ``horizon``: seconds in which programs arrive, instead of a number ``n`` of them;
    ``arrivals``: poisson, gamma:cv=.., weibull:cv=.., ramp:to=.. (``workloads.arrivals``).
    ``knobs`` are ``SLOT.X`` (``scheduler.beta``), ``SLOT`` itself (``gate``: another policy), ``engine.X``,
    ``latency.X``, ``tools.cores``, ``live.X``; ``parameters`` the workload's.
    """

    system: str
    workload: str
    rate: float | None = None
    concurrency: int | None = None
    n: int | None = None
    seed: int = 1
    model: str = "llama-3.1-8b"
    gpu: str = "a100"
    replicas: int = 1
    engine: str = "sim"
    scheduler: str | None = None
    router: str | None = None
    knobs: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    on_overflow: str | None = None
    format: str | None = None
    out: Path = Path("results")
    horizon: float | None = None
    arrivals: str = "poisson"

    def __post_init__(self) -> None:
        _check(self)

    def with_seed(self, seed: int) -> RunConfig:
        """The same run with other programs."""
        return replace(self, seed=seed)

    def limits(self) -> dict[str, int]:
        """The engine limits among the knobs, as numbers."""
        found = {k.partition(".")[2]: v for k, v in self.knobs.items() if k.startswith("engine.")}
        return {name: _whole(name, found[name]) for name in LIMITS if name in found}

    def factors(self) -> dict[str, float]:
        """The factors among the knobs, by their last word (prefill, decode, overhead, kv_scale)."""
        return {k.partition(".")[2]: _factor(k, v) for k, v in self.knobs.items() if k in FACTORS}

    def records_decisions(self) -> bool:
        """Whether the event log keeps decisions."""
        text = self.knobs.get(DECISIONS, "true").lower()
        if text not in ("true", "false"):
            raise UsageError(f"{DECISIONS} must be true or false, got {text!r}")
        return text == "true"

    def tool_cores(self) -> float:
        """Cores for tools, INF for no limit."""
        text = self.knobs.get(TOOL_CORES, "inf")
        try:
            cores = float(text)
        except ValueError:
            cores = math.nan
        if not cores > 0:
            raise UsageError(f"{TOOL_CORES} must be a number of cores above 0, got {text!r}")
        return cores

    def calibration(self) -> str | None:
        """Name or file of the calibration, None if there is none."""
        return self.knobs.get(CALIBRATION)

    @property
    def agents(self) -> bool:
        """Whether agents run, instead of programs that are known before."""
        return self.workload.partition(":")[0] == AGENTS and self.format is None

    def price(self) -> float | None:
        """Of an engine, per hour in whatever currency; None: not given."""
        if (text := self.knobs.get(PRICE)) is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value >= 0):
            raise UsageError(f"{PRICE} must be what an engine costs an hour, 0 or more, got {text!r}")
        return value

    def policy_knobs(self) -> dict[str, str]:
        """The knobs that are the system's."""
        limits = (f"engine.{name}" for name in LIMITS)
        ours = {DECISIONS, CALIBRATION, TOOL_CORES, PRICE, *FACTORS, *LIVE, *limits}
        return {k: v for k, v in self.knobs.items() if k not in ours}

    def words(self, seeds: int = 1) -> list[str]:
        """The command line that repeats this run; values that are defaults are left out."""
        workload = f"{self.format}@{self.workload}" if self.format else self.workload
        words = ["bench", "run", "--system", self.system, "--workload", workload]
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name in _OWN_WORDS or value == item.default:
                continue
            if item.name == "gpu" and self.engine == LIVE_ENGINE:  # is what is here
                continue
            if item.name == "rate" and self.arrivals != "poisson":
                value = f"{self.arrivals}@{value}"
            words += [f"--{item.name.replace('_', '-')}", str(value)]
        if self.rate is None and self.arrivals != "poisson":
            words += ["--rate", self.arrivals]
        words += ["--n", f"{self.horizon:.12g}s"] if self.horizon is not None else []
        words += [w for k, v in self.knobs.items() for w in ("--knob", f"{k}={v}")]
        words += [w for k, v in self.parameters.items() for w in ("-p", f"{k}={v}")]
        return words + (["--seeds", str(seeds)] if seeds > 1 else [])


def _check(config: RunConfig) -> None:
    rate, concurrency = config.rate, config.concurrency
    if rate is not None and concurrency is not None:
        raise UsageError(
            "--rate and --concurrency contradict each other: an open loop has a rate, a closed loop a number "
            "of programs; give one of them"
        )
    if rate is not None and not (math.isfinite(rate) and rate > 0):
        raise UsageError(f"--rate must be a finite number of programs per second above 0, got {rate:g}")
    for name in ("concurrency", "n", "replicas"):
        value = getattr(config, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name} must be at least 1, got {value}")
        if value is not None and value > MOST.get(name, value):
            raise UsageError(f"--{name} must be at most {MOST[name]:,}, got {value:,}")
    _check_horizon(config)
    if config.seed < 0:
        raise UsageError(f"--seed must not be negative, got {config.seed}")
    if config.engine not in ENGINES:
        raise unknown("engine", config.engine, ENGINES)
    if config.on_overflow not in (None, *OVERFLOW):
        raise unknown("--on-overflow rule", str(config.on_overflow), OVERFLOW)
    config.limits()
    _check_factors(config)
    _check_live(config)
    config.records_decisions()
    config.tool_cores()
    _check_agents(config)


def _check_agents(config: RunConfig) -> None:
    if config.agents and config.engine != LIVE_ENGINE:
        raise UsageError(
            f"{config.workload}: what an agent asks is not known before it runs, so engine {config.engine} "
            "cannot serve it: give --engine vllm; to simulate agents, record a run of them (bench gateway "
            "--observe --record FOLDER) and run that folder"
        )
    if config.price() is not None and not config.agents:
        raise UsageError(f"{PRICE} is for agents (--workload agents:NAME): leave it out")


def _check_horizon(config: RunConfig) -> None:
    horizon, arrivals = config.horizon, config.arrivals
    if horizon is not None and not (math.isfinite(horizon) and horizon > 0):
        raise UsageError(f"the horizon (--n ..s) must be a finite number of seconds above 0, got {horizon:g}")
    if horizon is not None and config.n is not None:
        raise UsageError("give a number of programs or a horizon, not both")
    if config.concurrency is not None and (horizon is not None or arrivals != "poisson"):
        raise UsageError("in a closed loop (--concurrency) nothing arrives: give --n as a number of programs")
    try:
        parse(arrivals)
    except WorkloadError as error:
        raise UsageError(str(error)) from None


def _check_factors(config: RunConfig) -> None:
    parts = [*(name for name in FACTORS if name.startswith("latency.")), CALIBRATION]
    for name in config.knobs:
        if name.startswith("latency.") and name not in parts:
            raise unknown("knob", name, parts)
    config.factors()


def _check_live(config: RunConfig) -> None:
    for name in config.knobs:
        if name.startswith("live.") and name not in LIVE:
            raise unknown("knob", name, LIVE)
        if name.startswith("live.") and config.engine != LIVE_ENGINE:
            raise UsageError(f"{name} is for live engines: give --engine vllm, too, or leave it out")
        if name.startswith("latency.") and config.engine == LIVE_ENGINE:
            raise UsageError(f"{name} changes simulated step times; a live engine takes its own")


def _factor(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise UsageError(f"{name} must be a factor such as 1.15, got {text!r}") from None
    if not 0.1 <= value <= 10.0:
        raise UsageError(f"{name} must be a factor between 0.1 and 10, got {text}")
    return value


def _whole(name: str, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise UsageError(f"engine.{name} must be a whole number, got {text!r}") from None
    if value < 1:
        raise UsageError(f"engine.{name} must be at least 1, got {value}")
    return value


def programs_or_horizon(text: str | None) -> tuple[int | None, float | None]:
    """``--n``: "700" programs, or "900s" of arrivals, as (n, horizon). Raises UsageError."""
    if text is None:
        return None, None
    try:
        return (None, float(text[:-1])) if text.endswith("s") else (int(text), None)
    except ValueError:
        raise UsageError(f"--n takes a number of programs (700) or of seconds (900s), got {text!r}") from None


def programs_of_each(text: str | None) -> tuple[dict[str, int], int | None, float | None]:
    """``--n`` of a sweep: "mcts=4,32" is 4 programs of mcts and 32 of the others: (by workload, n, horizon).

    Raises UsageError.
    """
    own: dict[str, int] = {}
    rest: list[str] = []
    for word in (text or "").split(",") if text is not None else ():
        name, equals, count = word.partition("=")
        if not equals:
            rest.append(word)
        elif not count.isdecimal() or int(count) < 1 or name in own:
            raise UsageError(f"--n takes WORKLOAD=N once each, N at least 1 (mcts=4,32), got {word!r}")
        else:
            own[name] = int(count)
    if len(rest) > 1:
        raise UsageError(
            f"--n takes one number for all workloads that are not named, got {' and '.join(rest)}"
        )
    return own, *programs_or_horizon(rest[0] if rest else None)


def rate_and_arrivals(text: str | None) -> tuple[float | None, str]:
    """``--rate``: "0.5", "gamma:cv=3@0.5" or "gamma:cv=3", as (rate, arrivals). Raises UsageError."""
    if text is None:
        return None, "poisson"
    kind, at, number = text.rpartition("@")
    if not at and text[:1].isalpha() and text.lower() not in ("nan", "inf", "infinity"):
        return None, text
    try:
        return float(number), kind or "poisson"
    except ValueError:
        raise UsageError(
            f"--rate takes programs per second, with the kind of arrivals before it if not Poisson "
            f"(0.5 or gamma:cv=3@0.5), got {text!r}"
        ) from None


def subject(engine: str, model: str | None, gpu: str | None) -> tuple[str, str]:
    """(model, GPU) where they are not given: the latency table's, or what a live engine serves here."""
    if engine != LIVE_ENGINE:
        return model or RunConfig.model, gpu or RunConfig.gpu
    if gpu is not None:
        raise UsageError(
            "--gpu names a latency table's GPU; a live engine runs on what is here: leave it out"
        )
    from bench.live.options import TINY, device

    return model or TINY, device()


def pairs(items: list[str], option: str) -> dict[str, str]:
    """``["a=1", "b=2"]`` of a repeated option as a dictionary. Raises UsageError."""
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        name = name.strip()
        if not equals or not name or not value.strip():
            raise UsageError(f"{option} takes NAME=VALUE, got {item!r}")
        if name in found and found[name] != value.strip():
            raise UsageError(f"{option} {name} is given twice: {found[name]} and {value.strip()}")
        found[name] = value.strip()
    return found

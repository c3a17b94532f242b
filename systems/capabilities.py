"""Which engine can serve which system: exactly, by a named fallback, or not at all.

Pure data and functions; docs/systems.md prints the matrix. Nothing is
approximated silently: a fallback is named wherever a result is shown, and an
impossible pair is refused with what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

from systems.catalog import SystemSpec, build_front, build_retention
from systems.slots import DEFAULTS, Knob
from vocabulary import INF

ENGINES = ("sim", "reference", "vllm-virtual", "vllm")
"""``vllm`` is a vLLM server (V1) with our scheduler class; the others run on virtual time."""
EXACT, FALLBACK, IMPOSSIBLE = "exact", "fallback", "impossible"


class MissingCapability(Exception):
    """An engine cannot serve a system; one line: which, what is missing, and which engines can."""


class Fallback(NamedTuple):
    """``option`` was to be ``wanted`` and is ``used``, because of ``reason``."""

    option: str
    wanted: str
    used: str
    reason: str

    def __str__(self) -> str:
        return f"{self.option} {self.wanted} -> {self.used} ({self.reason})"


@dataclass(frozen=True, slots=True)
class Capability:
    """One option of a system on one engine. ``status``: exact, fallback or impossible;
    ``used`` is the value that a fallback takes, ``reason`` empty where it is exact."""

    option: str
    value: str
    status: str = EXACT
    reason: str = ""
    used: str = ""


class EngineOptions(TypedDict):
    """What an engine is to be made with, fallbacks done.

    The first four are fields of ``EngineConfig``. ``batched``: one copy per transfer;
    ``free``: moving costs nothing; ``swap_scale`` multiplies transfer times; ``host_gb``: room
    of host memory in 1e9 bytes, INF where ``free``.
    """

    chunked_prefill: bool
    schedule_every: int
    preemption: str
    host_tier: bool
    batched: bool
    free: bool
    swap_scale: float
    host_gb: float


@dataclass(frozen=True, slots=True)
class _Limit:
    """An engine does not do ``option`` with these ``values`` (empty: any above 1); see ``Capability``."""

    option: str
    values: tuple[Knob, ...]
    reason: str
    used: str = ""


_V1 = (
    _Limit("chunked_prefill", (False,), "vLLM V1 has no steps of whole prompts (V0's rule)"),
    _Limit("schedule_every", (), "vLLM V1 schedules at every step (no multi-step)"),
    _Limit("preemption", ("swap", "batched-swap", "free"), "vLLM V1 has no KV swap", "recompute"),
    _Limit("host_tier", (True,), "no KV tier in host memory"),
)
_LIMITS: dict[str, tuple[_Limit, ...]] = {"sim": (), "reference": (), "vllm-virtual": _V1, "vllm": _V1}
_OPTIONS = ("prefix_cache", "chunked_prefill", "schedule_every", "preemption", "host_tier")
_NO_CACHE_VIEW = "needs the prefix cache laid open to the policy, which a vLLM server does not do"
_NO_ORACLE = "needs to know how long replies will be, which a live server does not"
_NO_LINE = "who tools belong to does not see the gate's line on a live run"
_NO_FUTURE = "needs to know how long tools will take, which a live server does not"
_NOT_KEPT = "is decided in our gateway, whose place a third-party front takes"
_NO_CACHE = "keeps what is in the prefix cache, which is off"
_NOT_THE_GATEWAY = "gates act in our gateway, whose place a third-party front takes"
_NO_FRONT = "a third-party router is a process of its own, which virtual time cannot have"
_TEXT_ONLY = "it refuses prompts of token ids, which live runs send"
_OWN_TABLE = "a third-party front has no process table, and sends a program to several engines"


def capabilities(spec: SystemSpec, engine: str) -> list[Capability]:
    """Every slot and option of ``spec`` on ``engine``. Raises ValueError for an unknown engine."""
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}; it is one of {', '.join(ENGINES)}")
    rows = [_scheduler(spec, engine), _router(spec, engine), _gate(spec, engine)]
    rows += [_retention(spec, engine), _environment(spec, engine), *_front(spec, engine)]
    return rows + [_option(name, spec.engine_option(name), _LIMITS[engine]) for name in _OPTIONS]


def status(rows: Sequence[Capability]) -> str:
    """The worst of them."""
    return max((row.status for row in rows), key=(EXACT, FALLBACK, IMPOSSIBLE).index)


def summary(spec: SystemSpec, engine: str) -> str:
    """A cell of the matrix: ``exact``, ``swap -> recompute``, or ``no: `` and what is missing."""
    rows = capabilities(spec, engine)
    missing = [_missing(row) for row in rows if row.status == IMPOSSIBLE]
    if missing:
        return f"no: {', '.join(missing)}"
    return ", ".join(f"{row.value} -> {row.used}" for row in rows if row.status == FALLBACK) or EXACT


def check(spec: SystemSpec, engine: str) -> list[Fallback]:
    """The fallbacks with which ``engine`` serves ``spec``, [] for none.

    Raises MissingCapability if it cannot, ValueError for an unknown engine.
    """
    rows = capabilities(spec, engine)
    missing = [f"{_missing(row)}: {row.reason}" for row in rows if row.status == IMPOSSIBLE]
    if missing:
        able = [other for other in ENGINES if status(capabilities(spec, other)) != IMPOSSIBLE]
        where = f"engines that can: {', '.join(able)}" if able else "no engine here can yet"
        raise MissingCapability(
            f"system {spec.name} cannot run on engine {engine}: {'; '.join(missing)} ({where})"
        )
    return [Fallback(r.option, r.value, r.used, r.reason) for r in rows if r.status == FALLBACK]


def engine_options(spec: SystemSpec, engine: str) -> EngineOptions:
    """The options after fallbacks. Raises as ``check``."""
    used = {fallback.option: fallback.used for fallback in check(spec, engine)}
    preemption = used.get("preemption", str(spec.engine_option("preemption")))
    free = preemption == "free"
    return {
        "chunked_prefill": bool(spec.engine_option("chunked_prefill")),
        "schedule_every": int(_number(spec, "schedule_every")),
        "preemption": "swap" if preemption in ("batched-swap", "free") else preemption,
        "host_tier": bool(spec.engine_option("host_tier")),
        "batched": preemption == "batched-swap",
        "free": free,
        "swap_scale": _number(spec, "swap_scale"),
        "host_gb": INF if free else _number(spec, "host_gb"),
    }


def _number(spec: SystemSpec, name: str) -> float:
    value = spec.engine_option(name)
    assert isinstance(value, int | float)  # ``engine_options`` of the catalog checked it
    return value


def _scheduler(spec: SystemSpec, engine: str) -> Capability:
    reason = ""
    if spec.reads_cache and engine == "vllm":
        reason = _NO_CACHE_VIEW
    elif spec.clairvoyant and engine == "vllm":
        reason = _NO_ORACLE
    return Capability("scheduler", spec.scheduler, IMPOSSIBLE if reason else EXACT, reason)


def _router(spec: SystemSpec, engine: str) -> Capability:
    """On a live engine a third-party front routes; elsewhere ``_front`` says what stands in for it."""
    routed = engine == "vllm" and spec.front != DEFAULTS["front"]
    return Capability("router", spec.front if routed else spec.router)


def _gate(spec: SystemSpec, engine: str) -> Capability:
    name, reason = spec.gate, ""
    if name != DEFAULTS["gate"] and engine == "vllm" and spec.front != DEFAULTS["front"]:
        reason = _NOT_THE_GATEWAY
    return Capability("gate", name, IMPOSSIBLE if reason else EXACT, reason)


def _retention(spec: SystemSpec, engine: str) -> Capability:
    reason = ""
    if engine == "vllm" and getattr(build_retention(spec), "clairvoyant", False):
        reason = _NO_FUTURE
    elif engine == "vllm" and spec.keeps and spec.front != DEFAULTS["front"]:
        reason = _NOT_KEPT
    elif spec.keeps and spec.engine_option("prefix_cache") is False:
        reason = _NO_CACHE
    return Capability("retention", spec.retention, IMPOSSIBLE if reason else EXACT, reason)


def _environment(spec: SystemSpec, engine: str) -> Capability:
    """On a live run sandboxes are times, as tools are; one prepared near the gate's head is at arrival."""
    if engine == "vllm" and spec.environment == "prepare-ahead" and spec.gate != DEFAULTS["gate"]:
        return Capability("environment", spec.environment, FALLBACK, _NO_LINE, "at arrival")
    return Capability("environment", spec.environment)


def _front(spec: SystemSpec, engine: str) -> list[Capability]:
    front = build_front(spec)
    if front is None:
        return [Capability("front", spec.front)]
    if engine != "vllm":
        stand_in = front.counterpart()
        if stand_in is None:
            return [
                Capability(
                    "front", spec.front, IMPOSSIBLE, f"{_NO_FRONT}, and no router of ours does the same"
                )
            ]
        return [Capability("front", spec.front, FALLBACK, _NO_FRONT, _as_text(stand_in))]
    if not front.token_ids:
        return [Capability("front", spec.front, IMPOSSIBLE, _TEXT_ONLY)]
    if spec.scheduler == "fcfs":
        return [Capability("front", spec.front)]
    if not front.keeps_body:
        reason = f"it drops what scheduler {spec.scheduler} goes by from bodies (priority, vllm_xargs)"
        return [Capability("front", spec.front, IMPOSSIBLE, reason)]
    rows = [Capability("front", spec.front)]
    if not front.pins:
        rows.append(Capability("process table", "shared", FALLBACK, _OWN_TABLE, "one per engine"))
    return rows


def _as_text(slot: Mapping[str, object]) -> str:
    """``session-pinned by=hash``."""
    return " ".join(
        [str(slot["name"]), *(f"{knob}={value}" for knob, value in slot.items() if knob != "name")]
    )


def _option(name: str, value: Knob, limits: Sequence[_Limit]) -> Capability:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    for limit in limits:
        if limit.option != name:
            continue
        hit = value in limit.values if limit.values else isinstance(value, int) and value > 1
        if hit:
            return Capability(name, text, FALLBACK if limit.used else IMPOSSIBLE, limit.reason, limit.used)
    return Capability(name, text)


def _missing(row: Capability) -> str:
    return f"{row.option} {row.value}"

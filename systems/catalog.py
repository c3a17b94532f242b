"""Named systems: which scheduler, router, gate, retention, environment, front and engine options serve.

``catalog/NAME.toml`` is a system; one new file adds one, nothing else needs an
edit. A ``SystemSpec`` is data: every knob resolved, ready to be hashed and
rebuilt anywhere. The policies themselves are found by ``slots``.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from systems.engine_options import ENGINE_OPTIONS, engine_options
from systems.fronts.protocol import Front
from systems.process_table import ProcessTable
from systems.protocols import Environment, Gate, Retention, Router, Scheduler
from systems.slots import (
    DEFAULTS,
    CatalogError,
    Knob,
    Knobs,
    environment_names,
    front_names,
    gate_names,
    guest,
    make,
    policy_class,
    resolved,
    retention_names,
    router_names,
    scheduler_names,
    skip,
    skipped_files,
    unknown,
)

__all__ = [
    "DEFAULT_SYSTEM", "ENGINE_OPTIONS", "SLOTS", "CatalogError", "SystemSpec", "build_environment",
    "build_front", "build_gate", "build_retention", "build_router", "build_scheduler", "build_table",
    "environment_names", "front_names", "gate_names", "load_system", "retention_names", "router_names",
    "scheduler_names", "skipped", "system_names",
]  # fmt: skip

FOLDER = Path(__file__).with_suffix("")
DEFAULT_SYSTEM = "vllm-opt"
"""What fills the slots that a policy given alone leaves open."""
SLOTS = ("scheduler", "router", "gate", "retention", "environment", "front")
FRONT_ROUTES = "front"
"""The router of a system whose third-party front routes by a rule that no router of ours has."""
_Named = tuple[str, tuple[tuple[str, Knob], ...]]
"""A policy's name and knobs."""
_KEYS: dict[str, type] = {"description": str, "source": str, **dict.fromkeys(SLOTS, dict), "engine": dict}


@dataclass(frozen=True, slots=True)
class SystemSpec:
    """A system with every knob resolved (knobs as sorted (name, value) pairs).

    ``unit`` and ``rule`` say how its process table counts; ``clairvoyant``
    whether the host must tell calls their own and their program's remaining work;
    ``reads_cache`` and ``reads_prompt`` what scheduler and router ask for (systems/protocols.py).
    Where ``front`` is a third party, ``router`` is what stands in for it on virtual time.
    """

    name: str
    description: str
    source: str
    scheduler: str
    scheduler_knobs: tuple[tuple[str, Knob], ...]
    router: str
    router_knobs: tuple[tuple[str, Knob], ...]
    gate: str
    gate_knobs: tuple[tuple[str, Knob], ...]
    retention: str
    retention_knobs: tuple[tuple[str, Knob], ...]
    environment: str
    environment_knobs: tuple[tuple[str, Knob], ...]
    front: str
    front_knobs: tuple[tuple[str, Knob], ...]
    engine: tuple[tuple[str, Knob], ...]
    unit: str
    rule: str
    clairvoyant: bool
    reads_cache: bool
    reads_prompt: bool

    @property
    def digest(self) -> str:
        """16 hex digits over everything that decides: policies, knobs, options; not the name.

        Our own front and no environment add nothing: results from before there were others keep their digest.
        """
        younger = ("environment", "front")
        deciding = [s for s in SLOTS if s not in younger or getattr(self, s) != DEFAULTS[s]]
        slots = [(getattr(self, slot), getattr(self, f"{slot}_knobs")) for slot in deciding]
        return hashlib.sha256(json.dumps([slots, self.engine]).encode()).hexdigest()[:16]

    @property
    def keeps(self) -> bool:
        """Whether engines must be able to keep or drop what programs left (``EngineConfig.retains``)."""
        return self.retention != DEFAULTS["retention"] or bool(dict(self.gate_knobs).get("pause_frees_kv"))

    def engine_option(self, name: str) -> Knob:
        """The value of an engine option, such as ``prefix_cache``."""
        return dict(self.engine)[name]


def system_names() -> list[str]:
    """The catalog's systems that can be loaded, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.toml") if _sound(path))


def skipped() -> dict[str, str]:
    """Files of the catalog and of the slots' folders that cannot be loaded: why, by place."""
    policies = (scheduler_names, router_names, gate_names, retention_names, environment_names, front_names)
    for names in (system_names, *policies):
        names()
    return skipped_files()


def load_system(
    name: str,
    scheduler: str | None = None,
    router: str | None = None,
    knobs: Knobs = {},
    *,
    gate: str | None = None,
    retention: str | None = None,
    environment: str | None = None,
    front: str | None = None,
) -> SystemSpec:
    """The system ``name``: of the catalog, or ``pkg.mod:Class``, a policy of any kind.

    The others replace a slot (its knobs in the catalog go with it; a third-party ``front``
    takes the router away, too). ``knobs`` maps "scheduler.beta", "router.x",
    "engine.prefix_cache" to values; text is parsed ("inf", "1,2,3", "true"); "gate" alone, without a dot,
    replaces that slot, too. Raises CatalogError.
    """
    table = _read(name)
    given = {"front": front, "scheduler": scheduler, "router": router, "gate": gate, "retention": retention,
             "environment": environment}  # fmt: skip
    given |= {slot: str(knobs[slot]) for slot in given if slot in knobs}
    knobs = {path: value for path, value in knobs.items() if path not in SLOTS}
    for slot, other in given.items():
        if other is not None and other != table.get(slot, {}).get("name"):
            _replace(table, slot, other)
    _override(table, knobs)
    return _spec(name, table, f"system {name}")


def build_table(spec: SystemSpec) -> ProcessTable:
    """An empty process table that counts as the system's scheduler does."""
    return ProcessTable(spec.rule)


def build_scheduler(spec: SystemSpec, table: ProcessTable | None = None) -> Scheduler:
    """A new scheduler for one engine; ``table``: the deployment's, None for its own."""
    cls = policy_class("scheduler", spec.scheduler, spec.name)
    shared = {"table": table} if "table" in inspect.signature(cls).parameters else {}
    return cast(Scheduler, cls(**dict(spec.scheduler_knobs), **shared))


def build_router(spec: SystemSpec) -> Router:
    """A new router for one deployment. Raises CatalogError where only the system's front can route."""
    if spec.router == FRONT_ROUTES:
        raise CatalogError(f"system {spec.name}: its front {spec.front} routes as no router of ours does")
    return cast(Router, policy_class("router", spec.router, spec.name)(**dict(spec.router_knobs)))


def build_gate(spec: SystemSpec) -> Gate:
    """A new gate for one deployment."""
    return cast(Gate, policy_class("gate", spec.gate, spec.name)(**dict(spec.gate_knobs)))


def build_retention(spec: SystemSpec) -> Retention:
    """A new retention policy for one deployment."""
    return cast(Retention, policy_class("retention", spec.retention, spec.name)(**dict(spec.retention_knobs)))


def build_environment(spec: SystemSpec) -> Environment:
    """A new environment policy for one deployment."""
    cls = policy_class("environment", spec.environment, spec.name)
    return cast(Environment, cls(**dict(spec.environment_knobs)))


def build_front(spec: SystemSpec) -> Front | None:
    """The third-party router in front of the engines; None: our gateway."""
    if spec.front == DEFAULTS["front"]:
        return None
    return cast(Front, policy_class("front", spec.front, spec.name)(**dict(spec.front_knobs)))


def _sound(path: Path) -> bool:
    """Whether a file of the catalog is a system."""
    try:
        _parsed(path)
    except (CatalogError, OSError) as error:
        skip(f"systems/catalog/{path.name}", error)
        return False
    return True


def _read(name: str) -> dict[str, Any]:
    """A system's table, checked as it stands in its file."""
    if ":" in name:
        kind, _ = guest(name)
        about = {"description": f"{name}, the rest as {DEFAULT_SYSTEM}", "source": name}
        table = {**_read(DEFAULT_SYSTEM), **about}
        _replace(table, kind, name)
        return table
    if name not in (path.stem for path in FOLDER.glob("*.toml")):
        raise CatalogError(unknown("system", name, system_names()))
    return _parsed(FOLDER / f"{name}.toml")


def _parsed(path: Path) -> dict[str, Any]:
    place = f"systems/catalog/{path.name}"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CatalogError(f"{place}: not valid TOML: {error}") from error
    table = {**{slot: {"name": name} for slot, name in DEFAULTS.items()}, **table}
    _check_keys(table, place)
    _spec(path.stem, table, place)
    return table


def _check_keys(table: Mapping[str, Any], place: str) -> None:
    for key, value in table.items():
        if key not in _KEYS:
            raise CatalogError(f"{place}: {unknown('key', key, _KEYS)}")
        if not isinstance(value, _KEYS[key]):
            wanted = "a table" if _KEYS[key] is dict else "text"
            raise CatalogError(f"{place}: {key} must be {wanted}, got {value!r}")
    for key in ("description", "source", "scheduler"):
        if key not in table:
            raise CatalogError(f"{place}: {key} is missing")
    for slot in SLOTS:
        if slot in table and not isinstance(table[slot].get("name"), str):
            raise CatalogError(f"{place}: [{slot}] needs a name")


def _replace(table: dict[str, Any], slot: str, name: str) -> None:
    table[slot] = {"name": name}
    if slot == "front" and name != DEFAULTS["front"]:
        table.pop("router", None)


def _override(table: dict[str, Any], knobs: Knobs) -> None:
    for path, value in knobs.items():
        slot, dot, knob = path.partition(".")
        if slot not in (*SLOTS, "engine") or not dot or knob == "name":
            raise CatalogError(
                f"a knob is named {', '.join(f'{name}.KNOB' for name in SLOTS)} or engine.KNOB, "
                f"such as scheduler.beta; got {path!r}"
            )
        table[slot] = {**table.get(slot, {}), knob: _parse(value) if isinstance(value, str) else value}


def _parse(text: str) -> object:
    """A value written on a command line: true/false, a number, a list of values, or the text."""
    text = text.strip()
    if text.startswith("[") or "," in text:
        return tuple(_parse(part) for part in text.strip("[]").split(",") if part.strip())
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _spec(name: str, table: Mapping[str, Any], place: str) -> SystemSpec:
    """Every slot made or looked up, which checks it."""
    scheduler = cast(Scheduler, make("scheduler", table["scheduler"], place))
    router, reads_prompt = _router(table, place)
    gate, retention, environment, front = (_policy(slot, table[slot], place) for slot in SLOTS[2:])
    return SystemSpec(
        name=name,
        description=table["description"],
        source=table["source"],
        scheduler=table["scheduler"]["name"],
        scheduler_knobs=resolved(scheduler),
        router=router[0],
        router_knobs=router[1],
        gate=gate[0],
        gate_knobs=gate[1],
        retention=retention[0],
        retention_knobs=retention[1],
        environment=environment[0],
        environment_knobs=environment[1],
        front=front[0],
        front_knobs=front[1],
        engine=engine_options(table.get("engine", {}), place),
        unit=scheduler.unit,
        rule=getattr(scheduler, "rule", "sum"),
        clairvoyant=scheduler.clairvoyant,
        reads_cache=bool(getattr(scheduler, "reads_cache", False)),
        reads_prompt=reads_prompt,
    )


def _policy(slot: str, given: Mapping[str, Any], place: str) -> _Named:
    """A gate, retention, environment or front: made, which checks its knobs; our own front has none."""
    name = given["name"]
    if (slot, name) == ("front", DEFAULTS["front"]):
        if knob := next((knob for knob in given if knob != "name"), None):
            raise CatalogError(f"{place}: {unknown(f'{name} knob', knob, ())}")
        return name, ()
    return name, resolved(make(slot, given, place))


def _router(table: Mapping[str, Any], place: str) -> tuple[_Named, bool]:
    """The router and whether it reads prompts; behind a third-party front the one that stands in for it."""
    front, given = table["front"], table.get("router")
    if front["name"] == DEFAULTS["front"]:
        if given is None:
            raise CatalogError(f"{place}: router is missing")
    elif given is not None:
        raise CatalogError(f"{place}: front {front['name']} chooses engines itself: leave the router out")
    else:
        given = cast(Front, make("front", front, place)).counterpart()
    if given is None:
        return (FRONT_ROUTES, ()), False
    router = make("router", given, place)
    return (given["name"], resolved(router)), bool(getattr(router, "reads_prompt", False))

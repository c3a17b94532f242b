"""Named systems: which scheduler, router and engine options serve.

``catalog/NAME.toml`` is a system, ``schedulers/*.py`` with a module-level
``SCHEDULER`` and ``routers/*.py`` with a ``ROUTER`` are policies; one new file
adds one, nothing else needs an edit. One that cannot be loaded is skipped with a
line on stderr, and is an error only where it is the one asked for.
``pkg.mod:Class`` names a policy outside the project. A ``SystemSpec`` is data:
every knob resolved, ready to be hashed and rebuilt anywhere.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from systems.process_table import ProcessTable
from systems.protocols import Router, Scheduler

FOLDER = Path(__file__).with_suffix("")
DEFAULT_SYSTEM = "vllm-opt"
"""What fills the slots that a policy given alone leaves open."""
ENGINE_OPTIONS: dict[str, bool] = {"prefix_cache": True}
"""Engine options a system may set, with their defaults."""

Knob = float | bool | str | tuple[float, ...]
Knobs = Mapping[str, object]
_METHODS = {"scheduler": ("arrive", "expire", "due", "finish", "abort"), "router": ("route",)}
_MEMBERS = {
    "scheduler": ("name", "unit", "clairvoyant", "tracks_wait", "start", "stop", "next_due", "end"),
    "router": ("name",),
}
_SKIPPED: dict[str, str] = {}
"""Files that could not be loaded and why, by their place."""
_KEYS = {"description": str, "source": str, "scheduler": dict, "router": dict, "engine": dict}


class CatalogError(ValueError):
    """An unknown system, policy or knob, or a bad value: where, and the nearest that exists."""


@dataclass(frozen=True, slots=True)
class SystemSpec:
    """A system with every knob resolved (knobs as sorted (name, value) pairs).

    ``unit`` and ``rule`` say how its process table counts; ``clairvoyant``
    whether the host must tell calls their program's remaining work.
    """

    name: str
    description: str
    source: str
    scheduler: str
    scheduler_knobs: tuple[tuple[str, Knob], ...]
    router: str
    router_knobs: tuple[tuple[str, Knob], ...]
    engine: tuple[tuple[str, Knob], ...]
    unit: str
    rule: str
    clairvoyant: bool

    @property
    def digest(self) -> str:
        """16 hex digits over everything that decides: policies, knobs, options; not the name."""
        parts = [self.scheduler, self.scheduler_knobs, self.router, self.router_knobs, self.engine]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def engine_option(self, name: str) -> Knob:
        """The value of an engine option, such as ``prefix_cache``."""
        return dict(self.engine)[name]


def system_names() -> list[str]:
    """The catalog's systems that can be loaded, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.toml") if _sound(path))


def skipped() -> dict[str, str]:
    """Files of the catalog, schedulers and routers that cannot be loaded: why, by place."""
    for names in (system_names, scheduler_names, router_names):
        names()
    return dict(_SKIPPED)


def scheduler_names() -> list[str]:
    """The schedulers found in ``systems/schedulers``, sorted."""
    return sorted(_found("scheduler"))


def router_names() -> list[str]:
    """The routers found in ``systems/routers``, sorted."""
    return sorted(_found("router"))


def load_system(
    name: str, scheduler: str | None = None, router: str | None = None, knobs: Knobs = {}
) -> SystemSpec:
    """The system ``name``: of the catalog, or ``pkg.mod:Class``, a policy of any kind.

    ``scheduler`` and ``router`` replace a slot (its knobs in the catalog go
    with it). ``knobs`` maps "scheduler.beta", "router.x", "engine.prefix_cache"
    to values; text is parsed ("inf", "1,2,3", "true"). Raises CatalogError.
    """
    table = _read(name)
    for slot, other in (("scheduler", scheduler), ("router", router)):
        if other is not None and other != table[slot]["name"]:
            table[slot] = {"name": other}
    _override(table, knobs)
    policy, switch, engine = _assemble(table, f"system {name}")
    return SystemSpec(
        name=name,
        description=table["description"],
        source=table["source"],
        scheduler=table["scheduler"]["name"],
        scheduler_knobs=_resolved(policy),
        router=table["router"]["name"],
        router_knobs=_resolved(switch),
        engine=engine,
        unit=policy.unit,
        rule=getattr(policy, "rule", "sum"),
        clairvoyant=policy.clairvoyant,
    )


def build_table(spec: SystemSpec) -> ProcessTable:
    """An empty process table that counts as the system's scheduler does."""
    return ProcessTable(spec.rule)


def build_scheduler(spec: SystemSpec, table: ProcessTable | None = None) -> Scheduler:
    """A new scheduler for one engine; ``table``: the deployment's, None for its own."""
    cls = _policy("scheduler", spec.scheduler, spec.name)
    shared = {"table": table} if "table" in inspect.signature(cls).parameters else {}
    return cast(Scheduler, cls(**dict(spec.scheduler_knobs), **shared))


def build_router(spec: SystemSpec) -> Router:
    """A new router for one deployment."""
    return cast(Router, _policy("router", spec.router, spec.name)(**dict(spec.router_knobs)))


@cache
def _found(kind: str) -> dict[str, Any]:
    """The classes of one kind by name: modules of its folder with the marker attribute."""
    found: dict[str, Any] = {}
    for path in sorted((FOLDER.parent / f"{kind}s").glob("*.py")):
        try:
            cls = getattr(import_module(f"systems.{kind}s.{path.stem}"), kind.upper(), None)
            if cls is not None:
                _built(kind, path.stem, cls, {}, kind)
                found[cls.name] = cls
        except (Exception, SystemExit) as error:  # whatever a half-written file raises is about that file
            _skip(f"systems/{kind}s/{path.name}", error)
    return found


def _skip(place: str, error: BaseException) -> None:
    text = " ".join(str(error).split())
    line = (
        text.removeprefix(f"{place}: ")
        if isinstance(error, CatalogError)
        else f"{type(error).__name__}: {text}"
    )
    if place not in _SKIPPED:
        print(f"warning: skipped {place}: {line}", file=sys.stderr)
    _SKIPPED[place] = line


def _sound(path: Path) -> bool:
    """Whether a file of the catalog is a system."""
    try:
        _parsed(path)
    except (CatalogError, OSError) as error:
        _skip(f"systems/catalog/{path.name}", error)
        return False
    return True


def _read(name: str) -> dict[str, Any]:
    """A system's table, checked as it stands in its file."""
    if ":" in name:
        kind = _kind(name, _imported(name))
        about = {"description": f"{name}, the rest as {DEFAULT_SYSTEM}", "source": name}
        return {**_read(DEFAULT_SYSTEM), **about, kind: {"name": name}}
    if name not in (path.stem for path in FOLDER.glob("*.toml")):
        raise CatalogError(_unknown("system", name, system_names()))
    return _parsed(FOLDER / f"{name}.toml")


def _parsed(path: Path) -> dict[str, Any]:
    place = f"systems/catalog/{path.name}"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CatalogError(f"{place}: not valid TOML: {error}") from error
    _check_keys(table, place)
    _assemble(table, place)
    return table


def _check_keys(table: Mapping[str, Any], place: str) -> None:
    for key, value in table.items():
        if key not in _KEYS:
            raise CatalogError(f"{place}: {_unknown('key', key, _KEYS)}")
        if not isinstance(value, _KEYS[key]):
            wanted = "a table" if _KEYS[key] is dict else "text"
            raise CatalogError(f"{place}: {key} must be {wanted}, got {value!r}")
    for key in ("description", "source", "scheduler", "router"):
        if key not in table:
            raise CatalogError(f"{place}: {key} is missing")
    for slot in ("scheduler", "router"):
        if not isinstance(table[slot].get("name"), str):
            raise CatalogError(f"{place}: [{slot}] needs a name")


def _override(table: dict[str, Any], knobs: Knobs) -> None:
    for path, value in knobs.items():
        slot, dot, knob = path.partition(".")
        if slot not in ("scheduler", "router", "engine") or not dot or knob == "name":
            raise CatalogError(
                f"a knob is named scheduler.KNOB, router.KNOB or engine.KNOB, "
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


def _assemble(table: Mapping[str, Any], place: str) -> tuple[Scheduler, Router, tuple[tuple[str, Knob], ...]]:
    scheduler = _make("scheduler", table["scheduler"], place)
    router = _make("router", table["router"], place)
    return cast(Scheduler, scheduler), cast(Router, router), _engine(table.get("engine", {}), place)


def _make(kind: str, slot: Mapping[str, Any], place: str) -> object:
    """An instance of a slot's policy, which checks its knobs."""
    name = slot["name"]
    knobs = {knob: value for knob, value in slot.items() if knob != "name"}
    return _built(kind, name, _policy(kind, name, place), knobs, place)


def _built(kind: str, name: str, cls: Any, knobs: Knobs, place: str) -> object:
    known = _knob_names(cls)
    for knob in knobs:
        if knob not in known:
            raise CatalogError(f"{place}: {_unknown(f'{name} knob', knob, known)}")
    try:
        policy = cls(**knobs)
    except (ValueError, TypeError) as error:
        raise CatalogError(f"{place}: [{kind}] {name}: {error}") from error
    missing = [m for m in (*_MEMBERS[kind], *known) if not hasattr(policy, m)]
    if missing:
        raise CatalogError(f"{place}: {kind} {name} lacks {', '.join(missing)} (see systems/protocols.py)")
    return cast(object, policy)


def _policy(kind: str, name: str, place: str) -> Any:
    if ":" not in name:
        found = _found(kind)
        if name not in found:
            broken = f"systems/{kind}s/{name.replace('-', '_')}.py"
            if broken in _SKIPPED:
                raise CatalogError(f"{broken} cannot be loaded: {_SKIPPED[broken]}")
            raise CatalogError(f"{place}: {_unknown(kind, name, found)}")
        return found[name]
    cls = _imported(name)
    if _kind(name, cls) != kind:
        raise CatalogError(f"{name} is a {_kind(name, cls)}, not a {kind}")
    return cls


def _imported(name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        found = import_module(module)
    except Exception as error:  # whatever a guest's module raises is about the guest
        raise CatalogError(f"cannot import {module!r} of {name!r}: {error!r}") from error
    if not hasattr(found, attribute):
        raise CatalogError(f"{module} has no {attribute!r}; give pkg.mod:Class")
    return getattr(found, attribute)


def _kind(name: str, cls: Any) -> str:
    """Which protocol a class follows."""
    if not callable(cls):
        raise CatalogError(f"{name} must be a class (every engine gets its own object), got {cls!r}")
    for kind, methods in _METHODS.items():
        if all(hasattr(cls, method) for method in methods):
            return kind
    wanted = "; ".join(f"a {kind} has {', '.join(methods)}" for kind, methods in _METHODS.items())
    raise CatalogError(f"{name} is no policy: {wanted}")


def _knob_names(cls: Any) -> list[str]:
    parameters = inspect.signature(cls).parameters.values()
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.name != "table" and p.kind in named]


def _resolved(policy: object) -> tuple[tuple[str, Knob], ...]:
    """A policy keeps each knob, checked, in an attribute of the knob's name."""
    pairs = ((knob, getattr(policy, knob)) for knob in sorted(_knob_names(type(policy))))
    return tuple((knob, tuple(value) if isinstance(value, list) else value) for knob, value in pairs)


def _engine(options: Mapping[str, object], place: str) -> tuple[tuple[str, Knob], ...]:
    for key, value in options.items():
        if key not in ENGINE_OPTIONS:
            raise CatalogError(f"{place}: {_unknown('engine option', key, ENGINE_OPTIONS)}")
        if not isinstance(value, bool):
            raise CatalogError(f"{place}: engine.{key} must be true or false, got {value!r}")
    return tuple(sorted(cast(dict[str, Knob], {**ENGINE_OPTIONS, **options}).items()))


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    known = sorted(known)
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]}? " if near else ""
    return f"unknown {what} {name!r}. {hint}Known: {', '.join(known) or 'none'}"

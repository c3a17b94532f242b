"""The slots of a system: policies found by scanning, imported, made and checked.

``schedulers/*.py`` with a module-level ``SCHEDULER``, ``routers/*.py`` with a ``ROUTER``,
``gates/*.py`` with a ``GATE``, ``retentions/*.py`` with a ``RETENTION``, ``environments/*.py`` with an
``ENVIRONMENT`` and ``fronts/*.py`` with a ``FRONT`` are found: one new file
adds one, nothing else needs an edit. One that cannot be loaded is skipped with a line on
stderr, and is an error only where it is the one asked for. ``pkg.mod:Class`` names a policy
outside the project.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, cast

ROOM = Path(__file__).parent
DEFAULTS = {"gate": "open", "retention": "lru", "environment": "none", "front": "gateway"}
"""What a system does that says nothing: programs run when they arrive, KV goes least recently used first,
tools need no sandbox, and our own gateway stands between clients and engines."""

Knob = float | bool | str | tuple[float, ...]
Knobs = Mapping[str, object]
_METHODS = {
    "scheduler": ("arrive", "expire", "due", "finish", "abort"),
    "router": ("route",),
    "gate": ("request", "finish", "abort", "end", "next_tick", "tick"),
    "retention": ("idle", "victims"),
    "environment": ("arrive", "held", "resume", "keep"),
    "front": ("command", "headers", "end", "counterpart"),
}
_MEMBERS = {
    "scheduler": ("name", "unit", "clairvoyant", "tracks_wait", "start", "stop", "next_due", "end"),
    "router": ("name",),
    "gate": ("name", *_METHODS["gate"]),
    "retention": ("name", *_METHODS["retention"]),
    "environment": ("name", *_METHODS["environment"]),
    "front": ("name", "requirement", "health", "token_ids", "keeps_body", "pins", *_METHODS["front"]),
}
_OPTIONAL: dict[str, dict[str, tuple[str, ...]]] = {
    "scheduler": {"reads_cache": ("attach",)},
    "gate": {"places": ("place",), "counts": ("count",)},
    "retention": {"watches": ("look", "called", "back", "end")},
}
"""What a policy must have, too, if it declares something (systems/protocols.py)."""
_SKIPPED: dict[str, str] = {}
"""Files that could not be loaded and why, by their place."""


class CatalogError(ValueError):
    """An unknown system, policy or knob, or a bad value: where, and the nearest that exists."""


def scheduler_names() -> list[str]:
    """The schedulers found in ``systems/schedulers``, sorted."""
    return sorted(found("scheduler"))


def router_names() -> list[str]:
    """The routers found in ``systems/routers``, sorted."""
    return sorted(found("router"))


def gate_names() -> list[str]:
    """The gates found in ``systems/gates``, sorted."""
    return sorted(found("gate"))


def retention_names() -> list[str]:
    """The retention policies found in ``systems/retentions``, sorted."""
    return sorted(found("retention"))


def environment_names() -> list[str]:
    """The environment policies found in ``systems/environments``, sorted."""
    return sorted(found("environment"))


def front_names() -> list[str]:
    """The third-party fronts found in ``systems/fronts``, sorted."""
    return sorted(found("front"))


@cache
def found(kind: str) -> dict[str, Any]:
    """The classes of one kind by name: modules of its folder with the marker attribute."""
    classes: dict[str, Any] = {}
    for path in sorted((ROOM / f"{kind}s").glob("*.py")):
        try:
            cls = getattr(import_module(f"systems.{kind}s.{path.stem}"), kind.upper(), None)
            if cls is not None:
                _built(kind, path.stem, cls, {}, kind)
                classes[cls.name] = cls
        except (Exception, SystemExit) as error:  # whatever a half-written file raises is about that file
            skip(f"systems/{kind}s/{path.name}", error)
    return classes


def skip(place: str, error: BaseException) -> None:
    """Leave out a file that cannot be loaded, and say so once."""
    text = " ".join(str(error).split())
    line = (
        text.removeprefix(f"{place}: ")
        if isinstance(error, CatalogError)
        else f"{type(error).__name__}: {text}"
    )
    if place not in _SKIPPED:
        print(f"warning: skipped {place}: {line}", file=sys.stderr)
    _SKIPPED[place] = line


def skipped_files() -> dict[str, str]:
    """Files that have been skipped so far: why, by place."""
    return dict(_SKIPPED)


def make(kind: str, slot: Mapping[str, Any], place: str) -> object:
    """An instance of a slot's policy, which checks its knobs. Raises CatalogError."""
    name = slot["name"]
    knobs = {knob: value for knob, value in slot.items() if knob != "name"}
    return _built(kind, name, policy_class(kind, name, place), knobs, place)


def _built(kind: str, name: str, cls: Any, knobs: Knobs, place: str) -> object:
    known = knob_names(cls)
    for knob in knobs:
        if knob not in known:
            raise CatalogError(f"{place}: {unknown(f'{name} knob', knob, known)}")
    try:
        policy = cls(**knobs)
    except (ValueError, TypeError) as error:
        raise CatalogError(f"{place}: [{kind}] {name}: {error}") from error
    missing = [m for m in (*_MEMBERS[kind], *known) if not hasattr(policy, m)]
    for flag, methods in _OPTIONAL.get(kind, {}).items():
        if getattr(policy, flag, False):
            missing += [method for method in methods if not hasattr(policy, method)]
    if missing:
        raise CatalogError(f"{place}: {kind} {name} lacks {', '.join(missing)} (see systems/protocols.py)")
    return cast(object, policy)


def policy_class(kind: str, name: str, place: str) -> Any:
    """The class of a policy of the folder, or from outside. Raises CatalogError."""
    if ":" not in name:
        classes = found(kind)
        if name not in classes:
            broken = f"systems/{kind}s/{name.replace('-', '_')}.py"
            if broken in _SKIPPED:
                raise CatalogError(f"{broken} cannot be loaded: {_SKIPPED[broken]}")
            known = {*classes, *filter(None, [DEFAULTS.get(kind)])}
            raise CatalogError(f"{place}: {unknown(kind, name, known)}")
        return classes[name]
    kind_found, cls = guest(name)
    if kind_found != kind:
        raise CatalogError(f"{name} is a {kind_found}, not a {kind}")
    return cls


def guest(name: str) -> tuple[str, Any]:
    """Kind and class of ``pkg.mod:Class``. Raises CatalogError if it is no policy."""
    cls = _imported(name)
    if not callable(cls):
        raise CatalogError(f"{name} must be a class (every engine gets its own object), got {cls!r}")
    for kind, methods in _METHODS.items():
        if all(hasattr(cls, method) for method in methods):
            return kind, cls
    wanted = "; ".join(f"a {kind} has {', '.join(methods)}" for kind, methods in _METHODS.items())
    raise CatalogError(f"{name} is no policy: {wanted}")


def _imported(name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        loaded = import_module(module)
    except Exception as error:  # whatever a guest's module raises is about the guest
        raise CatalogError(f"cannot import {module!r} of {name!r}: {error!r}") from error
    if not hasattr(loaded, attribute):
        raise CatalogError(f"{module} has no {attribute!r}; give pkg.mod:Class")
    return getattr(loaded, attribute)


def knob_names(cls: Any) -> list[str]:
    """The knobs of a policy: its constructor's named parameters, but for the process table."""
    parameters = inspect.signature(cls).parameters.values()
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.name != "table" and p.kind in named]


def resolved(policy: object) -> tuple[tuple[str, Knob], ...]:
    """A policy keeps each knob, checked, in an attribute of the knob's name."""
    pairs = ((knob, getattr(policy, knob)) for knob in sorted(knob_names(type(policy))))
    return tuple((knob, tuple(value) if isinstance(value, list) else value) for knob, value in pairs)


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The sentence about a name nobody knows: the nearest one, and all there are."""
    known = sorted(known)
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]}? " if near else ""
    return f"unknown {what} {name!r}. {hint}Known: {', '.join(known) or 'none'}"

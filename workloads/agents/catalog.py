"""Agents and suites of tasks by name: found by scanning, or from elsewhere as ``pkg.mod:NAME``.

An agent is a file of this folder or of ``guests`` with a module-level ``AGENT``; a suite a file of ``tasks``
with a ``SUITE``. One that cannot be loaded is skipped with a line on stderr, and is an error where it is the
one asked for.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, cast

from workloads.agents.contract import Agent, Suite
from workloads.base import WorkloadError
from workloads.parameters import nearest, parse_value

_FOLDERS = {"AGENT": ("workloads.agents", "workloads.agents.guests"), "SUITE": ("workloads.agents.tasks",)}
_NEEDED = {
    "AGENT": ("name", "suites", "needs", "threads", "script", "run"),
    "SUITE": ("name", "needs_sandbox", "missing", "tasks"),
}


def agent_names() -> list[str]:
    """Names of all agents, sorted; those whose ``needs`` are not installed are among them."""
    return sorted(_scan("AGENT")[0])


def suite_names() -> list[str]:
    """Names of all suites, sorted; those whose data is missing are among them."""
    return sorted(_scan("SUITE")[0])


def agent(name: str, parameters: Mapping[str, object] = {}) -> Agent:
    """The agent called ``name`` or ``pkg.mod:NAME``; ``parameters`` (text is parsed) replace its defaults.

    An agent that is a dataclass has its fields as parameters. Raises WorkloadError: no such agent, it cannot
    be loaded, no such parameter, a value of the wrong kind.
    """
    return cast(Agent, _with(_find("AGENT", name), name, parameters))


def suite(name: str) -> Suite:
    """The suite called ``name`` or ``pkg.mod:NAME``. Raises WorkloadError."""
    return cast(Suite, _find("SUITE", name))


def suite_of(chosen: Agent, name: str = "") -> Suite:
    """The suite of an agent: its default one, or that of ``name`` if the agent can do it.

    One from elsewhere (``pkg.mod:NAME``) is taken at its word. Raises WorkloadError.
    """
    if not name:
        return suite(chosen.suites[0])
    able = suites_of(chosen)
    if ":" not in name and name not in able:
        suite(name)
        raise WorkloadError(f"agent {chosen.name} has no tasks {name!r}: {nearest(name, able)}")
    return suite(name)


def suites_of(chosen: Agent) -> tuple[str, ...]:
    """Names of the suites that an agent can do: those that it names, then all others if any will do."""
    others = suite_names() if getattr(chosen, "any_suite", False) else ()
    return (*chosen.suites, *(name for name in others if name not in chosen.suites))


def _find(what: str, name: str) -> Any:
    if ":" in name:
        return _imported(what, name)
    found, skipped = _scan(what)
    if name in found:
        return found[name]
    for module, why in skipped.items():
        if module.rpartition(".")[2] == name.replace("-", "_"):
            raise WorkloadError(f"{module.replace('.', '/')}.py cannot be loaded: {why}")
    raise WorkloadError(f"no {'agent' if what == 'AGENT' else 'suite'} {name!r}: {nearest(name, found)}")


@cache
def _scan(what: str) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """By name what was found, and by module why it could not be loaded."""
    found: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    for folder in _FOLDERS[what]:
        for module in iter_modules(import_module(folder).__path__, f"{folder}."):
            if module.ispkg or not _defines(module.name, what):
                continue
            try:
                thing = _checked(what, getattr(import_module(module.name), what), module.name)
                found[thing.name] = thing
            except (Exception, SystemExit) as error:  # whatever a half-written file raises is about that file
                skipped[module.name] = f"{type(error).__name__}: {' '.join(str(error).split())}"
                print(f"warning: skipped {module.name}: {skipped[module.name]}", file=sys.stderr)
    return found, skipped


def _defines(module: str, what: str) -> bool:
    """Whether its source assigns the name: the host and its parts, which do not, need not be imported."""
    spec = find_spec(module)
    source = Path(spec.origin).read_text("utf-8", "replace") if spec and spec.origin else ""
    return re.search(rf"^{what}\b[^=\n]*=", source, re.MULTILINE) is not None


def _imported(what: str, spec: str) -> Any:
    module, _, name = spec.partition(":")
    try:
        thing = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError, SyntaxError) as error:
        if module in _scan(what)[0]:
            kind = "an agent has no presets" if what == "AGENT" else "a suite has no presets"
            raise WorkloadError(f"{spec}: {kind}; {module} is all there is to say") from None
        raise WorkloadError(f"{spec}: {' '.join(str(error).split())} (want pkg.mod:{what})") from error
    return _checked(what, thing, spec)


def _checked(what: str, thing: Any, where: str) -> Any:
    lacking = [name for name in _NEEDED[what] if not hasattr(thing, name)]
    if lacking:
        kind = what.capitalize()
        raise WorkloadError(f"{where} is no {kind} (workloads.agents.contract): it has no {lacking[0]}")
    return thing


def _with(thing: Any, name: str, parameters: Mapping[str, object]) -> Any:
    if not parameters:
        return thing
    of_class = is_dataclass(thing) and not isinstance(thing, type)
    known = (
        {field.name: getattr(thing, field.name) for field in fields(thing) if field.init} if of_class else {}
    )
    changed = {key: _value(f"agent {name}", key, value, known) for key, value in parameters.items()}
    try:
        return replace(thing, **changed)
    except (TypeError, ValueError) as error:
        raise WorkloadError(f"agent {name}: {error}") from error


def _value(where: str, key: str, value: object, known: Mapping[str, Any]) -> object:
    """A parameter in the kind of its default."""
    if key not in known:
        hint = nearest(key, known) if known else "it has none"
        raise WorkloadError(f"{where} has no parameter {key!r}: {hint}")
    parsed, default = parse_value(value), known[key]
    if isinstance(default, str) and isinstance(value, str):
        return value  # "3" is text, too
    if isinstance(default, float) and isinstance(parsed, int) and not isinstance(parsed, bool):
        return float(parsed)
    if type(parsed) is not type(default):
        wanted = {int: "a whole number", float: "a number", bool: "true or false"}.get(type(default), "text")
        raise WorkloadError(f"{where}: {key} must be {wanted} like {default!r}, got {value!r}")
    return parsed

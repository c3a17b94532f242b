"""Which Python agents run in: ours, or for guests that of the extra ``agents`` (docs/agent-host.md)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from bench.errors import MissingError
from workloads.agents.contract import Agent
from workloads.agents.host import INSTALL
from workloads.agents.host_process import HostGone, find_python

_ASK = """
import importlib.metadata as m, importlib.util as u, json, sys
of = m.packages_distributions()
print(json.dumps({n: m.version(of[n][0]) if n in of else "" for n in sys.argv[1:] if u.find_spec(n)}))
"""
ASK_S = 60.0


class Guests(NamedTuple):
    """``python`` runs the host; ``versions`` of what the agent imports, by module."""

    python: Path
    versions: Mapping[str, str]


def guests_of(agent: Agent) -> Guests:
    """Where an agent can run. Raises MissingError naming what is not installed, and how it would be."""
    if not agent.needs:
        return Guests(Path(sys.executable), {})
    try:
        python = Path(find_python(agent))
    except HostGone as error:
        raise MissingError(str(error)) from None
    found = _versions(python, tuple(agent.needs))
    if lacking := [name for name in agent.needs if name not in found]:
        raise MissingError(
            f"agent {agent.name} needs {', '.join(lacking)}, which {python} does not have: {INSTALL}"
        )
    return Guests(python, found)


@cache
def _versions(python: Path, needs: tuple[str, ...]) -> Mapping[str, str]:
    ask = [str(python), "-c", _ASK, *needs]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, timeout=ASK_S, check=True)
        found: dict[str, str] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise MissingError(f"{python} does not say what it has installed: {error}") from None
    return found

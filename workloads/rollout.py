"""Rollouts: episodes of one agent, one after the other, so many at a time (``--concurrency``).

What RL trainers and evaluation harnesses do to a server, and what ThunderAgent measures: a closed loop of
N programs. ``programs`` is N on each of ``nodes`` nodes (run it with ``--concurrency`` of their product
and ``--replicas`` of the nodes). The first N start at staggered ages (``stagger``), so that a window need
not wait until contexts have aged: in a loop that starts with N empty contexts, they all fill up together.

Each episode is a program. With ``episodes`` above 1 a program is so many of them in a row, each with an
empty context: what a server sees of clients that keep one session for all their tasks.
Parameters that are not of this file are the base's (``-p tool_family=heavy``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from workloads.base import ProgramSet, WorkloadError
from workloads.parameters import Parameters, nearest, read_presets, resolve
from workloads.tool_plan import Plan, ToolLoop

_TOML = Path(__file__).with_suffix(".toml")


class Rollout:
    """Presets: ``mini``, ``openhands``, ``hle``, ``science``, ``desktop``."""

    name = "rollout"
    default_preset = "mini"

    def presets(self) -> list[str]:
        """Names of the presets."""
        return list(read_presets(_TOML))

    def build(
        self, n: int, seed: int, preset: str | None = None, parameters: Mapping[str, object] = {}
    ) -> ProgramSet:
        """``n`` programs. Raises WorkloadError for a bad preset or parameter, of the base, too."""
        return self.plan(preset, parameters).programs(n, seed)

    def plan(self, preset: str | None = None, parameters: Mapping[str, object] = {}) -> Plan:
        """What programs are drawn from. Raises WorkloadError for a bad preset or parameter."""
        p, rest = split(_TOML, self.name, preset or self.default_preset, parameters, ("at_start",))
        at_start = p.count("programs") * p.count("nodes")
        base = base_plan(p, {**rest, "stagger": p.number("stagger", low=0.0, high=1.0), "at_start": at_start})
        return replace(base, kind=self.name, where=p.where, values={**base.values, **p.values},
                       episodes=p.count("episodes"))  # fmt: skip


def split(
    path: Path, name: str, preset: str, parameters: Mapping[str, object], refused: tuple[str, ...]
) -> tuple[Parameters, dict[str, object]]:
    """The parameters of a workload that runs another, and those that are the other's.

    Raises WorkloadError, also for one that is the other's and makes no sense here.
    """
    own = resolve(path, name, preset, {}).values
    p = resolve(path, name, preset, {key: value for key, value in parameters.items() if key in own})
    rest = {key: value for key, value in parameters.items() if key not in own}
    for key in refused:
        if key in rest:
            raise WorkloadError(f"{p.where} has no parameter {key!r}: {nearest(key, own)}")
    return p, rest


def base_plan(p: Parameters, parameters: Mapping[str, object]) -> Plan:
    """The plan of ``base``, such as ``swe:mini``. Raises WorkloadError."""
    from workloads.load import workload  # it scans this folder, and finds this file there

    name, _, preset = p.word("base").partition(":")
    base = workload(name)
    if not isinstance(base, ToolLoop):
        raise WorkloadError(
            f"{p.where}: base must be a workload of agents with tools, such as swe:mini; got {name!r}"
        )
    return base.plan(preset or None, parameters)


WORKLOAD = Rollout()

"""RL on agents: batches of rollouts with a barrier, training, and new weights (closed loop only).

A batch is ``prompts`` tasks, each rolled out by a ``group`` of programs that share the task's prompt. A batch
starts when the one before has ended to the last straggler, and the model it samples from exists: version
max(0, batch - ``lag``), ``train_s`` after the batch that it was trained on. Then the weights are synced
(``sync_s``), nothing is sent, and what the prefix cache holds is of old weights: prompts of two versions
share nothing, not even the system prompt. ``lag`` 0 trains on its own samples; with 1 or more, training
overlaps with the rollouts that follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from workloads.base import ProgramSet, Wave
from workloads.keys import key_of
from workloads.parameters import Parameters, read_presets
from workloads.rollout import base_plan, split
from workloads.tool_loop import Life
from workloads.tool_plan import Plan, add

_TOML = Path(__file__).with_suffix(".toml")


class Rl:
    """Presets: ``grpo``."""

    name = "rl"
    default_preset = "grpo"

    def presets(self) -> list[str]:
        """Names of the presets."""
        return list(read_presets(_TOML))

    def build(
        self, n: int, seed: int, preset: str | None = None, parameters: Mapping[str, object] = {}
    ) -> ProgramSet:
        """``n`` rollouts, batch after batch. Raises WorkloadError for a bad preset or parameter."""
        p, rest = split(_TOML, self.name, preset or self.default_preset, parameters, ("stagger", "at_start"))
        base = base_plan(p, rest)
        values = {**base.values, **p.values}
        result = ProgramSet([], p.where, "", values, base.rate, longest=base.longest)
        self._fill(result, base, p, n, seed)
        return result

    def _fill(self, result: ProgramSet, base: Plan, p: Parameters, n: int, seed: int) -> None:
        group, prompts, lag = p.count("group"), p.count("prompts"), p.count("lag", low=0)
        train_s, sync_s = p.number("train_s", low=0.0, high=1e6), p.number("sync_s", low=0.0, high=1e6)
        for i in range(n):
            batch = i // (group * prompts)
            task = key_of(self.name, seed, "task", i // group)
            wave = Wave(batch, max(0, batch - lag), train_s, sync_s)
            spec = add(result, base, key_of(self.name, seed, i), Life(version=wave.version, group=task))
            spec.kind, spec.wave = self.name, wave


WORKLOAD = Rl()

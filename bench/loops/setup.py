"""How a cell of a loop experiment is set up: who is there at the start, prices, and the search for a limit.

``docs/thunderagent.md`` (What is measured, What is fitted) has the reasons and what they were measured with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from bench.loops.spec import Panel, Place, System
from systems.latency.catalog import latency_for
from systems.latency.scaled import SCALES
from systems.latency.transfer import transfer_for
from systems.retentions.rebuild import fitted
from vocabulary import BLOCK

LIMIT = "gate.programs"
"""The knob of a gate that lets in so many programs, first come, first served, until each is over."""
CONTEXT = 16_384
"""Tokens of the context whose transfer says what moving a token takes."""
LOWER = 0.7
"""What a limit is multiplied with where the best one is the lowest that was tried."""


def at_start(place: Place, knobs: Mapping[str, str]) -> int:
    """How many programs start in the middle of their lives in a closed loop of ``place`` programs.

    Under a limit on programs only those inside have an age once the start is forgotten: who waits in line is
    new. Everywhere else all of them have one.
    """
    return min(int(place), int(float(knobs.get(LIMIT, place))))


def prices(model: str, gpu: str, knobs: Mapping[str, str]) -> dict[str, str]:
    """What having evicted KV again costs, as knobs of a retention policy (s per token, per token squared).

    Computing it, step times scaled as ``knobs`` say; with a host tier, moving it back over PCIe.
    """
    if knobs.get("engine.host_tier") == "true":
        slower = max(1e-6, float(knobs.get("engine.swap_scale", "1")))
        move = transfer_for(model, gpu, batched=False, scale=slower)
        line, square = move.seconds(CONTEXT // BLOCK) / CONTEXT, 0.0
    else:
        rebuild = fitted(latency_for(model, gpu, {s: float(knobs.get(f"latency.{s}", "1")) for s in SCALES}))
        line, square = rebuild.token_s, rebuild.token2_s
    return {"retention.token_s": f"{line:.4g}", "retention.token2_s": f"{square:.4g}"}


class Search:
    """The best value of one system's tuned knob on one panel, tried at the panel's largest place.

    A limit of K in a loop of more programs serves what a loop of K serves without one (a test). So the
    scores at the largest place also say which of the limits below a smaller place is best there, and whether
    none is better: the smaller places themselves are tried as limits.
    """

    def __init__(self, system: System, values: list[str]) -> None:
        self.system, self.scores = system, dict[str, float]()
        self.asked = values

    def told(self, scores: Mapping[str, float]) -> None:
        """Scores of the values asked for; ``asked`` are the next ones, none when the search is over.

        Where the lowest limit is the best one, a lower one is tried.
        """
        self.scores |= scores
        best = self._best(math.inf)
        lowest = min(self.scores, key=float)
        lower = f"{max(1, round(LOWER * float(lowest)))}"
        self.asked = [lower] if self.system.shares and best == lowest and lower not in self.scores else []

    def best(self, panel: Panel) -> dict[Place, str]:
        """The value for each of the panel's places."""
        limited = bool(self.system.shares) and not panel.open
        return {place: self._best(place if limited else math.inf) for place in panel.places}

    def _best(self, most: float) -> str:
        """Of several that score alike the highest."""
        known = {v: s for v, s in self.scores.items() if float(v) <= most}
        return max(known, key=lambda v: (known[v], float(v)))

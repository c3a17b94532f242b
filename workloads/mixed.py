"""Mixed: chatbot, ReAct and MCTS programs together, in equal shares (Autellix, section 5).

Each program is drawn from one of the parts by its own key, so every kind arrives as a Poisson
process of its own. A program keeps the kind of its part: means over a mix of long and short
programs say little, reports split by kind.

Parameters of a part follow its name (``-p mcts.p_success=.03``), its preset is the name itself
(``-p react=tau``). ``token_scale`` is every part's unless the part has its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from workloads import chatbot, mcts, react
from workloads.base import ProgramSet, WorkloadError
from workloads.keys import key_of
from workloads.parameters import Parameters, read_presets, resolve
from workloads.random_streams import stream
from workloads.recipe import Recipe

_TOML = Path(__file__).with_suffix(".toml")


class Part(Protocol):
    """A workload that can be mixed."""

    name: str

    def recipe(self, preset: str | None = None, parameters: Mapping[str, object] = {}) -> Recipe:
        """How its programs are made."""


PARTS: tuple[Part, ...] = (chatbot.WORKLOAD, react.WORKLOAD, mcts.WORKLOAD)


class Mixed:
    """Presets: ``paper``."""

    name = "mixed"
    default_preset = "paper"

    def presets(self) -> list[str]:
        """Names of the presets."""
        return list(read_presets(_TOML))

    def build(
        self, n: int, seed: int, preset: str | None = None, parameters: Mapping[str, object] = {}
    ) -> ProgramSet:
        """``n`` programs. Raises WorkloadError for a bad preset or parameter, of a part, too."""
        own = {name: value for name, value in parameters.items() if _part_of(name) is None}
        p = resolve(_TOML, self.name, preset or self.default_preset, own)
        shares = Parameters(f"{p.where}: share", _table(p, "share"))
        weights = [shares.number(part.name, low=0.0) for part in PARTS]
        recipes = [_recipe(part, p, parameters) for part in PARTS]
        values = {**p.values, **{r.kind: {"preset": r.where, **r.values} for r in recipes}}
        bounds = [recipe.longest for recipe in recipes]
        longest = None if None in bounds else max(bound or 0 for bound in bounds)
        result = ProgramSet([], p.where, "", values, p.positive("rate"), longest=longest)
        total = sum(weights)
        if total <= 0:
            raise WorkloadError(f"{shares.where}: at least one part must have a share above 0")
        for i in range(n):
            key = key_of(self.name, seed, i)
            pick = stream(key, "kind").uniform() * total
            _picked(recipes, weights, pick).add(result, i, key)
        return result


def _picked(recipes: list[Recipe], weights: list[float], pick: float) -> Recipe:
    for recipe, weight in zip(recipes, weights, strict=True):
        pick -= weight
        if pick < 0:
            return recipe
    return next(r for r, weight in zip(reversed(recipes), reversed(weights), strict=True) if weight > 0)


def _part_of(name: str) -> str | None:
    """The part whose parameter (not preset) this is."""
    head, dot, _ = name.partition(".")
    return head if dot and head in {part.name for part in PARTS} else None


def _recipe(part: Part, p: Parameters, parameters: Mapping[str, object]) -> Recipe:
    """A part under what is set for all and then for it."""
    own = {name.partition(".")[2]: v for name, v in parameters.items() if _part_of(name) == part.name}
    common: dict[str, object] = {"token_scale": p.positive("token_scale")}
    if part.name == "chatbot":
        common["max_context"] = p.count("max_context", low=2)
    return part.recipe(p.word(part.name), {**common, **own})


def _table(p: Parameters, name: str) -> Mapping[str, object]:
    value = p.values[name]
    assert isinstance(value, Mapping)  # an override cannot make a table anything else
    return value


WORKLOAD = Mixed()

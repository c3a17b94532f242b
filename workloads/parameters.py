"""A workload's parameters: presets in TOML, ``-p k=v`` over them, nothing unknown.

One TOML file per workload, one top-level table per preset. ``source`` fields say
where a number comes from; they are no parameters and are not in the digest.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

from workloads.base import WorkloadError
from workloads.random_streams import KINDS, Dist, fields_of, parse_dist


def nearest(wrong: str, known: Iterable[str]) -> str:
    """A hint: the closest valid name, and all of them if there are few."""
    names = sorted(known)
    close = difflib.get_close_matches(wrong, names, 1, 0.5)
    listed = ", ".join(names) if len(names) <= 30 else f"{len(names)} are known"
    return f"did you mean {close[0]!r}? ({listed})" if close else f"known: {listed}"


def without_source(value: object) -> object:
    """A table without its ``source`` fields, at any depth."""
    if isinstance(value, Mapping):
        return {k: without_source(v) for k, v in value.items() if k != "source"}
    return value


@dataclass(frozen=True, slots=True)
class Parameters:
    """The resolved parameters of one preset; errors name workload, preset and field."""

    where: str
    values: Mapping[str, object]

    def number(self, name: str, *, low: float = -math.inf, high: float = math.inf) -> float:
        """A finite number in [low, high]."""
        value = self._get(name)
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not (good and isinstance(value, (int, float)) and math.isfinite(value) and low <= value <= high):
            raise WorkloadError(
                f"{self.where}: {name} must be a number from {low:g} to {high:g}, got {value!r}"
            )
        return float(value)

    def positive(self, name: str) -> float:
        """A finite number above 0."""
        value = self.number(name)
        if value <= 0:
            raise WorkloadError(f"{self.where}: {name} must be above 0, got {value:g}")
        return value

    def count(self, name: str, *, low: int = 1) -> int:
        """An integer of at least ``low``."""
        value = self.number(name, low=low)
        if not value.is_integer():
            raise WorkloadError(f"{self.where}: {name} must be a whole number, got {value:g}")
        return int(value)

    def flag(self, name: str) -> bool:
        """true or false."""
        value = self._get(name)
        if not isinstance(value, bool):
            raise WorkloadError(f"{self.where}: {name} must be true or false, got {value!r}")
        return value

    def word(self, name: str) -> str:
        """A text that is not empty."""
        value = self._get(name)
        if not isinstance(value, str) or not value:
            raise WorkloadError(f"{self.where}: {name} must be a name, got {value!r}")
        return value

    def dist(self, name: str) -> Dist:
        """A distribution (or a number: a constant)."""
        return parse_dist(self._get(name), f"{self.where}: {name}")

    def probabilities(self, name: str) -> dict[int, float]:
        """A table of step = probability."""
        table = self._get(name)
        if not isinstance(table, Mapping):
            raise WorkloadError(f"{self.where}: {name} must be a table of step = probability, got {table!r}")
        own = Parameters(self.where, {f"{name}.{k}": v for k, v in table.items()})
        try:
            return {int(k): own.number(f"{name}.{k}", low=0.0, high=1.0) for k in table}
        except ValueError as error:
            if isinstance(error, WorkloadError):
                raise
            raise WorkloadError(f"{self.where}: {name} has a step that is no whole number") from None

    def _get(self, name: str) -> object:
        if name not in self.values:
            raise WorkloadError(f"{self.where}: {name} is missing")
        return self.values[name]


@cache
def read_presets(path: Path) -> Mapping[str, Mapping[str, object]]:
    """The presets of a workload's TOML file. Raises WorkloadError on bad TOML."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise WorkloadError(f"{path.name}: {error}") from error


def resolve(path: Path, workload: str, preset: str, overrides: Mapping[str, object]) -> Parameters:
    """A preset with ``overrides`` (dotted names; text is parsed) applied.

    Raises WorkloadError for an unknown preset or parameter, naming the nearest one.
    """
    presets = read_presets(path)
    if preset not in presets:
        raise WorkloadError(f"{workload} has no preset {preset!r}: {nearest(preset, presets)}")
    values = _plain(presets[preset])
    where = f"{workload}:{preset}"
    # A change of `dist` comes first: it decides which other fields exist.
    for name in sorted(overrides, key=lambda n: (not n.endswith(".dist"), n)):
        _override(values, name, parse_value(overrides[name]), where)
    return Parameters(where, values)


def parse_value(value: object) -> object:
    """Text of ``-p`` as a number (``16``, ``.5``, ``1/16``), a truth value, or itself."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text in ("true", "false"):
        return text == "true"
    try:
        number = Fraction(text)
    except (ValueError, ZeroDivisionError):
        return text
    return int(number) if number.denominator == 1 else float(number)


def _plain(table: Mapping[str, object]) -> dict[str, object]:
    return {k: _plain(v) if isinstance(v, Mapping) else v for k, v in table.items() if k != "source"}


def _override(values: dict[str, object], name: str, value: object, where: str) -> None:
    head, _, rest = name.partition(".")
    table = values.get(head)
    if isinstance(table, dict) and rest:
        if "dist" in table and "." not in rest:
            _override_dist(table, name, rest, value, where)
        else:
            _override(table, rest, value, where)
        return
    if head not in values or rest:
        raise WorkloadError(f"{where} has no parameter {name!r}: {nearest(name, _names(values))}")
    if isinstance(table, dict):
        if "dist" not in table or not isinstance(value, (int, float)):
            raise WorkloadError(f"{where}: {name} is a table: set one of {', '.join(_names({head: table}))}")
    elif isinstance(table, (int, float)) != isinstance(value, (int, float)):
        raise WorkloadError(f"{where}: {name} must be a number like {table!r}, got {value!r}")
    values[head] = value


def _override_dist(table: dict[str, object], name: str, field: str, value: object, where: str) -> None:
    if field == "dist":
        if value not in KINDS:
            raise WorkloadError(f"{where}: {name} {nearest(str(value), KINDS)}; got {value!r}")
        fields = fields_of(str(value))
        for old in [key for key in table if key not in fields]:
            del table[old]
    known = fields_of(str(table["dist"]))
    if field not in known:
        raise WorkloadError(f"{where} has no parameter {name!r}: {nearest(field, known)}")
    table[field] = value


def _names(values: Mapping[str, object], prefix: str = "") -> list[str]:
    names: list[str] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            names += _names(value, f"{prefix}{key}.")
        else:
            names.append(prefix + key)
    return names

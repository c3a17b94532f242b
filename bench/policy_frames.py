"""Frames of runs in which a gate, a retention policy or sandboxes acted, or that have several engines.

Beside the frames of ``bench.gather``; drawn by the figures that need them (docs/report.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bench.balance import gaps
from bench.eventlog import read_tables
from bench.gather import Cell, Labels, place
from bench.holds import disk, regrets, sessions
from bench.kv_cost import PARTS
from bench.metrics import busy_window

FAMILIES = ("gate.", "keep.", "env.")
"""How metrics begin that only a run has in which such a policy acted."""
SPANS = 24
"""Equal spans of a run in which steps are counted."""
BINS = 6
"""Sizes of sessions, about equally many in each."""
LONG_S = 60.0
_KEYS = ["workload", "model", "system", "rate", "load", "seed"]


def acted(cell: Cell) -> bool:
    """Whether the cell has anything of these frames to show."""
    return any(name.startswith(FAMILIES) for name in cell.summary["metrics"])


def kv_costs(cells: Sequence[Cell], labels: Labels) -> pd.DataFrame:
    """A row per cell: PARTS as shares of the capacity (``NAME``), their bounds, and ``NAME_per_step``
    (token-seconds)."""
    return pd.DataFrame([_keys(cell, labels) | _costs(cell.summary["metrics"]) for cell in cells])


def _costs(metrics: Mapping[str, Any]) -> dict[str, float]:
    names = [*PARTS, "caching_low", "caching_high", *(f"{part}_per_step" for part in PARTS)]
    return {name: _number(metrics, f"kv_cost.{name}") for name in names}


def _number(metrics: Mapping[str, Any], name: str) -> float:
    value = metrics.get(name, {}).get("value")
    return math.nan if value is None else float(value)


def _keys(cell: Cell, labels: Labels) -> dict[str, Any]:
    return place(cell, labels) | {"seed": cell.summary["seed"]}


class PolicyLogs:
    """What the event logs of such cells give, cell by cell."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._sessions: list[pd.DataFrame] = []
        self._steps: list[pd.DataFrame] = []
        self._gaps: list[pd.DataFrame] = []
        self._engines: list[pd.DataFrame] = []
        self._disk: list[pd.DataFrame] = []
        self._regrets: list[pd.DataFrame] = []
        self._seen: set[tuple[Any, ...]] = set()

    def add(self, cell: Cell) -> None:
        """Read a cell. Raises MissingError if it cannot."""
        where, tables = _keys(cell, self._labels), read_tables(cell.folder)
        window = busy_window(tables.programs)
        blocks = int(cell.manifest["identity"]["engine_config"]["kv_blocks"])
        samples = tables.engine.assign(time=tables.engine.time.clip(*window))
        self._sessions.append(sessions(tables.programs, tables.calls).assign(**where))
        self._steps.append(_steps(tables.calls, window).assign(**where))
        self._regrets.append(regrets(tables.decisions).assign(**where))
        key = tuple(where[name] for name in _KEYS if name not in ("seed", "rate"))
        if key in self._seen:
            return  # pictures over time show the first seed
        self._seen.add(key)
        if samples.engine.nunique() > 1:
            self._gaps.append(gaps(samples, blocks).assign(**where))
        self._engines.append(_over_time(samples, tables.calls, blocks).assign(**where))
        if tables.decisions.rule.astype(str).str.startswith("env:").any():
            self._disk.append(_disk(tables.decisions, window[1]).assign(**where))

    def frames(self) -> dict[str, pd.DataFrame]:
        """``holds``, ``worst_turns``, ``steps_over_time``, ``imbalance``, ``engines_over_time``, ``disk``,
        ``regrets``."""
        whole = _joined(self._sessions)
        return {
            "holds": by_size(whole),
            "worst_turns": whole[[*_KEYS, "program", "worst"]] if len(whole) else whole,
            "steps_over_time": _joined(self._steps),
            "imbalance": _joined(self._gaps),
            "engines_over_time": _joined(self._engines),
            "disk": _joined(self._disk),
            "regrets": _joined(self._regrets),
        }


def _joined(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _steps(calls: pd.DataFrame, window: tuple[float, float]) -> pd.DataFrame:
    """Calls that finish in each of SPANS equal spans, per minute; ``minute``: its middle since the start."""
    start, end = window
    counts, edges = np.histogram(
        calls.t_end[~calls.aborted], bins=SPANS, range=(start, max(end, start + 1e-9))
    )
    span = (edges[1] - edges[0]) / 60
    return pd.DataFrame({"minute": (edges[:-1] - start) / 60 + span / 2, "per_min": counts / span})


def _disk(decisions: pd.DataFrame, end: float) -> pd.DataFrame:
    """``minute`` and ``gb`` from then on, until ``end`` (s)."""
    found = disk(decisions)
    found = found[found.time <= end]
    last = pd.DataFrame({"time": [end], "gb": found.gb.iloc[-1:].to_list()})
    whole = pd.concat([found, last], ignore_index=True)
    return pd.DataFrame({"minute": whole.time / 60, "gb": whole.gb})


def _over_time(samples: pd.DataFrame, calls: pd.DataFrame, blocks: int) -> pd.DataFrame:
    """Each engine at each sample: shares of its KV ``used`` and free but ``cached``, calls ``running`` and
    ``waiting``; ``held``: calls at the door, which belong to no engine."""
    held = calls[calls.hold_s > 0]
    came, went = np.sort(held.t_arrive), np.sort(held.t_arrive + held.hold_s)
    times = samples.time.to_numpy()
    return pd.DataFrame(
        {
            "minute": times / 60,
            "engine": samples.engine,
            "used": samples.kv_used / blocks,
            "cached": samples.kv_cached / blocks,
            "running": samples.running,
            "waiting": samples.waiting,
            "held": np.searchsorted(came, times, "right") - np.searchsorted(went, times, "right"),
        }
    )


def by_size(whole: pd.DataFrame) -> pd.DataFrame:
    """Holds by how long a session's context became: BINS sizes, the same for all systems of a workload.

    Per seed: ``context`` (mean, tokens), ``n``, ``hold`` (mean of the sessions' longest hold, s), ``most``
    (the longest of all), ``long_share`` (of sessions with a hold above LONG_S). Only of systems that held.
    """
    columns = [*_KEYS, "bin", "context", "n", "hold", "most", "long_share"]
    if whole.empty:
        return pd.DataFrame(columns=columns)
    parts = []
    for _, rows in whole.groupby(["workload", "model"]):
        edges = np.unique(np.quantile(rows.context, np.arange(BINS) / BINS, method="higher"))
        which = np.searchsorted(edges, rows.context, side="right").clip(1) - 1
        held = rows.groupby("system").hold.transform("max") > 0
        parts.append(rows.assign(bin=which, long=rows.hold > LONG_S)[held])
    grouped = pd.concat(parts).groupby([*_KEYS, "bin"], dropna=False)
    found = grouped.agg(
        context=("context", "mean"), n=("program", "size"), hold=("hold", "mean"), most=("hold", "max"),
        long_share=("long", "mean"),
    )  # fmt: skip
    return found.reset_index()[columns]

"""How a gain depends on how long programs keep arriving."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports import theme
from reports.curves import some
from reports.figure import Data, Figure
from reports.seeds import ratio_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

BASE = "vllm-opt"
LATENCY = "transient.mean_of_ratios"
PLACE = ["model", "workload", "rate"]
RATES_SHOWN = 3


def base_of(frame: pd.DataFrame) -> str:
    """The system that others are compared with: vllm-opt, or the first in drawing order."""
    return BASE if BASE in set(frame.system) else theme.ordered(frame.system)[0]


def tabulate(data: Data) -> pd.DataFrame:
    """One row per system, rate and horizon: the base's latency over the system's, paired over seeds."""
    frame = data["horizons"]
    columns = [*PLACE, "system", "horizon", "base", "ratio", "low", "high", "seeds"]
    return pd.DataFrame(_rows(frame, base_of(frame)) if len(frame) else [], columns=columns)


def _rows(frame: pd.DataFrame, base: str) -> Iterator[dict[str, Any]]:
    keys = [*PLACE, "horizon"]
    reference = frame[frame.system == base][[*keys, "seed", LATENCY]]
    paired = frame[frame.system != base].merge(reference, on=[*keys, "seed"], suffixes=("", "_base"))
    for values, part in paired.groupby([*keys, "system"]):
        ratio, low, high = ratio_interval((part[f"{LATENCY}_base"] / part[LATENCY]).tolist())
        if np.isfinite(ratio):
            yield dict(zip([*keys, "system"], values, strict=True)) | {
                "base": base, "ratio": ratio, "low": low, "high": high, "seeds": len(part)
            }  # fmt: skip


def lacks(data: Data) -> str:
    """One horizon makes no line."""
    frame = data["horizons"]
    most = frame.groupby([*PLACE, "system"]).horizon.nunique().max()
    return "" if most > 1 else "one horizon only: a line over H needs two"


def paint(_: Data, table: pd.DataFrame) -> Canvas:
    """Columns are workloads (and models), rows up to three rates; both axes logarithmic."""
    sets = list(dict.fromkeys(zip(table.workload, table.model, strict=True)))
    groups = {k: table[(table.workload == k[0]) & (table.model == k[1])] for k in sets}
    rates = {k: some(part.rate.tolist(), RATES_SHOWN) for k, part in groups.items()}
    systems = theme.marks(table.system)
    fig, axes = theme.panels(max(map(len, rates.values())), len(sets), share_y=False)
    for j, key in enumerate(sets):
        for i, ax in enumerate(axes[:, j]):
            if i >= len(rates[key]):
                ax.set_axis_off()
                continue
            part = groups[key]
            _panel(ax, part[part.rate == rates[key][i]], systems)
            theme.name_panel(ax, *key, f"{rates[key][i]:g} programs/s")
    theme.legend(fig, systems)
    return fig


def _panel(ax: Any, rows: pd.DataFrame, systems: dict[str, theme.Mark]) -> None:
    ax.axhline(1.0, color="black", linewidth=0.8)
    for system, mark in systems.items():
        line = rows[rows.system == system].sort_values("horizon")
        error = np.nan_to_num(np.vstack([line.ratio - line.low, line.high - line.ratio]).astype(float))
        ax.errorbar(line.horizon, line.ratio, yerr=error, color=mark.color, linestyle=mark.dash,
                    marker=mark.marker, markersize=mark.size, linewidth=mark.width,
                    elinewidth=0.8, capsize=2)  # fmt: skip
    ax.set_xscale("log")
    ax.set_xticks(sorted(set(rows.horizon)), [f"{h:.3g}" for h in sorted(set(rows.horizon))])
    ax.minorticks_off()
    ax.set_ylim(bottom=0)
    ax.set_xlabel("horizon H: programs arrive for (s)")
    ax.set_ylabel(f"{rows.base.iloc[0]} / system\n(mean s/token)")


FIGURE = Figure(
    name="horizon",
    title="The gain over the horizon",
    needs=("horizons",),
    caption="Mean latency of the baseline over the system's, paired over seeds (geometric mean, 95 % t "
    "interval of the log ratio); above 1 the system is faster. Past saturation the ratio depends on how long "
    "programs keep arriving: such a ratio says nothing without its H. One seed has no interval: "
    "exploratory.",
    tabulate=tabulate,
    paint=paint,
    lacks=lacks,
)

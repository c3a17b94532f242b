"""Wait over execution by decode steps of calls (Autellix, Fig. 6 a and c)."""

from __future__ import annotations

from functools import partial

from reports import bins
from reports.figure import Figure

FIGURE = Figure(
    name="wait_exec_calls",
    title="Wait over execution, by decode steps of a call",
    needs=("bins_calls",),
    caption="Calls in bins of equal count by their decode steps; per bin, the sum of waiting over the sum of "
    "execution. Horizontal bars: the bin. Vertical bars: 95 % t intervals over seeds. A line that falls to "
    "the right makes short calls wait for long ones.",
    tabulate=partial(bins.tabulate, name="bins_calls"),
    paint=partial(bins.paint, label="decode steps of the call"),
)

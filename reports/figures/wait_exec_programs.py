"""Wait over execution by calls per program (Autellix, Fig. 6 b and d)."""

from __future__ import annotations

from functools import partial

from reports import bins
from reports.figure import Figure

FIGURE = Figure(
    name="wait_exec_programs",
    title="Wait over execution, by calls of a program",
    needs=("bins_programs",),
    caption="Finished programs in bins of equal count by their calls; per bin, the sum of waiting over the "
    "sum of execution, both over all calls. Horizontal bars: the bin. Vertical bars: 95 % t intervals over "
    "seeds.",
    tabulate=partial(bins.tabulate, name="bins_programs"),
    paint=partial(bins.paint, label="calls of the program"),
)

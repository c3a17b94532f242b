"""Multi-level feedback queue over calls, the paper's second baseline (Autellix, section 6).

It sees calls, not programs: the tenth call of a long program enters Q1 like
the first one of a short program.
"""

from __future__ import annotations

from systems.schedulers.levels import Levels


class Mlfq(Levels):
    """Every new call enters Q1 and is demoted as it uses up its quanta; knobs of ``Levels``."""

    name = "mlfq"
    by_service = False


SCHEDULER = Mlfq

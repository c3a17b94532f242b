"""PLAS, program-level least attained service (Autellix, section 4): for programs of one thread.

A program that forks is charged for all its branches together.
"""

from __future__ import annotations

from systems.schedulers.levels import Levels


class Plas(Levels):
    """A call enters by the sum of its program's completed calls; knobs of ``Levels``."""

    name = "plas"
    rule = "sum"


SCHEDULER = Plas

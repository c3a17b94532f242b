"""ATLAS, adaptive thread-level attained service (Autellix, section 4): for programs that fork.

One number per program stands for the critical path seen so far: a call takes
it as its start when it arrives, and the largest start + received of all
completed calls is the new number. Calls released together share their start,
so the branches of a fork are scheduled as a gang. On a program of one thread
this is the sum, hence PLAS.
"""

from __future__ import annotations

from systems.schedulers.levels import Levels


class Atlas(Levels):
    """A call enters by its program's longest observed path; knobs of ``Levels``."""

    name = "atlas"
    rule = "max"


SCHEDULER = Atlas

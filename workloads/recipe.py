"""A generator with its parameters resolved: what turns a key into a program.

``mixed`` makes programs of several recipes; every other workload of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from workloads.base import ProgramSet, ProgramSpec
from workloads.keys import key_of
from workloads.session import Program, Session


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the programs of one workload and preset are made.

    ``where`` is ``workload:preset``, ``rate`` in programs per second, ``longest`` as in
    ``ProgramSet``. ``repair(key)`` says what had to be repaired in a program, "" if nothing.
    """

    kind: str
    where: str
    values: Mapping[str, object]
    rate: float
    start: Callable[[Session], Program]
    longest: int | None
    repair: Callable[[int], str] | None = None

    def programs(self, n: int, seed: int) -> ProgramSet:
        """``n`` programs; program ``i`` depends on (kind, seed, i) only."""
        result = ProgramSet([], self.where, "", self.values, self.rate, longest=self.longest)
        for i in range(n):
            self.add(result, i, key_of(self.kind, seed, i))
        return result

    def add(self, result: ProgramSet, index: int, key: int) -> None:
        """Append the program of ``key`` to ``result``, and count its repair."""
        assert isinstance(result.programs, list), "a generator's set"
        result.programs.append(ProgramSpec(index, self.kind, key, self.start))
        repair = self.repair(key) if self.repair is not None else ""
        if repair:
            result.repaired[repair] = result.repaired.get(repair, 0) + 1
            result.where.setdefault(repair, f"program {index}")

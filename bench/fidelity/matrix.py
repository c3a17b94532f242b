"""Every scheduler on every family of scenarios, the tally, and whether the comparison can fail at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from bench.drivers.virtual import ProgramError
from bench.fidelity.part import Say
from bench.fidelity.scenarios import FAMILIES, Scenario, scenario
from bench.fidelity.schedules import (
    Maker,
    Result,
    against_ours,
    against_stock,
    play,
    policy,
    stock_difference,
)
from systems.catalog import DEFAULT_SYSTEM, build_scheduler, load_system
from systems.engines.sim import SimEngine
from systems.process_table import ProcessTable
from systems.schedulers.fcfs import Fcfs
from systems.vllm_host.stock_order import StockOrder
from vocabulary import Call, EngineConfig, Slot, Snapshot

SUMS = ("steps", "calls", "query_tokens", "hit_tokens", "computed_prefill_tokens", "decode_tokens", "chunked",
        "mixed", "forks", "evicted", "displaced", "expired", "promoted", "evicted_blocks", "aborted",
        "aborted_running")  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """Results of one scheduler on one family, or any other group of them, added up."""

    scheduler: str
    family: str
    scenarios: int
    identical: int
    batch: int
    sums: Mapping[str, int]

    @classmethod
    def of(cls, results: Sequence[Result], scheduler: str = "", family: str = "") -> Cell:
        """``results``: at least one."""
        return cls(
            scheduler,
            family,
            len(results),
            sum(not result.differs for result in results),
            max(result.exercise["batch"] for result in results),
            {name: sum(result.exercise[name] for result in results) for name in SUMS},
        )

    def plain(self) -> dict[str, Any]:
        """As JSON data; the sums in one line."""
        sums = ", ".join(f"{name} {count}" for name, count in self.sums.items() if count)
        return {**asdict(self), "sums": sums}


def cells(results: Sequence[Result]) -> list[Cell]:
    """A cell per scheduler and family, in the order of the results."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.scheduler, result.family), []).append(result)
    return [Cell.of(group, *key) for key, group in groups.items()]


def scenarios(first: int, each: int) -> list[Scenario]:
    """``each`` scenarios of every family; seeds go on from ``first``, limits take turns.

    Of one each, all are small: they are the faster ones.
    """
    made = []
    for number, family in enumerate(FAMILIES):
        for i in range(each):
            seed = first + number * each + i
            made.append(scenario(family, seed, large=each > 1 and (number + i) % 2 == 0))
    return made


def ours(name: str, cases: Sequence[Scenario], say: Say, vllm: Maker) -> list[Result]:
    """A policy of ours inside vLLM's scheduler, against our engines."""
    return _told(name, [against_ours(case, policy(name, case.seed), vllm) for case in cases], say)


def stock(order: str, cases: Sequence[Scenario], say: Say, vllm: Maker) -> list[Result]:
    """vLLM's scheduler without our class, against our engines."""
    return _told(f"vLLM's {order}", [against_stock(case, order, vllm) for case in cases], say)


def _told(name: str, results: list[Result], say: Say) -> list[Result]:
    same, steps = sum(not r.differs for r in results), sum(r.exercise["steps"] for r in results)
    say(f"{name}: {same} of {len(results)} scenarios identical, {steps} steps")
    return results


# Whether a wrong rule would be seen


class Last(Fcfs):
    """Last come, first served."""

    def arrive(self, call: Call, snap: Snapshot, now: float) -> Slot:
        """Before all who came earlier."""
        return super().arrive(call, snap, now)._replace(key=-float(call.seq))


def _right(table: ProcessTable) -> Any:
    return build_scheduler(load_system(DEFAULT_SYSTEM), table)


Change = Callable[[EngineConfig], EngineConfig]
WRONG: Mapping[str, tuple[Change, Callable[[ProcessTable], Any]]] = {
    "one KV block less": (lambda c: replace(c, kv_blocks=c.kv_blocks - 1), _right),
    "one token less in a step's budget": (
        lambda c: replace(c, max_num_batched_tokens=c.max_num_batched_tokens - 1),
        _right,
    ),
    "no prefix cache": (lambda c: replace(c, prefix_cache=False), _right),
    "last come, first served": (lambda c: c, Last),
}
"""``sim`` made wrong on purpose, in what only the named rule needs."""


def noticed(cases: Sequence[Scenario], vllm: Maker) -> dict[str, dict[str, list[int]]]:
    """By what is wrong in ``sim`` and by family: [scenarios in which vLLM's steps are others, all tried].

    A scenario is not tried where the wrong engine cannot be, or cannot hold the longest call.
    """
    found = {name: {family.name: [0, 0] for family in FAMILIES} for name in WRONG}
    for case in cases:
        theirs = play(case, vllm, lambda _: StockOrder("fcfs"))
        for name, (change, scheduler) in WRONG.items():
            try:
                ours = play(replace(case, config=change(case.config)), SimEngine, scheduler)
            except (ValueError, ProgramError):
                continue
            counts = found[name][case.family]
            counts[0] += bool(stock_difference(theirs, ours))
            counts[1] += 1
    return found

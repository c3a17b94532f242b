"""Sum rules: identities that every event log obeys, checked on every run.

Times lie on a grid on which sums are exact, so they are compared for
equality. A violation is a bug of ours.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from bench.errors import InvalidRun, RuleBroken
from bench.eventlog import Tables
from bench.offline import Offline

_PARTS = ["cp_wait_s", "cp_prefill_s", "cp_reprefill_s", "cp_decode_s", "cp_swap_s", "cp_tool_s",
          "cp_think_s", "cp_overhead_s"]  # fmt: skip
_EXEC_PARTS = ["prefill_s", "reprefill_s", "decode_s", "swap_s"]
_CALL_PARTS = [*_EXEC_PARTS, "wait_s"]


def broken_rules(tables: Tables, offline: Offline | None = None) -> list[str]:
    """Every violated rule with its first offender; empty if all hold.

    ``offline``: what the programs do without a clock, where that is known.
    """
    return [
        *_critical_paths(tables.programs),
        *_call_times(tables.calls),
        *_programs_against_calls(tables.programs, tables.calls),
        *_engines_against_calls(tables.totals, tables.calls),
        *(_log_against_programs(tables, offline) if offline is not None else ()),
    ]


def check(tables: Tables, offline: Offline | None = None, foreign: str = "") -> int:
    """Raises RuleBroken naming each violated rule. Returns the number of rows checked.

    ``foreign``: the workload, where it is code of the user. Its programs can differ from those
    of the dry run, which no bug of ours explains: InvalidRun if all other rules hold.
    """
    if foreign and offline is not None and not broken_rules(tables):
        if changed := _log_against_programs(tables, offline):
            raise InvalidRun(
                f"{foreign}: the program is not the same twice: draw random numbers from keyed streams "
                f"(workloads/random_streams.py); {'; '.join(changed)}"
            )
        return len(tables.programs) + len(tables.calls)
    if broken := broken_rules(tables, offline):
        raise RuleBroken("the event log contradicts itself (a bug, please report): " + "; ".join(broken))
    return len(tables.programs) + len(tables.calls)


def _first(bad: pd.Series, names: pd.Series, rule: str) -> list[str]:
    if not bad.any():
        return []
    return [f"{rule}: {int(bad.sum())} rows, first at {names.name} {names[bad].iloc[0]}"]


def _critical_paths(programs: pd.DataFrame) -> list[str]:
    over = programs[programs.outcome == "finished"]
    bad = over[_PARTS].sum(axis=1) != over.t_end - over.t_arrive
    # The driver books as overhead what is left, so a second counted twice shows as a negative part.
    negative = (programs[_PARTS] < 0).any(axis=1) & (programs.outcome == "finished")
    return [
        *_first(bad, over.program, "wait + exec + tool + think + overhead == response on the critical path"),
        *_first(negative, programs.program, "no part of a critical path is negative"),
    ]


def _call_times(calls: pd.DataFrame) -> list[str]:
    parts = calls[_CALL_PARTS]
    bad = parts.sum(axis=1) != calls.t_end - calls.t_arrive
    negative = (parts < 0).any(axis=1)
    held = (calls.hold_s < 0) | (calls.hold_s > calls.wait_s)
    return [
        *_first(bad, calls.seq, "prefill + re-prefill + decode + swap + wait == t_end - t_arrive of a call"),
        *_first(negative, calls.seq, "no part of a call's time is negative"),
        *_first(held, calls.seq, "0 <= hold_s <= wait_s of a call"),
    ]


def _programs_against_calls(programs: pd.DataFrame, calls: pd.DataFrame) -> list[str]:
    """A program's totals are its calls' sums; a call belongs to a program."""
    work = calls.assign(exec_s=calls[_EXEC_PARTS].sum(axis=1), calls=1)
    names = ["calls", "prompt_tokens", "output_tokens", "cached_tokens", "preemptions", "wait_s", "hold_s",
             "exec_s", "swap_s"]  # fmt: skip
    sums = work.groupby("program")[names].sum()
    rows = programs.set_index("program")
    sums = sums.reindex(rows.index, fill_value=0)
    broken = []
    for name in names:
        bad = sums[name] != rows[name]
        broken += _first(bad, pd.Series(rows.index, rows.index, name="program"), f"calls' {name} sum to it")
    orphans = ~calls.program.isin(programs.program)
    return broken + _first(orphans, calls.seq, "every call belongs to a program")


def _engines_against_calls(totals: pd.DataFrame, calls: pd.DataFrame) -> list[str]:
    """Engine totals equal the sums over their calls; a call that left at the door was in none."""
    inside = calls[calls.engine >= 0]
    sums = {
        "calls_finished": int((~inside.aborted).sum()),
        "calls_aborted": int(inside.aborted.sum()),
        "computed_prefill_tokens": int(inside.prefill_tokens.sum() + inside.reprefill_tokens.sum()),
        "hit_tokens": int(inside.cached_tokens.sum()),
        "preemptions": int(inside.preemptions.sum()),
    }
    broken = [
        f"engines' {name} ({got}) == the calls' ({expected})"
        for name, expected in sums.items()
        if (got := int(totals[name].sum())) != expected
    ]
    if not (totals.preemptions == totals.displaced + totals.evicted).all():
        broken.append("displaced + evicted == preemptions of an engine")
    return broken + ([] if np.isfinite(calls.t_end).all() else ["every logged call has an end"])


def _log_against_programs(tables: Tables, offline: Offline) -> list[str]:
    """Nothing is lost or made up: the log holds every program, and exactly the calls of its dry run.

    The calls are compared where times cannot change them and every program finished.
    """
    programs, calls = tables.programs, tables.calls
    pairs = {"programs": (len(programs), offline.programs)}
    if offline.fixed and (programs.outcome == "finished").all():
        pairs |= {
            "calls": (len(calls), offline.calls),
            "prompt tokens": (int(calls.prompt_tokens.sum()), offline.prompt_tokens),
            "output tokens": (int(calls.output_tokens.sum()), offline.output_tokens),
        }
    return [
        f"the log's {name} ({got}) == those of a run without a clock ({expected})"
        for name, (got, expected) in pairs.items()
        if got != expected
    ]

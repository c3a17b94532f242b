"""From a trace to the parameters of ``workloads/fitted.py``.

Each quantity becomes a law of two parameters where the data do not refuse one (see
``trace_tails``), a table of shares where it takes few whole values, else quantiles. Laws are
clipped to what was seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.errors import UsageError
from bench.stats import Array
from bench.trace import arrivals
from bench.trace_doubts import TICKED
from bench.trace_survey import LONGEST, Survey, survey
from bench.trace_tails import tails
from vocabulary import Segment
from workloads.base import ProgramSet
from workloads.dag import DagCall, ProgramDag
from workloads.dryrun import THINK, dry_run
from workloads.fitted import TABLE
from workloads.prefixes import PrefixIndex
from workloads.script import CallOp, JoinOp, Script, SpawnOp, TimeoutOp
from workloads.writing import common

FEW = 40
"""A quantity of no more distinct whole values becomes a table of shares."""
LEVELS = (0, 0.5, 1, 2.5, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 85, 90, 92.5, 95,
          97.5, 99, 99.5, 100)  # fmt: skip
NO_RATE = 1.0


@dataclass(slots=True)
class _Seen:
    """What programs were made of; tokens, seconds, counts, and yes or no as 1 or 0."""

    values: dict[str, list[float]] = field(default_factory=dict)
    prefixes: list[tuple[int, tuple[Segment, ...]]] = field(default_factory=list)
    flattened: int = 0
    unawaited: int = 0

    def add(self, name: str, value: float) -> None:
        self.values.setdefault(name, []).append(float(value))

    def array(self, name: str) -> Array:
        return np.asarray(self.values.get(name, ()), dtype=np.float64)

    def share(self, name: str, default: float = 0.0) -> float:
        values = self.array(name)
        return float(values.mean()) if values.size else default


@dataclass(frozen=True)
class Fit:
    """Parameters, what they were fitted to, and what they leave out (sentences)."""

    survey: Survey
    parameters: Mapping[str, object]
    arrivals: str
    left_out: Sequence[str]


def fit(programs: ProgramSet) -> Fit:
    """Parameters of a set of programs, recorded or generated. Raises UsageError if they make no calls."""
    found, seen = survey(programs), _Seen()
    if not found.own.size:
        raise UsageError(f"{programs.name}: no program makes a call, so there is nothing to fit")
    for spec in programs.programs:
        _observe(dry_run(spec), seen)
    shared_tokens, groups, beyond = _groups(seen.prefixes)
    for length in beyond:
        seen.add("first_prompt", length)
    parameters = _parameters(found, seen, shared_tokens, groups)
    recorded = arrivals(found.arrivals)
    kind = "poisson"
    if recorded and "cv" in recorded:
        parameters["rate"] = float(f"{recorded['rate']:.6g}")
        kind = _kind(recorded)
    return Fit(found, parameters, kind, _left_out(seen, recorded))


def _kind(recorded: Mapping[str, Any]) -> str:
    """Poisson if the gaps do not refuse it or say nothing (a coarse clock), else gamma with their CV."""
    if recorded["ks_poisson"] <= recorded["critical"] or recorded["together"] >= TICKED:
        return "poisson"
    return f"gamma:cv={min(max(recorded['cv'], 0.01), 100.0):.3g}"


def _observe(dag: ProgramDag, seen: _Seen) -> None:
    if not dag.calls:
        return
    steps = _steps(dag.script, seen)
    seen.add("steps", steps)
    seen.prefixes.append((dag.calls[0].prompt_tokens, dag.calls[0].prompt))
    contexts: dict[str, tuple[DagCall, list[Segment]]] = {}
    index = PrefixIndex()
    for k, call in enumerate(dag.calls):
        if k and call.thread in contexts:
            _kept(call, *contexts[call.thread], seen)
        elif k:  # the first of its branch: it may go on from any earlier call
            kept = index.longest(call.prompt)
            seen.add("branch_inherits", kept > 0)
            seen.add("branch_prompt", call.prompt_tokens - kept)
        if k:
            _delays(call, seen)
        left = [*call.prompt, (call.output_id, call.output_tokens)]
        contexts[call.thread] = (call, left)
        index.add(left)
        seen.add("output", call.output_tokens)


def _kept(call: DagCall, last: DagCall, context: list[Segment], seen: _Seen) -> None:
    """What a call keeps of the one before it in its thread, and what is new in it."""
    kept = common(context, call.prompt)
    restarts = kept < last.prompt_tokens / 2
    seen.add("restart_share", restarts)
    if not restarts:
        seen.add("reply_share", kept > last.prompt_tokens)
    seen.add("new_prompt", call.prompt_tokens - kept)


def _delays(call: DagCall, seen: _Seen) -> None:
    tools = sum(seconds for name, seconds in call.tools if name != THINK)
    waits = sum(seconds for name, seconds in call.tools if name == THINK)
    for name, seconds in (("tool", tools), ("think", waits)):
        seen.add(f"{name}_share", seconds > 0)
        if seconds > 0:
            seen.add(f"{name}_s", seconds)


def _steps(script: Script, seen: _Seen) -> int:
    """Steps of the main line; what branches is noted with its width and calls."""
    steps = 0
    for op in script.ops:
        if isinstance(op, CallOp):
            steps += 1
            seen.add("fork_share", 0)
        elif isinstance(op, TimeoutOp):
            steps += _steps(op.script, seen)
        elif isinstance(op, JoinOp | SpawnOp):
            scripts = op.scripts if isinstance(op, JoinOp) else [op.script]
            calls = [n for n in (sum(1 for _ in s.calls()) for s in scripts) if n]
            if not calls:
                continue
            steps += 1
            seen.add("fork_share", 1)
            seen.add("fork_width", len(calls))
            for n in calls:
                seen.add("branch_calls", n)
            seen.unawaited += isinstance(op, SpawnOp)
            seen.flattened += sum(isinstance(inner, JoinOp | SpawnOp) for s in scripts for inner in s.walk())
    return steps


def _groups(prefixes: Sequence[tuple[int, tuple[Segment, ...]]]) -> tuple[list[float], int, list[float]]:
    """(shared tokens of each program in a group, groups, tokens of each first prompt beyond that).

    Programs whose first prompts begin alike are a group; it shares the median of what its
    members have in common with its first.
    """
    members: dict[int, list[int]] = {}
    for i, (_, prompt) in enumerate(prefixes):
        members.setdefault(prompt[0][0], []).append(i)
    lengths: list[float] = []
    groups, beyond = 0, [float(tokens) for tokens, _ in prefixes]
    for group in members.values():
        if len(group) < 2:
            continue
        first = prefixes[group[0]][1]
        size = float(np.median([common(first, prefixes[i][1]) for i in group[1:]]))
        lengths += [size] * len(group)
        groups += 1
        for i in group:
            beyond[i] = max(0.0, prefixes[i][0] - size)
    return lengths, groups, beyond


def _parameters(found: Survey, seen: _Seen, shared: list[float], groups: int) -> dict[str, object]:
    programs = found.programs
    n, longest = len(programs.programs), found.values[LONGEST]
    dists = ("steps", "fork_width", "branch_calls", "first_prompt", "branch_prompt", "new_prompt", "output",
             "tool_s", "think_s")  # fmt: skip
    shares = ("fork_share", "branch_inherits", "restart_share", "tool_share", "think_share")
    return {
        "source": f"bench trace fit of {programs.name}: {n} programs, {len(found.own)} calls, "
        f"workload {programs.digest[:16]}",
        "rate": NO_RATE,
        "token_scale": 1.0,
        "max_context": int(max(2.0, longest.max(initial=2.0))),
        "shared_share": _rounded(len(shared) / n),
        "shared_groups": max(1, groups),
        **{name: _rounded(seen.share(name)) for name in shares},
        "reply_share": _rounded(seen.share("reply_share", 1.0)),
        "shared_tokens": table(np.asarray(shared)),
        **{name: table(seen.array(name)) for name in dists},
    }


def _rounded(share: float) -> float:
    return round(share, 6)


def table(values: Array) -> dict[str, object] | float:
    """The distribution of some values as a TOML table; 0 for none, one number for a constant."""
    if not values.size:
        return 0.0
    if values.min() == values.max():
        return float(values[0])
    bounds: dict[str, object] = {"min": _plain(values.min()), "max": _plain(values.max())}
    whole = bool(np.all(values == np.round(values)))
    x, count = np.unique(values, return_counts=True)
    if whole and x.size <= FEW:
        shares = np.round(count / values.size, 6)
        shares[-1] = 1.0 - shares[:-1].sum()
        return {
            "dist": "empirical",
            "p": {f"{v:g}": float(f"{p:.6g}") for v, p in zip(x, shares, strict=True)},
        }
    found = tails(values)
    if found.get("holds") and not (found["zeros"] and not whole):
        law = next(row for row in found["laws"] if row["law"] == found["best"])
        named = {k: float(f"{v:.6g}") for k, v in law.items() if k not in ("law", "ks")}
        return {"dist": found["best"], **named, **bounds}
    at = np.quantile(values, np.asarray(LEVELS) / 100, method="linear")
    return {"dist": "quantiles", "at": {f"{q:g}": _plain(v) for q, v in zip(LEVELS, at, strict=True)}}


def _plain(value: float) -> float:
    return float(f"{value:.9g}")


def _left_out(seen: _Seen, recorded: Mapping[str, Any] | None) -> list[str]:
    found = []
    if not recorded or "cv" not in recorded:
        found.append(f"no arrivals were recorded: rate = {NO_RATE:g} programs/s is a placeholder")
    elif recorded["together"] >= TICKED:
        found.append("arrivals are on a coarse clock, so their gaps say nothing: Poisson arrivals are taken")
    if seen.flattened:
        found.append(f"{seen.flattened:,} branches inside branches are calls of the outer one, in line")
    if seen.unawaited:
        found.append(f"{seen.unawaited:,} branches that nobody waited for are waited for")
    return found


def toml(fitted: Fit) -> str:
    """The file for ``--workload fitted:FILE.toml``."""
    arrive = (
        ""
        if fitted.arrivals == "poisson"
        else f"  # recorded gaps: run with --rate {fitted.arrivals}@{fitted.parameters['rate']}"
    )
    lines = [f"[{TABLE}]"]
    tables: list[str] = []
    for name, value in fitted.parameters.items():
        if isinstance(value, Mapping):
            tables += ["", f"[{TABLE}.{name}]", *(f"{k} = {_toml(v)}" for k, v in value.items())]
        else:
            lines.append(f"{name} = {_toml(value)}{arrive if name == 'rate' else ''}")
    notes = [f"# {line}" for line in fitted.left_out]
    return "\n".join([*notes, *lines, *tables]) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f'"{k}" = {_toml(v)}' for k, v in value.items()) + " }"
    return repr(value)

"""Programs that outgrow the model's context: refuse, skip, or truncate (``--on-overflow``).

Skipping drops the program; truncating ends each of its coroutines before the
first call that does not fit. Both are counted by reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from workloads.base import ProgramSpec, WorkloadError
from workloads.dryrun import dry_run
from workloads.files import Tally
from workloads.replay import replay_spec
from workloads.script import CallOp, JoinOp, Op, Script, SpawnOp, TimeoutOp
from workloads.session import CallId

RULES = ("refuse", "skip", "truncate")


def overflow_reason(limit: int) -> str:
    """How a skipped program is counted."""
    return f"prompt over the context of {limit} tokens"


def exceeded(skipped: Mapping[str, int], limit: int) -> int | None:
    """``limit`` if a program was skipped for it."""
    return limit if overflow_reason(limit) in skipped else None


def fit(script: Script, limit: int, rule: str, where: str, tally: Tally, cuts: Tally) -> Script | None:
    """``script`` under ``rule``; None if it is left out.

    ``tally`` counts what is skipped, ``cuts`` what is truncated. Raises
    WorkloadError under ``refuse``.
    """
    longest = max((op.total for op in script.calls()), default=0)
    if longest <= limit:
        return script
    if rule == "refuse":
        raise WorkloadError(
            f"{where}: a call of {longest} tokens (prompt + output) does not fit the context of {limit}; "
            "choose --on-overflow skip or truncate, or a longer context",
            limit,
        )
    if rule == "truncate":
        cut = truncated(script, limit)
        if any(True for _ in cut.calls()):
            cuts.add(f"truncated to the context of {limit} tokens", where)
            return cut
    tally.add(overflow_reason(limit), where)
    return None


def fit_specs(
    specs: list[ProgramSpec], limit: int, rule: str, skipped: Tally, cuts: Tally
) -> list[ProgramSpec]:
    """The generated programs that fit (dry runs them all), renumbered."""
    result: list[ProgramSpec] = []
    for spec in specs:
        script = dry_run(spec).script
        kept = fit(script, limit, rule, f"{spec.kind} program {spec.index}", skipped, cuts)
        if kept is script:
            result.append(ProgramSpec(len(result), spec.kind, spec.key, spec.start, spec.arrival, spec.wave))
        elif kept is not None:
            result.append(replace(replay_spec(len(result), spec.kind, kept, spec.arrival), wave=spec.wave))
    return result


def truncated(script: Script, limit: int) -> Script:
    """A copy in which no call is longer than ``limit`` tokens (prompt + output)."""
    return _Cut(limit).script(script)


class _Cut:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.dropped: dict[CallId, tuple[CallId, ...]] = {}
        """Calls that are gone, and the calls whose end stands for theirs."""

    def script(self, script: Script) -> Script:
        ops = self.ops(script.ops)
        return Script(ops, None if script.cleanup is None else self.ops(script.cleanup))

    def ops(self, ops: list[Op]) -> list[Op]:
        kept: list[Op] = []
        for i, op in enumerate(ops):
            if isinstance(op, CallOp) and op.total > self.limit:
                self.drop(ops[i:])
                break
            kept.append(self.op(op))
        return kept

    def op(self, op: Op) -> Op:
        match op:
            case CallOp():
                return self.call(op)
            case JoinOp():
                return JoinOp([self.script(script) for script in op.scripts])
            case SpawnOp():
                return SpawnOp(self.script(op.script), op.task)
            case TimeoutOp():
                return TimeoutOp(op.seconds, self.script(op.script))
        return op

    def drop(self, ops: list[Op]) -> None:
        for op in Script(ops).calls():
            self.dropped[op.id] = op.parents

    def call(self, op: CallOp) -> CallOp:
        """The call, after the nearest ancestors that are left."""
        if not any(parent in self.dropped for parent in op.parents):
            return op
        found: dict[CallId, None] = {}
        seen: set[CallId] = set()
        stack = list(reversed(op.parents))
        while stack:
            parent = stack.pop()
            if parent in seen:
                continue
            seen.add(parent)
            if parent in self.dropped:
                stack.extend(reversed(self.dropped[parent]))
            else:
                found[parent] = None
        return CallOp(
            op.thread, op.index, tuple(found), op.new, op.output_id, op.output_tokens,
            op.prompt_tokens, op.model, op.base, op.keep,
        )  # fmt: skip

"""What a dry run knows about a program that no policy may: its whole DAG."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vocabulary import BLOCK, Segment
from workloads.base import ProgramSpec
from workloads.own import program_row
from workloads.prefixes import PrefixIndex
from workloads.script import CallOp, JoinOp, Script, ThinkOp, TimeoutOp, ToolOp
from workloads.session import CallId


@dataclass(slots=True)
class DagCall:
    """A call of the DAG, in tokens and seconds.

    ``delay_s`` is the time of the tools and waits between the end of the last
    call (or join) on its line of control and this call; ``tools`` names them
    (waits as "think"). After a join the longest trailing delay counts.
    """

    thread: str
    index: int
    parents: tuple[CallId, ...]
    prompt: tuple[Segment, ...]
    prompt_tokens: int
    output_id: int
    output_tokens: int
    model: str
    delay_s: float
    tools: tuple[tuple[str, float], ...]


@dataclass(frozen=True, eq=False)
class ProgramDag:
    """One program's calls in dry-run order (topological), and its script."""

    index: int
    kind: str
    arrival: float | None
    script: Script
    calls: tuple[DagCall, ...]

    @staticmethod
    def of(spec: ProgramSpec, script: Script, calls: Sequence[DagCall]) -> ProgramDag:
        """The DAG of a spec that ran."""
        return ProgramDag(spec.index, spec.kind, spec.arrival, script, tuple(calls))

    @property
    def total_output(self) -> int:
        """Output tokens of all calls."""
        return sum(call.output_tokens for call in self.calls)

    @property
    def total_prompt(self) -> int:
        """Prompt tokens of all calls, cached or not."""
        return sum(call.prompt_tokens for call in self.calls)

    @property
    def longest(self) -> int:
        """Prompt + output of the longest call (tokens); 0 for a program without calls."""
        return max((call.prompt_tokens + call.output_tokens for call in self.calls), default=0)

    @property
    def threads(self) -> int:
        """Threads that made a call."""
        return len({call.thread for call in self.calls})

    @property
    def tool_s(self) -> float:
        """Tool seconds of all threads, without waits for people."""
        return sum(op.work_s for op in self.script.walk() if isinstance(op, ToolOp))

    def critical_path(self) -> int:
        """Output tokens on the longest chain the program waits for."""
        return round(_length(self.script, 1.0, 0.0))

    def critical_path_s(self, s_per_token: float) -> float:
        """Seconds until the main thread's end if a token takes ``s_per_token`` and nothing queues.

        Tools and waits count; spawned coroutines do not: nobody waits for them.
        (The program itself ends when they have ended, too.)
        """
        return _length(self.script, s_per_token, 1.0)

    def optimal_hits(self, index: PrefixIndex | None = None) -> int:
        """Prompt tokens an infinite prefix cache would serve (whole 16-token blocks).

        Calls are taken in dry-run order; each may reuse the blocks of every earlier
        prompt and reply, up to (prompt - 1) // 16 blocks. An ``index`` that other
        programs went through adds what is shared with them.
        """
        index = index if index is not None else PrefixIndex()
        hits = 0
        for call in self.calls:
            shared = index.longest(call.prompt)
            hits += min(shared // BLOCK, (call.prompt_tokens - 1) // BLOCK) * BLOCK
            # The last token's KV is never computed.
            index.add((*call.prompt, (call.output_id, call.output_tokens - 1)))
        return hits

    def content_digest(self) -> str:
        """sha256 of everything the program does, ids included, but not its place in a set."""
        row = program_row(self.script)
        return hashlib.sha256(json.dumps(row, separators=(",", ":")).encode()).hexdigest()


def optimal_hits_across(dags: Iterable[ProgramDag]) -> list[int]:
    """Per program: tokens of prefix hits if one infinite cache serves them one by one."""
    index = PrefixIndex()
    return [dag.optimal_hits(index) for dag in dags]


def program_hash(dags: Iterable[ProgramDag]) -> str:
    """sha256 of a program set: kind, recorded arrival and content of every program, in order."""
    total = hashlib.sha256()
    for dag in dags:
        total.update(f"{dag.kind}\x1f{dag.arrival!r}\x1f{dag.content_digest()}\n".encode())
    return total.hexdigest()


def _length(script: Script, per_token: float, per_second: float) -> float:
    total = 0.0
    for op in script.ops:
        match op:
            case CallOp():
                total += per_token * op.output_tokens
            case ToolOp():
                total += per_second * op.work_s
            case ThinkOp():
                total += per_second * op.seconds
            case JoinOp():
                total += max((_length(s, per_token, per_second) for s in op.scripts), default=0.0)
            case TimeoutOp():
                total += _length(op.script, per_token, per_second)
    return total

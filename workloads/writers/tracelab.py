"""TraceLab's replay CSV: rounds of sessions, each with what it keeps of the round before."""

from __future__ import annotations

from collections.abc import Iterator

from workloads.files import Tally
from workloads.prefixes import PrefixIndex
from workloads.writing import (
    DELAY,
    DELAY_KIND,
    LAST_DELAY,
    OWN_PREFIX,
    SHARED,
    Dags,
    Owners,
    grown,
    in_line,
    milliseconds,
    place,
    trailing,
)

COLUMNS = (
    "session_id", "round_idx", "prefix_len", "input_len", "output_len", "tool_wait_after_ms", "arrival_time",
)  # fmt: skip


class TraceLabWriter:
    """One line a call; the time after a call is a tool's."""

    name = "tracelab"

    def lines(self, dags: Dags, name: str, lost: Tally) -> Iterator[str]:  # noqa: ARG002
        """Lengths, the prefix each call keeps of the one before, tools, arrivals."""
        owners = Owners()
        yield ",".join(COLUMNS)
        for dag in dags:
            if owners.shared(dag):
                lost.add(SHARED, place(dag))
            turns = in_line(dag, lost, DELAY, DELAY_KIND, LAST_DELAY)
            after = [turn.before for turn in turns[1:]] + [trailing(dag.script)]
            arrival = "" if dag.arrival is None else str(milliseconds(dag.arrival))
            index = PrefixIndex()
            for i, (call, kept) in enumerate(grown([turn.call for turn in turns])):
                if index.longest(call.prompt) > kept:
                    lost.add(OWN_PREFIX, place(dag))
                index.add([*call.prompt, (call.output_id, call.output_tokens)])
                cells = (dag.index, i, kept, call.prompt_tokens - kept, call.output_tokens)
                yield f"{','.join(map(str, cells))},{milliseconds(after[i])},{arrival}"


WRITER = TraceLabWriter()

"""BurstGPT's CSV (the newer columns): calls by session, with their times, models and lengths.

How long a call takes is the engine's to decide, so ``Elapsed time`` is 0 and ``Timestamp`` is
the arrival plus the tools and waits so far.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from workloads.files import Tally
from workloads.writing import (
    DELAY,
    MODEL,
    OWN_PREFIX,
    SHARED,
    Dags,
    Owners,
    first_arrivals,
    grown,
    in_line,
    place,
)

COLUMNS = (
    "Timestamp", "Session ID", "Elapsed time", "Model", "Request tokens", "Response tokens",
    "Total tokens", "Log Type",
)  # fmt: skip


class BurstGptWriter:
    """One line a call; readers take a prompt that is long enough to continue the one before it."""

    name = "burstgpt"

    def lines(self, dags: Dags, name: str, lost: Tally) -> Iterator[str]:  # noqa: ARG002
        """Arrivals, delays, models and lengths; no content."""
        owners = Owners()
        yield ",".join(COLUMNS)
        for dag, arrival in first_arrivals(dags, lost):
            if owners.shared(dag):
                lost.add(SHARED, place(dag))
            turns = in_line(dag, lost, DELAY, MODEL)
            time, before = arrival, 0
            for i, (call, kept) in enumerate(grown([turn.call for turn in turns])):
                time += turns[i].before if i else 0.0
                if kept != (before if call.prompt_tokens >= before else 0):
                    lost.add(OWN_PREFIX, place(dag))
                before = call.prompt_tokens + call.output_tokens
                session = str(dag.index) if len(turns) > 1 else ""
                kind = "Conversation log" if session else "API log"
                tokens = (call.prompt_tokens, call.output_tokens, before)
                took = "0" if session else ""
                yield _line([repr(time), session, took, call.model, *map(str, tokens), kind])


def _line(cells: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()


WRITER = BurstGptWriter()

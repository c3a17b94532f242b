"""ShareGPT's records with lengths for texts: a JSON array, ``tokens`` beside ``from``.

A conversation only grows: a call's new prompt is the ``human`` message before its reply.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from workloads.dag import ProgramDag
from workloads.files import Tally
from workloads.writing import ARRIVAL, SHARED, Dags, Owners, grown, in_line, place

EDITED = "prompt that is not the one before it, its reply and more (written as the growth in length)"
SHORTER = "call whose prompt does not grow (left out)"


class ShareGptWriter:
    """One record a program; readable by whatever takes ShareGPT JSON with lengths."""

    name = "sharegpt"

    def lines(self, dags: Dags, name: str, lost: Tally) -> Iterator[str]:  # noqa: ARG002
        """Lengths in order; no times, no branches, no sharing between programs."""
        owners = Owners()
        yield "["
        last = len(dags) - 1
        for i, dag in enumerate(dags):
            if dag.arrival is not None:
                lost.add(ARRIVAL, place(dag))
            if owners.shared(dag):
                lost.add(SHARED, place(dag))
            record = {"id": str(dag.index), "conversations": _messages(dag, lost)}
            yield json.dumps(record, separators=(",", ":")) + ("," if i < last else "")
        yield "]"


def _messages(dag: ProgramDag, lost: Tally) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    context = 0
    for call, kept in grown([turn.call for turn in in_line(dag, lost)]):
        new = call.prompt_tokens - context
        if new < 1:
            lost.add(SHORTER, place(dag))
            continue
        if kept < context:
            lost.add(EDITED, place(dag))
        messages += [{"from": "human", "tokens": new}, {"from": "gpt", "tokens": call.output_tokens}]
        context = call.prompt_tokens + call.output_tokens
    return messages


WRITER = ShareGptWriter()

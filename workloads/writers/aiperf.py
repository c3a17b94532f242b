"""AIPerf's multi-turn input (JSON lines): a conversation a line, with text made up for the prompts.

AIPerf sends text, and traces of lengths have none. A prompt is as many common short words as it
has tokens (each a token of its own in today's byte-pair vocabularies), drawn by the names of its
segments: equal segments are equal text, so what programs share, the server sees shared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from workloads.dag import DagCall, ProgramDag
from workloads.files import Tally
from workloads.keys import mix
from workloads.writing import DELAY, MODEL, Dags, grown, in_line, milliseconds, place

_WORDS = (
    "the of and to in is that for it as was with be by on not he this are or his from at which but have an "
    "had they you were their one all we can her has there been if more when will would who so no she other "
    "its may these what them than some him time into only do such my new about out also two any up first "
    "could our then most see me should after said your very made many over did down work must way men "
    "where life last much own say world great year still same old here part young house"
)
WORDS = tuple(_WORDS.split())
MADE_UP = "program whose text is made up"
SHORTER = "call whose prompt does not grow (left out)"
EDITED = "prompt that is not the one before it, its reply and more (written as the growth in length)"


class AiperfWriter:
    """Lines with ``session_id`` and ``turns[]`` of ``text``, ``output_length`` and ``delay``."""

    name = "aiperf"

    def lines(self, dags: Dags, name: str, lost: Tally) -> Iterator[str]:  # noqa: ARG002
        """Lengths, delays, arrivals, and text that is shared where prompts are."""
        for dag in dags:
            turns = _turns(dag, lost)
            if not turns:
                continue
            lost.add(MADE_UP, place(dag))
            if dag.arrival is not None:
                turns[0] = {"timestamp": milliseconds(dag.arrival), **turns[0]}
            row = {"session_id": str(dag.index), "turns": turns}
            yield json.dumps(row, separators=(",", ":"))


def _turns(dag: ProgramDag, lost: Tally) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    context, waited = 0, 0.0
    line = in_line(dag, lost, DELAY, MODEL)
    for (call, kept), (_, before) in zip(grown([turn.call for turn in line]), line, strict=True):
        waited += before if turns else 0.0
        new = call.prompt_tokens - context
        if new < 1:
            lost.add(SHORTER, place(dag))
            continue
        if kept < context:
            lost.add(EDITED, place(dag))
        turn: dict[str, Any] = {"text": text(call, new), "output_length": call.output_tokens}
        if waited:
            turn["delay"] = milliseconds(waited)
        if call.model:
            turn["model"] = call.model
        turns.append(turn)
        context, waited = call.prompt_tokens + call.output_tokens, 0.0
    return turns


def text(call: DagCall, tokens: int) -> str:
    """Words for the last ``tokens`` tokens of a call's prompt."""
    start, words = call.prompt_tokens - tokens, list[str]()
    for segment, length in call.prompt:
        words += [WORDS[mix(segment, i) % len(WORDS)] for i in range(max(0, start), length)]
        start -= length
    return " ".join(words)


WRITER = AiperfWriter()

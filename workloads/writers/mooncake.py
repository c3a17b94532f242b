"""Mooncake's JSON lines, with AIPerf's ``session_id`` and ``delay`` for programs of several calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from workloads.files import Tally
from workloads.writing import (
    DELAY,
    ROUNDED,
    BlockIds,
    Dags,
    common,
    in_line,
    milliseconds,
    place,
)

BLOCK = 512


class MooncakeWriter:
    """One line a call; hash ids say who shares a prefix with whom, in blocks of 512 tokens."""

    name = "mooncake"

    def lines(self, dags: Dags, name: str, lost: Tally) -> Iterator[str]:  # noqa: ARG002
        """Arrivals, lengths, prefixes to the block, and delays inside a program."""
        blocks = BlockIds(BLOCK)
        for dag in dags:
            turns = in_line(dag, lost, DELAY)
            before: list[tuple[int, int]] = []
            for i, (call, pause) in enumerate(turns):
                row: dict[str, Any] = {}
                if i == 0 and dag.arrival is not None:
                    row["timestamp"] = milliseconds(dag.arrival)
                if i:
                    row["delay"] = milliseconds(pause)
                if common(before, call.prompt) % BLOCK:
                    lost.add(ROUNDED, place(dag))
                row |= {"input_length": call.prompt_tokens, "output_length": call.output_tokens}
                row["hash_ids"] = blocks.of(call.prompt)
                if len(turns) > 1:
                    row["session_id"] = str(dag.index)
                before = [*call.prompt, (call.output_id, call.output_tokens)]
                yield json.dumps(row, separators=(",", ":"))


WRITER = MooncakeWriter()

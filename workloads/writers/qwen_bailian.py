"""Qwen-Bailian's JSON lines: trees of calls, with prefixes to the block of 16 tokens.

How long a call takes is the engine's to decide: the ``timestamp`` of a call is its parent's
plus the tools and waits between them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from workloads.files import Tally
from workloads.writing import (
    DELAY,
    FORK,
    ROUNDED,
    BlockIds,
    Dags,
    common,
    first_arrivals,
    in_line,
    place,
)

BLOCK = 16
SEVERAL = "call that waits for several others, written as following one of them"
ROOT = "call that follows none of its program, written as a program of its own"


class QwenBailianWriter:
    """One line a call; ``parent_chat_id`` is the call it follows."""

    name = "qwen-bailian"

    def lines(self, dags: Dags, name: str, lost: Tally) -> Iterator[str]:  # noqa: ARG002
        """Arrivals, lengths, prefixes to the block, delays, and who follows whom."""
        blocks, chat = BlockIds(BLOCK), 0
        for dag, arrival in first_arrivals(dags, lost):
            written: dict[tuple[str, int], tuple[int, int, float, list[tuple[int, int]]]] = {}
            for call, pause in in_line(dag, lost, DELAY, FORK):
                if len(call.parents) > 1:
                    lost.add(SEVERAL, place(dag))
                elif written and not call.parents:
                    lost.add(ROOT, place(dag))
                parent = written.get(call.parents[-1]) if call.parents else None
                number, turn, time, context = parent or (-1, 0, arrival, [])
                if common(context, call.prompt) % BLOCK:
                    lost.add(ROUNDED, place(dag))
                time += pause if parent else 0.0
                left = [*call.prompt, (call.output_id, call.output_tokens)]
                written[call.thread, call.index] = (chat, turn + 1, time, left)
                row = {
                    "chat_id": chat,
                    "parent_chat_id": number,
                    "timestamp": time,
                    "input_length": call.prompt_tokens,
                    "output_length": call.output_tokens,
                    "type": "text",
                    "turn": turn + 1,
                    "hash_ids": blocks.of(call.prompt),
                }
                chat += 1
                yield json.dumps(row, separators=(",", ":"))


WRITER = QwenBailianWriter()

"""What gates and retention policies tell of themselves, as rows of the table of decisions.

``call`` is the program, not a call. The same on virtual time and from a gateway's log.
"""

from __future__ import annotations

from collections.abc import Iterator

from vocabulary import Decision, GateEvent, KeepEvent


def gate_row(event: GateEvent) -> Decision:
    """``gate:WHAT:REASON``; ``value`` is tokens of KV."""
    rule = f"gate:{event.what}:{event.reason}"
    return Decision(event.time, event.engine, event.program, rule, 0, float(event.tokens))


def keep_rows(event: KeepEvent) -> Iterator[Decision]:
    """``keep:WHAT:TOOL``; ``value``: until when (s), with both prices (block-seconds) in rows of their own;
    of an absence that is over, the regret."""
    program, now, rule = event.program, event.time, f"keep:{event.what}:{event.tool}"
    if event.what in ("keep", "evict"):
        yield Decision(now, -1, program, rule, 0, event.until)
        yield Decision(now, -1, program, "keep:price:keep", 0, event.keep_price)
        yield Decision(now, -1, program, "keep:price:evict", 0, event.evict_price)
    else:
        yield Decision(now, -1, program, rule, 0, event.regret)

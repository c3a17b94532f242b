"""What a relay tells of each call that went through it (docs/agents.md, The relay)."""

from __future__ import annotations

from dataclasses import dataclass

OUTCOMES = ("finished", "cut", "failed", "refused")
"""Answered; the client left; upstream answered an error or broke off; the relay itself would not (no such
program, nothing in the script)."""


@dataclass(slots=True)
class RelayCall:
    """One call, from the agent's side. Times of CLOCK_MONOTONIC in seconds, NaN where it never came to that.

    ``t_first``: the first token of a stream, the first bytes of a whole reply; ``t_last``: the last ones, or
    when the call failed, was refused or was given up.

    ``name``: RUN.PROGRAM.THREAD.INDEX, which is its X-Request-Id upstream. ``dialect``: chat, responses,
    messages. ``prompt_tokens``, ``output_tokens``, ``cached_tokens``: by the engine (-1: it did not say);
    ``scripted_tokens``: what the script asked the engine for, -1 without a script.
    """

    program: int
    thread: str
    index: int
    name: str
    dialect: str
    stream: bool
    t_arrive: float
    t_send: float = float("nan")
    t_first: float = float("nan")
    t_last: float = float("nan")
    status: int = 0
    outcome: str = "finished"
    prompt_tokens: int = -1
    output_tokens: int = -1
    cached_tokens: int = -1
    scripted_tokens: int = -1
    reason: str = ""

"""Prefix hits of a recording: a replay gives every request a prompt of its own."""

from __future__ import annotations

from pathlib import Path

from bench.errors import InvalidRun

MOST = 0.1
"""More prompt tokens than this share from the prefix cache, and a replay without sharing is another load."""


def check_shared(cached: int, prompt: int, path: Path) -> tuple[str, ...]:
    """A note on ``cached`` of ``prompt`` tokens. Raises InvalidRun above ``MOST``."""
    share = cached / prompt if prompt else 0.0
    if share > MOST:
        raise InvalidRun(
            f"{path}: {share:.0%} of the prompt tokens came from the prefix cache, and the file does not say "
            f"what they share; record calls without a common prefix (at most {MOST:.0%}), "
            "or fit on the step log, which needs no replay"
        )
    return (
        (f"{share:.1%} of the prompt tokens came from the prefix cache; replayed as computed",)
        if cached
        else ()
    )

"""Whether programs that are over are still in our gateway's table: a leak, as processes and mounts are."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable

PATIENCE_S = 3.0
"""An entry goes when its program's last call has left, which a gateway may hear a moment later."""
POLL_S = 0.1
ASK_S = 5.0
MOST = 1000
"""Entries that are asked for; those that were called last come first."""


def entries_left(
    url: str, run: str, *, ask: Callable[[str], list[str]] | None = None,
    clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep,
) -> list[str]:  # fmt: skip
    """In words, a line each: programs of the run that the gateway at ``url`` still knows after PATIENCE_S; or
    why it could not be asked. ``ask``: names in its table."""
    deadline = clock() + PATIENCE_S
    while True:
        try:
            left = [name for name in (ask or _names)(url) if name.startswith(f"{run}.")]
        except (OSError, ValueError, LookupError, TypeError) as error:
            return [f"the gateway does not say which programs it knows: {error!r}"]
        if not left or clock() > deadline:
            return [f"program entry {name} in the gateway" for name in sorted(left)]
        sleep(POLL_S)


def _names(url: str) -> list[str]:
    with urllib.request.urlopen(f"{url}/programs?limit={MOST}", timeout=ASK_S) as answer:
        return [str(row["name"]) for row in json.load(answer)["programs"]]

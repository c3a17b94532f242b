"""The step log: what the engine computed in each step, as the scheduler saw it (docs/vllm.md).

Imports nothing of vLLM.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

FLUSH_S = 1.0
_BUFFER = 1 << 20

Part = tuple[str, int, int, int]
"""(request id, tokens in its KV before, tokens scheduled, whether it emits: 0 or 1)."""


class StepLog:
    """Appends a JSON object per step to ``path``, after a first one that says whose steps they are.

    What is written reaches the file within a second while steps come, and at
    once when the engine falls idle (``flush``). Raises OSError if ``path``
    cannot be opened.
    """

    def __init__(self, path: str, head: Mapping[str, object]) -> None:
        self._file = Path(path).open("a", buffering=_BUFFER)  # noqa: SIM115 (closed in close)
        self._flushed = time.monotonic()
        self._write(head)
        self._file.flush()

    def step(
        self,
        start: float,
        end: float,
        load: tuple[int, int],
        calls: Iterable[Part],
        preempted: Iterable[str],
    ) -> None:
        """One step from ``start`` to ``end`` (s); ``load``: (calls in the batch or able to be, others)."""
        running, waiting = load
        self._write(
            {
                "start": start,
                "end": end,
                "running": running,
                "waiting": waiting,
                "calls": list(calls),
                "preempted": list(preempted),
            }
        )
        if time.monotonic() - self._flushed >= FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Bring to the file what is still buffered."""
        self._file.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Flush and close; idempotent."""
        self._file.close()

    def _write(self, line: Mapping[str, object]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")

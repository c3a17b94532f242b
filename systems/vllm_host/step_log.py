"""The step log: what the engine computed in each step, as the scheduler saw it (docs/vllm.md).

Imports nothing of vLLM.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from systems.vllm_host.ledger import InFlight

FLUSH_S = 1.0
_BUFFER = 1 << 20


class StepLog:
    """Appends a JSON object per step to ``path``, after a first one that says whose steps they are.

    What is written reaches the file within a second while steps come, and at
    once when the engine falls idle (``flush``). Raises OSError if ``path``
    cannot be opened.
    """

    def __init__(self, path: str, head: Mapping[str, object]) -> None:
        self._file = Path(path).open("a", buffering=_BUFFER)  # noqa: SIM115 (closed in close)
        self._flushed = time.monotonic()
        self._preempted: list[str] = []
        self._write(head)
        self._file.flush()

    def step(self, step: InFlight, end: float, *, idle: bool) -> None:
        """A step that ended at ``end`` (s), with its whole batch; ``idle``: no call is left.

        Who was preempted in a pass that scheduled nothing is told with the next step.
        """
        self._preempted += step.preempted_ids
        if step.computes:
            running, waiting = step.load
            self._write(
                {
                    "start": step.start,
                    "end": end,
                    "running": running,
                    "waiting": waiting,
                    "kv_used": step.kv_used,
                    "evicted": step.evicted,
                    "calls": [(p.request.request_id, p.computed, p.tokens, int(p.emits)) for p in step.batch],
                    "preempted": self._preempted,
                }
            )
            self._preempted = []
        if idle or time.monotonic() - self._flushed >= FLUSH_S:
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


def head_of(host: Any, version: str, *, real: bool) -> dict[str, object]:
    """Whose steps these are; ``real``: its clock is real, so that 0 s has a Unix time (else null)."""
    options = host.options
    return {
        "origin_wall": time.time() - host.now() if real else None,
        "origin_monotonic": time.monotonic() - host.now() if real else None,
        "vllm": version,
        "engine": options.engine,
        "scheduler": options.scheduler,
        "knobs": dict(options.knobs),
        "preemption": options.preemption,
        "max_num_seqs": host.max_num_running_reqs,
        "max_num_batched_tokens": host.max_num_scheduled_tokens,
        "max_model_len": host.max_model_len,
        "kv_blocks": host.kv_cache_manager.block_pool.num_gpu_blocks - 1,
        "block_size": host.block_size,
    }

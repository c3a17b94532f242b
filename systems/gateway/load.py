"""An engine's load, from its Prometheus page: vLLM's names, and SGLang's."""

from __future__ import annotations

import math
import re

from systems.gateway.workers import Load
from vocabulary import BLOCK

_GAUGE = re.compile(
    rb"^(?:vllm:(?:num_requests_(running|waiting)|(kv_cache_usage_perc|gpu_cache_usage_perc))"
    rb"|sglang:(num_running_reqs|num_queue_reqs|token_usage|max_total_num_tokens))"
    rb"(?:\{(.*)\})? ([0-9.eE+-]+)$",
    re.MULTILINE,
)
_PARTIAL = re.compile(rb'(?:^|,)priority="[^"]')
"""Labels of SGLang's total of one priority, which stands beside the total."""
_CACHE = re.compile(rb"^vllm:cache_config_info\{([^}\n]*)\}", re.MULTILINE)
_LABEL = re.compile(rb'(block_size|num_gpu_blocks)="(\d{1,9})"')
_RUNNING = {b"running", b"num_running_reqs"}
_WAITING = {b"waiting", b"num_queue_reqs"}
_MOST = 1e12
"""No engine has more of anything."""


def load_of(page: bytes) -> Load | None:
    """None if the page has no number of running requests, so is none of an engine we know.

    Several lines of a name (data-parallel ranks) add up; of their KV shares the mean counts. A value that is
    no finite number, or cannot be, is as if its line were not there.
    """
    running = waiting = -1.0
    tokens = 0.0
    shares: list[float] = []
    for match in _GAUGE.finditer(page):
        name, value = match[1] or match[2] or match[3], _number(match[5])
        if value is None or _PARTIAL.search(match[4] or b""):
            continue
        if name in _RUNNING:
            running = max(running, 0.0) + value
        elif name in _WAITING:
            waiting = max(waiting, 0.0) + value
        elif name == b"max_total_num_tokens":
            tokens += value
        else:
            shares.append(min(1.0, value))
    if running < 0.0:
        return None
    share = sum(shares) / len(shares) if shares else 0.0
    return Load(int(running), int(max(waiting, 0.0)), share, _blocks(page) + int(tokens) // BLOCK)


def _number(text: bytes) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return min(_MOST, max(0.0, value)) if math.isfinite(value) else None


def _blocks(page: bytes) -> int:
    """Usable KV blocks of 16 tokens: vLLM keeps one block of its own size to itself."""
    total = 0
    for match in _CACHE.finditer(page):
        labels = {name: int(value) for name, value in _LABEL.findall(match[1])}
        total += max(0, labels.get(b"num_gpu_blocks", 0) - 1) * labels.get(b"block_size", BLOCK) // BLOCK
    return min(total, int(_MOST))

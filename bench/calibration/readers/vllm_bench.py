"""The result of ``vllm bench serve --save-result --save-detailed``: one JSON object, lists by request.

Used are ``input_lens``, ``output_lens``, ``ttfts`` and ``itls`` (s), and how requests came: ``start_times``
(s, of vLLM from 0.11 on) in an open loop, ``max_concurrency`` where requests were held back by it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.calibration.recordings import Facts, Recording, Request, digest_of, model_named
from bench.errors import UsageError
from workloads.files import Fields, head, parse_json, read_bytes

LISTS = ("input_lens", "output_lens", "ttfts", "itls")


class VllmBench:
    """Reads one result file."""

    name = "vllm-bench"

    def sniff(self, path: Path) -> str | None:
        """Why this looks like one."""
        if path.is_file() and path.suffix == ".json" and head(path, 1).strip() == b"{":
            text = read_bytes(path)
            if all(f'"{name}"'.encode() in text for name in ("ttfts", "itls", "input_lens")):
                return "an object with ttfts, itls and input_lens"
        return None

    def read(self, path: Path) -> Recording:
        """Raises UsageError or WorkloadError with file and field. Failed requests are left out."""
        data = Fields(parse_json(read_bytes(path), path.name), path.name)
        lists = {name: data.items(name) for name in LISTS}
        n = len(lists["ttfts"])
        wrong = [name for name, values in lists.items() if len(values) != n]
        if not n or wrong:
            raise UsageError(f"{path}: {', '.join(LISTS)} must have an entry per request (--save-detailed)")
        concurrency, starts = _loop(data, path, n)
        errors = data.items("errors") or [""] * n
        served = (i for i in range(n) if not errors[i] and lists["output_lens"][i])
        rows = [_request(i, lists, starts, path) for i in served]
        failed = n - len(rows)
        notes = (f"{failed} failed requests of {n} left out: the engine served them for a while, too",)
        facts = Facts(
            self.name,
            path,
            model_named(data.text("model_id")),
            source={
                "engine": data.text("backend", "vllm"),
                "sha256": digest_of(path),
                "date": data.text("date"),
            },
            notes=notes if failed else (),
        )
        rows.sort(key=lambda r: r.arrival or 0.0)
        return Recording(facts, rows, concurrency)


def _loop(data: Fields, path: Path, n: int) -> tuple[int | None, list[Any]]:
    """(concurrency or None, start times): held back by a concurrency, or at times of their own."""
    starts = data.items("start_times")
    unbounded = data.values.get("request_rate") in (None, "inf")
    if data.has("max_concurrency") and unbounded:
        return data.integer("max_concurrency", low=1), [None] * n
    if len(starts) == n:
        return None, starts
    if unbounded:
        return None, [0.0] * n
    raise UsageError(
        f"{path}: no start_times, and requests came at a rate: when is unknown; record with "
        "vllm bench serve of 0.11 or later, or with --max-concurrency and no --request-rate"
    )


def _request(i: int, lists: dict[str, list[Any]], starts: list[Any], path: Path) -> Request:
    try:
        prompt, output = int(lists["input_lens"][i]), int(lists["output_lens"][i])
        first, gaps = float(lists["ttfts"][i]), sum(map(float, lists["itls"][i]))
        start = None if starts[i] is None else float(starts[i])
    except (TypeError, ValueError):
        raise UsageError(f"{path}: request {i}: lengths and times must be numbers") from None
    spread = gaps / (output - 1) if output > 1 else None
    return Request(start, prompt, output, first, spread, first + gaps)


READER = VllmBench()

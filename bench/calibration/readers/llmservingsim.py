"""A folder of LLMServingSim's recorder: ``requests.jsonl`` and ``meta.json`` of a real vLLM.

``queued_ts`` is the engine's own clock at the moment its scheduler learned of the request, and the start of
every time here; ``arrival_time`` is another clock, the front end's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.calibration.recordings import Facts, Recording, digest_of, gpu_named, model_named, request
from workloads.files import Fields, parse_json, read_bytes
from workloads.streams import lines, parse_line

FILES = ("meta.json", "requests.jsonl")
LIMITS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len")


class LlmServingSim:
    """Reads ``FILES`` of a folder."""

    name = "llmservingsim"

    def sniff(self, path: Path) -> str | None:
        """Why this looks like one."""
        if path.is_dir() and all((path / name).is_file() for name in FILES):
            return "a folder with meta.json and requests.jsonl"
        return None

    def read(self, path: Path) -> Recording:
        """Raises WorkloadError with file, line and field."""
        rows = []
        for number, line in lines(path / FILES[1], FILES[1]):
            row = Fields(parse_line(line, FILES[1], number), f"{FILES[1]}:{number}")
            tokens = (row.integer("input_toks", low=1), row.integer("output_toks", low=1))
            times = [row.seconds(name) for name in ("queued_ts", "first_token_ts", "last_token_ts")]
            if None in times:
                raise row.wrong("queued_ts", "times (s) queued_ts, first_token_ts and last_token_ts")
            rows.append(request(times[0], *tokens, times[1], times[2]))
        rows.sort(key=lambda r: r.arrival or 0.0)
        return Recording(_facts(path), rows)


def _facts(path: Path) -> Facts:
    meta = Fields(parse_json(read_bytes(path / FILES[0]), FILES[0]), FILES[0])
    engine = Fields(meta.values.get("engine_kwargs", {}), f"{FILES[0]}.engine_kwargs")
    cache = Fields(meta.values.get("kv_cache", {}), f"{FILES[0]}.kv_cache")
    hardware = Fields(meta.values.get("hardware", {}), f"{FILES[0]}.hardware")
    limits = {name: engine.integer(name, low=1) for name in LIMITS if engine.has(name)}
    # vLLM keeps one block to itself
    limits["kv_blocks"] = cache.integer("num_gpu_blocks", low=2) - 1
    source: dict[str, Any] = {
        "engine": f"vLLM {meta.text('vllm_version', 'of unknown version')}",
        "device": hardware.text("device_name"),
        "requests_sha256": digest_of(path / FILES[1]),
    }
    return Facts(
        LlmServingSim.name,
        path,
        model_named(meta.text("model")),
        gpu_named(hardware.text("device_name")),
        limits,
        bool(cache.values.get("enable_prefix_caching", True)),
        source,
    )


READER = LlmServingSim()

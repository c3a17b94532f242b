"""The call log of our vLLM scheduler class (``log`` in docs/vllm.md): a JSON object per finished call.

A call's prompt is what its first admission took from the prefix cache and what it computed.
"""

from __future__ import annotations

from pathlib import Path

from bench.calibration.recordings import Facts, Recording, Request, digest_of, request
from bench.calibration.shared import check_shared
from bench.errors import UsageError
from workloads.files import Fields, first_line
from workloads.streams import lines, parse_line

NEEDED = (b'"request_id"', b'"t_first_token"', b'"prefill_tokens"', b'"cached_tokens"')


class CallLog:
    """Reads one JSONL file."""

    name = "call-log"

    def sniff(self, path: Path) -> str | None:
        """Why this looks like one."""
        text = b"" if path.is_dir() else first_line(path)
        return "rows of finished calls" if all(name in text for name in NEEDED) else None

    def read(self, path: Path) -> Recording:
        """Aborted calls are left out. Raises UsageError or WorkloadError with file, line and field."""
        rows, aborted, cached = list[Request](), 0, 0
        for number, line in lines(path, path.name):
            row = Fields(parse_line(line, path.name, number), f"{path.name}:{number}")
            if row.values.get("aborted"):
                aborted += 1
                continue
            hit = row.integer("cached_tokens")
            cached += hit
            prompt = hit + row.integer("prefill_tokens", low=1)
            times = [row.seconds(name) for name in ("t_arrive", "t_first_token", "t_end")]
            rows.append(request(times[0], prompt, row.integer("output_tokens", low=1), times[1], times[2]))
        if not rows:
            raise UsageError(f"{path}: no finished call")
        rows.sort(key=lambda r: r.arrival or 0.0)
        notes = check_shared(cached, sum(r.prompt for r in rows), path)
        notes += (f"{aborted} aborted calls left out",) if aborted else ()
        return Recording(Facts(self.name, path, source={"sha256": digest_of(path)}, notes=notes), rows)


READER = CallLog()

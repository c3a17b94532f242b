"""The step log of our vLLM scheduler class (``steps`` in docs/vllm.md): fitted step by step, no replay."""

from __future__ import annotations

from pathlib import Path

from bench.calibration.recordings import Facts, Steps, digest_of
from bench.calibration.steps import HEAD
from workloads.files import first_line

NEEDED = tuple(f'"{name}"'.encode() for name in HEAD)


class StepLog:
    """Names the file; ``bench.calibration.steps`` reads it."""

    name = "step-log"

    def sniff(self, path: Path) -> str | None:
        """Why this looks like one."""
        text = b"" if path.is_dir() else first_line(path)
        return "a first line that says whose steps follow" if all(name in text for name in NEEDED) else None

    def read(self, path: Path) -> Steps:
        """The file's facts."""
        return Steps(Facts(self.name, path, source={"sha256": digest_of(path)}))


READER = StepLog()

"""Recognises the files of the Berkeley Function-Calling Leaderboard, and says why they are no trace.

``BFCL_v4_multi_turn_*.json`` hold tasks (questions and the state of the tools), ``possible_answer/`` the
calls a correct run may make, ``multi_turn_func_doc/`` the tools. No model was asked in any of them.
"""

from __future__ import annotations

from pathlib import Path

from workloads.base import ProgramSet, WorkloadError
from workloads.collect import heads
from workloads.files import files_of

_TASKS = (b'"question"', b'"involved_classes"')


class BfclReader:
    """Refuses with the reason."""

    name = "bfcl"

    def sniff(self, path: Path) -> str | None:
        """Why these look like files of BFCL."""
        for text in heads(path, (".json", ".jsonl")):
            first = text.partition(b"\n")[0]
            if all(word in first for word in _TASKS):
                return "tasks with question and involved_classes"
            if b'"ground_truth"' in first and b'"multi_turn' in first:
                return "ground truths of multi_turn tasks"
            if first[:8] == b'{"name":' and b'"description"' in first and b'"parameters"' in first:
                return "descriptions of tools"
        return None

    def read(self, path: Path, *, max_model_len: int, on_overflow: str) -> ProgramSet:
        """Raises WorkloadError: there is nothing to replay."""
        del max_model_len, on_overflow
        if not files_of(path):
            raise WorkloadError(f"no files in {path}")
        what = self.sniff(path)
        if what is None:
            raise WorkloadError(f"{path.name}: no file of BFCL, and those hold no calls")
        raise WorkloadError(
            f"{path.name}: holds {what} and no calls: no model has answered, so nothing tells how many calls "
            "a task takes and how long its replies are; the generator react:bfcl makes such programs"
        )


READER = BfclReader()

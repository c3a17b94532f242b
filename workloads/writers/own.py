"""Our own format, lossless (``workloads.own``)."""

from __future__ import annotations

import json
from collections.abc import Iterator

from workloads.files import Tally
from workloads.own import FORMAT, VERSION, program_row
from workloads.writing import Dags


class OwnWriter:
    """A header, then one program a line."""

    name = "own"

    def lines(self, dags: Dags, name: str, lost: Tally) -> Iterator[str]:  # noqa: ARG002
        """Everything."""
        yield _row({"format": FORMAT, "version": VERSION, "name": name, "programs": len(dags)})
        for dag in dags:
            head = {"id": dag.index, "kind": dag.kind, "arrival": dag.arrival}
            yield _row({**head, "do": program_row(dag.script)})


def _row(values: object) -> str:
    return json.dumps(values, separators=(",", ":"))


WRITER = OwnWriter()

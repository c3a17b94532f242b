"""docs/conformance.md from what a comparison found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.conformance_parts.explained import EXPLAINED

_HEAD = """# Conformance: through the gateway, and directly

Written by `python benchmarks/conformance.py --out docs/conformance.md` (vLLM {version});
`tests/live/test_conformance.py` fails where it is not true any more.

{cases} requests, each sent to a real vLLM (tiny model with random weights, `--api-key`,
`--enable-auto-tool-choice --tool-call-parser hermes`) and to two gateways in front of it:

* **keys pass**: clients' keys go on to the engine, calls have ids (`X-Session-ID`), the scheduler's call log
  is followed;
* **own keys**: the gateway has keys of its own and one for the engine, calls have no ids, streams are asked
  for their usage.

Compared are status, headers, and a body field by field; of a stream the order of its events by kind with all
their fields, what was said in each field as a whole, and that its `sequence_number`s have no gap. Pieces of
one text come in as many events as the engine was quick: such events count as one. Ids are compared by who
repeats whose. Not compared: values of ids and times, `Date`, and headers of the connection.

Each case goes to the engine three times, the first one to warm its prefix cache: where it differs from
itself the case fails (in this run: {unsteady}).

**{equal} of {all} comparisons are equal**; the others differ only in what is numbered here:
"""


class Line(NamedTuple):
    """A case, the engine's status, and by gateway the numbers of what explains its differences (0: none)."""

    case: str
    status: int
    found: Mapping[str, Sequence[int]]


def counts(lines: Sequence[Line]) -> Counter[str]:
    """Comparisons that are equal, explained, and neither."""
    kinds = (
        "equal" if not numbers else "unexplained" if 0 in numbers else "explained"
        for line in lines
        for numbers in line.found.values()
    )
    return Counter(kinds)


def summary(lines: Sequence[Line]) -> str:
    """In a line."""
    found = counts(lines)
    kinds = ", ".join(f"{found[kind]} {kind}" for kind in ("equal", "explained", "unexplained"))
    return f"{len(lines)} cases, {found.total()} comparisons: {kinds}"


def page(lines: Sequence[Line], version: str, unsteady: int) -> str:
    """The document."""
    found = counts(lines)
    head = _HEAD.format(
        cases=len(lines), version=version, unsteady=unsteady, equal=found["equal"], all=found.total()
    )
    notes = [f"{n}. {one.why}" for n, one in enumerate(EXPLAINED, 1)]
    return "\n".join([head, *notes, "", *_table(lines)]) + "\n"


def _table(lines: Sequence[Line]) -> list[str]:
    names = list(lines[0].found) if lines else []
    rows = ["| request | status | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    for line in lines:
        cells = " | ".join(_cell(line.found[name]) for name in names)
        rows.append(f"| {line.case} | {line.status} | {cells} |")
    return rows


def _cell(numbers: Sequence[int]) -> str:
    if not numbers:
        return "equal"
    return "differs: " + ", ".join(str(n) if n else "**not explained**" for n in sorted(set(numbers)))

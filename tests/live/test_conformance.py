"""The three dialects through our gateway, against a real vLLM asked directly (docs/conformance.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import conformance
from benchmarks.conformance_parts.cases import CHAT, COUNT, MESSAGES, RESPONSES, cases
from benchmarks.conformance_parts.page import counts

pytestmark = [pytest.mark.live, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("conformance")
    with (
        conformance.engines(folder) as (engine, calls),
        conformance.gateways(engine, calls, folder) as urls,
    ):
        yield [conformance.compare(case, engine, urls) for case in cases()]


def test_what_differs_is_explained_and_what_is_explained_differs(rows):
    assert [line for row in rows for line in row.unexplained()] == []
    assert conformance.stale(rows) == []


def test_the_cases_are_what_they_are_called(rows):
    """Most requests that are meant to be right are, and those that are meant to be wrong are not."""
    status = {row.case.name: row.status for row in rows}
    for path in (CHAT, RESPONSES, MESSAGES, COUNT):
        assert {status[f"{path} {name}"] for name in ("no JSON", "prompt missing")} == {400}
        assert {status[f"{path} {name}"] for name in ("no key", "a wrong key")} == {401}
        assert status[f"{path} unknown model"] == 404
    for path in (CHAT, RESPONSES, MESSAGES):
        assert status[f"{path} tool result in the history"] == status[f"{path} tool call required"] == 200
    streamed = [code for name, code in status.items() if name.endswith(", stream")]
    assert streamed.count(200) > 30


def test_the_page_says_what_was_found(rows):
    text = PAGE.read_text()
    lines = [row.line() for row in rows]
    assert [row.case.name for row in rows if f"| {row.case.name} |" not in text] == []
    found = counts(lines)
    assert f"**{found['equal']} of {found.total()} comparisons are equal**" in text

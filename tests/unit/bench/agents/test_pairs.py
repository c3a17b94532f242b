"""``bench compare`` of agents: pairs of the same task and seed."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from bench.agents.pairs import outcomes_between
from bench.compare import compare
from bench.errors import MissingError
from bench.verdicts import Question
from reports.compare import markdown
from tests.unit.bench.result_groups import series


def with_agents(side, out, solved):
    """The group's cells on disk, each with its outcomes: by seed, by task."""
    cells = {}
    for seed, cell in side.cells.items():
        folder = out / cell.folder.name
        folder.mkdir(parents=True)
        rows = [
            {"program": i, "task": f"t-{i}", "success": s, "outcome": "finished", "latency_s": 2.0**s}
            for i, s in enumerate(solved[seed])
        ]
        (folder / "agents.json").write_text(json.dumps({"programs": rows, "totals": {}, "sandboxes": []}))
        cells[seed] = replace(cell, folder=folder)
    return replace(side, cells=cells)


@pytest.fixture
def sides(tmp_path):
    base = with_agents(series([1.0] * 2), tmp_path / "a", {1: [1, 1, 0], 2: [1, 0, 0]})
    new = with_agents(series([1.1] * 2, system="atlas"), tmp_path / "b", {1: [1, 0, 0], 2: [1, 0, 1]})
    return base, new


def test_pairs_are_in_the_comparison_and_decide_nothing(sides):
    found = compare(*sides, Question())
    outcomes = found["outcomes"]
    assert (outcomes["base"]["x"], outcomes["base"]["n"], outcomes["new"]["x"]) == (3, 6, 3)
    assert outcomes["mcnemar"]["base_only"] == [[1, "t-1"]]
    assert outcomes["mcnemar"]["new_only"] == [[2, "t-2"]]
    assert outcomes["mcnemar"]["p"] == 1.0
    ratio = outcomes["latency"]  # programs that were solved took twice as long here
    logs = [math.log(2) * x for x in (0, -1, 0, 0, 0, 1)]
    half = 2.5705818366 * np.std(logs, ddof=1) / math.sqrt(6)
    assert ratio["value"] == pytest.approx(1.0)
    assert (ratio["low"], ratio["high"]) == pytest.approx((math.exp(-half), math.exp(half)))
    text = markdown(found)
    assert "NEW / BASE, pair by pair: 1.000" in text
    assert "solved: BASE 3 of 6" in text
    assert "1 solved by NEW only (t-2 (seed 2))" in text
    json.dumps(found)


def test_a_damaged_cell_is_named(sides):
    base, new = sides
    (base.cells[1].folder / "agents.json").write_text("{}")
    with pytest.raises(MissingError, match=r"agents\.json cannot be read .*--force"):
        compare(base, new, Question())


def test_without_agents_on_both_sides_there_is_nothing_to_say(sides):
    base, _ = sides
    plain = series([1.2] * 2, system="x")
    assert "outcomes" not in compare(base, plain, Question())
    assert outcomes_between(base.cells, plain.cells, True) is None
    assert outcomes_between(base.cells, base.cells, False)["mcnemar"] is None

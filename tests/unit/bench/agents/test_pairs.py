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
    logs = [math.log(2) * x for x in (0, -0.5, 0.5)]  # a task each, over two seeds
    half = 4.3026527297 * np.std(logs, ddof=1) / math.sqrt(3)
    assert ratio["value"] == pytest.approx(1.0)
    assert (ratio["low"], ratio["high"]) == pytest.approx((math.exp(-half), math.exp(half)))
    text = markdown(found)
    assert "NEW / BASE, pair by pair: 1.000" in text
    assert ratio["note"].startswith("3 tasks, 6 pairs; ")
    assert "solved: BASE 3 of 6 runs of 3 tasks (50.0% of tasks)" in text
    assert "tasks: 1 to BASE, 1 to NEW; exact sign test over tasks" in text
    assert "1 solved by NEW only (t-2 (seed 2))" in text
    json.dumps(found)


def scripted(side):
    """The group, answered by scripts."""
    cells = {
        s: replace(c, summary={**c.summary, "agents": {"llm": "scripted"}}) for s, c in side.cells.items()
    }
    return replace(side, cells=cells)


def test_scripts_are_the_same_by_construction_and_have_no_p(sides):
    base, new = map(scripted, sides)
    found = compare(base, new, Question())
    tested = found["outcomes"]["mcnemar"]
    assert found["outcomes"]["scripted"]
    assert (tested["p"], tested["note"]) == (None, "scripted: the same by construction unless a call breaks")
    assert tested["base_only"] == [[1, "t-1"]]  # a call broke, and that is told
    text = markdown(found)
    assert "t-1 (seed 1)); 1 solved by NEW only (t-2 (seed 2)); scripted: the same by construction" in text
    assert " p " not in text.partition("scripted: the same")[2].partition("\n")[0]
    one_side = compare(base, sides[1], Question())["outcomes"]
    assert not one_side["scripted"]
    assert one_side["mcnemar"]["p"] == 1.0


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

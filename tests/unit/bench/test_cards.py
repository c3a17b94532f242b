import json

import pytest

from bench.cards import (
    COMPARISON,
    comparisons,
    entries,
    entry,
    groups_of,
    keep,
    keep_sensitivity,
    kept,
    read,
    shown,
)
from bench.errors import MissingError, UsageError
from tests.unit.bench.result_groups import LATENCY, cell, write


@pytest.fixture
def out(tmp_path):
    """Two systems on two seeds."""
    for system in ("s", "t"):
        write([cell(seed, {LATENCY: 1.0}, system=system) for seed in (1, 2)], tmp_path / "out")
    return tmp_path / "out"


def names(groups):
    return [(g.first.summary["system"], sorted(g.cells)) for g in groups]


def test_results_and_folders_are_grouped_whatever_their_order(out):
    assert names(groups_of([str(out)], out)) == [("s", [1, 2]), ("t", [1, 2])]
    systems = {p: json.loads((p / "summary.json").read_text())["system"] for p in out.iterdir()}
    one, other = sorted(p for p, system in systems.items() if system == "s")
    assert names(groups_of([str(one)], out)) == [("s", [1])]
    assert names(groups_of([str(other), str(one)], out)) == [("s", [1, 2])]
    assert names(groups_of([one.name], out)) == [("s", [1])]  # by its name
    with pytest.raises(UsageError, match="no result"):
        groups_of(["nothing"], out)
    with pytest.raises(MissingError, match="no finished result"):
        groups_of([str(out.parent)], out)


def test_an_entry_says_what_it_is_the_card_of(out):
    group = groups_of([str(out)], out)[0]
    found = entry(group)
    assert (found["system"], found["seeds"], found["sensitivity"]) == ("s", [1, 2], None)
    assert found["card"]["engine"]["name"] == "sim"
    assert found["command"] == f"bench card {group.first.folder} --sensitivity"
    assert [e["seeds"] for e in entries(c for g in groups_of([str(out)], out) for c in g.cells.values())] == [
        [1, 2], [1, 2]
    ]  # fmt: skip


def test_a_sensitivity_is_kept_beside_the_results_and_more_seeds_win(out):
    group = groups_of([str(out)], out)[0]
    keep_sensitivity(group, {"seeds": [1, 2], "rows": []})
    assert kept(group.first)["seeds"] == [1, 2]
    keep_sensitivity(group, {"seeds": [1], "rows": ["fewer"]})
    assert kept(group.first)["seeds"] == [1, 2]
    keep_sensitivity(group, {"seeds": [1, 2], "rows": ["again"]})
    assert entry(group)["sensitivity"]["rows"] == ["again"]
    page = shown(dict(group.first.summary), group.first.folder)
    assert page["sensitivity"]["rows"] == ["again"]
    assert groups_of([str(out)], out)[1].first.summary["system"] == "t"  # cards are no results
    assert kept(groups_of([str(out)], out)[1].first) is None


def test_a_kept_file_that_cannot_be_read_is_none(tmp_path):
    assert read(tmp_path / "none.json") is None
    for text in ("{", "[]", '{"format": 0}'):
        (tmp_path / "x.json").write_text(text)
        assert read(tmp_path / "x.json") is None


def test_comparisons_are_found_by_either_side(tmp_path):
    keep(COMPARISON, "a-b", tmp_path, {"base_group": "a", "new_group": "b"})
    keep(COMPARISON, "c-d", tmp_path, {"base_group": "c", "new_group": "d"})
    assert [c["name"] for c in comparisons([tmp_path, tmp_path], ["b"])] == ["a-b"]
    assert [c["name"] for c in comparisons([tmp_path], ["a", "d"])] == ["a-b", "c-d"]
    assert comparisons([tmp_path / "none"], ["a"]) == []


def test_a_folder_that_takes_nothing_is_said(tmp_path):
    (tmp_path / "cards").write_text("")
    with pytest.raises(MissingError, match="cannot write results"):
        keep(COMPARISON, "a-b", tmp_path, {})


def test_a_pooled_summary_asks_for_its_seeds(out):
    one = groups_of([str(out)], out)[0].first
    page = shown({**one.summary, "seeds": [1, 2, 3]}, one.folder)
    assert page["vary"].endswith("--sensitivity --seeds 3")

"""The suite's frame, with parts made up here: found, chosen, run, kept, shown."""

import json
import math
from importlib import import_module

import pytest
from typer.testing import CliRunner

from bench.cli.main import app
from bench.errors import MissingError, UsageError
from bench.fidelity import suite
from bench.fidelity.page import page
from bench.fidelity.part import Bar, Options, Outcome
from systems.latency import validation

PARTS = {
    "b_second": """
from bench.fidelity.part import Bar, Outcome
from systems.latency.validation import Validation

class Second:
    name, title, cost = "b-second", "The second", "nothing"
    def missing(self, options):
        return ""
    def run(self, options, say):
        say("half way")
        got = 9.0 if options.seed == 9 else 1.5
        rows = [Validation("tiny", "cpu", "TPOT", "mean", got / 100, 7, "nothing", "a thing")]
        return Outcome([Bar("error", got, 2.0)], "It is *near*.", {"got": [got]}, {"files": 2}, rows)

PART = Second()
""",
    "a_first": """
class First:
    name, title, cost = "a-first", "The first", "a server"
    def missing(self, options):
        return "no server here: start one"
    def run(self, options, say):
        raise AssertionError("not asked whether it can run")

PART = First()
""",
    "helper": "NUMBER = 3\n",
}


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """A folder of parts in place of the suite's; returns where records and pages go."""
    package = tmp_path / "some_parts"
    package.mkdir()
    for name, text in {"__init__": "", **PARTS}.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    found = import_module("some_parts")
    monkeypatch.setattr(suite, "folder", found)
    for name in ("some_parts", *(f"some_parts.{part}" for part in PARTS)):
        monkeypatch.delitem(__import__("sys").modules, name, raising=False)
    places = (tmp_path / "kept", tmp_path / "page.md", tmp_path / "validations.json")
    monkeypatch.setattr(suite.keep, "__defaults__", places)
    monkeypatch.setattr(suite.rebuild, "__defaults__", places)
    yield tmp_path
    validation.every.cache_clear()


def options(folder, **other):
    return Options(folder, folder, **other)


def bench(*words):
    return CliRunner().invoke(app, ["fidelity", *words])


# Finding and choosing


def test_parts_are_found_in_order_and_other_modules_left_alone(parts):
    assert list(suite.parts()) == ["a-first", "b-second"]


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ([], ["a-first", "b-second"]),
        (["b"], ["b-second"]),
        (["b-second", "a"], ["b-second", "a-first"]),
        (["b", "b-second", "b"], ["b-second"]),
    ],
)
def test_parts_are_chosen_by_name_or_letter_once_each(parts, names, chosen):
    assert [part.name for part in suite.choose(names)] == chosen


def test_an_unknown_part_names_the_nearest(parts):
    with pytest.raises(UsageError, match="unknown part 'b-secnd': did you mean b-second"):
        suite.choose(["b-secnd"])
    result = bench("b", "zzz")
    assert result.exit_code == 2
    assert "known: a-first, b-second" in result.stderr
    assert not (parts / "page.md").exists()


def test_the_parts_of_this_project_have_what_a_part_needs():
    found = suite.parts()
    assert "a-schedules" in found
    letters = [name.partition("-")[0] for name in found]
    assert len(set(letters)) == len(letters)
    assert all(part.title and part.cost for part in found.values())


# Running


def test_a_part_that_cannot_run_is_not_run(parts):
    with pytest.raises(MissingError, match="part a-first: no server here: start one"):
        suite.run(suite.parts()["a-first"], options(parts), print)


def test_a_record_has_what_was_found_and_what_made_it(parts):
    said = []
    found = suite.run(suite.parts()["b-second"], options(parts, seed=4), said.append)
    assert said == ["half way"]
    bar = {"what": "error", "got": 1.5, "most": 2.0, "unit": "%", "interval": None, "met": True}
    assert found["bars"] == [bar]
    assert (found["facts"]["seed"], found["facts"]["files"], found["numbers"]) == (4, 2, {"got": [1.5]})
    assert found["validations"][0]["gpu"] == "cpu"
    assert {"git", "versions", "hardware"} <= set(found)
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(("got", "met"), [(2.0, True), (2.01, False), (math.nan, False), (-1.0, True)])
def test_a_bar_is_met_at_most(got, met):
    assert Bar("x", got, 2.0).met is met


# Keeping and showing


def test_two_parts_kept_make_one_page_and_one_list(parts):
    one = suite.run(suite.parts()["b-second"], options(parts), print)
    suite.keep(one)
    suite.keep({**one, "name": "c-third", "title": "The third", "bars": [], "validations": []})
    text = (parts / "page.md").read_text()
    assert text.index("## The second") < text.index("## The third")
    assert "| b-second | error | 2 % | 1.5 % | met |" in text
    assert [row["model"] for row in json.loads((parts / "validations.json").read_text())] == ["tiny"]
    before = text, (parts / "validations.json").read_text()
    suite.rebuild()
    assert ((parts / "page.md").read_text(), (parts / "validations.json").read_text()) == before


def test_the_page_is_a_pure_function_of_the_records(parts):
    one = suite.run(suite.parts()["b-second"], options(parts), print)
    assert page([one]) == page([json.loads(json.dumps(one))])
    nan = {**one, "bars": [{**one["bars"][0], "got": None, "met": False}]}
    assert "| none | **not tested** |" in page([nan])
    assert "**Not measured yet:** The third" in page([one], ["The third"])


@pytest.mark.parametrize("text", ["<<<<<<< HEAD\n{}", "{}", "[]", '{"name": "b"}', '"x"'])
def test_a_broken_record_is_named(parts, text):
    (parts / "kept").mkdir()
    (parts / "kept" / "b-second.json").write_text(text)
    result = bench("--page")
    assert result.exit_code == 2
    assert "b-second.json is no record of a part" in result.stderr


# The verb


def test_a_run_writes_its_record_and_the_page(parts):
    result = bench("b", "--data", str(parts))
    assert result.exit_code == 0, result.output
    assert "b-second: error: 1.5 % (at most 2 %): met" in result.stdout
    assert json.loads((parts / "kept" / "b-second.json").read_text())["name"] == "b-second"
    assert "It is *near*." in (parts / "page.md").read_text()


def test_a_bar_that_is_not_met_is_exit_3_and_is_written_down(parts):
    result = bench("b", "--seed", "9")
    assert result.exit_code == 3
    assert "NOT MET" in result.stdout
    assert "**not met**" in (parts / "page.md").read_text()


@pytest.mark.parametrize("word", ["--quick", "--no-write"])
def test_quick_and_no_write_leave_nothing(parts, word):
    result = bench("b", word, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)[0]["name"] == "b-second"
    assert not (parts / "page.md").exists()
    assert not (parts / "kept").exists()


def test_what_is_missing_is_left_out_unless_it_was_asked_for(parts):
    every = bench()
    assert every.exit_code == 0
    assert "left out: part a-first: no server here" in every.stderr
    assert bench("a").exit_code == 6
    assert bench("a", "b").exit_code == 6
    assert bench("a", "b", "--seed", "9").exit_code == 3  # a bar that is not met says more


def test_the_page_alone_runs_nothing(parts):
    assert bench("b").exit_code == 0
    (parts / "page.md").unlink()
    assert bench("--page").exit_code == 0
    assert "## The second" in (parts / "page.md").read_text()
    result = bench("--page", "b")
    assert result.exit_code == 2
    assert "--page runs nothing" in result.stderr


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        (None, "1.5 % | met |"),
        ((1.0, 1.9), "1.5 % (1 .. 1.9) | met |"),
        ((-3.1, 1.4), "1.5 % (-3.1 .. +1.4) | met, its interval is not |"),
        ((1.0, 2.1), "1.5 % (1 .. 2.1) | met, its interval is not |"),
    ],
)
def test_the_page_shows_a_bar_s_interval(parts, interval, words):
    (second,) = suite.choose(["b"])
    bar = Bar("error", 1.5, 2.0, interval=interval)
    made = suite.record(second, Outcome([bar], "It."), Options(parts, parts), 1.0)
    assert words in page([made])

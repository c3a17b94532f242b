"""The pages of ``bench trace``: what a first look must show, whatever the data."""

import io
import json
import math

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from bench.cli.main import app
from reports.trace import arrivals, heavy, law, losses
from reports.trace_convert import lines


def shown(*words):
    got = CliRunner().invoke(app, ["trace", "stats", *map(str, words)])
    assert got.exit_code == 0, got.output
    return " ".join(got.output.split())


@pytest.fixture
def ticked(tmp_path):
    """A CSV of 60 calls on a 3-second clock, all of 512 tokens."""
    rng = np.random.default_rng(1)
    path = tmp_path / "t.csv"
    rows = [f"{3 * int(t // 3)},{512},{int(o) + 1}" for t, o in zip(
        rng.exponential(0.5, 60).cumsum(), rng.lognormal(4, 1, 60), strict=True)]  # fmt: skip
    path.write_text("\n".join(["Timestamp,Request tokens,Response tokens", *rows]) + "\n")
    return path


def test_odd_data_are_called_odd_before_their_numbers(ticked):
    text = shown(ticked)
    assert text.index("these data look odd") < text.index("calls per program")
    for words in ("constant lengths", "coarse clock", "no sharing", "closest law", "programs/s over"):
        assert words in text
    assert f"bench run --system plas --workload {ticked}" in text.replace("\n", "")


def test_generated_programs_say_what_they_need(tmp_path):
    text = shown("react:hotpot", "-n", 60)
    assert "these data look odd" not in text
    assert "none recorded, so a run needs --rate" in text
    assert "from its own program from other programs optimum" in text
    assert "mean residual life of a program's output tokens: falls" in text
    page = tmp_path / "p.html"
    assert "with plots" in shown("react:hotpot", "-n", 60, "--html", page)
    assert page.read_text().count("<figure>") == 3  # no arrivals, no picture of them
    again = CliRunner().invoke(app, ["trace", "stats", "react:hotpot", "-n", "9", "--html", str(page)])
    assert (again.exit_code, "--force" in again.output) == (2, True)


def test_json_is_strict_and_complete(ticked):
    got = CliRunner().invoke(app, ["trace", "stats", str(ticked), "--json"])
    found = json.loads(got.output)
    assert {d["rule"] for d in found["doubts"]} >= {"coarse clock", "constant lengths"}
    assert set(found) >= {"arrivals", "prefix", "fits", "residual_life", "distributions", "skipped", "where"}


def test_losses_name_the_most_frequent_reasons_first_with_a_place():
    counts = {f"reason {i}": i for i in range(1, 10)} | {"prompt over the context of 8 tokens": 99}
    text = losses("skipped", counts, {"reason 9": "a.json:3, a.json:7"}, 500)
    assert text[0] == "skipped 144 of 500 records:"
    assert text[1] == "  99 x prompt over the context of 8 tokens"
    assert text[2] == "  9 x reason 9 (first: a.json:3)"
    assert text[-2:] == ["  and 4 more reasons (--json)", "  (--on-overflow truncate keeps what fits)"]
    assert losses("skipped", {}, {}, 5) == []


def test_small_words():
    fit = {
        "laws": [{"law": "weibull", "k": 1.5, "scale": 300.0, "ks": 0.02}],
        "best": "weibull",
        "holds": False,
    }
    assert law(fit) == "~weibull(1.50, 300) 0.020"
    assert law(None) == ""
    assert arrivals({"n": 3, "span_s": 0.0}).startswith("arrivals: all programs at once")
    tail = {"alpha": 2.5, "xmin": 40.0, "share": 0.1, "holds": True}
    assert "calls 2.50 from 40 on (10.0%)" in heavy({"calls": {"tail": tail}})[0]
    assert heavy({"calls": {"tail": tail | {"alpha": 3.5}}}) == []
    assert math.isfinite(tail["alpha"])


def test_what_a_conversion_says():
    facts = {
        "file": "x",
        "programs": 2,
        "source": "s",
        "lines": 5,
        "format": "azure",
        "lost": {},
        "where": {},
    }
    assert lines(facts)[1] == "lossless: azure holds everything these programs do"
    facts |= {"lost": {"a": 1, "b": 7}, "where": {"a": "program 1", "b": "program 0, program 1"}}
    assert lines(facts)[2:] == ["  7 x b (first: program 0)", "  1 x a (first: program 1)"]


def test_pages_fit_a_terminal_of_110_columns():
    from bench.config import RunConfig
    from bench.plan import load_programs
    from bench.trace import stats
    from reports.trace import render

    console = Console(width=110, file=io.StringIO())
    console.print(render(stats(load_programs(RunConfig("", "mcts", n=10)))))
    table = [row for row in console.file.getvalue().splitlines() if "per " in row and "…" in row]
    assert table == []

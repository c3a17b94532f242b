import io

import pytest
from rich.console import Console

from bench.compare import compare
from bench.verdicts import Question
from reports.compare import effect, markdown, needed, outcome, render, spans
from tests.unit.bench.result_groups import LATENCY, series

VALUES = [1.0, 1.4, 0.8, 2.2, 1.9, 0.7, 1.3, 1.1]


def found(factor=1.2, **question):
    new = [v * factor * (1 + 0.001 * i) for i, v in enumerate(VALUES)]
    return compare(series(VALUES), series(new, system="<b>*x*"), Question(**question))


def page(data, width=110):
    console = Console(width=width, file=io.StringIO())
    console.print(render(data))
    return console.file.getvalue()


def test_the_page_fits_and_shows_both_sides_and_the_effect():
    text = page(found())
    assert max(map(len, text.splitlines())) <= 110
    for word in ("BASE s on", "NEW  <b>*x* on", "SIMULATED", "1.204", "worse", "gated", "seeds needed"):
        assert word in text
    assert text.count("SIMULATED") == 1


def test_markdown_escapes_names_and_starts_with_its_marker():
    text = markdown(found())
    assert text.splitlines()[0] == "<!-- bench compare -->"
    assert "&lt;b&gt;\\*x\\*" in text
    assert "<b>" not in text.replace("<br>", "")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert {line.count("|") - line.count("\\|") for line in rows} == {8}


def test_what_was_allowed_is_marked():
    other = series([v * 1.2 for v in VALUES], latency="other")
    data = compare(series(VALUES), other, Question(allow=frozenset({"engine"})))
    for text in (page(data), markdown(data)):
        assert "compared although the engine differs" in text


@pytest.mark.parametrize(
    ("factor", "question", "says"),
    [
        (1.2, {}, "REGRESSION: NEW is worse in program.s_per_token.mean_of_ratios"),
        (0.8, {}, "no regression; better in"),
        (1.0, {}, "no regression"),
        (1.2, {"gates": ("program.response.p95",)}, "inconclusive"),
    ],
)
def test_the_outcome_in_a_sentence(factor, question, says):
    if "gates" in question:
        sides = [series(VALUES, others={"program.response.p95": None}.items(), system=n) for n in ("s", "t")]
        data = compare(*sides, Question(**question))
        assert "n too small (20 < 130)" in outcome(data)
    else:
        data = found(factor, **question)
    assert outcome(data).startswith(says)


def test_too_few_seeds_are_counted():
    data = compare(series(VALUES[:3]), series(VALUES[:3], system="t"), Question())
    assert outcome(data) == "exploratory, no verdict: paired seeds that count: 3; a verdict needs 8"


def test_cells():
    ratio = {"scale": "ratio", "effect": 1.1, "low": 1.05, "high": 1.2, "bar": 1.05, "seeds_needed": 12}
    assert effect(ratio) == "1.100\n[1.050, 1.200]"
    assert needed(ratio) == "12"
    assert needed(ratio | {"seeds_needed": None}) == "> 10,000"
    assert needed(ratio | {"seeds_needed": None, "bar": 1.0}) == "-"
    shift = {"scale": "difference", "effect": -0.5, "low": -1, "high": 0.25}
    assert effect(shift) == "-0.5\n[-1, +0.25]"
    assert effect({"effect": None}) == "-"


def test_spans():
    assert (spans([1, 2, 3]), spans([1, 3]), spans([4])) == ("1-3", "1, 3", "4")


def test_the_effect_of_the_page_is_the_json_one():
    data = found()
    (row,) = (r for r in data["metrics"] if r["name"] == LATENCY)
    assert f"{row['effect']:.3f}" in page(data)

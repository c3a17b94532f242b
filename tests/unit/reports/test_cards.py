from reports.cards import heading, markdown, render, section
from reports.page import render as page
from tests.unit.reports.cards import card, entry, sensitivity, survival
from tests.unit.reports.test_card import text

NOTE = "Whether verdicts survive: not varied here"


def test_the_page_has_card_sensitivity_and_verdict():
    got = text(render([entry(), entry(system="plas", sensitivity=sensitivity())], [survival()]))
    for word in ("atlas on w_x, 2/s, seeds 1-3 (3)", "not computed: bench card r --sensitivity", "m<8b>",
                 "0.850", "[0.840, 0.860]", "n/a", "paired seeds", "new against base",
                 "worse; survives: yes"):  # fmt: skip
        assert word in got
    assert max(map(len, got.splitlines())) <= 110
    assert heading(entry(seeds=[4])).endswith("seed 4")


def test_markdown_escapes_names_and_keeps_tables_whole():
    lines = markdown([entry(), entry(sensitivity=sensitivity())], [survival()]).splitlines()
    assert "### atlas on w\\_x, 2/s, seeds 1-3 (3)" in lines
    assert any("m&lt;8b&gt;" in line for line in lines)
    assert "| prefill x 0.85 | 0.850<br>[0.840, 0.860] | - |" in lines
    assert any(line.startswith("| overall | worse; survives: yes") for line in lines)


def test_a_section_shows_equal_cards_once_and_says_what_is_not_computed():
    same = [entry(system=s) for s in ("atlas", "plas")]
    other = entry(system="mlfq", card=card(varied={"prefill": 1.15}), sensitivity=sensitivity())
    made = section([*same, other], [survival()])
    captions = [table.caption for table in made.tables]
    assert captions[0] == "atlas, plas on w_x: 2 groups of results"
    assert captions[1] == "mlfq on w_x: 1 groups of results"
    assert captions[2].startswith("mlfq on w_x, 2/s, seeds 1-3 (3): one part at a time")
    assert captions[3] == "new against base on w, 2/s"
    assert "not computed of 2 of 3 groups: bench card r --sensitivity" in made.text


def test_a_section_says_whether_verdicts_were_varied():
    assert "not varied here; bench compare" in section([entry()]).text
    assert section([entry()], (), NOTE).text.startswith(NOTE)
    html = page("t", "", [section([entry(sensitivity=sensitivity())], [survival()])], {"badge": "SIMULATED"})
    assert "<h2>Fidelity card</h2>" in html
    assert "m&lt;8b&gt;" in html

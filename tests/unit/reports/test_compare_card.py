"""The card of a comparison, and a verdict that does not survive."""

from reports.compare import card_lines, flipped, markdown, render
from tests.unit.reports.cards import card, survival
from tests.unit.reports.test_card import text
from tests.unit.reports.test_compare_page import found as compared

FLIP = {"prefill x 0.85": "~"}


def found(base=None, new=None, tried=None):
    data = compared()
    data["base"]["card"], data["new"]["card"] = base or card(), new or card()
    return data | ({"sensitivity": tried} if tried else {})


def test_equal_cards_are_shown_once_and_others_by_side():
    assert [label for label, _ in card_lines(found())] == ["card", "calibration", "known error", "survives"]
    labels = [label for label, _ in card_lines(found(base=card(varied={"PCIe": 2.0})))]
    assert labels[:2] == ["card BASE", "calibration BASE"]
    assert "known error NEW" in labels
    data = found()
    data["base"]["card"] = None
    assert card_lines(data)[0] == ("card BASE", "these results have none")


def test_a_verdict_that_does_not_survive_is_a_line_of_its_own():
    data = found(tried=survival(changed=FLIP))
    line = "THE VERDICT DOES NOT SURVIVE: worse as it is, ~ under prefill x 0.85"
    assert flipped(data) == line
    page = text(render(data))
    assert page.splitlines()[-1].rstrip() == line
    assert "survives overall" in page
    assert "**THE VERDICT DOES NOT SURVIVE" in markdown(data)
    assert "| prefill x 0.85 | \\~ | 1.020 \\~ |" in markdown(data)


def test_one_that_survives_or_was_not_tried_has_none():
    assert flipped(found()) == ""
    assert flipped(found(tried=survival())) == ""
    assert "not varied here: bench compare" in text(render(found()))

import pytest

from reports.varied import caption, columns, gaps, grid, lasting, spread, tried, under
from tests.unit.reports.cards import sensitivity, survival


def test_a_row_per_variation_with_intervals_or_why_there_is_nothing():
    assert columns(sensitivity()) == ["varied", "mean response", "p95 response"]
    assert grid(sensitivity()) == [
        ["prefill x 0.85", "0.850\n[0.840, 0.860]", "-"],
        ["prefill x 1.15", "1.150\n[1.140, 1.160]", "-"],
        ["PCIe x 0.85", "n/a", "n/a"],
    ]
    assert gaps(sensitivity()) == ["p95: n < 130", "PCIe x 0.85: n/a: moves nothing"]


def test_the_caption_says_what_the_intervals_are():
    assert "t intervals over 8 paired seeds" in caption(sensitivity())
    assert "one seed, no interval" in caption(sensitivity(seeds=1))


def test_the_spread_names_the_part_that_matters_most():
    assert spread(sensitivity()) == ["mean response x0.850..x1.150 (prefill most)"]
    assert "no variation" in spread(sensitivity() | {"rows": []})[0]


NONE = {"survives": "n/a", "changed": {}}


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (survival(), "worse; survives: yes (1 variations)"),
        (survival(changed={"prefill x 0.85": "~"}), "worse; survives: no: prefill x 0.85 -> ~"),
        (survival(failed=["KV blocks x 0.85"]), "not tested: KV blocks x 0.85"),
        (survival(overall=NONE | {"verdict": "exploratory"}), "(no verdict to survive)"),
        (survival(overall=NONE | {"verdict": "worse"}, tested=0), "nothing could be varied"),
    ],
)  # fmt: skip
def test_what_survives_in_words(found, says):
    assert says in dict(lasting(found))["overall"]


def test_verdicts_under_each_variation():
    found = survival(changed={"prefill x 0.85": "~"})
    assert under(found) == [["prefill x 0.85", "~", "1.020 ~"], ["PCIe x 0.85", "n/a", "n/a"]]
    assert tried(found).endswith("PCIe x 0.85: n/a: neither side moves")

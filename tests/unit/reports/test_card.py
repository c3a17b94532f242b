import io

import pytest
from rich.console import Console

from reports.card import NOT_VALIDATED, calibration, errors, fitting, of_summary, rows, short
from tests.unit.reports.cards import card, fit, sensitivity

LONG = [f"held-out row number {i} of a recording with a long name (n=1000, fold {i})" for i in range(9)]
EXTREME = [
    {},
    {"calibration": fit(name="x" * 40, fitted_on={"file": "y" * 200}),
     "error": {"source": "calibration", "rows": LONG, "short": LONG}},
    {"error": {"source": "validation", "rows": LONG, "short": LONG},
     "varied": {"prefill": 1.15, "decode": 0.85, "PCIe": 2.0},
     "fallbacks": ["preemption swap -> recompute (vLLM V1 has no KV swap)"] * 2, "model": "m" * 30},
    {"band": [0.68, 1.46]},
]  # fmt: skip


def text(renderable, width=110):
    console = Console(file=io.StringIO(), width=width)
    console.print(renderable)
    return console.file.getvalue()


@pytest.mark.parametrize("changes", EXTREME)
@pytest.mark.parametrize("out", ["results", "a-folder-of-a-long-name/" * 4])
@pytest.mark.parametrize("varied", [None, sensitivity()])
def test_the_card_of_a_run_takes_at_most_six_lines_of_110_columns(changes, varied, out):
    summary = {
        "card": card(**changes),
        "sensitivity": varied,
        "vary": f"bench card {out}/0123456789abcdef --sensitivity",
    }
    lines = text(of_summary(summary)).splitlines()
    assert len(lines) <= 6
    assert [line.split("  ")[0] for line in lines if line[0] != " "] == [
        "card", "calibration", "known error", "sensitivity", "verdict"
    ]  # fmt: skip


def test_a_summary_without_a_card_has_none():
    assert of_summary({}) is None


def test_what_was_computed_stands_where_the_command_stood():
    told = dict(short(card(), None, "THE COMMAND", "v"))
    assert told["sensitivity"] == "not computed: THE COMMAND"
    told = dict(short(card(), sensitivity(), "THE COMMAND", "v"))
    assert told["sensitivity"] == "mean response x0.850..x1.150 (prefill most)"


def test_the_whole_card_says_where_step_times_come_from():
    told = dict(rows(card()))
    assert told["engine"] == "sim (simulated: rules); 2 x m<8b> on a100, 27,062 KV blocks each"
    for word in ("measured kernels (lib 1.2, vLLM 0.14.0, measured, exported 2026-11-29)",
                 "digest 0123456789", "smallest step 11.5 ms", "host time fitted on top: none"):  # fmt: skip
        assert word in told["step times"]
    assert told["fallbacks"] == "none"
    assert dict(rows(card(varied={"prefill": 1.15})))["varied here"] == "prefill x 1.15"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "none: absolute times +-15 %"),
        ({"band": [0.68, 1.46]}, "none: absolute times x0.68..x1.46, and +-15 % on top"),
        ({"band": None}, "none"),
        ({"calibration": fit()}, "mine: scale 1.043, +0.52 ms per step; fitted on file run.csv, rows 120"),
        ({"calibration": fit(fitted_on={})}, "what it was fitted on is not recorded"),
        ({"calibration": fit(kind="linear", coefficients={"step": 2.0, "row": 0.1})}, "step 2, row 0.1"),
    ],
)  # fmt: skip
def test_calibrations_in_words(changes, says):
    assert says in calibration(card(**changes))


def test_errors_say_where_they_come_from():
    assert errors(card()) == [NOT_VALIDATED]
    assert errors(card(calibration=fit())) == ["the calibration has no held-out error"]
    held = card(calibration=fit(), error={"source": "calibration", "rows": ["TPOT 4 %"], "short": []})
    assert errors(held) == ["held out: TPOT 4 %"]
    seen = {"source": "validation", "rows": ["TPOT 8 % against x"]}
    assert errors(card(error=seen)) == ["TPOT 8 % against x"]
    assert "not as it is varied here" in errors(card(error=seen, varied={"decode": 1.15}))[1]


def test_a_line_holds_what_fits_and_counts_the_rest():
    assert fitting(["a", "b"]) == "a; b"
    got = fitting(LONG)
    assert got.startswith(LONG[0])
    assert got.endswith("8 more (bench card)")
    assert fitting(["x" * 300]).endswith("... (bench card)")

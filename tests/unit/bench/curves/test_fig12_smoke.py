"""``bench reproduce autellix:fig12 --scale smoke``, the whole way: interrupted, resumed, drawn."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

COMMAND = [
    sys.executable,
    "-m",
    "bench.cli.main",
    "reproduce",
    "autellix:fig12",
    "--scale",
    "smoke",
    "--json",
]
ROOT = Path(__file__).parents[4]
FOLDER = "autellix-fig12-smoke"


def reproduce(out, *more):
    """A fresh process in the background."""
    return subprocess.Popen(
        [*COMMAND, "--out", str(out), *more], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip


def finished(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return json.loads(out)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    return out, finished(reproduce(out))


def digests(out):
    """Result hash by cell."""
    found = (json.loads(p.read_text()) for p in out.glob("*/summary.json"))
    return {s["cell"]: s["result_hash"] for s in found}


def test_page_pictures_and_tables_are_there(whole):
    out, facts = whole
    page = (out / FOLDER / "report.html").read_text()
    assert "SIMULATED" in page
    assert "<h2>Fidelity card</h2>" in page
    assert "not varied here" in page
    assert "last varied: docs/fig12.md" in facts["survives"]
    assert [one["gpu"] for one in facts["cards"]] == ["a100"] * len(facts["cards"])
    assert "<script" not in page
    assert not [word for word in ('src="http', 'href="http', "@import") if word in page]
    names = {Path(f).stem for f in facts["files"]}
    assert names >= {"latency_curves", "sensitivity", "horizon", "equal_latency", "time_split"}
    for name in names:
        assert {p.suffix for p in (out / FOLDER / "figures").glob(f"{name}.*")} == {".png", ".svg", ".csv"}


def test_every_claim_has_both_verdicts_and_few_seeds_give_none(whole):
    _, facts = whole
    assert len(facts["claims"]) >= 20
    words = [row[kind] for row in facts["claims"] for kind in ("transient", "sustained")]
    assert all(w == "not testable here" or w.startswith("exploratory: ") for w in words)
    assert facts["programs"] > 0
    assert facts["calls"] > 0


def test_the_curves_hold_what_the_runs_say(whole):
    out, _ = whole
    table = pd.read_csv(out / FOLDER / "figures" / "latency_curves.csv")
    summaries = [json.loads(p.read_text()) for p in out.glob("*/summary.json")]
    row = table[(table.system == "vllm-opt") & (table.workload == "ShareGPT")].iloc[0]
    mine = [
        s["metrics"]["transient.mean_of_ratios"]["value"]
        for s in summaries
        if s["system"] == "vllm-opt" and s["workload"] == "chatbot:paper"
        and f"Poisson {row.rate:g}/s for 20 s" in s["load"]
    ]  # fmt: skip
    assert row.seeds == len(mine)
    assert row.value == pytest.approx(sum(mine) / len(mine))


def copy_most(out, into):
    """Three of four finished cells of another run, as if an earlier one had got that far; how many."""
    cells = sorted(path.parent for path in out.glob("*/summary.json"))
    kept = [cell for i, cell in enumerate(cells) if i % 4]
    for cell in kept:
        shutil.copytree(cell, into / cell.name)
    return len(kept)


def test_interrupted_and_resumed_it_ends_the_same(whole, tmp_path):
    out, facts = whole
    kept = copy_most(out, tmp_path)
    process = reproduce(tmp_path, "--only-claims")
    deadline = time.monotonic() + 120
    while len(list(tmp_path.glob("*/summary.json"))) < kept + 5:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    again = finished(reproduce(tmp_path, "--only-claims"))
    made = len(list(tmp_path.glob("*/summary.json"))) - kept
    assert made > 5  # the interrupted run left cells to do
    assert again["cells_there"] >= 5
    assert again["claims"] == facts["claims"]
    assert digests(tmp_path).items() < digests(out).items()
    for name in ("latency_curves.svg", "latency_curves.png", "equal_latency.csv"):
        one, other = ((folder / FOLDER / "figures" / name).read_bytes() for folder in (out, tmp_path))
        assert one == other, name

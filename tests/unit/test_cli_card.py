"""Every kind of output carries the fidelity card; ``bench card`` and ``--sensitivity`` as commands."""

import json

import pytest
from typer.testing import CliRunner

from bench import report, sensitivity, survival
from bench.cli.main import app
from bench.config import RunConfig
from bench.run import run
from bench.sensitivity import Variation

KNOBS = {"engine.record_decisions": "false", "engine.max_num_seqs": "4"}
LABELS = ("card ", "calibration ", "known error ")
BARS = "absolute times +-15 %"


def invoke(*words):
    return CliRunner().invoke(app, [str(w) for w in words])


def carries(text):
    """The card's lines, with what is to be believed where nothing is calibrated."""
    lines = text.splitlines()
    return all(any(line.startswith(label) for line in lines) for label in LABELS) and f"none: {BARS}" in text


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Two systems, one seed each."""
    folder = tmp_path_factory.mktemp("results")
    for system in ("vllm-opt", "mlfq"):
        run(RunConfig(system, "chatbot", rate=4.0, n=6, knobs=KNOBS, out=folder))
    return folder


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    """They take most of a report's time, and are tested elsewhere."""
    monkeypatch.setattr(report, "draw", lambda *_: [])


@pytest.fixture
def few(monkeypatch):
    """One variation, or the tests of the command line take long."""
    for module in (sensitivity, survival):
        monkeypatch.setattr(module, "variations", lambda: [Variation("per-step overhead", 1.15)])


def cell(out, system):
    found = {json.loads(path.read_text())["system"]: path.parent for path in out.glob("*/summary.json")}
    return found[system]


SAME = [
    "--workload",
    "chatbot",
    "--rate",
    4,
    "--n",
    6,
    *(w for k, v in KNOBS.items() for w in ("--knob", f"{k}={v}")),
]


def test_run_and_show_and_their_json(out):
    words = ["run", "--system", "mlfq", *SAME, "--out", out]
    assert carries(invoke(*words).output)
    assert "not computed: bench card" in invoke(*words).output
    assert json.loads(invoke(*words, "--json").output)["card"]["engine"]["name"] == "sim"
    folder = cell(out, "mlfq")
    assert carries(invoke("show", folder).output)
    assert json.loads((folder / "summary.json").read_text())["card"]["table"]["package"]


def test_pooled_seeds_and_a_sweep(out):
    words = [*SAME, "--out", out, "--seeds", 2]
    assert carries(invoke("run", "--system", "mlfq", *words).output)
    got = invoke("sweep", "--system", "mlfq", *words, "--workers", 1)
    assert carries(got.output), got.output
    assert json.loads(invoke("run", "--system", "mlfq", *words, "--json").output)["card"]["gpu"] == "a100"


def test_a_result_from_before_there_were_cards_has_one(out):
    folder = cell(out, "vllm-opt")
    before = {name: (folder / name).read_text() for name in ("summary.json", "manifest.json")}
    old = {name: json.loads(text) for name, text in before.items()}
    del old["summary.json"]["card"], old["manifest.json"]["fallbacks"]
    old["manifest.json"]["latency_table"].pop("uncertainty")
    for name, data in old.items():
        (folder / name).write_text(json.dumps(data))
    try:
        assert carries(invoke("show", folder).output)
    finally:
        for name, text in before.items():
            (folder / name).write_text(text)


def test_a_damaged_manifest_is_one_line(out, tmp_path):
    folder = cell(out, "vllm-opt")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "summary.json").write_text((folder / "summary.json").read_text())
    (broken / "manifest.json").write_text('{"latency_table": 5}')
    got = invoke("show", broken)
    assert (got.exit_code, len(got.output.splitlines())) == (6, 1), got.output
    assert "manifest.json is damaged" in got.output


def test_compare_on_the_page_in_json_and_in_markdown(out, tmp_path):
    words = ["compare", out, out, "--base-system", "vllm-opt", "--new-system", "mlfq", "--base-seeds", 1]
    got = invoke(*words)
    assert carries(got.output), got.output
    assert "not varied here" in got.output
    target = tmp_path / "c.md"
    data = json.loads(invoke(*words, "--json", "--markdown", target).output)
    assert data["base"]["card"]["model"] == data["new"]["card"]["model"] == "llama-3.1-8b"
    assert f"| calibration | none: {BARS} |" in target.read_text()


def test_report_and_reproduce(out, tmp_path):
    assert invoke("report", out, "--out", tmp_path / "r").exit_code == 0
    page = (tmp_path / "r" / "report.html").read_text()
    assert "<h2>Fidelity card</h2>" in page
    assert f"none: {BARS}" in page
    assert "not validated end to end" in page
    got = invoke("reproduce", "autellix:fig2").output
    for label in ("engine ", "calibration ", "known error "):
        assert any(line.startswith(label) for line in got.splitlines()), got


def test_the_card_is_varied_kept_resumed_and_found_again(out, tmp_path, few):
    folder = cell(out, "mlfq")
    words = ["card", folder, "--sensitivity", "--workers", 1]
    got = invoke(*words, "--json")
    assert got.exit_code == 0, got.output
    first = json.loads(got.stdout)["cards"][0]
    assert first["sensitivity"]["rows"][0]["effects"]["program.response.mean"]["ratio"] > 1.0
    cells = {p: p.stat().st_mtime_ns for p in (out / "varied").glob("*/summary.json")}
    again = json.loads(invoke(*words, "--json").stdout)["cards"][0]
    assert again == first
    assert {p: p.stat().st_mtime_ns for p in (out / "varied").glob("*/summary.json")} == cells
    assert "per-step overhead x 1.15" in invoke("card", folder).output
    assert "(per-step overhead most)" in invoke("show", folder).output
    assert invoke("card", folder, "--markdown", "-").output.startswith("### mlfq on chatbot")
    facts = json.loads(invoke("report", out, "--out", tmp_path / "r", "--json").output)
    assert facts["results"] == len(list(out.glob("*/summary.json")))  # varied cells are no results
    assert "per-step overhead x 1.15" in (tmp_path / "r" / "report.html").read_text()


def test_compare_varies_both_sides_and_keeps_its_exit_code(out, tmp_path, few):
    words = ["compare", out, out, "--base-system", "vllm-opt", "--new-system", "mlfq"]
    words += ["--base-seeds", 1, "--new-seeds", 1]
    plain = invoke(*words)
    got = invoke(*words, "--sensitivity", "--workers", 1)
    assert got.exit_code == plain.exit_code == 5
    assert "no verdict to survive" in got.output
    data = json.loads(invoke(*words, "--sensitivity", "--workers", 1, "--json").stdout)
    assert data["sensitivity"]["overall"]["survives"] == "n/a"
    assert data["sensitivity"]["tested"] == 1
    assert "mlfq against vllm-opt" in invoke("card", cell(out, "mlfq")).output
    invoke("report", out, "--out", tmp_path / "r")
    assert "mlfq against vllm-opt" in (tmp_path / "r" / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["card", "nothing"], "no result"),
        (["card", ".", "--seeds", 2], "needs --sensitivity"),
        (["card", ".", "--json", "--markdown", "-"], "both want stdout"),
        (["reproduce", "autellix:fig2", "--robustness"], "no scale"),
    ],
)
def test_bad_input_is_one_line(words, says, out):
    got = invoke(*words, *(["--out", out] if words[0] == "card" else []))
    assert (got.exit_code, len(got.output.splitlines())) == (2, 1), got.output
    assert says in got.output

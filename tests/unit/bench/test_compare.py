import inspect
import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.cli.compare import compare as verb
from bench.cli.main import app
from bench.cli.run import run as run_verb
from bench.compare import compare
from bench.comparing import Choice, choose, differences, group_id, spans
from bench.errors import MissingError, UsageError
from bench.verdicts import Question
from tests.unit.bench.result_groups import LATENCY, RATE, TOKENS, cell, group, series, write

SEEDS = 8
FLAG = re.compile(r"--([a-z][a-z-]+)")
NOISE = np.exp(np.random.default_rng(1).normal(0, 0.3, 64)).tolist()
BASE = NOISE[:SEEDS]


def slower(factor, values=BASE):
    jitter = np.random.default_rng(2).normal(0, 0.005, len(values))
    return [v * factor * float(np.exp(j)) for v, j in zip(values, jitter, strict=True)]


def row(found, name=LATENCY):
    (only,) = (r for r in found["metrics"] if r["name"] == name)
    return only


def invoke(*words):
    return CliRunner().invoke(app, ["compare", *(str(w) for w in words)])


@pytest.fixture
def folders(tmp_path):
    """BASE, and a NEW that is 10 % slower."""
    base, new = tmp_path / "base", tmp_path / "new"
    write(series(BASE).cells.values(), base)
    write(series(slower(1.1), code="n3w").cells.values(), new)
    return base, new


# The comparison


def test_a_slowdown_is_worse_and_a_speedup_is_not():
    worse = compare(series(BASE), series(slower(1.1), system="t"), Question())
    assert (worse["outcome"], worse["exit"]) == ("worse", 3)
    assert row(worse)["effect"] == pytest.approx(1.1, rel=0.01)
    assert {r["name"] for r in worse["metrics"] if r["verdict"] == "worse"} == {LATENCY, TOKENS, RATE}
    better = compare(series(BASE), series(slower(0.9), system="t"), Question())
    assert (better["outcome"], better["exit"]) == ("no worse", 0)
    assert row(better)["verdict"] == "better"


def test_pairing_sees_what_disjoint_seeds_cannot():
    new = series(slower(1.1), system="t")
    assert row(compare(series(BASE), new, Question()))["verdict"] == "worse"
    apart = series(slower(1.1), first=101, system="t")
    found = compare(series(BASE), apart, Question(paired=False))
    assert (found["outcome"], found["exit"], found["mode"]) == ("inconclusive", 5, "unpaired")
    assert row(found)["seeds_needed"] > 100
    assert row(found)["sign_p"] is None


def test_disjoint_seeds_cannot_be_paired():
    with pytest.raises(UsageError, match="seeds 1-8 and NEW 101-108: none in common"):
        compare(series(BASE), series(BASE, first=101), Question())


def test_results_are_not_compared_with_themselves():
    with pytest.raises(UsageError, match="the same results"):
        compare(series(BASE), series(BASE), Question())


def test_seeds_of_one_side_are_said_and_not_used():
    found = compare(series(BASE), series(NOISE[2:10], first=3, system="t"), Question())
    assert found["base"]["seeds"] == [3, 4, 5, 6, 7, 8]
    assert found["outcome"] == "exploratory"
    assert "BASE alone has seeds 1-2: not used" in found["notes"]
    assert "NEW alone has seeds 9-10: not used" in found["notes"]


def test_overlapping_seeds_are_said_where_they_are_not_paired():
    found = compare(series(BASE), series(NOISE[4:12], first=5, system="t"), Question(paired=False))
    assert any("both sides have seeds 5-8" in note for note in found["notes"])


@pytest.mark.parametrize("change", [{"workload": "other"}, {"n": 30}, {"arrivals": {"poisson": 2.0}}])
def test_other_workloads_are_refused_unless_allowed(change):
    new = series(slower(1.1), system="t", **change)
    with pytest.raises(UsageError, match="different workloads") as error:
        compare(series(BASE), new, Question())
    assert next(iter(change)) in str(error.value)
    found = compare(series(BASE), new, Question(allow=frozenset({"workload"})))
    assert "workload" in found["allowed"]
    assert found["outcome"] == "worse"


def test_programs_that_changed_under_the_same_name_are_refused():
    """A new version of a generator: same workload and parameters, other programs."""
    new = group([cell(i + 1, {LATENCY: v}, code="n3w", programs=f"q{i}") for i, v in enumerate(BASE)])
    with pytest.raises(UsageError, match="programs of seed 1-8 are others"):
        compare(series(BASE), new, Question((LATENCY,)))
    assert compare(series(BASE), new, Question((LATENCY,), paired=False))["outcome"] == "inconclusive"


@pytest.mark.parametrize(
    "change", [{"engine": "vllm-virtual"}, {"latency": "other"}, {"transfer": {"bytes_per_s": 2e10}}]
)
def test_other_engines_are_refused_unless_allowed(change):
    base, new = series(BASE, transfer={"bytes_per_s": 1e10}), series(slower(1.1), **change)
    if "transfer" not in change:
        base = series(BASE)
    with pytest.raises(UsageError, match="different engines or step times"):
        compare(base, new, Question(allow=frozenset({"workload"})))
    assert compare(base, new, Question(allow=frozenset({"engine"})))["outcome"] == "worse"


def test_simulated_and_measured_never_mix_unmarked():
    new = series(slower(1.1), code="n3w")
    for one in new.cells.values():
        one.summary["badge"] = "MEASURED (vllm), 1 x A100"
    with pytest.raises(UsageError, match="MEASURED"):
        compare(series(BASE), new, Question())
    marked = compare(series(BASE), new, Question(allow=frozenset({"engine"})))["allowed"]["engine"]
    assert "SIMULATED" in marked
    assert "MEASURED" in marked


def test_what_differs_is_said():
    other = cell(1, {}, code="n3w", engine_config={"max_num_seqs": 8})
    assert differences(cell(1, {}), other) == {
        "code": ("c0de", "n3w"),
        "engine_config.max_num_seqs": ("256", "8"),
    }


def test_results_without_chance_are_one_observation():
    """A trace at its recorded arrivals gives the same run under every seed: nothing to vary over."""
    sides = [
        group([cell(s, {LATENCY: v}, system=name, result_hash=name) for s in range(1, 9)])
        for v, name in ((1.0, "s"), (2.0, "t"))
    ]
    found = compare(*sides, Question((LATENCY,)))
    assert found["outcome"] == "exploratory"
    assert any("seeds 2-8 give the same results" in note for note in found["notes"])
    assert compare(*sides, Question((LATENCY,), paired=False))["outcome"] == "exploratory"


def test_identical_results_are_said_to_be():
    new = series(BASE, code="n3w")
    for seed, one in series(BASE).cells.items():
        new.cells[seed].summary["result_hash"] = one.summary["result_hash"]
    found = compare(series(BASE), new, Question())
    assert (found["outcome"], row(found)["verdict"], row(found)["effect"]) == ("no worse", "~", 1.0)
    assert any("the same results, bit for bit" in note for note in found["notes"])
    assert not any(
        "bit for bit" in n
        for n in compare(series(BASE), series(slower(1.1), system="t"), Question())["notes"]
    )


def test_many_results_left_out_are_counted():
    many = [f"seed {s} is not finished" for s in range(20)]
    base = series(BASE)
    notes = compare(group(list(base.cells.values()), left_out=many), series(BASE, system="t"), Question())[
        "notes"
    ]
    assert sum("is not finished" in n for n in notes) == 5
    assert any("BASE: 15 more results" in n for n in notes)


def test_unsustained_load_and_lost_programs_are_said():
    base = series(BASE, others={"system.finished_share": 1.0}.items())
    new = series(BASE, others={"system.finished_share": 0.9}.items(), system="t", trend="growing")
    notes = " ".join(compare(base, new, Question())["notes"])
    assert "NEW: the backlog grows in 8 of 8 runs" in notes
    assert "BASE finished 100.00% of its programs and NEW 90.00%" in notes


def test_an_unknown_gate_names_the_nearest():
    with pytest.raises(UsageError, match=re.escape("did you mean program.s_per_token")):
        compare(series(BASE), series(BASE, system="t"), Question(("program.s_per_tokens.mean",)))


# Finding groups


def test_a_group_is_all_but_the_seed():
    one, other = (cell(s, {}).identity for s in (1, 2))
    assert group_id(one) == group_id(other)
    assert group_id(one) != group_id(cell(1, {}, code="n3w").identity)


def test_how_many_arrive_in_a_horizon_is_the_seeds():
    within, every = {"poisson": 1.0, "horizon": 60.0}, {"poisson": 1.0, "horizon": None}
    cells = [cell(s, {}, n=50 + s, arrivals=within) for s in (1, 2)]
    assert group_id(cells[0].identity) == group_id(cells[1].identity)
    assert len({group_id(cell(s, {}, n=50 + s, arrivals=every).identity) for s in (1, 2)}) == 2
    for one in cells:
        one.summary["load"] = f"{one.identity['n']} programs, Poisson 1/s for 60 s"
    assert "chatbot:paper, Poisson 1/s for 60 s, seeds 1-2" in group(cells).label()


def test_a_folder_of_several_groups_wants_one_named(tmp_path):
    for name in ("s", "t"):
        write(series(BASE, system=name).cells.values(), tmp_path)
    write(series(BASE[:3], system="t", engine_config={"max_num_seqs": 8}).cells.values(), tmp_path)
    with pytest.raises(UsageError, match="holds 3 configurations") as error:
        choose(tmp_path, Choice(), "NEW")
    assert "--new-group" in str(error.value)
    assert choose(tmp_path, Choice(system="s"), "NEW").first.summary["system"] == "s"
    with pytest.raises(UsageError, match="holds 2 configurations") as error:
        choose(tmp_path, Choice(system="t"), "NEW")
    assert "engine_config.max_num_seqs 8" in str(error.value)
    (wanted,) = re.findall(r"(\w{8})  t on .*seeds 1-3", str(error.value))
    assert sorted(choose(tmp_path, Choice(group=wanted), "NEW").cells) == [1, 2, 3]


@pytest.mark.parametrize(
    "choice", [Choice(system="u"), Choice(workload="mcts"), Choice(rate=2.0), Choice(group="zz")]
)
def test_a_choice_that_fits_nothing_lists_what_is_there(tmp_path, choice):
    write(series(BASE).cells.values(), tmp_path)
    with pytest.raises(UsageError, match="s on chatbot:paper, 20 programs, Poisson 1/s, seeds 1-8"):
        choose(tmp_path, choice, "BASE")


def test_a_choice_by_workload_rate_and_seeds(tmp_path):
    write(series(BASE).cells.values(), tmp_path)
    for choice in (Choice(workload="chatbot"), Choice(workload="chatbot:paper"), Choice(rate=1.0)):
        assert len(choose(tmp_path, choice, "BASE").cells) == SEEDS
    assert sorted(choose(tmp_path, Choice(seeds=frozenset({2, 5})), "BASE").cells) == [2, 5]
    with pytest.raises(UsageError, match="no finished result of seed 9"):
        choose(tmp_path, Choice(seeds=frozenset({2, 9})), "BASE")


def test_one_result_is_a_side_of_its_own(tmp_path):
    write(series(BASE).cells.values(), tmp_path)
    assert len(choose(next(tmp_path.iterdir()), Choice(), "BASE").cells) == 1


def test_unfinished_cells_are_listed(folders):
    base, new = folders
    unfinished = sorted(base.iterdir())[3]
    seed = json.loads((unfinished / "summary.json").read_text())["seed"]
    (unfinished / "summary.json").unlink()
    broken = base / "half"
    broken.mkdir()
    (broken / "manifest.json").write_text("{")
    found = compare(choose(base, Choice(), "BASE"), choose(new, Choice(), "NEW"), Question())
    assert found["outcome"] == "exploratory"
    notes = " ".join(found["notes"])
    assert f"BASE: seed {seed} is not finished" in notes
    assert "half" in notes


def test_nothing_finished_is_missing(tmp_path):
    with pytest.raises(UsageError, match="no folder"):
        choose(tmp_path / "none", Choice(), "BASE")
    with pytest.raises(MissingError, match="no finished result"):
        choose(tmp_path, Choice(), "BASE")


def test_spans():
    assert spans([3, 1, 2, 7, 9, 8]) == "1-3, 7-9"
    assert spans([4]) == "4"
    assert spans([]) == "none"


# The verb


def test_the_verb_exits_3_for_a_slowdown_and_0_for_the_way_back(folders):
    base, new = folders
    got = invoke(base, new)
    assert got.exit_code == 3, got.output
    assert "REGRESSION: NEW is worse in" in got.output
    assert "SIMULATED" in got.output
    assert "code c0de -> n3w" in got.output
    assert invoke(new, base).exit_code == 0


def test_the_verb_exits_5_where_it_cannot_tell(folders):
    base, new = folders
    assert invoke(base, new, "--base-seeds", "1-7").exit_code == 5
    assert invoke(base, new, "--unpaired").exit_code == 5


def test_json_and_markdown_are_the_same_comparison(folders, tmp_path):
    base, new = folders
    file = tmp_path / "comment.md"
    got = invoke(base, new, "--json", "--markdown", file)
    found = json.loads(got.output)
    assert (got.exit_code, found["exit"], found["outcome"]) == (3, 3, "worse")
    assert "NaN" not in got.output
    text = file.read_text()
    assert text.startswith("<!-- bench compare -->\n### bench compare: REGRESSION")
    assert f"{row(found)['effect']:.3f}" in text
    assert invoke(base, new, "--markdown", "-").output.startswith("<!-- bench compare -->")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--threshold", "5"], 2, "0.05 is 5 %"),
        (["--gate", "kv.hits"], 2, "neither more nor less"),
        (["--gate", "program.latency.p99"], 2, "unknown metric"),
        (["--allow", "engines"], 2, "did you mean engine"),
        (["--base-seeds", "8-1"], 2, "1-8,12"),
        (["--new-seeds", "x"], 2, "1-8,12"),
        (["--new-seeds", "9"], 2, "no finished result of seed 9"),
        (["--system", "atlas"], 2, "holds nothing with system atlas"),
        (["--json", "--markdown", "-"], 2, "both want stdout"),
        (["--markdown", "none/such/x.md"], 6, "cannot write --markdown"),
    ],
)
def test_bad_words_are_told_and_no_traceback(folders, words, code, says):
    got = invoke(*folders, *words)
    assert got.exit_code == code, got.output
    assert says in " ".join(got.output.split())
    assert "Traceback" not in got.output


def test_at_most_20_flags():
    assert len(inspect.signature(verb).parameters) <= 20


def test_the_examples_commands_are_ones_that_bench_takes():
    """Every bench command of the example workflow and of docs/compare.md has flags that exist."""
    root = Path(__file__).parents[3]
    text = (root / "docs/examples/gate.yml").read_text() + (root / "docs/compare.md").read_text()
    for name, known in (("run", inspect.signature(run_verb)), ("compare", inspect.signature(verb))):
        used = {
            flag
            for line in re.findall(rf"bench {name} ([^`\n|]*(?:\n +--[^\n]*)*)", text)
            for flag in FLAG.findall(line)
        }
        assert used
        assert {f for f in used if f.replace("-", "_") not in known.parameters} == set()


def test_the_same_folder_twice_and_none_at_all(folders, tmp_path):
    base, _ = folders
    got = invoke(base, base)
    assert (got.exit_code, "--base-system" in got.output) == (2, True)
    (tmp_path / "empty").mkdir()
    assert invoke(base, tmp_path / "empty").exit_code == 6
    missing = invoke(base, tmp_path / "nothing")
    assert (missing.exit_code, "is no folder" in missing.output) == (2, True)
    assert invoke(base).exit_code == 2

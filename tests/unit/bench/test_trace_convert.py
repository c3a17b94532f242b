"""Files are written whole, say what they lost, and run bit for bit like what they were made of."""

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.cli.main import app
from bench.config import RunConfig
from bench.run import run
from bench.trace_convert import convert
from workloads.load import load
from workloads.writing import writers

DATA = Path(__file__).parents[4] / "shared" / "data"


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def result_hash(workload, out, n, form=None, rate=None):
    config = RunConfig("plas", str(workload), n=n, format=form, rate=rate, out=out)
    return run(config).summary["result_hash"]


def own(workload, path, n=None):
    got = invoke("trace", "convert", workload, "-o", path, *(["-n", n] if n else []))
    assert got.exit_code == 0, got.output
    assert "lossless" in got.output


@pytest.mark.parametrize("form", ["mooncake", "tracelab", "burstgpt", "qwen-bailian", "azure", "aiperf"])
def test_a_trace_and_its_conversion_run_alike_bit_for_bit(form, tmp_path):
    """Files of six formats, written from generated programs, against our own format made of them."""
    trace, ours = tmp_path / "trace", tmp_path / "ours.jsonl"
    convert(lambda: load("react", n=12, seed=5, rate=None), form, trace)
    suffix = ".csv" if form in ("tracelab", "burstgpt", "azure") else ".jsonl"
    trace = trace.rename(tmp_path / f"trace{suffix}")
    own(f"{form}@{trace}", ours)
    rate = 1.0 if form in ("tracelab", "mooncake", "aiperf") else None
    left = result_hash(trace, tmp_path / "a", 10, form, rate)
    assert result_hash(ours, tmp_path / "b", 10, "own", rate) == left
    assert result_hash(ours, tmp_path / "c", 9, "own", rate) != left


@pytest.mark.skipif(not DATA.exists(), reason="no ../shared/data")
@pytest.mark.parametrize(
    ("folder", "n", "rate"),
    [
        ("weka", 4, None),
        ("mooncake", 40, None),
        ("azure", 60, None),
        ("sharegpt", 20, 1.0),
        ("taubench", 6, 1.0),
    ],
)
def test_real_traces_run_like_their_conversions_bit_for_bit(folder, n, rate, tmp_path):
    ours = tmp_path / "ours.jsonl.gz"
    own(DATA / folder, ours, None if rate else n)
    hashes = {result_hash(w, tmp_path / str(i), n, None, rate) for i, w in enumerate((DATA / folder, ours))}
    assert len(hashes) == 1


def test_convert_says_what_was_lost_and_replaces_nothing_unasked(tmp_path):
    path = tmp_path / "t.csv"
    words = ("trace", "convert", "react", "-n", 4, "--to", "azure", "-o", path)
    got = invoke(*words)
    assert got.exit_code == 0, got.output
    assert "azure could not say:" in got.output
    assert "x tool or wait before a call (first: program 0)" in got.output
    assert invoke(*words).exit_code == 2
    facts = json.loads(invoke(*words, "--force", "--json").output)
    assert facts["programs"] == 4
    assert facts["lost"]["tool or wait before a call"] > 4


def test_a_packed_file_is_the_same_every_time(tmp_path):
    contents = []
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        convert(lambda: load("chatbot", n=3), "own", tmp_path / name)
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1]
    assert len(gzip.decompress(contents[0]).splitlines()) == 4


def test_an_unknown_format_is_refused_before_anything_is_read(tmp_path):
    got = invoke("trace", "convert", tmp_path / "nothing", "--to", "azur", "-o", tmp_path / "x")
    assert (got.exit_code, "did you mean 'azure'" in got.output) == (2, True)
    assert not list(tmp_path.iterdir())


def test_export_is_still_understood(tmp_path):
    path, same = tmp_path / "x.jsonl", tmp_path / "y.jsonl"
    assert invoke("trace", "export", "chatbot", "-n", 3, "-o", path).exit_code == 0
    assert invoke("trace", "convert", "chatbot", "-n", 3, "-o", same).exit_code == 0
    assert path.read_bytes() == same.read_bytes()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-p", "strict=perhaps"], "true or false"),
        (["-p", "cap_idle=long"], "a number of seconds"),
        (["--scale-rate", "0"], "scale-rate must be"),
        (["-p", "nonsense=1"], "no parameter 'nonsense'"),
    ],
)
def test_wrong_trace_options_are_one_line(words, says, tmp_path):
    path = tmp_path / "x.jsonl"
    convert(lambda: load("chatbot", n=3), "own", path)
    got = invoke("trace", "stats", path, *words)
    assert (got.exit_code, len(got.output.splitlines())) == (2, 1), got.output
    assert says in got.output


def test_strict_cap_idle_and_scale_rate(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(
        "session_id,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms,arrival_time\n"
        "a,0,0,100,10,90000,0\na,1,110,5,10,0,0\nb,0,0,50,0,0,8000\n"
    )
    assert "reply" in (got := invoke("trace", "stats", path, "--strict")).output
    assert got.exit_code == 2
    plain, capped = (
        json.loads(invoke("trace", "stats", path, "--json", *more).output)
        for more in ([], ["--cap-idle", "60", "--scale-rate", "2"])
    )
    assert plain["distributions"]["tool s per use"]["max"] == 90.0
    assert capped["distributions"]["tool s per use"]["max"] == 60.0
    assert capped["parameters"]["scale_rate"] == 2.0
    assert plain["digest"] != capped["digest"]


def test_a_run_takes_trace_options_as_parameters_and_says_so(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(
        "session_id,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms,arrival_time\n"
        + "".join(f"{s},0,0,100,10,90000,{9000 * s}\n{s},1,110,5,10,0,{9000 * s}\n" for s in range(3))
    )
    configs = [
        RunConfig("plas", str(path), parameters=parameters, out=tmp_path)
        for parameters in ({}, {"cap_idle": "1"}, {"scale_rate": "3"})
    ]
    summaries = [run(config).summary for config in configs]
    assert len({s["result_hash"] for s in summaries}) == 3
    assert len({s["cell"] for s in summaries}) == 3
    responses = [s["metrics"]["program.response.mean"]["value"] for s in summaries]
    assert responses[0] > 90 > responses[1]
    assert "-p" in configs[1].words()


def test_the_help_names_every_format_that_is_written():
    said = " ".join(invoke("trace", "convert", "--help").output.replace("│", " ").split())
    assert [name for name in writers() if name not in said] == []

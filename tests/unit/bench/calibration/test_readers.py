"""Every format, by a small file of each; and that no two claim the same one."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.calibration.recordings import Points, Recording, Steps, gpu_named, model_named, read, readers
from bench.config import RunConfig
from bench.errors import BenchError, InvalidRun, UsageError
from bench.run import run
from workloads.base import WorkloadError

DATA = Path(__file__).parents[5] / "shared" / "data"

REQUESTS = [
    {"arrival": 1.7e9 + 2.5, "input_tokens": 40, "output_tokens": 1, "ttft_s": 0.3, "e2e_s": 0.3},
    {
        "arrival": 1.7e9, "input_tokens": 100, "output_tokens": 11,
        "first_token": 1.7e9 + 0.5, "last_token": 1.7e9 + 1.5,
    },
]  # fmt: skip
BENCH = {
    "model_id": "meta-llama/Llama-3.1-8B-Instruct", "backend": "openai", "request_rate": 2.0,
    "max_concurrency": None, "input_lens": [10, 20, 30], "output_lens": [3, 1, 0], "ttfts": [0.1, 0.2, 0.0],
    "itls": [[0.05, 0.07], [], []], "errors": ["", "", "timeout"], "start_times": [100.5, 100.0, 101.0],
}  # fmt: skip
CALL = {
    "request_id": "r", "program": 1, "t_arrive": 1.0, "t_first_token": 1.5, "t_end": 2.5, "output_tokens": 11,
    "cached_tokens": 0, "prefill_tokens": 64, "aborted": False,
}  # fmt: skip
HEAD = {"origin_wall": None, "max_model_len": 8, "block_size": 64, "kv_blocks": 9}
POINTS = "isl,osl,concurrency,tp,ttft_ms,tpot_ms\n1024,128,8,4,120,13.5\n"
SILICON = (
    "model_path,system,precision,isl,osl,batch_size,tp_size,silicon_ttft_ms,silicon_tpot_ms\n"
    "meta-llama/Llama-3.1-70B,h100_sxm,fp8,1024,8192,64,2,30787.1,41.7\n"
)


def jsonl(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


TEXTS = {
    "requests": ("r.jsonl", jsonl(*REQUESTS)),
    "vllm-bench": ("b.json", json.dumps(BENCH)),
    "call-log": ("c.jsonl", jsonl(CALL)),
    "step-log": ("s.jsonl", jsonl(HEAD, {"start": 0, "end": 1, "calls": []})),
    "points": ("p.csv", POINTS),
}


@pytest.fixture
def made(tmp_path):
    def write(name, text=None):
        file, usual = TEXTS[name]
        path = tmp_path / file
        path.write_text(usual if text is None else text)
        return path

    return write


@pytest.fixture
def folder(tmp_path):
    """A recording of LLMServingSim's recorder."""
    meta = {
        "model": "meta-llama/Llama-3.1-8B", "vllm_version": "0.19.0", "engine_kwargs": {"max_num_seqs": 256},
        "kv_cache": {"num_gpu_blocks": 2588, "enable_prefix_caching": True},
        "hardware": {"device_name": "NVIDIA GeForce RTX 4090"},
    }  # fmt: skip
    row = {"input_toks": 9, "output_toks": 3, "queued_ts": 7.5, "first_token_ts": 8.0, "last_token_ts": 9.0}
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    (tmp_path / "requests.jsonl").write_text(jsonl(row, {**row, "queued_ts": 7.0}))
    return tmp_path


@pytest.mark.parametrize("name", TEXTS)
def test_each_format_is_told_from_the_others(made, name):
    path = made(name)
    assert [reader.name for reader in readers().values() if reader.sniff(path)] == [name]


@pytest.mark.parametrize("reader", readers().values(), ids=readers())
def test_readers_do_not_claim_an_empty_folder_or_junk(reader, tmp_path):
    assert reader.sniff(tmp_path) is None
    for name, text in (("a.json", "{"), ("a.jsonl", "\x00\x01"), ("a.csv", ""), ("a.csv", "1,2\n3,4\n")):
        (tmp_path / name).write_text(text)
        assert reader.sniff(tmp_path / name) is None


def test_requests_come_in_order_with_times_from_their_arrival(made):
    found = read(made("requests"))
    assert isinstance(found, Recording)
    first, second = found.requests
    assert (first.prompt, first.ttft, first.e2e) == (100, pytest.approx(0.5), pytest.approx(1.5))
    assert first.tpot == pytest.approx(0.1)
    assert (second.output, second.tpot, second.ttft) == (1, None, 0.3)


def test_requests_as_csv(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("output_tokens,arrival,input_tokens,tpot_s,ttft_s\n5,0.5,10,0.02,\n7,0.1,20,,0.4\n")
    first, second = read(path).requests
    assert (first.arrival, first.ttft, first.tpot, second.tpot) == (0.1, 0.4, None, 0.02)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"arrival": 1, "input_tokens": 5, "output_tokens": 0, "ttft_s": 1}, "r.jsonl:1.output_tokens: exp"),
        ({"arrival": 1, "input_tokens": "x", "output_tokens": 1}, "r.jsonl:1.input_tokens"),
        ({"arrival": None, "input_tokens": 5, "output_tokens": 1}, "must all be there"),
        ({"arrival": 5, "input_tokens": 5, "output_tokens": 2, "first_token": 4}, "follow one"),
        ({"arrival": 5, "input_tokens": 5, "output_tokens": 2}, "nothing was measured"),
    ],
)  # fmt: skip
def test_a_bad_row_is_named(made, row, message):
    with pytest.raises(UsageError, match=message):
        read(made("requests", jsonl(row)))


def test_vllm_bench_in_an_open_loop(made):
    found = read(made("vllm-bench"))
    assert (found.facts.model, found.concurrency) == ("llama-3.1-8b", None)
    assert [r.arrival for r in found.requests] == [100.0, 100.5]
    one = found.requests[1]
    assert (one.ttft, one.tpot, one.e2e) == pytest.approx((0.1, 0.06, 0.22))
    assert "1 failed requests of 3" in found.facts.notes[0]


@pytest.mark.parametrize(
    ("change", "concurrency"),
    [({"max_concurrency": 2, "request_rate": "inf"}, 2), ({"request_rate": "inf"}, None)],
)
def test_vllm_bench_in_a_closed_loop(made, change, concurrency):
    assert read(made("vllm-bench", json.dumps(BENCH | change))).concurrency == concurrency


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start_times": []}, "no start_times"),
        ({"itls": []}, "must have an entry per request"),
        ({"ttfts": ["x", 1, 2]}, "request 0: lengths and times must be numbers"),
    ],
)
def test_vllm_bench_that_cannot_be_replayed(made, change, message):
    with pytest.raises(UsageError, match=message):
        read(made("vllm-bench", json.dumps(BENCH | change)))


def test_a_call_log(made):
    found = read(made("call-log", jsonl(CALL, CALL | {"aborted": True}, CALL | {"cached_tokens": 4})))
    assert [(r.prompt, r.ttft, r.tpot, r.e2e) for r in found.requests] == [
        (64, 0.5, 0.1, 1.5), (68, 0.5, 0.1, 1.5),
    ]  # fmt: skip
    assert ["3.0% of the prompt" in note or "1 aborted" in note for note in found.facts.notes] == [True, True]


def test_shared_prompts_are_another_load(made):
    with pytest.raises(InvalidRun, match="50% of the prompt tokens came from the prefix cache"):
        read(made("call-log", jsonl(CALL | {"cached_tokens": 64})))


def test_a_step_log_is_left_to_its_own_fit(made):
    assert isinstance(read(made("step-log")), Steps)


def test_points(made):
    found = read(made("points"))
    assert isinstance(found, Points)
    (point,) = found.points
    assert point == (1024, 128, 8, 4, 0.12, 0.0135, 1.0, 80)
    assert (found.facts.model, found.facts.prefix_cache) == ("", False)


def test_published_points_come_with_their_protocol(made):
    found = read(made("points", SILICON))
    (point,) = found.points
    assert (point.concurrency, point.ratio, point.prompts) == (64, 0.8, 640)
    assert (found.facts.model, found.facts.gpu) == ("llama-3.1-70b-fp8", "h100")
    assert found.facts.limits == {"max_num_batched_tokens": 8192}
    assert found.protocol.startswith("closed loop, lengths drawn evenly from 0.8 x to 1 x, 10 requests")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (POINTS.replace("13.5", "x"), r"p.csv:2.tpot_ms: expected a number"),
        (POINTS.replace(",8,", ",0,"), "must all be above 0"),
        (POINTS.splitlines()[0] + "\n", "no row below the header"),
    ],
)
def test_bad_points_are_named(made, text, message):
    with pytest.raises((UsageError, WorkloadError), match=message):
        read(made("points", text))


def test_llmservingsim(folder):
    found = read(folder)
    assert (found.facts.model, found.facts.gpu) == ("llama-3.1-8b", "rtx4090")
    assert found.facts.limits == {"max_num_seqs": 256, "kv_blocks": 2587}
    assert [(r.arrival, r.ttft, r.tpot, r.e2e) for r in found.requests] == [
        (7.0, 1.0, 0.5, 2.0), (7.5, 0.5, 0.5, 1.5),
    ]  # fmt: skip


def test_a_missing_time_is_named(folder):
    (folder / "requests.jsonl").write_text(jsonl({"input_toks": 9, "output_toks": 3, "queued_ts": 7.5}))
    with pytest.raises(WorkloadError, match=r"requests\.jsonl:1"):
        read(folder)


def cell(tmp_path, system, workload, **more):
    config = RunConfig(system, str(workload), out=tmp_path, model="llama-3.1-8b", gpu="a100", **more)
    return run(config).folder


@pytest.fixture
def trace(tmp_path):
    """Requests that share nothing."""
    path = tmp_path / "azure.csv"
    rows = [f"2024-05-10 00:00:0{i}.5,{100 + 50 * i},{20 + i}" for i in range(9)]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows, ""]))
    return path


def test_a_run_of_ours(tmp_path, trace):
    found = read(cell(tmp_path, "vllm-opt", trace))
    assert (found.facts.model, found.facts.gpu) == ("llama-3.1-8b", "a100")
    assert found.facts.limits["kv_blocks"] == 27062
    assert [(r.prompt, r.output) for r in found.requests] == [(100 + 50 * i, 20 + i) for i in range(9)]
    assert [r.arrival for r in found.requests] == pytest.approx(range(9))
    assert all(r.e2e > r.ttft > 0 and r.tpot > 0 for r in found.requests)


def test_aborted_calls_of_a_run_are_left_out_and_said(tmp_path, trace):
    folder = cell(tmp_path, "vllm-opt", trace)
    calls = pq.read_table(folder / "calls.parquet")
    aborted = pa.array([i == 3 for i in range(len(calls))])
    changed = calls.set_column(calls.column_names.index("aborted"), "aborted", aborted)
    pq.write_table(changed, folder / "calls.parquet")
    found = read(folder)
    assert len(found.requests) == 8
    assert "1 aborted calls left out" in found.facts.notes


@pytest.mark.parametrize(
    ("system", "more", "message"),
    [
        ("plas", {}, "served by plas"),
        ("vllm-opt", {"replicas": 2}, "2 engines"),
        ("vllm-opt", {}, "came from the prefix cache"),
    ],
)
def test_a_run_that_a_replay_would_not_repeat_is_refused(tmp_path, system, more, message):
    with pytest.raises(BenchError, match=message):
        read(cell(tmp_path, system, "chatbot", n=8, rate=0.5, **more))


def test_what_is_no_recording(tmp_path):
    with pytest.raises(UsageError, match=r"no file or folder.*a recording is one of: call-log, cell"):
        read(tmp_path / "nothing")
    (tmp_path / "x.json").write_text('{"a": 1}')
    with pytest.raises(
        UsageError, match=r"no recording that can be read \(an object with the fields a\); formats"
    ):
        read(tmp_path / "x.json")
    with pytest.raises(UsageError, match="did you mean requests"):
        read(tmp_path / "x.json", "request")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("gpt-4", ""),
    ],
)
def test_checkpoints_by_our_names(text, name):
    assert model_named(text) == name


@pytest.mark.parametrize(
    ("text", "name"), [("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA GeForce RTX 4090", "rtx4090"), ("T4", "")]
)
def test_devices_by_our_names(text, name):
    assert gpu_named(text) == name


@pytest.mark.skipif(not DATA.exists(), reason="no ../shared/data")
@pytest.mark.parametrize(("place", "rows"), [("llmservingsim", 300), ("silicon", 45)])
def test_the_real_files(place, rows):
    path = DATA / place
    found = read(path if place == "llmservingsim" else next(path.glob("*.csv")))
    assert len(found.requests if isinstance(found, Recording) else found.points) == rows

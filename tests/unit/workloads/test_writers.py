"""Every writer found by scanning: what it says can be read again, what it cannot say is counted."""

import json
from collections import Counter
from pathlib import Path

import pytest

from vocabulary import on_grid
from workloads.base import ProgramSpec, WorkloadError
from workloads.dag import program_hash
from workloads.dryrun import dry_run, dry_runs
from workloads.files import Tally
from workloads.load import load, reader_names
from workloads.replay import replay_spec
from workloads.script import (
    AbandonOp,
    CallOp,
    CancelOp,
    JoinOp,
    Script,
    SpawnOp,
    ThinkOp,
    TimeoutOp,
    ToolOp,
)
from workloads.writing import BlockIds, Dags, common, grown, trailing, writer, writers

DATA = Path(__file__).parents[4] / "shared" / "data"
ENDING = {"aiperf": "jsonl", "sharegpt": "json", "azure": "csv", "burstgpt": "csv", "tracelab": "csv"}
SOURCES = ["chatbot", "react", "react:hotpot", "mcts:tot", "mapreduce", "fitted"]


def timed(name, n):
    """Generated programs with arrivals, which formats of recordings have."""
    return [
        ProgramSpec(spec.index, spec.kind, spec.key, spec.start, on_grid(1.7 * spec.index))
        for spec in load(name, n=n, seed=3).programs
    ]


def write(specs, form, folder, name="t"):
    path = folder / f"{name}.{ENDING.get(form, 'jsonl')}"
    lost = Tally()
    path.write_text("".join(line + "\n" for line in writer(form).lines(Dags(specs), "made", lost)))
    return path, lost.counts


def read(path, form):
    return load(str(path), fmt=form, max_model_len=1 << 22).programs


def flat(specs):
    return [(spec, call) for spec in specs for call in dry_run(spec).calls]


def lengths(specs):
    return [[(c.prompt_tokens, c.output_tokens) for c in dry_run(s).calls] for s in specs]


def pattern(specs, block):
    """Which blocks of all prompts are equal: their numbers in the order they are first seen."""
    ids = BlockIds(block)
    return [ids.of(call.prompt) for _, call in flat(specs)]


def delays(specs):
    return [[c.delay_s for c in dry_run(s).calls][1:] for s in specs]


def arrivals(specs):
    return [spec.arrival for spec in specs]


def kept(specs):
    return [[k for _, k in grown(dry_run(s).calls)] for s in specs]


def parents(specs):
    """Of each call, the place in its program of the call it follows (the last one it waits for)."""
    found = []
    for spec in specs:
        calls = dry_run(spec).calls
        places = {(c.thread, c.index): i for i, c in enumerate(calls)}
        found.append([places[c.parents[-1]] if c.parents else None for c in calls])
    return found


def growth(specs):
    """New prompt tokens (by length) and replies, as far as prompts grow."""
    found = []
    for spec in specs:
        context, rows = 0, []
        for call in dry_run(spec).calls:
            if call.prompt_tokens > context:
                rows.append((call.prompt_tokens - context, call.output_tokens))
                context = call.prompt_tokens + call.output_tokens
        found.append(rows)
    return found


SAYS = {
    "own": lambda specs: program_hash(dry_runs(specs)),
    "sharegpt": lambda specs: [
        [(c.prompt_tokens - k, c.output_tokens) for c, k in grown(dry_run(s).calls)] for s in specs
    ],
    "azure": lambda specs: Counter((s.arrival, c.prompt_tokens, c.output_tokens) for s, c in flat(specs)),
    "burstgpt": lambda specs: (arrivals(specs), lengths(specs), delays(specs)),
    "tracelab": lambda specs: (
        arrivals(specs), lengths(specs), delays(specs), kept(specs),
        [trailing(dry_run(s).script) for s in specs],
    ),
    "mooncake": lambda specs: (arrivals(specs), lengths(specs), delays(specs), pattern(specs, 512)),
    "aiperf": lambda specs: (arrivals(specs), growth(specs), delays(specs)),
    "qwen-bailian": lambda specs: (arrivals(specs), parents(specs), pattern(specs, 16)),
}  # fmt: skip
"""What each format has words for; the chains among SOURCES must come back so."""


def test_a_format_that_is_written_is_one_that_is_read_and_tested():
    assert set(writers()) <= set(reader_names())
    assert set(writers()) == set(SAYS)
    with pytest.raises(WorkloadError, match="did you mean 'mooncake'"):
        writer("mooncak")


@pytest.mark.parametrize("form", sorted(SAYS))
@pytest.mark.parametrize("source", ["chatbot", "react", "react:hotpot"])
def test_chains_come_back_as_far_as_the_format_has_words(form, source, tmp_path):
    specs = timed(source, 8)
    if form == "azure":  # ticks of 100 ns
        specs = [ProgramSpec(s.index, s.kind, s.key, s.start, float(s.index)) for s in specs]
    path, _ = write(specs, form, tmp_path)
    assert SAYS[form](read(path, form)) == SAYS[form](specs)


@pytest.mark.parametrize("form", ["own", "qwen-bailian"])
@pytest.mark.parametrize("source", ["mcts:tot", "mapreduce"])
def test_branches_come_back_where_there_are_words_for_them(form, source, tmp_path):
    specs = timed(source, 2)
    path, lost = write(specs, form, tmp_path)
    again = read(path, form)
    assert sum(len(dag.calls) for dag in dry_runs(again)) == sum(len(d.calls) for d in dry_runs(specs))
    if form == "own":
        assert lost == {}
        assert SAYS[form](again) == SAYS[form](specs)


@pytest.mark.parametrize("form", sorted(SAYS))
@pytest.mark.parametrize("source", SOURCES)
def test_through_our_own_format_and_back_is_the_same_file(form, source, tmp_path):
    """own -> X -> own -> X: what X said once it says again, byte for byte."""
    own, _ = write(timed(source, 3), "own", tmp_path, "first")
    path, _ = write(read(own, "own"), form, tmp_path)
    back, lost = write(read(path, form), "own", tmp_path, "second")
    assert lost == {}
    again, _ = write(read(back, "own"), form, tmp_path, "again")
    if form == "aiperf":  # its words are made up from the names of segments
        assert SAYS[form](read(again, form)) == SAYS[form](read(path, form))
    elif form == "own":  # its header says what the programs were called
        assert again.read_bytes().partition(b"\n")[2] == path.read_bytes().partition(b"\n")[2]
    else:
        assert again.read_bytes() == path.read_bytes()


def everything():
    """One program that does all there is, and another with the same first prompt."""
    a = CallOp("", 0, (), ((1, 700),), 2, 30, 700, "big")
    b = CallOp("", 1, (("", 0),), ((3, 20),), 4, 9, 750, "", a, 730)
    left = CallOp("0", 0, (("", 1),), ((5, 8),), 6, 7, 767, "", b, 759)
    right = CallOp("1", 0, (("", 1),), ((7, 40),), 8, 5, 40)
    late = CallOp("2", 0, (("", 1),), ((9, 10),), 10, 3, 10)
    slow = CallOp("3", 0, (("", 1),), ((11, 10),), 12, 3, 10)
    script = Script(
        [
            ToolOp("wake up", 1.5), a, ThinkOp(4.0), ToolOp("look", 0.25), b,
            JoinOp([Script([left]), Script([ToolOp("run", 2.0), right])]),
            SpawnOp(Script([late]), 0), CancelOp(0), TimeoutOp(9.0, Script([slow])),
            ToolOp("tidy", 3.0), AbandonOp(),
        ]
    )  # fmt: skip
    other = CallOp("", 0, (), ((1, 700), (20, 5)), 21, 4, 705)
    return [replay_spec(0, "x", script, 0.0), replay_spec(1, "x", Script([other]), 0.1)]


LOST = {
    "own": {},
    "sharegpt": {"branch": 2, "tool or wait before a call": 4, "timeout": 3, "model": 1, "arrival": 2,
                 "shared with another": 1, "does not grow": 2},
    "azure": {"branch": 2, "tool or wait before a call": 4, "timeout": 3, "model": 1, "arrival rounded": 1,
              "shared with another": 1, "shared with an earlier": 2, "belongs to the program": 4},
    "aiperf": {"branch": 2, "before the first call": 1, "timeout": 3, "shared with another": 0,
               "a tool or a person": 3, "does not grow": 2, "made up": 2},
    "burstgpt": {"branch": 2, "before the first call": 1, "timeout": 3, "shared with another": 1,
                 "shared with an earlier": 0, "a tool or a person": 3},
    "tracelab": {"branch": 2, "before the first call": 1, "timeout": 3, "shared with another": 1, "model": 1,
                 "written as a tool": 1},
    "mooncake": {"branch": 2, "before the first call": 1, "timeout": 3, "model": 1, "inside a block": 2,
                 "a tool or a person": 3},
    "qwen-bailian": {"before the first call": 1, "timeout": 3, "model": 1, "inside a block": 2,
                     "a tool or a person": 3},
}  # fmt: skip


@pytest.mark.parametrize("form", sorted(SAYS))
def test_what_a_format_cannot_say_is_counted_by_kind(form, tmp_path):
    _, lost = write(everything(), form, tmp_path)
    for words, count in LOST[form].items():
        if count:
            assert sum(n for kind, n in lost.items() if words in kind) == count, (words, lost)
    unexplained = [kind for kind in lost if not any(words in kind for words in LOST[form])]
    assert [kind for kind in unexplained if "after the last call" not in kind] == []


@pytest.mark.parametrize("form", sorted(set(SAYS) - {"own"}))
def test_a_program_without_calls_is_lost_aloud(form, tmp_path):
    idle = replay_spec(0, "x", Script([ThinkOp(4.0)]), 0.0)
    _, lost = write([idle, *everything()[1:]], form, tmp_path)
    assert lost["program without calls"] == 1


def test_block_ids_by_hand():
    """Blocks of 4: equal numbers as far as prompts agree; a part is never a whole."""
    ids = BlockIds(4)
    assert ids.of([(1, 6), (2, 4)]) == [0, 1, 2]
    assert ids.of([(1, 6), (2, 2)]) == [0, 1]
    assert ids.of([(1, 6)]) == [0, 3]
    assert ids.of([(1, 6), (2, 3)]) == [0, 1, 4]
    assert ids.of([(9, 2), (2, 4)]) == [5, 6]
    assert ids.of([(1, 6), (2, 3)], partial=False) == [0, 1]


def test_common_is_to_the_token():
    assert common([(1, 5), (2, 5)], [(1, 5), (2, 3), (4, 1)]) == 8
    assert common([(1, 5)], [(1, 7)]) == 5
    assert common([(1, 5)], [(2, 5)]) == 0


def test_sharegpt_is_one_json_array_and_mooncake_has_one_id_per_512_tokens(tmp_path):
    path, _ = write(timed("chatbot", 4), "sharegpt", tmp_path)
    assert [record["id"] for record in json.loads(path.read_text())] == ["0", "1", "2", "3"]
    path, _ = write(timed("chatbot", 4), "mooncake", tmp_path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(len(row["hash_ids"]) == -(-row["input_length"] // 512) for row in rows)
    assert all(("timestamp" in row) != ("delay" in row) for row in rows)


@pytest.mark.skipif(not DATA.exists(), reason="no ../shared/data")
@pytest.mark.parametrize("form", sorted(set(SAYS) - {"own"}))
def test_real_sessions_through_every_format(form, tmp_path):
    specs = load(str(DATA / "weka"), n=6).programs
    path, lost = write(specs, form, tmp_path)
    back, _ = write(read(path, form), "own", tmp_path, "own")
    again, _ = write(read(back, "own"), form, tmp_path, "again")
    if form != "aiperf":
        assert again.read_bytes() == path.read_bytes()
    assert lost


@pytest.mark.skipif(not DATA.exists(), reason="no ../shared/data")
def test_the_public_mooncake_trace_comes_back_as_it_is_but_for_the_numbers_of_its_blocks(tmp_path):
    (original,) = (DATA / "mooncake").glob("*.jsonl")
    rows = [json.loads(line) for line in original.read_text().splitlines()[:3000]]
    part = tmp_path / "part.jsonl"
    part.write_text("".join(json.dumps(row) + "\n" for row in rows))
    path, lost = write(load(str(part), max_model_len=1 << 22).programs, "mooncake", tmp_path)
    assert lost == {}
    ids: dict[int, int] = {}
    for row in (rows := sorted(rows, key=lambda row: row["timestamp"])):
        row["hash_ids"] = [ids.setdefault(name, len(ids)) for name in row["hash_ids"]]
        row["timestamp"] -= rows[0]["timestamp"] if row is not rows[0] else 0
    assert [json.loads(line) for line in path.read_text().splitlines()] == rows


def test_made_up_text_has_a_word_a_token_and_is_shared_where_prompts_are(tmp_path):
    specs = timed("react", 30)
    path, _ = write(specs, "aiperf", tmp_path)
    texts = [json.loads(line)["turns"][0]["text"].split() for line in path.read_text().splitlines()]
    firsts = [dry_run(spec).calls[0].prompt for spec in specs]
    assert [len(words) for words in texts] == [sum(n for _, n in prompt) for prompt in firsts]
    pairs = [(a, b) for a in range(30) for b in range(a) if firsts[a][0] == firsts[b][0]]
    assert pairs
    for a, b in pairs:
        shared = firsts[a][0][1]
        assert texts[a][:shared] == texts[b][:shared]
        assert texts[a][shared:] != texts[b][shared:]

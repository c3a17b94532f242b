"""Request traces: segments share exactly what block ids, or texts, have in common."""

import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.test_workloads_readers import mutated, odd, places, shared_tokens
from workloads.base import WorkloadError
from workloads.block_hashes import NamedBlocks
from workloads.dryrun import dry_runs
from workloads.load import load
from workloads.requests import Requests
from workloads.script import CallOp
from workloads.texts import TextTree

BLOCK = 8


@st.composite
def sessions(draw):
    """Sessions over one set of ids: (ids, tokens, output, text) of each call; chained like prefix hashes."""
    ids: dict[tuple, int] = {}
    made = []
    for _ in range(draw(st.integers(1, 4))):
        text, session = (), []
        for _ in range(draw(st.integers(1, 4))):
            text += tuple(draw(st.lists(st.integers(0, 1), min_size=1, max_size=2 * BLOCK)))
            blocks = [text[: i + BLOCK] for i in range(0, len(text), BLOCK)]
            chain = [ids.setdefault(block, len(ids)) for block in blocks]
            session.append((chain, len(text), draw(st.integers(1, 9)), text))
        made.append(session)
    return made


@settings(max_examples=300, deadline=None)
@given(sessions(), st.booleans())
def test_named_blocks_never_share_more_than_the_ids_say(made, rest_has_id):
    calls = []
    for number, session in enumerate(made):
        prompts = NamedBlocks(100 + number, BLOCK, 7)
        for index, (ids, tokens, output, text) in enumerate(session):
            op = CallOp("", index, (), (), prompts.new_id(), output, tokens)
            prompts.place(op, ids if rest_has_id else ids[: tokens // BLOCK])
            calls.append((op, text, number))
    for i, (a, text, session) in enumerate(calls):
        assert sum(length for _, length in a.prompt()) == len(text)
        for b, other, its in calls[:i]:
            found, same = shared_tokens(a.prompt(), b.prompt()), front(text, other)
            assert found <= same
            if session == its:
                assert found >= same // BLOCK * BLOCK


def front(a, b):
    """How many places two sequences have in common at the front."""
    return next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=40), min_size=1, max_size=8))
def test_requests_without_a_session_share_exactly_their_equal_ids(rows):
    requests = Requests("x", "a.jsonl", 0, BLOCK)
    for line, ids in enumerate(rows, 1):
        requests.columns.add(line, 0.0, len(ids) * BLOCK, 1, ids)
    prompts = [requests.script([row]).ops[0].prompt() for row in range(len(rows))]
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            same = next(
                (k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
            )
            assert shared_tokens(prompts[i], prompts[j]) == same * BLOCK


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text("abé数", min_size=1, max_size=30), min_size=1, max_size=8))
def test_texts_share_exactly_their_front(texts):
    tree = TextTree(1)
    nodes = [tree.add(text) for text in texts]
    tree.measure(len)
    for a, node in zip(texts, nodes, strict=True):
        assert sum(length for _, length in tree.segments(node)) == len(a)
        for b, other in zip(texts, nodes, strict=True):
            same = front(a, b)
            found = shared_tokens(tree.segments(node), tree.segments(other))
            # One token less where they part inside: it may be a piece of a longer one.
            assert found in ((same, same - 1) if 0 < same < min(len(a), len(b)) else (same,))


MOONCAKE = [
    {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]},
    {"timestamp": 9, "input_length": 700, "output_length": 5, "hash_ids": [0, 2], "session_id": "a"},
    {"delay": 9, "input_length": 900, "output_length": 5, "hash_ids": [0, 3], "session_id": "a"},
    {"messages": [{"role": "user", "content": "hello"}], "output_length": 5, "tools": []},
    {"payload": {"prompt": "hello there", "max_tokens": 4}, "timestamp": 5},
]
BAILIAN = [
    {
        "chat_id": i,
        "parent_chat_id": p,
        "timestamp": t,
        "input_length": n,
        "output_length": 7,
        "hash_ids": ids,
    }
    for i, p, t, n, ids in ((1, -1, 0, 40, [1, 2]), (2, 1, 5, 50, [1, 2, 3]), (3, 1, 9, 48, [1, 2, 4]))
]
TRACELAB = [
    {"session_id": "s", "round_idx": i, "prefix_len": 50 * i, "input_len": 40, "output_len": 20,
     "tools": [{"tool_wall_latency_ms": 5}], "arrival_time": 3.5}
    for i in range(3)
]  # fmt: skip
LMCACHE = [
    {"timestamp": 10**6 * i, "input": "hello " * i, "output": "hello", "session_id": "s"} for i in (3, 2, 1)
]
FORMATS = {"mooncake": MOONCAKE, "qwen-bailian": BAILIAN, "tracelab": TRACELAB, "lmcache": LMCACHE}
CSV = {
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50,3,4\n",
    "burstgpt": "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens\n"
    "0,s,2,M,10,5,15\n9,s,2,M,20,5,25\n10,,1,M,7,0,7\n",
    "tracelab": "id,input_len,output_len,arrival_time,round_idx,tool_wait_after_ms,prefix_len\n"
    "0,5,5,0.5,0,7.5,0\n0,5,5,0.5,1,0,10\n",
}
rules = st.sampled_from(["refuse", "skip", "truncate"])


def runs_or_says_why(name, data, fmt, rule):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        try:
            result = load(str(path), fmt=fmt, on_overflow=rule, cap_idle=60.0)
        except WorkloadError as error:
            said, result = str(error), None
        if result is None:
            assert name in said
            assert folder not in said
            assert "\n" not in said
            return
        assert result.read >= len(result.programs)
        for dag in dry_runs(result.programs):
            assert all(c.prompt_tokens == sum(n for _, n in c.prompt) >= 1 for c in dag.calls)
            assert dag.longest <= 131_072


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(list(FORMATS)), st.data(), odd, st.booleans(), rules)
def test_mutated_rows_run_or_say_why(fmt, data, value, drop, rule):
    rows = FORMATS[fmt]
    path = data.draw(st.sampled_from([p for p in places(rows) if p]))
    changed = mutated(rows, path, value, drop)
    text = "\n".join(json.dumps(row) for row in changed)
    runs_or_says_why("a.jsonl", text.encode(), fmt, rule)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([*FORMATS, *CSV]), st.integers(0, 400), st.binary(max_size=4), rules, st.booleans())
def test_cut_and_garbled_files_run_or_say_why(fmt, at, junk, rule, cut):
    name, data = "a.csv", CSV.get(fmt, "").encode()
    if not data:
        name, data = "a.jsonl", "\n".join(json.dumps(row) for row in FORMATS[fmt]).encode()
    runs_or_says_why(name, data[:at] + junk + (b"" if cut else data[at + len(junk) :]), fmt, rule)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(list(CSV)), st.data(), rules)
def test_mutated_cells_run_or_say_why(fmt, data, rule):
    rows = [line.split(",") for line in CSV[fmt].split("\n")]
    row = data.draw(st.sampled_from(rows[:-1]))
    cells = st.sampled_from(
        ["", "0", "-1", "1e400", "nan", "1e9", "4294967296", "x", '"', "9" * 30, "5.5", "٣"]
    )
    row[data.draw(st.integers(0, len(row) - 1))] = data.draw(cells)
    runs_or_says_why("a.csv", "\n".join(",".join(cells) for cells in rows).encode(), fmt, rule)

"""Readers: the sharing that block hashes state, and inputs broken in every way."""

import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.workloads.weka_files import request, session, subagent
from workloads.base import WorkloadError
from workloads.block_hashes import SharedPrompts
from workloads.chatbot import WORKLOAD
from workloads.dryrun import dry_run, dry_runs
from workloads.load import load
from workloads.own import export
from workloads.script import CallOp

SESSION = session(
    request(0, 130, 10),
    subagent(9.0, [request(0, 64, 5, [70]), request(3, 130, 9, [70, 71])], duration_ms=6000),
    request(12, 200, 30, stop="end_turn"),
    subagent(15.0, [request(0, 70, 5, [70])], status="async_launched"),
    request(40, 330, 4, think_time=None),
)
odd = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 300), st.floats(), st.text(max_size=3),
    st.just([]), st.just({}), st.just([1, 2]), st.just(1 << 70), st.just(1e300), st.just("subagent"),
)  # fmt: skip


def shared_tokens(a, b):
    """How many leading tokens two prompts share."""
    total = 0
    for x, y in zip(a, b, strict=False):
        if x[0] != y[0]:
            break
        total += min(x[1], y[1])
        if x[1] != y[1]:
            break
    return total


def places(value, path=()):
    """Every place of a JSON document."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def mutated(document, path, value, drop):
    document = json.loads(json.dumps(document))
    if not path:
        return value
    node = document
    for key in path[:-1]:
        node = node[key]
    if drop and isinstance(node, dict):
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return document


def runs_or_says_why(name, data, rule):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        try:
            result = load(str(path), fmt="weka" if name.endswith(".json") else "own", on_overflow=rule)
        except WorkloadError as error:
            said = str(error)
            result = None
        if result is None:
            assert name in said
            assert folder not in said
            return
        for dag in dry_runs(result.programs):
            assert all(c.prompt_tokens == sum(n for _, n in c.prompt) >= 1 for c in dag.calls)
            assert dag.longest <= 131_072


rules = st.sampled_from(["refuse", "skip", "truncate"])
PLACES = list(places(SESSION))


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), odd, st.booleans()), min_size=1, max_size=2), rules)
def test_mutated_weka_sessions_run_or_say_why(changes, rule):
    document = SESSION
    for path, value, drop in changes:
        try:
            document = mutated(document, path, value, drop)
        except (KeyError, IndexError, TypeError):
            continue
    runs_or_says_why("a.json", json.dumps(document).encode(), rule)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2000), st.binary(max_size=4), rules)
def test_cut_and_garbled_weka_files_run_or_say_why(at, junk, rule):
    data = json.dumps(SESSION).encode()
    runs_or_says_why("a.json", data[:at] + junk, rule)
    runs_or_says_why("a.json", data[:at] + junk + data[at + len(junk) :], rule)


def own_lines():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.jsonl"
        export(dry_runs(WORKLOAD.build(2, 3, None, {"calls": 3}).programs), path)
        return path.read_bytes().splitlines()


OWN = own_lines()
OWN_PLACES = list(places(json.loads(OWN[1])))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(OWN_PLACES), odd, st.booleans(), rules)
def test_mutated_programs_of_our_format_run_or_say_why(path, value, drop, rule):
    line = json.dumps(mutated(json.loads(OWN[1]), path, value, drop)).encode()
    runs_or_says_why("p.jsonl", b"\n".join([OWN[0], line, OWN[2]]), rule)


BLOCKS = 8


@st.composite
def prompts(draw):
    """Prompts of one session: each goes on from a part of an earlier one."""
    made, fresh = [], iter(range(1, 1000))
    for _ in range(draw(st.integers(1, 8))):
        base = draw(st.sampled_from(made))[0] if made else []
        front = base[: draw(st.integers(0, len(base)))] if draw(st.booleans()) else base
        ids = [*front, *(next(fresh) for _ in range(draw(st.integers(0, 3))))]
        tail = draw(st.integers(0 if ids else 1, BLOCKS - 1))
        made.append((ids, len(ids) * BLOCKS + tail, draw(st.integers(1, 30))))
    return made


@settings(max_examples=300, deadline=None)
@given(prompts())
def test_segments_share_exactly_the_blocks_that_hashes_share(made):
    shared = SharedPrompts(5, BLOCKS)
    ops = []
    for i, (ids, tokens, output) in enumerate(made):
        ops.append(CallOp("", i, (), (), shared.new_id(), output, tokens))
        shared.place(ops[-1], ids)
    for i, a in enumerate(ops):
        assert sum(length for _, length in a.prompt()) == made[i][1]
        for j in range(i):
            same = 0
            for x, y in zip(made[i][0], made[j][0], strict=False):
                if x != y:
                    break
                same += 1
            assert shared_tokens(a.prompt(), ops[j].prompt()) // BLOCKS == same


def test_the_session_that_is_mutated_is_sound():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.json"
        path.write_text(json.dumps(SESSION))
        result = load(folder)
    assert len(dry_run(result.programs[0]).calls) == 6
    assert result.repaired == {"think_time missing, taken from t and api_time": 1}

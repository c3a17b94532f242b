"""Programs of every shape survive recording, export, import and replay."""

import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from vocabulary import BLOCK
from workloads.base import ProgramSpec
from workloads.dag import program_hash
from workloads.dryrun import dry_run, dry_runs
from workloads.overflow import truncated
from workloads.own import export
from workloads.prefixes import PrefixIndex
from workloads.readers.own import READER
from workloads.replay import replay_spec
from workloads.session import Cancelled

small = st.integers(1, 40)
leaf = st.one_of(
    st.tuples(st.just("call"), st.integers(0, 40), small),
    st.tuples(st.just("tool"), st.floats(0, 100)),
    st.tuples(st.just("think"), st.floats(0, 100)),
    st.tuples(st.just("cut"), small),
    st.just(("cancel",)),
    st.tuples(st.sampled_from(["abandon", "shared"])),
)
plans = st.recursive(
    st.lists(leaf, max_size=5),
    lambda inner: st.lists(
        st.one_of(
            leaf,
            st.tuples(st.just("join"), st.lists(inner, min_size=1, max_size=3)),
            st.tuples(st.sampled_from(["spawn", "timeout"]), inner),
        ),
        max_size=5,
    ),
    max_leaves=25,
)


async def act(s, plan, tasks):
    try:
        for step in plan:
            await one(s, step, tasks)
    except Cancelled:
        await s.tool("cleanup", 1.0)


async def one(s, step, tasks):
    match step:
        case ("call", new, output):
            await s.call(new=new if s.tokens else new + 1, output=output, model="m")
        case ("tool", seconds):
            await s.tool("bash", seconds)
        case ("think", seconds):
            await s.think(seconds)
        case ("cut", tokens):
            s.edit([(segment, min(length, tokens)) for segment, length in s.context[:-1]])
        case ("shared",):
            s.add((7, 33))
        case ("join", plans):
            await s.join(*[act(s.fork(), plan, tasks) for plan in plans])
        case ("spawn", plan):
            tasks.append(await s.spawn(act(s.fork(detached=True), plan, tasks)))
        case ("timeout", plan):
            await s.timeout(9.0, act(s, plan, tasks))
        case ("cancel",):
            if tasks:
                await s.cancel(tasks.pop(0))
        case ("abandon",):
            await s.abandon()


def spec_of(plan, index=0):
    return ProgramSpec(index, "made", 100 + index, lambda s: act(s, plan, []))


def described(dag):
    return dag.calls, dag.critical_path(), dag.critical_path_s(0.25), dag.content_digest()


@settings(max_examples=150, deadline=None)
@given(st.lists(plans, min_size=1, max_size=3))
@example([[("spawn", [("cancel",), ("cancel",)]), ("spawn", [])]])  # one branch cancels a later one
def test_export_and_replay_are_exact(made):
    dags = dry_runs(spec_of(plan, i) for i, plan in enumerate(made))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "programs.jsonl"
        export(dags, path)
        again = dry_runs(READER.read(path, max_model_len=10**9, on_overflow="refuse").programs)
    assert [described(dag) for dag in again] == [described(dag) for dag in dags]
    assert program_hash(again) == program_hash(dags)


@settings(max_examples=80, deadline=None)
@given(plans)
def test_a_copy_has_the_same_shape_and_no_common_prefix(plan):
    dag = dry_run(spec_of(plan))
    copy = dry_run(replay_spec(0, "made", dag.script, None, 3))
    assert [(c.thread, c.index, c.parents, c.prompt_tokens, c.tools) for c in copy.calls] == [
        (c.thread, c.index, c.parents, c.prompt_tokens, c.tools) for c in dag.calls
    ]
    assert copy.optimal_hits() == dag.optimal_hits()
    ids = [{segment for c in d.calls for segment, _ in c.prompt} for d in (dag, copy)]
    assert not ids[0] & ids[1]


@settings(max_examples=80, deadline=None)
@given(plans, st.integers(2, 120))
def test_truncation_leaves_only_what_fits(plan, limit):
    script = dry_run(spec_of(plan)).script
    cut = dry_run(replay_spec(0, "made", truncated(script, limit), None))
    assert cut.longest <= limit
    known = {(c.thread, c.index) for c in cut.calls}
    assert all(parent in known for c in cut.calls for parent in c.parents)


@settings(max_examples=80, deadline=None)
@given(plans)
def test_dry_run_order_is_topological_and_hits_are_those_of_a_block_cache(plan):
    dag = dry_run(spec_of(plan))
    seen, cache, hits = set(), set(), 0
    for c in dag.calls:
        assert set(c.parents) <= seen
        seen.add((c.thread, c.index))
        tokens = [(s, i) for s, length in (*c.prompt, (c.output_id, c.output_tokens)) for i in range(length)]
        blocks = [tuple(tokens[: i + BLOCK]) for i in range(0, len(tokens) - BLOCK + 1, BLOCK)]
        found = 0
        while found < (c.prompt_tokens - 1) // BLOCK and blocks[found] in cache:
            found += 1
        hits += found * BLOCK
        cache.update(blocks[: (len(tokens) - 1) // BLOCK])
    assert dag.optimal_hits() == hits
    assert dag.optimal_hits() <= dag.total_prompt
    assert dag.critical_path() <= dag.total_output


@given(st.lists(st.lists(st.tuples(st.integers(1, 3), small), max_size=5), max_size=6))
def test_prefix_index_finds_the_longest_prefix(sequences):
    def spelled(sequence):
        return [(s, i) for s, length in sequence for i in range(length)]

    index, earlier = PrefixIndex(), []
    for sequence in sequences:
        tokens = spelled(sequence)
        best = 0
        for old in earlier:
            n = next((i for i, (a, b) in enumerate(zip(tokens, old, strict=False)) if a != b), None)
            best = max(best, min(len(tokens), len(old)) if n is None else n)
        assert index.longest(sequence) == best
        index.add(sequence)
        earlier.append(tokens)

import os
import subprocess
import sys
from statistics import fmean, median, pstdev

import pytest

from workloads.chatbot import WORKLOAD as CHATBOT
from workloads.dag import program_hash
from workloads.dryrun import dry_run, dry_runs
from workloads.mcts import WORKLOAD as MCTS
from workloads.script import JoinOp, ToolOp


def near(values, mean, sigmas=4.0):
    return abs(fmean(values) - mean) <= sigmas * pstdev(values) / len(values) ** 0.5


@pytest.fixture(scope="module")
def chats():
    return dry_runs(CHATBOT.build(3000, 1).programs)


@pytest.fixture(scope="module")
def searches():
    return dry_runs(MCTS.build(20, 1).programs)


def new_tokens(dag):
    context = 0
    for call in dag.calls:
        yield call.prompt_tokens - context
        context = call.prompt_tokens + call.output_tokens


def test_chatbot_has_the_papers_means(chats):
    assert near([len(dag.calls) for dag in chats], 6.66)
    # Whole programs are the independent samples; calls of one share nothing but their number.
    assert near([n for dag in chats for n in new_tokens(dag)], 255.65)
    assert near([c.output_tokens for dag in chats for c in dag.calls], 276.81)
    assert max(len(dag.calls) for dag in chats) <= 80
    assert max(c.output_tokens for dag in chats for c in dag.calls) <= 2048


def test_a_conversation_is_one_thread_that_grows(chats):
    for dag in chats[:50]:
        assert dag.threads == 1
        assert dag.critical_path() == dag.total_output
        for a, b in zip(dag.calls, dag.calls[1:], strict=False):
            assert b.prompt[: len(a.prompt) + 1] == (*a.prompt, (a.output_id, a.output_tokens))
            assert b.parents == (("", a.index),)


@pytest.mark.slow
def test_mcts_has_the_call_count_of_the_calibration():
    calls = sorted(len(dry_run(spec).calls) for spec in MCTS.build(2000, 1).programs)
    assert near(calls, 163)
    assert 125 <= median(calls) <= 148
    assert 345 <= calls[int(0.95 * len(calls))] <= 368
    assert max(calls) <= 460


def test_mcts_siblings_share_the_whole_prompt_of_their_parent_and_run_concurrently(searches):
    for dag in searches:
        by_id = {(c.thread, c.index): c for c in dag.calls}
        first = dag.calls[:5]
        assert len({c.prompt for c in first}) == 1
        assert first[0].prompt_tokens == 1563
        for op in dag.script.walk():
            if not isinstance(op, JoinOp):
                continue
            calls = [next(script.calls()) for script in op.scripts]
            assert len({c.parents for c in calls}) == 1, "a phase waits for the whole phase before it"
            for c in calls:
                up = c.thread.rpartition(".")[0]
                if up and (up, 0) in by_id:
                    parent = by_id[up, 0]
                    assert tuple(c.prompt())[: len(parent.prompt) + 1] == (
                        *parent.prompt,
                        (parent.output_id, parent.output_tokens),
                    )


def test_mcts_depth_adds_its_growth_and_values_cost_tool_time(searches):
    for dag in searches:
        assert {(c.prompt_tokens - 1563) % 88 for c in dag.calls} == {0}
        values = [c for c in dag.calls if c.tools]
        assert all(c.output_tokens == 100 and 0.27 <= round(c.delay_s, 6) <= 1.26 for c in values)
        assert all(name == "search" for c in values for name, _ in c.tools)
        assert sum(isinstance(op, ToolOp) for op in dag.script.walk()) == len(values)
        assert max(c.output_tokens for c in dag.calls) <= 100


def test_one_branchs_parameters_leave_the_others_alone(chats):
    longer = dry_runs(CHATBOT.build(200, 1, None, {"calls.max": 3}).programs)
    for a, b in zip(chats, longer, strict=False):
        assert a.calls[: len(b.calls)] == b.calls
        assert len(b.calls) == min(3, len(a.calls))
    other = dry_runs(CHATBOT.build(200, 1, None, {"output": 50}).programs)
    assert all(list(new_tokens(a)) == list(new_tokens(b)) for a, b in zip(chats, other, strict=False))
    slow = dry_runs(MCTS.build(5, 1, None, {"tool_s": 5}).programs)
    fast = dry_runs(MCTS.build(5, 1, None, {"tool_s": 0}).programs)
    assert [[c.prompt for c in d.calls] for d in slow] == [[c.prompt for c in d.calls] for d in fast]


def test_more_programs_do_not_change_the_first(chats):
    assert [d.calls for d in dry_runs(CHATBOT.build(20, 1).programs)] == [d.calls for d in chats[:20]]


def test_token_scale_shrinks_every_count():
    small = dry_runs(MCTS.build(5, 1, None, {"token_scale": "1/16"}).programs)
    large = dry_runs(MCTS.build(5, 1).programs)
    assert [len(d.calls) for d in small] == [len(d.calls) for d in large]
    assert small[0].calls[0].prompt_tokens == round(1563 / 16)


def test_a_conversation_ends_before_the_context_overflows():
    result = CHATBOT.build(300, 1, None, {"max_context": 4096})
    dags = dry_runs(result.programs)
    assert max(d.longest for d in dags) <= 4096
    assert min(len(d.calls) for d in dags) >= 1
    assert set(result.repaired) == {
        "conversation ended before the turn that would exceed the context",
        "first turn shortened to the context",
    }
    assert result.where


HASH = """
from workloads.dag import program_hash
from workloads.dryrun import dry_runs
from workloads.load import load
print(program_hash(dry_runs(load("chatbot", n=20, seed=4).programs + load("mcts", n=2, seed=4).programs)))
"""


def test_same_programs_in_every_process():
    prints = set()
    for hash_seed in ("0", "77"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        run = subprocess.run(
            [sys.executable, "-c", HASH], env=env, capture_output=True, text=True, check=True
        )
        prints.add(run.stdout.strip())
    here = program_hash(dry_runs(CHATBOT.build(20, 4).programs + MCTS.build(2, 4).programs))
    assert prints == {here}
    assert here != program_hash(dry_runs(CHATBOT.build(20, 5).programs + MCTS.build(2, 5).programs))

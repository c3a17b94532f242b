"""Agents with tools: what their programs are made of, staggered starts, patience, and rollouts over them."""

from statistics import fmean

import pytest

from workloads.base import WorkloadError
from workloads.dag import optimal_hits_across
from workloads.dryrun import dry_run, dry_runs
from workloads.load import load
from workloads.script import AbandonOp, CallOp, ThinkOp, TimeoutOp, ToolOp
from workloads.session import TimedOut
from workloads.tool_loop import COMPACTED, CUT, ENDED


def made(spec, n=40, seed=1, **parameters):
    given = {name.replace("__", "."): str(value) for name, value in parameters.items()}
    return load(spec, n=n, seed=seed, parameters=given)


def dags(*arguments, **parameters):
    return dry_runs(made(*arguments, **parameters).programs)


def test_an_agent_is_one_thread_of_calls_and_tools_in_turn():
    for dag in dags("swe:mini"):
        ops = dag.script.ops
        assert [type(op) for op in ops] == [CallOp, ToolOp] * (len(ops) // 2) + [CallOp]
        for a, b in zip(dag.calls, dag.calls[1:], strict=False):
            assert b.prompt[: len(a.prompt) + 1] == (*a.prompt, (a.output_id, a.output_tokens))
            assert len(b.prompt) == len(a.prompt) + 2


def test_the_system_prompt_is_shared_or_not():
    assert len({dag.calls[0].prompt[0] for dag in dags("swe:mini", 9)}) == 1
    assert len({dag.calls[0].prompt[0][0] for dag in dags("swe:mini", 9, shared_system="false")}) == 9


def test_a_rebuilt_prompt_keeps_system_and_task_and_nothing_else():
    for dag in dags("scienceagent:paper"):
        first = dag.calls[0].prompt
        works = [call.prompt[2:] for call in dag.calls[1:]]
        assert all(call.prompt[:2] == first for call in dag.calls)
        assert all(len(work) == 1 for work in works)
        assert len({work[0][0] for work in works}) == len(works)
        lengths = [work[0][1] for work in works]
        assert lengths == sorted(lengths), "what was found is written anew, and more each time"


def test_people_and_compaction_in_claude_code():
    found = dags("swe:claude_code", 60)
    steps = [op for dag in found for op in dag.script.ops if isinstance(op, (ThinkOp, ToolOp))]
    assert fmean(isinstance(op, ThinkOp) for op in steps) == pytest.approx(1 / 16, abs=0.015)
    assert {op.name for op in steps if isinstance(op, ToolOp)} == {"Bash", "Edit", "Read"}
    shrunk = sum(
        b.prompt_tokens < a.prompt_tokens
        for dag in found
        for a, b in zip(dag.calls, dag.calls[1:], strict=False)
    )
    assert shrunk > 10
    assert all(call.prompt[0] == found[0].calls[0].prompt[0] for dag in found for call in dag.calls)


@pytest.mark.parametrize(
    ("spec", "limit", "reasons"),
    [
        ("swe:mini", 6000, {ENDED}),
        ("swe:claude_code", 40000, {COMPACTED, CUT}),
        ("toolorchestra:hle", 5000, {CUT}),
    ],
)
def test_no_call_outgrows_the_context_and_what_that_did_is_counted(spec, limit, reasons):
    result = made(spec, 60, max_context=limit)
    assert result.longest == limit
    assert max(dag.longest for dag in dry_runs(result.programs)) <= limit
    assert set(result.repaired) >= reasons
    assert set(result.repaired) == set(result.where)
    short = load(spec, n=60, seed=1, max_model_len=limit)
    assert [s.key for s in short.programs] == [s.key for s in result.programs]
    assert short.repaired == result.repaired


def test_a_context_without_room_for_the_system_prompt_is_refused():
    with pytest.raises(WorkloadError, match="system prompt of 14340 tokens leaves no room") as error:
        made("swe:claude_code", 1, max_context=14000)
    assert error.value.limit == 14000


def test_one_scale_moves_one_quantity():
    base = dags("swe:mini", 60)
    mean = lambda found: fmean(c.output_tokens for dag in found for c in dag.calls)  # noqa: E731
    double = dags("swe:mini", 60, scale__output=2)
    assert mean(double) == pytest.approx(2 * mean(base), rel=0.01)
    assert [len(dag.calls) for dag in double] == [len(dag.calls) for dag in base]
    slow = dags("swe:mini", 60, scale__tool_s=2)
    assert sum(dag.tool_s for dag in slow) == pytest.approx(2 * sum(dag.tool_s for dag in base))
    assert [dag.calls[-1].prompt for dag in slow] == [dag.calls[-1].prompt for dag in base]
    with pytest.raises(WorkloadError, match="no parameter 'tools'"):
        made("swe:mini", scale__tools=2)
    with pytest.raises(WorkloadError, match="scale: obs must be above 0"):
        made("swe:mini", scale__obs=0)


def test_a_tool_family_changes_times_and_nothing_else():
    base, heavy = dags("swe:openhands-paper", 20), dags("swe:openhands-paper", 20, tool_family="heavy")
    assert [[c.prompt for c in dag.calls] for dag in heavy] == [[c.prompt for c in dag.calls] for dag in base]
    assert [dag.tool_s for dag in heavy] != [dag.tool_s for dag in base]
    assert made("swe:mini").digest != made("swe:mini", tool_family="heavy").digest


def test_staggered_programs_are_the_rest_of_a_program_and_bring_its_context():
    # every program has 30 calls: none is longer, so who is met has the length of who is new
    whole = {i: dry_run(spec) for i, spec in enumerate(made("swe:openhands", 30, calls=30).programs)}
    rest = [dry_run(s) for s in made("swe:openhands", 30, calls=30, stagger=1, at_start=20).programs]
    behind = [30 - len(dag.calls) for dag in rest]
    assert behind[20:] == [0] * 10
    assert len(set(behind[:20])) >= 15, "ages are spread evenly"
    for i, dag in enumerate(rest):
        full = whole[i].calls[behind[i] :]
        lengths = lambda calls: [(c.prompt_tokens, c.output_tokens) for c in calls]  # noqa: E731
        assert lengths(dag.calls) == lengths(full)
        assert [c.tools for c in dag.calls[1:]] == [c.tools for c in full[1:]]
        assert dag.calls[0].tools == ()


def test_who_is_met_in_the_middle_is_longer_than_who_is_new():
    """In proportion to its length: mean calls E[L^2] / E[L], 50 (1 + 1/4) for a gamma of shape 4."""

    def calls(**parameters):
        programs = made("swe:mini", 600, **parameters).programs
        return [s.start.args[0].length(s.key, s.start.keywords["life"]) for s in programs]

    assert fmean(calls()) == pytest.approx(50, rel=0.06)
    assert fmean(calls(stagger=1, at_start=600)) == pytest.approx(62.5, rel=0.06)


def test_a_staggered_loop_starts_where_it_will_stay():
    """The mean age of the first is half a life; half as much with a stagger of a half."""
    for stagger, share in ((1, 0.5), (0.5, 0.25)):
        ages = [
            s.start.keywords["life"].age
            for s in made("rollout:mini", 96, programs=96, stagger=stagger).programs
        ]
        assert fmean(ages) == pytest.approx(share, abs=0.01)
        assert max(ages) < stagger


def run(spec, late):
    """Effects of a program whose calls time out where ``late`` (by number of the try) says so."""
    coroutine, value, tries, ops = spec.launch(), None, 0, []
    while True:
        try:
            effect = coroutine.throw(value) if isinstance(value, TimedOut) else coroutine.send(value)
        except StopIteration:
            return ops
        ops.append(type(effect).__name__)
        value = None
        if ops[-1] == "AbandonEffect":
            coroutine.close()
            return ops
        if ops[-1] == "TimeoutEffect":
            effect.program.send(None)
            if late(tries := tries + 1):
                effect.program.close()
                value = TimedOut()
            else:
                with pytest.raises(StopIteration):
                    effect.program.send(None)


def test_an_impatient_client_asks_again_and_then_leaves():
    spec = made("swe:mini", 1, patience_s=5, retries=2, calls=3).programs[0]
    timeout, tool = "TimeoutEffect", "ToolEffect"
    assert run(spec, lambda n: False) == [timeout, tool, timeout, tool, timeout]
    assert run(spec, lambda n: n in (2, 3)) == [timeout, tool, timeout, timeout, timeout, tool, timeout]
    assert run(spec, lambda n: n > 1) == [timeout, tool, timeout, timeout, timeout, "AbandonEffect"]
    dag = dry_run(spec)
    assert all(op.seconds == 5 for op in dag.script.ops if isinstance(op, TimeoutOp))
    assert not any(isinstance(op, AbandonOp) for op in dag.script.ops)


def test_a_retry_sends_the_same_prompt():
    spec = made("swe:mini", 1, patience_s=5, retries=1, calls=2).programs[0]
    coroutine = spec.launch()
    first = coroutine.send(None).program.send(None)
    again = coroutine.throw(TimedOut()).program.send(None)
    assert first.prompt == again.prompt
    assert (first.index, again.index) == (0, 1)
    assert first.output_tokens == again.output_tokens
    coroutine.close()


def test_rollouts_are_the_bases_programs():
    rollout, base = dags("rollout:mini", 8, stagger=0), dags("swe:mini", 8)
    assert {spec.kind for spec in made("rollout:mini", 8).programs} == {"rollout"}
    assert [dag.calls[0].prompt[0] for dag in rollout] == [dag.calls[0].prompt[0] for dag in base]
    set_ = made("rollout:mini", 8, tool_family="heavy", programs=3, nodes=2)
    assert (set_.parameters["tool_family"], set_.parameters["at_start"]) == ("heavy", 6)
    other = made("rollout:mini", 8, base="osworld:desktop")
    assert {name for c in dry_run(other.programs[0]).calls for name, _ in c.tools} <= {"desktop"}


def test_several_episodes_of_one_program_have_a_context_each():
    dag = dry_run(made("rollout:mini", 1, episodes=3, stagger=0, calls=4).programs[0])
    assert [c.thread for c in dag.calls] == ["0"] * 4 + ["1"] * 4 + ["2"] * 4
    assert len({c.prompt[0] for c in dag.calls}) == 1
    assert len({c.prompt[1] for c in dag.calls}) == 3
    assert [c.parents for c in dag.calls[3:6]] == [(("0", 2),), (("0", 3),), (("1", 0),)]


@pytest.mark.parametrize(
    ("spec", "parameters", "said"),
    [
        ("swe:mini", {"history": "prepend"}, "swe:mini: history must be append or rebuild, got 'prepend'"),
        ("swe:mini", {"stagger": 2}, "stagger must be a number from 0 to 1"),
        ("swe:mini", {"retries": 1.5}, "retries must be a whole number"),
        (
            "rollout:mini",
            {"base": "chatbot:paper"},
            "rollout:mini: base must be a workload of agents with tools",
        ),
        ("rollout:mini", {"base": "swe:maxi"}, "swe has no preset 'maxi'"),
        ("rollout:mini", {"obz": 2}, "swe:mini has no parameter 'obz'"),
        ("rollout:mini", {"at_start": 2}, "rollout:mini has no parameter 'at_start'"),
        ("rl:grpo", {"stagger": 1}, "rl:grpo has no parameter 'stagger'"),
        ("rl:grpo", {"lag": -1}, "rl:grpo: lag must be a number from 0"),
    ],
)
def test_bad_parameters_are_refused(spec, parameters, said):
    with pytest.raises(WorkloadError) as error:
        made(spec, 1, **parameters)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("spec", "context", "hits"),
    [
        ("swe:mini", 10_446, 0.984),
        ("swe:openhands-paper", 16_850, 0.979),
        ("toolorchestra:hle", 12_761, 0.252),
        ("scienceagent:paper", 8_436, 0.522),
    ],
)
def test_the_assumed_presets_are_what_they_were_chosen_for(spec, context, hits):
    """The page's numbers, of 500 programs, within what 60 can tell."""
    found = dags(spec, 60)
    calls = [c.prompt_tokens + c.output_tokens for dag in found for c in dag.calls]
    assert fmean(calls) == pytest.approx(context, rel=0.1)
    assert sum(optimal_hits_across(found)) / sum(dag.total_prompt for dag in found) == pytest.approx(
        hits, abs=0.02
    )


def test_staggered_contexts_are_those_of_a_loop_that_has_run_for_long():
    """The mean over who is there equals the mean over all calls (the page's, of 500 programs)."""
    made_ = made("swe:mini", 400, stagger=1, at_start=400).programs
    assert fmean(s.launch().send(None).prompt_tokens for s in made_) == pytest.approx(10_315, rel=0.07)

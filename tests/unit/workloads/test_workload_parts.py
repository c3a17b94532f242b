"""React, Tree of Thoughts, map-reduce and mixed: their control flow and what they share."""

import time
from itertools import combinations

import pytest

from workloads.base import WorkloadError
from workloads.dag import optimal_hits_across, program_hash
from workloads.dryrun import dry_run, dry_runs
from workloads.keys import key_of
from workloads.load import load
from workloads.prefixes import PrefixIndex
from workloads.script import CallOp, JoinOp
from workloads.tot import search


def made(preset, n=40, seed=3, **parameters):
    given = {name.replace("__", "."): str(value) for name, value in parameters.items()}
    return dry_runs(load(preset, n=n, seed=seed, parameters=given).programs)


def shared(a, b):
    """Leading tokens that the longest prompts of two programs share."""
    index = PrefixIndex()
    for call in a.calls:
        index.add((*call.prompt, (call.output_id, call.output_tokens)))
    return max(index.longest(call.prompt) for call in b.calls)


def system(dag):
    return dag.calls[0].prompt[0]


def test_bfcl_programs_share_exactly_the_system_prompt_of_their_tool_set():
    dags = made("react:bfcl")
    pairs = list(combinations(dags, 2))
    assert sum(system(a) == system(b) for a, b in pairs) > 20
    for a, b in pairs:
        assert shared(a, b) == (system(a)[1] if system(a) == system(b) else 0)


def test_the_tool_sets_are_the_same_text_for_every_seed_and_preset_parameter():
    sets = {system(dag) for dag in made("react:bfcl", 100, 1)}
    assert {system(dag) for dag in made("react:bfcl", 100, 2)} & sets
    small = {name for name, _ in map(system, made("react:bfcl", 100, 1, token_scale="1/16"))}
    assert small == {name for name, _ in sets}
    assert not sets & {system(dag) for dag in made("react:bfcl-wide", 100, 1)}


def test_bfcl_own_shares_nothing_and_is_otherwise_the_same():
    shared_sets, own = made("react:bfcl"), made("react:bfcl-own")
    assert all(shared(a, b) == 0 for a, b in combinations(own, 2))
    lengths = [[(c.prompt_tokens, c.output_tokens) for c in dag.calls] for dag in shared_sets]
    assert lengths == [[(c.prompt_tokens, c.output_tokens) for c in dag.calls] for dag in own]
    hits = [sum(optimal_hits_across(dags)) for dags in (shared_sets, own)]
    assert hits[0] > hits[1] + 10 * 5000


def test_a_react_program_is_one_thread_that_grows():
    for preset in ("react:bfcl", "react:hotpot", "react:tau"):
        for dag in made(preset, 10):
            assert dag.threads == 1
            for a, b in zip(dag.calls, dag.calls[1:], strict=False):
                assert b.prompt[: len(a.prompt) + 1] == (*a.prompt, (a.output_id, a.output_tokens))
                assert b.parents == (("", a.index),)
            assert not dag.calls[0].tools


def test_a_user_who_thinks_does_so_before_a_turn_and_not_before_a_tool_step():
    for dag in made("react:bfcl", 10, think_s=5):
        for call in dag.calls[1:]:
            assert [name for name, _ in call.tools] in (["think"], ["function"])
    assert any(("think", 5.0) in c.tools for dag in made("react:bfcl", 10, think_s=5) for c in dag.calls)


def test_a_program_has_no_more_user_turns_than_calls():
    for dag in made("react:bfcl", 30, calls=2):
        assert len(dag.calls) == 2
    assert all(not c.tools for dag in made("react:bfcl", 10, turns=70) for c in dag.calls)


def test_tot_levels_alternate_between_proposals_and_values():
    for dag in made("mcts:tot", 5):
        phases = [[next(s.calls()) for s in op.scripts] for op in dag.script.ops if isinstance(op, JoinOp)]
        assert not any(isinstance(op, CallOp) for op in dag.script.ops)
        assert len(phases[0]) == 1
        proposals = [phase for phase in phases if phase[0].new[0][0] == phases[0][0].new[0][0]]
        assert [len(phase) for phase in proposals] == [1, 5, 5, 5]
        assert len(phases[1]) >= 15
        before = ()
        for phase in phases:
            assert {call.parents for call in phase} == {before}
            before = tuple(call.id for call in phase)


def test_tot_samples_of_a_value_are_the_same_prompt_and_templates_are_shared_by_programs():
    a, b = made("mcts:tot", 2)
    assert shared(a, b) == 280
    values = [c.prompt for c in a.calls if c.prompt[0] != a.calls[0].prompt[0]]
    assert {values.count(prompt) for prompt in values} == {3}
    states = {c.prompt[1] for c in a.calls if c.prompt[0] == a.calls[0].prompt[0]}
    assert states & {prompt[1] for prompt in values}, "the beam holds states that were valued"


def test_tot_parameters_change_the_tree():
    wide = made("mcts:tot", 3, beam=2, levels=3, value_samples=1, candidates=9)
    assert {len(dag.calls) for dag in wide} == {1 + 2 + 2 + 9}
    with pytest.raises(WorkloadError, match="beam must be"):
        made("mcts:tot", beam=0)
    with pytest.raises(WorkloadError, match="no parameter 'beam'"):
        made("mcts:lats", beam=2)
    assert load("mcts:tot", n=1).programs[0].start.func is search


def test_mapreduce_reads_concurrently_and_the_last_call_reads_all_answers():
    for dag in made("mapreduce", 20):
        *maps, last = dag.calls
        assert all(call.parents == () and len(call.prompt) == 1 for call in maps)
        assert last.parents == tuple((call.thread, call.index) for call in maps)
        assert last.prompt[:-1] == tuple((call.output_id, call.output_tokens) for call in maps)
        assert last.prompt[-1][1] == 50
        assert dag.critical_path() == max(c.output_tokens for c in maps) + last.output_tokens


def test_mixed_programs_are_those_of_their_parts():
    for spec in load("mixed", n=60, seed=2).programs:
        part = load(spec.kind, n=1, seed=0).programs[0]
        assert spec.key == key_of("mixed", 2, spec.index)
        assert spec.start.func is part.start.func
        alone = type(part)(spec.index, spec.kind, spec.key, part.start)
        assert dry_run(spec).calls == dry_run(alone).calls


def test_mixed_parameters_go_to_their_part():
    base = made("mixed", 60)
    changed = made("mixed", 60, mcts__p_success="0.5")
    for a, b in zip(base, changed, strict=True):
        assert a.kind == b.kind
        assert a.kind == "mcts" or a.calls == b.calls
    fewer = [sum(len(d.calls) for d in dags if d.kind == "mcts") for dags in (base, changed)]
    assert fewer[1] < 0.5 * fewer[0]
    tau = made("mixed", 60, react="tau", react__calls__max="2")
    assert {system(d)[1] for d in tau if d.kind == "react"} == {1274}
    assert max(len(d.calls) for d in tau if d.kind == "react") <= 2


def test_mixed_shares_and_scale():
    assert {dag.kind for dag in made("mixed", share__mcts=0, share__chatbot=0)} == {"react"}
    base, small = made("mixed", 30), made("mixed", 30, token_scale="1/16")
    assert [len(d.calls) for d in base] == [len(d.calls) for d in small]
    assert sum(d.total_prompt for d in small) < 0.07 * sum(d.total_prompt for d in base)
    assert all(dag.longest <= 4096 for dag in made("mixed", 60, max_context=4096) if dag.kind == "chatbot")


def test_mixed_counts_repairs_of_the_programs_it_has_and_of_no_others():
    result = load("mixed", n=200, seed=1, parameters={"max_context": "4096"})
    only = load("mixed", n=200, seed=1, parameters={"max_context": "4096", "share.chatbot": "0"})
    assert sum(result.repaired.values()) > 0
    assert only.repaired == {}
    place = next(iter(result.where.values()))
    assert result.programs[int(place.split()[1])].kind == "chatbot"


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"mcts.p_sucess": "1"}, "mcts:lats has no parameter 'p_sucess': did you mean 'p_success'"),
        ({"mcts": "lat"}, "mcts has no preset 'lat': did you mean 'lats'"),
        ({"chatbot": "3"}, "mixed:paper: chatbot must be a number|chatbot must be"),
        ({"share.mcts": "-1"}, "share: mcts must be a number from 0"),
        (
            {"share.mcts": "0", "share.react": "0", "share.chatbot": "0"},
            "at least one part must have a share",
        ),
        ({"share": "3"}, "share is a table"),
        ({"mapreduce.fanout": "3"}, "no parameter 'mapreduce.fanout'"),
    ],
)
def test_mixed_errors_name_the_part(parameters, said):
    with pytest.raises(WorkloadError, match=said):
        load("mixed", n=1, parameters=parameters)


@pytest.mark.parametrize(
    ("preset", "parameters", "said"),
    [
        ("react:bfcl", {"shared_system": "7"}, "shared_system must be true or false, got 7"),
        ("react:tau", {"user_share": "1.5"}, "user_share must be a number from 0 to 1"),
        ("react:tau", {"tool_result.at.50": "900"}, "expected rising values at levels 0 to 100"),
        ("react:tau", {"turns": "3"}, "no parameter 'turns'"),
    ],
)
def test_react_errors(preset, parameters, said):
    with pytest.raises(WorkloadError, match=said):
        load(preset, n=1, parameters=parameters)


def test_a_short_context_is_refused_where_it_matters():
    assert load("react:bfcl", n=30, max_model_len=20_000).programs
    with pytest.raises(WorkloadError, match=r"react program \d+: a call of \d+ tokens .* context of 3000"):
        load("react:bfcl", n=30, max_model_len=3000)


def test_mixed_builds_fast():
    began = time.process_time()
    load("mixed", n=1000, seed=1)
    assert time.process_time() - began < 1.0


def test_a_prefix_of_mixed_stays_when_there_are_more():
    few, many = (load("mixed", n=n, seed=9).programs for n in (10, 30))
    assert program_hash(dry_runs(few)) == program_hash(dry_runs(many[:10]))

"""What holds for every preset, whatever the seed and the size."""

from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.dag import program_hash
from workloads.dryrun import dry_runs
from workloads.load import load, workload, workload_names

PRESETS = [f"{name}:{preset}" for name in workload_names() for preset in workload(name).presets()]
presets = st.sampled_from(PRESETS)
seeds = st.integers(0, 10_000)


@settings(max_examples=40, deadline=None)
@given(presets, seeds, st.integers(1, 4), st.integers(0, 4))
def test_a_front_of_more_programs_is_the_same_programs(preset, seed, n, more):
    few, many = load(preset, n=n, seed=seed), load(preset, n=n + more, seed=seed)
    assert program_hash(dry_runs(few.programs)) == program_hash(dry_runs(many.programs[:n]))
    assert [spec.key for spec in few.programs] == [spec.key for spec in many.programs[:n]]


@settings(max_examples=40, deadline=None)
@given(presets, seeds, st.sampled_from(["1", "1/2", "1/16", "1/1000", "3"]))
def test_every_scale_works_and_changes_lengths_only(preset, seed, scale):
    base = dry_runs(load(preset, n=3, seed=seed).programs)
    result = load(preset, n=3, seed=seed, parameters={"token_scale": scale}, max_model_len=10**7)
    dags = dry_runs(result.programs)
    ended = result.parameters.get("max_context") is not None
    for a, b in zip(base, dags, strict=True):
        # A conversation may end at the context at one scale and go on at another.
        assert ended or [(c.thread, c.index, c.parents, c.tools) for c in a.calls] == [
            (c.thread, c.index, c.parents, c.tools) for c in b.calls
        ]
        for call in b.calls:
            assert call.output_tokens >= 1
            assert call.prompt_tokens == sum(length for _, length in call.prompt) >= 1
        assert result.longest is None or b.longest <= result.longest


@settings(max_examples=40, deadline=None)
@given(presets, seeds)
def test_no_call_is_over_the_context_under_the_default_rules(preset, seed):
    result = load(preset, n=5, seed=seed)
    assert not result.skipped
    assert all(dag.longest <= 131_072 for dag in dry_runs(result.programs))


def shared_only_in_front(preset, seed):
    """What two programs share (a system prompt, a group's task) is where a prompt begins, and no reply is."""
    dags = list(dry_runs(load(preset, n=4, seed=seed).programs))
    of = [{s for c in dag.calls for s, _ in (*c.prompt, (c.output_id, 1))} for dag in dags]
    for mine, dag in zip(of, dags, strict=True):
        others = set().union(*(ids for ids in of if ids is not mine)) & mine
        for call in dag.calls:
            assert call.output_id not in others
            common = [segment in others for segment, _ in call.prompt]
            assert common == sorted(common, reverse=True), "a segment of others behind one of its own"
            assert sum(common) <= (2 if preset.startswith("rl:") else 1), (
                "more than a system prompt (and task)"
            )


@settings(max_examples=20, deadline=None)
@given(presets, seeds)
def test_programs_share_segments_only_where_prompts_begin(preset, seed):
    shared_only_in_front(preset, seed)


def test_a_group_of_rollouts_shares_its_task():
    """Found late: four samples of one task have more than a system prompt in common."""
    shared_only_in_front("rl:grpo", 0)

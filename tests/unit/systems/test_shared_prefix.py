"""What contexts begin with alike is counted once."""

from hypothesis import given
from hypothesis import strategies as st

from systems.shared_prefix import SharedPrefix


def test_a_prefix_is_counted_once_and_forgotten_with_the_last():
    shared = SharedPrefix()
    who = {i: ((1, 500), (2, 100), (10 + i, 50)) for i in range(3)}
    other = ((1, 500), (3, 100))
    assert shared.lead(who[0], 0) == 0
    assert [shared.join(name, prompt, 0) for name, prompt in who.items()] == [set(), {0}, set()]
    assert [shared.left_out(name) for name in who] == [600, 600, 600]
    assert shared.once == {0: 600}
    assert (shared.lead(other, 0), shared.lead(other, 1)) == (500, 0)
    assert shared.join(9, other, 0) == set()
    assert (shared.left_out(9), shared.once) == (500, {0: 600})
    assert [shared.part(name) for name in (0, 1)] == [set(), {2}], "the last with the second segment has it"
    assert (shared.left_out(2), shared.once) == (500, {0: 500})
    assert shared.join(2, other, 1) == {9}, "on another engine now"
    assert (shared.left_out(2), shared.left_out(9), shared.once) == (0, 0, {})
    for name in (2, 9, 9):
        shared.part(name)
    assert vars(SharedPrefix()) == vars(shared), "nothing is left"


def test_a_prefix_ends_where_prompts_differ():
    shared = SharedPrefix()
    shared.join(0, ((1, 500), (2, 100), (3, 100)), 0)
    assert shared.lead(((1, 500), (4, 100), (3, 100)), 0) == 500
    assert shared.lead(((1, 400), (2, 100)), 0) == 0, "whole segments"


segments = st.lists(st.tuples(st.integers(1, 3), st.sampled_from([10, 20])), max_size=4)


@given(st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), segments), st.integers(0, 1)), max_size=25))
def test_it_is_what_a_count_of_all_prompts_says(moves):
    """Against a count from nothing: the sum of what is left to each and of what is shared is the union."""
    shared, there = SharedPrefix(), {}
    for name, prompt, engine in moves:
        before = {one: shared.left_out(one) for one in there if one != name}
        if prompt is None:
            changed = shared.part(name)
            there.pop(name, None)
        else:
            changed = shared.join(name, prompt, engine)
            there[name] = (engine, prompt)
        prefixes = {one: {(e, tuple(p[: i + 1])) for i in range(len(p))} for one, (e, p) in there.items()}
        everywhere = [prefix for found in prefixes.values() for prefix in found]
        for one, found in prefixes.items():
            assert shared.left_out(one) == sum(x[1][-1][1] for x in found if everywhere.count(x) > 1)
        twice = {prefix for prefix in everywhere if everywhere.count(prefix) > 1}
        assert sum(shared.once.values()) == sum(x[1][-1][1] for x in twice)
        assert changed >= {
            one for one, left in before.items() if one in there and shared.left_out(one) != left
        }

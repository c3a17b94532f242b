"""What contexts begin with alike is counted once."""

from systems.shared_prefix import SharedPrefix


def test_a_prefix_is_counted_once_and_forgotten_with_the_last():
    shared = SharedPrefix()
    who = [(i, ((1, 500), (2, 100), (10 + i, 50))) for i in range(3)]
    other = ((1, 500), (3, 100))
    assert shared.lead(who[0][1], 0) == 0
    assert [shared.join(*one, 0) for one in who] == [0, 600, 600]
    assert shared.once == {0: 600}
    assert (shared.lead(other, 0), shared.lead(other, 1)) == (500, 0)
    assert shared.join(*who[0], 0) == 600, "asked again: the first of them leaves it out, too"
    assert shared.join(9, other, 0) == 500
    assert shared.once == {0: 600}
    for name in (0, 1, 2, 9, 9):
        shared.part(name)
    assert vars(SharedPrefix()) == vars(shared), "nothing is left"


def test_a_prefix_ends_where_prompts_differ():
    shared = SharedPrefix()
    shared.join(0, ((1, 500), (2, 100), (3, 100)), 0)
    assert shared.lead(((1, 500), (4, 100), (3, 100)), 0) == 500
    assert shared.lead(((1, 400), (2, 100)), 0) == 0, "whole segments"

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.base import WorkloadError
from workloads.order import MOST, Happened, arrange, before, plan


def arranged(*items):
    return arrange([Happened(*item) for item in items])


def test_one_after_the_other():
    assert arranged((0, 1), (2, 3), (3, 5)) == ([0, 1, 2], True)


def test_what_overlaps_is_waited_for():
    assert arranged((0, 1), (2, 4), (2, 5), (3, 5), (6, 7)) == ([0, [[1], [2], [3]], 4], True)


def test_two_agents_in_lockstep_do_not_wait_for_each_other():
    # By time alone the third would wait for both of the first round.
    assert arranged((0, 2), (0, 2), (3, 5), (3, 5), (6, 7)) == ([[[0], [1]], [[2], [3]], 4], True)
    assert arranged((0, 2), (0, 2), (3, 5, (0,)), (3, 5, (1,)), (6, 7)) == ([[[0, 2], [1, 3]], 4], True)


def test_work_inside_a_pause_of_a_line_is_waited_for_by_the_line():
    items = [(0, 1), (2, 4), (2, 5), (6, 7, (0,)), (8, 9), (8, 10), (11, 12, (3,))]
    assert arranged(*items) == ([0, [[1], [2]], 3, [[4], [5]], 6], True)


def test_a_sample_nobody_goes_on_from_is_a_branch_of_its_own():
    assert arranged((0, 1), (2, 3, (0,)), (2, 4, (0,)), (3, 5, (1,))) == ([0, [[1, 3], [2]]], True)


def test_what_no_joins_can_say_becomes_a_tree():
    # 2 follows 0 only, 3 follows both: the shape of an N.
    assert arranged((0, 2), (0, 4), (3, 6), (5, 7)) == ([[[0, 2], [1, 3]]], False)


def test_thousands_in_a_row_are_cut_where_nothing_goes_on():
    items = [Happened(10 * i, 10 * i + 5) for i in range(MOST + 500)]
    assert arrange(items) == (list(range(MOST + 500)), True)
    with pytest.raises(WorkloadError, match="more than 1500 calls and tools"):
        arrange([Happened(i, i + 10 * MOST) for i in range(MOST + 1)])


INTERVALS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)), min_size=1, max_size=9)


def orders(some):
    """(items, pairs in which the first is waited for by the second) of a plan."""
    seen, pairs = set(), set()
    for step in some:
        inner = ({step}, set()) if isinstance(step, int) else together([orders(branch) for branch in step])
        pairs |= inner[1] | {(a, b) for a in seen for b in inner[0]}
        seen |= inner[0]
    return seen, pairs


def together(branches):
    return set().union(*(b[0] for b in branches)), set().union(*(b[1] for b in branches))


@given(INTERVALS, st.data())
def test_a_plan_holds_everything_once_and_no_order_that_was_not(intervals, data):
    items = []
    for start, length in sorted(intervals):
        ended = [i for i, item in enumerate(items) if item.end <= start]
        follows = data.draw(st.sampled_from([None, *ended])) if ended else None
        items.append(Happened(start, start + length, () if follows is None else (follows,)))
    earlier = before(items)
    result, exact = plan(earlier)
    found, pairs = orders(result)
    wanted = {(i, j) for j, mask in enumerate(earlier) for i in range(j) if mask >> i & 1}
    assert found == set(range(len(items)))
    assert pairs == wanted if exact else pairs < wanted
    assert all(items[i].end <= items[j].start for i, j in wanted)
    assert all((i, j) in wanted for j, item in enumerate(items) for i in item.followed)

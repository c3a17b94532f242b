import pytest

from systems.process_table import ProcessTable
from vocabulary import Snapshot, Usage

NONE = Snapshot()


def test_unknown_program_is_zero_and_makes_no_row():
    table = ProcessTable()
    assert table.snapshot(7) == Snapshot(0.0, 0.0, 0.0)
    assert len(table) == 0
    assert 7 not in table


def test_unknown_rule_is_refused():
    with pytest.raises(ValueError, match=r"'mean'.*sum, max"):
        ProcessTable("mean")


@pytest.mark.parametrize(("rule", "service"), [("sum", 50.0), ("max", 30.0)])
def test_fork_of_two(rule, service):
    table = ProcessTable(rule)
    table.charge(1, 0.0, Usage(10.0, 1.0, 0.5))
    for served in (20.0, 20.0):
        table.charge(1, 10.0, Usage(served, 2.0, 3.0))
    assert table.snapshot(1) == Snapshot(service, 6.5, 5.0)


def test_max_ignores_a_shorter_path():
    table = ProcessTable("max")
    table.charge(1, 0.0, Usage(100.0, 0.0, 0.0))
    table.charge(1, 20.0, Usage(30.0, 0.0, 0.0))
    assert table.snapshot(1).service == 100.0


def test_active_calls_and_times():
    table = ProcessTable()
    table.start(1, 1.0)
    row = table.arrive(1, NONE, 2.0)
    table.arrive(1, NONE, 3.0)
    assert (row.active, row.started, row.last_arrival, row.last_completion) == (2, 1.0, 3.0, 1.0)
    table.charge(1, 0.0, Usage(1.0, 1.0, 1.0), 5.0)
    assert (row.active, row.last_completion) == (1, 5.0)


def test_the_better_informed_side_wins():
    table = ProcessTable()
    table.charge(1, 0.0, Usage(10.0, 1.0, 9.0))
    table.arrive(1, Snapshot(40.0, 2.0, 3.0), 0.0)
    assert table.snapshot(1) == Snapshot(40.0, 9.0, 3.0)
    table.arrive(1, NONE, 0.0)
    assert table.snapshot(1) == Snapshot(40.0, 9.0, 3.0)


def test_end_forgets_and_twice_is_fine():
    table = ProcessTable()
    table.start(1, 0.0)
    table.end(1)
    table.end(1)
    assert len(table) == 0


def test_row_of_an_ended_program_goes_with_its_last_call():
    table = ProcessTable()
    table.arrive(1, NONE, 0.0)
    table.arrive(1, NONE, 0.0)
    table.end(1)
    table.charge(1, 0.0, Usage(1.0, 1.0, 0.0))
    assert 1 in table
    table.charge(1, 0.0, Usage(1.0, 1.0, 0.0))
    assert 1 not in table


def test_forgive_keeps_service():
    table = ProcessTable()
    table.charge(1, 0.0, Usage(5.0, 1.0, 2.0))
    table.forgive(1)
    table.forgive(2)
    assert table.snapshot(1) == Snapshot(5.0, 0.0, 0.0)
    assert 2 not in table


def test_watchers_hear_of_every_change():
    class Count:
        heard = 0

        def row_changed(self):
            self.heard += 1

    table, count = ProcessTable(), Count()
    table.start(1, 0.0).watchers.append(count)
    table.arrive(1, NONE, 0.0)
    assert count.heard == 0
    table.charge(1, 0.0, Usage(1.0, 1.0, 0.0))
    table.arrive(1, Snapshot(9.0, 0.0, 0.0), 0.0)
    table.forgive(1)
    assert count.heard == 3


def test_paths_are_kept_per_call_and_go_with_the_row():
    table = ProcessTable("max")
    row = table.arrive(1, NONE, 0.0)
    assert row.start_of(()) == 0.0
    table.extend(1, ("", 0), 4.0)
    table.charge(1, 0.0, Usage(4.0, 1.0, 0.0))
    table.extend(1, ("0", 0), 9.0)
    assert row.start_of((("", 0),)) == 4.0
    assert row.start_of((("", 0), ("0", 0))) == 9.0
    assert row.start_of((("elsewhere", 0),)) == row.service == 4.0
    table.extend(2, ("", 0), 4.0)
    assert 2 not in table
    table.end(1)
    assert 1 not in table

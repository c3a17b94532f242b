"""A client that is served first on its core, and what it starts is not."""

from __future__ import annotations

import os
import threading

import pytest

from bench.affinity import ahead, on_cores

ORDINARY = (os.SCHED_OTHER, os.SCHED_BATCH)


def policy() -> int:
    return os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK


def permitted() -> bool:
    with ahead() as first:
        return first


needs_leave = pytest.mark.skipif(not permitted(), reason="this user may not raise a thread's priority")


@needs_leave
def test_a_thread_is_ahead_for_a_while_and_ordinary_afterwards():
    before = policy()
    with ahead() as first:
        assert first
        assert policy() == os.SCHED_RR
    assert policy() == before


@needs_leave
def test_it_is_ordinary_again_after_an_error():
    before = policy()
    with pytest.raises(KeyError), ahead():
        raise KeyError
    assert policy() == before


@needs_leave
def test_threads_and_processes_that_it_starts_are_ordinary():
    found: list[int] = []
    with ahead():
        thread = threading.Thread(target=lambda: found.append(policy()))
        thread.start()
        thread.join()
        assert in_a_child(lambda: policy() in ORDINARY) == 0
    assert found[0] in ORDINARY


@needs_leave
def test_who_is_real_time_already_stays_it_afterwards():
    with ahead():
        with ahead() as again:
            assert again
        assert policy() == os.SCHED_RR


def in_a_child(check) -> int:
    """The exit code of ``check`` in a process of its own: 0 if it says so, 1 if not, 2 if it fails."""
    child = os.fork()
    if not child:
        try:
            os._exit(0 if check() else 1)
        except BaseException:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@needs_leave
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_who_may_not_take_reset_on_fork_back_is_ordinary_afterwards_all_the_same():
    def check():
        with ahead() as first:
            os.setuid(65534)  # as one that an rtprio limit let in
        return first and policy() in ORDINARY

    assert in_a_child(check) == 0


def test_who_is_nice_stays_nice():
    def check():
        os.nice(5)
        with ahead() as first:
            return not first and policy() in ORDINARY

    assert in_a_child(check) == 0


@pytest.mark.parametrize("call", ["sched_getscheduler", "sched_setscheduler"])
def test_where_the_system_refuses_it_says_so(monkeypatch, call):
    def refused(*_: object) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, call, refused)
    with ahead() as first:
        assert not first


def test_a_system_without_priorities_has_none_to_raise(monkeypatch):
    monkeypatch.delattr(os, "sched_setscheduler")
    with ahead() as first:
        assert not first


def test_cores_are_given_back_after_an_error():
    before = os.sched_getaffinity(0)
    with on_cores(frozenset([min(before)])):
        assert os.sched_getaffinity(0) == {min(before)}
    with pytest.raises(KeyError), on_cores(frozenset([min(before)])):
        raise KeyError
    assert os.sched_getaffinity(0) == before

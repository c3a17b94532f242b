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
        child = os.fork()
        if not child:
            os._exit(0 if policy() in ORDINARY else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert found[0] in ORDINARY


@needs_leave
def test_within_another_nothing_changes():
    with ahead():
        with ahead() as again:
            assert not again
        assert policy() == os.SCHED_RR


def test_where_it_is_not_permitted_it_says_so(monkeypatch):
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refused)
    before = policy()
    with ahead() as first:
        assert not first
        assert policy() == before


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

"""The gateway's event log: whole lines, nothing of a prompt, and never in the way."""

import dataclasses
import json
import math
import os
import threading

import pytest

from systems.gateway import appending, events
from systems.gateway.events import FIELDS, FORMAT, EventLog
from systems.gateway.events_reader import EngineEvent, EventsError, Program, read_events
from systems.gateway.observe import Observer
from tests.unit.systems.gateway.passages import SECRET, finished, passage, through


def log_at(path, **changes):
    return EventLog(path, **({"system": "autellix", "unit": "step", "wall": 1e9, "flush_s": 0} | changes))


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_comes_back_as_it_was_told(tmp_path):
    path = tmp_path / "e.jsonl"
    one, two, open_ = passage(0, 0), passage(1, 1, t_arrive=2.0), passage(2, 0, t_arrive=3.0)
    with log_at(path) as log:
        assert isinstance(log, EventLog)
        log.started(0, "p0", 0.5)
        log.engine(1, "up", "it answers", 0.25)
        through(log, one)
        log.started(1, "p1", 1.5)
        log.arrived(two)
        log.held(two)
        two.outcome, two.status, two.t_end = "timeout", 503, 9.0
        log.left(two)
        log.arrived(open_)
        open_.engine, open_.t_send, open_.t_first = 1, 3.5, 3.75
        log.sent(open_)
        log.first(open_)
        log.ended(0, "p0", "ended", 10.0)
    (run,) = read_events(path)
    assert (run.system, run.unit, run.wall) == ("autellix", "step", 1e9)
    assert [dataclasses.astuple(call) for call in run.calls[:1]] == [dataclasses.astuple(one)]
    assert (run.calls[1].seq, run.calls[1].outcome, run.calls[1].status) == (1, "timeout", 503)
    assert math.isnan(run.calls[1].t_send)
    assert run.held == {1}
    assert run.open == {2: 1}
    assert run.begun == {2}
    assert run.programs[0] == Program(0, "p0", 0.5, 10.0, "ended")
    assert run.programs[1][:3] == (1, "p1", 1.5)
    assert run.engines == [EngineEvent(0.25, 1, "up", "it answers")]
    assert (run.dropped, run.torn) == (0, False)


def test_it_is_an_observer_and_its_first_line_says_what_it_is(tmp_path):
    log: Observer = log_at(tmp_path / "e", monotonic=7.5)
    log.close()
    head = {"event": "log", "format": FORMAT, "system": "autellix", "unit": "step", "wall": 1e9}
    assert lines(tmp_path / "e") == [{**head, "origin_monotonic": 7.5}]


def test_a_line_of_a_call_has_every_field_of_its_passage(tmp_path):
    with log_at(tmp_path / "e") as log:
        through(log, passage())
    assert [line["event"] for line in lines(tmp_path / "e")] == ["log", "arrived", "sent", "first", "left"]
    assert set(lines(tmp_path / "e")[-1]) == {"event", "t", *FIELDS}


def test_no_text_of_a_prompt_gets_in(tmp_path):
    """An engine's refusal may quote what it refused: its words stay out."""
    with log_at(tmp_path / "e") as log:
        through(log, passage(), outcome="error", status=400, reason=f"cannot parse {SECRET!r}")
        log.left(finished(passage(1), outcome="lost", reason=f"a bad chunk size: {SECRET!r}"))
        log.left(finished(passage(2), outcome="refused", status=422, reason=f"no object, got [{SECRET!r}]"))
        log.left(finished(passage(3), outcome="timeout", status=503, reason="held by the gate for 600 s"))
    text = (tmp_path / "e").read_text()
    assert SECRET not in text
    assert "held by the gate" in text
    (run,) = read_events(tmp_path / "e")
    assert [call.status for call in run.calls] == [400, 200, 422, 503]


def test_no_field_of_a_passage_is_made_for_text():
    """Whoever adds one has to say here that it is no prompt."""
    texts = {field.name for field in dataclasses.fields(passage()) if field.type == "str"}
    assert texts == {"name", "thread", "endpoint", "outcome", "reason", "source"}


def test_names_that_clients_chose_are_cut_and_may_be_any_bytes(tmp_path):
    with log_at(tmp_path / "e") as log:
        log.started(0, "x" * 10_000, 0.0)
        log.started(1, "caf\udce9 \n\"'", 0.0)
    (run,) = read_events(tmp_path / "e")
    assert run.programs[0].name == "x" * events.NAME_CHARS
    assert run.programs[1].name == "caf? \n\"'"


def test_another_start_appends_a_run_of_its_own(tmp_path):
    for _ in range(2):
        with log_at(tmp_path / "e") as log:
            through(log, passage())
    assert [len(run.calls) for run in read_events(tmp_path / "e")] == [1, 1]


def test_a_crash_tears_one_line_only(tmp_path):
    path = tmp_path / "e"
    with log_at(path) as log:
        through(log, passage())
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    (run,) = read_events(path)
    assert run.torn
    assert run.open == {0: 0}
    with log_at(path) as log:
        through(log, passage())
    torn, again = read_events(path)
    assert (torn.torn, again.torn) == (True, False)
    assert (len(torn.calls), len(again.calls)) == (0, 1)


def test_a_full_disk_is_said_once_counted_and_over_when_there_is_room(tmp_path, capsys, monkeypatch):
    path = tmp_path / "e"
    with log_at(path) as log:
        log.flush()
        write = os.write

        def full(file, data):
            written = write(file, data[:10])  # part of it still goes in
            if written:
                raise OSError(28, "No space left on device")

        monkeypatch.setattr(appending.os, "write", full)
        for second in range(3):
            log.started(second, "p", float(second))
            log.flush()
        assert log.dropped == 3
        monkeypatch.setattr(appending.os, "write", write)
        log.started(9, "p", 9.0)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "No space left" in said
    assert str(path) in said
    (run,) = read_events(path)
    assert (run.dropped, set(run.programs)) == (3, {9})


def test_the_first_line_comes_first_however_late(tmp_path, monkeypatch):
    write, full = os.write, iter((True, False))

    def once_full(file, data):
        if next(full):
            raise OSError(28, "No space left on device")
        return write(file, data)

    monkeypatch.setattr(appending.os, "write", once_full)
    log = log_at(tmp_path / "e")
    log.started(0, "p", 0.0)
    log.flush()
    log.started(1, "p", 1.0)
    log.close()
    (run,) = read_events(tmp_path / "e")
    assert (run.dropped, set(run.programs)) == (1, {1})


def test_a_device_that_is_always_full_raises_nothing(capsys):
    with log_at("/dev/full") as log:
        through(log, passage())
    assert log.dropped == 4
    assert "No space left" in capsys.readouterr().err


def test_what_the_disk_does_not_take_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(appending, "MOST_LINES", 3)
    with log_at(tmp_path / "e") as log:
        for number in range(5):
            log.started(number, "p", 0.0)
    (run,) = read_events(tmp_path / "e")
    assert len(run.programs) == 3
    assert (log.dropped, run.dropped) == (2, 2)


def test_a_path_that_cannot_be_opened_is_said_at_once(tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        log_at(tmp_path / "nowhere" / "e")


def test_the_thread_writes_by_itself_and_is_gone_after_close(tmp_path):
    path, written = tmp_path / "e", threading.Event()
    log = log_at(path, flush_s=0.01)
    flush = log.flush
    log.flush = lambda: (flush(), written.set())
    assert written.wait(5)
    assert path.stat().st_size
    log.close()
    log.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "event log"]
    log.started(0, "late", 0.0)
    assert log.dropped == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ":1: an event log begins"),
        ('{"event": "left"}\n', ":1: an event log begins"),
        ('{"event": "log", "format": "gateway-events/9"}\n', ":1: field format"),
        ('{"event": "log", "format": "gateway-events/1"}\n', ":1: first line: system, unit and wall"),
        ("HEAD[1]\n", ":2: field event"),
        ('HEAD{"event": "sent", "seq": 1}\n', ":2: field engine is missing in sent"),
        ('HEAD{"event": "left", "seq": 1}\n', ":2: field seq|:2: field program is missing in left"),
        ('HEAD{"event": "sent"\n{"event": "held", "seq": 1}\n', ":2: not a JSON object"),
        ('HEAD{"event": "ended", "program": 1, "name": "", "why": "", "t": null}\n', ":2: ended: "),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_line(tmp_path, text, words):
    head = '{"event": "log", "format": "gateway-events/1", "system": "s", "unit": "step", "wall": 0}\n'
    (tmp_path / "e").write_text(text.replace("HEAD", head))
    with pytest.raises(EventsError, match=words) as caught:
        read_events(tmp_path / "e")
    assert str(tmp_path / "e") in str(caught.value)


def test_an_outcome_that_is_none_is_refused(tmp_path):
    with log_at(tmp_path / "e") as log:
        through(log, passage(), outcome="gone")
    with pytest.raises(EventsError, match=":5: field outcome: one of finished"):
        read_events(tmp_path / "e")

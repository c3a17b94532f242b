"""Events, cut as they come."""

import pytest

from workloads.agents.relay.bodies import BadBody, arguments, parsed, written
from workloads.agents.relay.sse import DONE, Splitter, event


def test_events_are_whole_whatever_the_line_ends():
    splitter = Splitter()
    assert splitter.feed(b'data: {"a":') == []
    first, second = splitter.feed(b'1}\n\nevent: x\r\ndata:{"b": 2}\r\n\r\ndata: [DO')
    assert (first.raw, first.data) == (b'data: {"a":1}\n\n', {"a": 1})
    assert (second.raw, second.data) == (b'event: x\r\ndata:{"b": 2}\r\n\r\n', {"b": 2})
    assert splitter.left == b"data: [DO"
    (done,) = splitter.feed(b"NE]\n\n")
    assert (done.text, done.data) == (DONE, None)


def test_a_line_end_in_two_pieces_ends_one_event():
    splitter = Splitter()
    assert splitter.feed(b'data: {"a": 1}\r\n') == []
    assert splitter.feed(b"\r") == []
    (found,) = splitter.feed(b"\ndata: 2")
    assert found.data == {"a": 1}


def test_data_of_several_lines_and_what_is_no_object():
    (found,) = Splitter().feed(b'data: {"a":\ndata: 1}\n\n')
    assert found.data == {"a": 1}
    assert [e.data for e in Splitter().feed(b"data: 3\n\n: hm\n\ndata: {x\n\n")] == [None] * 3


def test_events_are_written():
    assert event({"a": "é"}, "x") == 'event: x\ndata: {"a":"é"}\n\n'.encode()
    assert event({"a": 1}) == b'data: {"a":1}\n\n'


def test_what_orjson_refuses_is_read_and_written_all_the_same():
    for text in (b'{"a": "\\ud800"}', b'{"a": 123456789012345678901234567890}'):
        assert parsed(written(parsed(text))) == parsed(text)
    assert parsed(b'{"a": "\\ud800"}') == {"a": "\ud800"}
    assert arguments({"n": 1 << 70}) == f'{{"n": {1 << 70}}}'


@pytest.mark.parametrize("bad", [b"", b"{", b"[1]", b"3", b'{"a": ' * 100_000])
def test_what_is_no_object(bad):
    with pytest.raises(BadBody, match="body"):
        parsed(bad)

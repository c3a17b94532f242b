import socket

import pytest

from workloads.sandboxes import ports
from workloads.sandboxes.ports import free_ports, listening


def test_a_port_that_is_taken_is_not_given(monkeypatch):
    first = free_ports(1, ())[0]
    monkeypatch.setattr(ports, "RANGE", range(first, first + 1))
    with socket.socket() as server:
        server.bind(("127.0.0.1", first))
        server.listen()
        assert listening([first, 1]) == [first]
        with pytest.raises(OSError, match=f"only 0 of 1 TCP ports from {first} to {first} are free"):
            free_ports(1, ())
    assert listening([first]) == []
    assert free_ports(1, ()) == (first,)
    with pytest.raises(OSError, match="only 0 of 1"):
        free_ports(1, (first,))
    assert free_ports(0, ()) == ()


def test_somebody_who_listens_on_ipv6():
    with socket.socket(socket.AF_INET6) as server:
        server.bind(("::1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert listening([port]) == [port]

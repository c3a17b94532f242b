"""Whether servers can listen on the loopback."""

from __future__ import annotations

import socket

from bench.doctor.check import BROKEN, OK, Finding, Here, Simple


def _look(here: Here) -> Finding:
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), timeout=here.limit_s),
        ):
            return Finding(OK, "servers can listen on 127.0.0.1, on free ports")
    except OSError as error:
        return Finding(
            BROKEN, f"cannot listen on 127.0.0.1: {error}", "bring the loopback up: ip link set lo up"
        )


CHECK = Simple("ports", 14, _look)

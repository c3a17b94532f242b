"""The docker daemon, asked over its socket without the SDK: a hung one must not hang us."""

from __future__ import annotations

import http.client
import json
import os
import socket
from pathlib import Path
from typing import Any

from bench.doctor.check import BROKEN, MISSING, Finding, Here

SOCKET = "/var/run/docker.sock"


class _Unix(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, limit_s: float) -> None:
        super().__init__("localhost", timeout=limit_s)
        self._path = path

    def connect(self) -> None:
        """Connect, within the limit."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def where(here: Here) -> str:
    """The daemon's address: DOCKER_HOST, else the usual socket."""
    return here.environ.get("DOCKER_HOST") or f"unix://{SOCKET}"


def ask(here: Here, path: str) -> dict[str, Any] | Finding:
    """The answer to ``GET path``, or why there is none."""
    address = where(here)
    kind, _, place = address.partition("://")
    if kind == "unix":
        if not Path(place).exists():
            return Finding(
                MISSING, f"there is no {place}", "install docker and start it (systemctl start docker)"
            )
        connection: http.client.HTTPConnection = _Unix(place, here.limit_s)
    elif kind == "tcp":
        connection = http.client.HTTPConnection(place, timeout=here.limit_s)
    else:
        return Finding(BROKEN, f"DOCKER_HOST is {address}", "name a unix:// or tcp:// address in DOCKER_HOST")
    return _answer(connection, address, path, here.limit_s)


def _answer(
    connection: http.client.HTTPConnection, address: str, path: str, limit_s: float
) -> dict[str, Any] | Finding:
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        data = json.loads(answer.read())
    except TimeoutError:
        return Finding(BROKEN, f"{address} does not answer within {limit_s:g} s", "restart the docker daemon")
    except PermissionError:
        user = f"usermod -aG docker {os.environ.get('USER', 'USER')}, and log in again"
        return Finding(BROKEN, f"no permission for {address}", user)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return Finding(BROKEN, f"{address}: {error}", "start the docker daemon, or fix DOCKER_HOST")
    finally:
        connection.close()
    return data if isinstance(data, dict) else Finding(BROKEN, f"{address} answers nonsense")

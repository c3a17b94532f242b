"""TCP ports of this machine: which are free, which somebody listens on."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Collection, Iterable
from pathlib import Path

RANGE = range(20_000, 32_000)
"""Below those that Linux hands out by itself (net.ipv4.ip_local_port_range), so it takes none of ours."""
_LISTENS = "0A"


def free_ports(n: int, taken: Collection[int]) -> tuple[int, ...]:
    """``n`` ports that nobody has, none of ``taken``. Raises OSError if there are not so many."""
    found: list[int] = []
    for port in random.sample(RANGE, len(RANGE)):
        if len(found) == n:
            break
        if port not in taken and _is_free(port):
            found.append(port)
    if len(found) < n:
        raise OSError(f"only {len(found)} of {n} TCP ports from {RANGE.start} to {RANGE.stop - 1} are free")
    return tuple(sorted(found))


def listening(ports: Iterable[int]) -> list[int]:
    """Those of ``ports`` that somebody listens on."""
    open_ports = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS:
                    open_ports.add(int(fields[1].rpartition(":")[2], 16))
    return sorted(open_ports & set(ports))


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("", port))
        except OSError:
            return False
        return True

"""``python -m systems.gateway OPTIONS.json [--fd N] [--parent PID]``: a gateway as a process (process.py).

``--fd``: a bound socket that was handed down. ``--parent``: end when that process does.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import socket
import sys
from pathlib import Path

from systems.catalog import CatalogError
from systems.gateway.options import GatewayOptions
from systems.gateway.server import run

_PDEATHSIG = 1


def main() -> int:
    """0, or 2 if the options are no good."""
    parser = argparse.ArgumentParser(prog="python -m systems.gateway")
    parser.add_argument("options", type=Path)
    parser.add_argument("--fd", type=int)
    parser.add_argument("--parent", type=int)
    given = parser.parse_args()
    if given.parent is not None:
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != given.parent:
            return 0  # it was gone before we could ask for the signal
    listening = None if given.fd is None else socket.socket(fileno=given.fd)
    if listening is not None:
        listening.setblocking(False)
    try:
        options = GatewayOptions.parse(given.options.read_text(encoding="utf-8"))
        run(options, lambda url: print(f"gateway: {url}", flush=True), listening)
    except (CatalogError, ValueError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

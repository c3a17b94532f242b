"""Runs the real CLIs, offline, against a scripted engine, and writes what they sent, as shapes.

    BENCH_CLIENTS=FOLDER python benchmarks/clients.py [--only NAME] [--out tests/data/clients]

FOLDER has the ``node_modules`` of the CLIs (docs/clients.md). Each client runs each scenario once: a prompt
that takes a shell command, and one that takes a sub-agent. Exit code 0 if all that are installed came to
their end, 1 if one did not, 2 if none is installed. Takes up to a minute.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.client_parts.commands import CLIENTS, FOLDER, Client, program, run, version  # noqa: E402
from benchmarks.client_parts.engine import (  # noqa: E402
    ANSWER,
    Script,
    ScriptedEngine,
    one_tool,
    sub_agent,
)
from benchmarks.client_parts.scrub import Scrub  # noqa: E402

SCENARIOS: Mapping[str, Script] = {"tool": one_tool, "sub-agent": sub_agent}
OUT = ROOT / "tests" / "data" / "clients"


def record(client: Client, scenario: str, out: Path) -> bool:
    """Write one file; whether the client said the answer."""
    with ScriptedEngine(SCENARIOS[scenario]) as engine, tempfile.TemporaryDirectory() as folder:
        ended = run(client, engine.url, Path(folder))
        calls = Scrub().calls(engine.heard)
    found = {"client": client.name, "version": version(client), "scenario": scenario, "calls": calls}
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{client.name}-{scenario}.json").write_text(json.dumps(found, indent=1) + "\n")
    well = ended.code == 0 and ANSWER in ended.output
    print(
        f"{client.name} {found['version']}, {scenario}: {len(calls)} requests, {'ended' if well else ended}"
    )
    return well


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="clients whose name has this")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    installed = [one for one in CLIENTS if program(one) and options.only in one.name]
    if not installed:
        print(f"{FOLDER} names no folder with one of {', '.join(one.package for one in CLIENTS)}")
        return 2
    ended = [record(client, scenario, options.out) for client in installed for scenario in SCENARIOS]
    return 0 if all(ended) else 1


if __name__ == "__main__":
    sys.exit(main())

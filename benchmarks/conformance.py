"""The same requests, directly to a real vLLM and through our gateway: what comes back must be equal.

    python benchmarks/conformance.py [--only TEXT] [--url URL --calls FILE] [--out docs/conformance.md]

Each of the cases goes to the engine twice (first to warm its prefix cache, then as the yardstick), then
through two gateways, then to the engine once more: a case in which the engine differs from itself says
nothing, and fails. Exit code 0 if all that differs is explained and all that is explained differs, else 1.
Needs a vLLM environment (BENCH_VLLM_PYTHON); ``--url``: an engine that runs already, with KEY as its key.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.conformance_parts import page  # noqa: E402
from benchmarks.conformance_parts.cases import KEY, MODEL, Case, cases  # noqa: E402
from benchmarks.conformance_parts.explained import EXPLAINED  # noqa: E402
from benchmarks.conformance_parts.shape import differences, shape  # noqa: E402
from benchmarks.conformance_parts.wire import Answer, send  # noqa: E402
from systems.engines.vllm_server import ServerOptions, VllmServer  # noqa: E402
from systems.gateway.options import GatewayOptions, Target  # noqa: E402
from systems.gateway.process import GatewayProcess  # noqa: E402
from systems.vllm_host.tiny import write  # noqa: E402

OPEN, LOCKED = "keys pass", "own keys"
"""The two gateways: clients' keys go on to the engine, calls have ids, the call log is followed; and keys of
its own with one for the engine, no ids, streams are asked for a usage that clients do not see."""
IDS = {OPEN: {"X-Session-ID": "conformance", "X-Thread-ID": "main"}, LOCKED: {}}
GONE_S = 10.0
"""A call whose client has left is out of the engine by then."""
FLAGS = ("--api-key", KEY, "--enable-auto-tool-choice", "--tool-call-parser", "hermes")


@dataclass(frozen=True)
class Row:
    """A case and its ``differences`` by gateway; ``unsteady``: those of the engine from itself."""

    case: Case
    status: int
    differences: Mapping[str, Sequence[str]]
    unsteady: Sequence[str]

    def line(self) -> page.Line:
        """For the page."""
        found = {
            name: [why(self.case, name, one) for one in lines] for name, lines in self.differences.items()
        }
        return page.Line(self.case.name, self.status, found)

    def unexplained(self) -> list[str]:
        """What is wrong with it."""
        found = [f"{self.case.name}: the engine differs from itself: {line}" for line in self.unsteady]
        for name, lines in self.differences.items():
            found += [
                f"{self.case.name} ({name}): {line}" for line in lines if not why(self.case, name, line)
            ]
        return found


def why(case: Case, gateway: str, line: str) -> int:
    """Number of the explanation of a difference, from 1; 0: there is none."""
    covering = (n for n, one in enumerate(EXPLAINED, 1) if one.covers(case.name, gateway, line))
    return next(covering, 0)


def compare(case: Case, engine: str, gateways: Mapping[str, str]) -> Row:
    """Ask the engine and all gateways."""
    client_id, sent = case.headers.get("X-Request-Id", ""), (case.raw or b"").decode()

    def ask(url: str, more: dict[str, str]) -> dict[str, Any]:
        answer = send(url, case, more)
        return _gone(engine, answer) if case.cut_after else shape(answer, client_id, sent)

    ask(engine, {})
    direct = ask(engine, {})
    through = {name: ask(url, IDS[name]) for name, url in gateways.items()}
    again = ask(engine, {})
    found = {name: differences(direct, one) for name, one in through.items()}
    return Row(case, direct["status"], found, differences(direct, again))


def _gone(engine: str, answer: Answer) -> dict[str, Any]:
    """Whether the engine still works for a client that left."""
    until = time.monotonic() + GONE_S
    while running(engine) and time.monotonic() < until:
        time.sleep(0.02)
    return {"status": answer.status, "engine still busy": running(engine) > 0, "streamed": answer.streamed}


def running(engine: str) -> float:
    """Requests in the engine, by its metrics."""
    with urllib.request.urlopen(f"{engine}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    marks = ("vllm:num_requests_running{", "vllm:num_requests_waiting{")
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(marks))


def version_of(engine: str) -> str:
    """Of the engine, as it says."""
    with urllib.request.urlopen(f"{engine}/version", timeout=10) as answer:
        return str(json.load(answer)["version"])


def stale(rows: Sequence[Row]) -> list[str]:
    """Explanations of what does not differ any more."""
    used = {
        why(row.case, name, line) for row in rows for name, lines in row.differences.items() for line in lines
    }
    return [
        f"explained, but equal: {one.cases} {one.gateway} {one.where}"
        for n, one in enumerate(EXPLAINED, 1)
        if n not in used
    ]


@contextmanager
def engines(folder: Path) -> Iterator[tuple[str, Path]]:
    """A tiny vLLM that wants KEY: its URL, and the call log of its scheduler."""
    options = ServerOptions(
        write(folder / "model"),
        name=MODEL,
        scheduler="atlas",
        max_num_seqs=4,
        max_model_len=2048,
        flags=FLAGS,
    )
    with VllmServer(options, folder) as server:
        yield server.url, server.calls


@contextmanager
def gateways(engine: str, calls: Path | None, folder: Path) -> Iterator[dict[str, str]]:
    """Their URLs, once they have seen the engine."""
    options = {
        OPEN: GatewayOptions((Target(engine, str(calls) if calls else None),), system="atlas"),
        LOCKED: GatewayOptions((Target(engine, key=KEY),), system="vllm-opt", api_keys=(KEY,)),
    }
    with ExitStack() as stack:
        urls = {
            name: stack.enter_context(GatewayProcess(one, folder / name.replace(" ", "-"))).url
            for name, one in options.items()
        }
        for url in urls.values():
            _until_well(url)
        yield urls


def _until_well(url: str) -> None:
    until = time.monotonic() + 20.0
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
                if json.load(answer)["status"] == "ok":
                    return
        except OSError:
            pass
        time.sleep(0.02)
    raise SystemExit(f"{url}: it sees no engine")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="cases whose name has this")
    parser.add_argument("--url", help="an engine that runs")
    parser.add_argument("--calls", type=Path, help="its call log")
    parser.add_argument("--out", type=Path, help="write the page")
    options = parser.parse_args(arguments)
    chosen = [case for case in cases() if options.only in case.name]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        own = None if options.url else stack.enter_context(engines(folder))
        engine, calls = own or (options.url, options.calls)
        urls = stack.enter_context(gateways(engine, calls, folder))
        version = version_of(engine)
        rows = [compare(case, engine, urls) for case in chosen]
    wrong = [line for row in rows for line in row.unexplained()]
    wrong += [] if options.only else stale(rows)
    lines = [row.line() for row in rows]
    print("\n".join([*wrong, page.summary(lines)]))
    if options.out:
        unsteady = sum(bool(row.unsteady) for row in rows)
        options.out.write_text(page.page(lines, version, unsteady))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

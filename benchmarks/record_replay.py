"""Recorded and replayed: do agents take as long in the simulator as they did, and hit as much?

    python benchmarks/record_replay.py [--n 24] [--concurrency 8] [--agent react] [--suite repair]

Real agents with real tools run against a small model on real vLLM (first come, first served), their replies
scripted (workloads/agents/relay), through our gateway with --observe --record. The recording is replayed with
bench run --engine sim, with the recorded arrivals and as a closed loop, under two sets of step times (bench
calibrate, nine tenths of a step log each): those fitted to the log of the very run that is replayed (in
sample), and those fitted to an earlier run through the same server with another seed, which knows nothing of
it. Of the suite repair both seeds have the same tasks, in another order, with replies of other lengths.
Measured and simulated are printed side by side: program latency (from the first call's arrival at the gateway
to the last reply's end), prefix hits, TTFT and TPOT (in the engine, by its scheduler's log), with intervals
by bootstrap over programs, paired where both ran the same ones at the same times.

A quarter of the programs, with a third seed, run first and count for nothing: kernels are compiled by then.
The model has the first core, everything else the others, tools too. About 3 minutes on two quiet cores.

Exit code 0: the mean program latency of all four replays is at most 10 % off, the hit rate at most .05;
1 otherwise; 2 for an agent or suite that is not there; 4 if a run went wrong (a program that did not finish,
tokens that differ from the script, a verb that failed); 6 without vLLM, or if it or the agents' host died.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench.affinity import on_cores  # noqa: E402
from bench.calibration.steps import fit_rows, lost_time, read_steps  # noqa: E402
from bench.errors import BenchError, Exit, MissingError  # noqa: E402
from bench.eventlog import read_tables  # noqa: E402
from bench.live.deployment import cores  # noqa: E402
from systems.engines.vllm_server import ServerOptions, VllmServer  # noqa: E402
from systems.engines.vllm_virtual import EngineUnavailable  # noqa: E402
from systems.gateway.options import GatewayOptions, Target  # noqa: E402
from systems.gateway.process import GatewayProcess  # noqa: E402
from systems.vllm_host.tiny import TinyLlama, write  # noqa: E402
from vocabulary import BLOCK  # noqa: E402
from workloads.agents import catalog  # noqa: E402
from workloads.agents.contract import Script  # noqa: E402
from workloads.agents.host_process import HostGone, HostProcess  # noqa: E402
from workloads.agents.job import Job  # noqa: E402
from workloads.agents.relay.contract import RelayCall  # noqa: E402
from workloads.agents.relay.server import Relay  # noqa: E402
from workloads.base import WorkloadError  # noqa: E402

MODEL = "tiny-llama"
CONTEXT = 32_768
LIMITS = {"kv_blocks": 4096, "max_num_seqs": 8, "max_num_batched_tokens": 512, "max_model_len": CONTEXT}
"""Of the engine; KV in 16-token blocks."""
ENGINE_BLOCK = 32
"""Tokens of a KV block of vLLM's CPU back end: its hits are whole ones."""
LATENCY_BAR, HIT_BAR = 0.10, 0.05
SAMPLES = 2000


@dataclass(frozen=True)
class Side:
    """One run. ``latency``: per program, in order of arrival (s); ``ttft``, ``tpot``: per call (s);
    ``cached``, ``prompt``: per program (tokens)."""

    name: str
    latency: np.ndarray[Any, Any]
    ttft: np.ndarray[Any, Any]
    tpot: np.ndarray[Any, Any]
    cached: np.ndarray[Any, Any]
    prompt: np.ndarray[Any, Any]

    @property
    def hit_rate(self) -> float:
        """Prompt tokens that were cached, over all."""
        return float(self.cached.sum() / self.prompt.sum())


# -- the run that is recorded ----------------------------------------------------------


RUNS = ("run", "earlier", "warm")
"""The one that is recorded, and those before it, each with a seed of its own."""


async def agents(url: str, given: argparse.Namespace, run: str, n: int, folder: Path) -> list[RelayCall]:
    """Run ``n`` programs against ``url``. Raises RuntimeError if one of them did not finish."""
    agent = catalog.agent(given.agent)
    suite = catalog.suite_of(agent, given.suite)
    seed = given.seed + RUNS.index(run)
    tasks = suite.tasks(n, seed, None)
    scripts: dict[int, Script] = {number: agent.script(task, seed) for number, task in enumerate(tasks)}
    calls: list[RelayCall] = []
    async with Relay(url, MODEL, run=run, scripts=scripts, told=calls.append, cache_salt=run) as relay:
        job = Job(
            given.agent, suite.name, n, seed, given.concurrency, relay.url, MODEL, str(folder / "sandboxes"),
            sandbox=given.sandbox, owner=run,
        )  # fmt: skip
        ended = []
        async with HostProcess(job, folder / "host.log") as host:
            async for event in host.events():
                ended += [event["outcome"]] if event["event"] == "ended" else []
    if ended != ["finished"] * n or any(call.outcome != "finished" for call in calls):
        raise RuntimeError(f"{run}: programs {ended}, calls {[c.reason for c in calls if c.reason][:3]}")
    return calls


class Recorded(NamedTuple):
    """``steps``: the run's step log, ``earlier``: that of the run before; ``rows``: of the run's calls, by
    the scheduler."""

    recording: Path
    steps: Path
    earlier: Path
    rows: list[dict[str, Any]]


def recorded(given: argparse.Namespace, folder: Path) -> Recorded:
    """Warm up, run once for step times, then the run itself. Raises EngineUnavailable, RuntimeError."""
    model = write(folder / "model", TinyLlama(context=CONTEXT, ends=False))
    limits: dict[str, Any] = {**LIMITS, "kv_blocks": LIMITS["kv_blocks"] * BLOCK // ENGINE_BLOCK}
    engines, others = cores()
    options = ServerOptions(
        model, scheduler="fcfs", block_size=ENGINE_BLOCK, model_cores=engines, other_cores=others, **limits
    )
    recording = folder / "recording"
    with VllmServer(options, folder / "engine") as server, on_cores(others):
        assert server.calls is not None  # it has our scheduler
        assert server.steps is not None
        asyncio.run(agents(server.url, given, "warm", max(2, given.n // 4), folder / "warm"))
        through_gateway(server, given, "earlier", None, folder)
        calls = through_gateway(server, given, "run", str(recording), folder)
        steps = server.steps.read_bytes()
        rows = [json.loads(line) for line in server.calls.read_text().splitlines()]
    scripted = sum(call.scripted_tokens for call in calls)
    decoded = sum(call.output_tokens for call in calls)
    print(f"{len(calls)} calls; {decoded} tokens decoded, {scripted} scripted")
    if scripted != decoded:
        raise RuntimeError("the engine did not decode what was scripted")
    logs = [folder / f"steps-{run}.jsonl" for run in RUNS[:2]]
    for run, log in zip(RUNS[:2], logs, strict=True):
        log.write_bytes(steps_of(run, steps))
    return Recorded(recording, logs[0], logs[1], [row for row in rows if "-run." in row["request_id"]])


def steps_of(run: str, log: bytes) -> bytes:
    """The step log of one run: its first line, and the steps that had calls of that run."""
    first, *steps = log.splitlines(keepends=True)
    return b"".join([first, *(line for line in steps if f"-{run}.".encode() in line)])


def through_gateway(
    server: VllmServer, given: argparse.Namespace, run: str, record: str | None, folder: Path
) -> list[RelayCall]:
    """The calls of all programs of one run. Raises as ``agents``."""
    target = Target(server.url, str(server.calls), max_num_batched_tokens=LIMITS["max_num_batched_tokens"])
    observing = GatewayOptions((target,), system="session-pinned", observe=True, record=record)
    with GatewayProcess(observing, folder / f"gateway-{run}") as gateway:
        return asyncio.run(agents(gateway.url, given, run, given.n, folder / run))


def measured(recording: Path, rows: Sequence[Mapping[str, Any]]) -> Side:
    """The run as its own recording has it, and its scheduler."""
    lines = [json.loads(line) for path in sorted(recording.iterdir()) for line in path.open()]
    calls = [line for line in lines if line["event"] == "call" and line["outcome"] == "finished"]
    programs: dict[int, list[dict[str, Any]]] = {}
    for call in sorted(calls, key=lambda one: one["t_arrive"]):
        programs.setdefault(call["program"], []).append(call)
    if len(rows) != len(calls):
        raise RuntimeError(f"{len(calls)} calls in the recording, {len(rows)} in the scheduler's log")
    each = list(programs.values())
    decoding = [row for row in rows if row["output_tokens"] > 1]
    return Side(
        "measured",
        np.array([max(c["t_end"] for c in one) - one[0]["t_arrive"] for one in each]),
        np.array([row["t_first_token"] - row["t_arrive"] for row in rows]),
        np.array([(r["t_end"] - r["t_first_token"]) / (r["output_tokens"] - 1) for r in decoding]),
        np.array([sum(c["cached_tokens"] for c in one) for one in each]),
        np.array([sum(c["prompt_tokens"] for c in one) for one in each]),
    )


# -- the replay ------------------------------------------------------------------------


def bench(*words: object) -> str:
    """The output of a verb. Raises RuntimeError with its last words."""
    command = [sys.executable, "-m", "bench.cli.main", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"bench {words[0]}: exit code {done.returncode}: {done.stderr.strip()[-600:]}")
    return done.stdout


def replayed(name: str, recording: Path, calibration: Path, out: Path, *more: object) -> Side:
    """A simulated run of the recording."""
    limits = [f"--knob=engine.{key}={value}" for key, value in LIMITS.items()]
    bench(
        "run", "--engine", "sim", "--system", "vllm-opt", "--workload", recording, "--model", MODEL,
        "--gpu", "cpu", "--knob", f"latency.calibration={calibration}", *limits, "--out", out, *more,
    )  # fmt: skip
    (cell,) = (path for path in out.iterdir() if (path / "manifest.json").is_file())
    tables = read_tables(cell)
    calls, programs = tables.calls, tables.programs.sort_values("t_arrive")
    cached = calls.cached_tokens - calls.cached_tokens % ENGINE_BLOCK
    hits = cached.groupby(calls.program).sum()[programs.program]
    decoding = calls[calls.output_tokens > 1]
    return Side(
        name,
        (programs.t_end - programs.t_arrive).to_numpy(),
        (calls.t_first_token - calls.t_arrive).to_numpy(),
        ((decoding.t_end - decoding.t_first_token) / (decoding.output_tokens - 1)).to_numpy(),
        hits.to_numpy(),
        programs.prompt_tokens.to_numpy(),
    )


# -- side by side ----------------------------------------------------------------------


def interval(values: np.ndarray[Any, Any], of: Any = np.mean) -> list[float]:
    """95 %, by bootstrap over the values."""
    draw = np.random.default_rng(7)
    found = [float(of(draw.choice(values, len(values)))) for _ in range(SAMPLES)]
    return [float(np.quantile(found, q)) for q in (0.025, 0.975)]


def ratio(ours: Side, theirs: Side, paired: bool) -> dict[str, Any]:
    """Simulated over measured mean latency, and the difference of hit rates, with intervals over programs."""
    draw, n = np.random.default_rng(7), len(theirs.latency)
    means, hits = [], []
    for _ in range(SAMPLES):
        theirs_at = draw.integers(n, size=n)
        ours_at = theirs_at if paired else draw.integers(n, size=n)
        means.append(ours.latency[ours_at].mean() / theirs.latency[theirs_at].mean())
        hits.append(
            ours.cached[ours_at].sum() / ours.prompt[ours_at].sum()
            - theirs.cached[theirs_at].sum() / theirs.prompt[theirs_at].sum()
        )
    return {
        "latency": float(ours.latency.mean() / theirs.latency.mean()),
        "latency_95": [float(np.quantile(means, q)) for q in (0.025, 0.975)],
        "hits": ours.hit_rate - theirs.hit_rate,
        "hits_95": [float(np.quantile(hits, q)) for q in (0.025, 0.975)],
        "paired": paired,
    }


def numbers(side: Side) -> dict[str, Any]:
    """What is printed of one run, seconds."""
    found: dict[str, Any] = {
        "programs": len(side.latency),
        "calls": len(side.ttft),
        "hit_rate": side.hit_rate,
    }
    quantities: dict[str, Any] = {"latency_mean": np.mean, "latency_p50": np.median, "latency_p95": _p95}
    for name, of in quantities.items():
        found[name], found[f"{name}_95"] = float(of(side.latency)), interval(side.latency, of)
    for name in ("ttft", "tpot"):
        values = getattr(side, name)
        found[name], found[f"{name}_95"] = float(values.mean()), interval(values)
    return found


def _p95(values: np.ndarray[Any, Any]) -> float:
    return float(np.quantile(values, 0.95))


def show(found: Mapping[str, Any]) -> None:
    """The table."""
    rows = {"latency_mean": "s", "latency_p50": "s", "latency_p95": "s", "ttft": "ms", "tpot": "ms"}
    sides = found["sides"]
    print(f"\n| | {' | '.join(sides)} |\n|---|{'---|' * len(sides)}")
    for name, unit in rows.items():
        by = 1e3 if unit == "ms" else 1.0
        cells = [_cell(side[name] * by, [end * by for end in side[f"{name}_95"]]) for side in sides.values()]
        print(f"| {name.replace('_', ' ')} ({unit}) | {' | '.join(cells)} |")
    print(f"| hit rate | {' | '.join(format(side['hit_rate'], '.3f') for side in sides.values())} |\n")
    for name, one in found["ratios"].items():
        print(f"{name} / measured: mean latency {_cell(one['latency'], one['latency_95'])}, hit rate "
              f"{one['hits']:+.3f} [{one['hits_95'][0]:+.3f}, {one['hits_95'][1]:+.3f}]"
              f"{', paired' if one['paired'] else ''}")  # fmt: skip
    for name, fit in found["fits"].items():
        errors = {one["statistic"]: one["error"] for one in fit["held_out"]}
        print(f"step times fitted to {name}, on its steps not fitted on: mean "
              f"{errors['error of means']:.1%} off, median {errors['median']:.1%}")  # fmt: skip
    print(f"{found['interrupted_share']:.1%} of the engine's time is in steps that were interrupted: no "
          f"step model has it, and a quiet machine next to none")  # fmt: skip
    print("\n".join(f"MISSED: {one}" for one in found["missed"]) or "bars met: 10 % and .05")


def _cell(value: float, ends: Sequence[float]) -> str:
    return f"{value:.3g} [{ends[0]:.3g}, {ends[1]:.3g}]"


FITS = ("this run", "an earlier run")
"""What step times were fitted to: in sample, and out of it."""


def compare(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Everything, from the run to the verdict. Raises as ``recorded``."""
    made = recorded(given, folder)
    print(bench("trace", "stats", made.recording))
    truth, fits, ours = measured(made.recording, made.rows), {}, {}
    for name, steps in zip(FITS, (made.steps, made.earlier), strict=True):
        calibration = steps.with_name(f"calibration-{steps.stem}.json")
        bench("calibrate", steps, "--model", MODEL, "--gpu", "cpu", "--fit", 0.9, "--out", calibration)
        fits[name] = json.loads(calibration.read_text())
        for load, option in LOADS.items():
            side, out = f"{load}, step times of {name}", folder / f"{load}-{steps.stem}".replace(" ", "-")
            more = [option, given.concurrency] if option else []
            ours[side] = replayed(side, made.recording, calibration, out, *more)
    ratios = {name: ratio(side, truth, name.startswith(PAIRED)) for name, side in ours.items()}
    size = sum(path.stat().st_size for path in made.recording.iterdir())
    log = read_steps(made.steps)
    return {
        "agent": given.agent, "suite": given.suite, "n": given.n, "concurrency": given.concurrency,
        "seeds": {run: given.seed + nth for nth, run in enumerate(RUNS)},
        "limits": LIMITS, "bytes_per_call": size / len(truth.ttft),
        "fits": {
            name: {key: fit[key] for key in ("coefficients", "held_out", "source")}
            for name, fit in fits.items()
        },
        "interrupted_share": lost_time(log, fit_rows(log.rows)),
        "sides": {side.name: numbers(side) for side in (truth, *ours.values())},
        "ratios": ratios, "missed": missed(ratios),
    }  # fmt: skip


PAIRED = "recorded arrivals"
LOADS = {PAIRED: "", "closed loop": "--concurrency"}
"""How a recording is replayed, and the option that says so."""


def missed(ratios: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The bars that a replay does not meet, a line each; what is not a number meets none."""
    found = []
    for name, one in ratios.items():
        if not abs(one["latency"] - 1) <= LATENCY_BAR:
            found.append(f"{name}: mean program latency is {one['latency']:.3f} times the measured one")
        if not abs(one["hits"]) <= HIT_BAR:
            found.append(f"{name}: the hit rate is {one['hits']:+.3f} off")
    return found


def main() -> int:
    """Run, print; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=24)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agent", default="react")
    parser.add_argument("--suite", default="repair")
    parser.add_argument("--sandbox", default="bwrap")
    parser.add_argument("--keep", type=Path, help="a new folder: recording, logs and results stay")
    parser.add_argument("--json", type=Path, help="write all figures there")
    given = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as name:
            found = compare(given, given.keep or Path(name))
    except (EngineUnavailable, HostGone, MissingError) as error:
        return _wrong(error, Exit.MISSING)
    except WorkloadError as error:
        return _wrong(error, Exit.USAGE)
    except BenchError as error:
        return _wrong(error, error.exit_code)
    except RuntimeError as error:
        return _wrong(error, Exit.INVALID_RUN)
    show(found)
    print(f"{found['bytes_per_call']:.0f} bytes a call in the recording")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if found["missed"] else 0


def _wrong(error: object, code: Exit) -> int:
    print(f"error: {error}", file=sys.stderr)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())

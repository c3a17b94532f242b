"""Parts d and e: a real vLLM server on this machine's CPU, fitted at one rate and predicted at two others.

The flow: capacity (a pilot); then, ``repeats`` times, a run under fcfs at the fit's rate and runs of every
scheduler at two rates that the fit does not see; probes of log probabilities; then the same in the simulator,
each round with step times fitted to the steps of its own fit run. So the procedure, fit and predict, is
repeated as a whole, and the error is the median over the rounds: the machine drifts by a third within
minutes, and a fit of another time would be blamed for that. Runs that are done are kept and not repeated,
as long as nothing that decides them has changed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from bench.calibration.steps import StepLog, fit_log, fit_rows, lost_time
from bench.errors import InvalidRun
from bench.fidelity.part import Bar, Options, Outcome, Say
from bench.fidelity.server_calls import Numbers, medians, numbers
from bench.fidelity.server_compare import Cell, Pair, Row, Said, pairs, rows, said
from bench.fidelity.server_page import page
from bench.fidelity.server_predict import predict
from bench.fidelity.server_probes import Probed, probe
from bench.fidelity.server_runs import Kept, Measured, Servers, explained, measure, served_by, steps_of
from bench.fidelity.server_setup import GPU, MODEL, PREDICTED, Setup
from bench.files import write_json
from systems.engines.vllm_server import USER
from systems.engines.vllm_virtual import EngineUnavailable, vllm_python
from systems.latency.calibration import Calibration
from systems.latency.validation import Validation

TPOT_BAR = 10.0
ENSEMBLE = 9
"""Simulated runs, with other lags, whose median is the prediction: where calls wait, a millisecond decides
who is preempted, in the server and here."""
SATURATED = 0.75
"""Share of a pilot's tokens after which its end, where batches shrink, begins."""


@dataclass(frozen=True)
class Study:
    """All that was found. ``capacity`` and ``rates`` in programs per second; ``lost``: share of the fit
    runs' time in interrupted steps; ``steps``: error of the mean step time by (rate, scheduler);
    ``calibration``: of all rounds, for those who want one; ``rounds``: of each round, which predict it;
    ``simulated``: by round, medians over ``ensemble`` runs; ``lag_s``: median over the rounds."""

    setup: Setup
    seed: int
    version: str
    capacity: float
    rates: Mapping[str, float]
    calibration: Calibration
    rounds: Sequence[Calibration]
    lag_s: float
    lost: float
    measured: Mapping[Cell, Sequence[Measured]]
    simulated: Mapping[Cell, Sequence[Numbers]]
    probed: Probed
    rows: Sequence[Row]
    pairs: Sequence[Pair]
    said: Said
    steps: Mapping[Cell, float]
    ensemble: int


def missing() -> str:
    """Why no server can run here; empty if one can."""
    try:
        vllm_python(USER)
    except EngineUnavailable as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class ServerPart:
    """A part of the suite (``bench.fidelity.part``) that measures one set-up; ``cost`` in words."""

    setup: Setup
    title: str
    cost: str

    @property
    def name(self) -> str:
        """The set-up's."""
        return self.setup.name

    def missing(self, options: Options) -> str:  # noqa: ARG002
        """Whether vLLM is there."""
        return missing()

    def run(self, options: Options, say: Say) -> Outcome:
        """Measure, fit, predict. Raises BenchError."""
        return outcome(self.setup, options, say)


def outcome(setup: Setup, options: Options, say: Say) -> Outcome:
    """Run the study of a set-up (its quick form if asked for). Raises BenchError."""
    found = study(setup.quick() if options.quick else setup, options, say)
    worst = float(np.max([row.error["tpot"] for row in found.rows]))  # NaN stays NaN
    separate = sum(pair.separate for pair in found.pairs)
    tested = sum(pair.separate and not pair.unseen for pair in found.pairs)
    bars = [
        Bar("TPOT, worst (rate, scheduler), median of the runs", 100 * worst, TPOT_BAR),
        Bar(
            f"pairs of schedulers predicted the other way, of {separate} that separate"
            + ("" if tested else " (not tested)" if not separate else " (all alike in the simulation)"),
            sum(pair.missed for pair in found.pairs) if tested else float("nan"),
            0,
            "",
        ),
        Bar(
            "greedy replies that differ: calls between runs, tokens of probes"
            + ("" if _displaced(found) else " (not tested)"),
            _differ(found),
            0,
            "",
        ),
    ]
    against = f"vLLM {found.version} on a CPU, {setup.workload}, {len(found.rows)} (rate, scheduler)"
    fitted = "linear steps, on one other rate under fcfs, in each round anew"
    known = []
    if math.isfinite(worst):
        statistic, n = "median of runs, worst cell", len(found.rows)
        known = [Validation(MODEL, GPU, "TPOT", statistic, worst, n, fitted, against)]
    facts = {"vLLM": found.version, "runs": found.said.runs, "capacity": f"{found.capacity:.3g} programs/s"}
    return Outcome(bars, page(found), _plain(found), facts, known)


def _displaced(found: Study) -> bool:
    """Whether calls were preempted, in runs and in probes, and replies were compared."""
    preempted = sum(numbers(run.calls).preempted for runs in found.measured.values() for run in runs)
    return all((preempted, found.probed.calls, found.probed.tokens, found.said.calls))


def _differ(found: Study) -> float:
    """Replies that differ; NaN where nothing was displaced, which would show nothing."""
    return found.said.differ + found.probed.differ if _displaced(found) else float("nan")


def study(setup: Setup, options: Options, say: Say) -> Study:
    """Measure, fit, predict. Raises BenchError."""
    seed = options.seed
    folder = options.work / (setup.name + ("-quick" if options.quick else ""))
    folder.mkdir(parents=True, exist_ok=True)
    with explained():
        kept = Kept(folder, {**setup.identity(seed), **served_by(vllm_python(USER))})
    with Servers(setup, folder.resolve(), say) as servers:
        capacity, pilot = _capacity(setup, seed, servers, kept, say)
        rates = {name: float(f"{share * capacity:.3g}") for name, share in setup.shares.items()}
        fits, measured = _measured(setup, seed, rates, servers, kept, say)
        calibration, lost = _fitted(setup, seed, rates["fit"], [fit.log for fit in fits])
        rounds = [_fitted(setup, seed, rates["fit"], [fit.log])[0] for fit in fits]
        probed = _probed(setup, servers, kept, say)
        version = str(calibration.source.get("vllm", ""))
    write_json(folder / f"{calibration.name}.json", json.loads(calibration.as_json()))
    lags = [fit.run.lag_s for fit in fits]
    simulated = _simulated(setup, seed, rates, list(zip(rounds, lags, strict=True)))
    plain = {cell: [numbers(run.calls) for run in runs] for cell, runs in measured.items()}
    every = [
        pilot.said,
        *(fit.run.said for fit in fits),
        *(run.said for runs in measured.values() for run in runs),
    ]
    return Study(
        setup, seed, version, capacity, rates, calibration, rounds, float(np.median(lags)), lost, measured,
        simulated, probed, rows(plain, simulated), pairs(plain, simulated), said(every),
        {cell: _step_error(rounds, runs) for cell, runs in measured.items()},
        ENSEMBLE,
    )  # fmt: skip


# Measuring


def _capacity(setup: Setup, seed: int, servers: Servers, kept: Kept, say: Say) -> tuple[float, Measured]:
    """Programs per second with all of the pilot's there at once, under fcfs."""
    if (data := kept.get("pilot")) is None:
        programs, times = setup.programs(seed, n=setup.pilot)
        say(f"pilot: {len(programs)} programs at once")
        run = measure(servers.get("fcfs"), servers.vocabulary, "pilot", programs, times)
        log = steps_of(servers.get("fcfs"), run.name)
        data = {"run": run.as_json(), "capacity": capacity(log, len(programs))}
        kept.put("pilot", data)
    say(f"capacity {data['capacity']:.3g} programs/s")
    return float(data["capacity"]), Measured.parse(data["run"])


def capacity(log: StepLog, programs: int) -> float:
    """Programs per second until ``SATURATED`` of the log's tokens were computed."""
    tokens = np.cumsum([row.units[1] for row in log.rows])
    at = int(np.searchsorted(tokens, SATURATED * tokens[-1]))
    return float(SATURATED * programs / (log.rows[at].end - log.rows[0].start))


class FitRun(NamedTuple):
    """A run at the fit's rate, and its steps."""

    run: Measured
    log: StepLog


def _measured(
    setup: Setup, seed: int, rates: Mapping[str, float], servers: Servers, kept: Kept, say: Say
) -> tuple[list[FitRun], dict[Cell, list[Measured]]]:
    """Runs at the fit's rate, and of every scheduler at the others.

    All take turns, and each round has another scheduler first.
    """
    fits: list[FitRun] = []
    found: dict[Cell, list[Measured]] = {(r, s): [] for r in PREDICTED for s in setup.schedulers}
    for repeat in range(setup.repeats):
        fits.append(_fit_run(setup, seed, rates["fit"], repeat, servers, kept, say))
        for rate in PREDICTED:
            programs, times = setup.programs(seed, rates[rate])
            first = repeat % len(setup.schedulers)
            for scheduler in setup.schedulers[first:] + setup.schedulers[:first]:
                name = f"{scheduler}_{rate}{repeat}"
                key = f"{name}-{rates[rate]:g}"
                if (data := kept.get(key)) is None:
                    run = measure(servers.get(scheduler), servers.vocabulary, name, programs, times)
                    kept.put(key, data := run.as_json())
                    say(_told(name, run))
                found[rate, scheduler].append(Measured.parse(data))
    return fits, found


def _fit_run(
    setup: Setup, seed: int, rate: float, repeat: int, servers: Servers, kept: Kept, say: Say
) -> FitRun:
    if (data := kept.get(f"fit{repeat}-{rate:g}")) is None:
        programs, times = setup.programs(seed, rate)
        run = measure(servers.get("fcfs"), servers.vocabulary, f"fit{repeat}", programs, times)
        say(_told(f"fit{repeat} at {rate:g}/s, fcfs", run))
        data = {"run": run.as_json(), "log": steps_of(servers.get("fcfs"), run.name).as_json()}
        kept.put(f"fit{repeat}-{rate:g}", data)
    return FitRun(Measured.parse(data["run"]), StepLog.parse(data["log"]))


def _fitted(setup: Setup, seed: int, rate: float, logs: Sequence[StepLog]) -> tuple[Calibration, float]:
    """The calibration from all steps of the fit's runs, and the share of their time that did not count."""
    log = StepLog(logs[0].head, [row for one in logs for row in one.rows])
    runs = f"{setup.name}, {len(logs)} runs of {rate:g} programs/s, fcfs"
    source = {"run": runs, "seed": seed, "steps": len(log.rows)}
    try:
        found = fit_log(log, name=setup.name, model=MODEL, gpu=GPU, source=source)
        return found, lost_time(log, fit_rows(log.rows))
    except ValueError as error:
        raise InvalidRun(f"{setup.name}: {error}") from None


def _told(name: str, run: Measured) -> str:
    had = numbers(run.calls)
    return (
        f"{name}: {had.programs} programs, {had.calls} calls in {run.took:.1f} s, TPOT "
        f"{had.tpot * 1e3:.2f} ms, program {had.program:.2f} s, {had.preempted} calls preempted; client "
        f"{run.audit.verdict}"
    )


def _probed(setup: Setup, servers: Servers, kept: Kept, say: Say) -> Probed:
    if (data := kept.get("probes")) is None:
        say(f"probes: {setup.probes} prompts alone, batched, preempted")
        data = probe(servers.get("atlas"), setup, servers.vocabulary).as_json()
        kept.put("probes", data)
    return Probed.parse(data)


# Predicting


def _simulated(
    setup: Setup, seed: int, rates: Mapping[str, float], rounds: Sequence[tuple[Calibration, float]]
) -> dict[Cell, list[Numbers]]:
    """By cell, a prediction per round: from its own fit's step times and lag (s)."""
    found: dict[Cell, list[Numbers]] = {}
    for rate in PREDICTED:
        programs, times = setup.programs(seed, rates[rate])
        for scheduler in setup.schedulers:
            found[rate, scheduler] = [
                medians(
                    numbers(predict(setup, scheduler, calibration, programs, times, lag_s, seed=k))
                    for k in range(ENSEMBLE)
                )
                for calibration, lag_s in rounds
            ]
    return found


def _step_error(rounds: Sequence[Calibration], runs: Sequence[Measured]) -> float:
    """Error of the mean step time over the runs, each by its round's fit, on the batches that really were."""
    ms = [np.array(list(one.coefficients.values())) for one in rounds]
    predicted = sum(float(m @ np.array(run.step_units)) for m, run in zip(ms, runs, strict=True)) / 1e3
    return predicted / sum(run.step_s for run in runs) - 1.0


def _plain(found: Study) -> dict[str, Any]:
    """What is kept in docs/fidelity/: everything but the single calls and replies."""
    measured = {
        f"{rate} {scheduler}": [
            {**numbers(run.calls)._asdict(), "audit": asdict(run.audit), "client_latency_s": run.latency_s,
             "lag_s": run.lag_s, "took_s": run.took, "late": run.late, "steps": run.steps,
             "step_s": run.step_s}
            for run in runs
        ]
        for (rate, scheduler), runs in found.measured.items()
    }  # fmt: skip
    return {
        "setup": asdict(found.setup),
        "bounds": found.setup.bounds,
        "rates": dict(found.rates),
        "calibration": json.loads(found.calibration.as_json()),
        "rounds": [dict(one.coefficients) for one in found.rounds],
        "lag_s": found.lag_s,
        "lost_share": found.lost,
        "ensemble": found.ensemble,
        "measured": measured,
        "simulated": {f"{r} {s}": [n._asdict() for n in each] for (r, s), each in found.simulated.items()},
        "rows": [row._asdict() for row in found.rows],
        "pairs": [{**p._asdict(), "separate": p.separate, "missed": p.missed} for p in found.pairs],
        "said": found.said._asdict(),
        "probes": found.probed.as_json(),
        "step_error": {f"{r} {s}": error for (r, s), error in found.steps.items()},
    }

"""Measured runs of parts d and e: servers, load, what each run left; kept on disk and not run again."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.affinity import on_cores
from bench.calibration.steps import StepLog, read_steps, request_of
from bench.drivers.audit import Audit
from bench.drivers.completions import CallFailed, Completions, Request
from bench.drivers.effects import ProgramError
from bench.drivers.live import drive_live
from bench.drivers.live_records import LiveRun
from bench.drivers.token_ids import TokenIds
from bench.errors import InvalidRun, MissingError
from bench.fidelity.part import Say
from bench.fidelity.server_calls import Call, as_json, from_json, logged, numbers
from bench.fidelity.server_setup import MODEL, Setup, cores
from bench.files import write_json
from bench.manifest import hardware
from systems.engines.vllm_server import VllmServer
from systems.engines.vllm_virtual import EngineUnavailable
from systems.latency.calibration import TERMS
from systems.vllm_host.tiny import TinyLlama, write
from workloads.base import ProgramSpec

SALT = "fidelity"
"""Of the token ids: every run says the same, and ``cache_salt`` keeps their caches apart."""
ATTEMPTS = 3
EARLY = 0.1
"""Quantile of the ways from client to engine: those that met the engine between steps, or almost."""
_DECIDING = (
    "vocabulary.py", "workloads", "systems/vllm_host", "systems/schedulers", "systems/process_table.py",
    "systems/engines/vllm_server.py", "systems/provision/process.py", "systems/provision/guard.py",
    "systems/provision/recipe.py", "systems/provision/vllm_flags.py", "systems/http1.py",
    "systems/http1_messages.py", "bench/drivers", "bench/arriving.py", "bench/affinity.py",
    "bench/fidelity/server_setup.py",
    "bench/fidelity/server_runs.py", "bench/fidelity/server_calls.py", "bench/fidelity/server_probes.py",
    "bench/fidelity/server_study.py", "bench/calibration/steps.py", "bench/plan.py", "bench/config.py",
    "bench/tables.py", "bench/serving.py", "bench/trace_options.py", "bench/offline.py", "bench/foreign.py",
    "systems/catalog.py", "systems/capabilities.py", "systems/engine_options.py", "systems/protocols.py",
    "systems/slots.py", "systems/latency/calibration.py",
)  # fmt: skip
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Measured:
    """One run. ``said``: hash of each call's reply; ``lag_s``: from a call's end in the engine to its client,
    and from a client to the engine (seconds); ``latency_s``: mean over programs, from the
    scheduled arrival, as the client saw it; ``steps`` of the engine took ``step_s`` seconds together and
    had ``step_units`` of each term in them (``bench.calibration.steps``). ``name``: in the server's logs;
    ``late``: the numbers of runs before this one that do not count, since the client was late."""

    calls: list[Call]
    said: dict[str, str]
    audit: Audit
    lag_s: float
    latency_s: float
    took: float
    steps: int
    step_s: float
    step_units: list[int]
    name: str = ""
    late: list[dict[str, Any]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Plain data; ``parse`` reads it."""
        return {**asdict(self), "calls": as_json(self.calls)}

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Measured:
        """From ``as_json``'s data."""
        audit = data["audit"]
        lags = [tuple(audit[name]) for name in ("send_lag", "loop_lag")]
        own = Audit(lags[0], lags[1], audit["cpu"], audit["most_open"], ahead=audit["ahead"])
        fields = {
            k: data[k]
            for k in ("said", "lag_s", "latency_s", "took", "steps", "step_s", "step_units", "name", "late")
        }
        return cls(calls=from_json(data["calls"]), audit=own, **fields)


class Kept:
    """Results in a folder, each under a hash of what made it."""

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        self.folder = folder
        self._identity = {**identity, "code": _code(), "cpu": hardware()["cpu"]}

    def path(self, name: str) -> Path:
        """Where the result ``name`` of this configuration is or will be."""
        text = json.dumps([self._identity, name], sort_keys=True)
        return self.folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"

    def get(self, name: str) -> Any:
        """The result, None if there is none."""
        path = self.path(name)
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def put(self, name: str, data: Any) -> None:
        """Keep a result."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.path(name), data)


def _code() -> str:
    """Of the files that decide what is measured: an edit of others does not make a run old."""
    digest = hashlib.sha256()
    for name in _DECIDING:
        path = _ROOT / name
        for file in (
            [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in (".py", ".toml"))
        ):
            digest.update(str(file.relative_to(_ROOT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def served_by(python: Path) -> dict[str, str]:
    """The vLLM environment: its Python, and the version of vLLM there ("" if it has none).

    Raises EngineUnavailable if it cannot be run.
    """
    ask = "from importlib.metadata import version as v; print(v('vllm'))"
    try:
        done = subprocess.run([str(python), "-c", ask], capture_output=True, text=True, check=False)
    except OSError as error:
        raise EngineUnavailable(f"a vLLM server: cannot run {python}: {error}") from None
    return {"python": str(python), "vllm": done.stdout.strip()}


class Servers:
    """A server per scheduler, started together when the first is asked for; use as ``with``."""

    def __init__(self, setup: Setup, folder: Path, say: Say) -> None:
        self.setup = setup
        self.folder = folder
        self.say = say
        self.vocabulary = TinyLlama().vocabulary - 1  # the last one is the end token
        self.version = ""
        self._servers: dict[str, VllmServer] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def get(self, scheduler: str) -> VllmServer:
        """The scheduler's server, warm. Raises MissingError if it does not start."""
        if not self._servers:
            with explained():
                self._start()
        return self._servers[scheduler]

    def _start(self) -> None:
        own = cores()[1]  # before this process takes its place: the servers' cores are told from the same
        model = write(self.folder / "model")
        names = self.setup.schedulers
        self.say(f"{len(names)} vLLM servers start ({', '.join(names)})")
        found = {n: VllmServer(self.setup.server(n, model), self.folder / f"server-{n}") for n in names}
        for server in found.values():
            self._stack.callback(server.stop)
            server.begin()
        for server in found.values():
            server.ready()
        self._stack.enter_context(on_cores(own))
        for server in found.values():
            asyncio.run(_warm(server, self.setup, TokenIds(self.vocabulary, "warm-up")))
        self._servers = found
        self.version = str(read_steps(found[names[0]].steps).head.get("vllm", ""))


@contextmanager
def explained() -> Iterator[None]:
    """Errors of servers and of the live driver as the command line's."""
    try:
        yield
    except EngineUnavailable as error:
        raise MissingError(str(error)) from None
    except (CallFailed, ProgramError) as error:
        raise InvalidRun(str(error)) from error


async def _warm(server: VllmServer, setup: Setup, ids: TokenIds) -> None:
    """Full batches of prefills and decodes: what is set up at first use is set up before it counts."""
    async with Completions(server.url, MODEL) as client:
        for turn in range(2):
            prompts = [list(ids.segment(1000 * turn + i, 100)) for i in range(2 * setup.max_num_seqs)]
            requests = [Request(f"warm.{i}..{turn}", p, 24, logprobs=i == 0) for i, p in enumerate(prompts)]
            await asyncio.gather(*map(client.complete, requests))


def measure(
    server: VllmServer, vocabulary: int, name: str, programs: Sequence[ProgramSpec], times: Sequence[float]
) -> Measured:
    """One run; one with a client that was late is made again, at most ``ATTEMPTS`` times in all.

    Raises MissingError if the server dies, InvalidRun if a call fails or the client is late each time.
    """
    late: list[dict[str, Any]] = []
    while True:
        own = f"{name}again{len(late)}" if late else name
        run = _measure(server, vocabulary, own, programs, times)
        if run.audit.verdict != "invalid":
            return replace(run, name=own, late=late)
        late.append({**numbers(run.calls)._asdict(), "audit": asdict(run.audit)})
        if len(late) == ATTEMPTS:
            raise InvalidRun(f"run {own}: the client could not keep up, {ATTEMPTS} times: {run.audit}")


def _measure(
    server: VllmServer, vocabulary: int, name: str, programs: Sequence[ProgramSpec], times: Sequence[float]
) -> Measured:
    with explained():
        live = asyncio.run(_drive(server, TokenIds(vocabulary, SALT), name, programs, times))
    if given := [call.name for call in live.calls if not call.answered]:
        raise InvalidRun(f"run {name}: {len(given)} calls were given up, {given[0]} first; none may be")
    calls = logged(server.calls, name)
    if len(calls) != len(live.calls):
        raise InvalidRun(f"run {name}: {len(live.calls)} calls were made, {server.calls} has {len(calls)}")
    origin = read_head(server)["origin_wall"]
    latency = float(np.mean([row.t_end - row.t_sched for row in live.programs]))
    log = steps_of(server, name).rows
    units = [sum(row.units[i] for row in log) for i in range(len(TERMS))]
    step_s = sum(row.seconds for row in log)
    lag = _lag(live, calls, origin)
    return Measured(calls, live.said(), live.audit, lag, latency, live.took, len(log), step_s, units)


async def _drive(
    server: VllmServer, ids: TokenIds, name: str, programs: Sequence[ProgramSpec], times: Sequence[float]
) -> LiveRun:
    async with Completions(server.url, MODEL) as client:
        return await drive_live(programs, times, client, ids, run=name, cache_salt=name, watch=server.check)


def read_head(server: VllmServer) -> dict[str, Any]:
    """The first line of the server's step log."""
    with server.steps.open(encoding="utf-8") as file:
        head: dict[str, Any] = json.loads(file.readline())
    return head


def _lag(live: LiveRun, calls: Sequence[Call], origin_wall: float) -> float:
    """The way from engine to client (median) and from client to engine (``EARLY``); both clocks are this
    machine's.

    Calls that come during a step are taken in at its end. That wait is the simulator's to make, so the
    way to the engine is that of calls that hardly had it.
    """
    engine = {call.key: call for call in calls}
    there, back = [], []
    for call in live.calls:
        row = engine[call.name.removeprefix(f"{live.name}.")]
        there.append(origin_wall + row.t_arrive - live.wall - call.t_ready)
        back.append(live.wall + call.t_last - origin_wall - row.t_end)
    return max(0.0, float(np.quantile(there, EARLY)) + float(np.median(back)))


def steps_of(server: VllmServer, run: str) -> StepLog:
    """The steps of one run."""
    return read_steps(server.steps).only(request_of(run))

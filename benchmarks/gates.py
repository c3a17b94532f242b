"""What a gate's decisions cost at 10 000 programs: ``python -m benchmarks.gates`` (about 5 s, one core).

CPU time of this process, so that neighbours matter little; a row per gate, microseconds per call and
milliseconds per check of everybody. Half of the programs run and half wait, on four engines. The two gates
after published code are left out: they sum over all programs for each new one, as the originals do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import process_time
from typing import Any

from systems.catalog import build_gate, load_system
from vocabulary import BLOCK, Call, EngineView, Usage

PROGRAMS = 10_000
TOKENS = 5000
USAGE = Usage(1.0, 1.0, 0.0)
ARMS: Sequence[tuple[str, dict[str, object]]] = (
    ("open", {}),
    ("program-cap", {"gate.programs": PROGRAMS // 2}),
    ("thunderagent", {}),
    ("thunderagent", {"gate.event_driven": True}),
    ("thunderagent", {"gate.decay": "none", "gate.victims": "optimal"}),
    ("progress-ttl", {}),
    ("las-fairness", {}),
)


def timed(act: Callable[[Any], object], over: Sequence[Any]) -> float:
    """CPU seconds per element."""
    began = process_time()
    for one in over:
        act(one)
    return (process_time() - began) / max(1, len(over))


def measured(name: str, knobs: dict[str, object]) -> dict[str, float]:
    """Seconds per first request, per end of a turn with its tick, per later request, per end of a program
    with its tick, and per check."""
    gate: Any = build_gate(load_system("vllm-opt", gate=name, knobs=knobs))
    blocks = PROGRAMS // 2 * (TOKENS + 600) // BLOCK // 4
    views = [EngineView(i, True, 0, 0, blocks) for i in range(4)]
    calls = [Call(i, i, "", 0, TOKENS + i % 1000) for i in range(PROGRAMS)]
    went: list[Call] = []

    def ask(call: Call) -> None:
        if gate.request(call, views, 0.0):
            went.append(call)

    def over(call: Call) -> None:
        if getattr(gate, "counts", False):
            gate.count(call, call.prompt_tokens + 100, 1.0)
        gate.finish(call, USAGE, 1.0)
        gate.tick(views, 1.0)

    def end(call: Call) -> None:
        gate.end(call.program, 6.0)
        gate.tick(views, 6.0)

    row = {"first request": timed(ask, calls), "turn's end": timed(over, went)}
    again = [Call(PROGRAMS + c.seq, c.program, "", 1, c.prompt_tokens + 200) for c in went]
    row["request"] = timed(lambda call: gate.request(call, views, 2.0), again)
    row["check"] = timed(lambda now: gate.tick(views, now), [5.0])
    row["program's end"] = timed(end, went[:1000])
    return row


COLUMNS = ("first request", "request", "turn's end", "program's end", "check")


def main() -> None:
    """The table: microseconds, but milliseconds for the check."""
    print(f"{'gate':42}" + "".join(f"{column:>15}" for column in COLUMNS))
    for name, knobs in ARMS:
        row = measured(name, knobs)
        arm = " ".join([name, *(f"{knob.removeprefix('gate.')}={value}" for knob, value in knobs.items())])
        cells = [f"{row[c] * 1e3:12.1f} ms" if c == "check" else f"{row[c] * 1e6:12.1f} us" for c in COLUMNS]
        print(f"{arm:42}" + "".join(cells))


if __name__ == "__main__":
    main()

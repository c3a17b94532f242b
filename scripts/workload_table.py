"""What every preset's programs come out as: the table in docs/workloads.md.

python scripts/workload_table.py [-n 2000] [--seed 1] [PRESET ...]

Means are over programs (calls) or over calls (tokens, a ratio of sums), with 95 % intervals in
which the program is the independent unit. New tokens of a call: its prompt without what an
earlier prompt or reply of the same program already began with, token for token.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from workloads.dag import ProgramDag
from workloads.dryrun import dry_run
from workloads.load import load, workload, workload_names
from workloads.prefixes import PrefixIndex

PUBLISHED: dict[str, tuple[str, float | None, float | None, float | None]] = {
    "chatbot:paper": ("Autellix, Fig. 11 and section 5 (ShareGPT)", 6.66, 255.65, 276.81),
    "chatbot:v3_split": ("the public ShareGPT file, cut at 2 048 tokens", 3.87, None, 286.0),
    "chatbot:raw90k": ("90 665 whole ShareGPT conversations", 8.09, None, 432.0),
    "fitted:sharegpt500": ("500 public ShareGPT conversations, by `bench trace fit`", 3.61, 120.6, 275.8),
    "mapreduce:summarise": ("**ours, not in the paper**: ParallelQA, arXiv summarisation", None, None, None),
    "mcts:lats": ("Autellix, section 5 (LATS on HotpotQA)", 159.71, 467.24, 72.64),
    "mcts:tot": ("100 public logs of Tree of Thoughts (game of 24)", 104.6, None, 52.0),
    "mixed:paper": ("Autellix, section 5: equal thirds", None, None, None),
    "react:bfcl": ("Autellix, section 5 (BFCL v3 multi-turn)", 10.75, 735.06, 34.14),
    "react:bfcl-own": ("as `react:bfcl`, one tool set per program", 10.75, 735.06, 34.14),
    "react:bfcl-wide": ("as `react:bfcl`, up to the paper's 70 calls", 10.75, 735.06, 34.14),
    "react:hotpot": ("Reflexion's runs on HotpotQA", None, None, None),
    "react:tau": ("tau-bench episodes", None, None, None),
    "osworld:desktop": ("**ours**: OSWorld-like, all assumed", None, None, None),
    "rl:grpo": ("**ours**: groups of 8 `swe:mini` rollouts, batches of 128", None, None, None),
    "rollout:desktop": ("episodes of `osworld:desktop`, the first 24 staggered", None, None, None),
    "rollout:hle": ("episodes of `toolorchestra:hle`, the first 24 staggered", None, None, None),
    "rollout:mini": ("episodes of `swe:mini`, the first 24 staggered", None, None, None),
    "rollout:openhands": ("episodes of `swe:openhands-paper`, the first 24 staggered", None, None, None),
    "rollout:science": ("episodes of `scienceagent:paper`, the first 48 staggered", None, None, None),
    "scienceagent:paper": ("ThunderAgent, Fig. 4f: **assumed**", None, None, None),
    "swe:claude_code": ("fits of 710 public Claude Code sessions", 66.8, None, None),
    "swe:mini": ("ThunderAgent, Fig. 4a and 4d: **assumed**", None, None, None),
    "swe:openhands": ("public OpenHands runs", 35.0, None, None),
    "swe:openhands-paper": ("ThunderAgent, Fig. 4b and 4e: calls and tools **assumed**", None, None, None),
    "swe:swe_agent": ("fits of 826 public SWE-agent runs", None, None, None),
    "toolorchestra:hle": ("ThunderAgent, Fig. 4c: **assumed**", None, None, None),
}
"""By preset: the source, and its means of calls per program, new and output tokens per call."""


@dataclass(frozen=True)
class Mean:
    """A mean and the half width of its 95 % interval."""

    value: float
    half: float


@dataclass(frozen=True)
class Row:
    """What a preset's programs come out as; lengths in tokens."""

    calls: Mean
    median_calls: int
    p95_calls: int
    most_calls: int
    new: Mean
    output: Mean
    median_prompt: int
    longest: int


def presets() -> list[str]:
    """Every ``workload:preset``."""
    return [f"{name}:{preset}" for name in workload_names() for preset in workload(name).presets()]


def measure(preset: str, n: int, seed: int) -> Row:
    """Dry-run ``n`` programs of a preset and take their means."""
    calls: list[int] = []
    new: list[int] = []
    output: list[int] = []
    prompts: list[int] = []
    longest = 0
    for spec in load(preset, n=n, seed=seed).programs:
        dag = dry_run(spec)
        calls.append(len(dag.calls))
        new.append(new_tokens(dag))
        output.append(dag.total_output)
        prompts += [call.prompt_tokens for call in dag.calls]
        longest = max(longest, dag.longest)
    ordered = sorted(calls)
    return Row(
        calls=ratio(calls, [1] * n),
        median_calls=ordered[n // 2],
        p95_calls=ordered[int(0.95 * n)],
        most_calls=ordered[-1],
        new=ratio(new, calls),
        output=ratio(output, calls),
        median_prompt=sorted(prompts)[len(prompts) // 2],
        longest=longest,
    )


def new_tokens(dag: ProgramDag) -> int:
    """Prompt tokens of a program that are not the start of an earlier prompt and reply of it."""
    index, total = PrefixIndex(), 0
    for call in dag.calls:
        total += call.prompt_tokens - index.longest(call.prompt)
        index.add((*call.prompt, (call.output_id, call.output_tokens)))
    return total


def ratio(tops: Sequence[float], bottoms: Sequence[float]) -> Mean:
    """sum(tops) / sum(bottoms) over programs, with the linearised interval."""
    value = sum(tops) / sum(bottoms)
    rests = [top - value * bottom for top, bottom in zip(tops, bottoms, strict=True)]
    return Mean(value, 1.96 * stdev(rests) / math.sqrt(len(rests)) / fmean(bottoms))


def line(preset: str, row: Row) -> str:
    """One line of the Markdown table: "theirs / ours" where there is a published mean."""
    source, calls, new, output = PUBLISHED.get(preset, ("not described here", None, None, None))
    cells = [
        f"`{preset}`",
        source,
        _beside(calls, row.calls),
        f"{row.median_calls} / {row.p95_calls} / {row.most_calls}",
        _beside(new, row.new),
        _beside(output, row.output),
        f"{row.median_prompt} / {row.longest}",
    ]
    return f"| {' | '.join(cells)} |"


def _beside(published: float | None, ours: Mean) -> str:
    digits = 2 if ours.value < 20 else 1
    text = f"{ours.value:.{digits}f} ± {ours.half:.{digits}f}"
    return text if published is None else f"{published:g} / **{text}**"


HEAD = (
    "| preset | source | calls per program | p50 / p95 / most | new prompt tokens per call "
    "| output tokens per call | prompt p50 / longest call |\n|---|---|---|---|---|---|---|"
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Means of every preset as a Markdown table.")
    parser.add_argument("presets", nargs="*", help="workload:preset (default: all)")
    parser.add_argument("-n", type=int, default=2000, help="programs of each")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(HEAD)
    for preset in arguments.presets or presets():
        print(line(preset, measure(preset, arguments.n, arguments.seed)), flush=True)


if __name__ == "__main__":
    main()

"""Part a's page: tables of what was compared and of what that was worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from bench.fidelity.apart import ENGINES, Compared
from bench.fidelity.matrix import Cell, cells
from bench.fidelity.scenarios import FAMILIES, GPU, MODEL
from bench.fidelity.schedules import Result
from systems.catalog import DEFAULT_SYSTEM, load_system

HEAD = f"""\
`vllm-virtual` is vLLM's own V1 `Scheduler` with our policy inside, on a clock that advances by the step
times of {MODEL} on {GPU} (docs/vllm.md); `sim` and `reference` are ours. Same programs, same policy, same
step times, nothing fitted: *identical* means that every step's start, length, calls, tokens per call and
preempted calls, every decision of the policy, every row of the tables calls, programs and engine, and
every total are equal to the last bit in `vllm-virtual`, `sim`, `reference`, and (but for steps and samples,
which it does not keep) in `sim` as runs use it, which jumps over runs of decode steps.

Half of the scenarios have vLLM's default limits (256 calls and 2 048 tokens a step), the others so small
ones that steps are full. A family's sizes were chosen by what `sim` did in it (calls evicted, chunked,
aborted) and by the time they take, not by agreement, which was complete from the first scenario on. One
that lacks what its family names, at the seeds below, is a bar that is not met."""
STOCK = """\
**vLLM without our class.** Nothing of ours is inside the scheduler: `fcfs` and `priority` are vLLM's own
policies, fed the same programs. Compared are steps, preempted calls, times and tokens of calls, samples of
KV use, and totals; those of the prefix cache are vLLM's own statistics. Ours are `fcfs`, and a static
priority of one level."""
SEEN = """\
**Would a wrong rule show?** `sim` made wrong on purpose, against vLLM's own `fcfs`: scenarios in which
something that is compared then differs, of those tried. Zeros are where a family leaves the rule alone
(roomy KV, few tokens a step)."""
ACTED = """\
**What the policies did.** Knobs vary with the seed (units step, s and token; promotion at wait/execution
1.5, 4 and never); queues are so narrow that small programs cross them. *Moved* counts the decision
`promote`, by which `lpm`, `dfs-weight` and `atlas-cp` reorder those who wait, too."""
APART = f"""\
**Where schedules may part.** With one engine, nowhere. With several (here {ENGINES}, in turn) each vLLM
process has a copy of the policy and of the process table, and learns of other engines from what calls carry;
the simulated engines share one table. That is the whole list of explained differences, and the same
schedulers without the reason (infinite beta) must not part. *Latency*: of a scenario's programs, the mean,
`vllm-virtual` over `sim`, with a 95 % interval over the seeds; *KS*: the largest distance between the two
distributions of program latencies, with the p it would have if programs of a scenario were independent."""


@dataclass(frozen=True)
class Found:
    """All that the part compared. ``wrong``: by rule and family, [scenarios that show it, all tried]."""

    ours: Sequence[Result]
    stock: Sequence[Result]
    wrong: Mapping[str, Mapping[str, Sequence[int]]]
    apart: Sequence[Compared]

    @property
    def played(self) -> set[str]:
        """Schedulers of the catalog that were compared."""
        return {result.scheduler for result in self.ours}

    @cached_property
    def by_scheduler(self) -> list[Cell]:
        """All scenarios of each scheduler of ours."""
        names = dict.fromkeys(result.scheduler for result in self.ours)
        return [Cell.of([r for r in self.ours if r.scheduler == name], name) for name in names]


def acts(cell: Cell) -> str:
    """What a scheduler is for and did not do in any scenario; empty if it acted."""
    spec = load_system(DEFAULT_SYSTEM, scheduler=cell.scheduler)
    knobs = dict(spec.scheduler_knobs)
    must: tuple[str, ...] = ()
    if "bounds" in knobs:
        must = ("displaced", "expired", "promoted")
    elif "quantum" in knobs:
        must = ("displaced", "expired")
    elif spec.clairvoyant:
        must = ("displaced",)
    elif spec.reads_cache:
        must = ("promoted",)
    return ", ".join(name for name in must if not cell.sums[name])


def page(found: Found) -> str:
    """Markdown, a pure function."""
    chunks = [
        HEAD,
        _table(cells(found.ours)),
        _differences((*found.ours, *found.stock)),
        _exercise([*found.ours, *found.stock]),
        ACTED,
        _acted(found.by_scheduler),
        STOCK,
        _table(cells(found.stock)),
        *([_alone(found.stock)] if found.stock else []),
        SEEN,
        _seen(found),
        *([APART, _apart(found.apart)] if found.apart else []),
    ]
    return "\n\n".join(chunk for chunk in chunks if chunk)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(_cell(value) for value in row) + " |" for row in rows)])


def _cell(value: object) -> str:
    return f"{value:,}".replace(",", " ") if isinstance(value, int) else str(value)


def _table(found: Sequence[Cell]) -> str:
    """Scheduler x family."""
    names = list(dict.fromkeys(cell.scheduler for cell in found))
    at = {(cell.scheduler, cell.family): cell for cell in found}
    families = [family.name for family in FAMILIES]
    rows = [[f"`{name}`", *(_same(at.get((name, family))) for family in families)] for name in names]
    title = "Scenarios identical, of how many (steps compared):"
    return f"{title}\n\n{_markdown(['scheduler', *families], rows)}"


def _same(cell: Cell | None) -> str:
    if cell is None:
        return "not played"
    word = f"{cell.identical}/{cell.scenarios}"
    return f"{word if cell.identical == cell.scenarios else f'**{word}**'} ({_cell(cell.sums['steps'])})"


def _alone(results: Sequence[Result]) -> str:
    """What vLLM alone had to do, by its own word."""
    s = Cell.of(results).sums
    hits = s["hit_tokens"] / max(1, s["query_tokens"])
    return (
        f"In these, vLLM evicted {_cell(s['evicted'])} calls and {_cell(s['evicted_blocks'])} blocks, took "
        f"{hits:.0%} of {_cell(s['query_tokens'])} prompt tokens from its cache, and lost "
        f"{_cell(s['aborted'])} calls to clients that left."
    )


def _differences(results: Sequence[Result]) -> str:
    lines = [
        f"* `{r.scheduler}`, {r.family}, seed {r.seed}: {name}: {said}"
        for r in results
        for name, said in r.differs.items()
    ]
    lines += [f"* `{r.scheduler}`, {r.family}, seed {r.seed}: lacks {r.lacks}" for r in results if r.lacks]
    return "\n".join(lines[:20])


def _exercise(results: Sequence[Result]) -> str:
    """Family by family, all schedulers together."""
    columns = ("forks", "chunked", "mixed", "displaced", "evicted", "evicted_blocks", "aborted")
    rows = []
    for family in FAMILIES:
        of = [result for result in results if result.family == family.name]
        if not of:
            continue
        cell = Cell.of(of, family=family.name)
        s = cell.sums
        hits = f"{100 * s['hit_tokens'] / max(1, s['query_tokens']):.0f} %"
        rows.append([
            f"{family.name}: {family.about}", cell.scenarios, s["calls"], cell.batch, s["query_tokens"], hits,
            *(s[name] for name in columns),
        ])  # fmt: skip
    head = [
        "family", "scenarios", "calls", "largest step (calls)", "prompt tokens", "from cache", "forks",
        "chunked prefills", "mixed steps", "calls displaced", "calls evicted", "blocks evicted",
        "calls aborted",
    ]  # fmt: skip
    return f"What the scenarios made vLLM do, all schedulers together:\n\n{_markdown(head, rows)}"


def _acted(found: Sequence[Cell]) -> str:
    names = ("evicted", "displaced", "expired", "promoted")
    rows = [[f"`{cell.scheduler}`", *(cell.sums[name] for name in names)] for cell in found]
    head = [
        "scheduler",
        "calls evicted (no blocks)",
        "displaced (by a better one)",
        "quanta used up",
        "moved",
    ]
    return _markdown(head, rows)


def _seen(found: Found) -> str:
    rows = [
        [name, *(f"{shown}/{tried}" for shown, tried in families.values())]
        for name, families in found.wrong.items()
    ]
    return _markdown(["wrong", *(family.name for family in FAMILIES)], rows)


def _apart(found: Sequence[Compared]) -> str:
    rows = []
    for one in found:
        case, mean = one.case, one.mean
        beta = "" if case.beta is None else f", beta {case.beta:g}"
        same = f"{one.seeds - one.differ}/{one.seeds}"
        rows.append([
            f"`{case.scheduler}`{beta}", case.why or "none: must be identical", same,
            one.steps, one.promoted, f"{mean.value:+.2%} ({mean.low:+.2%} .. {mean.high:+.2%})",
            f"{one.ks:.3f} (p {one.p:.2f})",
        ])  # fmt: skip
    head = ["scheduler", "why it may part", "identical", "steps", "moved", "latency", "KS"]
    return _markdown(head, rows)

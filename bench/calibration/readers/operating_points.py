"""A CSV of operating points: closed loops, each with its lengths, concurrency and mean TTFT and TPOT.

Columns ``isl``, ``osl``, ``concurrency``, ``tp``, ``ttft_ms``, ``tpot_ms``, and if need be ``range_ratio``
(lengths are drawn evenly from that share of isl and osl up to the whole; default 1: fixed) and ``prompts``
(requests of a loop; default 10 per place). Or the columns of aiconfigurator's ``silicon_sample.csv``, whose
rows of this shape come from the public InferenceMAX benchmark: its recipes of the date say range ratio 0.8,
10 prompts per place, ``max-num-batched-tokens`` 8192, no prefix cache, and the statistic is the mean.
"""

from __future__ import annotations

from pathlib import Path

from bench.calibration.recordings import Facts, Point, Points, digest_of, gpu_named, model_named
from bench.errors import UsageError
from workloads.csv_rows import CsvRow, csv_rows, has_columns

OURS = ("isl", "osl", "concurrency", "tp", "ttft_ms", "tpot_ms")
SILICON = ("isl", "osl", "batch_size", "tp_size", "silicon_ttft_ms", "silicon_tpot_ms")
PER_PLACE = 10
RATIO = 0.8
BUDGET = 8192


class OperatingPoints:
    """Reads one CSV."""

    name = "points"

    def sniff(self, path: Path) -> str | None:
        """Why this looks like one."""
        for columns in (OURS, SILICON):
            if path.is_file() and path.suffix == ".csv" and has_columns(path, columns):
                return f"columns {', '.join(columns)}"
        return None

    def read(self, path: Path) -> Points:
        """Raises WorkloadError with file, line and column."""
        silicon = has_columns(path, SILICON)
        columns = SILICON if silicon else OURS
        rows = list(csv_rows(path, path.name, columns))
        if not rows:
            raise UsageError(f"{path}: no row below the header")
        points = [_point(row, columns, RATIO if silicon else 1.0) for row in rows]
        facts = Facts(
            self.name,
            path,
            _one(rows, "model_path", path, model_named) if silicon else "",
            _one(rows, "system", path, gpu_named) if silicon else "",
            {"max_num_batched_tokens": BUDGET},
            prefix_cache=False,
            source={"sha256": digest_of(path)},
        )
        return Points(facts, points, _protocol(points))


def _point(row: CsvRow, columns: tuple[str, ...], ratio: float) -> Point:
    isl, osl, places, tp = (row.tokens(name) for name in columns[:4])
    ttft, tpot = (row.number(name) / 1e3 for name in columns[4:])
    if not all((isl, osl, places, tp, ttft, tpot)):
        raise UsageError(f"{row.where}: {', '.join(columns)} must all be above 0")
    ratio = row.number("range_ratio", 1.0) if row.has("range_ratio") else ratio
    prompts = row.tokens("prompts") if row.has("prompts") else PER_PLACE * places
    return Point(isl, osl, places, tp, ttft, tpot, ratio, max(prompts, places))


def _one(rows: list[CsvRow], column: str, path: Path, named: object) -> str:
    """Our name of what the column says, which must be the same in every row."""
    found = {row.text(column) for row in rows if row.has(column)}
    if len(found) > 1:
        raise UsageError(f"{path}: column {column} has {' and '.join(sorted(found))}: one file, one engine")
    assert callable(named)
    precision = {row.text("precision") for row in rows if row.has("precision")}
    text = next(iter(found), "")
    if named is model_named and precision == {"fp8"}:
        text += "-fp8"
    return str(named(text))


def _protocol(points: list[Point]) -> str:
    ratios = sorted({point.ratio for point in points})
    drawn = [r for r in ratios if r < 1.0]
    lengths = f"lengths drawn evenly from {drawn[0]:g} x to 1 x" if drawn else "fixed lengths"
    return f"closed loop, {lengths}, {points[0].prompts // points[0].concurrency} requests per place, means"


READER = OperatingPoints()

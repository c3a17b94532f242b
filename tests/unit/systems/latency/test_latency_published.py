"""Shipped tables against published end-to-end points: as far off as docs/latency-tables.md says."""

import csv
import re
from pathlib import Path
from statistics import median

import pytest

from systems.latency import load_table

ROOT = Path(__file__).parents[4]
POINTS = ROOT.parent / "shared" / "data" / "silicon" / "llama-3.1-70b-fp8-vllm-h100.csv"
DOCUMENT = (ROOT / "docs" / "latency-tables.md").read_text()


def printed(checkpoint, gpu):
    """(median, least, largest) of real over kernels that the document prints, by GPUs per engine."""
    rows = re.findall(
        rf"^\| {checkpoint} \| {gpu} \| (\d+) \|.*\| (\d+) \| (\S+) \| (\S+) \| (\S+) \|$", DOCUMENT, re.M
    )
    return {int(tp): (int(n), [float(x) for x in ratios]) for tp, n, *ratios in rows}


@pytest.mark.skipif(not POINTS.is_file(), reason=f"needs {POINTS.name}")
@pytest.mark.parametrize("tp", [2, 4, 8])
def test_the_points_of_the_70b_in_fp8(tp):
    table = load_table(f"llama-3.1-70b-fp8:tp{tp}", "h100")
    found = []
    for row in csv.DictReader(POINTS.read_text().splitlines()):
        if int(row["tp_size"]) == tp:
            batch, new, out = (int(row[name]) for name in ("batch_size", "isl", "osl"))
            step = table.step((), batch, batch * (new + out // 2))
            others = (batch - 1) * table.step([(new, 0)], 0, 0) / out
            found.append(float(row["silicon_tpot_ms"]) / 1e3 / (step + others))
    n, ratios = printed("nvidia/Llama-3.1-70B-Instruct-FP8", "h100")[tp]
    assert len(found) == n == 15
    assert [median(found), min(found), max(found)] == pytest.approx(ratios, abs=0.02)


def test_real_engines_are_slower_than_their_kernels_by_what_the_document_says():
    dense = [
        printed(name, gpu).values() for name in ("nvidia/\\S+", "Qwen/Qwen3-32B") for gpu in ("h100", "h200")
    ]
    medians = [ratios[0] for rows in dense for _, ratios in rows]
    assert (min(medians), max(medians)) == (1.04, 1.21)
    assert "1.04 to 1.21 times" in (ROOT / "docs" / "latency.md").read_text()


def test_the_band_of_models_with_experts_is_that_of_their_points():
    rows = re.findall(
        r"^\| Qwen/Qwen3-235B-A22B-FP8 \|.*\| (\d+) \| \S+ \| (\S+) \| (\S+) \|$", DOCUMENT, re.M
    )
    assert sum(int(n) for n, _, _ in rows) == 32
    band = (min(float(low) for _, low, _ in rows), max(float(high) for _, _, high in rows))
    assert band == load_table("qwen3-235b-fp8", "h200").uncertainty

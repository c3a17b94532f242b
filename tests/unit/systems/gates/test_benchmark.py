"""What the benchmark of gates measures, on few programs."""

import pytest

from benchmarks import gates


@pytest.mark.parametrize(("name", "knobs"), gates.ARMS)
def test_every_arm_is_measured(name, knobs, monkeypatch):
    monkeypatch.setattr(gates, "PROGRAMS", 40)
    row = gates.measured(name, {k: v if k != "gate.programs" else 20 for k, v in knobs.items()})
    assert set(row) == set(gates.COLUMNS)

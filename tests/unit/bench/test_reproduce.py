import pytest

from bench import reproduce
from bench.errors import UsageError
from bench.schedules import run, verdict


def test_verdicts():
    got = {"total_wait": 17.0, "steps": ["AB", "C"]}
    base = {"statement": "s", "quantity": "total_wait"}
    assert verdict(base | {"expected": 17}, got)["verdict"] == "reproduced"
    assert verdict(base | {"expected": 18, "known": 17}, got)["verdict"] == "differs"
    assert verdict(base | {"expected": 18}, got)["verdict"] == "not reproduced"
    steps = {"statement": "s", "quantity": "steps", "expected": "AB C"}
    assert verdict(steps, got)["verdict"] == "reproduced"


@pytest.mark.parametrize(
    ("text", "error"),
    [("x = ", UsageError), ('kind = "schedule"\nnam = "x"', UsageError), ('kind = "tune"', UsageError)],
)
def test_broken_experiments_name_their_file(text, error, tmp_path, monkeypatch):
    folder = tmp_path / "paper"
    folder.mkdir()
    (folder / "fig.toml").write_text(text)
    monkeypatch.setattr(reproduce, "FOLDER", tmp_path)
    with pytest.raises(error, match=r"fig\.toml"):
        run(*reproduce.load("paper:fig"))


def test_every_experiment_loads():
    assert all(reproduce.load(name)[0]["source"] for name in reproduce.experiments())

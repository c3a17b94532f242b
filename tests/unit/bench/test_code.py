from bench import code


def test_what_decides_is_there_and_changes_the_hash(monkeypatch, tmp_path):
    names = {path.relative_to(code._ROOT).as_posix() for path in code._files()}
    assert {"vocabulary.py", "systems/engines/sim.py", "workloads/mcts.toml", "bench/metrics.py"} <= names
    assert "systems/latency/tables/llama-3.1-8b_a100.json" in names
    assert {"systems/engines/slots.pxd", "bench/drivers/virtual.pxd"} <= names
    assert "systems/latency/validations.json" not in names
    for name in code._DECIDING:
        assert (code._ROOT / name).exists(), name
    monkeypatch.setattr(code, "_ROOT", tmp_path)
    (tmp_path / "bench").mkdir()
    for name in code._DECIDING:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a = 1\n")
    before = code.code_digest.__wrapped__()
    (tmp_path / "bench" / "metrics.py").write_text("a = 2\n")
    assert code.code_digest.__wrapped__() != before


def test_only_the_validations_themselves_do_not_count(monkeypatch, tmp_path):
    monkeypatch.setattr(code, "_ROOT", tmp_path)
    for place in ("systems/latency", "workloads"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "validations.json").write_text("[]")
    monkeypatch.setattr(code, "_DECIDING", ("systems", "workloads"))
    assert code._files() == [tmp_path / "workloads" / "validations.json"]

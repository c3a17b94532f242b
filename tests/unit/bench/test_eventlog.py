import os
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from bench import eventlog
from bench.errors import MissingError
from bench.eventlog import EventLog, from_memory, read_tables, stored_hash
from bench.records import MemorySink
from bench.tables import CALLS, TABLES, Digest
from tests.unit.bench.rows import fill, memory


def write(folder, **kwargs):
    folder.mkdir(exist_ok=True)
    log = EventLog(folder)
    log.total(fill(log, **kwargs))
    return log.finish()


def test_tables_come_back_as_they_were(tmp_path):
    write(tmp_path)
    sink = memory()
    kept, stored = from_memory(sink), read_tables(tmp_path)
    for name in ("programs", "engine", "totals"):
        left, right = getattr(kept, name), getattr(stored, name)
        assert left.to_dict("list") == right.astype(left.dtypes).to_dict("list")
    for column in stored.calls:
        assert (stored.calls[column] == kept.calls[column]).all()
    whole = pq.read_table(tmp_path / "calls.parquet").to_pandas()
    assert whole.parents.tolist() == kept.calls.parents.tolist()
    assert "#0" in set(whole.parents)


def test_hash_is_the_contents_not_the_encoding(tmp_path, monkeypatch):
    first = write(tmp_path / "a")
    monkeypatch.setattr(eventlog, "ROW_GROUP", 7)
    second = write(tmp_path / "b")
    assert first == second == stored_hash(tmp_path / "a") == stored_hash(tmp_path / "b")
    assert pq.ParquetFile(tmp_path / "b" / "calls.parquet").num_row_groups > 10
    assert write(tmp_path / "c", seed=2) != first


def test_hash_sees_order_and_text_boundaries():
    def digest(values):
        d = Digest(TABLES["programs"])
        rows = memory(4).programs
        for row, kind in zip(rows, values, strict=True):
            row.kind = kind
        d.update(TABLES["programs"].columns(rows))
        return d.hexdigest()

    assert digest(["ab", "c", "", "d"]) != digest(["a", "bc", "", "d"])
    assert digest(["a", "b", "c", "d"]) != digest(["b", "a", "c", "d"])


def test_the_hash_holds_the_totals_but_for_what_an_engine_may_round(tmp_path):
    def made(name, **changes):
        (tmp_path / name).mkdir()
        log = EventLog(tmp_path / name)
        log.total(fill(log)._replace(**changes))
        return log.finish()

    base = made("a")
    assert made("b", kv_block_seconds=7.5) == base == stored_hash(tmp_path / "b")
    assert read_tables(tmp_path / "b").totals.kv_block_seconds.tolist() == [7.5]
    assert made("c", busy_s=1.0) != base
    assert made("d", hit_tokens=1) != base


def test_empty_tables_are_written(tmp_path):
    log = EventLog(tmp_path)
    assert log.finish() == stored_hash(tmp_path)
    assert read_tables(tmp_path).calls.empty


def test_memory_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(eventlog, "ROW_GROUP", 10)
    log = EventLog(tmp_path)
    fill(log, 50)
    assert all(len(w.rows) < 10 for w in log.writers.values())
    log.abort()
    assert list(tmp_path.iterdir()) == []


def test_unfinished_tables_have_no_name(tmp_path):
    log = EventLog(tmp_path)
    fill(log, 5)
    assert {p.suffix for p in tmp_path.iterdir()} == {".part"}
    with pytest.raises(MissingError, match="--force"):
        read_tables(tmp_path)
    log.finish()
    assert {p.name for p in tmp_path.iterdir()} == {f"{n}.parquet" for n in TABLES}


def test_same_hash_in_every_process():
    code = (
        "from tests.unit.bench.rows import memory; from bench.tables import CALLS, Digest\n"
        "d = Digest(CALLS); d.update(CALLS.columns(memory().calls)); print(d.hexdigest())"
    )
    here = Digest(CALLS)
    here.update(CALLS.columns(memory().calls))
    for hash_seed in ("0", "7"):
        env = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.getcwd()}
        out = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        assert out.stdout.strip() == here.hexdigest()


def test_memory_sink_keeps_the_columns():
    assert list(from_memory(MemorySink()).calls) == list(CALLS.kinds)


def test_a_damaged_table_is_one_clear_line(tmp_path):
    write(tmp_path)
    (tmp_path / "calls.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(MissingError, match=r"calls\.parquet"):
        stored_hash(tmp_path)

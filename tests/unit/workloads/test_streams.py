"""Compressed files, progress, memory and detection: what every reader of traces stands on."""

import gzip
import json

import pytest
import zstandard

from workloads import streams
from workloads.base import WorkloadError
from workloads.dryrun import dry_runs
from workloads.files import digest, read_bytes
from workloads.load import load

ROWS = [
    {"timestamp": 1000 * i, "input_length": 600, "output_length": 5, "hash_ids": [2 * i, 2 * i + 1]}
    for i in range(300)
]
TEXT = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
PACKED = {
    "a.jsonl": TEXT,
    "a.jsonl.gz": gzip.compress(TEXT),
    "a.jsonl.zst": zstandard.compress(TEXT),
    "two.jsonl.zst": zstandard.compress(TEXT[:5000]) + zstandard.compress(TEXT[5000:]),
    "two.jsonl.gz": gzip.compress(TEXT[:5000]) + gzip.compress(TEXT[5000:]),
}


@pytest.mark.parametrize("name", PACKED)
def test_compressed_or_not_it_is_the_same(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(PACKED[name])
    assert read_bytes(path) == TEXT
    assert b"".join(streams.pieces(path)) == TEXT
    assert [number for number, _ in streams.lines(path, name)] == list(range(1, 301))
    (tmp_path / "plain").write_bytes(TEXT)
    assert digest(path) == digest(tmp_path / "plain")
    result = load(str(path))
    assert len(result.programs) == 300
    assert {dag.total_prompt for dag in dry_runs(result.programs[:5])} == {600}


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "two.jsonl.zst"])
def test_a_compressed_file_that_is_cut_off_is_refused(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(PACKED[name][:-20])
    with pytest.raises(WorkloadError, match=rf"{name}: broken (gzip|Zstandard) data"):
        load(str(path), fmt="mooncake")


def test_junk_behind_a_frame_is_refused(tmp_path):
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(PACKED[path.name] + b"junk")
    with pytest.raises(WorkloadError, match=r"a.jsonl.zst: broken Zstandard data"):
        load(str(path), fmt="mooncake")


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_progress_goes_up_to_all_of_it(tmp_path, name, monkeypatch):
    monkeypatch.setattr(streams, "_PIECE", 4096)
    path = tmp_path / name
    path.write_bytes(PACKED[name])
    seen = []
    load(str(path), progress=lambda done, total: seen.append((done, total)))
    size = path.stat().st_size
    assert seen[-1] == (size, size)
    assert {total for _, total in seen} == {size}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(seen) > 2


def test_progress_ends_with_the_call(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(TEXT)
    seen = []
    load(str(tmp_path), progress=lambda *said: seen.append(said))
    before = len(seen)
    load(str(tmp_path))
    assert len(seen) == before > 0


def test_blank_lines_a_byte_order_mark_and_crlf_keep_the_numbers(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf{}\r\n\r\n  \n[1]\r\n2")
    found = list(streams.lines(path, "a.jsonl"))
    assert found == [(1, b"{}\r\n"), (4, b"[1]\r\n"), (5, b"2")]
    assert [streams.parse_line(line, "a.jsonl", n) for n, line in found] == [{}, [1], 2]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", r"^a.jsonl:7:\d+: broken JSON"),
        (b'{"a": NaN}', r"^a.jsonl:7:\d+: broken JSON"),
        (b'{"a": "\xff"}', r"^a.jsonl:7: not UTF-8 text$"),
        (b"[" * 5000, r"^a.jsonl:7:\d+: broken JSON"),
    ],
)
def test_what_is_no_json_is_named(line, said):
    with pytest.raises(WorkloadError, match=said):
        streams.parse_line(line, "a.jsonl", 7)


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "LONGEST_LINE", 1 << 10)
    path = tmp_path / "a.jsonl"
    path.write_bytes(TEXT[:500] + b" " * 2000)
    with pytest.raises(WorkloadError, match=r"a.jsonl:\d: a line of more than"):
        list(streams.lines(path, path.name))


@pytest.mark.parametrize("fmt", ["own", "mooncake", "azure", "weka"])
def test_a_folder_where_a_file_should_be_and_a_file_that_goes_away(tmp_path, fmt):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "README.md").write_text("text")
    with pytest.raises(WorkloadError, match="inner"):
        load(str(tmp_path / "inner"), fmt=fmt)
    with pytest.raises(WorkloadError, match=r"gone.jsonl: No such file"):
        next(streams.lines(tmp_path / "gone.jsonl", "gone.jsonl"))

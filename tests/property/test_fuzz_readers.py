"""Every reader on broken copies of a small sample: a result or one clear refusal, never anything else.

The readers are found by scanning, their samples by name in ``tests/unit/workloads/samples``. A
mutant may be refused (WorkloadError), or read; then every record is accounted for. Three promises:

* no other exception, and no hang;
* nothing is left out in silence: where one value is changed and calls are missing afterwards,
  something was skipped or repaired that was not before;
* a record that is gone from the file is gone from ``read``, and no other.

``make test`` tries a few hundred mutants, the slow marker more than 20 000.
"""

import csv
import gzip
import io
import json
import random
import signal
import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workloads.base import NothingLeft, WorkloadError
from workloads.dryrun import dry_run
from workloads.load import load, reader_names

SAMPLES = Path(__file__).parents[1] / "unit" / "workloads" / "samples"
LIMIT_S = 10.0
QUICK, MANY = 20, 1300
CONTEXT = 1 << 22
ODD = (
    None, True, False, 0, 1, -1, 3, 2.5, -0.0, 1e300, 1 << 53, 1 << 70, "", " ", "0", "-1", "NaN", "x" * 300,
    "\u0000", "\ud83d\ude00", "assistant", "2023-13-45 99:00:00", [], {}, [[]], [None], {"": None}, [1, 2, 3],
    {"a": {"b": []}},
)  # fmt: skip
CELLS = (
    "",
    " ",
    "-1",
    "0",
    "1e9",
    "1e400",
    "nan",
    "12.5",
    "x",
    '"',
    "9" * 40,
    "\u0660",
    "2023-13-45 00:00:00",
)


def sample(name):
    (path,) = SAMPLES.glob(f"{name}.*")
    return path


@dataclass(frozen=True)
class Outcome:
    """What a reader made of a file; ``error`` if it refused."""

    programs: int = 0
    calls: int = 0
    read: int = 0
    changes: tuple[tuple[str, int], ...] = ()
    error: str = ""


@contextmanager
def at_most(seconds):
    def late(*_):
        raise TimeoutError(f"the reader took more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def words(error):
    """What a refusal says; one that says nothing is a failure."""
    if not str(error).strip():
        raise AssertionError("refused without a word")
    return str(error)


def read(path, name, **options):
    """Load and dry-run everything: readers build programs late."""
    options = {"max_model_len": CONTEXT, **options}
    with at_most(LIMIT_S):
        try:
            found = load(str(path), fmt=name, **options)
        except NothingLeft as error:
            return Outcome(error=words(error))
        except WorkloadError as error:
            return Outcome(error=words(error))
        calls = sum(len(dry_run(spec).calls) for spec in found.programs)
    changes = Counter(found.skipped)
    changes.update(found.repaired)
    assert all(count > 0 for count in changes.values())
    assert set(changes) <= set(found.where), "a reason without a place"
    assert found.programs
    assert found.read > 0
    return Outcome(len(found.programs), calls, found.read, tuple(sorted(changes.items())))


@cache
def base(name):
    """The outcome of the sample itself."""
    return read(sample(name), name)


# Mutations of bytes and lines


def flip(data, r):
    data = bytearray(data)
    for _ in range(r.randint(1, 4)):
        data[r.randrange(len(data))] = r.randrange(256)
    return bytes(data)


def cut(data, r):
    a = r.randrange(len(data))
    return data[:a] + data[a + r.randint(1, 60) :]


def double(data, r):
    a = r.randrange(len(data))
    return data[:a] + data[a : a + r.randint(1, 200)] * 2 + data[a:]


def truncate(data, r):
    return data[: r.randrange(len(data) + 1)]


def junk(data, r):
    a = r.randrange(len(data))
    pieces = [
        b"\x00",
        b"\xff\xfe",
        b"\r",
        b"\n\n",
        b'"',
        b"[" * 5000,
        b"{" * 3000,
        b"9" * 5000,
        b"null",
        b",,,",
    ]
    return data[:a] + r.choice(pieces) + data[a:]


def encoding(data, r):
    text = data.decode()
    return r.choice([
        text.encode("utf-16"), text.encode("utf-8-sig"), text.encode("utf-32"),
        text.replace("\n", "\r\n").encode(), text.rstrip("\n").encode(), text.encode() + b"\n\n \n",
        text.encode().replace(b"a", b"\xe4"),
    ])  # fmt: skip


def packed(data, r):
    whole = gzip.compress(data, mtime=0)
    kind = r.randrange(4)
    if kind == 0:
        return whole
    if kind == 1:
        return whole[: r.randrange(2, len(whole))]
    if kind == 2:
        return flip(whole, r)
    return gzip.compress(whole, mtime=0)


def shuffled(data, r):
    lines = data.splitlines(keepends=True)
    a, b = r.randrange(len(lines)), r.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"".join(lines)


ROUGH = (flip, cut, double, truncate, junk, encoding, packed, shuffled)


# Mutations of one value


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(document, path, change, value=None):
    """The document with one place changed: another value, a field gone, nested deeply, or renamed."""
    if not path:
        return value
    document = json.loads(json.dumps(document))
    node = document
    for key in path[:-1]:
        node = node[key]
    if change == "drop" and isinstance(node, dict):
        del node[path[-1]]
    elif change == "nest":
        node[path[-1]] = [{"x": node[path[-1]]}]
    else:
        node[path[-1]] = value
    return document


def one_value(data, r, suffix):
    """(the file with one value changed in place, the names on the way to it); records stay as many."""
    if suffix == ".csv":
        return one_cell(data, r), ()
    documents = [json.loads(line) for line in data.splitlines()] if suffix == ".jsonl" else [json.loads(data)]
    k = r.randrange(len(documents))
    path = r.choice([p for p in places(documents[k]) if p] or [()])
    documents[k] = changed(documents[k], path, r.choice(["set", "set", "drop", "nest"]), r.choice(ODD))
    return "".join(json.dumps(d) + "\n" for d in documents).encode(), path


def one_cell(data, r):
    rows = list(csv.reader(io.StringIO(data.decode())))
    row = rows[r.randrange(1, len(rows))]
    row[r.randrange(len(row))] = r.choice(CELLS)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


BY_MEANING = {"otel": [("attributes",)]}
"""Values that say that something is a call at all: without them a span is any span of a service."""


def check_rough(name, seed):
    r = random.Random(seed)
    data = sample(name).read_bytes()
    for _ in range(r.randint(1, 3)):
        data = r.choice(ROUGH[:5])(data, r) or b"\n"
    if r.random() < 0.4:
        data = r.choice(ROUGH)(sample(name).read_bytes(), r)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, sample(name).name)
        path.write_bytes(data)
        if r.random() < 0.3:
            Path(folder, f"good-{sample(name).name}").write_bytes(sample(name).read_bytes())
            path = Path(folder)
        read(path, name, on_overflow=r.choice(["skip", "truncate", "refuse"]),
             max_model_len=r.choice([2, 50, 700, CONTEXT]))  # fmt: skip
        read(path, None)


def check_value(name, seed):
    r = random.Random(seed)
    data, names = one_value(sample(name).read_bytes(), r, sample(name).suffix)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, sample(name).name)
        path.write_bytes(data)
        got = read(path, name)
    if got.error or base(name).error or names[-1:] in BY_MEANING.get(name, ()):
        return
    before = Counter(dict(base(name).changes))
    new = Counter(dict(got.changes)) - before
    if got.calls < base(name).calls:
        assert new, f"{base(name).calls} calls became {got.calls} in silence: {data!r}"


def check_record(name, seed):
    """One line of JSON lines or CSV gone, or there twice."""
    r = random.Random(seed)
    lines = sample(name).read_bytes().splitlines(keepends=True)
    k = r.randrange(1 if sample(name).suffix == ".csv" else 0, len(lines))
    copies = r.choice([0, 2])
    lines[k : k + 1] = [lines[k]] * copies
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, sample(name).name)
        path.write_bytes(b"".join(lines))
        got = read(path, name)
    if not got.error:
        header = name == "own" and k == 0  # its header is no record
        assert got.read == base(name).read + (0 if header else copies - 1)


NAMING_EACH_OTHER = ("aiperf",)
"""Lines of these name each other: one that another starts is no program of its own."""
LINES = [
    name
    for name in reader_names()
    if name not in NAMING_EACH_OTHER and sample(name).suffix in (".jsonl", ".csv")
]
seeds = st.integers(0, 2**48)
quick = settings(max_examples=QUICK, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
thorough = settings(max_examples=MANY, deadline=None, suppress_health_check=list(HealthCheck))


def test_every_reader_has_a_sample_that_it_reads():
    assert sorted(path.stem for path in SAMPLES.iterdir()) == reader_names()
    assert [name for name in reader_names() if base(name).error] == ["bfcl"]  # which refuses all there is


@pytest.mark.parametrize("name", reader_names())
@given(seed=seeds)
@quick
def test_broken_bytes(name, seed):
    check_rough(name, seed)


@pytest.mark.parametrize("name", reader_names())
@given(seed=seeds)
@quick
def test_a_changed_value_loses_no_call_in_silence(name, seed):
    check_value(name, seed)


@pytest.mark.parametrize("name", LINES)
@given(seed=seeds)
@quick
def test_a_record_more_or_less_is_one_more_or_less(name, seed):
    check_record(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_rough, check_value])
@pytest.mark.parametrize("name", reader_names())
@given(seed=seeds)
@thorough
def test_many_more(name, check, seed):
    check(name, seed)

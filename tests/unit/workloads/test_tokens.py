import json
import sys

import pytest

from tests.unit.workloads.recordings import COUNTS, DATA, texts, word_tokenizer
from workloads.base import WorkloadError
from workloads.tokens import ESTIMATE, Scaled, counter


def test_without_a_tokenizer_lengths_are_estimated_and_say_so():
    used = counter(None)
    assert (used.exact, used.count(""), used.count("x")) == (False, 0, 1)
    assert "estimated" in used.description
    # Six words with their spaces and a full stop: what Llama 3 makes of it, too.
    assert used.count("What is the capital of France?") == 7


@pytest.mark.parametrize(
    "text", ["\ud83d", "\x00\x1f", "日本語のテキスト", "a" * 100_000, " " * 100_000, "\n" * 9]
)
def test_any_text_has_a_length(text, tmp_path):
    pytest.importorskip("tokenizers")
    assert ESTIMATE.count(text) >= 1
    assert counter(str(word_tokenizer(tmp_path))).count(text) >= 1


def test_a_tokenizer_counts_exactly(tmp_path):
    pytest.importorskip("tokenizers")
    path = word_tokenizer(tmp_path)
    used = counter(str(path))
    assert used.exact
    assert used.count("three words here") == 3
    assert used.description.startswith("tokenizer.json (sha256 ")
    assert counter(str(tmp_path)).description.endswith(used.description.partition(" ")[2]), (
        "its folder will do"
    )
    assert str(tmp_path) not in used.description, "the workload's hash must not depend on where the file lies"


def test_a_tokenizer_that_cannot_be_had_is_an_error_for_people(tmp_path, monkeypatch):
    pytest.importorskip("tokenizers")
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    with pytest.raises(WorkloadError, match=r"broken\.json: no tokenizer\.json of the tokenizers library"):
        counter(str(broken))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(WorkloadError, match=r"no such file, and it cannot be fetched by name"):
        counter("nobody/no-such-tokenizer")


def test_without_the_library_the_error_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(WorkloadError, match=r"pip install 'agent-serving-bench\[tokens\]'"):
        counter(str(tmp_path / "another.json"))


def test_lengths_can_be_scaled_to_a_total():
    double = Scaled(ESTIMATE, 2.0)
    assert double.count("What is the capital of France?") == 14
    assert double.count("") == 0
    assert Scaled(ESTIMATE, 0.01).count("a word") == 1
    assert "scaled" in double.description


@pytest.mark.skipif(not DATA.is_dir(), reason="the public recordings are not here")
def test_the_stated_error_is_the_measured_one():
    counts = json.loads(COUNTS.read_text())
    errors, single, messages = {}, [], 0
    for source, found in texts().items():
        estimates = [ESTIMATE.count(text) for text in found]
        assert len(estimates) == len(counts[source]), source
        errors[source] = sum(estimates) / sum(counts[source]) - 1
        single += [abs(a / b - 1) for a, b in zip(estimates, counts[source], strict=True)]
        messages += len(found)
    assert messages == 1961
    assert -0.03 < min(errors.values()) < -0.02, "-2.8 % when a source is left out of the fit"
    assert 0.04 < max(errors.values()) < 0.056, "+5.5 %"
    single.sort()
    assert single[messages // 2] < 0.03
    assert single[messages * 95 // 100] < 0.11

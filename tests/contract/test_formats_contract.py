"""No two readers claim the same file: every sample is recognised by its reader and by no other."""

import gzip
from pathlib import Path

import pytest

from workloads.load import _readers, detect, load, reader_names

SAMPLES = Path(__file__).parents[1] / "unit" / "workloads" / "samples"
DATA = Path(__file__).parents[3] / "shared" / "data"


def claims(path):
    return [name for name, reader in sorted(_readers().items()) if reader.sniff(path)]


@pytest.mark.parametrize("sample", sorted(SAMPLES.iterdir()), ids=lambda path: path.stem)
def test_a_sample_is_recognised_by_its_reader_only(sample, tmp_path):
    assert claims(sample) == [sample.stem]
    packed = tmp_path / f"{sample.name}.gz"
    packed.write_bytes(gzip.compress(sample.read_bytes()))
    assert claims(packed) == [sample.stem]
    reader, why = detect(sample)
    assert reader.name == sample.stem
    assert why


@pytest.mark.skipif(not DATA.is_dir(), reason="the public data are not here")
def test_no_public_file_is_claimed_twice():
    files = [path for path in sorted(DATA.rglob("*")) if path.is_file() and path.stat().st_size]
    assert len(files) > 50
    assert {str(path.relative_to(DATA)): found for path in files if len(found := claims(path)) > 1} == {}


@pytest.mark.parametrize(
    "name", [name for name in reader_names() if "tokenizer" in getattr(_readers()[name], "parameters", ())]
)
def test_a_tokenizer_changes_the_workloads_hash(name, tmp_path):
    pytest.importorskip("tokenizers")
    from tests.unit.workloads.recordings import word_tokenizer

    (sample,) = SAMPLES.glob(f"{name}.*")
    tokenizer = str(word_tokenizer(tmp_path))
    estimated = load(str(sample), max_model_len=1 << 20)
    counted = load(str(sample), parameters={"tokenizer": tokenizer}, max_model_len=1 << 20)
    has_text = "tokenizer" in counted.parameters
    assert (counted.digest != estimated.digest) == has_text
    assert tokenizer not in str(counted.parameters), "the hash must not depend on where the tokenizer lies"

"""Every workload and every reader in its folder keeps the interface of workloads/base.py."""

import pytest

from workloads.base import ProgramSet, WorkloadError
from workloads.dag import program_hash
from workloads.dryrun import dry_run, dry_runs
from workloads.load import _readers, load, skipped, workload, workload_names

PRESETS = [(name, preset) for name in workload_names() for preset in workload(name).presets()]


def test_every_file_of_the_folders_can_be_loaded():
    assert skipped() == {}


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_a_workload_is_a_pure_function_of_its_arguments(name, preset):
    one, two = (workload(name).build(4, 7, preset) for _ in range(2))
    assert isinstance(one, ProgramSet)
    assert [spec.key for spec in one.programs] == [spec.key for spec in two.programs]
    assert program_hash(dry_runs(one.programs)) == program_hash(dry_runs(two.programs))
    assert program_hash(dry_runs(one.programs[:3])) == program_hash(
        dry_runs(workload(name).build(3, 7, preset).programs)
    )
    other = workload(name).build(4, 8, preset)
    assert not {spec.key for spec in one.programs} & {spec.key for spec in other.programs}


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_programs_are_of_their_workload_and_run(name, preset):
    made = load(f"{name}:{preset}", n=5, seed=1)
    assert made.rate is not None
    assert made.rate > 0
    assert [spec.index for spec in made.programs] == list(range(5))
    for spec in made.programs:
        dag = dry_run(spec)
        assert spec.kind == name or (name == "mixed" and spec.kind in {"chatbot", "react", "mcts"})
        assert spec.arrival is None
        assert dag.calls
        assert made.longest is None or dag.longest <= made.longest
        identities = [(c.thread, c.index) for c in dag.calls]
        assert len(set(identities)) == len(identities)
        for position, c in enumerate(dag.calls):
            assert set(c.parents) <= set(identities[:position])


@pytest.mark.parametrize("name", workload_names())
def test_unknown_presets_and_parameters_are_refused(name):
    with pytest.raises(WorkloadError, match="no preset"):
        workload(name).build(1, 0, "no such preset")
    with pytest.raises(WorkloadError, match="no parameter"):
        workload(name).build(1, 0, None, {"no_such_parameter": 1})
    assert workload(name).default_preset in workload(name).presets()


@pytest.mark.parametrize("reader", _readers().values(), ids=_readers())
@pytest.mark.parametrize(
    "content", [b"", b"\x00\xff\x00", b"[]", b"null", b"{}", b"a,b\n", b"\x1f\x8b\x08junk", b"[" * 9999]
)
def test_readers_refuse_junk_with_a_message(reader, content, tmp_path):
    path = tmp_path / "junk.json"
    path.write_bytes(content)
    assert reader.sniff(path) is None
    with pytest.raises(WorkloadError, match="junk"):
        reader.read(path, max_model_len=1000, on_overflow="skip")


@pytest.mark.parametrize("reader", _readers().values(), ids=_readers())
def test_readers_do_not_claim_an_empty_folder(reader, tmp_path):
    assert reader.sniff(tmp_path) is None
    with pytest.raises(WorkloadError):
        reader.read(tmp_path, max_model_len=1000, on_overflow="skip")

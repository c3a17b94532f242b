from pathlib import Path

import pytest

from bench.curves.spec import parse
from bench.errors import UsageError
from bench.reproduce import load

GOOD, PATH = load("autellix:fig12")


def change(**given):
    return {**GOOD, **given}


def test_fig12_has_the_scales_and_claims_of_both_sources():
    curves = parse(GOOD, PATH)
    assert set(curves.scales) == {"smoke", "small", "robust", "full"}
    assert {c.source for c in curves.claims} == {"paper", "note"}
    assert curves.scale("small").horizon == 900.0
    assert len(curves.scale("small").multiples) == 6
    assert curves.scale("small").seeds == 8


def test_claims_name_their_systems():
    curves = parse(GOOD, PATH)
    known = {*curves.systems, *curves.beside}
    assert all({c.better, c.base or c.better} <= known for c in curves.claims)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (change(sytems=[]), "unknown field 'sytems': did you mean systems"),
        ({k: v for k, v in GOOD.items() if k != "gpu"}, "gpu is missing"),
        (change(subject="atlas"), "atlas is not among the systems"),
        (change(claims=[{**GOOD["claims"][0], "workloads": ["chat"]}]), "unknown workload 'chat'"),
        (change(claims=[{**GOOD["claims"][0], "kind": "rates"}]), "did you mean rate"),
        (
            change(scales={"small": {"cost": "", "horizon": 1.0, "models": [], "multiples": [], "sed": 1}}),
            "sed",
        ),
    ],
)
def test_a_wrong_file_is_named_with_the_field(data, words):
    with pytest.raises(UsageError, match=words) as error:
        parse(data, Path("x/fig12.toml"))
    assert "fig12.toml" in str(error.value)


def test_unknown_scale():
    with pytest.raises(UsageError, match="did you mean small"):
        parse(GOOD, PATH).scale("smal")

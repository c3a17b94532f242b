import pytest

from workloads.agents.contract import ToolSpec
from workloads.agents.tasks.arguments import wrong_arguments

SPEC = ToolSpec(
    "f",
    "",
    {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "n": {"type": "integer"},
            "x": {"type": "number"},
            "flag": {"type": "boolean"},
            "some": {"type": "array", "items": {"type": "string"}},
            "id": {"type": ["integer", "string"]},
        },
        "required": ["text"],
    },
)


@pytest.mark.parametrize(
    "arguments",
    [
        {"text": ""},
        {"text": "a", "n": 1, "x": 1, "flag": True, "some": [], "id": "T1"},
        {"text": "a", "x": 1.5},
    ],
)
def test_right(arguments):
    assert wrong_arguments(SPEC, arguments) == ""


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "f wants 'text' (string)"),
        ({"text": "a", "m": 1}, "f has no argument 'm'; it has text, n, x, flag, some, id"),
        ({"text": 1}, "f: 'text' must be string, not 1"),
        ({"text": "a", "n": 1.0}, "f: 'n' must be integer, not 1.0"),
        ({"text": "a", "n": True}, "f: 'n' must be integer, not True"),
        ({"text": "a", "flag": 1}, "f: 'flag' must be boolean, not 1"),
        ({"text": "a", "some": [1]}, "f: 'some' must be an array of string, not [1]"),
        ({"text": "a", "id": None}, "f: 'id' must be integer or string, not None"),
    ],
)
def test_wrong(arguments, why):
    assert wrong_arguments(SPEC, arguments) == why


def test_what_is_long_is_cut():
    assert len(wrong_arguments(SPEC, {"text": ["x" * 10_000]})) < 200

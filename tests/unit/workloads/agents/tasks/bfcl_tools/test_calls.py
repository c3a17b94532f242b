import pytest

from workloads.agents.contract import ToolSpec
from workloads.agents.tasks.bfcl_tools.calls import parse_call

PARAMETERS = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"type": "array"}},
    "required": [],
}
FUNCTIONS = {"f": ToolSpec("f", "", PARAMETERS)}


def test_arguments_get_their_names():
    assert parse_call(" f('x', b=[1, 'two', -3.5, {'k': True}]) ", FUNCTIONS) == (
        "f",
        {"a": "x", "b": [1, "two", -3.5, {"k": True}]},
    )


@pytest.mark.parametrize(
    "text",
    [
        "f(",
        "f",
        "g()",
        "m.f()",
        "f(1, 2, 3)",
        "f('x', a='y')",
        "f(**{'a': 1})",
        "f(a=__import__('os').getcwd())",
        "f(a=[x for x in (1,)])",
    ],
)
def test_what_is_no_call_with_literals_is_refused(text):
    with pytest.raises(ValueError):
        parse_call(text, FUNCTIONS)

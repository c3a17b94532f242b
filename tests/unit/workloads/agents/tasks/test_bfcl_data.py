"""BFCL's own tasks: its ground truths on our tools. Skipped where its data is not."""

import inspect
from pathlib import Path

import pytest

from workloads.agents.tasks.bfcl import SUITE, read_tasks
from workloads.agents.tasks.bfcl_tools.checker import why_wrong
from workloads.agents.tasks.bfcl_tools.functions import CLASSES, read_functions

DATA = Path(__file__).parents[6] / "shared" / "data"
pytestmark = pytest.mark.skipif(bool(SUITE.missing(DATA)), reason="BFCL's data is not here")

MADE_BY_ECHO_ANYWAY = {
    # touch FILE, then echo TEXT to FILE: without touch the same file is made, and another touch of the
    # task has the same (empty) result.
    ("multi_turn_base_6", "touch"),
    ("multi_turn_base_10", "touch"),
    ("multi_turn_base_39", "touch"),
}
ANY_CREDENTIALS_DO = {"ticket_login", "authenticate_travel"}


@pytest.fixture(scope="module")
def tasks():
    return read_tasks(DATA / "bfcl")


def why(task, calls):
    box = task.toolbox()
    for call in calls:
        box.do(*call)
    return why_wrong(box.start, box.steps, task.true_steps())


def changing(task):
    """(where among all calls, call) of those after which the state is another."""
    box = task.toolbox()
    for i, call in enumerate(call for turn in task.truth for call in turn):
        before = box.steps[-1].state if box.steps else box.start
        box.do(*call)
        if box.steps[-1].state != before:
            yield i, call


def flat(task):
    return [call for turn in task.truth for call in turn]


def test_every_documented_function_is_there_with_its_arguments():
    functions = read_functions(DATA / "bfcl")
    for name, kind in CLASSES.items():
        for spec in functions[name].values():
            signature = inspect.signature(getattr(kind.make, spec.name))
            parameters = [p for p in signature.parameters.values() if p.name != "self"]
            assert {p.name for p in parameters} == set(spec.parameters["properties"]), spec.name
            needed = {p.name for p in parameters if p.default is inspect.Parameter.empty}
            assert needed == set(spec.parameters["required"]), spec.name


def test_every_ground_truth_runs_without_an_error(tasks):
    assert len(tasks) == 200
    failed = {
        task.name: step.result["error"]
        for task in tasks
        for turn in task.true_steps()
        for step in turn
        if "error" in step.result
    }
    assert failed == {}


def test_every_ground_truth_passes_its_check(tasks):
    assert {task.name: said for task in tasks if (said := why(task, flat(task)))} == {}


def test_a_change_that_is_left_out_fails_the_check(tasks):
    kept, left_out = set(), 0
    for task in tasks:
        for i, call in changing(task):
            left_out += 1
            if not why(task, [other for j, other in enumerate(flat(task)) if j != i]):
                kept.add((task.name, call.name))
    assert kept == MADE_BY_ECHO_ANYWAY
    assert left_out == 568


def test_a_change_that_is_another_one_fails_the_check(tasks):
    kept, changed = set(), 0
    for task in tasks[1::3]:
        for i, call in changing(task):
            for name, value in call.arguments.items():
                if isinstance(value, str):
                    other = call._replace(arguments={**call.arguments, name: value + "x"})
                    changed += 1
                    if not why(task, [*flat(task)[:i], other, *flat(task)[i + 1 :]]):
                        kept.add(call.name)
    assert kept <= ANY_CREDENTIALS_DO
    assert changed > 150

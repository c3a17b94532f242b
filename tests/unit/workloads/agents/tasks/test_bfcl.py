"""The suite on data of our own; tests with BFCL's, where it is, are in test_bfcl_data.py."""

import asyncio
import json

import pytest

from workloads.agents.tasks.bfcl import ANSWERS, QUESTIONS, SUITE, read_tasks
from workloads.agents.tasks.bfcl_tools.functions import CLASSES, DOCS
from workloads.base import WorkloadError

NUMBER = {"type": "integer", "description": "Which."}
DOCUMENTED = {
    "TicketAPI": {"close_ticket": {"ticket_id": NUMBER}, "get_ticket": {"ticket_id": NUMBER}},
    "MathAPI": {"add": {"a": {"type": "float"}, "b": {"type": "float"}}},
}


def docs(name):
    functions = DOCUMENTED.get(name, {})
    return [
        {
            "name": function,
            "description": f"This tool belongs to {name}. Tool description: It does {function}.",
            "parameters": {"type": "dict", "properties": said, "required": list(said)},
            "response": {"type": "dict", "properties": {}},
        }
        for function, said in functions.items()
    ]


def question(number, **more):
    return {
        "id": f"multi_turn_base_{number}",
        "question": [[{"role": "user", "content": "Close 5."}], [{"role": "user", "content": "Add them."}]],
        "initial_config": {"TicketAPI": {"ticket_queue": [{"id": 5, "status": "Open"}]}},
        "involved_classes": ["TicketAPI", "MathAPI"],
        **more,
    }


def answer(number, truth=(["close_ticket(5)"], ["add(a=1, b=2)"])):
    return {"id": f"multi_turn_base_{number}", "ground_truth": [list(turn) for turn in truth]}


def write(folder, questions, answers):
    (folder / "bfcl" / DOCS).mkdir(parents=True)
    (folder / "bfcl" / ANSWERS).parent.mkdir()
    for name, kind in CLASSES.items():
        (folder / "bfcl" / DOCS / kind.docs).write_text("\n".join(map(json.dumps, docs(name))))
    (folder / "bfcl" / QUESTIONS).write_text("\n".join(map(json.dumps, questions)))
    (folder / "bfcl" / ANSWERS).write_text("\n".join(map(json.dumps, answers)))
    return folder


@pytest.fixture
def data(tmp_path):
    return write(tmp_path, [question(i) for i in range(3)], [answer(i) for i in range(3)])


@pytest.fixture
def task(data):
    return read_tasks(data / "bfcl")[0]


def call(box, name, **arguments):
    return json.loads(asyncio.run(box.call(name, arguments)))


def verdict(task, box, answers=("done", "done")):
    return asyncio.run(task.check(box, answers))


def test_a_task_is_what_the_data_says(task):
    assert task.turns == ["Close 5.", "Add them."]
    assert [[action.calls for action in actions] for actions in task.solution] == [
        [(("close_ticket", {"ticket_id": 5}),), ()],
        [(("add", {"a": 1, "b": 2}),), ()],
    ]
    assert all(actions[-1].text for actions in task.solution)


def test_tools_are_those_of_the_classes(task):
    specs = {spec.name: spec for spec in task.toolbox().specs}
    assert set(specs) == {"close_ticket", "get_ticket", "add"}
    assert specs["add"].description == "It does add."
    assert specs["add"].parameters["properties"]["a"] == {"type": "number"}
    assert specs["get_ticket"].parameters["required"] == ["ticket_id"]


def test_excluded_functions_are_not_there(tmp_path):
    write(tmp_path, [question(0, excluded_function=["get_ticket"])], [answer(0)])
    (task,) = read_tasks(tmp_path / "bfcl")
    assert "error" in call(task.toolbox(), "get_ticket", ticket_id=5)


def test_failures_are_text(task):
    box = task.toolbox()
    assert "there is no tool 'fly'" in call(box, "fly")["error"]
    assert "wants 'ticket_id'" in call(box, "get_ticket")["error"]
    assert "add cannot compute" in call(box, "add", a=10**400, b=0.5)["error"]
    assert "there is no ticket 6" in call(box, "get_ticket", ticket_id=6)["error"]


def test_the_solution_solves_it(task):
    box = task.toolbox()
    call(box, "get_ticket", ticket_id=6)
    call(box, "close_ticket", ticket_id=5)
    call(box, "add", a=1.0, b=2)
    assert verdict(task, box) == (True, "")


def test_nothing_solves_nothing(task):
    assert not verdict(task, task.toolbox()).success
    box = task.toolbox()
    call(box, "close_ticket", ticket_id=5)
    assert verdict(task, box).why == "turn 2: no call had the result of the ground truth's add"
    call(box, "add", a=1, b=1)
    assert "no call had the result" in verdict(task, box).why
    assert verdict(task, box, ("done",)).why == "answered 1 of 2 turns"


def test_two_programs_do_not_share_state(task):
    call(task.toolbox(), "close_ticket", ticket_id=5)
    assert call(task.toolbox(), "get_ticket", ticket_id=5)["status"] == "Open"


def test_what_was_answered_does_not_change_later(task):
    box = task.toolbox()
    call(box, "get_ticket", ticket_id=5)
    call(box, "close_ticket", ticket_id=5)
    assert box.steps[0].result["status"] == "Open"


def test_tasks_come_in_a_seeded_order_and_again(data):
    first = [task.name for task in SUITE.tasks(7, 1, data)]
    assert first == [task.name for task in SUITE.tasks(7, 1, data)]
    assert len(set(first)) == 7
    assert [name.partition(".")[0] for name in first[:3]] == [name.partition(".")[0] for name in first[3:6]]
    assert sorted(first[:3]) == ["multi_turn_base_0", "multi_turn_base_1", "multi_turn_base_2"]
    assert len({tuple(t.name for t in SUITE.tasks(3, seed, data)) for seed in range(20)}) > 1


def test_what_is_missing_is_named(data):
    assert SUITE.missing(data) == ""
    assert "a folder of data sets" in SUITE.missing(None)
    (data / "bfcl" / ANSWERS).unlink()
    assert ANSWERS in SUITE.missing(data)
    assert "ShishirPatil/gorilla" in SUITE.missing(data)
    with pytest.raises(WorkloadError, match="is not there"):
        SUITE.tasks(1, 1, data)


@pytest.mark.parametrize(
    ("questions", "answers", "why"),
    [
        ([question(0)], [answer(0), answer(1)], "has 1 lines"),
        ([question(0), question(1)], [answer(0), answer(2)], r"base.json:2: .*multi_turn_base_2"),
        ([question(0)], [answer(0, [["close_ticket(5)"]])], "2 turns, 1 in the ground truth"),
        ([question(0)], [answer(0, [["open('x')"], []])], "none of the task's classes"),
        ([question(0, involved_classes=["Unknown"])], [answer(0)], "Unknown"),
        ([{"id": "multi_turn_base_0"}], [answer(0)], "'"),
    ],
)
def test_bad_data_is_named_by_its_line(tmp_path, questions, answers, why):
    write(tmp_path, questions, answers)
    with pytest.raises(WorkloadError, match=why):
        SUITE.tasks(1, 1, tmp_path)


def test_a_line_that_is_no_json(data):
    with (data / "bfcl" / QUESTIONS).open("a") as file:
        file.write("\n{broken")
    with pytest.raises(WorkloadError, match=r"base\.json:4"):
        SUITE.tasks(1, 1, data)
    (data / "bfcl" / DOCS / "math_api.json").write_text('{"name": "add"}')
    with pytest.raises(WorkloadError, match=r"math_api\.json:1"):
        SUITE.tasks(1, 1, data)


def test_a_function_that_is_not_ours_is_named_by_its_line(data):
    (line,) = [json.dumps({**said, "name": "fly"}) for said in docs("MathAPI")]
    (data / "bfcl" / DOCS / "math_api.json").write_text(line)
    with pytest.raises(WorkloadError, match=r"math_api\.json:1: MathAPI has no function 'fly' here"):
        SUITE.tasks(1, 1, data)

"""Questions about ledgers: what is true is counted again here, from the text alone."""

import asyncio
from random import Random

import pytest

from workloads.agents.tasks.documents import SUITE
from workloads.agents.tasks.ledgers import KINDS, Entry, Found, Question, combine, find, ledgers, money, read

TASKS = SUITE.tasks(40, 9, None)


def recount(task):
    """Split lines by hand; floats are exact enough for cents."""
    kind, about = task.data["question"]
    rows = [
        line.split("; ")
        for text in task.data["documents"].values()
        for line in text.splitlines()
        if line.count(";") == 3 and line[0].isdigit()
    ]
    if kind == "total":
        return f"{sum(float(row[3]) for row in rows if row[1] == about):.2f}"
    if kind == "count":
        return str(len([row for row in rows if row[2] == about]))
    top = sorted(rows, key=lambda row: float(row[3]))[-1]
    return f"{top[1]}, {top[3]}"


def verdict(task, *answers):
    return asyncio.run(task.check(task.toolbox(None), answers))


def test_what_is_right_is_what_the_text_says():
    assert [task.right for task in TASKS] == [recount(task) for task in TASKS]
    assert {task.data["question"][0] for task in TASKS} == set(KINDS)


@pytest.mark.parametrize("task", TASKS[:12], ids=lambda task: task.name)
def test_only_the_right_answer_is_right(task):
    right = task.right
    assert verdict(task, f"Answer: {right}") == (True, "")
    assert verdict(task, f"I added it all up.\nANSWER : {right.lower()}.").success
    for wrong in ("", "Answer:", f"Answer: {right} or 7", "Answer: 1", f"{right}1", "Answer: none"):
        got = verdict(task, wrong)
        assert not got.success, wrong
        assert f"the ledgers say {right!r}" in got.why
    assert not verdict(task).success
    assert not verdict(task, f"Answer: {right}", "Answer: 3").success, "the last answer counts"


def test_the_largest_needs_its_payee():
    task = next(task for task in TASKS if task.data["question"][0] == "largest")
    payee, _, amount = task.right.rpartition(", ")
    assert verdict(task, f"Answer: {amount} to {payee}").success
    assert not verdict(task, f"Answer: {amount}").success
    assert not verdict(task, f"Answer: Nobody and Sons, {amount}").success


def test_thousands_may_be_set_apart():
    task = next(task for task in TASKS if task.data["question"][0] == "total" and float(task.right) > 1000)
    assert verdict(task, f"Answer: {float(task.right):,.2f}").success


def test_tasks_are_a_seeds_and_begin_alike():
    few = SUITE.tasks(3, 9, None)
    assert [(task.name, task.data) for task in few] == [(task.name, task.data) for task in TASKS[:3]]
    assert [task.data for task in few] != [task.data for task in SUITE.tasks(3, 10, None)]
    assert len({task.name for task in TASKS}) == 40
    assert all(4 <= len(task.data["documents"]) <= 8 for task in TASKS)
    assert SUITE.missing(None) == ""


def test_the_shelf_says_what_is_wrong():
    shelf = TASKS[0].toolbox(None)
    names = list(TASKS[0].data["documents"])

    def call(tool, **arguments):
        return asyncio.run(shelf.call(tool, arguments))

    assert call("list_documents").splitlines() == names
    assert call("read_document", name=names[0]) == TASKS[0].data["documents"][names[0]]
    near = f"x{names[0]}"
    assert f"there is no document {near!r}: did you mean {names[0]!r}?" in call("read_document", name=near)
    assert call("read_document") == "error: read_document needs the name of a document"
    assert "did you mean 'read_document'" in call("read_documents")


def test_a_reader_of_parts_finds_what_a_reader_of_all_does():
    rng = Random(3)
    for _ in range(60):
        entries = [entry for book in ledgers(rng, 3, 2, 9).values() for entry in book]
        for kind, about in (("total", entries[0].payee), ("count", entries[0].purpose), ("largest", "")):
            asked = Question(kind, about)
            cut = sorted(rng.sample(range(len(entries) + 1), 2))
            parts = [entries[: cut[0]], entries[cut[0] : cut[1]], entries[cut[1] :]]
            notes = [find(asked, part).note(kind) for part in parts]
            first = combine(asked, "\n".join(notes[:2])).note(kind)
            assert combine(asked, f"- {first}\n- {notes[2]}\n") == find(asked, entries)


def test_entries_are_read_as_they_are_written():
    entries = [entry for book in ledgers(Random(1), 10, 5, 5).values() for entry in book]
    text = "A heading; with; four; 1.00\n" + "\n".join(entry.line() for entry in entries) + "\nand more"
    assert read(text) == entries
    assert len({entry.cents for entry in entries}) == len(entries)
    assert read("2031-03-01; half a li") == []


def test_small_things():
    assert [money(cents) for cents in (5, 100, 123_456)] == ["0.05", "1.00", "1234.56"]
    assert find(Question("largest", ""), []) == Found(0)
    assert Found(0).note("largest") == "nothing in this part"
    assert find(Question("total", "A"), [Entry("d", "A", "x", 5), Entry("d", "B", "x", 6)]) == Found(5)

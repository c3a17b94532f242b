"""ReAct: turns, tools, budgets."""

import asyncio
from itertools import count

import pytest

from tests.scripted_chat import RoundsChat, ScriptedChat, say, worked
from workloads.agents.contract import Action, AgentError, Budget, BudgetUsed, Told, ToolCall, ToolSpec, Turn
from workloads.agents.contract import Verdict as Judged
from workloads.agents.react import AGENT, React
from workloads.agents.work import UNREADABLE, Work

ECHO = ToolSpec("echo", "Says it again.", {"type": "object", "properties": {"x": {"type": "string"}}})


class Echo:
    """``x`` comes back; ``slow`` never does, ``break`` raises."""

    specs = (ECHO,)

    def __init__(self):
        self.running = self.most = 0

    async def call(self, name, arguments):
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0)
            if name == "slow":
                await asyncio.Event().wait()
            if name == "break":
                raise OSError("gone")
            return f"{name}: {arguments.get('x')}"
        finally:
            self.running -= 1


class Talk:
    """Two turns; the first needs two tools at once, then one."""

    name, system, files, data = "talk", "Be kind.", {}, {}
    turns = ("first", "second")
    solution = (
        (
            Action("let me see", (("echo", {"x": "a"}), ("echo", {"x": "b"}))),
            Action("", (("echo", {"x": "c"}),)),
            Action("done"),
        ),
        (Action("done again"),),
    )

    def toolbox(self, sandbox):
        return Echo()

    async def check(self, toolbox, answers):
        return Judged(list(answers) == ["done", "done again"])


def test_a_conversation_grows_by_what_was_said():
    chat = ScriptedChat(AGENT.script(Talk(), 1))
    answers, verdict = worked(AGENT, Talk(), chat)
    assert (answers, verdict.success) == (["done", "done again"], True)
    assert [thread for thread, *_ in chat.asked] == ["main"] * 4
    lengths = [len(body["messages"]) for *_, body in chat.asked]
    assert lengths == [2, 5, 7, 9]
    last = chat.asked[-1][2]["messages"]
    assert [message["role"] for message in last] == [
        "system", "user", "assistant", "tool", "tool", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip
    for (*_, before), (*_, after) in zip(chat.asked, chat.asked[1:], strict=False):
        assert after["messages"][: len(before["messages"])] == before["messages"]
    called = last[2]["tool_calls"]
    assert [call["function"]["arguments"] for call in called] == ['{"x": "a"}', '{"x": "b"}']
    assert [message["tool_call_id"] for message in last[3:5]] == [call["id"] for call in called]
    assert [message["content"] for message in last[3:5]] == ["echo: a", "echo: b"]
    assert chat.asked[0][2]["tools"] == [ECHO.openai()]


def test_tools_of_one_reply_run_at_once_and_are_told_of():
    chat, told, tools = RoundsChat(AGENT.script(Talk(), 1)), Told(), Echo()
    seen = []
    told.tool = lambda *ran: seen.append(ran)
    worked(AGENT, Talk(), chat, told=told, toolbox=tools)
    assert tools.most == 2
    assert [(thread, name, ok) for thread, name, _, _, ok in seen] == [("main", "echo", True)] * 3
    assert all(begin <= end for _, _, begin, end, _ in seen)


def test_calls_are_counted():
    endless = ScriptedChat(say("", ToolCall("1", "echo", {"x": "y"})))
    with pytest.raises(BudgetUsed, match="its budget of 5 calls is used up"):
        worked(AGENT, Talk(), endless, budget=Budget(calls=5))
    assert len(endless.asked) == 5


def test_seconds_end_a_call_and_a_tool():
    class Stuck(ScriptedChat):
        async def wait(self):
            await asyncio.Event().wait()

    with pytest.raises(BudgetUsed, match=r"its budget of 0\.02 s is used up"):
        worked(AGENT, Talk(), Stuck(say("x")), budget=Budget(seconds=0.02))
    slow = ScriptedChat(say("", ToolCall("1", "slow", {})))
    with pytest.raises(BudgetUsed, match=r"its budget of 0\.02 s is used up"):
        worked(AGENT, Talk(), slow, budget=Budget(seconds=0.02))


def test_no_call_begins_when_the_time_is_up():
    clock = count(0.0, 1.0)
    chat = ScriptedChat(say("x"))

    async def ask():
        work = Work(chat, Echo(), Budget(seconds=1.5), Told(), lambda: next(clock))
        await work.ask([])
        with pytest.raises(BudgetUsed):
            await work.ask([])

    asyncio.run(ask())
    assert len(chat.asked) == 1


def test_a_tool_that_takes_too_long_is_text_for_the_model():
    def answer(thread, index, asked):
        return Turn("", (ToolCall("1", "slow", {}),)) if index == 0 else Turn("enough")

    seen, told, chat = [], Told(), ScriptedChat(answer)
    told.tool = lambda *ran: seen.append(ran)
    worked(AGENT, Talk(), chat, budget=Budget(tool_s=0.01), told=told)
    assert chat.asked[1][2]["messages"][-1]["content"] == "slow took longer than 0.01 s and was stopped"
    assert [ok for *_, ok in seen] == [False]


def test_a_tool_that_breaks_ends_the_program_and_is_told_of():
    seen, told = [], Told()
    told.tool = lambda *ran: seen.append(ran)
    chat, tools = ScriptedChat(say("", ToolCall("1", "slow", {}), ToolCall("2", "break", {}))), Echo()
    with pytest.raises(OSError, match="gone"):
        worked(AGENT, Talk(), chat, told=told, toolbox=tools)
    assert tools.running == 0
    assert sorted((name, ok) for _, name, _, _, ok in seen) == [("break", False), ("slow", False)]


def test_arguments_nobody_could_read_go_back_as_they_came():
    def answer(thread, index, asked):
        return Turn("", (ToolCall("1", "echo", {UNREADABLE: "{x"}),)) if index == 0 else Turn("done")

    chat = ScriptedChat(answer)
    worked(AGENT, Talk(), chat)
    assert chat.asked[1][2]["messages"][-2]["tool_calls"][0]["function"]["arguments"] == "{x"


def test_a_reply_has_its_limit():
    chat = ScriptedChat(say("x"))
    worked(React(max_tokens=77), Talk(), chat)
    assert {body["max_tokens"] for *_, body in chat.asked} == {77}


def test_a_script_knows_nothing_past_its_end():
    chat = ScriptedChat(AGENT.script(Talk(), 1))

    class Longer(Talk):
        turns = ("first", "second", "third")

    with pytest.raises(AgentError, match="the script of talk has 4 replies in thread main; call 4 of main"):
        worked(AGENT, Longer(), chat)

"""Whoever keeps KV over tools hears of them with the reply that asks for one."""

from types import SimpleNamespace

from bench.agents.away import Away, Heard
from tests.unit.bench.agents.runs import RUN, call
from workloads.agents.contract import ToolCall, Turn


def test_the_first_tool_of_a_scripted_turn_is_told_when_the_reply_is_over():
    turns = [Turn("", (ToolCall("a", "ls", {}), ToolCall("b", "rm", {})), 3), Turn("done", (), 2)]
    script = SimpleNamespace(turn=lambda thread, index, asked: turns[index])
    heard, said = Heard(), []
    away = Away(heard, lambda: SimpleNamespace(away=lambda *words: said.append(words)), RUN)
    scripts = heard.around({7: script})
    assert scripts[7].turn("main", 0, {}) == turns[0]
    assert said == []
    away.called(call(7, "main", 0, 0.0, 1.0))
    assert said == [(f"{RUN}.7", "main", 0, "ls")]
    scripts[7].turn("main", 1, {})
    away.called(call(7, "main", 1, 2.0, 3.0))
    scripts[7].turn("main", 0, {})
    away.called(call(7, "main", 0, 3.0, 4.0, outcome="cut"))
    assert len(said) == 1

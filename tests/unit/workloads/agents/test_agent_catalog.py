"""Names of agents and suites: found, near misses, from elsewhere, with parameters."""

import subprocess
import sys

import pytest

from workloads.agents import catalog
from workloads.agents.mcts import Mcts
from workloads.base import WorkloadError

OWN = """
from workloads.agents.react import React
from workloads.agents.tasks.game24 import Game24
class Mine(React):
    pass
AGENT, SUITE, LESS = Mine(), Game24(), object()
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_agents.py").write_text(OWN)
    (tmp_path / "own_broken.py").write_text("def (")
    monkeypatch.syspath_prepend(tmp_path)


def test_ours_are_found():
    assert {"react", "mapreduce", "mcts"} <= set(catalog.agent_names())
    assert {"documents", "game24"} <= set(catalog.suite_names())
    assert catalog.agent_names() == sorted(catalog.agent_names())
    assert catalog.suite_of(catalog.agent("mcts")).name == "game24"
    assert catalog.suite_of(catalog.agent("react"), "documents").name == "documents"


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: catalog.agent("reakt"), "no agent 'reakt': did you mean 'react'"),
        (lambda: catalog.suite("game42"), "no suite 'game42': did you mean 'game24'"),
        (lambda: catalog.agent("zzz"), "no agent 'zzz': known: "),
        (lambda: catalog.suite_of(catalog.agent("mcts"), "documents"), "agent mcts has no tasks 'documents'"),
        (lambda: catalog.suite_of(catalog.agent("mcts"), "dokuments"), "did you mean 'documents'"),
        (lambda: catalog.agent("no_such_module:AGENT"), "No module named 'no_such_module'"),
        (lambda: catalog.agent("own_agents:NONE"), "no attribute 'NONE'"),
        (lambda: catalog.agent("own_broken:AGENT"), "own_broken:AGENT: invalid syntax"),
        (lambda: catalog.agent("own_agents:LESS"), "own_agents:LESS is no Agent .*: it has no name"),
        (lambda: catalog.suite("own_agents:AGENT"), "own_agents:AGENT is no Suite"),
        (lambda: catalog.agent("own_agents:"), "own_agents:: "),
        (lambda: catalog.agent("mcts", {"widht": "3"}), "no parameter 'widht': did you mean 'width'"),
        (lambda: catalog.agent("mcts", {"name": "x"}), "no parameter 'name'"),
        (lambda: catalog.agent("mcts", {"width": "many"}), "width must be a whole number like 5, got 'many'"),
        (lambda: catalog.agent("mcts", {"width": "2.5"}), "width must be a whole number"),
        (lambda: catalog.agent("mcts", {"width": "true"}), "width must be a whole number"),
        (lambda: catalog.agent("mcts", {"width": "0"}), "agent mcts: width, iterations and depth must be"),
    ],
)
def test_what_is_wrong_is_said(own, ask, said):
    with pytest.raises(WorkloadError, match=said):
        ask()


def test_those_from_elsewhere_are_named_by_their_module(own):
    assert type(catalog.agent("own_agents:AGENT", {"max_tokens": "9"})).__name__ == "Mine"
    assert catalog.suite("own_agents:SUITE").name == "game24"
    assert catalog.suite_of(catalog.agent("mcts"), "own_agents:SUITE").name == "game24"


def test_parameters_take_the_kind_of_their_default():
    agent = catalog.agent("mcts", {"width": "3", "exploration": "2", "consistency": "1/4"})
    assert agent == Mcts(width=3, exploration=2.0, consistency=0.25)
    assert isinstance(agent.exploration, float)
    assert catalog.agent("mcts") == Mcts()


def test_a_file_that_cannot_be_loaded_is_skipped_unless_asked_for(tmp_path):
    """In a process of its own: what is found is kept for good."""
    (tmp_path / "half_written.py").write_text("AGENT = None / 0\n")
    code = (
        "import sys, workloads.agents as a; a.__path__.append(sys.argv[1])\n"
        "from workloads.agents import catalog as c\n"
        "print(c.agent_names())\n"
        "try: c.agent('half-written')\n"
        "except Exception as e: print(type(e).__name__, e)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "'react'" in done.stdout
    assert "WorkloadError workloads/agents/half_written.py cannot be loaded: TypeError" in done.stdout
    assert "warning: skipped workloads.agents.half_written: TypeError" in done.stderr


def test_react_takes_any_suite_and_text_that_looks_like_a_number():
    assert set(catalog.suites_of(catalog.agent("react"))) == set(catalog.suite_names())
    assert catalog.suites_of(catalog.agent("mcts")) == ("game24",)
    assert catalog._value("agent x", "mode", "3", {"mode": "raise"}) == "3"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: catalog.agent("react", {"max_tokens": "0"}), "max_tokens must be at least 1, got 0"),
        (lambda: catalog.agent("react:small"), "an agent has no presets; react is all there is to say"),
        (lambda: catalog.suite("repair:small"), "a suite has no presets"),
    ],
)
def test_what_it_says_of_more_mistakes(call, text):
    with pytest.raises(WorkloadError, match=text):
        call()

"""What a run of agents is asked to be: refused early where it cannot be, its address says all."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.agents import plan as plans
from bench.agents.drive import job_of
from bench.agents.options import AgentOptions
from bench.agents.plan import agent_plan, task_key
from bench.config import RunConfig
from bench.errors import Exit, MissingError, UsageError
from bench.live.deployment import tiny_model

pytestmark = pytest.mark.usefixtures("agents")


def test_defaults_are_said(config):
    plan = agent_plan(config(n=None))
    assert (plan.config.n, plan.config.concurrency) == (24, 8)
    assert plan.config.limits() == {
        "kv_blocks": 4096, "max_num_seqs": 8, "max_num_batched_tokens": 2048, "max_model_len": 32768,
    }  # fmt: skip
    assert plan.asked.scripted
    assert plan.load == "24 programs, 8 at all times"
    assert tiny_model(plan).context == 32768
    assert agent_plan(plan.config).cell == plan.cell  # what is said is what was meant


def test_what_decides_is_in_the_address(config):
    base = agent_plan(config())
    told = base.identity["agents"]
    assert (told["agent"], told["suite"], told["llm"], told["sandbox"]) == ("react", "game24", "scripted", "")
    others = {
        "seed": config(seed=2),
        "tasks": config(parameters={"tasks": "documents"}),
        "calls": config(parameters={"tasks": "game24", "calls": "7"}),
        "llm": config(parameters={"tasks": "game24", "llm": "model"}),
        "agent": config(workload="agents:mcts"),
        "tool parser": config(knobs={"live.front": "none", "live.tool_parser": "hermes"}),
        "system": config(system="atlas"),
    }
    cells = {name: agent_plan(other) for name, other in others.items()}
    assert len({plan.cell for plan in (base, *cells.values())}) == len(cells) + 1
    same = cells["system"].identity
    assert (same["programs"], same["workload"]) == (base.identity["programs"], base.identity["workload"])
    assert cells["seed"].identity["programs"] != base.identity["programs"]
    assert cells["seed"].identity["workload"] == base.identity["workload"]
    assert cells["llm"].identity["workload"] != base.identity["workload"]


def test_the_sandbox_is_part_of_the_address_but_not_of_the_workload(config):
    plans_of = [
        agent_plan(config(parameters={"tasks": "repair", "sandbox": k})) for k in ("process", "bwrap")
    ]
    first, second = (plan.identity for plan in plans_of)
    assert first["workload"] == second["workload"]
    assert first["agents"]["sandbox"] == "process"
    assert plans_of[0].cell != plans_of[1].cell
    assert "tools in bwrap" in plans_of[1].badge


def test_limits_of_sandboxes_reach_the_host_and_the_address(config):
    asked = {"tasks": "repair", "sandbox": "process"}
    own = {"ports": "2", "memory_mb": "512", "network": "true", "share": "3"}
    first, second = (agent_plan(config(parameters={**asked, **more})) for more in ({}, own))
    assert first.identity["agents"]["limits"] == {"ports": 1, "share": 1}
    limits = {"ports": 2, "memory_mb": 512, "network": True}
    assert second.identity["agents"]["limits"] == {**limits, "share": 3}
    assert first.identity["workload"] == second.identity["workload"]
    assert first.cell != second.cell
    job = job_of(second, "url", "name", Path("boxes"))
    assert (job.limits, job.share) == (limits, 3)
    assert "limits" not in agent_plan(config()).identity["agents"]
    docker = AgentOptions.of(
        config(parameters={**asked, "sandbox": "docker", "image": "i:1", "disk_mb": "9"})
    )
    assert docker.limits == {"ports": 1, "image": "i:1", "disk_mb": 9}


def test_a_task_is_known_by_its_content(config):
    first, second = agent_plan(config(n=2)).tasks
    assert task_key(first) != task_key(second)
    assert task_key(first) == task_key(agent_plan(config(n=2)).tasks[0])


def test_scripts_are_of_the_seed_and_only_where_they_answer(config):
    assert sorted(agent_plan(config()).scripts()) == [0, 1, 2]
    assert agent_plan(config(parameters={"tasks": "game24", "llm": "model"})).scripts() == {}
    assert agent_plan(config()).tools == "told"
    assert agent_plan(config(parameters={"tasks": "game24", "llm": "model"})).tools == "reply"


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"workload": "agents"}, r"which agent\? .*agents:react"),
        ({"workload": "agents:"}, r"which agent\? .*agents:mcts \(game24\)"),
        ({"workload": "agents:reakt"}, "did you mean 'react'"),
        ({"rate": 1.0}, "closed loop"),
        ({"n": None, "horizon": 3.0}, "closed loop"),
        ({"concurrency": 9}, "needs at least as many programs; --n is 3"),
        ({"on_overflow": "skip"}, "--on-overflow is for programs that are known before"),
        ({"parameters": {"tasks": "bflc"}}, "bfcl"),
        ({"parameters": {"sandbox": "bwarp", "tasks": "repair"}}, "bwrap"),
        ({"parameters": {"llm": "mdel"}}, "model"),
        ({"parameters": {"calls": "0"}}, "-p calls must be a whole number of calls above 0, got '0'"),
        ({"parameters": {"tool_s": "nan"}}, "-p tool_s must be a number of seconds above 0"),
        ({"parameters": {"data": "/nowhere/at/all"}}, "there is no such folder"),
        ({"parameters": {"ports": "-1"}}, "-p ports must be a whole number of ports, 0 or more, got '-1'"),
        ({"parameters": {"memory_mb": "32"}}, "-p memory_mb must be a whole number of MiB, 64 or more"),
        ({"parameters": {"disk_mb": "x"}}, "-p disk_mb must be a whole number of MiB, 1 or more, got 'x'"),
        ({"parameters": {"disk_mb": "9", "sandbox": "process"}}, "process cannot limit its disk"),
        ({"parameters": {"image": "x"}}, "-p image=x: bwrap has no images: take -p sandbox=docker"),
        ({"parameters": {"network": "yes"}}, "-p network must be true or false, got 'yes'"),
        ({"parameters": {"share": "0"}}, "-p share must be a whole number of programs, 1 or more"),
        ({"parameters": {"colour": "red"}}, "no parameter 'colour'"),
        ({"knobs": {"live.front": "none", "retention": "pin"}}, "acts in our gateway"),
        ({"knobs": {"cost.per_hour": "cheap"}}, "cost.per_hour must be what an engine costs an hour"),
        ({"engine": "sim", "knobs": {}}, "--engine vllm; to simulate agents, record a run"),
    ],
)
def test_what_cannot_be_is_refused(config, own, said):
    with pytest.raises(UsageError, match=said) as found:
        agent_plan(config(**own))
    assert found.value.exit_code == Exit.USAGE


def test_what_is_not_here_is_missing(config, monkeypatch):
    with pytest.raises(MissingError, match="-p tasks=bfcl: "):
        agent_plan(config(parameters={"tasks": "bfcl"}))
    kind = type("Kind", (), {"missing": lambda self: "no bwrap here"})()
    monkeypatch.setattr(plans, "sandbox_kind", lambda name: kind)
    with pytest.raises(MissingError, match="-p sandbox=bwrap: no bwrap here"):
        agent_plan(config(parameters={"tasks": "repair"}))


def test_a_price_is_for_agents_and_decides_no_result(config):
    priced = config(knobs={"live.front": "none", "cost.per_hour": "2.5"})
    assert agent_plan(priced).cell == agent_plan(config()).cell
    with pytest.raises(UsageError, match="is for agents"):
        RunConfig("vllm-opt", "chatbot", knobs={"cost.per_hour": "1"})


def test_options_leave_the_agents_own_parameters_to_it(config):
    own = replace(config(), parameters={"tasks": "game24", "calls": "5", "width": "3"})
    asked = AgentOptions.of(own)
    assert asked.budget.calls == 5
    assert asked.parameters == {"width": "3"}
    assert asked.data is None
    assert AgentOptions.of(replace(own, parameters={"data": "."})).data == Path().resolve()
    assert not AgentOptions.of(replace(own, model="elsewhere", parameters={})).scripted

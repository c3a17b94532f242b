"""mini-swe-agent as a guest: its own agent, model and prompts; its commands run in our sandbox.

Nothing of it is patched. What it is given: the model behind the program's URL (through litellm, as its users
do), an environment (its interface for where commands run) and limits. It has one tool, ``bash``, and ends
itself by a command, so a task's solution is told in shell lines (``shell_line``).
"""

from __future__ import annotations

import contextlib
import platform
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from workloads.agents.contract import (
    MAIN,
    Action,
    AgentError,
    Budget,
    BudgetUsed,
    Chat,
    Script,
    Task,
    Told,
    Toolbox,
    ToolCall,
    Turn,
)
from workloads.agents.scripts import ACTION, lengthened
from workloads.agents.tasks.repair_tools import shell_line
from workloads.agents.threads import Door, behind_door
from workloads.sandboxes.contract import Executed, Sandbox

SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""A command whose output begins with this ends the run (mini-swe-agent, ``environments/local.py``)."""
ATTEMPTS = 3
"""At a call, before it gives up; its own default of 10 would wait for minutes where an engine is gone."""


@dataclass(frozen=True)
class MiniSwe:
    """mini-swe-agent's ``DefaultAgent`` with its configuration ``mini.yaml``."""

    name: str = field(default="mini-swe", init=False)
    suites: tuple[str, ...] = field(default=("repair",), init=False)
    needs: tuple[str, ...] = field(default=("minisweagent", "litellm"), init=False)
    threads: bool = field(default=False, init=False)

    def environment(self, folder: Path) -> dict[str, str]:
        """No look-ups on the network, no prices, no banner, no settings of the user's."""
        return {
            "MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_SILENT_STARTUP": "1",
            "MSWEA_GLOBAL_CONFIG_DIR": str(folder), "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": str(ATTEMPTS),
        }  # fmt: skip

    def warm(self) -> None:
        """litellm imports a good part of itself (.4 s) at its first call: this one, which nobody answers."""
        import litellm
        import minisweagent.agents.default
        import minisweagent.models.litellm_model  # noqa: F401

        litellm.suppress_debug_info = True
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{nobody.getsockname()[1]}/v1"
            with contextlib.suppress(Exception):
                litellm.completion("openai/m", [], api_base=url, api_key="none", max_retries=0, timeout=5.0)

    def script(self, task: Task, seed: int) -> Script:
        """The task's solution in shell lines, then the command by which the guest ends."""
        return Commands(task, seed)

    async def run(self, task: Task, chat: Chat, toolbox: Toolbox, budget: Budget, told: Told) -> list[str]:
        """What it says as it submits. Raises AgentError, SandboxError."""
        sandbox: Sandbox | None = getattr(toolbox, "sandbox", None)
        if sandbox is None or len(task.turns) != 1:
            raise AgentError(f"mini-swe-agent works in a sandbox, on tasks of one turn; {task.name} is none")
        shell = Shell(sandbox, budget, told)
        return [await behind_door(lambda door: solve(task, chat, shell, door, budget, told))]


class Commands:
    """A solution as the guest's dialogue: call i is answered by the bash calls of action i."""

    def __init__(self, task: Task, seed: int) -> None:
        self._name = task.name
        self._seed = seed
        actions = [action for actions in task.solution for action in actions]
        self._turns = [_spoken(action, i) for i, action in enumerate(actions)]

    def turn(self, thread: str, index: int, asked: Mapping[str, Any]) -> Turn:
        """Raises AgentError past the end, or in another thread."""
        if thread != MAIN or not 0 <= index < len(self._turns):
            raise AgentError(
                f"the script of {self._name} has {len(self._turns)} replies in thread {MAIN}; "
                f"call {index} of {thread} is none of them"
            )
        return lengthened(self._turns[index], ACTION, asked, self._seed, self._name, thread, index)


def _spoken(action: Action, index: int) -> Turn:
    lines = [shell_line(name, arguments) for name, arguments in action.calls] or [f"echo {SUBMIT}"]
    calls = (ToolCall(f"call_{index}_{i}", "bash", {"command": line}) for i, line in enumerate(lines))
    return Turn(action.text, tuple(calls))


class Shell:
    """Where the guest's commands run, on our side: in the loop, timed, limited, told of."""

    def __init__(self, sandbox: Sandbox, budget: Budget, told: Told) -> None:
        self.limit_s = budget.tool_s
        self._sandbox = sandbox
        self._told = told

    async def run(self, command: str, cwd: str) -> Executed:
        """Raises SandboxError."""
        begin, ok = time.monotonic(), False
        try:
            done = await self._sandbox.exec(command, timeout_s=self.limit_s, cwd=cwd)
            ok = not done.timed_out
            return done
        finally:
            self._told.tool(MAIN, "bash", begin, time.monotonic(), ok)


class Environment:
    """The same on the guest's side (``minisweagent.Environment``); in the guest's thread."""

    def __init__(self, shell: Shell, door: Door, variables: Mapping[str, str]) -> None:
        self.config = SimpleNamespace(timeout=shell.limit_s, env=dict(variables))
        self._shell = shell
        self._door = door

    def execute(self, action: dict[str, Any], cwd: str = "") -> dict[str, Any]:
        """Raises its ``Submitted`` for the command that ends the run."""
        exports = "".join(f"export {name}='{value}'; " for name, value in self.config.env.items())
        done = self._door.wait(self._shell.run(exports + action.get("command", ""), cwd))
        if done.timed_out:
            why = f"the command took more than {self._shell.limit_s:g} seconds and was killed"
            return {"output": done.output, "returncode": -1, "exception_info": why}
        first, _, rest = done.output.lstrip().partition("\n")
        if first.strip() == SUBMIT and done.code == 0:
            from minisweagent.exceptions import Submitted

            extra = {"exit_status": "Submitted", "submission": rest}
            raise Submitted({"role": "exit", "content": rest, "extra": extra})
        return {"output": done.output, "returncode": done.code, "exception_info": ""}

    def get_template_vars(self, **more: Any) -> dict[str, Any]:
        """What its prompts are filled with; of the system, as its other environments do."""
        return {**vars(self.config), **platform.uname()._asdict(), **more}

    def serialize(self) -> dict[str, Any]:
        """For a trajectory, which we do not keep."""
        return {"info": {"config": {"environment": vars(self.config)}}}


def solve(task: Task, chat: Chat, shell: Shell, door: Door, budget: Budget, told: Told) -> str:
    """The guest's run, in a thread. Raises AgentError."""
    import openai
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.config import get_config_from_spec

    config = get_config_from_spec("mini.yaml")
    templates = {name: config["agent"][name] for name in ("system_template", "instance_template")}
    agent = DefaultAgent(
        model(chat, budget, config["model"]), Environment(shell, door, config["environment"]["env"]),
        **templates, step_limit=budget.calls, cost_limit=0.0, wall_time_limit_seconds=0,
    )  # fmt: skip
    try:
        ended = agent.run("\n\n".join(filter(None, [task.system, *task.turns])))
    except openai.APIError as error:  # litellm's are of this class
        raise AgentError(f"call {agent.n_calls - 1}: {' '.join(str(error).split())}") from None
    told.notes.update(exit_status=ended.get("exit_status", ""), calls=agent.n_calls)
    if ended.get("exit_status") == "LimitsExceeded":
        raise BudgetUsed(f"its budget of {budget.calls} calls is used up")
    return last_words(agent.messages)


def model(chat: Chat, budget: Budget, config: Mapping[str, Any]) -> Any:
    """Its ``LitellmModel`` behind the program's URL, greedy."""
    from minisweagent.models.litellm_model import LitellmModel

    where = {"api_base": chat.url, "api_key": chat.key or "none", "temperature": 0.0}
    kwargs = {**config["model_kwargs"], **where, "timeout": budget.seconds}
    return LitellmModel(**{**config, "model_kwargs": kwargs}, model_name=f"openai/{chat.model}")


def last_words(messages: Sequence[Mapping[str, Any]]) -> str:
    """What the model said last."""
    said = (message.get("content") for message in reversed(messages) if message.get("role") == "assistant")
    return next(said, None) or ""


AGENT = MiniSwe()

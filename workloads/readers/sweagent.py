"""Reads SWE-agent trajectories: one ``.traj`` (a JSON object) is one run of an agent.

A run is a program: a call for every message of the assistant in ``history`` that is no
demonstration. Its prompt is what the model saw: ``query`` of the step where the file has it, else
the history before, in which old observations are elided if the run's configuration says that
the agent did so (``last_n_observations``: then a prompt does not continue the one before).

The tool of a step takes its ``execution_time``; old files have none. The system prompt and the
demonstrations behind it are shared by all runs that have them. Token totals in
``info.model_stats`` win over lengths counted from the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workloads.base import ProgramSet, WorkloadError
from workloads.collect import Collector, heads
from workloads.files import Fields, brief
from workloads.keys import key_of
from workloads.tokens import Counter, Scaled
from workloads.transcript import MODEL, SYSTEM, Message, Prompts, Thread, role_of, structure, text_of

NO_TIMES = "no times of tools in the file, 0 taken"
SOME_TIMES = "steps without execution_time, 0 taken"
ELIDED = "old observations elided, as the configuration says"
SCALED = "lengths scaled to the totals in model_stats"
IMPOSSIBLE = "totals in model_stats that the messages cannot have, not used"
NO_PROMPT = "step with an empty query left out"
BLANK = "blank message left out"
UNANSWERED = "last messages without a reply left out"
_WANTED = "a trajectory is an object with trajectory[] and history[]"


class SweAgentReader:
    """A ``.traj`` file, or a folder of them."""

    name = "sweagent"
    parameters = ("tokenizer",)

    def sniff(self, path: Path) -> str | None:
        """Why this looks like a SWE-agent run."""
        for text in heads(path, (".traj",)):
            if text[:1] == b"{" and all(
                word in text for word in (b'"trajectory"', b'"observation"', b'"action"')
            ):
                return "an object with trajectory[] of actions and observations"
        return None

    def read(
        self, path: Path, *, max_model_len: int, on_overflow: str, parameters: Mapping[str, str] = {}
    ) -> ProgramSet:
        """Replay programs. Raises WorkloadError with file and field, NothingLeft if no run is left."""
        found = Collector(path, self.name, max_model_len, on_overflow, parameters)
        strangers = 0
        for place, record in found.records((".traj",), f"empty: {_WANTED}"):
            if not isinstance(record, dict) or not isinstance(record.get("history"), list):
                strangers += 1
                found.skip(f"not a trajectory ({_WANTED})", place)
                continue
            _run(found, place.removesuffix(":1"), record)
        if strangers and strangers == found.read:
            raise WorkloadError(f"{path.name}: no trajectory: {_WANTED}")
        return found.result("trajectory")


@dataclass(slots=True)
class _Step:
    """A call as recorded: the prompt the model saw, and the tool that followed."""

    prompt: list[Message]
    reply: Message
    goes_on: bool
    tool: str = "tool"
    seconds: float | None = None


@dataclass(slots=True)
class _Run:
    """What one file says."""

    place: str
    row: Fields
    fixes: list[str] = field(default_factory=list)

    def steps(self) -> list[_Step]:
        """The calls in order."""
        rows = [
            Fields(value, f"{self.place}.trajectory[{i}]")
            for i, value in enumerate(self.row.items("trajectory"))
        ]
        steps = self.queried(rows) if rows and all(row.has("query") for row in rows) else self.told()
        return self.timed(steps, rows)

    def queried(self, rows: list[Fields]) -> list[_Step]:
        """The file keeps what was sent."""
        steps = []
        for row in rows:
            prompt = [message for message, _ in self.messages(row.items("query"), f"{row.where}.query")]
            if prompt:
                steps.append(_Step(prompt, Message(MODEL, row.text("response").strip()), False))
            else:
                self.fixes.append(NO_PROMPT)
        return steps

    def told(self) -> list[_Step]:
        """The file keeps the conversation."""
        newest, steps = self.observations_kept(), []
        history: list[tuple[Message, bool]] = []
        seen = 0
        for message, observation in self.messages(self.row.items("history"), f"{self.place}.history"):
            if message.role == MODEL and history:
                if newest is None:
                    steps.append(_Step([m for m, _ in history[seen:]], message, seen > 0))
                else:
                    steps.append(_Step(self.elided(history, newest), message, False))
                seen = len(history) + 1
            history.append((message, observation))
        if len(history) > seen:
            self.fixes.append(UNANSWERED)
        return steps

    def messages(self, values: list[Any], where: str) -> list[tuple[Message, bool]]:
        """(message, is it an observation) of those that say something; demonstrations are SYSTEM's."""
        found = []
        for i, value in enumerate(values):
            role = role_of(value.get("role")) if isinstance(value, dict) else None
            if role is None:
                raise WorkloadError(f"{where}[{i}]: expected a message with a known role, got {brief(value)}")
            demonstration = bool(value.get("is_demo")) or value.get("message_type") == "demonstration"
            message = Message(SYSTEM if demonstration else role, text_of(value))
            if not message.text and message.role != MODEL:
                self.fixes.append(BLANK)
                continue
            observation = value.get("message_type") == "observation" and not demonstration
            found.append((message, observation))
        return found

    def observations_kept(self) -> int | None:
        """How many of the last observations the agent kept whole; None if all."""
        config = structure(self.row.values.get("replay_config"))
        agent = structure(config.get("agent")) if isinstance(config, dict) else None
        if not isinstance(agent, dict):
            return None
        processors = agent.get("history_processors") or [agent.get("history_processor")]
        for processor in processors if isinstance(processors, list) else []:
            if isinstance(processor, dict) and processor.get("type") == "last_n_observations":
                n = processor.get("n")
                if type(n) is int and n > 0:
                    return n
        return None

    def elided(self, history: Sequence[tuple[Message, bool]], newest: int) -> list[Message]:
        """The history with all observations but the first (the task) and the newest replaced by a line."""
        places = [i for i, (_, observation) in enumerate(history) if observation]
        old = set(places[1 : max(1, len(places) - newest)])
        if old:
            self.fixes.append(ELIDED)
        return [
            Message(m.role, f"Old environment output: ({m.text.count(chr(10)) + 1} lines omitted)")
            if i in old
            else m
            for i, (m, _) in enumerate(history)
        ]

    def timed(self, steps: list[_Step], rows: list[Fields]) -> list[_Step]:
        """The steps with tool and time of the trajectory's entry that has their reply."""
        at = 0
        for step in steps:
            said = step.reply.text.partition("\n")[0]
            match = next((i for i in range(at, min(at + 5, len(rows))) if _same(rows[i], said)), None)
            if match is not None:
                action = rows[match].values.get("action")
                step.tool = (action.split() or ["tool"])[0][:40] if isinstance(action, str) else "tool"
                step.seconds = rows[match].seconds("execution_time")
                at = match + 1
        missing = [step for step in steps if step.seconds is None]
        if missing:
            self.fixes.append(NO_TIMES if len(missing) == len(steps) else SOME_TIMES)
        return steps

    def model(self) -> str:
        """The model's name, if the file has it."""
        value = structure(self.row.values.get("replay_config"))
        for name in ("agent", "model", "name"):
            value = structure(value.get(name)) if isinstance(value, dict) else None
        return value if isinstance(value, str) else ""


def _same(row: Fields, said: str) -> bool:
    response = row.values.get("response")
    return isinstance(response, str) and response.strip().partition("\n")[0] == said


def _run(found: Collector, place: str, record: dict[str, Any]) -> None:
    run = _Run(place, Fields(record, place))
    steps = run.steps()
    if not any(step.prompt for step in steps):
        found.skip("no reply of the model to anything", place)
        return
    thread = _written(found.counter, place, steps, run.model(), run.fixes, 1.0)
    sent, received = _totals(run.row)
    if sent or received:
        thread = _scaled(found.counter, place, steps, run, thread, sent, received)
    for fix in dict.fromkeys(run.fixes):
        found.repair(fix, place)
    found.add(thread.script, place, estimated=thread.prompts.estimated)


def _written(
    counter: Counter, place: str, steps: list[_Step], model: str, fixes: list[str], replies: float
) -> Thread:
    """The run as calls and tools; ``replies`` scales the replies' lengths."""
    thread = Thread(Prompts(key_of("sweagent", place), counter), fixes.append)
    for step in steps:
        reply = step.reply
        if replies != 1.0 and reply.text:
            reply = Message(MODEL, reply.text, max(1, round(replies * counter.count(reply.text))))
        thread.call(step.prompt, reply, model=model, goes_on=step.goes_on)
        thread.tool(step.tool, step.seconds or 0.0)
    return thread


def _totals(row: Fields) -> tuple[int, int]:
    info = row.values.get("info")
    stats = info.get("model_stats") if isinstance(info, dict) else None
    if not isinstance(stats, dict):
        return 0, 0
    fields = Fields(stats, f"{row.where}.info.model_stats")
    return fields.integer("tokens_sent", default=0), fields.integer("tokens_received", default=0)


def _scaled(
    counter: Counter, place: str, steps: list[_Step], run: _Run, thread: Thread, sent: int, received: int
) -> Thread:
    """The run again, with lengths that add up to the file's totals."""
    calls = list(thread.script.calls())
    replied = sum(op.output_tokens for op in calls)
    replies = received / replied if received else 1.0
    told = {op.output_id for op in calls}
    again = sum(length for op in calls for name, length in op.prompt() if name in told)
    asked = sum(op.prompt_tokens for op in calls) - again
    prompts = (sent - replies * again) / asked if sent else 1.0
    if not 0.2 < replies < 5 or not 0.2 < prompts < 5:
        run.fixes.append(IMPOSSIBLE)
        return thread
    run.fixes.append(SCALED)
    return _written(Scaled(counter, prompts), place, steps, run.model(), [], replies / prompts)


READER = SweAgentReader()

"""Spans of OpenTelemetry as they are found in files, with the attributes of generative AI.

Forms: OTLP exports (``resourceSpans``), flat objects with ``spans[]``, and spans by themselves
(as the SDK's console exporter writes them). Names of attributes changed over time: the
current semantic conventions are asked first, then the older ones and OpenLLMetry's and
OpenInference's numbered attributes. Messages are lists, or strings of JSON or of Python literals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from workloads.base import WorkloadError
from workloads.files import Fields, brief
from workloads.transcript import (
    MODEL,
    SYSTEM,
    USER,
    Message,
    compact,
    nanoseconds,
    role_of,
    structure,
    text_of,
)

CALL, TOOL, GROUP = "call", "tool", "group"
_OPERATIONS = {
    **dict.fromkeys(("chat", "text_completion", "generate_content", "completion", "llm"), CALL),
    **dict.fromkeys(("execute_tool", "tool", "embeddings", "embedding", "retriever", "retrieval"), TOOL),
    **dict.fromkeys(("invoke_agent", "create_agent", "agent", "chain", "workflow", "invoke_workflow"), GROUP),
}
_KINDS = ("gen_ai.operation.name", "openinference.span.kind", "traceloop.span.kind", "llm.request.type")
_INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt",
          "llm.usage.prompt_tokens")  # fmt: skip
_OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion",
           "llm.usage.completion_tokens")  # fmt: skip
_TOOLS = ("gen_ai.tool.definitions", "gen_ai.request.tools", "llm.request.functions", "llm.tools")
_SESSIONS = ("gen_ai.conversation.id", "session.id", "exgentic.session.id", "gen_ai.session.id")
_MODELS = ("gen_ai.request.model", "gen_ai.response.model", "llm.model_name")
_ASKED = ("gen_ai.input.messages", "gen_ai.prompt", "gen_ai.request.messages", "llm.prompts", "input.value")
_SAID = ("gen_ai.output.messages", "gen_ai.output.text", "gen_ai.completion", "llm.completions",
         "output.value")  # fmt: skip
_NUMBERED = (("gen_ai.prompt.", "gen_ai.completion.", ""),
             ("llm.input_messages.", "llm.output_messages.", "message."))  # fmt: skip


@dataclass(slots=True, eq=False)
class Span:
    """One span; times in nanoseconds, None if they are not recorded."""

    where: str
    trace: str
    id: str
    parent: str
    name: str
    start: int | None
    end: int | None
    attributes: dict[str, Any]
    failed: bool = False
    kind: str = GROUP
    children: list[Span] = field(default_factory=list)

    @property
    def model(self) -> str:
        """The model asked."""
        value = self._first(_MODELS)
        return value if isinstance(value, str) else ""

    @property
    def session(self) -> str:
        """The conversation it says it belongs to."""
        value = self._first(_SESSIONS)
        return str(value) if value is not None else ""

    @property
    def means_something(self) -> bool:
        """Whether it says what kind of operation it is."""
        return any(str(self.attributes.get(name)).lower() in _OPERATIONS for name in _KINDS)

    def tokens(self) -> tuple[int | None, int | None]:
        """(prompt, reply) as recorded."""
        return self._count(_INPUT), self._count(_OUTPUT)

    def asked(self) -> list[Message]:
        """The prompt, if it is recorded."""
        found = [
            Message(SYSTEM, compact(structure(value)))
            for name in _TOOLS
            if (value := self.attributes.get(name))
        ]
        system = structure(self.attributes.get("gen_ai.system_instructions"))
        if system:
            found.append(Message(SYSTEM, text_of({"content": system})))
        return [m for m in (*found[:2], *self._messages(_ASKED, 0)) if m.text]

    def said(self) -> str:
        """The reply, if it is recorded."""
        return "\n".join(message.text for message in self._messages(_SAID, 1) if message.text)

    def _first(self, names: tuple[str, ...]) -> Any:
        return next((self.attributes[name] for name in names if self.attributes.get(name) is not None), None)

    def _count(self, names: tuple[str, ...]) -> int | None:
        name = next((name for name in names if self.attributes.get(name) is not None), None)
        if name is None:
            return None
        value = self.attributes[name]
        if isinstance(value, str) and value.isdecimal() and len(value) < 16:
            value = int(value)
        row = Fields({name: value}, f"{self.where}.attributes")
        return row.integer(name, high=1 << 22)

    def _messages(self, names: tuple[str, ...], which: int) -> list[Message]:
        value = structure(self._first(names))
        if value is None:
            return self._numbered(which)
        if isinstance(value, dict):
            value = value.get("messages", value.get("choices", [value]))
        if isinstance(value, list):
            return [self._message(row, which) for row in value]
        return [Message((USER, MODEL)[which], str(value).strip())]

    def _message(self, row: object, which: int) -> Message:
        row = structure(row)
        if isinstance(row, str):
            return Message((USER, MODEL)[which], row.strip())
        if not isinstance(row, dict):
            raise WorkloadError(f"{self.where}: expected a message, got {brief(row)}")
        inner = row.get("message", row.get("data"))
        row = inner if isinstance(inner, dict) else row
        role = role_of(row.get("role", row.get("type"))) or (USER, MODEL)[which]
        return Message(role, text_of({**row, "content": structure(row.get("content"))}))

    def _numbered(self, which: int) -> list[Message]:
        """``gen_ai.prompt.0.content`` and the like."""
        for form in _NUMBERED:
            prefix, inside = form[which], form[2]
            found: list[Message] = []
            while any(
                f"{prefix}{len(found)}.{inside}{part}" in self.attributes for part in ("role", "content")
            ):
                start = f"{prefix}{len(found)}.{inside}"
                rest = {k.removeprefix(start): v for k, v in self.attributes.items() if k.startswith(start)}
                calls = sorted(k for k in rest if k.startswith("tool_calls."))
                text = [text_of({"content": rest.get("content")}), *(str(rest[k]) for k in calls)]
                role = role_of(rest.get("role")) or (USER, MODEL)[which]
                found.append(Message(role, "\n".join(part for part in text if part)))
            if found:
                return found
        return []


def spans(value: object, where: str) -> Iterator[Span]:
    """The spans of one document: an export, an object with spans[], or a span.

    Raises WorkloadError for anything else.
    """
    document = Fields(value, where)
    batches = next((n for n in ("resourceSpans", "resource_spans", "batches") if n in document.values), None)
    if batches is not None:
        for i, batch in enumerate(document.items(batches)):
            yield from _batch(Fields(batch, f"{where}.{batches}[{i}]"))
    elif "spans" in document.values:
        trace = document.text("trace_id")
        for i, row in enumerate(document.items("spans")):
            yield _span(Fields(row, f"{where}.spans[{i}]"), trace)
    elif "attributes" in document.values:
        yield _span(document, "")
    else:
        raise WorkloadError(
            f"{where}: expected resourceSpans[], spans[] or a span, got {brief(sorted(document.values))}"
        )


def _batch(batch: Fields) -> Iterator[Span]:
    names = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")
    for name in names:
        for i, scope in enumerate(batch.items(name)):
            rows = Fields(scope, f"{batch.where}.{name}[{i}]")
            for k, row in enumerate(rows.items("spans")):
                yield _span(Fields(row, f"{rows.where}.spans[{k}]"), "")


def _span(row: Fields, trace: str) -> Span:
    context = row.values.get("context")
    ids = {**row.values, **(context if isinstance(context, dict) else {})}
    attributes = _attributes(row.values.get("attributes"), row.where)
    for event in row.items("events"):
        if isinstance(event, dict):
            attributes = {**_attributes(event.get("attributes"), row.where), **attributes}
    status = row.values.get("status")
    code = status.get("code", status.get("status_code")) if isinstance(status, dict) else None
    span = Span(
        row.where, _text(ids, "trace_id", "traceId") or trace, _text(ids, "span_id", "spanId"),
        _text(ids, "parent_span_id", "parentSpanId", "parent_id"), _text(ids, "name"),
        nanoseconds(_any(row.values, "start_time", "startTimeUnixNano", "start_time_unix_nano", "startTime")),
        nanoseconds(_any(row.values, "end_time", "endTimeUnixNano", "end_time_unix_nano", "endTime")),
        attributes, code in (2, "ERROR", "STATUS_CODE_ERROR"),
    )  # fmt: skip
    span.kind = _kind(attributes)
    return span


def _any(row: dict[str, Any], *names: str) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _text(row: dict[str, Any], *names: str) -> str:
    value = _any(row, *names)
    return value if isinstance(value, str) else "" if value is None else str(value)


def _kind(attributes: dict[str, Any]) -> str:
    for name in _KINDS:
        value = attributes.get(name)
        if isinstance(value, str) and value.lower() in _OPERATIONS:
            return _OPERATIONS[value.lower()]
    counted = any(attributes.get(name) is not None for name in (*_INPUT, *_OUTPUT))
    return CALL if counted or "gen_ai.input.messages" in attributes else GROUP


def _attributes(value: object, where: str) -> dict[str, Any]:
    """An object, or OTLP's list of keys with typed values."""
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    if not isinstance(value, list):
        raise WorkloadError(f"{where}.attributes: expected an object or a list, got {brief(value)}")
    rows = [row for row in value if isinstance(row, dict) and isinstance(row.get("key"), str)]
    return {row["key"]: _value(row.get("value")) for row in rows}


def _value(value: object) -> Any:
    """A value of OTLP: ``{"stringValue": ...}``, lists and maps of them."""
    if not isinstance(value, dict) or len(value) != 1:
        return value
    ((kind, inner),) = value.items()
    if kind in ("arrayValue", "array_value"):
        rows = inner.get("values") if isinstance(inner, dict) else None
        return [_value(row) for row in rows] if isinstance(rows, list) else []
    if kind in ("kvlistValue", "kvlist_value"):
        return _attributes(inner.get("values") if isinstance(inner, dict) else None, "kvlistValue")
    if kind in ("intValue", "int_value") and isinstance(inner, str) and len(inner) < 20:
        return int(inner) if inner.lstrip("-").isdecimal() else inner
    return inner if kind.lower().replace("_", "").endswith("value") else value

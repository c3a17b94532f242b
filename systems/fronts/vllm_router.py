"""vLLM's router (PyPI vllm-router), with its program scheduling.

It re-serialises bodies and keeps what it does not know; a few defaults are added. Headers pass.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from systems.fronts.protocol import one_of

PINS = "consistent_hash", "sticky_least_loaded"
POLICIES = (*PINS, "round_robin")
PROGRAMS = ("off", "binding", "scheduling")


class VllmRouter:
    """Sessions are named by the header X-Session-ID.

    policy: "consistent_hash" (default): the engine follows from the session's name.
        "sticky_least_loaded": a new session goes to the engine with the fewest that are not over.
        "round_robin": in turn, call by call.
    programs: "scheduling" lets its program scheduler admit, pause and resume programs; "binding" only
        binds each to an engine; "off" (default).
    max_active: with program scheduling, programs that are active on an engine at a time. Default 64, its own.

    The scheduler's other settings are its defaults. Its identity is the same header (key "auto"): the nested
    field of vllm_xargs that it looks for by itself is one that vLLM 0.32 refuses.
    """

    name = "vllm-router"
    requirement = "vllm-router==0.1.17"
    health = "/readiness"
    token_ids = True
    keeps_body = True

    def __init__(
        self, *, policy: str = "consistent_hash", programs: str = "off", max_active: int = 64
    ) -> None:
        self.policy = one_of("policy", policy, POLICIES)
        self.programs = one_of("programs", programs, PROGRAMS)
        if isinstance(max_active, bool) or not isinstance(max_active, int) or max_active < 1:
            raise ValueError(f"max_active must be a whole number of at least 1, got {max_active!r}")
        self.max_active = max_active
        self.pins = policy in PINS or programs != "off"

    def command(self, port: int, engines: Sequence[str], prometheus_port: int) -> list[str]:
        """Engines are asked for their health once a second (its default: 60 s)."""
        words = [
            "-m", "vllm_router.launch_router", "--host", "127.0.0.1", "--port", str(port),
            "--worker-urls", *engines, "--policy", self.policy,
            "--worker-startup-check-interval", "1", "--health-check-interval-secs", "1",
            "--cb-timeout-duration-secs", "2",
            "--prometheus-host", "127.0.0.1", "--prometheus-port", str(prometheus_port),
        ]  # fmt: skip
        if self.programs == "off":
            return words
        settings = {
            "program_scheduling_enable_key": "auto",
            "binding_only": self.programs == "binding",
            "max_active_programs_per_target": self.max_active,
        }
        return [
            *words,
            "--enable-program-scheduling",
            "--program-scheduling-config-json",
            json.dumps(settings),
        ]

    def headers(self, program: str, prompt: Sequence[int] = ()) -> Mapping[str, str]:  # noqa: ARG002
        """X-Session-ID."""
        return {"X-Session-ID": program}

    def end(self, program: str) -> str | None:
        """sticky_least_loaded counts a session until it hears this, or for two hours."""
        if self.policy != "sticky_least_loaded":
            return None
        return f"/finish_session?session_id={quote(program, safe='')}"

    def counterpart(self) -> Mapping[str, Any] | None:
        """The same rules; its hash, which breaks ties, too, is another one, so engines may trade places."""
        if self.programs != "off":
            return None
        if self.policy == "round_robin":
            return {"name": "round-robin"}
        by = "hash" if self.policy == "consistent_hash" else "programs"
        return {"name": "session-pinned", "by": by}


FRONT = VllmRouter

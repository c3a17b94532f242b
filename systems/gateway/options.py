"""What a gateway is told: the engines behind it, the system whose policies decide, limits."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

TELLERS = ("reply", "told")
"""Who says which tool runs: the reply's tool calls, at its end; or the client, when the tool begins."""


@dataclass(frozen=True)
class Target:
    """An engine behind the gateway; its position in ``GatewayOptions.targets`` is its id.

    ``url``: http://HOST:PORT. ``calls``: the call log of our scheduler class, where the gateway can read
    it (service then is what the scheduler counted, else it is told from the reply's ``usage``).
    ``control``: its control socket. ``kv_blocks``: usable 16-token KV blocks where
    its /metrics does not say how many, 0 if unknown. ``key``: sent
    to it as Bearer instead of the client's own authorization; empty: the client's is forwarded.
    ``max_num_batched_tokens``: of its steps, to tell how many a prompt took. Raises ValueError for a bad URL.
    """

    url: str
    calls: str | None = None
    control: str | None = None
    kv_blocks: int = 0
    key: str = ""
    max_num_batched_tokens: int = 2048

    def __post_init__(self) -> None:
        _check_url(self.url)


@dataclass(frozen=True)
class GatewayOptions:
    """``system``, ``router``, ``knobs``: as for ``bench run``; its router, gate and process table act here.
    ``scheduler``: of the engines, where it is not the system's own: it says how the table counts.

    ``port`` 0: a free one. ``api_keys``: clients need one of them (none: no check). ``max_body``: bytes of
    a request. ``max_hold_s``: a call that a gate holds, or that finds no live engine, gets an error after
    so long. ``heartbeat_s``: an SSE comment is sent so often to a streaming client that waits.
    ``lease_s``: a program that nobody ended is over after so long without a call. ``poll_s``,
    ``poll_limit_s``: how often /health and /metrics of an engine are asked, and how long that may take.
    ``late_s``: engines that have never answered may take so long before their calls fail.
    ``tools``: who says which tool a program is in, reply or told (``keeping``). ``log``: event log, a JSON
    object per line (docs/gateway.md); None: none. ``observe``: nothing is decided here but where a program
    stays, and bodies go on as they came (docs/recording.md). ``record``: folder to which a recording is
    written. Raises ValueError for no engine, one that is named twice,
    a number that cannot be, or nobody who says tools.
    """

    targets: tuple[Target, ...]
    system: str = "autellix"
    router: str | None = None
    gate: str | None = None
    retention: str | None = None
    knobs: Mapping[str, str] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 0
    api_keys: tuple[str, ...] = ()
    max_body: int = 32 << 20
    max_hold_s: float = 600.0
    heartbeat_s: float = 15.0
    lease_s: float = 3600.0
    poll_s: float = 0.5
    poll_limit_s: float = 1.0
    late_s: float = 300.0
    log: str | None = None
    scheduler: str | None = None
    tools: str = "reply"
    observe: bool = False
    record: str | None = None

    def __post_init__(self) -> None:
        urls = [target.url.rstrip("/") for target in self.targets]
        if not urls:
            raise ValueError("a gateway needs an engine at least")
        for url in urls:
            if urls.count(url) > 1:
                raise ValueError(f"engine {url} is named twice")
        for name in ("max_body", "max_hold_s", "heartbeat_s", "lease_s", "poll_s", "poll_limit_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than 0, got {getattr(self, name)!r}")
        if self.tools not in TELLERS:
            raise ValueError(f"tools must be one of {', '.join(TELLERS)}, got {self.tools!r}")
        if not self.late_s >= 0:
            raise ValueError(f"late_s must be 0 or more, got {self.late_s!r}")
        if not 0 <= self.port <= 65_535:
            raise ValueError(f"port must be 0 to 65535, got {self.port}")

    def as_json(self) -> str:
        """``parse`` reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``as_json``'s text. Raises ValueError naming a key it does not know, or the JSON's error."""
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError(f"gateway options are one JSON object, got {text[:60]!r}")
        targets = tuple(Target(**_known(Target, one)) for one in data.pop("targets", ()))
        keys = tuple(data.pop("api_keys", ()))
        return cls(targets=targets, api_keys=keys, **_known(cls, data))


def _check_url(url: str) -> None:
    """Raises ValueError unless it is http(s)://HOST[:PORT] and nothing more."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is none
        good = False
    if not good or parts.path not in ("", "/") or parts.query or parts.fragment or parts.username is not None:
        raise ValueError(f"an engine's URL is http://HOST:PORT (without a path), got {url!r}")


def _known(kind: Any, data: Mapping[str, Any]) -> Mapping[str, Any]:
    names = [one.name for one in dataclasses.fields(kind)]
    for name in data:
        if name not in names:
            raise ValueError(f"gateway options: unknown key {name!r}, known are {', '.join(names)}")
    return data

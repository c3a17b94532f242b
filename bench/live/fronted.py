"""Calls through a third-party front: each says whose it is in that front's own way (docs/third-party.md)."""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from bench.drivers.calls import Request, Response
from systems.fronts.protocol import Front


class Fronted:
    """A client whose requests carry ``front``'s headers. Use as ``async with``, as the ``client`` in it."""

    def __init__(self, client: Any, front: Front) -> None:
        self._client = client
        self._front = front

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    async def complete(self, request: Request) -> Response:
        """Raises CallFailed."""
        headers = self._front.headers(request.caller["program_id"], request.prompt)
        answer: Response = await self._client.complete(replace(request, headers=headers))
        return answer

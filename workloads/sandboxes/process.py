"""``process``: tools are processes of this machine in a folder of their own. Nothing is isolated.

They see every file that we see and the machine's network, under our user. They get an environment of their
own, sessions of their own, and a subreaper, so that none of them outlives the sandbox.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from workloads.sandboxes.contract import Sandbox, SandboxEvent, SandboxOptions
from workloads.sandboxes.ledger import Ledger
from workloads.sandboxes.local import SUPERVISOR, LocalSandbox, sweep_entries


class ProcessSandbox(LocalSandbox):
    """``disk_mb`` and ``network`` are nothing that it can limit."""

    kind = "process"

    @property
    def _scratch(self) -> str:
        return str(self.options.folder.resolve() / "tmp")

    def _command(self) -> list[str]:
        folder = self.options.folder.resolve()
        python = [sys.executable, "-I", "-S", str(SUPERVISOR)]
        return [
            *python,
            str(os.getpid()),
            str(folder / "workspace"),
            self._scratch,
            str(self.options.memory_mb or 0),
        ]


class ProcessKind:
    """See SandboxKind."""

    name = "process"

    def missing(self) -> str:
        """See SandboxKind."""
        return "" if sys.platform == "linux" else "processes are supervised on Linux only"

    def make(self, options: SandboxOptions, told: Callable[[SandboxEvent], None]) -> Sandbox:
        """See SandboxKind."""
        return ProcessSandbox(options, told)

    def sweep(self, owner: str | None = None) -> list[str]:
        """See SandboxKind."""
        ledger = Ledger()
        return sweep_entries(ledger.left(self.name, owner), ledger)


SANDBOX = ProcessKind()

"""Software agents that repair a repository in a sandbox: one shell command or edit after another.

Presets: ``swe_agent``, ``openhands`` and ``claude_code`` (laws fitted to public runs), ``mini`` and
``openhands-paper`` (what ThunderAgent's Fig. 4 ran, in numbers assumed from its smallest points).
"""

from __future__ import annotations

from pathlib import Path

from workloads.tool_plan import ToolLoop

WORKLOAD = ToolLoop("swe", "swe_agent", Path(__file__).with_suffix(".toml"))

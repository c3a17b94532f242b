"""Agents that use a desktop (OSWorld): a screenshot after every action, in a virtual machine.

Nothing of it is measured here: a screenshot's tokens, the steps and the times are assumed.
"""

from __future__ import annotations

from pathlib import Path

from workloads.tool_plan import ToolLoop

WORKLOAD = ToolLoop("osworld", "desktop", Path(__file__).with_suffix(".toml"))

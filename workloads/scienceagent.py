"""Agents that write and run a data analysis until it works (ScienceAgentBench): whole programs, long tools.

Each round's prompt is the task and the last program with what it printed: only instructions and task stay.
"""

from __future__ import annotations

from pathlib import Path

from workloads.tool_plan import ToolLoop

WORKLOAD = ToolLoop("scienceagent", "paper", Path(__file__).with_suffix(".toml"))

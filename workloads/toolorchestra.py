"""An orchestrator of other models and search (ToolOrchestra on HLE): few steps, long thoughts and tools.

Its prompt is written anew each step from what has been found so far: only instructions and question stay.
"""

from __future__ import annotations

from pathlib import Path

from workloads.tool_plan import ToolLoop

WORKLOAD = ToolLoop("toolorchestra", "hle", Path(__file__).with_suffix(".toml"))

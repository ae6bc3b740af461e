"""Text of models made safe to show: see `agentcho.results.safe`."""

from __future__ import annotations

from agentcho.results.safe import inline as inline
from agentcho.results.safe import visible as visible

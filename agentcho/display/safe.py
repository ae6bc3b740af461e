"""Text of models made safe to show: see `agentcho.games.results.safe_text`."""

from __future__ import annotations

from agentcho.games.results.safe_text import inline as inline
from agentcho.games.results.safe_text import visible as visible

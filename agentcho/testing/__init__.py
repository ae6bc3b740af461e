"""For tests of agents and scenarios: an engine without a model, and `play`, which plays a game on it."""

from agentcho.backends.fake import FakeEngine
from agentcho.testing.rehearsal import Lines, Rehearsal, play

__all__ = ["FakeEngine", "Lines", "Rehearsal", "play"]

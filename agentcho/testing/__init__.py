"""Tests agents and scenarios without a model: a fake engine, a fake endpoint, and `play`, which plays one game on
them."""

from agentcho.engine.fake.fake import FakeEngine
from agentcho.testing.endpoint import FakeEndpoint
from agentcho.testing.rehearsal import Lines, Rehearsal, play

__all__ = ["FakeEndpoint", "FakeEngine", "Lines", "Rehearsal", "play"]

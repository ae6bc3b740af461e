"""For tests of agents and scenarios: an engine without a model. See `fake.FakeEngine`."""

from agentcho.testing.fake import FakeEngine

__all__ = ["FakeEngine"]

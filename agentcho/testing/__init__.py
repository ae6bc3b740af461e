"""For tests of agents and scenarios: an engine without a model, a model behind an API that is not there, and `play`,
which plays a game on them."""

from agentcho.engine.fake.fake import FakeEngine
from agentcho.testing.endpoint import FakeEndpoint
from agentcho.testing.rehearsal import Lines, Rehearsal, play

__all__ = ["FakeEndpoint", "FakeEngine", "Lines", "Rehearsal", "play"]

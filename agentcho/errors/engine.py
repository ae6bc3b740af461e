"""What an engine, or the choreographer before it, has no room for or cannot do."""

from __future__ import annotations

from agentcho.errors.base import AgentchoError


class StoreFull(AgentchoError):
    """A call needs more in the store at once than there can be."""

    def __init__(self, needed: int, room: int) -> None:
        super().__init__(
            f"room is needed for {needed} tokens at once, the context included, and the store has room for {room}; "
            f"lower max_tokens, read fewer messages in one call, or load the engine with store_tokens={needed} or more"
        )
        self.needed, self.room = needed, room


class StoreDamaged(AgentchoError):
    """Stored keys, their labels or their counts are not what they were: nothing computed from them can be trusted."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the store is damaged: {what}. Load the engine anew; if it comes again, report it")


class EngineFailed(AgentchoError):
    """A device failed, or the engine itself. Every call under way is dropped; stored encodings are untouched."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"the model's forward failed ({type(cause).__name__}: {cause}); the calls in it were dropped")


class GraphsDiffer(AgentchoError):
    """A captured step was found to give other logits than the step itself, before any of its words were used."""

    def __init__(self, gap: float) -> None:
        super().__init__(
            f"a captured CUDA graph gave logits that are off by {gap:.2g} of the largest; this engine uses no graphs "
            "from now on. Run it again, and report it"
        )


class Overloaded(AgentchoError):
    """More requests at once than a choreographer takes. Nothing of this one was begun."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"{limit} requests are under way, and no more are taken at once. Wait for some to end, play fewer games "
            "at once, or raise max_requests."
        )


class EngineClosed(AgentchoError):
    """The choreographer ended while the request waited, or before it was made; or the engine was closed."""

    def __init__(self, what: str = "the choreographer has shut down; open a new one to go on") -> None:
        super().__init__(what)


class EngineBusy(AgentchoError):
    """A second choreographer, thread or direct call on a network that somebody has. Nothing of it was begun."""

    def __init__(self, first: str) -> None:
        super().__init__(
            f"the engine is in use by {first}. One network has one owner: wait until that has ended, play all games on "
            "one choreographer, or load another engine"
        )
        self.first = first

"""Who may not read what, and who there is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentcho.errors.base import AgentchoError


class AudienceError(AgentchoError, ValueError):
    """A name that is not in the cast, or a cast that names one agent twice, or a message that a view cannot name.
    `names` are what there is to name, and `are` says so."""

    def __init__(self, what: str, names: Iterable[str], are: str = "the cast is") -> None:
        super().__init__(f"{what}; {are}: {', '.join(sorted(names)) or '(empty)'}. Names are exact")


class BadName(AudienceError):
    """A word that cannot name an agent, in a game, a trace or a record."""

    def __init__(self, word: object, why: str) -> None:
        AgentchoError.__init__(self, f"{word!r} cannot name an agent: {why}")
        self.word, self.why = word, why


class NameFixed(AgentchoError, AttributeError):
    """An agent that has joined a game was to be called otherwise."""

    def __init__(self, name: str, wanted: object) -> None:
        super().__init__(
            f"{name} cannot be called {wanted!r}: who speaks is known by the seat in the game, from when it is cast. "
            "Cast another agent under that name"
        )


class NotCast(AgentchoError):
    """An agent speaks in a game in which it has no seat: a copy of one that has, or one of another game."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} has no seat in this game; game.cast(...) gives it one, and an agent has one at most")


class LeakageError(AgentchoError):
    """A read was refused before any tensor was touched.

    `path` leads from the message that was to be read to the one that its encoding carries; one id: read directly.
    """

    def __init__(self, reader: str, path: Sequence[str]) -> None:
        what = f"{reader} may not read message {path[0]}"
        if len(path) == 1:
            what += f": not in its audience. Leave it out of {reader}'s view, or release the same words as a new "
            what += "message to a wider audience"
        else:
            what += f" through its author's encoding, which carries {path[-1]} ({' <- '.join(path)}). Use "
            what += "leakage=enforce, which encodes it again for its audience, or mode=baseline"
        super().__init__(what)
        self.reader, self.path = reader, tuple(path)


class PlainMarkers(AgentchoError):
    """A chat template whose role markers anybody can write: one message can pass for two, the second by another."""

    def __init__(self, pairs: Sequence[tuple[str, str]], model: str | None = None) -> None:
        between = ", ".join(f"{one} and {other}" for one, other in pairs)
        super().__init__(
            f"{model or 'this model'} has a chat template in which nothing but what a text can spell stands between "
            f"messages of {between}: what one agent says can pass for what another said, and enforce and deny presume "
            "that it cannot. Use a model whose template has special tokens there, or say --plain-markers accept "
            "(plain_markers='accept'), of which audits will warn"
        )
        self.pairs = tuple(pairs)


class LabelMissing(LeakageError):
    """An encoding was to be read whose label is not known: refused, for unknown is never clean."""

    def __init__(self, reader: str, encoding: int) -> None:
        AgentchoError.__init__(
            self, f"{reader} may not read encoding {encoding}: nothing is known of what it was made from. Encode its "
            "message again in this game"
        )  # fmt: skip
        self.reader, self.path = reader, ()

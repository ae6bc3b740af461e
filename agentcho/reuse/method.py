"""What a reuse method says of itself: its name, its parameters, and what it needs of an engine.

A `Reading` is how keys and values that were encoded elsewhere are read. A `Selection` is which tokens of a message are
encoded anew in its reader's own prompt. A method is a frozen dataclass of its parameters. Does not know: which methods
there are, calls, tensors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Self

from agentcho.reuse.anchors import Anchor


class Source(NamedTuple):
    """Where a method was published: what it is called there, and an arXiv number."""

    title: str
    arxiv: str


class Method(ABC):
    """A reuse method. The class attributes describe it; an instance is the method with its parameters.

    Attributes:
        name: What users type, such as "top-k".
        form: The name with its parameters, for help and error messages, such as "top-k:SHARE".
        limits: What the parameters may be, for error messages; empty: there are none.
        usual: How it is asked for where methods are compared, such as "top-k:0.15"; None: it is left out there.
        attacked: How it is asked for where attacks on it are measured; None: it is left out there.
        about: What it does, in a phrase.
        examples: How it can be asked for, for documentation.
        source: Where it was published; None: nowhere.
        formerly: What the class was called up to version 0.4, if that was otherwise.
    """

    name: ClassVar[str]
    form: ClassVar[str]
    limits: ClassVar[str] = ""
    usual: ClassVar[str | None] = None
    attacked: ClassVar[str | None] = None
    about: ClassVar[str]
    examples: ClassVar[tuple[str, ...]]
    source: ClassVar[Source | None] = None
    formerly: ClassVar[str | None] = None

    @classmethod
    @abstractmethod
    def parsed(cls, value: str | None) -> Self | None:
        """The method with parameters read from `value`, the text behind "NAME:"; None where there is no colon.

        Returns None where `value` does not fit.
        """

    @classmethod
    def checked(cls, given: Self) -> Self:
        """A copy of `given`, which may be of a subclass, whose parameters have Python's own types.

        Raises `RequestError` where a parameter is out of bounds.
        """
        return cls()


class Reading(Method):
    """How keys and values that were encoded elsewhere are read. `turns`: keys are turned to where the message stands
    now; otherwise they are read in place, at the positions where they were encoded."""

    turns: ClassVar[bool] = True


class Weighing(Reading):
    """A reading, in place, that changes the attention weights of what was encoded side by side. Its kernel is listed in
    `runner.reuse`."""

    turns = False

    @property
    @abstractmethod
    def key(self) -> bytes:
        """What names the method and its parameters in the keys of stored encodings. It begins with the name, and never
        changes."""


class Selection(Method):
    """Which tokens of a message are encoded anew. `keeps`: the other tokens keep what they have in an earlier encoding;
    if not, the message is encoded as a prefill is."""

    keeps: ClassVar[bool] = True

    @property
    @abstractmethod
    def tag(self) -> str:
        """What names the method and its parameters in the keys of stored encodings. It never changes, whatever the
        class is called."""


class ByPlace(Selection):
    """Selects tokens by where they stand in the message."""

    @abstractmethod
    def places(self, length: int) -> tuple[int, ...]:
        """The indices of the selected tokens in a message of `length` tokens, in order."""


class ByDeviation(Selection):
    """Selects the tokens whose values deviate most, at an early layer, from those of the message encoded anew. The
    runner compares them. `narrows`: fewer are encoded anew from layer to layer; its kernel is listed in
    `runner.reuse`."""

    narrows: ClassVar[bool] = False

    @abstractmethod
    def count(self, length: int) -> int:
        """How many of `length` tokens are selected, at least one; where it narrows, at the layer that has most."""

    def anew(self, length: int, layer: int, layers: int) -> int:
        """How many of `length` tokens are encoded anew at `layer` of `layers`, counted from 0; at least one."""
        return self.count(length)


class ByAnchors(Selection):
    """Encodes no token anew where the reader's anchors suffice: the message keeps the keys and values of its base, with
    weighted offsets of the anchors added, by a kernel that is listed in `runner.reuse`. Else all tokens are encoded."""

    @property
    @abstractmethod
    def anchors(self) -> tuple[Anchor, ...]:
        """The reader's anchors."""

    @abstractmethod
    def weights(self, distances: Sequence[float]) -> tuple[float, ...]:
        """How much of each anchor's offset is added, by the distances between token embeddings (L2 norms); empty where
        the anchors do not suffice."""

    @abstractmethod
    def with_anchors(self, anchors: tuple[Anchor, ...]) -> Self:
        """The same method with these anchors."""

"""The interface of reuse methods: name, parameters, and requirements on the engine.

A `Reading` defines how keys and values that were encoded elsewhere are read. A `Selection` defines which tokens of a
message are recomputed in its reader's own prompt. A method is a frozen dataclass of its parameters. Must not import
the methods (`registry` lists them) or torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Self

from agentcho.reuse.anchors import Anchor


class Source(NamedTuple):
    """Where a method was published: its name there, and an arXiv number."""

    title: str
    arxiv: str


class Method(ABC):
    """A reuse method. The class attributes describe it; an instance is the method with its parameters.

    Attributes:
        name: What users type, such as "top-k".
        form: The name with its parameters, for help and error messages, such as "top-k:SHARE".
        limits: The bounds of the parameters, for error messages. Empty if there are no parameters.
        usual: The text that selects it in comparisons of methods, such as "top-k:0.15". None leaves it out there.
        attacked: The text that selects it in measurements of attacks. None leaves it out there.
        about: What it does, in a phrase.
        examples: Texts that select it, for documentation.
        source: Where it was published. None if nowhere.
        formerly: The name of the class up to version 0.4, if it differs.
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
        """The method with parameters read from `value`, the text after "NAME:". `value` is None if there is no colon.

        Returns None if `value` does not fit.
        """

    @classmethod
    def checked(cls, given: Self) -> Self:
        """A copy of `given`, which may be of a subclass, with parameters of Python's own types.

        Raises `RequestError` if a parameter is out of bounds.
        """
        return cls()


class Reading(Method):
    """How keys and values that were encoded elsewhere are read. `turns`: keys are rotated to the message's new
    position; otherwise they are read in place, at the positions where they were encoded."""

    turns: ClassVar[bool] = True


class Weighing(Reading):
    """An in-place reading that changes the attention weights of messages that were encoded side by side. Its kernel is
    listed in `runner.reuse`."""

    turns = False

    @property
    @abstractmethod
    def key(self) -> bytes:
        """Identifies the method and its parameters in the keys of stored encodings. It begins with the name, and must
        never change."""


class Selection(Method):
    """Which tokens of a message are recomputed. `keeps`: the other tokens keep their keys and values of an earlier
    encoding; otherwise the message is encoded like a prefill."""

    keeps: ClassVar[bool] = True

    @property
    @abstractmethod
    def tag(self) -> str:
        """Identifies the method and its parameters in the keys of stored encodings. It must never change, even if the
        class is renamed."""


class ByPlace(Selection):
    """Selects tokens by their place in the message."""

    @abstractmethod
    def places(self, length: int) -> tuple[int, ...]:
        """The indices of the selected tokens in a message of `length` tokens, in order."""


class ByDeviation(Selection):
    """Selects the tokens whose values deviate most, at an early layer, from those of the message encoded anew. The
    runner compares them. `narrows`: fewer are recomputed from layer to layer, by a kernel that is listed in
    `runner.reuse`."""

    narrows: ClassVar[bool] = False

    @abstractmethod
    def count(self, length: int) -> int:
        """How many of `length` tokens are selected, at least one. If it narrows, the number at the layer with most."""

    def anew(self, length: int, layer: int, layers: int) -> int:
        """How many of `length` tokens are recomputed at `layer` (from 0) of `layers`, at least one."""
        return self.count(length)


class ByAnchors(Selection):
    """Recomputes no token if the reader's anchors suffice: the message keeps the keys and values of its base, to which
    a kernel that is listed in `runner.reuse` adds weighted offsets of the anchors. Otherwise recomputes all tokens."""

    @property
    @abstractmethod
    def anchors(self) -> tuple[Anchor, ...]:
        """The reader's anchors."""

    @abstractmethod
    def weights(self, distances: Sequence[float]) -> tuple[float, ...]:
        """The weight of each anchor's offset, given the distances between token embeddings (L2 norms). Empty if the
        anchors do not suffice."""

    @abstractmethod
    def with_anchors(self, anchors: tuple[Anchor, ...]) -> Self:
        """The same method with these anchors."""

"""What is out at one moment: metadata of messages, in order and by id, without a copy of any.

Lines only grow, so a moment is how far each had come. Does not know: rounds, who may read what.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import overload

from agentcho.message import Metadata


class Line:
    """Messages one after the other; `add` is all that ever happens to it."""

    def __init__(self, messages: Iterable[Metadata] = ()) -> None:
        self.messages: list[Metadata] = []
        self.places: dict[str, int] = {}
        for message in messages:
            self.add(message)

    def add(self, message: Metadata) -> None:
        """One more, at the end."""
        self.places[message.id] = len(self.messages)
        self.messages.append(message)


class Said(Sequence[Metadata]):
    """Some lines, each as far as it had come when this was made. Equals every sequence of the same messages."""

    def __init__(self, *lines: Line, after: Said | None = None) -> None:
        before: tuple[tuple[Line, int], ...] = () if after is None else after._parts
        self._parts: tuple[tuple[Line, int], ...] = (*before, *((line, len(line.messages)) for line in lines))

    def find(self, id: str) -> Metadata | None:
        """The message of that id; None: it is not out."""
        for line, length in self._parts:
            place = line.places.get(id)
            if place is not None and place < length:
                return line.messages[place]
        return None

    def __len__(self) -> int:
        return sum(length for _, length in self._parts)

    def __iter__(self) -> Iterator[Metadata]:
        return chain.from_iterable(islice(line.messages, length) for line, length in self._parts)

    @overload
    def __getitem__(self, place: int) -> Metadata: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Metadata, ...]: ...
    def __getitem__(self, place: int | slice) -> Metadata | tuple[Metadata, ...]:
        if isinstance(place, slice):
            return tuple(self)[place]
        left = range(len(self))[place]
        for line, length in self._parts:
            if left < length:
                return line.messages[left]
            left -= length
        raise IndexError(place)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<Said {', '.join(message.id for message in self)}>"

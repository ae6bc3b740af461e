"""The messages that an agent may read, as a view gets them. Only audiences decide.

They are found lazily from the last one backwards, so that not every turn goes through the whole game.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import overload

from agentcho.message import Metadata
from agentcho.provenance.views import History, shown_to


class ReadableMessages(Sequence[Metadata]):
    """The messages of `said` that `agent` may read and whose ids it `sees`, in order, as a view gets them (see
    `shown_to`). `reversed`, the last item and slices from the end are lazy; other operations find all messages. Equals
    every sequence of the same messages."""

    def __init__(self, agent: str, said: History, sees: Callable[[str], bool]) -> None:
        self._agent = agent
        self._said = said
        self._sees = sees
        self._found: list[Metadata] = []  # the last one first
        self._left = self._backwards()

    def _backwards(self) -> Iterator[Metadata]:
        for message in self._said.backwards(self._agent):
            if self._sees(message.id):
                yield shown_to(self._agent, message, self._find)

    def _find(self, id: str) -> Metadata | None:
        return self._said.find(id) if self._sees(id) else None

    def _last(self, count: int) -> list[Metadata]:
        """The last `count` messages, or all if there are fewer, the last one first."""
        while len(self._found) < count and (message := next(self._left, None)) is not None:
            self._found.append(message)
        return self._found[:count]

    @property
    def _whole(self) -> list[Metadata]:
        self._found += self._left
        return self._found[::-1]

    def __reversed__(self) -> Iterator[Metadata]:
        place = 0
        while len(self._last(place + 1)) > place:
            yield self._found[place]
            place += 1

    def __iter__(self) -> Iterator[Metadata]:
        return iter(self._whole)

    def __len__(self) -> int:
        return len(self._whole)

    @overload
    def __getitem__(self, place: int) -> Metadata: ...
    @overload
    def __getitem__(self, place: slice) -> list[Metadata]: ...
    def __getitem__(self, place: int | slice) -> Metadata | list[Metadata]:
        tail = isinstance(place, slice) and place.stop is None and (place.step or 1) > 0
        from_end = place.start if isinstance(place, slice) and tail else place
        if isinstance(from_end, int) and from_end < 0:
            return self._last(-from_end)[::-1][place]
        return self._whole[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._whole == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self._whole))

    def __repr__(self) -> str:
        return f"<Readable {', '.join(message.id for message in self._whole)}>"

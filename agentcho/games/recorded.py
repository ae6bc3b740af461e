"""What is recorded of a game that did not come to its end, for when it is begun again: its words, and how each message
came about. Code that departs from that is told.

Does not know: games, where the record lies.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentcho.errors import ResumeMismatch
from agentcho.flow.resolver import Draft
from agentcho.message import Message
from agentcho.records.transcript import Entry


class Recorded:
    """One game's lines: what is whole before what is not, and a later attempt before an earlier. Empty: it begins anew.
    `attempt` is the number of times that the game was begun, this time included.

    What was not whole is not forced: the same coins say it again, and the code does with it what it did.
    """

    def __init__(self, game: int = 0, entries: Iterable[Entry] = ()) -> None:
        self._game = game
        entries = list(entries)
        self.attempt = max((entry.attempt for entry in entries), default=0) + 1
        ordered = sorted(entries, key=lambda entry: (entry.ended is None, entry.attempt))
        self._said = {entry.message.id: entry for entry in ordered}
        self._met = set[str]()
        self._departed: ResumeMismatch | None = None

    def words(self, id: str) -> tuple[int, ...] | None:
        """What a message is to say after its header; None: what it will."""
        entry = self._said.get(id)
        if entry is None or entry.ended is not None or entry.message.sampled is None:
            return None
        start, stop = entry.message.sampled
        return entry.message.tokens[start : min(stop, entry.message.content[1])]

    def meet(self, draft: Draft) -> None:
        """A message is about to come. `ResumeMismatch`: it is another than the one recorded under its id."""
        entry = self._said.get(draft.metadata.id)
        if entry is not None and (changed := [name for name, same in _compared(draft, entry) if not same]):
            self._depart(draft.metadata.id, f"differs in {', '.join(changed)}")
        self._met.add(draft.metadata.id)

    def end(self) -> None:
        """The code is at its end. `ResumeMismatch`: something recorded did not come, or a departure was passed over."""
        if self._departed is not None:
            raise self._departed
        if missing := [id for id in self._said if id not in self._met]:
            self._depart(missing[0], "did not come")

    def again(self, message: Message) -> Message:
        """A message that was said again: forced words do not say what had ended them, or where they were cut."""
        entry = self._said.get(message.id)
        if entry is None or entry.ended is not None or entry.message.tokens != message.tokens:
            return message
        first = entry.message
        text, sampled, stopped, canonical = first.text, first.sampled, first.stopped, first.canonical
        return message.saying(text=text, sampled=sampled, stopped=stopped, canonical=canonical)

    def _depart(self, id: str, how: str) -> None:
        self._departed = self._departed or ResumeMismatch.departs(self._game, id, how)
        raise self._departed


def _compared(draft: Draft, entry: Entry) -> Iterable[tuple[str, bool]]:
    """What decides what a message is, and whether it is the same; what it reads may differ where others raced."""
    data, said = draft.metadata, entry.message
    words = said.header + said.text if said.kind == "prefill" else said.header
    return (
        ("kind", data.kind == said.kind),
        ("role", data.role == said.role),
        ("author", data.author == said.author),
        ("audience", data.audience == said.audience),
        ("header" if said.kind == "decode" else "text", draft.text == words),
        ("choices", draft.act.choices == entry.act.choices),
    )

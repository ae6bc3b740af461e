"""A reader's greedy decision, read from the rows of its constrained messages. Independent of encodings."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentcho.lab.measure.play import Ids, Line, Play

Encode = Callable[[str], list[int]]
"""Converts text to content ids."""


class Question(NamedTuple):
    """Where a decision shows: row `row` of message `id`; there, token `tokens[i]` begins the distinguishing part of
    choice i.

    Without known choices: the first row, and no tokens. `names` are the choices in readable form.
    """

    id: str
    row: int
    tokens: Ids = ()
    names: tuple[str, ...] = ()

    def answer(self, rows: NDArray[np.float32]) -> int:
        """The likeliest of its tokens, the first one on ties."""
        row = rows[self.row]
        if not self.tokens:
            return int(row.argmax())
        return self.tokens[int(row[list(self.tokens)].argmax())]

    def name(self, token: int) -> str:
        """The choice that a token begins, or the token itself."""
        return self.names[self.tokens.index(token)] if token in self.tokens else f"token {token}"


def question(play: Play, reader: str, encode: Encode, closing: int, header: str = "") -> Question | None:
    """Where the reader's last decision shows, of those whose header contains `header`; None: there is none.

    The last message with choices, at the first place where these differ; if none is known and no `header` is given, the
    first row of the last message.
    """
    said = [line for line in play.decodes(reader) if header in line.message.header]
    for line in reversed(said):
        if line.choices and (found := _asked(line, encode, closing)):
            return found
    return Question(said[-1].message.id, 0) if said and not header else None


def _asked(line: Line, encode: Encode, closing: int) -> Question | None:
    """None: the choices do not differ anywhere, or what was said before their first difference is something else."""
    choices = [(*encode(choice), closing) for choice in line.choices]
    said = (*line.content[line.headed :], closing)
    for place in range(min(map(len, choices))):
        tokens = tuple(dict.fromkeys(ids[place] for ids in choices))
        if len(tokens) > 1:
            names = (next(c for c, ids in zip(line.choices, choices, strict=True) if ids[place] == t) for t in tokens)
            begun = choices[0][:place] == said[:place]
            return Question(line.message.id, place, tokens, tuple(n.strip('"{} ') for n in names)) if begun else None
    return None

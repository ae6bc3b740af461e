"""Encodes the messages of one game with every text forced, through the resolver that games use, and scores decodes.

All encodings are released at the end, so that no two stages share a cache key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentcho.config import ReusePolicy
from agentcho.errors import ContextOverflow, LeakageError, StoreFull
from agentcho.lab.measure.play import Ids, Line, MeasuredPort, Play
from agentcho.message import Message
from agentcho.provenance.call_plans import MissingEncoding, ResolvedContext
from agentcho.provenance.drafts import Draft
from agentcho.provenance.resolver import Resolver
from agentcho.provenance.views import Read, ReadSet

UNENCODABLE = (LeakageError, ContextOverflow, StoreFull)
"""The errors by which a game cannot be encoded in a reading mode."""


def why_not(error: Exception) -> str:
    """One of these errors in words."""
    if isinstance(error, LeakageError):
        return "enforcement refuses it: a call names what its caller may not read"
    what = "context of this model" if isinstance(error, ContextOverflow) else "store of this engine"
    return f"the {what} does not hold it"


class Stage:
    """One game in one reading mode. A context manager.

    `apart`: make each encoding in a step of its own, whatever the profile; this gives the noise floor of the fast
    profile. Raises the engine's errors: `LeakageError` if the mode refuses a call, `ContextOverflow`.
    """

    def __init__(self, engine: MeasuredPort, play: Play, reuse: ReusePolicy, apart: bool = False) -> None:
        self._engine = engine
        self._reuse = reuse
        self._apart = apart
        self._lines = play.by_id
        self._resolver = Resolver(reuse, frames=engine)
        decode = engine.framing.content.decode
        self._resolver.drafts.update({line.message.id: _draft(line, decode) for line in play.lines})
        self._resolver.bos = len(engine.framing.begin)
        self._held: list[int] = []

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *raised: object) -> None:
        self._engine.release(self._held)
        self._held.clear()

    def rows(self, decode: str, first: Iterable[str] = ()) -> NDArray[np.float32]:
        """Log-probabilities `[tokens + 1, vocab]` from which each token of a decode's text, without header, and its
        first closing token were chosen. `first` are messages put in plain sight before everything that its author
        read."""
        line = self._lines[decode]
        reads = line.reads._replace(reads=(*(Read(id) for id in first), *line.reads.reads))
        self._refuse_direct(reads)
        resolved = self._resolve(reads)
        offsets = resolved.offsets
        new_offset = resolved.new_offset
        name = line.message.name
        places = {"parents": _ids(resolved), "offsets": offsets, "new_offset": new_offset, "opening": resolved.opening}
        rows: NDArray[np.float32] = self._engine.score("", **places, name=name, tokens=line.content).numpy()
        return rows[line.headed :]

    def log_probability(self, decode: str) -> float:
        """The log-probability of a decode's text, without header and closing token, in nats."""
        line, rows = self._lines[decode], self.rows(decode)
        text = line.content[line.headed :]
        return float(rows[range(len(text)), text].astype(np.float64).sum())

    def cached(self, message: str, reader: str) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Keys and values per layer, `[heads, tokens, dim]`, of the encoding through which `reader` reads a message."""
        return [(keys.numpy(), values.numpy()) for keys, values in self._engine.cached(self.encoding(message, reader))]

    def encoding(self, message: str, reader: str, before: Iterable[str] = ()) -> int:
        """The id of the encoding through which `reader` reads a message, after the messages `before` in its prompt;
        held until the stage ends."""
        reads = tuple(Read(id) for id in (*before, message))
        found = _ids(self._resolve(ReadSet(reader, reads, None, ())))
        if self._reuse.mode != "baseline":
            return found[-1]
        parts = self._resolver.prompt_parts(reads)
        return next(id for id, part in zip(found, parts, strict=True) if message in part.messages)

    def _refuse_direct(self, reads: ReadSet) -> None:
        """Raise `LeakageError` for direct reads that a game would refuse before it submits; a score has no guard."""
        for read in reads.reads if self._resolver.enforcing else ():
            if not self._lines[read.id].message.audience.includes(reads.caller or ""):
                raise LeakageError(reads.caller or "", (read.id,))

    def _resolve(self, reads: ReadSet) -> ResolvedContext:
        """The encodings that the caller attends to; missing ones are made."""
        resolved = self._resolver.resolve(reads)
        if resolved.missing:
            self._make(resolved.missing)
            resolved = self._resolver.resolve(reads)
        return resolved

    def _make(self, missing: tuple[MissingEncoding, ...]) -> None:
        ids = self._engine.submit([lack.call for lack in missing])
        try:
            self._run(set(ids))
        except BaseException:
            self._engine.cancel(ids)
            raise
        for lack, id in zip(missing, ids, strict=True):
            self._resolver.enter(lack.message, lack.recipe, lack.path, id, self._engine.receipt(id))

    def _run(self, left: set[int]) -> None:
        """Step until all are stored. Encodings that are stored when another one fails are held too, so that they are
        released."""
        fault: Exception | None = None
        while left and fault is None:
            result: Any = self._engine.step(deterministic=self._reuse.deterministic or self._apart)
            self._held += result.finished
            left -= {*result.finished, *(failure.id for failure in result.failed)}
            fault = next((failure.error for failure in result.failed), None)
        if fault is not None:
            raise fault


def _ids(resolved: ResolvedContext) -> list[int]:
    """The ids of its parents, all of which exist."""
    assert not resolved.missing
    return [parent for parent in resolved.parents if isinstance(parent, int)]


def _draft(line: Line, decode: Callable[[Ids], str]) -> Draft:
    """A message as a game keeps it. Its text is decoded from its ids, which may differ from what was said."""
    message: Message = line.message.saying(header="", text=decode(line.content))
    return Draft(metadata=message.metadata, text=message.text, name=message.name, reads=line.reads, message=message)

"""The anchors of each caller of one game: messages that it has encoded anew in its own prompt, from which it takes
offsets of keys and values for others (KVCOMM, arXiv 2510.12872).

Anchors are private to their caller: they were encoded over what it had read, and encodings made from them are only for
it. They depend only on its own calls and their order, so that a replayed game has the same ones. They end with the
game. If what an author had read must not travel with its words (`deny`), an anchor only serves in prompts that read all
that its own prompt read, because offsets carry that with them. The engine compares messages and adds offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agentcho.protocol.call import EncodingId, Receipt, Repair
from agentcho.provenance.call_plans import Lacking
from agentcho.reuse.anchors import Anchor
from agentcho.reuse.method import ByAnchors

MOST = 20
"""Maximum number of anchors per caller, as in the paper's experiments."""
OLDEST = 5
"""Number of oldest anchors, of which the least used one is evicted, as in the paper's experiments."""


Path = tuple[str, ...]
"""A prompt: its caller, and the messages that it reads, each as `id@place`, up to the message itself."""


@dataclass
class _Kept:
    message: str
    anchor: Anchor
    path: Path
    uses: int = 0


class AnchorPools:
    """The anchors of each caller, at most `MOST`, by their encodings in the caller's prompt. `scoped`: an anchor only
    serves in prompts that read all that its own did."""

    def __init__(self, scoped: bool = False) -> None:
        self._scoped = scoped
        self._pools: dict[str, dict[EncodingId, _Kept]] = {}

    def of(self, path: Path, missing: Lacking) -> tuple[Anchor, ...]:
        """The anchors of a prompt's caller, in the order of their ids, and then possible ones: the caller's repairs of
        other messages that are in `missing`, and so are made first."""
        there = sorted(self._pools.get(path[0], {}).items())
        here = [kept.anchor for _, kept in there if self._serves(kept.path, path)]
        return (*here, *self._pending(path, missing))

    def enter(self, path: Path, message: str, id: EncodingId, base: EncodingId | None, receipt: Receipt) -> None:
        """Note a caller's encoding of a message that is otherwise reused as `base` (None: that was given up). If it was
        encoded anew, it becomes an anchor. If it was made from anchors, the first one, which weighed most, counts as
        used."""
        pool = self._pools.get(path[0], {})
        if receipt.base is None and base is not None:
            pool = self._pools.setdefault(path[0], pool)
            pool[id] = _Kept(message, Anchor(id, base), path)
            if len(pool) > MOST:
                del pool[min(sorted(pool)[:OLDEST], key=lambda each: (pool[each].uses, each))]
        elif receipt.anchors and (used := pool.get(receipt.anchors[0])) is not None:
            used.uses += 1

    def forget(self, message: str) -> None:
        """Drop the anchors of a message whose encodings are given up."""
        for caller, pool in list(self._pools.items()):
            for id in [id for id, kept in pool.items() if kept.message == message]:
                del pool[id]
            if not pool:
                del self._pools[caller]

    def _pending(self, path: Path, missing: Lacking) -> Iterator[Anchor]:
        for _, recipe, other, call, *_ in missing.values():
            mine = recipe == "repaired" and other[0] == path[0] and self._serves(other, path)
            if mine and isinstance(call, Repair) and isinstance(call.choose, ByAnchors):
                yield Anchor(call, call.of)

    def _serves(self, made: Path, path: Path) -> bool:
        return not self._scoped or _read(made) <= _read(path)


def _read(path: Path) -> frozenset[str]:
    """The messages of a prompt."""
    return frozenset(each.rpartition("@")[0] for each in path[1:])

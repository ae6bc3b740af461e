"""Which encodings outlive a run, and how a later one begins from them: those that a guard has just found to be for
everyone.

That is the guard's answer about what a call really attends to, given in this run, before a file is looked for and
before one is written. So whether there is a file depends on what everybody may read alone, and the labels of what comes
out of one are those of the messages of the run that reads it. Does not know: who may read what, what is in a file, how
room is made.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from agentcho.engine.restore import CacheRestorer
from agentcho.engine.sequence import Sequence
from agentcho.errors import StoreDamaged
from agentcho.protocol.call import Prefill

if TYPE_CHECKING:
    from agentcho.engine.persistent_files import PersistentFiles

ENGINE = logging.getLogger("agentcho.engine")
FULL = "cannot write to %s: %s. From now on nothing more is kept there; all else goes on"


class PersistentCache:
    """Takes encodings from `files`, and puts them there (None: there are none). `found` and `kept` count tokens."""

    def __init__(self, assembly: CacheRestorer, files: PersistentFiles | None) -> None:
        self._assembly, self.files = assembly, files
        self.found = self.kept = 0
        self._full = False

    def take(self, call: Sequence, exact: bool) -> bool:
        """Give a call that nothing was encoded for yet what an earlier run has encoded, if that is there; then its
        entry is ready, and pinned for it. What is damaged is told of in the log, and is as good as not there. There
        must be room for the entry."""
        if self.files is None or not _everyones(call):
            return False
        name, store = self.files.name(call.own.key, exact), self._assembly.tiers.store
        try:
            data = self.files.read(name)
        except StoreDamaged as error:
            ENGINE.warning("%s", error)
            return False
        if data is None:
            return False
        copy = store.unpacked(data)
        self._assembly.begin(call, (), call.own)
        call.start()
        store.copy_in([(call.own.block, copy)])
        call.own.written = call.own.length
        self.found += call.own.length
        ENGINE.info("%d tokens are from an earlier run: %s", call.own.length, self.files.folder / name)
        return True

    def put(self, call: Sequence, exact: bool) -> None:
        """Keep what was encoded for a call in this run. The encoding is in the store. A disk that takes no more is told
        of once, and not asked again."""
        if self.files is None or self._full or not call.encoded or not _everyones(call):
            return
        store, entry = self._assembly.tiers.store, call.own
        try:
            [copy] = store.copy_out([entry.block])
            kept = self.files.write(self.files.name(entry.key, exact), store.packed(copy))
        except OSError as error:
            self._full = True
            ENGINE.warning(FULL, self.files.folder, error.strerror or error)
        else:
            self.kept += entry.length if kept else 0

    def close(self) -> None:
        """Let go of the folder."""
        if self.files is not None:
            self.files.close()


def _everyones(call: Sequence) -> bool:
    """Whether a call encodes known words that everyone may read, over nothing but what everyone may read."""
    return call.everyones and isinstance(call.call, Prefill)

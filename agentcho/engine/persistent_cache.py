"""Stores encodings that a guard has just found to be public for later runs, and loads those of earlier runs.

The guard answers, in this run, about what a call really attends to, before a file is looked up and before one is
written. So the existence of a file depends only on what everybody may read, and the labels of a loaded encoding are
those of the messages of the run that loads it. Must not decide who may read what; only the guard does.
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
    """Loads encodings from `files` and stores them there. None: no files. `found` and `kept` count tokens."""

    def __init__(self, assembly: CacheRestorer, files: PersistentFiles | None) -> None:
        self._assembly, self.files = assembly, files
        self.found = self.kept = 0
        self._full = False

    def take(self, call: Sequence, exact: bool) -> bool:
        """Load the encoding of a call that has not started from an earlier run, if there is one. Returns whether it
        did; the entry is then ready, and pinned for the call. A damaged file is logged and ignored. There must be room
        for the entry."""
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
        """Store the encoding of a call for later runs, if it was encoded in this run. It must be in the store. A failed
        write is logged once, and nothing more is written."""
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
        """Close the folder."""
        if self.files is not None:
            self.files.close()


def _everyones(call: Sequence) -> bool:
    """Whether a call encodes known words that everyone may read, over messages that everyone may read."""
    return call.everyones and isinstance(call.call, Prefill)

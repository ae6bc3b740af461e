"""One registry of engines per process: each network is built, saved, loaded and proved once, and every test uses a
view of it with its own store.

Tests that change a network (train an adapter, overwrite weights) or test loading itself load from `folder`, or use
`own`.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import mkdtemp

from transformers import PreTrainedModel

from agentcho import Engine
from agentcho.engine.cache import NO_DISK, DiskQuota

from .device import DEVICE
from .engine.families import Family, llama_family

Room = int | None


class Engines:
    """Loaded networks by family, layers, settings, dtype and dtype of keys and values. Call it for a view; `close`
    removes the folders."""

    def __init__(self) -> None:
        self._root = Path(mkdtemp(prefix="engines-"))
        self._folders, self._stock = dict[str, Path](), dict[str, PreTrainedModel]()
        self._loaded = dict[tuple[str, str, str | None], Engine]()

    def __call__(
        self,
        family: Family | None = None,
        dtype: str = "float32",
        *,
        store_tokens: Room = None,
        host_tokens: Room = None,
        context: Room = None,
        disk: DiskQuota = NO_DISK,
        kv_dtype: str | None = None,
    ) -> Engine:
        """A separate engine on the network of a family, by default a small llama."""
        folder = self.folder(family)
        return self._view(str(folder), (dtype, kv_dtype), store_tokens, host_tokens, context, disk)

    def understudy(self, *, store_tokens: Room = None, kv_dtype: str | None = None) -> Engine:
        """A separate engine on the bundled model, in float32."""
        return self._view("understudy", ("float32", kv_dtype), store_tokens, None, None)

    def own(self, family: Family | None = None, dtype: str = "float32") -> Engine:
        """An engine with a network of its own, for tests that change it."""
        return Engine.load(self.folder(family), device=DEVICE, dtype=dtype)

    def folder(self, family: Family | None = None) -> Path:
        """The folder of a family's saved model. Read only."""
        family = family or llama_family()
        if (key := repr(family)) not in self._folders:
            self._folders[key] = folder = self._root / str(len(self._folders))
            self._stock[key] = family.save(folder)
        return self._folders[key]

    def stock(self, family: Family) -> PreTrainedModel:
        """The stock model of a family, the one that was saved."""
        self.folder(family)
        return self._stock[repr(family)]

    def close(self) -> None:
        """Remove the folders."""
        shutil.rmtree(self._root)

    def _view(
        self,
        model: str,
        kinds: tuple[str, str | None],
        store: Room,
        host: Room,
        context: Room,
        disk: DiskQuota = NO_DISK,
    ) -> Engine:
        if (model, *kinds) not in self._loaded:
            self._loaded[model, *kinds] = Engine.load(model, device=DEVICE, dtype=kinds[0], kv_dtype=kinds[1])
        base = self._loaded[model, *kinds]
        given = (store, base._room[0]), (host, base._room[1]), (context, base.context)
        room, outside, positions = (b if a is None else a for a, b in given)
        return Engine(base._model.adapted(None), base.framing, base.proofs, room, outside, positions, disk)

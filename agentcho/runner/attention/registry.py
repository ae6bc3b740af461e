"""All attention backends, and the choice among them for one engine.

A new backend is a line in `BACKENDS`; `register` adds one from outside. Where several can serve the same rows, the
first in the list is used. Independent of how backends attend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from agentcho.runner.attention.base import AttentionBackend, Capabilities, Setting
from agentcho.runner.attention.dense import Dense
from agentcho.runner.attention.flex import Flex
from agentcho.runner.attention.shared_prefix import SharedPrefix
from agentcho.runner.attention.triton_paged import TritonPaged
from agentcho.runner.kv.decode_kv import Reads

BACKENDS: list[AttentionBackend] = [TritonPaged(), SharedPrefix(), Flex(), Dense()]
"""Best first. The last one serves every row whose context is copied, in any setting."""


def register(backend: AttentionBackend) -> None:
    """Add a backend before all others, for engines that are loaded from now on.

    Raises:
        ValueError: There is one of this name.
    """
    if any(each.name == backend.name for each in BACKENDS):
        raise ValueError(f"an attention backend named {backend.name!r} already exists; give it another name")
    BACKENDS.insert(0, backend)


def unregister(backend: AttentionBackend) -> None:
    """Remove a registered backend. Raises `ValueError` if it is not registered."""
    BACKENDS.remove(backend)


class Rows(NamedTuple):
    """The kind of rows to serve: where they read their contexts, on which device, and whether no key is weighed by a
    reuse method."""

    reads: Reads
    device: torch.device
    plain: bool = True


class Serving(NamedTuple):
    """The backend that serves some rows, and what it can do for them."""

    backend: AttentionBackend
    can: Capabilities


class Reported(NamedTuple):
    """A backend in reports: its name, what it does, and why it is not used (None if it is)."""

    name: str
    does: str
    missing: str | None


class Backends:
    """The backends of one engine. `serving` maps each kind of rows to the backend that serves them."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._registered = tuple(BACKENDS)
        self.serving = _Chosen(self._choose)

    def reading(self, reads: Reads) -> bool:
        """Whether contexts may be read this way: there is a backend that serves such rows."""
        return any(each.reads == reads and self._missing(each) is None for each in self._registered)

    def refused(self, reads: Reads, device: torch.device) -> str | None:
        """Why rows that begin now should not read this way: the backend that serves them was refused on this device."""
        return self.serving[Rows(reads, device)].backend.refused(device)

    def several(self, reads: Reads, device: torch.device) -> bool:
        """Whether one step can take several tokens of such a row."""
        return self.serving[Rows(reads, device)].can.several

    @property
    def compiled(self) -> bool:
        """Whether any of them compiles kernels in its first step."""
        found = (each.capabilities(self._setting) for each in self._registered)
        return any(each.missing is None and each.compiled for each in found)

    def report(self) -> list[Reported]:
        """All backends for reports, best first."""
        return [Reported(each.name, each.does, self._missing(each)) for each in self._registered]

    def _missing(self, backend: AttentionBackend) -> str | None:
        return backend.capabilities(self._setting).missing or backend.refused(self._setting.device)

    def _choose(self, rows: Rows) -> Serving:
        """The first backend that can serve these rows. If none that reads this way can be used, the first of them
        serves: the rows were opened for it."""
        setting = self._setting._replace(device=rows.device)
        able = [Serving(each, each.capabilities(setting)) for each in self._registered if each.reads == rows.reads]
        able = [each for each in able if rows.plain or each.can.tempered]
        return next((each for each in able if each.can.missing is None), able[0])


class _Chosen(dict[Rows, Serving]):
    """Chooses once for each kind of rows."""

    def __init__(self, choose: Callable[[Rows], Serving]) -> None:
        super().__init__()
        self._choose = choose

    def __missing__(self, rows: Rows) -> Serving:
        self[rows] = self._choose(rows)
        return self[rows]

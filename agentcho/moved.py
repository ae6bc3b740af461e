"""Packages and modules that were renamed since version 0.4: the old names import with a warning until 0.6.

docs/renamed.json lists the old name of each module, class and function. Independent of the packages' content.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from warnings import warn

ROOMS = {
    "agentcho.arena": "agentcho.integrations.textarena",
    "agentcho.backends": "agentcho.engine.fake",
    "agentcho.backends.remote": "agentcho.integrations.endpoints",
    "agentcho.calls": "agentcho.protocol",
    "agentcho.cluster": "agentcho.integrations.ray",
    "agentcho.flow": "agentcho.provenance",
    "agentcho.games.library": "agentcho.games.runs.library",
    "agentcho.games.runtime": "agentcho.games.runs.runtime",
    "agentcho.people": "agentcho.display.people",
    "agentcho.progress": "agentcho.protocol.progress",
    "agentcho.results": "agentcho.games.results",
    "agentcho.telemetry": "agentcho.integrations.opentelemetry",
    "agentcho.toolsets": "agentcho.games.tools",
    "agentcho.understudy": "agentcho.runner.understudy",
}
"""Old names of packages, and of modules that tests written by `agentcho new` import, with their current names."""


class OldNames(MetaPathFinder, Loader):
    """Finds the packages of `ROOMS`, and their modules, by their old names.

    It comes first among the finders, because the file finder would load the modules of such a package a second time.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how an old name is loaded, or None if the name is not old."""
        return None if _today(fullname) is None else ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the current module, for which its old name also stands."""
        new = _today(spec.name)
        assert new is not None
        warn(f"{spec.name} is now {new}; the old name is removed in 0.6", DeprecationWarning, stacklevel=2)
        module = import_module(new)
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore what the import system overwrote. Nothing else is left to do."""
        module.__spec__ = self._own


def _today(name: str) -> str | None:
    """Return the current name of a module, or None if it is not in one of these packages."""
    head, rest = name, ""
    while head.count("."):
        if head in ROOMS:
            return ROOMS[head] + rest
        head, dot, last = head.rpartition(".")
        rest = f"{dot}{last}{rest}"
    return None


def install() -> None:
    """Make old names importable in this process, once."""
    if not any(isinstance(each, OldNames) for each in sys.meta_path):
        sys.meta_path.insert(0, OldNames())

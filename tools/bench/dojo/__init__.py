"""Runs AgentDojo without a model: its own tasks and attacks, played in societies whose tools are labeled by one table.

Its package is installed in a separate environment (`make clients`), from which it is imported as well.
"""

from __future__ import annotations

import sys
from pathlib import Path

from agentcho.errors import ConfigError

ROOT = Path(__file__).parents[3]


def installed() -> Path:
    """Make AgentDojo importable, after everything else; return the folder that it comes from. `ConfigError`: it is not
    installed."""
    here = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folder = ROOT / ".venv" / "clients" / "agentdojo" / "lib" / here / "site-packages"
    if not (folder / "agentdojo").is_dir():
        raise ConfigError(f"AgentDojo is not installed in {folder}: run `make clients`")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return folder

"""One digest of all sources that a reproduction ran: the package, the scenarios that it plays, and their agents."""

from __future__ import annotations

import hashlib
from pathlib import Path

from agentcho.games.runs import library
from agentcho.games.runs.discovery import find
from agentcho.lab.paper.tables import TABLES


def modules() -> str:
    """SHA-256 over the names and bytes of all these files."""
    package = Path(__file__).parents[2]
    named = {f"agentcho/{path.relative_to(package).as_posix()}": path for path in package.rglob("*.py")}
    played = {row.scenario: row for table in TABLES for row in table.rows}
    for name, row in played.items():
        named[f"scenarios/{name}"] = find("scenarios", name).path
        for agent in library.casts(library.scenario(name)(**row.options)):
            named[f"agents/{agent}"] = find("agents", agent).path
    whole = hashlib.sha256()
    for name, path in sorted(named.items()):
        content = path.read_bytes()
        whole.update(f"{name}\0{len(content)}\0".encode() + content)
    return whole.hexdigest()

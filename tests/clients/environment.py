"""The virtual environments of the clients, and scripts that run in them.

Independent of servers.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "scripts"
REQUIRED = "AGENTCHO_TEST_CLIENTS"
"""If set, tests whose client is not installed fail; otherwise they are skipped."""
QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
"""Keeps clients from contacting anything but the server."""


def python_of(environment: str) -> Path:
    """The Python of an environment made by `make clients`."""
    found = ROOT / ".venv" / "clients" / environment / "bin" / "python"
    if not found.is_file():
        told = f"the clients of {environment}.txt are not installed: run `make clients`"
        pytest.fail(told) if os.environ.get(REQUIRED) else pytest.skip(told)
    return found


def run_script(environment: str, script: str, given: str) -> dict[str, Any]:
    """Runs a script with `given` as its input; returns the JSON object in its last line of output. The script cannot
    import agentcho, and imports from its own folder first."""
    keep = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OPENAI_API_KEY")}
    command = [str(python_of(environment)), str(SCRIPTS / f"{script}.py")]
    ran = subprocess.run(command, input=given, text=True, capture_output=True, env=keep | QUIET)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found

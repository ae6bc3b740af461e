"""The clients' own environments, and what is run in them.

Does not know: servers, what is asked of one.
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
"""Set: a client that is not installed fails the tests that need it, which are skipped otherwise."""
QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
"""What keeps clients from asking anybody but the server."""


def python_of(environment: str) -> Path:
    """The Python of an environment, which `make clients` makes."""
    found = ROOT / ".venv" / "clients" / environment / "bin" / "python"
    if not found.is_file():
        told = f"the clients of {environment}.txt are not installed: run `make clients`"
        pytest.fail(told) if os.environ.get(REQUIRED) else pytest.skip(told)
    return found


def run_script(environment: str, script: str, given: str) -> dict[str, Any]:
    """What a script prints as its last line, a JSON object, where it reads `given`. It knows nothing of agentcho, and
    its folder is the first that it imports from."""
    keep = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OPENAI_API_KEY")}
    command = [str(python_of(environment)), str(SCRIPTS / f"{script}.py")]
    ran = subprocess.run(command, input=given, text=True, capture_output=True, env=keep | QUIET)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found

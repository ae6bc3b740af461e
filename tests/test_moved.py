"""Renamed packages can be imported under their old names."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agentcho.protocol import anchored
from agentcho.reuse.anchors import Anchor
from agentcho.reuse.kvcomm import THRESHOLD, KVComm


def test_packages_import_by_the_names_that_they_had_and_are_the_same_ones() -> None:
    """In a separate process, because importing an old name here would make it visible to all other tests."""
    code = """
import importlib, sys, warnings
from agentcho.moved import ROOMS
for old, new in ROOMS.items():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert importlib.import_module(old) is importlib.import_module(new), old
    if old.count(".") == 1:
        assert told[0].category is DeprecationWarning and f"{old} is now {new}" in str(told[0].message), told
warnings.simplefilter("ignore")
import agentcho.flow.views, agentcho.provenance.views
from agentcho.games import library
assert library is sys.modules["agentcho.games.runs.library"]
assert agentcho.flow.views is agentcho.provenance.views
assert agentcho.provenance.views.__spec__.name == "agentcho.provenance.views"
try:
    import agentcho.flow.nowhere
except ModuleNotFoundError as error:
    assert "agentcho.provenance.nowhere" in str(error)
else:
    sys.exit("it is there")
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(("name", "now"), [("Anchor", Anchor), ("Anchored", KVComm), ("THRESHOLD", THRESHOLD)])
def test_methods_with_anchors_import_by_the_names_that_they_had(name: str, now: object) -> None:
    with pytest.warns(DeprecationWarning, match=f"{name} is now in agentcho.reuse"):
        assert getattr(anchored, name) == now

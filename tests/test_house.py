"""Files beside the code: license, citation, changelog, hooks, and pages for contributors."""

from __future__ import annotations

import re
import shlex
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
"""The headings of keepachangelog.com 1.1.0."""


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_of_a_page_are_there(page: str) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / page).read_text()):
        assert (ROOT / target).exists(), target


def test_what_contributors_are_told_to_run_and_to_change_is_there() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:^|`)make ([a-z-]+)", page, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    named = re.findall(r"`((?:agentcho|tests|docs|scenarios|agents)/[\w/.-]*)`", page)
    run = [word for line in re.findall(r"-m pytest ([^`\n]*)", page) for word in shlex.split(line) if "/" in word]
    assert len(named) > 10
    for path in (*named, *run):
        assert (ROOT / path).exists(), path


def test_the_license_is_the_one_that_is_named() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert not any("License ::" in name for name in PROJECT["classifiers"])  # not allowed beside a license expression


def test_the_citation_is_of_the_last_release_and_of_the_paper() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (cited["cff-version"], cited["type"], cited["title"]) == ("1.2.0", "software", PROJECT["name"])
    assert (cited["version"], cited["license"]) == (released()[0][0], PROJECT["license"])
    assert dict(released())[cited["version"]] == date.fromisoformat(cited["date-released"])
    (paper,) = cited["references"]
    assert [author["family-names"] for author in paper["authors"]] == ["Bai", "Eisner"]
    assert paper["url"] == PROJECT["urls"]["Paper"]


def released() -> list[tuple[str, date]]:
    """Versions and their dates in the changelog."""
    found = re.findall(r"^## \[([\d.]+)\] - (\d{4}-\d{2}-\d{2})$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    return [(version, date.fromisoformat(day)) for version, day in found]


def test_changes_are_listed_as_keep_a_changelog_asks() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert text.startswith("# Changelog\n")
    assert "https://keepachangelog.com/en/1.1.0/" in text
    assert "\n## [Unreleased]\n" in text
    versions = [tuple(map(int, version.split("."))) for version, _ in released()]
    assert versions == sorted(versions, reverse=True)
    number, coming, _ = PROJECT["version"].partition(".dev")
    here = tuple(map(int, number.split(".")))
    assert here > versions[0] if coming else here == versions[0], "between releases it is the next one's, with .dev0"
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, *kinds = re.split(r"^### (.*)$", part, flags=re.MULTILINE)
        names = kinds[::2]
        assert names == sorted(set(names), key=KINDS.index), heading
        assert all(re.match(r"\n\n- ", body) for body in kinds[1::2]), heading
        assert "\n- " not in heading


def test_hooks_run_what_is_installed_here() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    hooks = config["repos"][0]["hooks"]
    assert [hook["id"] for hook in hooks] == ["ruff", "ruff-format", "mypy"]
    assert all(hook["entry"].startswith(".venv/bin/") and hook["language"] == "system" for hook in hooks)

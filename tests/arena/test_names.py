"""Names of environments: suggestions for misspelt ones, those that cannot be played, and behavior without TextArena."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentcho.errors import ExtraMissing, ScenarioError, ScenarioNotFound
from agentcho.games.runs import library
from agentcho.integrations.textarena.listing import families, settings
from agentcho.integrations.textarena.names import (
    NEWER,
    PREFIX,
    RAW,
    REFUSED,
    REFUSED_ALONE,
    check_refused,
    environment_id,
)
from agentcho.integrations.textarena.package import kind_of

KNOWN = [
    "KuhnPoker-v0",
    "KuhnPoker-v0-raw",
    "KuhnPoker-v0-long-raw",
    "KuhnPoker-v0-train",
    "Nim-v0-raw",
    "Chess-v0-raw",
]


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("KuhnPoker", "KuhnPoker-v0"),
        ("KuhnPoker-v0", "KuhnPoker-v0"),
        ("KuhnPoker-v0-raw", "KuhnPoker-v0"),
        ("KuhnPoker-v0-long", "KuhnPoker-v0-long"),
    ],
)
def test_a_name_is_an_id_with_its_version_or_without(name: str, id: str) -> None:
    assert environment_id(PREFIX + name, KNOWN) == id


def test_a_name_that_is_not_there_tells_those_that_are_like_it_and_can_be_played() -> None:
    with pytest.raises(ScenarioNotFound, match=r"no environment 'textarena:kuhn-poker'.*: textarena:KuhnPoker-v0, "):
        environment_id("textarena:kuhn-poker", KNOWN)
    with pytest.raises(
        ScenarioNotFound,
        match=r"there are, for example: textarena:KuhnPoker, textarena:Nim; `agentcho ls textarena` lists all$",
    ):
        environment_id("textarena:zzz", KNOWN)


@pytest.mark.parametrize("kind", [*REFUSED, *REFUSED_ALONE])
def test_what_cannot_be_played_is_refused_by_name_with_the_reason(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 11))
    for name in (kind, f"{kind}-v0", f"{kind}-v0-long-raw"):
        with pytest.raises(ScenarioError, match=f"{PREFIX}{kind} cannot be played: "):
            check_refused(PREFIX + name)


def test_what_only_needs_a_newer_python_may_be_played_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 12))
    for kind, why in REFUSED.items():
        if why == NEWER:
            check_refused(PREFIX + kind)


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentcho.integrations.textarena import package

    package._library.cache_clear()
    monkeypatch.setitem(sys.modules, "textarena", None)
    monkeypatch.setattr("agentcho.extras.find_spec", lambda module: None)
    with pytest.raises(ExtraMissing, match=r"textarena is needed .*: pip install 'agentcho\[textarena\]'"):
        library.scenario("textarena:KuhnPoker")


@pytest.mark.clients
def test_what_there_is_and_what_it_takes_is_told_without_importing_it(textarena: Path) -> None:
    code = (
        f"import sys; sys.path.append({str(textarena)!r}); from agentcho.cli.listing import one_listing\n"
        "print(one_listing('textarena')); print(one_listing('textarena:KuhnPoker-v0-long'))\n"
        "sys.exit('textarena' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"^  textarena:KuhnPoker +v0, v0-short, v0-medium, v0-long, ", ran.stdout, re.MULTILINE)
    assert re.search(r"^  textarena:Chess +its source needs Python 3.12", ran.stdout, re.MULTILINE)
    assert re.search(r"^  max_rounds +15 +option of the environment$", ran.stdout, re.MULTILINE)
    assert re.search(r"^  players +None +number of players", ran.stdout, re.MULTILINE)


@pytest.mark.clients
@pytest.mark.usefixtures("textarena")
def test_what_the_source_lists_is_what_is_registered() -> None:
    import textarena

    registered = {id.removesuffix(RAW) for id in textarena.envs.registration.ENV_REGISTRY if id.endswith(RAW)}
    assert {id for each in families() for id in each.variants} == registered
    for kind in ("Poker", "SecretMafia", "SimpleTak", "SantoriniBaseFixed"):
        named = dict(settings(PREFIX + kind))
        assert {each.name for each in kind_of(PREFIX + kind).parameters} == named.keys()

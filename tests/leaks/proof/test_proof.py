"""The nightly proof is complete, can be resumed, and its committed result says that everything holds."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from . import __main__ as runner
from . import shares as whole
from .scope import Scope
from .shares import Done, Share, done, report, shares, sound, steps


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny scope, with two policies."""
    monkeypatch.setattr(whole, "SCOPES", {"4 messages": Scope(2, 3)})
    monkeypatch.setattr(whole, "WHOLE", {"4 messages": ("auto", "never")})
    monkeypatch.setattr(whole, "PARTS", {"4 messages": 3})
    monkeypatch.setattr(whole, "TIES", 2)


def found() -> dict[str, Any]:
    """The result of all shares."""
    return {**steps(), **report(done(share, 0, tie=6) for share in shares())}


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_shares_come_to_the_whole_and_none_is_done_twice() -> None:
    assert max(Counter(share.name for share in shares()).values()) == 1
    kept = found()
    assert sound(kept)
    assert [(row["way"], row["workflows"], row["named"]) for row in kept["scopes"]] == [
        ("auto", 2070, 4132),
        ("never", 2070, 4132),
    ]
    assert kept["tie"]["workflows"] == 6


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_whatever_is_wrong_or_lacking_is_no_success() -> None:
    kept = found()
    for change in (
        {"scopes": kept["scopes"][:1]},
        {"scopes": [{**row, "named": row["named"] - 1} for row in kept["scopes"]]},
        {"scopes": [{**row, "violations": 1} for row in kept["scopes"]]},
        {"tie": {**kept["tie"], "told": ["seed 3"]}},
        {"tie": {**kept["tie"], "workflows": 0}},
        {"steps": [{**step, "answer": "unknown"} for step in kept["steps"]]},
        {"broken": [{**each, "answer": "proved"} for each in kept["broken"]]},
    ):
        assert not sound({**kept, **change})


@pytest.mark.parametrize(("scope", "size"), [(Scope(2, 3), 4132), (Scope(3, 3), 46277)])
def test_the_size_of_a_scope_is_counted_without_going_through_it(scope: Scope, size: int) -> None:
    assert scope.size() == size


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    file, part = tmp_path / "kept.jsonl", Done(Share("tie", "random", 1, 2), {"workflows": 3}, ("wrong",), 1.5)
    kept = runner.Kept(file, "abc", 0)
    kept.add(part)
    kept.ran(2.0)
    again = runner.Kept(file, "abc", 0)
    assert (again.parts, again.seconds) == ({part.share.name: part}, 2.0)
    assert not runner.Kept(file, "another", 0).parts
    assert not runner.Kept(file, "abc", 1).parts


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_no_share_is_begun_after_its_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["--seconds", "0", "--json", str(tmp_path / "proof.json")]) == 3
    assert f"0 of {len(list(shares()))} shares" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_what_is_kept_with_its_commit_is_whole() -> None:
    if runner.RESULTS.is_file():
        kept = json.loads(runner.RESULTS.read_text())
        assert sound(kept)
        assert kept["tie"]["workflows"] == whole.TIED
        assert len(kept["commit"].removesuffix("-dirty")) == 40

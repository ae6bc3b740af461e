"""A model that cannot be used: one line that says what is wrong and what to do, without a traceback."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agentcho import errors
from agentcho.cli import error_text
from agentcho.errors import ExtraMissing, ModelError
from tests.engine.families import Family, llama_family, refused
from tests.engine.templates import tokenizer
from tests.engine.test_loading import DAMAGE

from .conftest import Command, one_line

ADAPTER = Path(__file__).parents[1] / "fixtures" / "formats" / "adapter" / "trained"
Words = tuple[str, ...]
RUN: Words = ("run", "prisoners-dilemma", "--display", "none", "--max-tokens", "4", "--model")


class Wrong(NamedTuple):
    """Spoils a folder `m`; `words` are added to the command; `error` and `told` are the expected error and its text."""

    error: type[Exception]
    told: str
    do: Callable[[Path], object] = lambda folder: None
    words: Words = ()
    alone: bool = False
    """Whether only `run` reports it."""


def other(family: Family, **more: Any) -> Callable[[Path], object]:
    """Replaces the model by another."""

    def put(folder: Path) -> None:
        shutil.rmtree(folder)
        family.save(folder, **more)

    return put


def damaged(name: str) -> Wrong:
    file, do, words, error = DAMAGE[name]
    return Wrong(error, words.split(":")[0], lambda folder: do(folder / file))


GPT2 = refused()["learned positions"]
WRONG = {
    **{name: damaged(name) for name in DAMAGE},
    "a tokenizer larger than the embedding": Wrong(
        errors.ModelBroken, "resize_token_embeddings", other(llama_family(), vocab_size=len(tokenizer("llama3")) - 3)
    ),
    "no such folder": Wrong(errors.ModelNotFound, "the folder does not exist", shutil.rmtree),
    "learned positions": Wrong(errors.UnsupportedModel, "cannot share encodings", other(GPT2)),
    "a template that is none": Wrong(
        errors.UnsupportedModel,
        "no framing for",
        lambda folder: (folder / "chat_template.jinja").write_text("{% raise %}"),
    ),
    "no such device": Wrong(errors.ModelError, "device", words=("--device", "nothing")),
    "no such dtype": Wrong(errors.ModelError, "dtype", words=("--dtype", "int3")),
    "no adapter": Wrong(errors.AdapterError, "the folder does not exist", words=("--adapter", "no"), alone=True),
    "an adapter of another base": Wrong(
        errors.AdapterError, "trained on other", other(llama_family(), seed=2), ("--adapter", str(ADAPTER)), True
    ),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "m"
    llama_family().save(folder)
    return folder


@pytest.fixture
def model(here: Path, whole: Path) -> Path:
    """A copy of the model in the working folder."""
    return Path(shutil.copytree(whole, here / "models" / "of" / "m"))


@pytest.fixture
def raised(monkeypatch: pytest.MonkeyPatch) -> list[type[Exception]]:
    """Collects the classes of the errors that ended commands."""
    seen, told = list[type[Exception]](), error_text.error_text

    def noted(error: Exception) -> str:
        seen.append(type(error))
        return told(error)

    monkeypatch.setattr(error_text, "error_text", noted)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_it_is_said_in_a_line_by_run_and_by_doctor(
    agentcho: Command, model: Path, raised: list[type[Exception]], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    wrong = WRONG[name]
    wrong.do(model)
    capsys.readouterr()
    alone = wrong.alone or name == "no weights"  # doctor accepts a lone tokenizer
    commands: list[Words] = [(*RUN, str(model)), *([] if alone else [("doctor", str(model))])]
    for command in commands:
        told = one_line(agentcho(*command, *wrong.words))
        assert wrong.told in told.replace("\\", "")
        assert "Traceback" not in told
    assert raised == [wrong.error] * len(commands)
    assert not any(path.name == "transcript.jsonl" for path in Path("runs").rglob("*"))


def test_there_is_a_case_of_every_kind() -> None:
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ModelError)}
    assert {wrong.error for wrong in WRONG.values()} == kinds


@pytest.mark.parametrize(
    ("library", "words", "extra"),
    [
        ("peft", ("compare", "multi-qa", "--adapter", str(ADAPTER), "--model", "MODEL"), "tune"),
        ("datasets", ("run", "direct", "--tasks", "gsm8k", "--model", "MODEL"), "datasets"),
        ("math_verify", ("run", "direct", "--tasks", "math:t.jsonl", "--model", "MODEL"), "math"),
    ],
)
@pytest.mark.usefixtures("no_model")
def test_a_library_that_is_missing_is_named_before_a_model_is_loaded(
    agentcho: Command,
    model: Path,
    raised: list[type[Exception]],
    monkeypatch: pytest.MonkeyPatch,
    library: str,
    words: Words,
    extra: str,
) -> None:
    Path("t.jsonl").write_text(json.dumps({"problem": "1+1?", "answer": "2"}) + "\n")
    monkeypatch.setitem(sys.modules, library, None)
    told = one_line(agentcho(*(str(model) if word == "MODEL" else word for word in words)))
    assert f"pip install 'agentcho[{extra}]'" in told
    assert raised == [ExtraMissing]


def test_without_peft_a_run_reads_no_weights(
    agentcho: Command, model: Path, raised: list[type[Exception]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    monkeypatch.setattr("agentcho.runner.engine.load", lambda *parts: pytest.fail("weights were read"))
    assert "pip install 'agentcho[tune]'" in one_line(agentcho(*RUN, str(model), "--adapter", str(ADAPTER)))
    assert raised == [ExtraMissing]

"""A real model: SmolLM2-135M-Instruct, as installed by `make real`.

Tests are skipped if it is missing, unless AGENTCHO_TEST_REAL=required, as in CI.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import agentcho
from agentcho.audit.audit import audit_run
from agentcho.records.record import SavedRun
from agentcho.runner.doctor import DoctorReport, DoctorRow, doctor
from agentcho.runner.model.known_models import KNOWN, place_of

from ..device import DEVICE
from ..test_site import DOCS, blocks, execute, saved

NAME = "smollm2"
LEAST = 3
"""A text with more letters than this says something."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def there() -> None:
    """Require the model in the cache or in the package that carries it."""
    if place_of(NAME) != KNOWN[NAME].hub:
        return
    if os.environ.get("AGENTCHO_TEST_REAL") == "required":
        pytest.fail(f"{NAME} is not there: make real")
    pytest.skip(f"{NAME} is not there: make real")


def test_two_debaters_and_their_moderator_talk_and_nothing_leaks(tmp_path: Path) -> None:
    played = agentcho.run(
        "debate", given={"rounds": 1}, model=NAME, max_tokens=16, leakage="enforce", display="none", out=tmp_path
    )
    said = [message for message in played.messages() if message.role == "assistant"]
    assert [message.author for message in said] == ["ada", "ben", "mod", "mod"]
    for message in said[:2]:
        assert len(re.findall("[a-zA-Z]", message.text)) > LEAST, message.text
    assert played.record is not None
    assert audit_run(SavedRun(played.record)).conclusion == "clean"


@pytest.fixture(scope="module")
def report() -> DoctorReport:
    """What `agentcho doctor smollm2` prints."""
    return doctor(NAME, device=DEVICE)


def test_the_doctor_proves_all_its_layers_in_one_line(report: DoctorReport) -> None:
    assert report.layers is not None
    assert (report.layers.result, report.layers.detail[:6]) == ("proved", "all 30")
    assert sum(row.check in ("layer", "layers") for row in report.short) == 1


def test_the_doctor_says_that_plain_chats_have_the_ids_of_stock_transformers(report: DoctorReport) -> None:
    rows = {row.result: row.detail for row in report.rows if row.check == "framing"}
    assert rows["plain chats"] == "equal to stock transformers in 7 of 7 conversations"
    assert rows["begins"] == "no BOS, ends at '<|im_end|>'"
    assert rows["assistant"].startswith("'<|im_start|>assistant\\n' … '<|im_end|>\\n'")
    assert DoctorRow("framing", None, "apart", rows["apart"]) in report.rows, (
        "no text can spell what stands between messages"
    )


def test_the_last_step_of_the_tutorial_is_what_comes_out(
    report: DoctorReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = DOCS / "tutorial.md"
    (shown,) = (block.text for block in blocks(page) if block.text.startswith(f"{NAME}: can share encodings"))
    rows = [f"{row.check} {row.result} {row.detail}" for row in report.short]
    for line in shown.splitlines()[1:]:
        assert any(row.startswith(" ".join(line.partition("…")[0].split())) for row in rows), line
    for block in (block for block in blocks(page) if saved(block)):
        execute(block, page, tmp_path)
    monkeypatch.chdir(tmp_path)
    played = agentcho.run("wolf.py", model=NAME, seed=1, out="runs", display="none")
    assert played.record is not None
    assert audit_run(SavedRun(played.record)).conclusion == "clean"
    first = next(iter(played.messages(readable_by="ann"))).text
    assert any(f"ann: {first}" in block.text for block in blocks(page))

"""What the shell completes, by a process of its own as a shell starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentcho.cli import completion


def completed(folder: Path, words: str) -> list[str]:
    """What bash is offered after `words`."""
    said = {"_AGENTCHO_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    code = "from agentcho.cli import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.argv[0] = 'agentcho'; {code}"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **said, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert not ran.stderr, ran.stderr
    return ran.stdout.split()


@pytest.mark.slow
def test_a_shell_is_offered_commands_scenarios_runs_and_models(tmp_path: Path) -> None:
    (tmp_path / "runs" / "20260101-000000-debate").mkdir(parents=True)
    (tmp_path / "runs" / "20260101-000000-debate" / "run.json").touch()
    assert completed(tmp_path, "agentcho ru") == ["run"]
    assert completed(tmp_path, "agentcho run deb") == ["debate"]
    assert completed(tmp_path, "agentcho run debate --model sm") == ["smollm2"]
    assert completed(tmp_path, "agentcho show 2026") == ["20260101-000000-debate"]


def test_words_are_offered_with_what_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenarios").mkdir()
    lines = ("import agentcho", 'raise SystemExit("imported")', "class Duel(agentcho.Scenario):", '    """Two duel."""')
    source = "\n".join((*lines, '    name = "duel"', ""))
    (tmp_path / "scenarios" / "duel.py").write_text(source)
    for name in ("1-debate", "2-debate"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").touch()
    (tmp_path / "runs" / "notes").mkdir()
    assert completion.scenarios("du") == [("duel", "Two duel.")]
    assert [name for name, _ in completion.scenarios_and_agents("pris")] == ["prisoners-dilemma", "prisoner"]
    assert [name for name, _ in completion.runs("")] == ["last", "2-debate", "1-debate"]
    assert [name for name, _ in completion.played("de")] == ["debate"]
    assert [name for name, _ in completion.models("")] == ["understudy", "smollm2", "fake", "openai:"]

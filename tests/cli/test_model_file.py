"""`agentcho run --models FILE`: a run with several models, from the command line to its audit; and errors in the file,
which name table and field before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcho.records.record import find

from .conftest import Command, one_line

TALK = '''
import agentcho

class Talk(agentcho.Scenario):
    """Ann speaks through the run's own model, Bob through another in each second turn."""
    name = "talk"

    async def play(self, game):
        ann = game.cast(agentcho.Agent, "ann", audience="everyone")
        bob = game.cast(agentcho.Agent, "bob", audience="everyone", model=lambda turn: ("small", "default")[turn % 2])
        for _ in range(2):
            await ann.say(max_tokens=3)
            await bob.say(max_tokens=3)
        return self.Outcome()
'''
RUN = ("run", "talk.py", "--model", "fake", "--display", "plain")


@pytest.fixture
def talk(here: Path) -> Path:
    (here / "talk.py").write_text(TALK)
    return here


def test_a_run_of_two_models_is_played_shown_audited_and_goes_on(agentcho: Command, talk: Path) -> None:
    (talk / "models.toml").write_text('[small]\nmodel = "fake"\ndevice = "cpu"\n')
    ran = agentcho(*RUN, "--models", "models.toml")
    assert (ran.code, ran.err) == (0, "")
    assert "fake, small (fake)" in ran.out
    run = find("last", Path("runs"))
    assert {e.message.id: e.engine for e in run.entries()} == {
        "ann.0": None,
        "bob.0": "small",
        "ann.1": None,
        "bob.1": None,
    }
    assert run.info.engines["small"]["model"] == "fake"
    audited = agentcho("audit", "last")
    assert audited.code == 0
    assert "CLEAN" in audited.out
    assert agentcho("show", "last").code == 0
    outcomes = run.path / "outcomes.jsonl"
    outcomes.write_text("")
    went_on = agentcho("run", "--resume", "last", "--display", "none")
    assert (went_on.code, went_on.err) == (0, "")
    assert outcomes.read_text()
    (talk / "models.toml").write_text('[small]\nmodel = "fake"\n')
    assert "models" in one_line(agentcho("run", "--resume", "last", "--models", "models.toml"))
    assert "used 2 models" in agentcho("audit", "last", "--measure").err


WRONG = {
    "[small]\nmodle = 'fake'": "models.toml: [small] modle: there are model, engine, tensor_parallel,",
    "[small]\ndevice = 'cpu'": "models.toml: [small] model: Field required",
    "[small]\nmodel = 'fake'\nretries = -1": "models.toml: [small] retries: Input should be greater than or equal to 0",
    "model = 'fake'": "models.toml: model is outside any table; begin a table with [NAME]",
    "[small\n": "models.toml is not TOML",
    f"small = {'[' * 9999}": "models.toml is not TOML: maximum recursion",
    "[default]\nmodel = 'fake'": "[default] is the run's own model, and --model contradicts it",
    "['a b']\nmodel = 'fake'": "'a b' cannot name a model",
    "[small]\nmodel = 'fake'\nbase_url = 'http://127.0.0.1:1'": "models small: base_url applies to models behind",
    "[small]\nmodel = 'openai:x'": "models small: openai:x is a model behind an API",
    "[small]\nmodel = 'fake'\nadapter = 'a'": "models small: adapter needs a model with weights",
    "[small]\nmodel = 'no/such/model'": "model 'small': no model 'no/such/model'",
    "[small]\nmodel = 'understudy'\ndevice = 'abacus'": "model 'small': unknown device 'abacus'",
    "[small]\nmodel = 'understudy'\ndtype = 'int3'": "model 'small': unknown dtype 'int3'",
    "[other]\nmodel = 'fake'": "bob names the model 'small', but the run's models are default, other",
}


@pytest.mark.parametrize("words", WRONG, ids=lambda words: words.replace("\n", " ")[:40])
def test_what_is_wrong_with_the_file_is_said_in_one_line(agentcho: Command, talk: Path, words: str) -> None:
    (talk / "models.toml").write_text(words)
    ran = agentcho(*RUN, "--models", "models.toml")
    assert WRONG[words] in " ".join((ran.out + ran.err).split())
    assert ran.code == (1 if "other" in words else 2)
    assert len([line for line in ran.err.splitlines() if not line.startswith("    talk.py:")]) <= 2
    assert "Traceback" not in ran.err


def test_a_file_that_is_not_there_is_no_traceback(agentcho: Command, talk: Path) -> None:
    assert "models.toml cannot be read: No such file" in one_line(agentcho(*RUN, "--models", "models.toml"))
    (talk / "models.toml").write_bytes(b"\xff\xfe[")
    assert "it is not UTF-8" in one_line(agentcho(*RUN, "--models", "models.toml"))

"""A stream abandoned because of an error: the record, `show` and `audit last` report what was heard."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentcho.games.runs.replay import replay
from agentcho.records.record import find
from agentcho.records.trace import read_traces, write_traces
from agentcho.runner.understudy import weights_path
from agentcho.testing import FakeEngine

from .conftest import Command, one_line

SCRIPT = '''
"""Bob reads what Alice made of her secret, and is cut off."""

from agentcho import Agent, Game, Scenario


class Cut(Scenario):
    """One stream, left by an error."""

    name = "cut"

    class Outcome(Scenario.Outcome):
        heard: str

    async def play(self, game: Game) -> Outcome:
        alice = game.cast(Agent, "alice", system="The word is zanzibar.", audience="everyone")
        bob = game.cast(Agent, "bob", audience="everyone")
        await alice.say()
        heard = []
        try:
            async with bob.stream() as pieces:
                async for text in pieces:
                    heard.append(text)
                    if len(heard) == 2:
                        raise ValueError("enough")
        except ValueError:
            pass
        return self.Outcome(heard="".join(heard))
'''


def test_a_stream_left_by_an_error(agentcho: Command, here: Path) -> None:
    (here / "cut.py").write_text(SCRIPT)
    ran = agentcho("run", "cut.py", "--model", "fake", "--leakage", "audit", "--display", "none")
    assert ran.code == 0
    run = find("last", Path("runs"))
    [left] = [entry for entry in run.entries() if entry.ended]
    heard = run.finished()[0].outcome
    assert heard is not None
    assert left.message.text == heard["heard"]
    audit = agentcho("audit", "last")
    assert audit.code == 1, "the words that leaked came through the very message that was cut off"
    assert audit.out.startswith("LEAKS")
    assert "AC002" in audit.out
    assert "messages heard only in part" in audit.out
    assert "bob.0  cancelled  2 tokens to everyone, game 0\n" in audit.out
    assert "1 message heard in part and never whole: 2 tokens" in audit.out
    assert heard["heard"].split()[-1] not in audit.out
    assert heard["heard"] in agentcho("audit", "last", "--reveal").out
    shown = agentcho("show", "last").out
    assert f"bob → everyone: {heard['heard']}\n    [cancelled here; nobody reads it]" in shown


def test_a_trace_of_it_says_so_and_is_played_and_judged(agentcho: Command, here: Path) -> None:
    (here / "cut.py").write_text(SCRIPT)
    agentcho("run", "cut.py", "--model", "fake", "--leakage", "audit", "--display", "none")
    write_traces(here / "t.jsonl", find("last", Path("runs")).export())
    [trace] = read_traces(here / "t.jsonl")
    assert {message.id: message.ended for message in trace.messages}["bob.0"] == "cancelled"
    assert "bob.0" not in {message.id for message in trace.whole.messages}
    assert agentcho("audit", "t.jsonl", "--leakage", "audit").code == 1
    engine = FakeEngine()
    for message in trace.messages:  # the fake tokenizer knows only words that it has encoded
        engine.framing.content.encode((message.header or "") + message.text)
    played = replay(trace, engine, leakage="audit", logits=False)
    assert played["bob.0"].entry.message.text == trace.messages[-1].text


def test_a_record_without_its_line_is_not_clean(agentcho: Command, here: Path) -> None:
    """The process died before it could record how the message ended."""
    (here / "cut.py").write_text(SCRIPT)
    agentcho("run", "cut.py", "--model", "fake", "--leakage", "audit", "--display", "none")
    file = find("last", Path("runs")).path / "transcript.jsonl"
    file.write_text("".join(line for line in file.read_text().splitlines(True) if '"ended"' not in line))
    audit = agentcho("audit", "last")
    assert (audit.code, audit.out.startswith("LEAKS")) == (1, True)
    assert "bob.0  died" in audit.out
    (file.parent / "heard.jsonl").unlink()
    audit = agentcho("audit", "last")
    assert audit.code == 3
    assert "there is no heard.jsonl" in audit.out


@pytest.mark.slow
def test_what_a_process_heard_before_it_was_killed_is_on_record(agentcho: Command, here: Path) -> None:
    """The code kills its own process right after it heard these words."""
    kill = "pathlib.Path('told').write_text(''.join(heard)); os.kill(os.getpid(), signal.SIGKILL)"
    killing = SCRIPT.replace('raise ValueError("enough")', kill)
    killing = killing.replace("from agentcho import", "import os, pathlib, signal\nfrom agentcho import")
    (here / "cut.py").write_text(killing)
    command = "from agentcho.cli import main; main()"
    words = ("run", "cut.py", "--model", "fake", "--leakage", "audit", "--display", "none")
    killed = subprocess.run([sys.executable, "-c", command, *words], cwd=here, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    [died] = [entry for entry in find("last", Path("runs")).entries() if entry.ended]
    assert (died.ended, died.message.text) == ("died", (here / "told").read_text())
    audit = agentcho("audit", "last")
    assert (audit.code, "AC002" in audit.out) == (1, True)
    assert "bob.0  died  2 tokens to everyone, game 0" in audit.out
    shown = agentcho("show", "last").out
    assert f"bob → everyone: {died.message.text}\n    [died here; nobody reads it]" in shown
    assert "died (process " in shown
    assert "game 0 is not over, 0 of 1 games over" in shown
    exported = agentcho("show", "last", "--trace", "t.jsonl")
    id = find("last", Path("runs")).info.id
    assert exported.err == f"note: 1 of 1 workflow without an end, taken as far as played: {id}-0\n"
    [trace] = read_traces(here / "t.jsonl")
    assert (trace.unfinished, trace.messages[-1].ended, trace.messages[-1].text) == (True, "died", died.message.text)
    planned = agentcho("audit", "t.jsonl", "--leakage", "enforce")
    assert (planned.code, "game 0 did not come to its end" in planned.out) == (3, True)


def test_a_line_that_is_gone_is_no_traceback(agentcho: Command, here: Path) -> None:
    """A broken record advises deleting the line. Commands then work with the lines that are left."""
    (here / "cut.py").write_text(SCRIPT)
    agentcho("run", "cut.py", "--model", "fake", "--leakage", "audit", "--display", "none")
    file = find("last", Path("runs")).path / "transcript.jsonl"
    whole = file.read_text().splitlines(True)
    for gone in range(len(whole)):
        file.write_text("".join(line for number, line in enumerate(whole) if number != gone))
        assert agentcho("show", "last").code == 0
        assert agentcho("audit", "last").code in (1, 3)
        exported = agentcho("show", "last", "--trace", "t.jsonl")
        assert exported.code == 0 or "parents must come earlier" in one_line(exported)


@pytest.mark.slow
@pytest.mark.skipif(not (weights_path() / "model.safetensors").is_file(), reason="there are no weights")
@pytest.mark.parametrize("leakage", ["audit", "enforce"])
def test_on_the_understudy_itself(agentcho: Command, here: Path, leakage: str) -> None:
    """The record holds what the code heard, and the audit reports it, whether or not it leaks."""
    (here / "cut.py").write_text(SCRIPT)
    ran = agentcho("run", "cut.py", "--max-tokens", "8", "--leakage", leakage, "--display", "none")
    assert (ran.code, ran.err) == (0, "")
    run = find("last", Path("runs"))
    [left] = [entry for entry in run.entries() if entry.ended]
    heard = run.finished()[0].outcome
    assert heard is not None
    assert left.message.text.startswith(heard["heard"])
    assert left.message.text == "".join(pieces(run.path, "bob.0"))
    assert left.message.sampled is not None
    tokens = left.message.sampled[1] - left.message.sampled[0]
    assert tokens >= 2
    audit = agentcho("audit", "last")
    assert (audit.code, "AC002" in audit.out) == ((1, True) if leakage == "audit" else (0, False))
    assert f"bob.0  cancelled  {tokens} tokens to everyone, game 0\n" in audit.out


def pieces(run: Path, id: str) -> list[str]:
    """The pieces of a message that were recorded, step by step."""
    lines = [json.loads(line) for line in (run / "heard.jsonl").read_text().splitlines()]
    return [line["text"] for line in lines if line["id"] == id and "kind" not in line]

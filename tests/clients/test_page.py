"""The page on clients is right: its code runs, and talks of three agents through unmodified frameworks encode each
message once per way of reading it, leak nothing, and read at the expected positions."""

from __future__ import annotations

import re
import sys
import urllib.request
from collections import Counter
from itertools import product

import pytest

from agentcho import Engine, Sampling
from agentcho.cli import main
from agentcho.records.record import SavedRun

from ..engines import Engines
from .page import PAGE, Prompted, ran, sections, society
from .served import Server

pytestmark = [pytest.mark.clients, pytest.mark.usefixtures("one_command_line")]
TALKS = ("AutoGen", "openai-agents", "pydantic-ai")
AGENTS = ("ann", "ben", "cal")
MODES = ("@baseline", "")
OWN_TRANSPORT = ("DSPy",)
"""Clients with their own HTTP library: their requests are not recorded, and a refused one ends the code."""
TURNS = 9
CLOSE = 0.1
"""Tolerance, as a fraction, for the page's figures against those measured here: other words have other lengths."""


@pytest.mark.parametrize("title", list(sections()))
def test_the_code_of_a_section_runs_and_is_short(server: Server, title: str) -> None:
    done = ran(server, title)
    assert done.said.strip()
    assert {request.status for request in done.requests} == (set() if title in OWN_TRANSPORT else {200})
    assert len([line for line in sections()[title].splitlines() if line.strip()]) <= 18


@pytest.fixture(scope="module")
def records(server: Server) -> dict[tuple[str, str], SavedRun]:
    """The records of the talks in both modes, after their societies were ended."""
    found = dict[tuple[str, str], SavedRun]()
    for title, mode in product(TALKS, MODES):
        ran(server, title, mode)
        name, key = society(title, mode), {"authorization": f"Bearer {server.key}"}
        urllib.request.urlopen(urllib.request.Request(f"{server.root}/s/{name}", headers=key, method="DELETE")).close()
        found[title, mode] = SavedRun(next(server.runs.glob(f"*society-{name}")))
    return found


@pytest.mark.parametrize("title", TALKS)
def test_a_talk_encodes_each_message_once_for_its_author_and_once_for_all_others(
    server: Server, records: dict[tuple[str, str], SavedRun], title: str
) -> None:
    requests = ran(server, title).requests
    assert [request.agent for request in requests] == [*AGENTS] * (TURNS // len(AGENTS))
    assert len({request.prompt[0] for request in requests if request.prompt[0].role == "system"}) == len(AGENTS)
    entries = records[title, ""].entries()
    assert [entry.message.words.text for entry in entries if entry.origin == "sampled"] == [r.text for r in requests]
    made = Counter((record.message, record.recipe) for entry in entries for record in entry.made)
    assert set(made.values()) == {1}
    assert {recipe for _, recipe in made} == {"author", "audience"}


@pytest.mark.parametrize("title", TALKS)
def test_a_talk_leaks_nothing(
    server: Server,
    records: dict[tuple[str, str], SavedRun],
    title: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["agentcho", "audit", str(records[title, ""].path)])
    with pytest.raises(SystemExit) as end:
        main()
    assert "CLEAN" in capsys.readouterr().out
    assert (end.value.code or 0) == 0


@pytest.mark.parametrize("title", TALKS)
def test_a_talk_in_the_baseline_has_the_words_of_the_engine_itself(
    server: Server, engines: Engines, title: str
) -> None:
    """Each request is read as one prompt, in which an agent's earlier answers are messages under its name."""
    requests, said = ran(server, title, "@baseline").requests, list[tuple[str, str, tuple[int, ...]]]()
    with engines.understudy() as engine:
        for request in requests:
            text, tokens = answer(engine, request.prompt, request.agent, said)
            assert text == request.text
            said.append((request.agent, text, tokens))
    assert len(said) == TURNS


def answer(
    engine: Engine, prompt: list[Prompted], agent: str, said: list[tuple[str, str, tuple[int, ...]]]
) -> tuple[str, tuple[int, ...]]:
    """An agent's answer at temperature 0, as text and token ids. `said` are the answers in its prompt, in order."""
    parents, known = list[int](), iter(said)
    after = next(known, None)
    for role, text, name in prompt:
        tokens = None
        if after is not None and text == after[1]:
            role, name, tokens = "assistant", after[0], after[2]
            after = next(known, None)
        parents.append(engine.prefill(text, role=role, name=name, tokens=tokens, parents=tuple(parents)))
    assert after is None, "the prompt has all that was said"
    sampling = Sampling(temperature=0, max_tokens=24)
    words = engine.message(engine.decode("", parents=tuple(parents), name=agent, sampling=sampling))
    return words.text, words.tokens[slice(*words.content)]


@pytest.mark.parametrize("title", TALKS)
def test_the_page_says_how_much_is_reused_and_encoded(
    server: Server, records: dict[tuple[str, str], SavedRun], title: str
) -> None:
    (row,) = re.findall(rf"^\| {title} \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    usages = ([request.usage for request in ran(server, title, mode).requests] for mode in MODES)
    sums = ([sum(column) for column in zip(*usage, strict=True)] for usage in usages)
    shares = [(exact + reused) / prompt for prompt, exact, reused in sums]
    encoded = [sum(entry.usage.encoded for entry in records[title, mode].entries()) for mode in MODES]
    assert [float(told) for told in row.split(" | ")] == pytest.approx([*shares, *encoded], rel=CLOSE)

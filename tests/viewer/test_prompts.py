"""The composition of prompts and the cost of agents, from receipts and usage; and their display on the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentcho.protocol.text_calls import TokensSpent
from agentcho.records.transcript import MessageUsage, TranscriptEntry
from agentcho.viewer.prompts import CallPrompt, prompts

from ..audit.transcripts import LENGTH, Talk
from .pages import blocks, page_of, recorded
from .test_browser import driven, judged

OPENING = 1
"""Number of tokens in each message's opening; the others are sampled."""


def used(encoded: int, reused: int, ttft: float = 0.0, seconds: float = 0.0) -> MessageUsage:
    return MessageUsage(encoded, reused, ttft, seconds)


def sampled() -> dict[str, Any]:
    return {"sampled": (OPENING, LENGTH)}


def islands() -> Talk:
    """Bob reads rules from the store, a note encoded for him, and Alice's message from the store."""
    talk = Talk()
    rules = talk.say("scenario.0", "everyone", author=None, kind="prefill")
    said = talk.say("alice.0", "everyone", [rules], **sampled())
    note = talk.say("bob.0", ["bob"], [rules], kind="prefill")
    talk.say("bob.1", "everyone", [rules, note, said], **sampled())
    noted = next(entry for entry in talk.entries if entry.message.id == "bob.0")
    last = talk.entries[-1]
    talk.change("bob.0", made=(), encoding=None, usage=used(0, 0))
    talk.change("bob.1", made=(*noted.made, *last.made), usage=used(2 * LENGTH, 2 * LENGTH, 0.5, 2.0))
    talk.change("alice.0", usage=used(LENGTH, LENGTH, 0.25, 1.0))
    return talk


def played(entries: Sequence[TranscriptEntry], game: int) -> list[TranscriptEntry]:
    """The same messages in another game."""
    return [entry._replace(message=replace(entry.message, game=game)) for entry in entries]


def test_a_prompt_is_the_context_in_its_order_and_what_the_message_opens_with() -> None:
    found = prompts(islands().entries)
    assert found == {
        "alice.0": CallPrompt((LENGTH, OPENING), LENGTH - OPENING),
        "bob.1": CallPrompt((LENGTH, LENGTH, LENGTH, OPENING), LENGTH - OPENING),
    }
    assert (found["bob.1"].reused, found["bob.1"].encoded) == (2 * LENGTH, LENGTH + OPENING)


def test_an_encoding_that_two_calls_lacked_at_once_is_encoded_for_one_of_them() -> None:
    talk = Talk()
    talk.say("alice.0", ["alice"], kind="prefill")
    for name in ("bob", "carol"):
        own = talk._made("alice.0", [], "audience", None, None)
        talk.say(f"{name}.0", "everyone", [own.id], **sampled())
        talk.change(f"{name}.0", made=(own, *talk.entries[-1].made))
    talk.change("carol.0", usage=used(LENGTH, LENGTH))
    found = prompts(talk.entries)
    assert found["bob.0"].runs == (0, LENGTH + OPENING)
    assert found["carol.0"].runs == (LENGTH, OPENING)
    assert found["carol.0"].placed


def test_counts_that_do_not_fit_the_receipts_are_kept_without_a_place() -> None:
    talk = islands()
    talk.change("bob.1", usage=used(LENGTH, LENGTH + 1))
    found = prompts(talk.entries)["bob.1"]
    assert (found.runs, found.placed) == ((LENGTH + 1, 2 * LENGTH - 1 + OPENING), False)
    assert found.json()["unplaced"]


def test_a_repaired_encoding_counts_as_encoded_and_is_marked() -> None:
    talk = islands()
    note, own = talk.entries[-1].made
    base = talk.entries[0].encoding
    talk.change("bob.1", made=(note._replace(receipt=note.receipt._replace(base=base)), own))
    found = prompts(talk.entries)["bob.1"]
    assert (found.runs, found.repaired) == ((LENGTH, LENGTH, LENGTH, OPENING), True)


@pytest.mark.parametrize(
    ("spent", "prompt"),
    [
        (TokensSpent(100, 60, 7), CallPrompt((60, 40), 7)),
        (TokensSpent(100, None, 7), CallPrompt((0, 100), 7, reported=False)),
        (TokensSpent(None, None, 7), None),
    ],
)
def test_of_a_model_behind_an_api_it_is_what_its_server_reports(spent: TokensSpent, prompt: CallPrompt | None) -> None:
    talk = Talk()
    talk.say("alice.0", "everyone")
    talk.change("alice.0", usage=used(0, 0)._replace(spent=spent), made=(), encoding=None)
    assert prompts(talk.entries).get("alice.0") == prompt


def test_unfinished_calls_of_which_nothing_is_known_and_known_words_have_no_prompt() -> None:
    talk = islands()
    talk.change("bob.1", ended="died")
    assert prompts(talk.entries).keys() == {"alice.0"}


def test_each_agent_has_a_row_of_costs_and_the_game_one_that_adds_up(tmp_path: Path) -> None:
    talk = islands()
    data = blocks(page_of(recorded(tmp_path, talk.entries)))["talk-0"]
    scenario, alice, bob, whole = data["costs"]
    assert (scenario["by"], scenario["calls"], scenario["all"]) == (None, 0, LENGTH)
    assert [data["agents"][each["by"]]["name"] for each in (alice, bob)] == ["alice", "bob"]
    assert (bob["calls"], bob["reused"], bob["encoded"], bob["sampled"]) == (1, 6, 4, 2)
    assert (bob["first"], bob["seconds"], whole["first"], whole["seconds"]) == (0.5, 2.0, 0.375, 3.0)
    assert "by" not in whole
    assert whole["all"] == sum(entry.usage.encoded for entry in talk.entries)
    for name in ("calls", "reused", "encoded", "sampled", "all"):
        assert whole[name] == sum(row[name] for row in (scenario, alice, bob))


def test_calls_whose_prompts_nobody_counted_are_counted_apart(tmp_path: Path) -> None:
    talk = islands()
    talk.change("bob.1", usage=used(0, 0)._replace(spent=TokensSpent(None, None, 7)), made=(), encoding=None)
    costs = blocks(page_of(recorded(tmp_path, talk.entries)))["talk-0"]["costs"]
    assert [(row["calls"], row["unknown"]) for row in costs] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    for id in ("alice.0", "bob.1"):
        talk.change(id, usage=used(0, 0)._replace(spent=TokensSpent(None, None, 7)), made=(), encoding=None)
    costs = blocks(page_of(recorded(tmp_path / "none", talk.entries)))["talk-0"]["costs"]
    assert (costs[-1]["calls"], costs[-1]["unknown"]) == (0, 2)


def test_games_of_a_group_are_summed_without_attempts_that_were_given_up(tmp_path: Path) -> None:
    first, again = islands().entries, played(islands().entries, 1)
    given_up = [entry._replace(attempt=1) for entry in played(first, 2)]
    last = [entry._replace(attempt=2) for entry in played(first, 2)]
    head = blocks(page_of(recorded(tmp_path, [*first, *again, *given_up, *last])))["head"]
    assert len(head["talks"]) == 4
    (found,) = head["costs"]
    assert (found["group"], found["games"]) == ("", 3)
    assert [(row["name"], row["calls"]) for row in found["rows"]] == [
        ("scenario", 0),
        ("alice", 3),
        ("bob", 3),
        ("all", 6),
    ]
    assert found["rows"][-1]["first"] == 0.375


def test_what_one_agent_may_read_has_no_counts_of_prompts(tmp_path: Path) -> None:
    run = recorded(tmp_path, islands().entries, alice="agent", bob="agent")
    whole = blocks(page_of(run, "bob"))
    data = whole["talk-0"]
    assert "costs" not in data
    assert whole["head"]["costs"] == []
    for message in data["messages"]:
        assert not {"prompt", "sampled", "encoded", "reused", "spent"} & message.keys()


@pytest.mark.browser
def test_bars_stand_under_messages_in_their_panel_and_among_the_costs(tmp_path: Path) -> None:
    script = """
    const share = (part) => Math.round(parseFloat(part.style.width));
    const parts = (where) => [...where.querySelectorAll(".usage i")].map((part) => [part.className, share(part)]);
    const message = (id) => all("#pane article").find((row) => row.querySelector(".id").textContent === id);
    left.talk = parts(message("bob.1")); left.told = message("bob.1").querySelector(".told").textContent;
    left.without = message("bob.0").querySelectorAll(".usage").length;
    press("k");
    left.detail = parts(document.querySelector("#detail"));
    left.facts = [...document.querySelectorAll("#detail section dd")].map((each) => each.textContent);
    press("4");
    left.tab = document.querySelector('[aria-selected="true"]').id;
    left.costs = all(".sheet tbody tr").map((row) => [...row.children].map((cell) => cell.textContent));
    left.calls = all("#pane .call").map((row) => [row.firstChild.textContent, row.getAttribute("aria-current")]);
    all("#pane .call")[0].click(); left.chosen = document.querySelector("#detail h2").textContent;
    """
    page = page_of(recorded(tmp_path, islands().entries))
    found = driven(page, script, tmp_path, "--window-size=1280,900")
    bar = [["reused", 25], ["encoded", 25], ["reused", 25], ["encoded", 8], ["sampled", 17]]
    assert (found["talk"], found["detail"]) == (bar, bar)
    assert found["told"] == "60% of 10 prompt tokens reused, 4 encoded; 2 generated"
    assert found["without"] == 0
    assert found["facts"] == ["6 tokens, 60%", "4 tokens, 40%", "2 tokens"]
    assert found["tab"] == "tab-costs"
    assert found["costs"][2] == ["bob", "1", "10", "6", "4", "60%", "2", "6", "500 ms", "2.0 s"]
    assert found["costs"][-1][:4] == ["all", "2", "14", "9"]
    assert found["calls"] == [["alice.0", None], ["bob.1", "true"]]
    assert found["chosen"] == "alice.0"


@pytest.mark.browser
def test_costs_of_several_games_are_summed(tmp_path: Path) -> None:
    script = """
    press("4");
    left.titles = all(".sheet caption").map((each) => each.textContent);
    left.rows = all("#figures-1 tbody tr").map((row) => [...row.children].map((cell) => cell.textContent));
    """
    entries = islands().entries
    page = page_of(recorded(tmp_path, [*entries, *played(entries, 1)]))
    left = driven(page, script, tmp_path, "--window-size=1280,900")
    assert left["titles"] == ["Cost by agent", "Cost by agent, all 2 games"]
    assert [row[:4] for row in left["rows"]] == [
        ["scenario", "0", "0", "0"],
        ["alice", "2", "8", "6"],
        ["bob", "2", "20", "12"],
        ["all", "4", "28", "18"],
    ]
    assert [row[-2:] for row in left["rows"]] == [
        ["-", "-"],
        ["250 ms", "2.0 s"],
        ["500 ms", "4.0 s"],
        ["375 ms", "6.0 s"],
    ]


@pytest.mark.browser
def test_without_costs_there_is_no_tab(tmp_path: Path) -> None:
    script = 'press("4"); left.tabs = all("[role=tab]:not([hidden])").map((tab) => tab.dataset.view);'
    run = recorded(tmp_path, islands().entries, alice="agent", bob="agent")
    assert driven(page_of(run, "bob"), script, tmp_path)["tabs"] == ["talk", "graph", "timeline"]


@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_on_bars_and_costs(tmp_path: Path, theme: str) -> None:
    left = judged(page_of(recorded(tmp_path, islands().entries)), [[], ["4"], ["j"]], tmp_path, theme)
    assert (left.pop("passed") > 40, left.pop("contrast")) == (True, 3)
    assert {step: found for step, found in left.items() if found} == {}

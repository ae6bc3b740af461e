"""Mutants of the viewer: what one agent is shown, what a browser would execute, who has access."""

from __future__ import annotations

from .mutant import Mutant

PAGE = "tests/viewer/test_page.py"
LIVE = "tests/viewer/test_live.py"
FIGURES = "tests/viewer/test_figures.py"

VIEWER = (
    Mutant(
        "eyes that see what never ended",
        "a page for one agent would have what was cancelled, which nobody reads",
        "agentcho/viewer/reader_view.py",
        "if each.ended is None or each.message.author == reader]",
        "]",
        (f"{PAGE}::test_what_bob_may_read_is_all_that_his_page_has",),
    ),
    Mutant(
        "a page without anchors",
        "what an encoding was corrected by would be missing from its details, and from its cone",
        "agentcho/viewer/talk.py",
        '"anchors": [records.get(id, -1) for id in receipt.anchors],',
        '"anchors": [],',
        (f"{PAGE}::test_an_encoding_names_those_whose_offsets_it_took",),
    ),
    Mutant(
        "eyes that see roles",
        "a page for one agent would tell what the others are",
        "agentcho/viewer/reader_view.py",
        'cast.get(name, "") if name == reader else ""',
        'cast.get(name, "")',
        (f"{PAGE}::test_what_bob_may_read_is_all_that_his_page_has",),
    ),
    Mutant(
        "groups that are called what they are",
        "a page for one agent would tell which options each of its games had",
        "agentcho/viewer/page_content.py",
        'return [f"part {numbers[folder]}" for folder in inside]',
        "return [names.get(folder, folder.name) for folder in inside]",
        (f"{FIGURES}::test_what_one_agent_may_read_has_no_figures_and_no_names_of_columns",),
    ),
    Mutant(
        "figures for whoever reads",
        "a page for one agent would have the scores of all, and how far apart what they computed is",
        "agentcho/viewer/page_content.py",
        'return head | {"status": status if status in TOLD else "", "started": ""}',
        'return head | {"status": "", "started": "", "figures": figures and figures.json()}',
        (f"{FIGURES}::test_what_one_agent_may_read_has_no_figures_and_no_names_of_columns",),
    ),
    Mutant(
        "eyes that see how a message was asked for",
        "a page for one agent would name tools, their audiences, and secrets that words are charged for",
        "agentcho/viewer/reader_view.py",
        'line = said(message, seat) | ({"header"',
        'line = said(message, seat) | {"use": repr(entry.act)} | ({"header"',
        (f"{PAGE}::test_what_bob_may_read_is_all_that_his_page_has",),
    ),
    Mutant(
        "words that end their block",
        "a text with the tag of a script's end would be run by whoever opens the page",
        "agentcho/viewer/page.py",
        'UNSAFE = re.compile("[<>&',
        'UNSAFE = re.compile("[>&',
        (f"{PAGE}::test_no_block_can_be_left",),
    ),
    Mutant(
        "any host",
        "a page of another site whose name points here would read the talk through the browser",
        "agentcho/viewer/live.py",
        "(len(hosts) != 1 or hosts[0].lower() not in self._hosts)",
        "len(hosts) != 1",
        (f"{LIVE}::test_a_name_of_another_site_that_points_here_is_refused",),
    ),
    Mutant(
        "what was seen before is not seen again",
        "a message that came with another one and is then read itself would count as having come with it",
        "agentcho/audit/reach.py",
        'if brought.verdict == "transitive":',
        'if brought.verdict != "clean":',
        ("tests/audit/test_reach.py::test_it_is_what_the_readings_say",),
    ),
)

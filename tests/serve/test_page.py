"""The page on the server says what the server does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from agentcho.serve.api import chat, responses
from agentcho.serve.api.body import Body

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"


def bodies(top: type[Body] = Body) -> Iterator[type[Body]]:
    """Everything that a request is made of."""
    for each in top.__subclasses__():
        yield each
        yield from bodies(each)


def test_the_page_lists_what_changes_nothing_and_nothing_else() -> None:
    assert {chat.ChatBody, responses.ResponsesBody} <= set(bodies())
    section = PAGE.read_text().partition("by name:\n")[2].partition("`prompt_cache_key` is among")[0]
    listed = re.findall(r"`([\w.]+)`", section)
    assert len(listed) == len(set(listed))
    assert set(listed) == {each.within + name for each in bodies() for name in each.ignored}

"""What is too long is found out before anybody tokenises it on the event loop."""

from __future__ import annotations

import anyio
import pytest

from agentcho.errors import ContextOverflow
from agentcho.serve.request import ChatRequest, Quoted, ToolCall
from agentcho.serve.web.length import check_length
from agentcho.testing import FakeEngine


@pytest.mark.parametrize("where", ["text", "arguments"])
def test_a_text_of_many_letters_is_too_long_wherever_it_stands(where: str) -> None:
    long = "word " * 50_000
    call = (ToolCall("write", f'{{"it": "{long}"}}'),) if where == "arguments" else ()
    quoted = Quoted("assistant", long if where == "text" else "", calls=call)
    with pytest.raises(ContextOverflow):
        anyio.run(check_length, ChatRequest((quoted,)), FakeEngine(context=64))

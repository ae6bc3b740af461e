"""The page on clients: its sections, the code of each, and what comes of running it.

Does not know: what is expected of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from .environment import ROOT, run_script
from .served import Server

PAGE = ROOT / "docs" / "clients.md"
BASE = "http://127.0.0.1:8000"
ELSEWHERE = {
    "litellm": "litellm",
    "Concordia": "litellm",
    "LangGraph": "talks",
    "LlamaIndex": "talks",
    "smolagents": "talks",
    "CrewAI": "crewai",
    "DSPy": "dspy",
}
"""Sections whose client is not among the frameworks."""


class Prompted(NamedTuple):
    """A message of a request: its role, its text, and the name that it claims."""

    role: str
    text: str
    name: str | None = None


class Request(NamedTuple):
    """A request that a client sent, and what came: the path, the body, and the status and body of the answer."""

    path: str
    asked: dict[str, Any]
    status: int
    answer: Any

    @property
    def agent(self) -> str:
        """Whose path it is."""
        return self.path.split("/")[3]

    @property
    def text(self) -> str:
        """The words of the answer."""
        if "choices" in self.answer:
            return str(self.answer["choices"][0]["message"]["content"])
        return "".join(part["text"] for part in self.answer["output"][0]["content"])

    @property
    def usage(self) -> tuple[int, int, int]:
        """Tokens of the prompt; of these reused exactly, and through encodings of messages."""
        told = self.answer["usage"]
        details = told.get("prompt_tokens_details") or told["input_tokens_details"]
        prompt = told.get("prompt_tokens") or told["input_tokens"]
        return prompt, details["cached_tokens"], details["message_reused_tokens"]

    @property
    def prompt(self) -> list[Prompted]:
        """Its messages, whichever API it was sent to."""
        first = [Prompted("system", self.asked["instructions"])] if "instructions" in self.asked else []
        given = self.asked.get("messages") or self.asked["input"]
        return [*first, *(Prompted(each["role"], _text(each["content"]), each.get("name")) for each in given)]


class Ran(NamedTuple):
    """What the code of a section printed, and the requests that it made."""

    said: str
    requests: Sequence[Request]


def sections() -> dict[str, str]:
    """The code of each section, by its title."""
    found = re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    codes = {title: re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) for title, text in found}
    return {title: code for title, (code, *_) in ((title, each) for title, each in codes.items() if each)}


def society(title: str, mode: str = "") -> str:
    """The society that a section's code asks, where it is run in a mode of the model."""
    found = re.search(r"/s/([\w-]+)/", sections()[title])
    assert found, f"{title} has no society"
    return f"{found[1]}{mode.replace('@', '-')}"


def ran(server: Server, title: str, mode: str = "") -> Ran:
    """Run the code of a section against a server, as it is, but for the address, the key, and the mode. Once: a talk in
    a society that has it already would be another."""
    return _ran(server, title, mode)


@cache
def _ran(server: Server, title: str, mode: str) -> Ran:
    code = sections()[title].replace(BASE, server.root).replace('"none"', repr(server.key))
    code = code.replace('"understudy"', f'"understudy{mode}"')
    if mode:
        code = re.sub(r"/s/[\w-]+/", f"/s/{society(title, mode)}/", code)
    found = run_script(ELSEWHERE.get(title, "frameworks"), "page", code)
    requests = [Request(each["path"], each["asked"], each["status"], each["answer"]) for each in found["sent"]]
    return Ran(found["said"], requests)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)

"""The documentation page on clients: its sections, their code, and the results of running it."""

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
"""Sections whose client is not in the frameworks environment."""


class Prompted(NamedTuple):
    """A message of a request: its role, its text, and the name in it."""

    role: str
    text: str
    name: str | None = None


class Request(NamedTuple):
    """A request that a client sent, with its path and body, and the status and body of the answer."""

    path: str
    asked: dict[str, Any]
    status: int
    answer: Any

    @property
    def agent(self) -> str:
        """The agent named by the path."""
        return self.path.split("/")[3]

    @property
    def text(self) -> str:
        """The text of the answer."""
        if "choices" in self.answer:
            return str(self.answer["choices"][0]["message"]["content"])
        return "".join(part["text"] for part in self.answer["output"][0]["content"])

    @property
    def usage(self) -> tuple[int, int, int]:
        """The number of prompt tokens, of those reused exactly, and of those reused from messages."""
        told = self.answer["usage"]
        details = told.get("prompt_tokens_details") or told["input_tokens_details"]
        prompt = told.get("prompt_tokens") or told["input_tokens"]
        return prompt, details["cached_tokens"], details["message_reused_tokens"]

    @property
    def prompt(self) -> list[Prompted]:
        """The messages of the request, for either API."""
        first = [Prompted("system", self.asked["instructions"])] if "instructions" in self.asked else []
        given = self.asked.get("messages") or self.asked["input"]
        return [*first, *(Prompted(each["role"], _text(each["content"]), each.get("name")) for each in given)]


class Ran(NamedTuple):
    """The output of a section's code, and its requests."""

    said: str
    requests: Sequence[Request]


def sections() -> dict[str, str]:
    """The code of each section, by its title."""
    found = re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    codes = {title: re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) for title, text in found}
    return {title: code for title, (code, *_) in ((title, each) for title, each in codes.items() if each)}


def society(title: str, mode: str = "") -> str:
    """The society named in a section's code, with the mode of the model added."""
    found = re.search(r"/s/([\w-]+)/", sections()[title])
    assert found, f"{title} has no society"
    return f"{found[1]}{mode.replace('@', '-')}"


def ran(server: Server, title: str, mode: str = "") -> Ran:
    """Runs the code of a section against a server, changing only address, key and mode. The result is cached, since
    repeating a talk in the same society would give another."""
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

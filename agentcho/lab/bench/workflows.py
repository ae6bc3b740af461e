"""Workflows of random words for timing: the time of a step does not depend on the words.

Sizes are those of dilemma games played by an 8B model, in its tokens; a word here is about three tokens of the
understudy. Independent of engines.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Literal

from agentcho.records.trace import Workflow, workflow

SYLLABLES = ("ba", "de", "fi", "go", "lu", "ma", "ne", "po", "ri", "sa", "te", "vo")
RULES = 85
ASKED = 10
PLAN = 140
TALK = 65
BRIEF, QUESTION, REVIEW = 90, 30, 100
"""Tokens of the texts of a panel: a private system prompt, a private question, a review."""
RETRIEVED = 4
"""The number of documents in a panel that reads them in different orders."""
Layout = Literal["system-first", "document-first", "documents-reordered"]
"""What a prompt of a panel begins with: the reader's own system prompt, as in a chat API; the one document; or
`RETRIEVED` documents in an order of the reader's own, as retrieval ranks them."""


def random_words(dice: random.Random, count: int) -> str:
    """`count` two-syllable words, drawn with `dice`."""
    return " ".join("".join(dice.choices(SYLLABLES, k=2)) for _ in range(count))


def line(id: str, author: str | None, parents: Sequence[str], text: str, **more: Any) -> dict[str, Any]:
    """A message of a trace: by default a system prefill that everyone may read; `more` overrides."""
    known = {"kind": "prefill", "role": "system", "audience": "everyone"}
    return {"id": id, **known, "author": author, "parents": [*parents], "text": text, **more}


def spoken(id: str, author: str, parents: Sequence[str], text: str, **more: Any) -> dict[str, Any]:
    """A decoded message, with a header."""
    return line(id, author, parents, text, **{"kind": "decode", "role": "assistant", "header": "To all: "} | more)


def whole(name: str, id: object, agents: Sequence[str], lines: Sequence[dict[str, Any]]) -> Workflow:
    """The workflow of these messages."""
    head = {"format": "agentcho-trace/1", "workflow": name, "id": f"{name}-{id}", "agents": [*agents]}
    return workflow(head | {"messages": [*lines]})


class _Talk:
    """Builds a workflow; each message has all earlier messages that its author may read as parents."""

    def __init__(self, agents: list[str], seed: int) -> None:
        self._dice = random.Random(seed)
        self._agents = agents
        self.messages: list[dict[str, Any]] = []
        for agent in agents:
            self.say(agent, RULES, role="system", private=True)

    def say(self, agent: str, words: int, role: str = "assistant", private: bool = False) -> None:
        """Add a message of `words` words; an assistant's is a decode, any other a prefill."""
        text = random_words(self._dice, words)
        audience: Any = [agent] if private else "everyone"
        parents = [m["id"] for m in self.messages if m["audience"] == "everyone" or agent in m["audience"]]
        made = spoken if role == "assistant" else line
        self.messages.append(made(f"m{len(self.messages)}", agent, parents, text, role=role, audience=audience))

    def done(self, name: str, seed: int) -> Workflow:
        """The finished workflow."""
        return whole(name, seed, self._agents, self.messages)


def dilemma(seed: int) -> Workflow:
    """Two agents: private rules, a private plan each, two rounds of public talk, a private decision each."""
    talk = _Talk(["alice", "bob"], seed)
    for agent in ("alice", "bob"):
        talk.say(agent, ASKED, role="user", private=True)
        talk.say(agent, PLAN, private=True)
    for agent in ("alice", "bob") * 2:
        talk.say(agent, TALK)
    for agent in ("alice", "bob"):
        talk.say(agent, ASKED, role="user", private=True)
        talk.say(agent, 2, private=True)
    return talk.done("dilemma", seed)


def open_talk(seed: int, agents: int = 8, rounds: int = 2, words: int = TALK) -> Workflow:
    """Agents with private rules who speak publicly, one after another."""
    names = [f"agent{number}" for number in range(agents)]
    talk = _Talk(names, seed)
    for _ in range(rounds):
        for name in names:
            talk.say(name, words)
    return talk.done("open-talk", seed)


def panel(tokens: int, readers: int, layout: Layout, seed: int, words_a_token: float = 1.0) -> Workflow:
    """Readers of the same documents who each write a public review, and an editor who reads all reviews.

    Args:
        tokens: Tokens of all documents together; all other lengths are constants of this module.
        readers: The number of agents with a private system prompt and a private question each, who write side by side.
        layout: What a prompt begins with.
        seed: The seed of the random words.
        words_a_token: Words per token.
    """
    dice = random.Random(seed)

    def text(tokens: int) -> str:
        return random_words(dice, max(2, round(tokens * words_a_token)))

    names = [*(f"reader-{number}" for number in range(1, readers + 1)), "editor"]
    documents = [f"document-{number}" for number in range(1, RETRIEVED + 1 if layout == "documents-reordered" else 2)]
    lines = [line(id, None, [], text(tokens // len(documents)), role="user") for id in documents]
    reviews: list[str] = []
    for number, name in enumerate(names):
        system, question = f"{name} system", f"{name} question"
        review = f"{name} review"
        turn = number % len(documents)
        shared = [*documents[turn:], *documents[:turn]]
        opening = [system, *shared] if layout == "system-first" else [*shared, system]
        lines.append(line(system, name, [], text(BRIEF), audience=[name]))
        lines.append(line(question, name, [], text(QUESTION), audience=[name], role="user"))
        read = reviews if name == "editor" else []
        lines.append(spoken(review, name, [*opening, *read, question], text(REVIEW)))
        reviews.append(review)
    return whole("panel", seed, names, lines)

"""Prompts without a society: a tree of messages, each encoded over exactly those before it. Prompts with equal
beginnings share the encodings of these; nothing else is ever shared.

One tree belongs to one tenant and one cache salt. Independent of agents, audiences and HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from agentcho.message import Words
from agentcho.protocol.call import EncodingId, Prefill
from agentcho.serve.sharing.request_prompt import FramedMessage

Step = tuple[str, str | None, str, tuple[int, ...] | None]
"""What makes two messages at one place of a prompt the same: role, name, text, and ids if the text does not determine
them. For a message with a framing of its own, its ids alone."""


@dataclass(eq=False)
class Node:
    """A message after all those on the path to it. `id` is its encoding (None: not encoded yet, or dropped)."""

    words: Words
    above: Node | None = None
    step: Step | None = None
    below: dict[Step, Node] = field(default_factory=dict)
    id: EncodingId | None = None
    users: int = 0

    @property
    def length(self) -> int:
        """The number of tokens, framing included."""
        return len(self.words.tokens)


class PrefixTree:
    """All prompts of one tenant under one cache salt. `tokens` counts the tokens encoded and held. The nodes are
    ordered by last use, descendants before their ancestors, so that the first one to drop is always the end of a
    prompt."""

    def __init__(self, salt: str) -> None:
        self.salt, self.tokens = salt, 0
        self._root = Node(Words("", "", (), (0, 0)))
        self._used: dict[Node, None] = {}

    def find(self, prompt: Sequence[tuple[FramedMessage, Words]]) -> list[Node]:
        """The nodes of a prompt. Missing ones are made."""
        found, here = list[Node](), self._root
        for framed, words in prompt:
            here = self._child(here, _step(framed), words)
            found.append(here)
        return found

    def calls(
        self, path: Sequence[Node], prompt: Sequence[tuple[FramedMessage, Words]], begins: bool = False
    ) -> list[tuple[Node, Prefill]]:
        """The messages of a prompt that have to be encoded, in order; later ones are encoded over earlier ones.
        `begins`: see `Prefill`."""
        parents: list[EncodingId | Prefill] = []
        missing = list[tuple[Node, Prefill]]()
        for node, (framed, _) in zip(path, prompt, strict=True):
            if node.id is None:
                call = Prefill(
                    framed.text,
                    tuple(parents),
                    role=framed.role,
                    name=framed.name,
                    tokens=framed.tokens,
                    salt=self.salt,
                    framed=framed.whole,
                    begins=begins,
                )
                missing.append((node, call))
            parents.append(missing[-1][1] if node.id is None else node.id)
        return missing

    def hold(self, path: Sequence[Node]) -> None:
        """Keep these while a request uses them, and mark them as used now."""
        for node in reversed(path):
            node.users += 1
            self._touch(node)

    def let_go(self, path: Sequence[Node]) -> None:
        """Release the nodes of a finished request."""
        for node in reversed(path):
            self._touch(node)
        for node in path:
            node.users -= 1
            if node.id is None and not node.users:
                self._prune(node)

    def enter(self, node: Node, id: EncodingId) -> EncodingId | None:
        """Set the encoding of a node. If the node has one already, which has the same keys and values, returns the id
        that is not needed; otherwise None."""
        if node.id is not None:
            return id
        node.id = id
        self.tokens += node.length
        self._touch(node)
        return None

    def add(self, path: Sequence[Node], said: FramedMessage, words: Words, id: EncodingId) -> EncodingId | None:
        """Add an answer in the form in which the next request may quote it. Returns the id that is not needed, as
        `enter` does."""
        return self.enter(self._child(path[-1] if path else self._root, _step(said), words), id)

    def forget(self, tokens: int) -> list[EncodingId]:
        """Drop encodings that no request uses, least recently used first, until at most `tokens` tokens are left or all
        others are in use. Returns their ids, which have to be released."""
        gone, left, oldest = list[Node](), self.tokens, self._oldest()
        while left > tokens and (node := next(oldest, None)) is not None:
            gone.append(node)
            left -= node.length
        return [self._drop(node) for node in gone]

    def __len__(self) -> int:
        """The number of encodings held."""
        return len(self._used)

    def _oldest(self) -> Iterator[Node]:
        return (node for node in self._used if not node.users)

    def _drop(self, node: Node) -> EncodingId:
        assert node.id is not None
        id, node.id = node.id, None
        self.tokens -= node.length
        del self._used[node]
        self._prune(node)
        return id

    def _touch(self, node: Node) -> None:
        if node.id is not None:
            self._used.pop(node, None)
            self._used[node] = None

    def _child(self, here: Node, step: Step, words: Words) -> Node:
        if step not in here.below:
            here.below[step] = Node(words, here, step)
        return here.below[step]

    def _prune(self, node: Node | None) -> None:
        """Remove nodes without an encoding, users or children."""
        while node is not None and node.id is None and not node.below and not node.users and node.step is not None:
            assert node.above is not None
            node.above.below.pop(node.step, None)
            node = node.above


def _step(framed: FramedMessage) -> Step:
    if framed.whole is not None:
        return "", None, "", framed.whole
    return framed.role, framed.name, framed.text, framed.tokens

"""A toy tokenizer and framing for the fake engine: words as tokens, reversible."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import ClassVar

from agentcho.engine.content_tokenizer import THOUGHTS
from agentcho.engine.thinking import Thinking
from agentcho.engine.tools import CallPieces, ToolFormat
from agentcho.errors import RequestError
from agentcho.message import framed_as
from agentcho.protocol.call import ChatMessage, DefaultPrompt, RenderedPrompt
from agentcho.protocol.variables import NO_VARIABLES, Variables

BOS, START, MESSAGE, END = range(4)
ROLES = {"system": 4, "user": 5, "assistant": 6, "tool": 7}
CALLS = CallPieces(
    '<tool_call>\n{"name": "', '", "arguments": ', '}\n</tool_call>\n<tool_call>\n{"name": "', "}\n</tool_call>"
)
AROUND = re.compile(r"(<tool_call>\n|\n</tool_call>)")
"""The marks around the JSON of a call."""
SHORT, LETTERS, HASHED = 7, b"\x01", b"\x02"
FIRST_WORD = 1 << 8
"""The ids of words are at least this; those of framing are below."""
FRAMING = frozenset((BOS, START, MESSAGE, END, *ROLES.values()))


class Vocabulary:
    """A reversible toy tokenizer: a token is a word with the space before it. The id of a short word is its bytes, read
    as a number, so that another process can decode it. The id of a long word is a hash, which can be decoded once any
    instance in this process has encoded the word. `letters`: maximum number of characters per token (None: all)."""

    _long: ClassVar[dict[int, str]] = {}
    forbidden = FRAMING

    def __init__(self, letters: int | None = None) -> None:
        self._piece_of = re.compile(r"\s?[^\s]+|\s" if letters is None else rf"\s?[^\s]{{1,{letters}}}|\s")

    def encode_behind(self, text: str) -> list[int]:
        """The same as `encode`."""
        return self.encode(text)

    def encode(self, text: str) -> list[int]:
        """The ids of a text. No text encodes to an id of framing."""
        return [self._id(piece) for piece in self._piece_of.findall(text)]

    def weave(self, pieces: Sequence[str]) -> list[int]:
        """The ids of a text that is cut into pieces."""
        return self.encode("".join(pieces))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids that `encode` returned."""
        return "".join(self._piece(id) or "" for id in ids)

    def spells(self, ids: Iterable[int], text: str) -> bool:
        """Whether `ids` are those that `text` encodes to."""
        return self.encode(text) == list(ids)

    def marked(self, ids: Sequence[int]) -> bool:
        """False: it has no such tokens."""
        return False

    def check(self, ids: Iterable[int]) -> tuple[int, ...]:
        """These ids, if they can be content. Raises `RequestError` if one is framing, or belongs to no known word."""
        given = tuple(ids)
        wrong = sorted(id for id in set(given) if self._piece(id) is None)
        if wrong:
            raise RequestError(
                f"token ids {wrong} are special or unknown and cannot be content; pass ids without framing tokens"
            )
        return given

    def token_bytes(self, id: int, begins: bool = False) -> bytes:
        """The bytes that an id adds to a text."""
        return self.decode((id,)).encode()

    def stream(self, begun: bool = False) -> WordStream:
        """A fresh decoder of one message."""
        return WordStream(self)

    def _id(self, piece: str) -> int:
        letters = piece.encode()
        if len(letters) <= SHORT:
            return int.from_bytes(LETTERS + letters)
        id = int.from_bytes(HASHED + hashlib.blake2b(letters, digest_size=6).digest())
        self._long[id] = piece
        return id

    def _piece(self, id: int) -> str | None:
        return self._long.get(id) or _letters(id)


class WordStream:
    """Decodes a message word by word."""

    def __init__(self, words: Vocabulary) -> None:
        self._words = words

    def push(self, id: int) -> str:
        """The text of one id."""
        return self._words.decode((id,))

    def end(self) -> str:
        """The empty text: each word is complete."""
        return ""


@lru_cache(maxsize=1 << 16)
def _letters(id: int) -> str | None:
    """The word that an id stands for. None if it is not the id of a short word."""
    bytes_ = max(id, 0).to_bytes(max(1, (max(id, 0).bit_length() + 7) // 8))
    try:
        return bytes_[1:].decode() or None if bytes_[:1] == LETTERS else None
    except UnicodeDecodeError:
        return None


class FakeFraming:
    """Framing of the fake: `START role name MESSAGE … END`. No word has one of these ids, so no text can spell them."""

    plain: tuple[tuple[str, str], ...] = ()
    apart = True
    default: DefaultPrompt | None = None
    later: tuple[int, ...] | None = None
    stops = frozenset({END})
    thinking: Thinking | None = None

    def __init__(self, bos: bool = True, letters: int | None = None, thinks: bool = False, kept: bool = False) -> None:
        self.content, self.begin = Vocabulary(letters), (BOS,) if bos else ()
        if thinks:
            begins, ends = (tuple(self.content.encode(mark)) for mark in THOUGHTS)
            self.thinking = Thinking(*THOUGHTS, begins=begins, ends=ends, kept=kept)
        self.tools = ToolFormat(self.content, CALLS)

    def opening(self, role: str, name: str | None, answer: bool = False) -> tuple[int, ...]:
        """The ids before the content."""
        whole, opens, _ = framed_as(role)
        if whole not in ROLES:
            raise RequestError(f"unknown role {role!r}; roles are {', '.join(ROLES)}")
        return (START, ROLES[whole], *self.content.encode(name or ""), MESSAGE) if opens else ()

    def closing(self, role: str) -> tuple[int, ...]:
        """The ids after the content."""
        return (END,) if framed_as(role)[2] else ()

    @property
    def end(self) -> int:
        """The id that ends a message."""
        return END

    def prompt(self, conversation: Sequence[ChatMessage], variables: Variables = NO_VARIABLES) -> RenderedPrompt | None:
        """None: every message is framed by itself."""
        return None

    def unread(self, names: Collection[str]) -> list[str]:
        """All of these names, because there is no template."""
        return sorted(names)

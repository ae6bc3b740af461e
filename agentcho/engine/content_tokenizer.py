"""Tokenises and decodes the contents of messages, such that no text becomes a control token of the chat template.

Control tokens are removed from the tokenizer for contents, so that `<|im_end|>` in a text is plain characters. An added
token that no template writes, such as the line break in Gemma's vocabulary, is treated as text. If the kind of decoder
is known, text is decoded from the vocabulary's own bytes; invalid UTF-8 becomes U+FFFD. Independent of message roles.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Literal

from agentcho.errors import RequestError, UnsupportedModel

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer
    from transformers import PreTrainedTokenizerBase

LONG = 1 << 14
"""Texts of at least this many characters are tokenised as a batch of one, for which the library releases the GIL."""
BLANK = "\u2581"
"""The character that stands for a blank in SentencePiece vocabularies."""
THOUGHTS = ("<think>", "</think>")
"""The marks around the thoughts of a model in its answers. Templates cut the thoughts from earlier answers."""
HIDDEN = "\ue000"
"""Masks each character of a control word."""
Placed = tuple[int, int, int]
"""A token id, and the (start, stop) of its characters in a text."""
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class ContentTokenizer:
    """Tokenises the contents of messages.

    - `special`: the ids that no text encodes to: control tokens, and other added tokens that the chat template writes.
    - `forbidden`: the control tokens among them, which are also never sampled and never accepted as content. (A model
      may sample `<think>`; a text cannot spell it.) They include the added tokens of frames, whether marked as special
      or not, except thought marks.

    Args:
        tokenizer: The model's tokenizer, with a fast backend.
        model: The model's name, for errors.
        frames: Texts that the template writes around contents. Added tokens in them are control tokens.
        thoughts: Thought marks, which a model may sample.

    Raises:
        UnsupportedModel: The tokenizer has no fast backend.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        model: str,
        frames: Iterable[str] = (),
        thoughts: Iterable[str] = (),
    ) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise UnsupportedModel.unframed(model, "its tokenizer has no fast (tokenizers) backend")
        self._whole: Tokenizer = backend
        self._ids = {str(token): id for token, id in tokenizer.added_tokens_encoder.items()}
        self._added = alternation(self._ids)
        added = tokenizer.added_tokens_decoder.items()
        marked = {id for id, token in added if token.special}
        self._takes_before = {id for id, token in added if token.lstrip}
        self._takes_behind = {id for id, token in added if token.rstrip}
        framing = {self._ids[token] for piece in frames for token in self._added.findall(piece)}
        source = template_source(tokenizer)
        written = {id for text, id in self._ids.items() if text.strip() and text in source}
        blank = {id for text, id in self._ids.items() if not text.strip()}
        marks = {self._ids[token] for mark in thoughts for token in self._added.findall(mark)}
        control = frozenset((marked | framing - blank) | set(tokenizer.all_special_ids))
        self.forbidden = control - marks
        self.special = control | written
        self._structural = alternation(text for text, id in self._ids.items() if id in self.special)
        spec, own = json.loads(backend.to_str()), backend.get_vocab(with_added_tokens=False)
        self._bytes = token_bytes(spec, backend.get_vocab(with_added_tokens=True))
        kind = _blank_before(spec)
        self._brings = False
        self._lead, self._between = " " if kind else "", " " if kind == "each" else ""
        self._bare = _for_content(spec, own, self.special)

    @property
    def leads(self) -> bool:
        """Whether the tokenizer puts a blank before a content, as SentencePiece does."""
        return bool(self._lead)

    def without_lead(self) -> ContentTokenizer:
        """A copy for contents that follow a line break, or a token that has no blank after it."""
        other = copy(self)
        other._lead = ""
        return other

    def with_lead(self) -> ContentTokenizer:
        """A copy for contents that bring the blank before them, which their frames leave out."""
        other = copy(self)
        other._lead, other._between, other._brings = " ", "", True
        return other

    def of_wholes(self) -> ContentTokenizer:
        """A copy for whole conversations, in which the template writes the blank that frames leave to contents."""
        return self.without_lead() if self._brings else self

    def encode(self, text: str) -> list[int]:
        """The ids of `text` as plain characters. Raises `RequestError` if the vocabulary makes that impossible."""
        return self._plain(self._lead + text) if text else []

    def encode_behind(self, text: str) -> list[int]:
        """The ids of a text that continues a message, without the tokenizer's leading blank."""
        return self._plain(text) if text else []

    def _plain(self, text: str) -> list[int]:
        return [id for id, _, _ in self._placed(text)]

    def _placed(self, text: str) -> list[Placed]:
        """The ids of a text as plain characters, each with the (start, stop) of its characters."""
        placed, left = list[Placed](), [(0, text)]
        while left:
            at, part = left.pop()
            encoding = self._tokenised(part)
            found, offsets = encoding.ids, encoding.offsets
            cut = next((place for place, id in enumerate(found) if id in self.special), None)
            if cut is None:
                placed += [(id, at + start, at + stop) for id, (start, stop) in zip(found, offsets, strict=True)]
            else:
                before, behind = self._parts(part, found[cut], offsets[cut])
                left += [(at + len(before), behind), (at, before)]
        return placed

    def _tokenised(self, text: str) -> Encoding:
        if len(text) < LONG:
            return self._bare.encode(text, add_special_tokens=False)
        return self._bare.encode_batch([text], add_special_tokens=False)[0]

    def _parts(self, text: str, id: int, span: tuple[int, int]) -> tuple[str, str]:
        """Cut a text inside the part that would become a special token. Raises `RequestError` if that is a single
        character."""
        start, stop = span
        if stop - start < 2:
            token = str(self._whole.id_to_token(id))
            raise RequestError(
                f"the tokenizer encodes part of this text as its special token {token!r}, which would forge framing; "
                "remove that part of the text"
            )
        return text[: start + 1], text[start + 1 :]

    def weave(self, pieces: Sequence[str]) -> list[int]:
        """The ids of a text in pieces, alternately the template's own text and contents. Only the template's own text
        yields added tokens; the text between two of them is tokenised as a whole."""
        return [id for id, _, _ in self.woven(pieces)]

    def woven(self, pieces: Sequence[str]) -> list[Placed]:
        """As `weave`, each id with the (start, stop) of its characters in the whole text. Added tokens strip the blanks
        beside them as they do in the tokenizer."""
        placed, words, lead, begin, takes = list[Placed](), "", self._lead, 0, False

        def said() -> list[Placed]:
            cut = len(lead)
            first = min(1, len(words))  # the tokenizer's offsets count its own blank as part of the first character
            return [
                (id, begin + max(0, a - cut), begin + max(first, b - cut)) for id, a, b in self._placed(lead + words)
            ]

        def left(text: str) -> str:
            """The part of the next text that the token before it does not strip."""
            nonlocal begin
            kept = text.lstrip() if takes and not words else text
            begin += len(text) - len(kept)
            return kept

        for place, piece in enumerate(pieces):
            at = 0
            for found in self._structural.finditer(piece if place % 2 == 0 else ""):
                words += left(piece[at : found.start()])
                id = self._ids[found[0]]
                stop = begin + len(words) + len(found[0])
                words = words.rstrip() if id in self._takes_before else words
                placed += said() if words else []
                placed.append((id, begin + len(words), stop))
                words, at, lead, begin, takes = "", found.end(), self._between, stop, id in self._takes_behind
            words += left(piece[at:])
        return placed + (said() if words else [])

    def spells_control(self, text: str) -> bool:
        """Whether a text spells a control token, or another added token that the template writes."""
        return self._structural.search(text) is not None

    def without_control(self, text: str, thoughts: bool = True) -> str:
        """A text of the same length in which `HIDDEN` masks what spells a special token. With `thoughts`, those that
        templates look for are kept: thought marks, and special tokens that are not control tokens."""

        def letters(found: re.Match[str]) -> str:
            kept = thoughts and (found[0] in THOUGHTS or self._ids[found[0]] not in self.forbidden)
            return found[0] if kept else HIDDEN * len(found[0])

        return self._structural.sub(letters, text)

    def let_say(self, opening: str, answer: str, *others: str) -> None:
        """Let the model sample the control tokens of the assistant's `opening` that the opening of an `answer` lacks,
        because the model itself begins with them. Allows none of them if one is also in `others`."""
        left = self.control(opening) - self.control(answer)
        if left.isdisjoint(self.control(*others)):
            self.forbidden -= left

    def control(self, *pieces: str) -> frozenset[int]:
        """The control tokens in pieces of the template's own text."""
        return self.forbidden & {self._ids[token] for piece in pieces for token in self._added.findall(piece)}

    def first_control(self, piece: str) -> int | None:
        """The first control token in a piece of the template's own text. None if there is none."""
        ids = (self._ids[found[0]] for found in self._added.finditer(piece))
        return next((id for id in ids if id in self.forbidden), None)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of content ids, nothing skipped. Invalid UTF-8 becomes U+FFFD."""
        stream = self.stream()
        if isinstance(stream, _LibraryStream):
            return self._whole.decode(list(ids), skip_special_tokens=False)
        return "".join(map(stream.push, ids)) + stream.end()

    def check(self, ids: Iterable[int]) -> tuple[int, ...]:
        """These ids, if they can be content. Raises `RequestError` if one is a control token."""
        given = tuple(ids)
        if forged := self.forbidden.intersection(given):
            raise RequestError(
                f"token ids {sorted(forged)} are special and cannot be content; pass ids without framing tokens"
            )
        return given

    def marked(self, ids: Sequence[int]) -> bool:
        """Whether some of these ids are the template's own tokens; see `ContentPort.marked`."""
        thoughts = {self._ids[word] for word in THOUGHTS if word in self._ids}
        return any(id in self.special and id not in thoughts for id in ids)

    def spells(self, ids: Sequence[int], text: str) -> bool:
        """Whether `text` encodes to exactly these ids, so that they carry no more information than the text."""
        try:
            return self.encode(text) == list(ids)
        except RequestError:
            return False

    def stream(self, begun: bool = False) -> TextStream:
        """A fresh incremental decoder. `begun`: the ids continue a message, so that a leading blank is part of the
        text."""
        if self._bytes is None:
            return _LibraryStream(self._whole)
        return TextStream(self._bytes, bool(self._lead) and not begun)

    def token_bytes(self, id: int, begins: bool = False) -> bytes:
        """The bytes that a token adds to a text, from the vocabulary. `begins`: it is the first token of the text, so
        that the tokenizer's own blank is not part of it."""
        if self._bytes is None:
            return self._whole.decode([id], skip_special_tokens=False).encode()
        found = self._bytes[id] if id < len(self._bytes) else b""
        return found.removeprefix(b" ") if begins and self._lead else found


class TextStream:
    """Decodes one message token by token, from the bytes of each token. Text is returned as soon as its characters are
    complete, and all pieces joined are what the message decodes to as a whole."""

    def __init__(self, table: Sequence[bytes], strips: bool) -> None:
        self._table, self._strips = table, strips
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, id: int) -> str:
        """The text that token `id` completes, possibly empty."""
        added = self._table[id] if id < len(self._table) else b""
        if self._strips and added:
            self._strips, added = False, added.removeprefix(b" ")
        return self._decoder.decode(added)

    def end(self) -> str:
        """The rest of the text: U+FFFD for a character that stayed incomplete."""
        return self._decoder.decode(b"", final=True)


class _LibraryStream(TextStream):
    """A `TextStream` over the tokenizers library, for decoders that join tokens by their own rules, as in WordPiece."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._ids, self._shown = tokenizer, list[int](), ""

    def push(self, id: int) -> str:
        self._ids.append(id)
        text = self._tokenizer.decode(self._ids, skip_special_tokens=False)
        if text.endswith("\ufffd") or not text.startswith(self._shown):
            return ""
        shown, self._shown = self._shown, text
        return text[len(shown) :]

    def end(self) -> str:
        text = self._tokenizer.decode(self._ids, skip_special_tokens=False)
        return text[len(self._shown) :] if text.startswith(self._shown) else ""


def alternation(words: Iterable[str]) -> re.Pattern[str]:
    """A pattern that matches any of these words, longer ones first."""
    return re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))) or "(?!)")


def template_source(tokenizer: PreTrainedTokenizerBase) -> str:
    """The source of the chat template, or of all of them if there are several."""
    found: Any = tokenizer.chat_template
    return "\n".join(map(str, found.values())) if isinstance(found, dict) else str(found or "")


def token_bytes(spec: dict[str, Any], vocabulary: Mapping[str, int]) -> tuple[bytes, ...] | None:
    """The bytes of every token by its id, from the specification of a fast tokenizer and its whole vocabulary. None if
    the decoder does not simply concatenate tokens."""
    kinds = {step["type"] for step in _steps(spec.get("decoder"))}
    if kinds == {"ByteLevel"}:
        letters = _byte_letters()

        def of(token: str) -> bytes:
            return b"".join(letters.get(letter, letter.encode()) for letter in token)
    elif kinds and kinds <= {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"} and _blanks_alone(spec):
        falls_back = "ByteFallback" in kinds

        def of(token: str) -> bytes:
            found = _BYTE.fullmatch(token) if falls_back else None
            return bytes.fromhex(found[1]) if found else token.replace(BLANK, " ").encode()
    else:
        return None
    added = {token["content"] for token in spec["added_tokens"]}
    table = [b""] * (max(vocabulary.values(), default=-1) + 1)
    for token, id in vocabulary.items():
        table[id] = token.encode() if token in added else of(token)
    return tuple(table)


def _blanks_alone(spec: dict[str, Any]) -> bool:
    """Whether the decoder's replacement steps only turn `BLANK` into a blank."""
    steps = [step for step in _steps(spec["decoder"]) if step["type"] == "Replace"]
    return all(step["pattern"] == {"String": BLANK} and step["content"] == " " for step in steps)


def _byte_letters() -> dict[str, bytes]:
    """The characters that stand for bytes in byte-level vocabularies: printable Latin-1 characters for themselves, then
    characters from U+0100 on for the other bytes, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): bytes([byte]) for byte in printable} | {
        chr(0x100 + place): bytes([byte]) for place, byte in enumerate(others)
    }


def _steps(part: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """The steps of a normalizer, pre-tokenizer or decoder, with sequences flattened."""
    if part is None:
        return
    if part["type"] != "Sequence":
        yield part
        return
    for name in ("normalizers", "pretokenizers", "decoders"):
        for each in part.get(name, ()):
            yield from _steps(each)


def _blank_before(spec: dict[str, Any]) -> Literal["each", "first"] | None:
    """Before which texts the tokenizer puts a blank: before "each" text between special tokens, only before the "first"
    one, or before none."""
    for step in (*_steps(spec.get("normalizer")), *_steps(spec.get("pre_tokenizer"))):
        if step["type"] == "Prepend":
            return "each"
        if step["type"] == "Metaspace" and (scheme := step.get("prepend_scheme", "always")) != "never":
            return "first" if scheme == "first" else "each"
    return None


def _for_content(spec: dict[str, Any], own: Mapping[str, int], special: frozenset[int]) -> Tokenizer:
    """A backend without special tokens and without the blank before a text. Modifies `spec`. Other added tokens keep
    their ids, because placeholder tokens that no text spells fill the places of the removed ones."""
    from tokenizers import Tokenizer

    kept = list[dict[str, Any]]()
    for token in spec["added_tokens"]:
        if token["id"] not in special:
            kept.append(token)
        elif token["content"] not in own:
            kept.append(token | {"content": f"\ufdd0{token['id']}\ufdd1", "normalized": False})
    spec["added_tokens"] = kept
    spec["post_processor"] = None
    spec["truncation"] = spec["padding"] = None
    for step in (*_steps(spec.get("normalizer")), *_steps(spec.get("pre_tokenizer"))):
        if step["type"] == "Prepend":
            step |= {"type": "Replace", "pattern": {"String": BLANK}, "content": BLANK}
            step.pop("prepend", None)
        elif step["type"] == "Metaspace":
            step["prepend_scheme"] = "never"
    return Tokenizer.from_str(json.dumps(spec))

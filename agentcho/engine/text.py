"""Content tokenisation: text to ids from which no special or added token can come, and back.

Does not know: roles and framing. Works on the tokenizer's own fast backend, with its added tokens taken out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from agentcho.errors import FramingError, SpecialTokenInText

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class ContentTokenizer:
    """Tokenises what users and models say.

    `special` are the ids that no text turns into: every added token. `forbidden`, the control tokens among
    them, are also never sampled as content and never accepted in it (a model may say `<think>`, a text cannot).
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, model: str) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise FramingError(model, "its tokenizer has no fast (tokenizers) backend")
        self._whole: Tokenizer = backend
        self.special = frozenset(tokenizer.added_tokens_decoder) | frozenset(tokenizer.all_special_ids)
        control = (id for id, token in tokenizer.added_tokens_decoder.items() if token.special)
        self.forbidden = frozenset(control) | frozenset(tokenizer.all_special_ids)
        self._bare = _without_added_tokens(backend)

    def encode(self, text: str) -> list[int]:
        """The ids of `text` as plain characters. `SpecialTokenInText` where the vocabulary makes that impossible."""
        ids, left = list[int](), [text]
        while left:
            part = left.pop()
            encoding = self._bare.encode(part, add_special_tokens=False)
            cut = next((place for place, id in enumerate(encoding.ids) if id in self.special), None)
            if cut is None:
                ids += encoding.ids
            else:
                left += reversed(self._parts(part, encoding.ids[cut], encoding.offsets[cut]))
        return ids

    def _parts(self, text: str, id: int, span: tuple[int, int]) -> tuple[str, str]:
        """A text cut inside what makes a special token of it."""
        start, stop = span
        if stop - start < 2:
            raise SpecialTokenInText(str(self._whole.id_to_token(id)))
        return text[: start + 1], text[start + 1 :]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of content ids, nothing skipped; incomplete UTF-8 becomes U+FFFD."""
        return self._whole.decode(list(ids), skip_special_tokens=False)

    def spells(self, ids: Sequence[int], text: str) -> bool:
        """Whether `ids` are the ones that `text` encodes to: they say nothing that it does not."""
        try:
            return self.encode(text) == list(ids)
        except SpecialTokenInText:
            return False

    def stream(self) -> TextStream:
        """A fresh incremental decoder."""
        return TextStream(self._whole)


class TextStream:
    """Decodes one message token by token; a piece comes as soon as its characters are whole."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=False)

    def push(self, id: int) -> str:
        """The text that token `id` completes, possibly empty."""
        return self._stream.step(self._tokenizer, id) or ""


def _without_added_tokens(backend: Tokenizer) -> Tokenizer:
    spec = json.loads(backend.to_str())
    spec["added_tokens"] = []
    spec["post_processor"] = None
    spec["truncation"] = spec["padding"] = None
    return Tokenizer.from_str(json.dumps(spec))

"""The tokenizer and the framing: converts turns to token ids and loss weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from .views import Sample, Turn

BEGIN, START, MESSAGE, END, PAD = SPECIAL = ("<|begin|>", "<|start|>", "<|message|>", "<|end|>", "<|pad|>")
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|start|>' + message['role'] }}"
    "{% if message['name'] is defined and message['name'] %}{{ ' ' + message['name'] }}{% endif %}"
    "{{ '<|message|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant<|message|>' }}{% endif %}"
)


class Encoded(NamedTuple):
    """A sample as token ids. `weights[i]` is the weight of token i in the loss."""

    ids: list[int]
    weights: list[float]


def train_tokenizer(texts: Iterable[str], size: int = 3072) -> Tokenizer:
    """A byte-level BPE with single digits that changes no text and adds no space."""
    tokenizer = Tokenizer(models.BPE())
    parts = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(SPECIAL), initial_alphabet=sorted(alphabet), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def pieces(samples: Iterable[Sample]) -> Iterator[str]:
    """Every text that is tokenised separately, for training a tokenizer."""
    for sample in samples:
        for turn in sample.turns:
            yield from (part for part in (turn.role, turn.name, turn.header, turn.text) if part)


class Framer:
    """Converts messages to ids: framing, name, header and text are tokenised separately, and their ids are joined."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.begin, self.start, self.message, self.end, self.pad = map(self._special, SPECIAL)
        self.plain = lru_cache(maxsize=20_000)(self._plain)

    @classmethod
    def load(cls, folder: Path) -> Framer:
        """Load from a folder with `tokenizer.json`."""
        return cls(Tokenizer.from_file(str(folder / "tokenizer.json")))

    def _special(self, token: str) -> int:
        found = self.tokenizer.token_to_id(token)
        assert found is not None, token
        return int(found)

    def _plain(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def opening(self, role: str, name: str | None) -> list[int]:
        """The ids before a message's header: start, the role, the separately tokenised name, and the message mark."""
        spoken = (*self.plain(f"{role} "), *self.plain(name)) if name else self.plain(role)
        return [self.start, *spoken, self.message]

    def turn(self, turn: Turn) -> tuple[list[int], list[int]]:
        """The ids up to the text, and the ids of the text with its closing."""
        head = [*self.opening(turn.role, turn.name), *self.plain(turn.header)]
        return head, [*self.plain(turn.text), self.end]

    def sample(self, turns: Sequence[Turn]) -> Encoded:
        """A whole view, beginning with BOS. Only texts and their closings have a weight above 0."""
        ids, weights = [self.begin], [0.0]
        for turn in turns:
            head, text = self.turn(turn)
            ids += head + text
            weights += [0.0] * len(head) + [turn.weight] * len(text)
        return Encoded(ids, weights)

    def asked(self, turns: Sequence[Turn], role: str, name: str | None, header: str) -> list[int]:
        """The ids after which an agent speaks next: a view, its opening and its header."""
        return [*self.sample(turns).ids, *self.opening(role, name), *self.plain(header)]

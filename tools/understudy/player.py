"""Speaks for agents with the weights in a folder, using plain `generate` of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from .tokens import Framer
from .views import Turn


@dataclass
class Seat:
    """An agent and what it has read so far."""

    name: str
    turns: list[Turn] = field(default_factory=list)

    def read(self, role: str, text: str) -> None:
        """Read a prompt of the scenario."""
        self.turns.append(Turn(role, None, "", text, 0.0))

    def hear(self, name: str, header: str, text: str) -> None:
        """Read a message that this agent or another one said."""
        self.turns.append(Turn("assistant", name.lower(), header, text, 0.0))


class Player:
    """One model that speaks for many agents at once. The same seed gives the same texts."""

    def __init__(self, folder: Path, rows: int = 50) -> None:
        self.framer = Framer.load(folder)
        self.model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.model.train(False)
        self.rows = rows

    def say(self, seats: Sequence[Seat], headers: Sequence[str], limit: int, heat: float, seed: int) -> list[str]:
        """Each agent's next text after its header, up to the closing. Each agent also reads what it said."""
        asked = [
            self.framer.asked(seat.turns, "assistant", seat.name.lower(), header)
            for seat, header in zip(seats, headers, strict=True)
        ]
        torch.manual_seed(seed)
        texts: list[str] = []
        for start in range(0, len(asked), self.rows):
            texts += self._generate(asked[start : start + self.rows], limit, heat)
        for seat, header, text in zip(seats, headers, texts, strict=True):
            seat.hear(seat.name, header, text)
        return texts

    @torch.no_grad()
    def _generate(self, asked: list[list[int]], limit: int, heat: float) -> list[str]:
        longest = max(map(len, asked))
        padded = [[self.framer.pad] * (longest - len(ids)) + ids for ids in asked]
        shown = [[0] * (longest - len(ids)) + [1] * len(ids) for ids in asked]
        drawn = {"do_sample": True, "temperature": heat, "top_k": 0, "top_p": 1.0} if heat else {"do_sample": False}
        network: Any = self.model  # transformers' annotation does not match the class
        made = network.generate(
            input_ids=torch.tensor(padded),
            attention_mask=torch.tensor(shown),
            max_new_tokens=limit,
            eos_token_id=self.framer.end,
            pad_token_id=self.framer.pad,
            **drawn,
        )
        return [self._text(row[longest:]) for row in made]

    def _text(self, ids: Tensor) -> str:
        found = ids.tolist()
        stop = found.index(self.framer.end) if self.framer.end in found else len(found)
        return str(self.framer.tokenizer.decode(found[:stop], skip_special_tokens=False))

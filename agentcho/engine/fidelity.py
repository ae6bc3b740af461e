"""How far the prompts of a model are those of stock `apply_chat_template`, found out on a few conversations.

Does not know: what the differences do to a model's answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from agentcho.calls.call import Said
from agentcho.engine.layout import encoded
from agentcho.engine.template import Framing

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Talk = tuple[Said, ...]
BRIEF, QUESTION, ANSWER, MORE = "Be brief.", "What is it?", "A cat.", "Why so?"
TALKS: tuple[Talk, ...] = (
    (Said("user", QUESTION),),
    (Said("system", BRIEF), Said("user", QUESTION)),
    (Said("user", QUESTION), Said("assistant", ANSWER), Said("user", MORE)),
    (Said("system", BRIEF), Said("user", QUESTION), Said("assistant", ANSWER), Said("user", MORE)),
    (Said("system", "Be brief.\n\n- one\n- two"), Said("user", "First line.\nSecond line.\n\n  indented")),
    (Said("user", "  blanks around\n"), Said("assistant", " said "), Said("user", " x")),
    (
        Said("user", QUESTION),
        Said("assistant", ANSWER),
        Said("user", MORE),
        Said("assistant", "So."),
        Said("user", "x"),
    ),
)
"""Conversations that are tried: system messages, turns, line breaks, blanks."""
SHOWN = 48
"""So many letters of each text are shown from the first difference on."""


class Outcome(NamedTuple):
    """In how many of the conversations that stock transformers renders the ids are equal, and how the first that is not
    goes on from its first difference: by stock, and here."""

    equal: int
    of: int
    stock: str = ""
    ours: str = ""

    def __str__(self) -> str:
        told = f"equal to stock transformers in {self.equal} of {self.of} conversations"
        return (
            told if self.equal == self.of else f"{told}; the first other one has {self.stock!r}, and here {self.ours!r}"
        )


class Fidelity(NamedTuple):
    """`plain`: chats of `agentcho serve` without a society. `apart`: messages that are framed one by one, as those of
    agents are."""

    plain: Outcome
    apart: Outcome


def fidelity(tokenizer: PreTrainedTokenizerBase, framing: Framing, talks: Sequence[Talk] = TALKS) -> Fidelity:
    """Compare the prompts of a model with those of stock transformers.

    Args:
        tokenizer: The model's tokenizer.
        framing: What was derived from it.
        talks: The conversations that are tried.

    Returns:
        What was found on those of them that its chat template renders.
    """
    plain, apart = list[tuple[list[int], list[int]]](), list[tuple[list[int], list[int]]]()
    for talk in talks:
        if (stock := _stock(tokenizer, talk)) is not None:
            one_by_one = _apart(framing, talk)
            plain.append((stock, _whole(framing, talk) or one_by_one))
            apart.append((stock, one_by_one))
    return Fidelity(_outcome(tokenizer, plain), _outcome(tokenizer, apart))


def _stock(tokenizer: PreTrainedTokenizerBase, talk: Talk) -> list[int] | None:
    turns = [{"role": said.role, "content": said.text} for said in talk]
    how: Any = {"add_generation_prompt": True, "return_dict": False}
    try:
        return list(tokenizer.apply_chat_template(turns, **how))
    except Exception:  # the template is foreign code: any error means it cannot render this
        return None


def _whole(framing: Framing, talk: Talk) -> list[int] | None:
    if (found := framing.prompt(talk)) is None:
        return None
    return [*framing.begin, *(id for piece in found.pieces for id in piece.tokens), *found.opening]


def _apart(framing: Framing, talk: Talk) -> list[int]:
    if framing.default is not None and talk[0].role != "system":
        talk = (Said("system", framing.default.text), *talk)
    messages = (encoded(framing, said.role, None, said.text).tokens for said in talk)
    return [*framing.begin, *(id for tokens in messages for id in tokens), *framing.prompted]


def _outcome(tokenizer: PreTrainedTokenizerBase, pairs: Sequence[tuple[list[int], list[int]]]) -> Outcome:
    other = [pair for pair in pairs if pair[0] != pair[1]]
    if not other:
        return Outcome(len(pairs), len(pairs))
    stock, ours = other[0]
    texts = (_from_difference(tokenizer, one, another) for one, another in ((stock, ours), (ours, stock)))
    return Outcome(len(pairs) - len(other), len(pairs), *texts)


def _from_difference(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], others: Sequence[int]) -> str:
    """The text of `ids` from the first that differs."""
    pairs = zip(ids, others, strict=False)
    first = next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(ids), len(others)))
    text = str(tokenizer.decode(list(ids[first:]), skip_special_tokens=False))
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"

"""Measures on a few conversations how far a model's prompts equal those of stock `apply_chat_template`, and what the
differences cost in tokens.

The effect of differences on a model's answers is not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from agentcho.config import Markers, Mode
from agentcho.engine.call_layout import encoded
from agentcho.engine.framing import Framing
from agentcho.errors import UnsupportedModel
from agentcho.protocol.call import ChatMessage, RenderedPrompt
from agentcho.protocol.variables import Variables

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Talk = tuple[ChatMessage, ...]
BRIEF, QUESTION, ANSWER, MORE = "Be brief.", "What is it?", "A cat.", "Why so?"
TALKS: tuple[Talk, ...] = (
    (ChatMessage("user", QUESTION),),
    (ChatMessage("system", BRIEF), ChatMessage("user", QUESTION)),
    (ChatMessage("user", QUESTION), ChatMessage("assistant", ANSWER), ChatMessage("user", MORE)),
    (
        ChatMessage("system", BRIEF),
        ChatMessage("user", QUESTION),
        ChatMessage("assistant", ANSWER),
        ChatMessage("user", MORE),
    ),
    (
        ChatMessage("system", "Be brief.\n\n- one\n- two"),
        ChatMessage("user", "First line.\nSecond line.\n\n  indented"),
    ),
    (ChatMessage("user", "  blanks around\n"), ChatMessage("assistant", " said "), ChatMessage("user", " x")),
    (
        ChatMessage("user", QUESTION),
        ChatMessage("assistant", ANSWER),
        ChatMessage("user", MORE),
        ChatMessage("assistant", "So."),
        ChatMessage("user", "x"),
    ),
)
"""Test conversations: system messages, turns, line breaks, blanks."""
ORDERS: tuple[tuple[str, ...], ...] = (
    ("system", "user"),
    ("system", "user", "assistant", "user"),
    ("system", "user", "assistant", "assistant", "user"),
    ("system", "user", "user"),
    ("system", "assistant", "user"),
    ("system", "assistant"),
)
"""Tested orders of roles in agents' prompts. An agent's own messages and those of others both have the role assistant.
"""
REORDERED: tuple[tuple[str, ...], ...] = (
    *ORDERS,
    ("user", "system", "assistant", "user"),
    ("assistant", "user"),
    ("user", "assistant", "assistant"),
    ("user", "user", "assistant"),
)
"""Tested orders with messages at places where plain chats have none: those of agents' prompts, and orders that
reordering produces."""
FEW = 3
"""Number of tokens to show if different tokens have the same text."""
SHOWN = 48
"""Number of characters of each text to show from the first difference on."""


class TemplateMatch(NamedTuple):
    """The number of conversations with ids `equal` to stock transformers, `of` those that it renders. For the first
    other one, the texts from the first difference on, at token `at`: `stock` and `ours`. `tokens`: the tokens of all
    stock prompts. `more`: how many more tokens ours have in total."""

    equal: int
    of: int
    stock: str = ""
    ours: str = ""
    at: int = 0
    tokens: int = 0
    more: int = 0

    def __str__(self) -> str:
        told = f"equal to stock transformers in {self.equal} of {self.of} conversations"
        if self.equal == self.of:
            return told
        return f"{told}; first difference, at token {self.at}: stock {self.stock!r} | here {self.ours!r}"


class PromptReuse(NamedTuple):
    """How much reuse whole prompts prevent. Of all `messages`, `uncut` cannot be cut at their borders and are encoded
    together with others; `changed` have other ids in a longer conversation than in a shorter one with the same
    beginning; `dropped` are in no prompt, because the template leaves them out."""

    messages: int
    uncut: int
    changed: int
    dropped: int

    def __str__(self) -> str:
        told = {
            "cannot be cut at their borders and are encoded again with their neighbours": self.uncut,
            "are encoded again when the conversation goes on": self.changed,
            "are left out by the template": self.dropped,
        }
        if not any(told.values()):
            return f"each of {self.messages} messages is cut at its border and reused as the conversation goes on"
        return f"of {self.messages} messages " + "; ".join(f"{count} {what}" for what, count in told.items() if count)


class TemplateFidelity(NamedTuple):
    """How far prompts equal those of stock transformers. `plain`: chats of `agentcho serve` without a society, and
    baseline prompts. `apart`: messages that are framed one by one, like those of agents. `reuse`: for whole prompts.
    `refused`: the tested orders of roles in agents' prompts that the template cannot write as a whole. `moved`:
    messages framed one by one, in those orders of `REORDERED` that the template writes."""

    plain: TemplateMatch
    apart: TemplateMatch
    reuse: PromptReuse
    refused: tuple[tuple[str, ...], ...] = ()
    moved: TemplateMatch | None = None

    @property
    def cost(self) -> str:
        """How many more or fewer tokens agents' messages have than stock prompts, in words."""
        more, count = self.apart.more, max(1, self.reuse.messages)
        if not more:
            return "as many tokens as stock's prompts"
        how = "more" if more > 0 else "fewer"
        each = f"{abs(more) / count:.1f} a message"
        return f"{abs(more)} tokens {how} than stock's {self.apart.tokens} in {self.apart.of} conversations, {each}"

    @property
    def reordered(self) -> str:
        """How reordered messages are framed, in words: each in the frame of its role, which is the nearest one at
        places that the template frames otherwise, or not at all."""
        moved, tried = self.moved or TemplateMatch(0, 0), len(REORDERED)
        if not moved.of:
            return (
                f"the template writes none of {tried} orders of roles: each message has the nearest frame, its role's"
            )
        same = (
            f"of {tried} orders of roles the template writes {moved.of}, {moved.equal} as agents' messages are framed"
        )
        if moved.equal == moved.of == tried:
            return same
        rest = "elsewhere each message has the nearest frame, its role's"
        if moved.equal == moved.of:
            return f"{same}; {rest}"
        return f"{same}; {rest}; first difference, at token {moved.at}: stock {moved.stock!r} | here {moved.ours!r}"

    @property
    def written(self) -> str:
        """Which baseline prompts are written as a whole, in words."""
        if not self.refused:
            return f"the template writes all {len(ORDERS)} orders of roles that were tried as a whole"
        first = ", ".join(self.refused[0])
        return (
            f"the template writes {len(ORDERS) - len(self.refused)} of {len(ORDERS)} orders of roles as a whole; the "
            f"others, such as {first}, are framed message by message"
        )

    def told(self, model: str, mode: Mode = "choreographed") -> str | None:
        """In how many conversations messages of agents differ from stock in this mode, in one line that names the
        command that shows where. None if they do not."""
        if mode == "baseline":
            return f"{model}: in baseline prompts {self.written}" if self.refused else None
        differ, stock = self.apart.of - self.apart.equal, self.apart.tokens
        if not differ:
            return None
        return (
            f"{model}: messages are framed one by one, so that they can be reused; so agents' prompts differ from the "
            f"chat template in {differ} of {self.apart.of} test conversations ({stock + self.apart.more} tokens "
            f"instead of {stock}). This is expected; `agentcho doctor {model}` shows where"
        )


def check_plain(found: TemplateFidelity, model: str, differs: Markers) -> None:
    """Raise `UnsupportedModel` if plain chats would differ from stock transformers, unless that is accepted."""
    plain = found.plain
    if plain.equal == plain.of or differs == "accept":
        return
    raise UnsupportedModel(
        model,
        f"in {plain.of - plain.equal} of {plain.of} conversations its plain chats would have other token ids than "
        f"apply_chat_template of transformers returns. First difference, at token {plain.at}:\n"
        f"  transformers: {plain.stock!r}\n"
        f"  agentcho:     {plain.ours!r}",
        "Use another chat template (a chat_template.jinja beside its tokenizer), or accept the difference with "
        "--template-differs accept (template_differs='accept')",
        f"{model} would read other prompts than it was trained on",
    )


def fidelity(tokenizer: PreTrainedTokenizerBase, framing: Framing, talks: Sequence[Talk] = TALKS) -> TemplateFidelity:
    """Compare the prompts of a model with those of stock transformers.

    Args:
        tokenizer: The model's tokenizer.
        framing: The framing derived from it.
        talks: The conversations to test.

    Returns:
        The result for those that its chat template renders.
    """
    plain, apart = list[tuple[list[int], list[int]]](), list[tuple[list[int], list[int]]]()
    prompts = dict[Talk, RenderedPrompt]()
    for talk in talks:
        if (stock := _stock(tokenizer, talk, framing.conversations.variables)) is not None:
            one_by_one, found = _apart(framing, talk), framing.prompt(talk)
            if found is not None:
                prompts[talk] = found
            plain.append((stock, one_by_one if found is None else _whole(framing, found)))
            apart.append((stock, one_by_one))
    refused = tuple(order for order in ORDERS if framing.prompt([ChatMessage(role, ANSWER) for role in order]) is None)
    orders = [tuple(ChatMessage(role, ANSWER) for role in order) for order in REORDERED]
    stocks = ((talk, _stock(tokenizer, talk, framing.conversations.variables)) for talk in orders)
    moved = [(known, _apart(framing, talk)) for talk, known in stocks if known is not None]
    return TemplateFidelity(
        plain=_outcome(tokenizer, plain),
        apart=_outcome(tokenizer, apart),
        reuse=_reuse(prompts),
        refused=refused,
        moved=_outcome(tokenizer, moved),
    )


def _stock(tokenizer: PreTrainedTokenizerBase, talk: Talk, variables: Variables) -> list[int] | None:
    turns = [{"role": said.role, "content": said.text} for said in talk]
    how: Any = {**variables, "add_generation_prompt": True, "return_dict": False}
    try:
        return list(tokenizer.apply_chat_template(turns, **how))
    except Exception:  # the template is foreign code: any error means it cannot render this
        return None


def _whole(framing: Framing, found: RenderedPrompt) -> list[int]:
    return [*framing.begin, *(id for piece in found.pieces for id in piece.tokens), *found.opening]


def _apart(framing: Framing, talk: Talk) -> list[int]:
    if framing.default is not None and talk[0].role != "system":
        talk = (ChatMessage("system", framing.default.text), *talk)
    later = framing.later
    ids = list(framing.begin)
    for place, said in enumerate(talk):
        opening = later if place and said.role == "system" else None
        ids += encoded(framing, said.role, None, said.text, opening=opening).tokens
    return [*ids, *framing.prompted]


def _reuse(prompts: dict[Talk, RenderedPrompt]) -> PromptReuse:
    pieces = [piece for prompt in prompts.values() for piece in prompt.pieces]
    uncut = sum(len(piece.messages) for piece in pieces if len(piece.messages) > 1)
    changed = 0
    for talk, prompt in prompts.items():
        for shorter, before in prompts.items():
            if len(shorter) < len(talk) and talk[: len(shorter)] == shorter:
                pairs = zip(before.pieces, prompt.pieces, strict=False)
                same = next((place for place, (one, other) in enumerate(pairs) if one != other), len(before.pieces))
                changed += len(before.pieces) - same
    messages, found = sum(map(len, prompts)), sum(len(piece.messages) for piece in pieces)
    return PromptReuse(messages, uncut, changed, messages - found)


def _outcome(tokenizer: PreTrainedTokenizerBase, pairs: Sequence[tuple[list[int], list[int]]]) -> TemplateMatch:
    tokens, more = sum(len(stock) for stock, _ in pairs), sum(len(ours) - len(stock) for stock, ours in pairs)
    other = [pair for pair in pairs if pair[0] != pair[1]]
    if not other:
        return TemplateMatch(len(pairs), len(pairs), tokens=tokens, more=more)
    stock, ours = other[0]
    both = zip(stock, ours, strict=False)
    first = next((place for place, (one, two) in enumerate(both) if one != two), min(len(stock), len(ours)))
    texts = [_shown(tokenizer, ids[first:]) for ids in (stock, ours)]
    if texts[0] == texts[1]:
        texts = [_cut(tokenizer, ids[first : first + FEW]) for ids in (stock, ours)]
    return TemplateMatch(
        len(pairs) - len(other),
        len(pairs),
        stock=texts[0],
        ours=texts[1],
        at=first,
        tokens=tokens,
        more=more,
    )


def _shown(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    text = str(tokenizer.decode(list(ids), skip_special_tokens=False))
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def _cut(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    """The text of these ids, with a bar between tokens."""
    return "|".join(str(tokenizer.decode([id], skip_special_tokens=False)) for id in ids) + "…"

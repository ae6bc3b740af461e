"""Text that a chat template writes beside messages: agents' prompts have it where stock transformers has it."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from agentcho import Decode, Prefill, Sampling
from agentcho.engine.framing import Framing
from agentcho.engine.template import derive
from agentcho.engine.template_fidelity import ANSWER, REORDERED, TALKS, Talk, _outcome, fidelity
from agentcho.protocol.call import ChatMessage
from agentcho.runner.doctor import doctor

from ..device import DEVICE
from ..engines import Engines
from . import pieces, templates
from .families import Family

STYLES = templates.styles() | templates.calling() | templates.whole() | templates.thinkers() | templates.shapes()
KINDS = [*(name for name, style in STYLES.items() if style.template), *(f"sp {kind}" for kind in pieces.KINDS)]
BLANKS, SYSTEMS, ANSWERS, ALL = {5}, {1, 3, 4}, {2, 3, 5, 6}, set(range(len(TALKS)))
DIFFERENT: dict[str, set[int]] = {
    **dict.fromkeys(("llama3", "parameters", "gemma", "thinking"), BLANKS),  # the template strips contents
    **dict.fromkeys(("marked", "fenced"), SYSTEMS),  # the template omits system messages
    "listed": SYSTEMS,  # the system message is merged into the last user message without a separator
    **dict.fromkeys(("inst", "folded"), ALL),  # likewise; and a decode begins with the blank that precedes answers
    # an encoded answer ends in a token; the template does not close answers
    **dict.fromkeys(("unclosed", "prefixed", "worded", "blanks"), ANSWERS),
    "sp phi-3": BLANKS,  # a control token absorbs the blanks at the start of a content
    "sp zephyr": ALL,  # a plain-text role marker at the very beginning gets a blank before it
}
"""The conversations in which agents' prompts differ from stock transformers; all others have the same ids."""


@cache
def known(kind: str) -> tuple[PreTrainedTokenizerFast, Framing]:
    made = pieces.tokenizer(kind[3:]) if kind.startswith("sp ") else templates.tokenizer(kind)
    return made, derive(made, kind)


def stock(tokenizer: PreTrainedTokenizerFast, talk: Talk) -> list[int] | None:
    """The ids by stock transformers; None: the template rejects this conversation."""
    how: Any = {"add_generation_prompt": True, "return_dict": False}
    try:
        return list(tokenizer.apply_chat_template([{"role": s.role, "content": s.text} for s in talk], **how))
    except Exception:
        return None


def joined(framing: Framing, talk: Talk) -> list[int]:
    """The ids of the beginning, of each message in its frame, and of the answer's opening."""
    ids, first = [*framing.begin], talk[0]
    if framing.default is not None and first.role != "system":
        ids += framing.default.tokens
    for said in talk:
        ids += framing.opening(said.role, None)
        ids += framing.content.encode(said.text)
        ids += framing.closing(said.role)
    return [*ids, *framing.prompted]


@pytest.mark.parametrize("kind", KINDS)
def test_joined_messages_have_the_ids_of_stock_transformers(kind: str) -> None:
    tokenizer, framing = known(kind)
    whole = [stock(tokenizer, talk) for talk in TALKS]
    other = {
        place
        for place, (talk, ids) in enumerate(zip(TALKS, whole, strict=True))
        if ids is not None and ids != joined(framing, talk)
    }
    assert other == DIFFERENT.get(kind, set())


def test_a_system_message_behind_others_has_no_preamble() -> None:
    tokenizer, framing = known("llama3")
    talk = ChatMessage("system", "a"), ChatMessage("user", "b"), ChatMessage("system", "c"), ChatMessage("user", "d")
    first, later = framing.opening("system", None), framing.later
    assert later is not None
    ids = joined(framing, talk)
    place = next(at for at in range(len(framing.begin) + 1, len(ids)) if tuple(ids[at : at + len(first)]) == first)
    assert [*ids[:place], *later, *ids[place + len(first) :]] == stock(tokenizer, talk)
    assert {kind for kind in KINDS if known(kind)[1].later is not None} == {"llama3", "parameters"}


def text(kind: str, ids: tuple[int, ...]) -> str:
    return str(known(kind)[0].decode(list(ids), skip_special_tokens=False))


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("thinking", "<|im_start|>assistant\n<think>\n"),
        ("emptied", "<|turn>assistant\n<|channel>thought\n<channel|>"),
        ("prefixed", "<|assistant|>"),
        ("responding", "<|START|><|ASSISTANT|><|START_THINKING|><|END_THINKING|>"),
        ("harmony", "<|start|>assistant"),
        ("chatml", "<|im_start|>assistant\n"),
    ],
)
def test_an_answer_is_opened_as_the_template_opens_it(kind: str, answer: str) -> None:
    framing = known(kind)[1]
    assert text(kind, framing.prompted) == answer
    assert framing.opens_thought == (kind == "thinking")
    assert framing.leaves_open == (kind == "harmony")
    history = text(kind, framing.opening("assistant", None))
    assert (history == answer) == (kind == "chatml")


def test_an_answer_without_a_thought_is_opened_as_answers_stand_in_a_conversation() -> None:
    for kind in ("thinking", "prefixed", "harmony"):
        framing = known(kind)[1]
        assert framing.opening("assistant", None, answer=True) == framing.opening("assistant", None)
        if framing.thinking is not None:
            assert framing.thinking.opening(framing.opening("assistant", None)) == framing.prompted


def test_a_name_is_framed_before_what_else_is_opened() -> None:
    tokenizer = templates.tokenizer("named")
    tokenizer.chat_template = str(tokenizer.chat_template).replace(
        '{{ "<|im_start|>assistant\\n" }}', '{{ "<|im_start|>assistant\\n<|endoftext|>" }}'
    )
    opened = derive(tokenizer, "named").opening("assistant", "Bob", answer=True)
    assert tokenizer.decode(list(opened)) == "<|im_start|>assistant (Bob)\n<|endoftext|>"


def test_a_model_may_say_what_answers_stand_behind_and_is_not_opened() -> None:
    tokenizer, framing = known("responding")
    say, said, start, thinking = map(
        tokenizer.get_vocab().__getitem__, ("<|SAY|>", "<|SAID|>", "<|START|>", "<|START_THINKING|>")
    )
    assert framing.content.forbidden.isdisjoint({say, thinking})
    assert {said, start} <= framing.content.forbidden
    assert framing.content.special.issuperset({say, said, start, thinking})
    assert not {say, thinking} & set(framing.content.encode("<|SAY|><|START_THINKING|>"))


DEFAULTS = {
    "opener": "You are small.",
    "ownends": "Help.",
    "appended": "Help.",
    "misfit": "Help.",
    "turned": "# Rules\nBe good.",
}


@pytest.mark.parametrize("kind", DEFAULTS)
def test_a_system_message_of_the_default_prompts_text_is_that_prompt(kind: str) -> None:
    tokenizer, framing = known(kind)
    default, (talk, *_) = framing.default, TALKS
    assert default is not None
    assert default.text == DEFAULTS[kind]
    start, stop = default.content
    assert text(kind, default.tokens[start:stop]).strip() == default.text
    found = framing.prompt([ChatMessage("system", default.text), *talk])
    assert found is not None
    assert [piece.messages for piece in found.pieces] == [(0,), (1,)]
    assert found.pieces[0].tokens == default.tokens
    whole = [*framing.begin, *(id for piece in found.pieces for id in piece.tokens), *found.opening]
    assert whole == stock(tokenizer, talk)


def test_a_bos_behind_blanks_stands_where_the_template_writes_it() -> None:
    """In a system message, or in place of one: conversations do not all begin with it."""
    tokenizer, framing = known("indented")
    bos = tokenizer.bos_token_id
    assert framing.default is not None
    assert (framing.begin, framing.default.tokens, framing.default.text) == ((), (bos,), tokenizer.bos_token)
    assert text("indented", framing.opening("system", None)) == "    <s>"
    for talk in TALKS:
        assert joined(framing, talk) == stock(tokenizer, talk)


def test_a_template_that_writes_nothing_of_its_own_has_no_default_prompt() -> None:
    assert {kind for kind in KINDS if known(kind)[1].default is not None} == {
        *DEFAULTS,
        "chatml",
        "llama3",
        "parameters",
        "indented",
    }


@pytest.mark.parametrize("style", ["harmony", "prefixed", "opener", "llama3"])
def test_a_prompt_of_messages_is_read_as_the_stock_one(style: str, engines: Engines) -> None:
    family = Family("llama", "Llama", style=style)
    engine, talk = engines(family), TALKS[0 if style == "prefixed" else 2]
    default, parents = engine.framing.default, list[int]()
    for said in talk if default is None else (ChatMessage("system", default.text), *talk):
        parents.append(engine.prefill(said.text, parents=parents, role=said.role))
    whole = stock(templates.tokenizer(style), talk)
    assert whole is not None
    with torch.no_grad():
        logits = engines.stock(family)(torch.tensor([whole])).logits[0, -1]
    opening = engine.framing.prompted
    said_first = Decode("", parents, opening=opening, sampling=Sampling(max_tokens=1, temperature=0), logits=True)
    rows = engine.logits(engine.decode([said_first])[0])
    torch.testing.assert_close(rows[0].log_softmax(-1), logits.log_softmax(-1), atol=1e-3, rtol=1e-3)
    assert {engine.receipt(id).bos for id in parents} == {len(engine.framing.begin)}


@pytest.mark.parametrize(
    ("style", "told"),
    [
        ("llama3", "of 10 orders of roles the template writes 10, 10 as agents' messages are framed"),
        ("gemma", "the template writes none of 10 orders of roles: each message has the nearest frame, its role's"),
        (
            "tulu",
            "writes 10, 7 as agents' messages are framed; elsewhere each message has the nearest frame, its role's",
        ),
        (
            "folded",
            "writes 2, 0 as agents' messages are framed; elsewhere each message has the nearest frame, its role's",
        ),
    ],
)
def test_the_doctor_tells_where_a_message_has_the_nearest_frame(style: str, told: str) -> None:
    """A message has the frame of its role wherever it ends up: first, after others, or last."""
    tokenizer, framing = known(style)
    found = fidelity(tokenizer, framing)
    assert told in found.reordered
    differing = 0
    for order in REORDERED:
        talk = tuple(ChatMessage(role, ANSWER) for role in order)
        if (expected := stock(tokenizer, talk)) is None:
            continue
        ours = joined(framing, talk)
        differing += ours != expected
        if framing.later is None:
            frames = [(*framing.opening(r, None), *framing.content.encode(ANSWER), *framing.closing(r)) for r in order]
            assert ours[len(ours) - len(framing.prompted) - sum(map(len, frames)) :] == [
                *(id for frame in frames for id in frame),
                *framing.prompted,
            ]
    assert found.moved is not None
    assert differing == found.moved.of - found.moved.equal or framing.later is not None


@pytest.mark.parametrize("style", ["emptied", "responding"])
def test_an_answer_keeps_what_was_opened_for_it(style: str, engines: Engines) -> None:
    engine = engines(Family("llama", "Llama", style=style))
    id = engine.decode("", sampling=Sampling(choices=("yes",)))
    words, opening = engine.message(id), engine.framing.opening("assistant", None, answer=True)
    assert words.tokens[: words.content[0]] == opening == engine.framing.prompted
    content = words.tokens[slice(*words.content)]
    (again,) = engine.prefill([Prefill("yes", role="assistant", tokens=content, opening=opening)])
    assert engine.message(again).tokens == words.tokens


def test_other_tokens_of_the_same_text_are_shown_apart() -> None:
    tokenizer, framing = templates.tokenizer("chatml"), known("chatml")[1]
    user, the = framing.ids["<|im_start|>user\n"], tuple(tokenizer(" the")["input_ids"])
    letters = map(tokenizer.get_vocab().__getitem__, "Ġthe")
    outcome = _outcome(tokenizer, [([*user, *the], [*user, *letters])])
    assert (outcome.stock, outcome.ours, outcome.at) == (" the…", " |t|h…", len(user))


@pytest.mark.parametrize(
    ("style", "default", "answers"),
    [
        ("opener", "'You are small.', 18 tokens", "as they stand in a conversation"),
        ("emptied", "none", "and kept so; the template has '<|turn>assistant\\n' in a conversation"),
        ("thinking", "none", "inside of a thought"),
    ],
)
def test_the_doctor_tells_what_is_injected(style: str, default: str, answers: str, tmp_path: Any) -> None:
    Family("llama", "Llama", style=style).save(tmp_path)
    rows = {row.result: row.detail for row in doctor(tmp_path, device=DEVICE, dtype="float32").rows}
    assert rows["default prompt"].startswith(default)
    assert answers in rows["answers"]

"""Contents and frames concatenate to the ids of the whole conversation, and every token has a text."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from agentcho.engine.call_layout import encoded
from agentcho.engine.content_tokenizer import ContentTokenizer, token_bytes
from agentcho.engine.framing import Framing
from agentcho.engine.template import derive
from agentcho.errors import RequestError, UnsupportedModel

from . import pieces, templates

TALKS = {
    "one": (("user", "Hello there"),),
    "three": (("user", "Hello there"), ("assistant", "to the fox"), ("user", "said Bob")),
    "lines": (("user", "Hello\nthere\n\n<table> Bob"), ("assistant", "to\n- the fox"), ("user", "x")),
}
TEXTS = st.text(max_size=12) | st.lists(st.sampled_from(["Hello", " ", "\n", "é", "🙂", "the"]), max_size=6).map(
    "".join
)


@cache
def content(kind: str) -> ContentTokenizer:
    """The content tokenizer of a kind in `pieces` or of a style in `templates`."""
    tokenizer = pieces.tokenizer(kind) if kind in pieces.KINDS else templates.tokenizer(kind)
    return derive(tokenizer, kind).content


def joined(framing: Framing, talk: tuple[tuple[str, str], ...]) -> list[int]:
    """The ids of a conversation, message by message, up to the beginning of the assistant's answer."""
    ids = [*framing.begin]
    if framing.default is not None and talk[0][0] != "system":
        talk = (("system", framing.default.text), *talk)
    for role, text in talk:
        ids += encoded(framing, role, None, text).tokens
    return [*ids, *framing.prompted]


@pytest.mark.parametrize("talk", TALKS)
@pytest.mark.parametrize("kind", pieces.KINDS)
def test_messages_join_to_the_ids_of_the_stock_conversation(kind: str, talk: str) -> None:
    tokenizer = pieces.tokenizer(kind)
    found: Any = tokenizer.apply_chat_template(
        [{"role": role, "content": text} for role, text in TALKS[talk]], add_generation_prompt=True, return_dict=False
    )
    ours = joined(derive(tokenizer, kind), TALKS[talk])
    assert ours == found[kind == "zephyr" :]  # its first marker begins a text and so gets an extra blank


@pytest.mark.parametrize("kind", pieces.KINDS)
def test_line_breaks_are_text_and_end_no_answer(kind: str) -> None:
    tokenizer = pieces.tokenizer(kind)
    framing = derive(tokenizer, kind)
    assert framing.content.decode(framing.content.encode("a\n\nb")) == "a\n\nb"
    assert all(str(tokenizer.decode([id])).strip() for id in framing.stops)


def test_marks_of_a_frame_are_control_tokens_even_where_the_tokenizer_does_not_say_so() -> None:
    tokenizer = templates.tokenizer("chatml")
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in ("<U>", "<A>", "<other>")])
    tokenizer.chat_template = (
        "{% for m in messages %}{{ ('<U>' if m.role == 'user' else '<A>') + m.content }}"
        "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<A>' }}{% endif %}"
    )
    framing = derive(tokenizer, "deepseek")
    user, answer, other = map(tokenizer.get_vocab().__getitem__, ("<U>", "<A>", "<other>"))
    assert {user, answer} <= framing.content.forbidden
    assert other not in framing.content.special
    assert framing.plain == ()
    with pytest.raises(RequestError, match="special"):
        framing.content.check((user,))
    assert user not in framing.content.encode("<U>")
    assert framing.content.encode("<other>") == [other]


SHAPES = templates.shapes()
SYSTEM = (("system", "Hello"), *TALKS["three"])


@pytest.mark.parametrize("shape", SHAPES)
def test_frames_are_those_between_the_messages_of_a_talk(shape: str) -> None:
    framing = derive(templates.tokenizer(shape), shape)
    for role in ("system", "user", "assistant"):
        frame = framing.frames[role]
        assert (frame.opening, frame.closing) == SHAPES[shape].frame(role)
    begins = templates.tokenizer(shape)(SHAPES[shape].begins, add_special_tokens=False)["input_ids"]
    assert framing.begin == tuple(begins)


@pytest.mark.parametrize("talk", [*TALKS.values(), SYSTEM])
@pytest.mark.parametrize("shape", SHAPES)
def test_messages_of_any_shape_join_to_the_text_of_the_stock_conversation(
    shape: str, talk: tuple[tuple[str, str], ...]
) -> None:
    tokenizer = templates.tokenizer(shape)
    found: Any = tokenizer.apply_chat_template(
        [{"role": role, "content": text} for role, text in talk], add_generation_prompt=True, return_dict=False
    )
    ours = joined(derive(tokenizer, shape), talk)
    if shape in ("unclosed", "prefixed", "worded", "blanks"):  # an encoded message has to end in a token
        ours = [id for id in ours if id != tokenizer.eos_token_id]
    assert ours == found


def test_an_answer_that_nothing_closes_ends_where_the_next_message_opens() -> None:
    tokenizer = templates.tokenizer("unclosed")
    framing = derive(tokenizer, "unclosed")
    assert framing.stops == set(map(tokenizer.get_vocab().__getitem__, SHAPES["unclosed"].special))
    assert framing.plain == ()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_message_of_any_shape_ends_with_an_id_that_ends_decodes(shape: str) -> None:
    framing = derive(templates.tokenizer(shape), shape)
    assert framing.end in framing.stops.intersection(framing.closing("assistant"))


def test_a_model_ends_its_message_with_the_mark_and_not_with_the_blank_before_it() -> None:
    tokenizer = templates.blank_before_the_end()
    framing = derive(tokenizer, "spaced")
    assert framing.closing("assistant") == (*framing.content.encode_behind(" "), tokenizer.eos_token_id)
    assert framing.end == tokenizer.eos_token_id


@pytest.mark.parametrize("shape", ["worded", "blanks"])
def test_an_answer_that_no_token_closes_ends_with_the_end_token_of_the_model_alone(shape: str) -> None:
    tokenizer = templates.tokenizer(shape)
    framing = derive(tokenizer, shape)
    assert framing.stops == {tokenizer.eos_token_id}
    assert ("user", "user") in framing.plain
    tokenizer.eos_token = None
    with pytest.raises(UnsupportedModel, match="without a token to stop at"):
        derive(tokenizer, shape)


def test_no_opener_ends_an_answer_that_has_an_end_of_its_own() -> None:
    tokenizer = templates.tokenizer("turned")
    ends = {tokenizer.get_vocab()[token] for token in ("<|SAID|>", "<|END|>")}
    assert derive(tokenizer, "turned").stops == ends


def test_the_model_itself_begins_an_answer_with_the_blank_behind_the_mark() -> None:
    framing = derive(templates.tokenizer("colons"), "colons")
    ids = framing.content.encode("the fox")
    stream = framing.content.stream()
    assert framing.content.token_bytes(ids[0]).startswith(b" ")
    assert "".join(map(stream.push, ids)) == framing.content.decode(ids) == "the fox"


def test_a_result_within_the_message_of_a_call_has_no_frame_of_its_own() -> None:
    framing = derive(templates.tokenizer("within"), "within")
    assert "tool" not in framing.frames


def test_a_bos_that_opens_every_message_is_part_of_the_frame() -> None:
    framing = derive(pieces.tokenizer("llama-2"), "llama-2")
    assert framing.begin == ()
    assert framing.frames["user"].opening.startswith("<s>")


@pytest.mark.parametrize("kind", pieces.KINDS)
@settings(max_examples=40, deadline=None)
@given(ids=st.lists(st.integers(min_value=1, max_value=256), max_size=12), text=TEXTS)
def test_bytes_that_are_no_text_become_replacement_characters(kind: str, ids: list[int], text: str) -> None:
    words, raw = content(kind), bytes(id - 1 for id in ids)
    stream = words.stream(begun=True)
    shown = [stream.push(id) for id in ids]
    assert "".join(shown) + stream.end() == raw.decode("utf-8", errors="replace")
    said = words.encode(text)
    assert words.decode(said) == text
    assert b"".join(words.token_bytes(id, begins=not place) for place, id in enumerate(said)) == text.encode()


def test_a_blank_behind_a_header_is_text() -> None:
    words = content("mistral-v1")
    ids = words.encode("the fox")
    first, later = words.stream(), words.stream(begun=True)
    assert "".join(map(first.push, ids)) == "the fox"
    assert "".join(map(later.push, ids)) == " the fox"


@pytest.mark.parametrize("style", [name for name, style in templates.styles().items() if style.template])
@settings(max_examples=25, deadline=None)
@given(text=st.text(max_size=12))
def test_texts_of_tokens_join_to_the_text(style: str, text: str) -> None:
    try:
        ids = content(style).encode(text)
    except RequestError:
        return
    if "<unk>" not in templates.tokenizer(style).convert_ids_to_tokens(ids):
        assert b"".join(map(content(style).token_bytes, ids)) == text.encode()


def test_a_decoder_that_joins_by_rules_of_its_own_is_left_to_the_library() -> None:
    from tokenizers import decoders

    core = pieces.tokenizer("gemma").backend_tokenizer
    core.decoder = decoders.WordPiece()
    assert token_bytes(json.loads(core.to_str()), core.get_vocab()) is None

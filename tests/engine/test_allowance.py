"""vLLM's options that restrict or end a text, each checked token by token against its definition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agentcho import Corpus, Decode, Engine, Sampling
from agentcho.errors import RequestError
from agentcho.message import Words

from .templates import styles
from .test_guessing import TEXT, corpus, same, told

MOST = 14
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": MOST}


def say(engine: Engine, **options: Any) -> Words:
    """Decode one greedy answer."""
    return engine.message(engine.decode("So", sampling=Sampling(**{**GREEDY, **options})))


def said(words: Words) -> tuple[int, ...]:
    """The sampled ids, without a token that ends the message."""
    return words.tokens[slice(*(words.sampled or (0, 0)))]


def end_of(engine: Engine) -> int:
    """The id of the token that ends messages."""
    found: int = engine.tokenizer.convert_tokens_to_ids(styles()["llama3"].closing)
    return found


def by_definition(
    engine: Engine, bad: Sequence[tuple[int, ...]] = (), among: set[int] | None = None
) -> tuple[int, ...]:
    """Greedy decoding by definition: the most likely allowed token after each forced prefix."""
    tokens = list[int]()
    for _ in range(MOST):
        id = engine.decode([Decode("So", forced=tuple(tokens), logits=True)])[0]
        row = engine.logits(id)[-1].clone()
        for token in range(len(row)):
            barred = any(token == word[-1] and [*word[:-1]] == tokens[len(tokens) - len(word) + 1 :] for word in bad)
            if barred or (among is not None and token not in among):
                row[token] = float("-inf")
        row[[id for id in engine.framing.content.forbidden if id != end_of(engine)]] = float("-inf")
        if (token := int(row.argmax())) == end_of(engine):
            break
        tokens.append(token)
    return tuple(tokens)


def test_the_definition_without_options_is_what_is_said(llama: Engine) -> None:
    assert by_definition(llama) == said(say(llama)) != ()


@pytest.mark.parametrize("least", [1, 5, MOST])
def test_nothing_ends_a_text_before_min_tokens(llama: Engine, least: int) -> None:
    end = end_of(llama)
    bias = {end: 100.0}
    assert said(say(llama, logit_bias=bias)) == ()
    words = say(llama, logit_bias=bias, min_tokens=least)
    assert len(said(words)) == least
    assert words.stopped == ("max_tokens" if least == MOST else "stop")
    other = said(say(llama))[0]
    words = say(llama, logit_bias={other: 100.0}, stop_token_ids=[other], min_tokens=least)
    assert other not in said(words)[:least]
    assert len(said(words)) == min(least + 1, MOST)
    assert (words.stopped, words.stop_reason) == (("stop_token", other) if least < MOST else ("max_tokens", None))


def test_a_stop_string_counts_from_the_first_token_after_min_tokens(llama: Engine) -> None:
    whole = say(llama)
    text = whole.text
    stop = text[2:4]
    assert say(llama, stop=[stop]).text == text[:2]
    pieces = [llama.framing.content.decode(said(whole)[:n]) for n in range(MOST + 1)]
    for least in range(1, MOST):
        early = len(pieces[least])
        at = text.find(stop, max(0, early - 1))
        words = say(llama, stop=[stop], min_tokens=least)
        assert (words.text, words.stopped) == ((text[:at], "stop_string") if at >= 0 else (text, whole.stopped))


@pytest.mark.parametrize("kept", [False, True])
def test_a_stop_token_ends_the_text_and_stays_in_the_tokens(llama: Engine, kept: bool) -> None:
    whole = said(say(llama))
    last = whole[4]
    upto = whole[: whole.index(last) + 1]
    words = say(llama, stop_token_ids=[last, 3], include_stop_str_in_output=kept)
    assert (said(words), words.stopped, words.stop_reason) == (upto, "stop_token", last)
    assert words.text == llama.framing.content.decode(upto if kept else upto[:-1])
    assert words.tokens[words.content[1] :] == llama.framing.closing("assistant")


def test_a_stop_string_stays_in_the_text_where_it_is_asked_for(llama: Engine) -> None:
    text = say(llama).text
    stop = text[3:5]
    words = say(llama, stop=["never said", stop], include_stop_str_in_output=True)
    assert words.text == text[: text.find(stop) + 2]
    assert (words.stopped, words.stop_reason) == ("stop_string", stop)


def test_a_control_token_may_end_a_text_and_is_no_part_of_it(llama: Engine) -> None:
    control = next(id for id in sorted(llama.framing.content.forbidden) if id not in llama.framing.stops)
    bias = {control: 100.0}
    assert said(say(llama, logit_bias=bias)) == said(say(llama))
    words = say(llama, logit_bias=bias, stop_token_ids=[control])
    assert (said(words), words.text, words.stopped, words.stop_reason) == ((), "", "stop_token", control)
    kept = say(llama, logit_bias=bias, stop_token_ids=[control], min_tokens=3, include_stop_str_in_output=True)
    assert control not in kept.tokens
    assert len(said(kept)) == 3


def test_ignore_eos_leaves_max_tokens_and_what_is_named(llama: Engine) -> None:
    end = end_of(llama)
    bias = {end: 100.0}
    words = say(llama, logit_bias=bias, ignore_eos=True)
    assert (len(said(words)), words.stopped) == (MOST, "max_tokens")
    words = say(llama, logit_bias=bias, ignore_eos=True, stop_token_ids=[end])
    assert (said(words), words.stop_reason) == ((), end)
    assert say(llama, logit_bias=bias, stop_token_ids=[end]).stop_reason is None  # the model ends the message itself


def test_bad_words_are_not_said_at_the_beginning_nor_behind_a_blank(llama: Engine) -> None:
    content, plain = llama.framing.content, said(say(llama))
    pieces = [content.decode(plain[at : at + size]) for size in (1, 2, 3) for at in range(0, MOST - size, 9)]
    for word in (piece for piece in pieces if piece.strip() and "\ufffd" not in piece):
        bare, spaced = tuple(content.encode(word.lstrip())), tuple(content.encode(" " + word.lstrip()))
        bad = [bare] + ([spaced] if len(spaced) == len(bare) and spaced[0] != bare[0] else [])
        assert said(say(llama, bad_words=[word, word])) == by_definition(llama, bad)
    assert said(say(llama, bad_words=[content.decode(plain[:1])])) != plain


def test_only_tokens_that_are_allowed_are_said(llama: Engine) -> None:
    among = {*llama.framing.content.encode("the old fox said hello and went away")}
    words = say(llama, allowed_token_ids=[*among])
    assert said(words) == by_definition(llama, among=among)
    assert words.stopped == "max_tokens"
    end = end_of(llama)
    assert say(llama, allowed_token_ids=[*among, end], logit_bias={end: 100.0}).stopped == "stop"
    control = min(llama.framing.content.forbidden - llama.framing.stops)
    assert control not in said(say(llama, allowed_token_ids=[*among, control], logit_bias={control: 100.0}))


NAMED: dict[str, Any] = {
    "min_tokens": 5,
    "stop_token_ids": [4, 5, 6, 7],
    "ignore_eos": True,
    "bad_words": ["a", "yes", "{"],
    "allowed_token_ids": [3, 4],
    "stop": ["e", "{"],
    "include_stop_str_in_output": True,
}


@pytest.mark.parametrize("form", [{"choices": ["yes", "yesterday"]}, {"json_schema": {"enum": ["a", 3]}}])
def test_what_has_an_end_of_its_own_is_said_as_it_must_be(llama: Engine, form: dict[str, Any]) -> None:
    plain = say(llama, **form)
    for option, value in NAMED.items():
        assert say(llama, **form, **{option: value}) == plain, option
    assert say(llama, **form, **NAMED) == plain


@pytest.mark.parametrize(
    "options",
    [
        {"min_tokens": 9, "stop": ("e",), "include_stop_str_in_output": True},
        {"bad_words": ["two", "one two", "five"]},
        {"ignore_eos": True, "stop_token_ids": [62, 79]},
        {"allowed_token_ids": [*range(100, 200)]},
    ],
)
@pytest.mark.slow
def test_guesses_change_nothing_of_it(llama: Engine, options: dict[str, Any]) -> None:
    drops = 0
    for seed in range(3):
        sampling = Sampling(temperature=1.2, seed=seed, max_tokens=30, **options)
        plain = told(llama, [Decode("", sampling=sampling)], None)
        tokens = llama.message(plain.ids[0]).tokens
        corpora: tuple[Corpus, ...] = (Corpus(tokens), corpus(llama, TEXT))
        quick = told(llama, [Decode("", sampling=sampling, corpora=corpora)])
        drops += plain.steps - quick.steps
        assert plain.streamed[plain.ids[0]] == llama.message(plain.ids[0]).text
        same(llama, plain, quick)
    assert drops > 0, "nothing was guessed"


@pytest.mark.parametrize("options", [{"stop": ["e"]}, {"include_stop_str_in_output": True}, {}])
def test_forced_words_are_cut_where_they_were(llama: Engine, options: dict[str, Any]) -> None:
    last = said(say(llama))[4]
    first = say(llama, stop_token_ids=[last], **options)
    sampling = Sampling(**{**GREEDY, "stop_token_ids": [last], **options})
    again = told(llama, [Decode("So", sampling=sampling, forced=said(first))])
    assert llama.message(again.ids[0]).text == again.streamed[again.ids[0]] == first.text
    llama.release(again.ids)


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_tokens": -1},
        {"min_tokens": 5, "max_tokens": 4},
        {"stop_token_ids": [-1]},
        {"stop_token_ids": [True]},
        {"stop_token_ids": [0] * 1025},
        {"ignore_eos": 1},
        {"bad_words": [""]},
        {"bad_words": [" \n"]},
        {"bad_words": "word"},
        {"bad_words": ["x" * 257]},
        {"allowed_token_ids": []},
        {"allowed_token_ids": [1.5]},
        {"include_stop_str_in_output": None},
    ],
)
def test_a_value_out_of_its_bounds_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=next(iter(wrong))):
        Sampling(**wrong)


@pytest.mark.parametrize("option", ["stop_token_ids", "allowed_token_ids", "logit_bias"])
def test_an_id_that_there_is_not_is_refused_by_the_name_of_its_option(llama: Engine, option: str) -> None:
    value: Any = {1 << 30: 1.0} if option == "logit_bias" else [5, 1 << 30]
    with pytest.raises(RequestError, match=option) as caught:
        llama.decode("So", sampling=Sampling(**{option: value}))
    assert (caught.value.field, caught.value.option) == ("sampling", option)


@pytest.mark.parametrize("more", [{"min_tokens": 2}, {"ignore_eos": True}, {"bad_words": ["a"]}, {}])
def test_what_can_say_nothing_at_all_is_refused(llama: Engine, more: dict[str, Any]) -> None:
    among = {
        "min_tokens": [end_of(llama)],
        "ignore_eos": [end_of(llama)],
        "bad_words": llama.framing.content.encode("a"),
    }
    control = [min(llama.framing.content.forbidden - llama.framing.stops)]
    with pytest.raises(RequestError, match="allowed_token_ids") as caught:
        say(llama, allowed_token_ids=among.get(next(iter(more), ""), control), **more)
    assert caught.value.option == "allowed_token_ids"


def test_fewer_tokens_lower_min_tokens_too() -> None:
    assert Sampling(max_tokens=9, min_tokens=5).limited(3) == Sampling(max_tokens=3, min_tokens=3)
    assert Sampling(max_tokens=9, min_tokens=5).limited(20) == Sampling(max_tokens=9, min_tokens=5)

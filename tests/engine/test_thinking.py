"""Thoughts: how templates mark them, and what a decode that may think returns, feeds and ends with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pytest

from agentcho import Decode, Engine, Sampling
from agentcho.engine.framing import Framing
from agentcho.engine.template import derive
from agentcho.engine.thinking import Thinking, thought_format
from agentcho.errors import RequestError
from agentcho.message import Words
from agentcho.runner.doctor import doctor

from ..device import DEVICE
from ..engines import Engines
from . import templates
from .families import Family

Load = Callable[[str], Engine]
OPENS, SAYS = "opened", "thoughtful"


@pytest.fixture
def load(engines: Engines) -> Load:
    """Loads a small llama in a chat style."""
    return lambda style: engines(Family("llama", "Llama", style=style))


@cache
def framing(style: str) -> Framing:
    """The framing derived from a style's template."""
    return derive(templates.tokenizer(style), style)


def thinking(style: str) -> Thinking:
    """How a style marks thoughts."""
    found = framing(style).thinking
    assert found is not None
    return found


def spelt(engine: Engine, ids: tuple[int, ...]) -> str:
    """Ids as text, including special tokens."""
    return str(engine.tokenizer.decode(list(ids), skip_special_tokens=False))


def forced(engine: Engine, text: str, header: str = "") -> Words:
    """A decode forced to give this text, with its markers as tokens."""
    ids = tuple(engine.tokenizer(text, add_special_tokens=False)["input_ids"])
    words: Words = engine.message(engine.decode(Decode(header, forced=ids, thinks=True)))
    return words


def sampled(engine: Engine, header: str = "", bias: Mapping[str, float] | None = None, **options: Any) -> Words:
    """A decode whose tokens are biased."""
    ids = {engine.tokenizer.convert_tokens_to_ids(text): by for text, by in (bias or {}).items()}
    how: dict[str, Any] = {"temperature": 0.0, "max_tokens": 24, "logit_bias": ids} | options
    sampling = Sampling(**how)
    words: Words = engine.message(engine.decode(Decode(header, sampling=sampling, thinks=True)))
    return words


@pytest.mark.parametrize(
    ("style", "marks", "behind", "kept"),
    [
        (SAYS, ("<think>", "</think>"), "\n\n", False),
        (OPENS, ("<think>", "</think>"), "\n\n", False),
        ("thinking", ("<think>", "</think>"), "\n\n", False),
        ("keeping", ("[THINK]", "[/THINK]"), "", True),
        (
            "channels",
            ("<|channel|>analysis<|message|>", "<|end|>"),
            "<|start|>assistant<|channel|>final<|message|>",
            False,
        ),
    ],
)
def test_marks_come_from_the_template(style: str, marks: tuple[str, str], behind: str, kept: bool) -> None:
    found, tokenizer = thinking(style), templates.tokenizer(style)
    assert (found.begin, found.end, found.kept) == (*marks, kept)
    assert tokenizer.decode(list(found.behind)) == behind
    assert tokenizer.decode(list(found.ends)) == marks[1]


@pytest.mark.parametrize("style", ["llama3", "named", "gemma", "inst", "harmony", "folded"])
def test_a_template_without_thoughts_has_none(style: str) -> None:
    assert framing(style).thinking is None


@pytest.mark.parametrize(
    ("style", "opening"),
    [
        (SAYS, "<|im_start|>assistant\n"),
        (OPENS, "<|im_start|>assistant\n<think>\n"),
        ("channels", "<|start|>assistant<|channel|>analysis<|message|>"),
    ],
)
def test_a_decode_that_may_think_opens_as_the_template_does(load: Load, style: str, opening: str) -> None:
    engine = load(style)
    words = sampled(engine, max_tokens=1)
    assert spelt(engine, words.tokens[: words.content[0]]) == opening


@pytest.mark.parametrize(
    ("style", "text", "thought"),
    [
        (SAYS, "<think>\nHello to\n</think>\n\nthe fox", "Hello to"),
        (SAYS, "\n<think>Hello</think>\n\nthe fox", "Hello"),
        (OPENS, "Hello to\n</think>\n\nthe fox", "Hello to"),
        ("thinking", "Hello to\n</think>\n\nthe fox", "Hello to"),
        ("keeping", "[THINK]Hello to[/THINK]the fox", "Hello to"),
        ("channels", "Hello to<|end|><|start|>assistant<|channel|>final<|message|>the fox", "Hello to"),
    ],
)
def test_a_thought_is_told_from_what_is_said(load: Load, style: str, text: str, thought: str) -> None:
    engine = load(style)
    if style == "channels":  # text that the template supplies is fed, not forced
        words = sampled(engine, bias={"<|end|>": 100}, max_tokens=6)
        assert words.thought is not None
        assert words.said is not None
        assert spelt(engine, words.tokens).count("<|channel|>final<|message|>") == 1
        return
    words = forced(engine, text)
    start, stop = words.thought or (0, 0)
    assert words.text == thought
    assert spelt(engine, words.tokens[start:stop]).endswith(thinking(style).end)
    assert words.said is not None
    assert words.said.text == "the fox"
    assert words.said.thought is None
    assert spelt(engine, words.said.tokens[slice(*words.said.content)]) == "the fox"
    assert "think" not in spelt(engine, words.said.tokens).lower()


@pytest.mark.parametrize("style", [SAYS, "keeping"])
def test_an_answer_without_a_thought_is_as_ever(load: Load, style: str) -> None:
    engine = load(style)
    ids = tuple(engine.tokenizer("the fox", add_special_tokens=False)["input_ids"])
    plain: Words = engine.message(engine.decode(Decode("To Bob: ", forced=ids)))
    assert plain.thought is None
    words = forced(engine, "the fox")
    assert (words.text, words.thought, words.said) == ("the fox", None, None)


def test_words_that_spell_the_mark_end_no_thought(load: Load) -> None:
    engine = load(OPENS)
    ids = tuple(engine.framing.content.encode("so </think> no"))
    words: Words = engine.message(engine.decode(Decode(forced=ids, thinks=True)))
    assert words.text == "so </think> no"
    assert words.said is not None
    assert words.said.text == ""


@pytest.mark.parametrize("style", [OPENS, SAYS])
def test_a_thought_that_never_ends_says_nothing(load: Load, style: str) -> None:
    engine = load(style)
    words = sampled(
        engine, max_tokens=5, bias={"</think>": -100, "<|im_end|>": -100} | ({"<think>": 100} if style == SAYS else {})
    )
    assert words.stopped == "max_tokens"
    assert words.thought == words.content
    assert words.sampled is not None
    assert words.sampled[1] - words.sampled[0] == 5
    assert words.said is not None
    assert (words.said.text, words.said.stopped) == ("", "max_tokens")


@pytest.mark.parametrize("style", [OPENS, SAYS])
def test_the_header_comes_after_the_thought(load: Load, style: str) -> None:
    engine = load(style)
    bias = {"</think>": 20.0} | ({"<think>": 21.0} if style == SAYS else {})
    words = sampled(engine, "To Bob: ", bias, presence_penalty=2.0)
    assert words.thought is not None
    assert words.said is not None
    assert words.said.header == "To Bob: "
    assert "</think>\n\nTo Bob: " in spelt(engine, words.tokens)
    assert spelt(engine, words.said.tokens).startswith("<|im_start|>assistant\nTo Bob: ")


def test_a_model_that_does_not_want_to_think_says_its_header_at_once(load: Load) -> None:
    engine = load(SAYS)
    words = sampled(engine, "To Bob: ", {"<think>": -100})
    assert words.thought is None
    assert spelt(engine, words.tokens).startswith("<|im_start|>assistant\nTo Bob: ")


@pytest.mark.parametrize("style", [OPENS, SAYS])
@pytest.mark.parametrize("think", [True, False])
def test_a_choice_comes_after_the_thought(load: Load, style: str, think: bool) -> None:
    engine = load(style)
    bias = {"<think>": 100.0 if think else -100.0, "</think>": -100.0, "<|im_end|>": -100.0}
    words = sampled(engine, bias=bias, choices=("the fox", "Hello"), max_tokens=12)
    said = words.said if words.thought is not None else words
    assert (words.thought is not None) is (think or style == OPENS)
    assert said is not None
    assert said.text in ("the fox", "Hello")
    if words.thought is not None:
        start, stop = words.thought
        assert stop - start == 12 + len(thinking(style).ends)
        assert spelt(engine, words.tokens[start:stop]).endswith("</think>")


@pytest.mark.parametrize("style", [OPENS, SAYS])
def test_what_would_end_the_message_ends_the_thought_before_a_choice(load: Load, style: str) -> None:
    engine = load(style)
    bias = {"<think>": 100.0, "</think>": -100.0, "<|im_end|>": 100.0}
    words = sampled(engine, bias=bias, choices=("the fox", "Hello"), max_tokens=12)
    assert words.said is not None
    assert words.said.text in ("the fox", "Hello")
    assert words.stopped == "stop"
    assert words.thought is not None
    assert spelt(engine, words.tokens[slice(*words.thought)]).endswith("</think>")


def test_a_stop_string_says_nothing_of_a_thought(load: Load) -> None:
    engine = load(OPENS)
    open_end = sampled(engine, bias={"</think>": -100, "<|im_end|>": -100}, max_tokens=6)
    again = sampled(
        engine, bias={"</think>": -100, "<|im_end|>": -100}, max_tokens=6, stop=tuple(open_end.text[:1] or "x")
    )
    assert again.tokens == open_end.tokens


def test_a_stop_token_ends_a_thought_too(load: Load) -> None:
    engine = load(OPENS)
    bias = {"</think>": -100.0, "<|im_end|>": -100.0}
    plain = sampled(engine, bias=bias, max_tokens=6)
    ids = plain.tokens[slice(*(plain.sampled or (0, 0)))]
    words = sampled(engine, bias=bias, max_tokens=6, stop_token_ids=(ids[2],))
    assert words.tokens[slice(*(words.sampled or (0, 0)))] == ids[: ids.index(ids[2]) + 1]
    assert (words.stopped, words.stop_reason) == ("stop_token", ids[2])
    assert words.thought == words.content


@pytest.mark.parametrize("options", [{"ignore_eos": True}, {"min_tokens": 24}])
def test_what_rules_out_the_ends_of_messages_leaves_those_of_thoughts(load: Load, options: dict[str, Any]) -> None:
    engine = load("channels")
    words = sampled(engine, bias={"<|channel|>": 100.0, "<|end|>": 100.0}, **options)
    assert words.thought is not None
    assert words.said is not None
    assert len(words.said.text) > 0
    assert words.stopped == "max_tokens"


def test_what_goes_with_no_thought_is_refused(load: Load) -> None:
    engine = load(OPENS)
    with pytest.raises(RequestError, match="thinks cannot be combined"):
        engine.decode(Decode(thinks=True, logits=True))


def test_a_model_that_does_not_think_is_not_changed_by_it(load: Load) -> None:
    engine = load("llama3")
    sampling = Sampling(seed=4, max_tokens=6)
    ways: list[Words] = [
        engine.message(engine.decode(Decode("To Bob: ", sampling=sampling, thinks=thinks))) for thinks in (False, True)
    ]
    assert ways[0] == ways[1]


@pytest.mark.parametrize(
    ("style", "said"),
    [
        (SAYS, "'<think>' … '</think>': the model begins one, or does not; those of earlier answers are cut"),
        (OPENS, "'<think>' … '</think>': the prompt begins one; those of earlier answers are cut"),
        ("keeping", "'[THINK]' … '[/THINK]': the model begins one, or does not; those of earlier answers stay"),
    ],
)
def test_the_doctor_tells_how_a_model_thinks(engines: Engines, style: str, said: str) -> None:
    folder = engines.folder(Family("llama", "Llama", style=style))
    [row] = [row for row in doctor(folder, device=DEVICE, dtype="float32").rows if row.result == "thoughts"]
    assert row.detail == said


def test_the_thought_of_the_last_answer_alone_may_stay() -> None:
    """As in LFM2.5: thoughts of all answers but the last are cut, and so they are treated as cut."""

    def render(turns: list[dict[str, Any]]) -> str:
        last = max(place for place, turn in enumerate(turns) if turn["role"] == "assistant")
        return "".join(
            turn["content"] if place >= last else turn["content"].rpartition("</think>")[2]
            for place, turn in enumerate(turns)
        )

    found = thought_format("content.split('</think>')", "<|im_start|>assistant", render)
    assert found is not None
    assert not found.kept
    assert thought_format("content.split('</think>')", "<think></think>", render) is None

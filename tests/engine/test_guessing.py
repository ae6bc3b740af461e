"""Speculative decoding: words, keys and values are the same as with one token a step, whatever is guessed."""

from __future__ import annotations

import gc
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
import torch

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.engine.speculation import KEPT, MOST, CorpusIndexes, DraftTokens, Speculator, worthwhile_drafts
from agentcho.engine.suffix_automaton import Automaton
from agentcho.errors import RequestError
from agentcho.protocol.call import Call, EncodingId, Shadow
from agentcho.protocol.forward_costs import CostCurve, ForwardCosts
from agentcho.protocol.speculation_corpus import Corpus

from ..engines import Engines
from .families import Family, each

CHEAP = ForwardCosts((1, 64), (0, 1), ((1.0, 1.001),) * 2)
TEXT = "one two three four one two three five one two six " * 3


class Told(NamedTuple):
    """Results of some decodes: their ids, the number of steps, the number of rejected guesses, and each one's streamed
    text."""

    ids: list[EncodingId]
    steps: int
    dropped: int
    streamed: dict[EncodingId, str]


def told(engine: Engine, calls: Sequence[Call], costs: ForwardCosts | None = CHEAP) -> Told:
    engine._runner.costs = costs
    ids, steps, dropped = [*engine.submit(calls)], 0, 0
    streamed = dict.fromkeys(ids, "")
    while not engine.idle:
        result = engine.step()
        assert not result.failed
        for said in result.spoken:
            streamed[said.id] += said.text
        steps, dropped = steps + 1, dropped + result.dropped
    engine.check_integrity()
    return Told(ids, steps, dropped, streamed)


def corpus(engine: Engine, *texts: str) -> Corpus:
    return Corpus(*(tuple(engine.framing.content.encode(text)) for text in texts))


def same(engine: Engine, one: Told, other: Told) -> None:
    """Check for the same words, ends and streams, and the same keys and values up to rounding."""
    for a, b in zip(one.ids, other.ids, strict=True):
        assert engine.message(a) == engine.message(b)
        assert one.streamed[a] == other.streamed[b]
        for (k, v), (there_k, there_v) in zip(engine.cached(a), engine.cached(b), strict=True):
            torch.testing.assert_close(k, there_k, atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(v, there_v, atol=1e-4, rtol=1e-4)
    engine.release([*one.ids, *other.ids])


# -- earlier occurrences, by a slow oracle ---------------------------------------------------------------


def known(sequences: list[list[int]], suffix: list[int]) -> int:
    """The length of the longest suffix of `suffix` that occurs in one of the sequences."""
    ends = [(n, whole, suffix[-n:]) for n in range(len(suffix), 0, -1) for whole in sequences]
    return next((n for n, whole, end in ends if any(end == whole[at : at + n] for at in range(len(whole)))), 0)


def test_the_longest_end_that_stood_before_is_found() -> None:
    for seed in range(200):
        draw = random.Random(seed)
        automaton, sequences = Automaton(), [list[int]()]
        for _ in range(draw.randrange(1, 40)):
            if draw.random() < 0.15:
                automaton.close()
                sequences.append([])
            else:
                sequences[-1].append(draw.randrange(3))
                automaton.extend(sequences[-1][-1:])
        asked, state, matched = list[int](), 0, 0
        for _ in range(20):
            asked.append(draw.randrange(3))
            state, matched = automaton.step(state, matched, asked[-1])
            assert matched == known(sequences, asked)
            end = automaton.after[state]
            assert not matched or automaton.text[end - matched : end] == asked[-matched:]


def test_an_index_that_grows_while_it_is_followed_claims_nothing_that_is_not_there() -> None:
    for seed in range(200):
        draw = random.Random(seed)
        automaton, whole, asked, state, matched = Automaton(), list[int](), list[int](), 0, 0
        for _ in range(60):
            if draw.random() < 0.6:
                whole.append(draw.randrange(3))
                automaton.extend(whole[-1:])
            else:
                asked.append(draw.randrange(3))
                state, matched = automaton.step(state, matched, asked[-1])
                assert matched <= known([whole], asked)
                end = automaton.after[state]
                assert not matched or automaton.text[end - matched : end] == asked[-matched:]


def test_what_follows_ends_with_its_message() -> None:
    indexes = CorpusIndexes()
    messages = Corpus((1, 2, 3), (4, 5))
    guesser = Speculator(indexes, (messages,), (1, 2))
    assert guesser.guess(9).tokens == (3,)
    messages.add((2, 3, 7, 8))
    guesser.say((3,))
    assert guesser.guess(9).tokens == (7, 8)
    assert guesser.guess(1).tokens == (7,)


def test_what_it_says_itself_is_drawn_from_too() -> None:
    guesser = Speculator(CorpusIndexes(), (), ())
    guesser.say((5, 6, 7, 8, 5, 6))
    assert guesser.guess(3).tokens == (7, 8, 5)


def test_an_index_forgets_the_older_half_and_goes_with_its_corpus() -> None:
    indexes, messages = CorpusIndexes(), Corpus(tuple(range(KEPT // 4)))
    guesser = Speculator(indexes, (messages,), (7,))
    assert guesser.guess(2).tokens == (8, 9)
    for part in range(1, 5):
        messages.add(tuple(range(part * KEPT, part * KEPT + KEPT // 4)))
    assert guesser.guess(2) == DraftTokens((), 0.0)
    assert len(indexes.of(messages)) <= KEPT
    guesser.say((4 * KEPT + 1,))
    assert guesser.guess(1).tokens == (4 * KEPT + 2,)
    del messages, guesser
    gc.collect()
    assert not len(indexes._known)


# -- how far to look ahead -------------------------------------------------------------------------------


def test_what_does_not_pay_is_not_guessed() -> None:
    sure, unsure = DraftTokens((1,) * MOST, 0.95), DraftTokens((1,) * MOST, 0.05)
    assert worthwhile_drafts([sure, unsure], 2, CostCurve((1, 2), (1.0, 2.0))) == [
        0,
        0,
    ]  # a token costs as much as a step
    assert worthwhile_drafts([sure, unsure], 2, CHEAP.at(0))[0] == MOST
    few = CostCurve((1, 64), (1.0, 8.0))
    chosen = worthwhile_drafts([sure, unsure], 2, few)
    assert chosen[0] > chosen[1] == 0


def test_of_all_lengths_the_one_with_most_tokens_a_second_is_taken() -> None:
    draw = random.Random(1)
    for _ in range(50):
        guess, fed = DraftTokens((1,) * 8, draw.random()), draw.randrange(1, 6)
        costs = CostCurve((1, 8, 64), (1.0, 1.0 + draw.random(), 3.0 + 9 * draw.random()))
        rate = [sum(guess.right**n for n in range(most + 1)) / costs.of(fed + most) for most in range(9)]
        assert worthwhile_drafts([guess], fed, costs) == [rate.index(max(rate))]


def test_a_step_that_gets_dear_once_is_guessed_past() -> None:
    likely = DraftTokens((1,) * MOST, 0.6)
    jump = CostCurve((1, 2, 64), (1.0, 1.65, 1.65))
    assert worthwhile_drafts([likely], 1, jump) == [MOST]
    assert worthwhile_drafts([DraftTokens((1,), 0.6)], 1, jump) == [0]


def test_guesses_that_are_wrong_become_fewer() -> None:
    guesser = Speculator(CorpusIndexes(), (Corpus((1, 2, 3, 4)),), (1,))
    before = guesser.guess(1).right
    guesser.judge(8, 0)
    assert guesser.guess(1).right < before
    guesser.judge(100, 100)
    assert guesser.guess(1).right > before


# -- decoded text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", each("llama"))
def test_the_words_keys_and_values_are_those_of_one_token_a_step(engines: Engines, family: Family) -> None:
    with engines(family) as engine:
        prompt = engine.prefill([Prefill(TEXT)])
        calls = [
            Decode("b", prompt, sampling=Sampling(temperature=0.0 if seed % 2 else 0.7, seed=seed, max_tokens=24))
            for seed in range(4)
        ]
        plain = told(engine, calls, None)
        words = [engine.message(id) for id in plain.ids]
        said = [each.tokens[slice(*each.sampled)] for each in words if each.sampled]
        wrong = [tokens[: len(tokens) // 2] + tokens[:1] for tokens in said]
        for corpora in ((Corpus(*said),), (Corpus(*wrong), corpus(engine, TEXT))):
            again = told(engine, calls, None)
            guessed = told(engine, [_with(call, corpora) for call in calls])
            assert guessed.steps < again.steps
            same(engine, again, guessed)
        engine.release([*plain.ids, *prompt])


def _with(call: Decode, corpora: tuple[Corpus, ...]) -> Decode:
    return Decode(**{name: getattr(call, name) for name in call.__dataclass_fields__} | {"corpora": corpora})


def test_wrong_guesses_are_taken_back(llama: Engine) -> None:
    forced = tuple(llama.framing.content.encode("one two three five one two three five"))
    calls = [Decode("", forced=forced) for _ in range(3)]
    plain = told(llama, calls, None)
    wrong = told(llama, [_with(call, (corpus(llama, "one two three four one two three four"),)) for call in calls])
    assert wrong.dropped > 0
    same(llama, plain, wrong)


def test_forced_words_are_guessed_as_sampled_ones_are(llama: Engine) -> None:
    forced = tuple(llama.framing.content.encode(TEXT))
    plain = told(llama, [Decode("", forced=forced)], None)
    guessed = told(llama, [Decode("", forced=forced, corpora=())])
    assert guessed.steps < plain.steps / 2
    same(llama, plain, guessed)


def test_a_follower_is_fed_what_was_accepted(llama: Engine) -> None:
    forced = tuple(llama.framing.content.encode("one two three five one two three five " * 4))
    found = list[Told]()
    for costs in (None, CHEAP):
        decode = Decode("", forced=forced, corpora=(corpus(llama, "one two three four " * 3),))
        found.append(told(llama, [decode, Shadow(decode)], costs))
    assert found[1].dropped > 0
    same(llama, *found)


def test_what_a_grammar_leaves_no_choice_about_is_not_waited_for(llama: Engine) -> None:
    choices = ("the first of two long answers", "another one which is as long as that")
    for seed in range(4):
        sampling = Sampling(choices=choices, seed=seed, temperature=1.0, max_tokens=60)
        plain, quick = (told(llama, [Decode("", sampling=sampling, corpora=corpora)]) for corpora in (None, ()))
        assert quick.steps < plain.steps
        assert quick.dropped == 0
        same(llama, plain, quick)


@pytest.mark.slow
def test_json_is_the_same_with_guesses(llama: Engine) -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"a_long_name": {"enum": ["yes", "no"]}, "other": {"type": "integer", "maximum": 99}},
        "required": ["a_long_name", "other"],
        "additionalProperties": False,
    }
    for seed in range(3):
        sampling = Sampling(json_schema=schema, seed=seed, temperature=1.0, max_tokens=60)
        words = corpus(llama, '{"a_long_name":"yes","other":7}')
        plain, quick = (told(llama, [Decode("", sampling=sampling, corpora=each)]) for each in (None, (words,)))
        assert quick.steps < plain.steps
        same(llama, plain, quick)


@pytest.mark.parametrize(
    "stop", [("ee f", "wo t"), *(pytest.param(stop, marks=pytest.mark.slow) for stop in (("three",), ("e",)))]
)
def test_a_stop_string_ends_it_where_it_would_have(llama: Engine, stop: tuple[str, ...]) -> None:
    prompt = llama.prefill([Prefill(TEXT)])
    for seed in range(3):
        sampling = Sampling(temperature=1.2, seed=seed, max_tokens=30, stop=stop)
        plain = told(llama, [Decode("", prompt, sampling=sampling)], None)
        text = llama.message(plain.ids[0]).text
        quick = told(llama, [Decode("", prompt, sampling=sampling, corpora=(corpus(llama, text, TEXT),))])
        same(llama, plain, quick)
    llama.release(prompt)


@pytest.mark.slow
def test_rows_that_keep_logits_or_ask_how_likely_they_are_go_one_by_one(llama: Engine) -> None:
    forced = tuple(llama.framing.content.encode(TEXT))
    for asked in ({"logits": True}, {"logprobs": 0}):
        plain = told(llama, [Decode("", forced=forced, **asked)], None)
        other = told(llama, [Decode("", forced=forced, corpora=(), **asked)])
        assert plain.steps == other.steps
        llama.release([*plain.ids, *other.ids])


@pytest.mark.parametrize("first", [True, False])
def test_nothing_is_guessed_in_a_deterministic_step_or_for_what_began_in_one(llama: Engine, first: bool) -> None:
    forced = tuple(llama.framing.content.encode(TEXT))
    llama._runner.costs, most = CHEAP, {True: 0, False: 0}
    (id,) = llama.submit([Decode("", forced=forced, corpora=())])
    llama.step(deterministic=first)
    deterministic = False
    while not llama.idle:
        said = len(llama.step(deterministic=deterministic).spoken)
        most[deterministic] = max(most[deterministic], said)
        deterministic = not deterministic
    assert most[True] == 1
    assert (most[False] == 1) == first
    llama.release([id])


def test_who_is_cancelled_while_tokens_are_guessed_leaves_nothing(llama: Engine) -> None:
    forced = tuple(llama.framing.content.encode(TEXT))
    llama._runner.costs, used = CHEAP, llama.fullness.used
    ids = llama.submit([Decode("", forced=forced, corpora=()) for _ in range(2)])
    for _ in range(12):
        llama.step()
    llama.cancel(ids)
    llama.check_integrity()
    assert (llama.idle, llama.fullness.used) == (True, used)


def test_what_is_no_corpus_is_refused(llama: Engine) -> None:
    with pytest.raises(RequestError, match="Corpus"):
        llama.submit([Decode("", forced=(), corpora=((1, 2),))])  # type: ignore[arg-type]


def test_a_token_that_cannot_be_drawn_after_a_right_guess_is_drawn_in_the_next_step(
    llama: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guess was fed already, and is fed again at the same position."""
    call = Decode("", sampling=Sampling(max_tokens=16, temperature=0))
    plain = told(llama, [call], None)
    sample, failed = llama._runner.sample, list[int]()

    def first_alone(*asked: Any) -> list[int | None]:
        found = sample(*asked)
        if len(found) > 1:
            failed.append(len(found))
            found[1] = None
        return found

    monkeypatch.setattr(llama._runner, "sample", first_alone)
    guessed = told(llama, [_with(call, (Corpus(llama.message(plain.ids[0]).tokens),))])
    assert len(failed) > 3
    same(llama, plain, guessed)

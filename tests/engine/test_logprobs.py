"""Log-probabilities of tokens, each checked against one plain forward of the stock model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from agentcho import Choreographer, Decode, Engine, Prefill, Sampling
from agentcho.choreography.requests import DecodePiece, Request
from agentcho.errors import CallFailed, RequestError
from agentcho.protocol.call import CallFailure, EncodingId, Logprobs, SampledToken, Shadow
from agentcho.testing import FakeEngine

from ..engines import Engines
from .families import llama_family

TOLD = Prefill("What all of them have been told.", role="system")
LONG = Sampling(max_tokens=14, temperature=0)
MOVE = {"type": "object", "properties": {"why": {"type": "string"}, "sure": {"type": "integer"}}}
SCHEMA = {**MOVE, "required": ["why", "sure"], "additionalProperties": False}
WAYS = {
    "greedy": LONG,
    "drawn": Sampling(max_tokens=14, temperature=1.0, seed=3),
    "filtered": Sampling(max_tokens=14, temperature=2.5, top_k=3, top_p=0.5, seed=3),
    "choices": Sampling(choices=("yes, of course", "yes", "no"), seed=1),
    "json, cut short": Sampling(json_schema=SCHEMA, max_tokens=24, temperature=1.5, seed=2),
    "stopped": Sampling(max_tokens=40, temperature=1.0, seed=5, stop=("e", "a")),
}


@pytest.fixture(scope="module")
def stock(engines: Engines) -> PreTrainedModel:
    """The model behind `llama`, as transformers has it."""
    return engines.stock(llama_family())


def run(
    engine: Engine | FakeEngine, calls: Sequence[Any], exact: bool = False
) -> tuple[list[list[SampledToken]], list[int]]:
    """The sampled tokens of each decode, and the ids of all calls."""
    ids = engine.submit(calls)
    spoken = list[SampledToken]()
    while not engine.idle:
        result = engine.step(exact)
        assert not result.failed
        spoken += result.spoken
    return [[said for said in spoken if said.id == id] for id in ids], list(ids)


def tokens(engine: Engine, said: Sequence[SampledToken], id: EncodingId) -> list[SampledToken]:
    """The entries that sampled a token, without those that only released held-back text."""
    whole = engine.message(id).sampled
    assert whole is not None
    new = list({each.nth: each for each in reversed(said)}.values())[::-1]
    assert len(new) == whole[1] - whole[0]
    return new


def expected(stock: PreTrainedModel, engine: Engine, id: EncodingId, *before: EncodingId) -> Tensor:
    """Log-probabilities `[sampled, vocab]` from one forward over all preceding messages, one after the other."""
    said = engine.message(id)
    assert said.sampled is not None
    parents = [token for parent in before for token in engine.message(parent).tokens]
    ids = [engine.tokenizer.bos_token_id, *parents, *said.tokens]
    with torch.no_grad():
        logits: Tensor = stock(torch.tensor([ids]), use_cache=False).logits[0].float()
    first = 1 + len(parents) + said.sampled[0]
    return logits.log_softmax(-1)[first - 1 : first - 1 + said.sampled[1] - said.sampled[0]]


def compare(found: Sequence[SampledToken], rows: Tensor, most: int) -> None:
    """Check that the sampled token comes first, then the likeliest in falling order, with these rows' probabilities."""
    for said, row in zip(found, rows, strict=True):
        own, others = said.likely[0], said.likely[1:]
        assert own[0] == said.token
        assert [log for _, log in others] == sorted((log for _, log in others), reverse=True)
        best = row.topk(most)
        assert torch.tensor([log for _, log in others]).sub(best.values).abs().max() < 1e-4 if most else not others
        assert all(abs(log - row[token].item()) < 1e-4 for token, log in said.likely)
        assert len({token for token, _ in others}) == most


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("exact", [False, True], ids=["fast", "exact"])
def test_each_token_is_as_likely_as_the_stock_model_says(
    llama: Engine, stock: PreTrainedModel, way: str, exact: bool
) -> None:
    call = Decode("To Bob: ", [TOLD], sampling=WAYS[way], logprobs=5)
    (_, said), (told, id) = run(llama, [TOLD, call], exact)
    compare(tokens(llama, said, id), expected(stock, llama, id, told), 5)


def test_what_a_constraint_says_in_the_place_of_what_was_drawn_has_its_own_probability(
    llama: Engine, stock: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, sample = list[list[int | None]](), llama._runner.sample

    def noted(*draw: Any) -> list[int | None]:
        drawn.append(sample(*draw))
        return drawn[-1]

    monkeypatch.setattr(llama._runner, "sample", noted)
    sampling = Sampling(json_schema={"type": "string", "maxLength": 90}, temperature=2.0, max_tokens=7, seed=1)
    (said,), (id,) = run(llama, [Decode(sampling=sampling, logprobs=1)])
    found = tokens(llama, said, id)
    assert any([each.token] != token for each, token in zip(found, drawn, strict=False))
    compare(found, expected(stock, llama, id), 1)


def test_forced_tokens_have_theirs(llama: Engine, stock: PreTrainedModel) -> None:
    forced = tuple(llama.framing.content.encode("words that no model would say"))
    (_, said), (told, id) = run(llama, [TOLD, Decode("So: ", [TOLD], forced=forced, logprobs=20)])
    found = tokens(llama, said, id)
    assert tuple(each.token for each in found) == forced
    compare(found, expected(stock, llama, id, told), 20)


@pytest.mark.parametrize("exact", [False, True], ids=["fast", "exact"])
def test_beside_others_each_gets_what_it_asks_for_and_who_does_not_ask_gets_nothing(
    llama: Engine, stock: PreTrainedModel, exact: bool
) -> None:
    asked = [None, 0, 3, None, 20]
    each = [
        Decode(f"{n}: ", [TOLD], sampling=LONG.model_copy(update={"seed": n, "temperature": n / 2}), logprobs=most)
        for n, most in enumerate(asked)
    ]
    own = Decode("own: ", [TOLD], sampling=LONG, logprobs=1)
    (_, *said, shadow), (told, *ids, _) = run(llama, [TOLD, *each, own, Shadow(own)], exact)
    assert not shadow
    for most, found, id in zip([*asked, 1], said, ids, strict=True):
        if most is None:
            assert not any(each.likely for each in found)
        else:
            compare(tokens(llama, found, id), expected(stock, llama, id, told), most)


def test_who_asks_says_the_same_words_and_in_the_exact_profile_bits_depend_on_nobody_else(llama: Engine) -> None:
    call = Decode("To Bob: ", sampling=WAYS["drawn"], logprobs=4)
    (alone,), _ = run(llama, [call], True)
    (among, *_), _ = run(llama, [call, *(replace(call, header=f"{n}", logprobs=n) for n in range(3))], True)
    (quiet,), _ = run(llama, [replace(call, logprobs=None)], True)
    assert [each.likely for each in alone] == [each.likely for each in among]
    assert [each[2:4] for each in alone] == [each[2:4] for each in among] == [each[2:4] for each in quiet]


@pytest.mark.parametrize(("exact", "most"), [(True, 1), (False, 3)])
def test_rows_are_computed_together_but_in_the_exact_profile(llama: Engine, exact: bool, most: int) -> None:
    with failing(llama, None) as counts:
        run(llama, [Decode(sampling=LONG, logprobs=number) for number in range(3)], exact)
    assert max(counts) == most


def test_nothing_is_computed_where_nobody_asks(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama._runner, "likely", lambda rows, asked: 1 / 0)
    (said,), _ = run(llama, [Decode(sampling=LONG)])
    assert said


@contextmanager
def failing(engine: Engine, guilty: int | None) -> Iterator[list[int]]:
    """Make computing probabilities fail for several rows at once, and for a row that sampled `guilty` (None: never
    fail); records the number of rows asked about at a time."""
    runner, counts = engine._runner, list[int]()
    real = runner.likely

    def likely(rows: Sequence[Tensor], asked: Sequence[tuple[int, int]]) -> list[Logprobs]:
        counts.append(len(rows))
        if guilty is not None and (len(rows) > 1 or asked[0][1] == guilty):
            raise torch.OutOfMemoryError("no memory")
        return real(rows, asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "likely", likely)
        yield counts


def test_who_cannot_have_them_fails_alone(llama: Engine) -> None:
    good, bad, quiet = llama.submit([Decode(sampling=LONG, logprobs=most) for most in (2, 7, None)])
    spoken, failed = list[SampledToken](), list[CallFailure]()
    with failing(llama, 7) as counts:
        while not llama.idle:
            result = llama.step()
            spoken += result.spoken
            failed += result.failed
    assert [(each.id, type(each.error)) for each in failed] == [(bad, CallFailed)]
    assert counts[:3] == [2, 1, 1]
    assert set(counts[3:]) == {1}
    assert {each.id for each in spoken} == {good, quiet}
    assert all(len(each.likely) == 3 for each in spoken if each.id == good)
    llama.check_integrity()
    assert llama.rows == 0


@pytest.mark.parametrize("most", [-1, 21, 1.5, True, "3", float("nan")])
def test_no_more_than_twenty_may_be_asked_for(most: Any) -> None:
    engine = FakeEngine()
    with pytest.raises(RequestError, match="logprobs"):
        engine.submit([Decode(logprobs=most)])
    assert engine.idle


def test_a_text_fed_in_strides_has_none() -> None:
    with pytest.raises(RequestError, match="stride"):
        FakeEngine().submit([Decode(forced=(40, 41, 42), stride=2, logprobs=0)])


@pytest.mark.parametrize("most", [0, 3])
def test_without_a_model_what_is_said_is_certain(most: int) -> None:
    engine = FakeEngine(lambda call, prompt: "one two three")
    (said,), _ = run(engine, [Decode(logprobs=most)])
    assert [each.likely for each in said] == [((each.token, 0.0),) for each in said]
    assert len(said) == 3


def test_pieces_carry_them_and_text_that_was_held_back_has_none(llama: Engine) -> None:
    pieces = list[DecodePiece]()
    held = tuple(llama.framing.content.encode("words held"))
    ask = Decode(sampling=Sampling(stop=("held back",)), forced=held, logprobs=2)

    async def work() -> None:
        async with Choreographer(llama) as c:
            await c.run(Request((ask,), on_piece=pieces.append))

    anyio.run(work)
    assert [piece.token for piece in pieces] == [*held, None]
    assert [piece.likely[0][0] for piece in pieces[:-1]] == list(held)
    assert all(len(piece.likely) == 3 for piece in pieces[:-1])
    assert pieces[-1].text
    assert pieces[-1].likely == ()

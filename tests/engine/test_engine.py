"""The engine's own contract: what a call returns, how a decode ends, and what it leaves behind."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.errors import RequestError, UnknownEncoding
from agentcho.protocol.call import EncodingId

from ..engines import Engines
from .families import Family
from .stage import text_of
from .templates import styles, tokenizer

CLOSING = styles()["llama3"].closing
GREEDY = Sampling(temperature=0, max_tokens=12)


# Results


def test_one_call_gives_an_id_and_a_list_gives_a_list(llama: Engine) -> None:
    one, many = llama.prefill("x"), llama.prefill([Prefill("x"), Prefill("y")])
    assert isinstance(one, int)
    assert isinstance(many, list)
    assert len({one, *many}) == 3
    one, many = llama.decode("x", sampling=GREEDY), llama.decode([Decode("x", sampling=GREEDY)])
    assert isinstance(one, int)
    assert isinstance(many, list)
    assert len(many) == 1


def test_an_empty_list_is_a_mistake(llama: Engine) -> None:
    for method in (llama.prefill, llama.decode):
        with pytest.raises(RequestError, match="empty"):
            method([])


def test_the_same_call_twice_gives_two_ids(llama: Engine) -> None:
    a, b = llama.prefill("the same"), llama.prefill("the same")
    assert a != b
    assert llama.message(a) == llama.message(b)
    llama.release([a])
    assert llama.message(b).text == "the same"


def test_a_message_remembers_its_words(llama: Engine) -> None:
    id = llama.prefill("naïve, 日本 🎲", role="system")
    said = llama.message(id)
    assert (said.header, said.text, said.sampled) == ("", "naïve, 日本 🎲", None)
    assert llama.message(llama.prefill("")).text == ""


def test_score_has_a_row_for_each_token_and_one_for_the_closing(llama: Engine) -> None:
    parent = llama.prefill("before")
    before = llama.fullness.used
    rows = llama.score("to be scored", header="To Bob: ", parents=[parent])
    count = len(tokenizer("llama3")("to be scored", add_special_tokens=False)["input_ids"])
    assert rows.shape == (count + 1, len(tokenizer("llama3")))
    assert rows.dtype == torch.float32
    assert torch.allclose(rows.exp().sum(-1), torch.ones(count + 1), atol=1e-5)
    assert llama.fullness.used == before


def test_score_of_nothing_is_the_row_of_the_closing(llama: Engine) -> None:
    assert llama.score("").shape[0] == 1


# How a decode ends


def as_a_prompt(engine: Engine, id: EncodingId) -> None:
    """Check that a decoded message has the keys and values of a prefill of the same tokens."""
    said = engine.message(id)
    same = engine.prefill(Prefill("", role="assistant", tokens=said.tokens[slice(*said.content)]))
    assert said.tokens == engine.message(same).tokens
    for ours, theirs in zip(engine.cached(id), engine.cached(same), strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


def test_max_tokens_ends_with_the_full_closing(llama: Engine) -> None:
    said = llama.message(llama.decode("To Bob: ", sampling=Sampling(max_tokens=5, seed=3)))
    assert said.stopped == "max_tokens"
    assert said.sampled is not None
    start, stop = said.sampled
    assert stop - start == 5
    assert text_of(llama, said.tokens[stop:]) == CLOSING
    assert text_of(llama, said.tokens[:start]).endswith("\n\nTo Bob: ")
    assert said.text == text_of(llama, said.tokens[start:stop])
    assert said.header == "To Bob: "


def test_a_sampled_stop_token_is_the_first_of_the_closing(engines: Engines) -> None:
    chat = engines(Family("qwen3", "Qwen3", {"head_dim": 32}, style="chatml"))
    ids = chat.decode([Decode(sampling=Sampling(max_tokens=60, seed=seed)) for seed in range(24)])
    ended = [id for id in ids if chat.message(id).stopped == "stop"]
    assert ended
    for said in map(chat.message, ended):
        assert said.sampled is not None
        assert text_of(chat, said.tokens[said.content[1] :]) == "<|im_end|>\n"
        assert said.sampled[1] - said.content[1] in (0, 1)
        assert said.text == text_of(chat, said.tokens[said.sampled[0] : said.content[1]])
    as_a_prompt(chat, ended[0])


def test_a_stop_string_leaves_the_text_and_stays_in_the_tokens(llama: Engine) -> None:
    sampling = Sampling(max_tokens=40, seed=11)
    free = llama.message(llama.decode("", sampling=sampling))
    stop = free.text[5:8]
    stopping = sampling.model_copy(update={"stop": ("never there", stop)})
    said = llama.message(llama.decode("", sampling=stopping))
    assert said.stopped == "stop_string"
    assert said.text == free.text[: free.text.index(stop)]
    assert stop in text_of(llama, said.tokens[slice(*said.content)])
    assert free.tokens[: said.content[1]] == said.tokens[: said.content[1]]
    assert text_of(llama, said.tokens[said.content[1] :]) == CLOSING


def test_every_end_is_the_same_to_who_reads_it(llama: Engine) -> None:
    said = llama.message(llama.decode("", sampling=Sampling(choices=("yes",))))
    same = llama.message(llama.prefill("yes", role="assistant"))
    assert said.tokens == same.tokens
    assert said.text == "yes"


@pytest.mark.parametrize(
    "options",
    [
        {"sampling": GREEDY},
        {"sampling": Sampling(choices=("yes", "no"))},
        {"forced": (40, 41, 42)},
        {"forced": ()},
        {"sampling": Sampling(max_tokens=40, seed=11, stop=("e", "a", "o", "i"))},
    ],
    ids=["max_tokens", "choice", "forced", "nothing", "stop_string"],
)
def test_all_that_was_said_is_fed_and_the_closing_after_it(llama: Engine, options: dict[str, Any]) -> None:
    """Including the last token, after which nothing is sampled: readers see the same as in an equal prefill."""
    id = llama.decode(Decode("So: ", **options))
    as_a_prompt(llama, id)


# State that remains


def test_bfloat16_is_near_float32(engines: Engines, llama: Engine) -> None:
    half = engines(dtype="bfloat16")
    tables = []
    for engine in (llama, half):
        a = engine.prefill("something said before")
        tables.append(engine.score("and so on", parents=[a, a], offsets=[3, 40]))
    assert tables[1].dtype == torch.float32
    assert 0 < float((tables[0] - tables[1]).abs().max()) < 0.2


def test_reading_changes_nothing(llama: Engine) -> None:
    a, b = llama.prefill("one"), llama.prefill("another")
    before = llama.score("so", parents=[a, b])
    for at in (3, 900, 30):
        llama.score("so", parents=[b, a], offsets=[at, at + 5])
        llama.decode("so", parents=[a], offsets=[at], sampling=GREEDY)
    assert torch.equal(before, llama.score("so", parents=[a, b]))


def test_what_is_released_is_freed_once_nothing_holds_it(llama: Engine) -> None:
    before = llama.fullness.used
    a = llama.prefill("held by hand " * 8)
    b = llama.prefill("child", parents=[a])
    c, d = llama.decode([Decode(parents=[b], sampling=GREEDY), Decode(sampling=GREEDY)])
    assert llama.fullness.used > before
    llama.release([a])
    assert llama.message(b).text == "child"
    llama.score("so", parents=[b, c])
    llama.release([b, c, d])
    assert llama.fullness.used == before
    with pytest.raises(UnknownEncoding, match="released"):
        llama.score("so", parents=[a])


def test_a_whole_graph_is_one_step(llama: Engine) -> None:
    one = Prefill("graph: one")
    two = Prefill("graph: two", parents=[one])
    ids = llama.submit([one, two, Prefill("graph: three", parents=[two, one]), Prefill("graph: four")])
    result = llama.step()
    assert set(result.finished) == set(ids)
    assert llama.idle
    assert result.encoded == sum(len(llama.message(id).tokens) for id in ids)

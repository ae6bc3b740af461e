"""The engine's own contract: what a call returns, how it ends, what it leaves behind, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.errors import BadOffsets, BadParent, ContextOverflow, RequestError, UnknownEncoding

from .families import CONTEXT, Family
from .oracle import Message, Oracle
from .templates import styles, tokenizer

Models = Callable[[Family], PreTrainedModel]
Engines = Callable[[Family], Engine]
LLAMA = Family("llama", "Llama")
CLOSING = styles()["llama3"].closing
GREEDY = Sampling(temperature=0, max_tokens=12)


@pytest.fixture
def llama(engine: Engines) -> Engine:
    """One small llama in the Llama-3 style, with BOS."""
    return engine(LLAMA)


def text_of(engine: Engine, tokens: Any) -> str:
    """Ids as text, nothing skipped."""
    return str(engine.tokenizer.decode(list(tokens), skip_special_tokens=False))


def used(engine: Engine) -> int:
    """Pages in use."""
    return engine.fullness.used


# What comes back


def test_one_call_gives_an_id_and_a_list_gives_a_list(llama: Engine) -> None:
    one, many = llama.prefill("x"), llama.prefill([Prefill("x"), Prefill("y")])
    assert isinstance(one, int) and isinstance(many, list) and len({one, *many}) == 3
    one, many = llama.decode("x", sampling=GREEDY), llama.decode([Decode("x", sampling=GREEDY)])
    assert isinstance(one, int) and isinstance(many, list) and len(many) == 1


def test_an_empty_list_is_a_mistake(llama: Engine) -> None:
    for method in (llama.prefill, llama.decode):
        with pytest.raises(RequestError, match="empty"):
            method([])


def test_the_same_call_twice_gives_two_ids(llama: Engine) -> None:
    a, b = llama.prefill("the same"), llama.prefill("the same")
    assert a != b and llama.message(a) == llama.message(b)
    llama.release([a])
    assert llama.message(b).text == "the same"


def test_a_message_remembers_its_words(llama: Engine) -> None:
    id = llama.prefill("naïve – 日本 🎲", role="system")
    said = llama.message(id)
    assert (said.role, said.header, said.text, said.sampled) == ("system", "", "naïve – 日本 🎲", None)
    assert llama.message(llama.prefill("")).text == ""


def test_score_has_a_row_for_each_token_and_one_for_the_closing(llama: Engine) -> None:
    parent = llama.prefill("before")
    before = used(llama)
    rows = llama.score("to be scored", header="To Bob: ", parents=[parent])
    count = len(tokenizer("llama3")("to be scored", add_special_tokens=False)["input_ids"])
    assert rows.shape == (count + 1, len(tokenizer("llama3"))) and rows.dtype == torch.float32
    assert torch.allclose(rows.exp().sum(-1), torch.ones(count + 1), atol=1e-5)
    assert used(llama) == before


def test_score_of_nothing_is_the_row_of_the_closing(llama: Engine) -> None:
    assert llama.score("").shape[0] == 1


# How a decode ends


def test_max_tokens_ends_with_the_full_closing(llama: Engine) -> None:
    said = llama.message(llama.decode("To Bob: ", sampling=Sampling(max_tokens=5, seed=3)))
    assert said.stopped == "max_tokens" and said.sampled is not None
    start, stop = said.sampled
    assert stop - start == 5
    assert text_of(llama, said.tokens[stop:]) == CLOSING
    assert text_of(llama, said.tokens[:start]).endswith("\n\nTo Bob: ")
    assert said.text == text_of(llama, said.tokens[start:stop]) and said.header == "To Bob: "


def test_a_sampled_stop_token_is_the_first_of_the_closing(engine: Engines) -> None:
    chat = engine(Family("qwen3", "Qwen3", {"head_dim": 32}, style="chatml"))
    ids = chat.decode([Decode(sampling=Sampling(max_tokens=60, seed=seed)) for seed in range(24)])
    ended = [chat.message(id) for id in ids if chat.message(id).stopped == "stop"]
    assert ended
    for said in ended:
        assert said.sampled is not None
        assert text_of(chat, said.tokens[said.content[1] :]) == "<|im_end|>\n"
        assert said.sampled[1] - said.content[1] in (0, 1)
        assert said.text == text_of(chat, said.tokens[said.sampled[0] : said.content[1]])


def test_a_stop_string_leaves_the_text_and_stays_in_the_tokens(llama: Engine) -> None:
    options = {"max_tokens": 40, "seed": 11}
    free = llama.message(llama.decode("", sampling=Sampling(**options)))
    stop = free.text[5:8]
    said = llama.message(llama.decode("", sampling=Sampling(**options, stop=("never there", stop))))
    assert said.stopped == "stop_string"
    assert said.text == free.text[: free.text.index(stop)]
    assert stop in text_of(llama, said.tokens[slice(*said.content)])
    assert free.tokens[: said.content[1]] == said.tokens[: said.content[1]]
    assert text_of(llama, said.tokens[said.content[1] :]) == CLOSING


def test_every_end_is_the_same_to_who_reads_it(llama: Engine) -> None:
    said = llama.message(llama.decode("", sampling=Sampling(choices=("yes",))))
    same = llama.message(llama.prefill("yes", role="assistant"))
    assert said.tokens == same.tokens and said.text == "yes"


# What is chosen


def rows(stock: Models, engine: Engine, id: int) -> tuple[Tensor, tuple[int, ...]]:
    """The oracle's logits each sampled token of a call without parents was chosen from, and the tokens."""
    said = engine.message(id)
    assert said.sampled is not None
    start, stop = said.sampled[0], said.content[1]
    oracle = Oracle(stock(LLAMA), LLAMA.layers, engine.tokenizer.bos_token_id)
    logits = oracle.logits(oracle.add(Message(said.tokens, 1)))
    allowed = torch.tensor([id for id in range(logits.shape[1]) if id not in engine.tokenizer.added_tokens_decoder])
    kept = torch.full_like(logits, float("-inf"))
    stops = torch.tensor(engine.tokenizer.convert_tokens_to_ids(["<|eot_id|>"]))
    for ids in (allowed, stops):
        kept[:, ids] = logits[:, ids]
    return kept[start - 1 : stop - 1], said.tokens[start:stop]


def test_greedy_is_the_chain_of_the_oracles_best(llama: Engine, stock: Models) -> None:
    logits, tokens = rows(stock, llama, llama.decode("So", sampling=Sampling(temperature=0, max_tokens=30)))
    assert tuple(logits.argmax(-1).tolist()) == tokens


KEPT = {
    "top_k": (Sampling(max_tokens=6, temperature=1.5, top_k=4), lambda p: set(p.topk(4).indices.tolist())),
    "top_p": (Sampling(max_tokens=6, temperature=0.7, top_p=0.3), lambda p: nucleus(p, 0.3)),
    "min_p": (Sampling(max_tokens=6, temperature=1.0, min_p=0.4), lambda p: set((p >= 0.4 * p.max()).nonzero()[:, 0].tolist())),
}


def nucleus(probs: Tensor, share: float) -> set[int]:
    """The smallest set of best tokens that holds that share."""
    kept, total = set(), 0.0
    for token in probs.argsort(descending=True).tolist():
        if total >= share:
            break
        kept.add(token)
        total += float(probs[token])
    return kept


@pytest.mark.parametrize("option", KEPT)
def test_a_filter_keeps_what_a_slow_reference_keeps(llama: Engine, stock: Models, option: str) -> None:
    sampling, reference = KEPT[option]
    ids = llama.decode([Decode(sampling=sampling.model_copy(update={"seed": seed})) for seed in range(40)])
    first: set[int] = set()
    for id in ids:
        logits, tokens = rows(stock, llama, id)
        allowed = [reference((row / sampling.temperature).softmax(-1)) for row in logits]
        assert all(token in kept for token, kept in zip(tokens, allowed, strict=True))
        first.add(tokens[0])
    assert first == allowed[0] or len(first) > 2


def test_temperature_gives_the_frequencies_of_the_reference(llama: Engine, stock: Models) -> None:
    count, sampling = 600, Sampling(max_tokens=1, temperature=0.25)
    ids = llama.decode([Decode(sampling=sampling.model_copy(update={"seed": seed})) for seed in range(count)])
    logits, _ = rows(stock, llama, ids[0])
    expected = (logits[0] / 0.25).softmax(-1)
    seen = torch.zeros_like(expected)
    for id in ids:
        said = llama.message(id)
        seen[said.tokens[(said.sampled or (0, 0))[0]]] += 1 / count
    assert float((seen - expected).abs().max()) < 4 * (0.25 / count) ** 0.5
    llama.release(ids)


def test_a_seed_repeats_and_another_does_not(llama: Engine) -> None:
    texts = [llama.message(llama.decode("", sampling=Sampling(max_tokens=12, seed=s))).tokens for s in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


MIXED = [
    Sampling(max_tokens=9, seed=1, temperature=0.5),
    Sampling(max_tokens=30, seed=2, temperature=2.0, top_k=9),
    Sampling(max_tokens=17, seed=1, temperature=1.0, stop=("e", "a")),
    Sampling(max_tokens=12, temperature=0),
    Sampling(choices=("COOPERATE", "DEFECT"), seed=4),
    Sampling(max_tokens=3, seed=1, temperature=0.5),
]


def test_batch_mates_change_nothing(llama: Engine) -> None:
    a, b = llama.prefill("one"), llama.prefill("another one")
    calls = [Decode(f"{i}: ", parents=[a, b][: i % 3], sampling=s) for i, s in enumerate(MIXED * 2)]
    together = [llama.message(id).tokens for id in llama.decode(calls)]
    apart = [llama.message(llama.decode([call])[0]).tokens for call in reversed(calls)][::-1]
    assert together == apart


@pytest.mark.parametrize("tight", [1, 2, 256])
def test_a_choice_is_always_one_of_them(llama: Engine, tight: int) -> None:
    choices = ("yes", "yes and no", "no", "über")
    calls = [Decode(sampling=Sampling(choices=choices, seed=s, temperature=2.0, max_tokens=tight)) for s in range(24)]
    try:
        ids = llama.decode(calls)
    except RequestError as error:
        assert tight < 256 and "max_tokens" in str(error)
        return
    said = [llama.message(id) for id in ids]
    assert {m.text for m in said} <= set(choices)
    assert all(text_of(llama, m.tokens[m.content[1] :]) == CLOSING for m in said)
    assert tight < 256 or len({m.text for m in said}) > 2


SCHEMA = {
    "type": "object",
    "properties": {"decision": {"enum": ["DEFECT", "COOPERATE"]}, "sure": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["decision", "sure"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("tight", [4, 20, 40, 300])
def test_json_always_fits_its_schema(llama: Engine, tight: int) -> None:
    sampling = Sampling(json_schema=SCHEMA, temperature=1.5, max_tokens=tight)
    try:
        ids = llama.decode([Decode(sampling=sampling.model_copy(update={"seed": s})) for s in range(12)])
    except RequestError as error:
        assert tight < 40 and "max_tokens" in str(error)
        return
    for id in ids:
        answer = json.loads(llama.message(id).text)
        assert answer.keys() == {"decision", "sure"} and 0 <= answer["sure"] <= 9
        assert answer["decision"] in ("DEFECT", "COOPERATE")


def test_a_header_can_begin_the_json(llama: Engine) -> None:
    said = llama.message(llama.decode('{"decision": ', sampling=Sampling(choices=('"DEFECT"}', '"COOPERATE"}'))))
    assert json.loads(said.header + said.text)["decision"] in ("DEFECT", "COOPERATE")


# What stays


def test_bfloat16_is_near_float32(tmp_path_factory: pytest.TempPathFactory, llama: Engine) -> None:
    folder = tmp_path_factory.mktemp("half")
    LLAMA.save(folder)
    half = Engine.load(str(folder), device="cpu", dtype="bfloat16")
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
    before = used(llama)
    a = llama.prefill("held by hand " * 8)
    b = llama.prefill("child", parents=[a])
    c, d = llama.decode([Decode(parents=[b], sampling=GREEDY), Decode(sampling=GREEDY)])
    assert used(llama) > before
    llama.release([a])
    assert llama.message(b).text == "child"
    llama.score("so", parents=[b, c])
    llama.release([b, c, d])
    assert used(llama) == before
    with pytest.raises(UnknownEncoding, match="released"):
        llama.score("so", parents=[a])


def test_a_whole_graph_is_one_step(llama: Engine) -> None:
    one = Prefill("graph: one")
    two = Prefill("graph: two", parents=[one])
    ids = llama.submit([one, two, Prefill("graph: three", parents=[two, one]), Prefill("graph: four")])
    result = llama.step()
    assert set(result.finished) == set(ids) and llama.idle
    assert result.encoded == sum(len(llama.message(id).tokens) for id in ids)


# What is refused


def never(engine: Engine) -> int:
    """An id that no call gave."""
    return engine.prefill("x") + 1000


WRONG: dict[str, tuple[type[Exception], str, Callable[[Engine, int], Any]]] = {
    "unknown parent": (UnknownEncoding, "unknown", lambda e, a: e.prefill("x", parents=[never(e)])),
    "unknown in a decode": (UnknownEncoding, "unknown", lambda e, a: e.decode("x", parents=[a, never(e)])),
    "unknown in a score": (UnknownEncoding, "unknown", lambda e, a: e.score("x", parents=[never(e)])),
    "unknown message": (UnknownEncoding, "unknown", lambda e, a: e.message(never(e))),
    "negative offset": (BadOffsets, "offset", lambda e, a: e.prefill("x", parents=[a], offsets=[-1])),
    "negative new offset": (BadOffsets, "offset", lambda e, a: e.prefill("x", new_offset=-5)),
    "too few offsets": (BadOffsets, "offset", lambda e, a: e.prefill("x", parents=[a, a], offsets=[1])),
    "too many offsets": (BadOffsets, "offset", lambda e, a: e.decode("x", parents=[a], offsets=[1, 2])),
    "offset past the end": (ContextOverflow, str(CONTEXT), lambda e, a: e.prefill("x", parents=[a], offsets=[CONTEXT])),
    "own past the end": (ContextOverflow, str(CONTEXT), lambda e, a: e.prefill("x", new_offset=CONTEXT - 3)),
    "too long": (ContextOverflow, str(CONTEXT), lambda e, a: e.prefill("é" * CONTEXT)),
    "score past the end": (ContextOverflow, str(CONTEXT), lambda e, a: e.score("x", new_offset=CONTEXT - 1)),
    "later in the list": (BadParent, "earlier", lambda e, a: e.prefill(backwards())),
    "in no list": (BadParent, "earlier", lambda e, a: e.prefill("x", parents=[Prefill("y")])),
    "a decode as parent": (BadParent, "parent", lambda e, a: e.decode(chained())),
    "no parent at all": (RequestError, "parent", lambda e, a: e.prefill("x", parents=["a"])),
    "unknown role": (RequestError, "role", lambda e, a: e.prefill("x", role="judge")),
}


def backwards() -> list[Prefill]:
    """A list whose first call has its second as parent."""
    late = Prefill("late")
    return [Prefill("early", parents=[late]), late]


def chained() -> list[Decode]:
    """A list whose second call has its first, a decode, as parent."""
    first: Any = Decode("x", sampling=GREEDY)
    return [first, Decode("y", parents=[first], sampling=GREEDY)]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_call_says_so_and_leaves_nothing(llama: Engine, wrong: str) -> None:
    error, words, call = WRONG[wrong]
    a = llama.prefill("fine")
    never(llama)
    before, idle = used(llama), llama.idle
    with pytest.raises(error, match=words):
        call(llama, a)
    assert used(llama) - before <= 1 and llama.idle == idle
    assert llama.score("still", parents=[a]).isfinite().all()


def test_one_wrong_call_stops_its_whole_list(llama: Engine) -> None:
    before = used(llama)
    with pytest.raises(RequestError):
        llama.prefill([Prefill("good " * 40), Prefill("bad", new_offset=-1)])
    assert used(llama) == before and llama.idle


def test_the_last_position_is_usable(llama: Engine) -> None:
    length = len(llama.message(llama.prefill("x")).tokens)
    assert llama.receipt(llama.prefill("x", new_offset=CONTEXT - length)).start == CONTEXT - length
    with pytest.raises(ContextOverflow):
        llama.prefill("x", new_offset=CONTEXT - length + 1)


def test_a_decode_that_could_overflow_raises_before_it_starts(llama: Engine) -> None:
    with pytest.raises(ContextOverflow):
        llama.decode("", new_offset=CONTEXT - 40, sampling=Sampling(max_tokens=60))

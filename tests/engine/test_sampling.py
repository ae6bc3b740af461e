"""Sampling: greedy, random, filtered and constrained, each against a slow reference."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from agentcho import Decode, Engine, Sampling
from agentcho.engine.generation import SamplingDraw, TokenLimits
from agentcho.errors import RequestError
from agentcho.protocol.tools import AnswerForm, ToolDefinition
from agentcho.runner.sampling.sampler import sample_tokens, top_logprobs
from agentcho.runner.sampling.token_mask import Banned, TokenMask

from ..device import PLACE
from ..engines import Engines
from ..words import _chosen
from .families import llama_family
from .oracle import Message, Oracle
from .pretend import Pretend
from .stage import text_of
from .templates import styles

CLOSING = styles()["llama3"].closing


class Reference:
    """The oracle's logits from which each token of a call without parents was sampled."""

    def __init__(self, model: PreTrainedModel, engine: Engine) -> None:
        self._model, self._engine = model, engine
        end = engine.tokenizer.convert_tokens_to_ids(CLOSING)
        self._banned = [id for id in engine.tokenizer.added_tokens_decoder if id != end]

    def __call__(self, id: int) -> tuple[Tensor, tuple[int, ...]]:
        """Logits ``[sampled, vocab]``, -inf where nothing may be sampled, and the sampled ids."""
        said = self._engine.message(id)
        assert said.sampled is not None
        start, stop = said.sampled
        oracle = Oracle(self._model, llama_family().layers, self._engine.tokenizer.bos_token_id)
        logits = oracle.logits(oracle.add(Message(said.tokens, 1)))[start - 1 : stop - 1]
        logits[:, self._banned] = float("-inf")
        return logits, said.tokens[start:stop]


@pytest.fixture
def reference(engines: Engines, llama: Engine) -> Reference:
    """The slow reference for the small llama."""
    return Reference(engines.stock(llama_family()), llama)


def decode(engine: Engine, sampling: Sampling, count: int) -> list[int]:
    """The same call with `count` seeds, side by side."""
    return engine.decode([Decode(sampling=sampling.model_copy(update={"seed": s})) for s in range(count)])


def test_greedy_is_the_chain_of_the_oracles_best(llama: Engine, reference: Reference) -> None:
    logits, tokens = reference(llama.decode("So", sampling=Sampling(temperature=0, max_tokens=30)))
    assert tuple(logits.argmax(-1).tolist()) == tokens


def best(probs: Tensor) -> set[int]:
    """The four most likely tokens."""
    return set(probs.topk(4).indices.tolist())


def nucleus(probs: Tensor) -> set[int]:
    """The smallest set of most likely tokens with at least 0.3 of the probability."""
    kept, total = set(), 0.0
    for token in probs.argsort(descending=True).tolist():
        if total >= 0.3:
            break
        kept.add(token)
        total += float(probs[token])
    return kept


def likely(probs: Tensor) -> set[int]:
    """Tokens at least 0.4 times as likely as the most likely one."""
    return set((probs >= 0.4 * probs.max()).nonzero()[:, 0].tolist())


FILTERS = {
    "top_k": (Sampling(max_tokens=3, temperature=1.5, top_k=4), best),
    "top_p": (Sampling(max_tokens=3, temperature=0.7, top_p=0.3), nucleus),
    "min_p": (Sampling(max_tokens=3, temperature=1.0, min_p=0.4), likely),
}


@pytest.mark.slow
@pytest.mark.parametrize("option", FILTERS)
def test_a_filter_keeps_what_the_reference_keeps(llama: Engine, reference: Reference, option: str) -> None:
    sampling, keep = FILTERS[option]
    first: set[int] = set()
    for id in decode(llama, sampling, 60):
        logits, tokens = reference(id)
        kept = [keep((row / sampling.temperature).softmax(-1)) for row in logits]
        assert all(token in some for token, some in zip(tokens, kept, strict=True))
        first.update(tokens[:1])
    assert first == kept[0]
    assert len(first) > 2


@pytest.mark.slow
def test_temperature_gives_the_frequencies_of_the_reference(llama: Engine, reference: Reference) -> None:
    count = 300
    ids = decode(llama, Sampling(max_tokens=1, temperature=0.25), count)
    expected = (reference(ids[0])[0][0] / 0.25).softmax(-1)
    seen = torch.zeros_like(expected)
    for id in ids:
        said = llama.message(id)
        seen[said.tokens[said.content[0]]] += 1 / count
    llama.release(ids)
    assert float((seen - expected).abs().max()) < 4 * (0.25 / count) ** 0.5


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


CHOICES = ("yes", "yes and no", "no", "über")


def test_a_choice_is_always_one_of_them(llama: Engine) -> None:
    longest = max(len(llama.tokenizer(choice, add_special_tokens=False)["input_ids"]) for choice in CHOICES)
    for most in (longest, 256):
        ids = decode(llama, Sampling(choices=CHOICES, temperature=2.0, max_tokens=most), 24)
        said = [llama.message(id) for id in ids]
        assert {message.text for message in said} == set(CHOICES)
        assert all(text_of(llama, message.tokens[message.content[1] :]) == CLOSING for message in said)
    with pytest.raises(RequestError, match="max_tokens"):
        llama.decode(sampling=Sampling(choices=CHOICES, max_tokens=longest - 1))


def test_greedy_choice_is_the_likeliest_start(llama: Engine) -> None:
    said = llama.message(llama.decode("", sampling=Sampling(choices=("a", "b", "c"), temperature=0))).text
    row = llama.score("a")[0]
    assert said == max("abc", key=lambda letter: float(row[llama.tokenizer.convert_tokens_to_ids(letter)]))


def test_a_header_can_begin_the_json(llama: Engine) -> None:
    said = llama.message(llama.decode('{"decision": ', sampling=Sampling(choices=('"DEFECT"}', '"COOPERATE"}'))))
    assert json.loads(said.header + said.text)["decision"] in ("DEFECT", "COOPERATE")


MOVE = {"enum": ["DEFECT", "COOPERATE"]}
NUMBER = {"type": "integer", "minimum": 0, "maximum": 9}
BOTH = {"type": "object", "properties": {"move": MOVE, "sure": NUMBER}, "required": ["move", "sure"]}
SCHEMAS: dict[str, tuple[dict[str, Any], Callable[[Any], bool]]] = {
    "object": (
        {**BOTH, "additionalProperties": False},
        lambda a: a.keys() == {"move", "sure"} and a["move"] in MOVE["enum"] and a["sure"] in range(10),
    ),
    "number": ({"type": "number"}, lambda a: isinstance(a, int | float)),
    "text": ({"type": "string", "maxLength": 90}, lambda a: isinstance(a, str) and len(a) <= 90),
    "list": (
        {"type": "array", "items": NUMBER, "minItems": 1, "maxItems": 30},
        lambda a: 1 <= len(a) <= 30 and set(a) <= set(range(10)),
    ),
    "pattern": (
        {"type": "string", "pattern": "^[a-f]{2,40}$"},
        lambda a: 2 <= len(a) <= 40 and set(a) <= set("abcdef"),
    ),
    "nested": (
        {"type": "object", "properties": {"a": BOTH, "why": {"type": "string"}}, "required": ["a", "why"]},
        lambda a: a["a"]["sure"] in range(10) and isinstance(a["why"], str),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCHEMAS)
def test_json_fits_its_schema_however_few_tokens_are_left(llama: Engine, kind: str) -> None:
    schema, fits = SCHEMAS[kind]
    fewest = next(n for n in range(1, 100) if admitted(llama, Sampling(json_schema=schema, max_tokens=n)))
    for most in (fewest, fewest + 1, fewest + 5, fewest + 40):
        ids = decode(llama, Sampling(json_schema=schema, temperature=1.5, max_tokens=most), 3)
        assert all(fits(json.loads(llama.message(id).text)) for id in ids)
        assert all(text_of(llama, (m := llama.message(id)).tokens[m.content[1] :]) == CLOSING for id in ids)


def admitted(engine: Engine, sampling: Sampling) -> bool:
    """Whether a call with these options is accepted. A refusal counts only if its error mentions max_tokens."""
    try:
        ids = engine.submit([Decode(sampling=sampling)])
    except RequestError as error:
        return "max_tokens" not in str(error)
    engine.cancel(ids)
    return True


def test_a_schema_that_cannot_be_met_is_refused(llama: Engine) -> None:
    with pytest.raises(RequestError, match="json_schema"):
        llama.decode(sampling=Sampling(json_schema={"type": "string", "pattern": "("}))


def doubling(depth: int) -> dict[str, Any]:
    """A schema whose smallest document doubles with each level of depth."""
    definitions: dict[str, Any] = {"a0": {"type": "integer"}}
    for number in range(depth):
        two = {name: {"$ref": f"#/$defs/a{number}"} for name in ("x", "y")}
        definitions[f"a{number + 1}"] = {"type": "object", "properties": two, "required": ["x", "y"]}
    return {"$defs": definitions, "$ref": f"#/$defs/a{depth}"}


@pytest.mark.parametrize(
    ("schema", "begins"),
    [(doubling(50), '{"x":{"x":{"x":'), ({"type": "array", "items": {"type": "boolean"}, "minItems": 10**12}, "[")],
    ids=["fifty doublings", "10^12 items"],
)
@pytest.mark.slow
def test_a_document_whose_end_nobody_finds_is_said_until_its_tokens_end(
    llama: Engine, schema: dict[str, Any], begins: str
) -> None:
    words = llama.message(llama.decode(sampling=Sampling(json_schema=schema, max_tokens=24)))
    assert words.text.startswith(begins)
    assert words.stopped == "max_tokens"
    start, stop = words.sampled or (0, 0)
    assert stop - start == 24
    if begins == "[":
        assert re.fullmatch(r"\[((true|false),)+(t(r(ue?)?)?|f(a(l(se?)?)?)?)?", words.text)
    with pytest.raises(json.JSONDecodeError):
        json.loads(words.text)


@pytest.mark.parametrize("wanted", ["yes", "yesterday", "{", "a call"])
def test_an_answer_is_a_call_or_one_of_some_texts(llama: Engine, wanted: str) -> None:
    content, known = llama.framing.content, llama.framing.tools
    texts = {text: tuple(content.encode(text)) for text in ("yes", "yesterday", "{")}
    tool = ToolDefinition(
        "look", "", {"type": "object", "properties": {"at": {"enum": ["a", "b"]}}, "required": ["at"]}
    )
    forms = (*known.forms([tool]), *(AnswerForm(ids, None) for ids in texts.values()))
    end = llama.tokenizer.convert_tokens_to_ids(CLOSING)
    favoured = [*texts.get(wanted, content.encode('{"name": "look')), *([end] if wanted in ("yes", "{") else [])]
    for seed in range(3):
        sampling = Sampling(seed=seed, max_tokens=90, logit_bias=dict.fromkeys(favoured, 60.0))
        words = llama.message(llama.decode([Decode(sampling=sampling, forms=forms)])[0])
        calls = known.read(words.text)[1]
        assert words.text == wanted or (wanted == "a call" and [call.name for call in calls] == ["look"])
        assert words.tokens[words.content[1] :] == llama.framing.closing("assistant")


def bent(row: Tensor, sampling: Sampling, prompt: set[int], said: list[int]) -> list[float]:
    """vLLM's changes to a row of logits, token by token: the bias, then the penalties."""
    logits = [value + sampling.logit_bias.get(token, 0.0) for token, value in enumerate(row.tolist())]
    for token in prompt | {*said}:
        by = sampling.repetition_penalty
        logits[token] = logits[token] / by if logits[token] > 0 else logits[token] * by
    for token in {*said}:
        logits[token] -= sampling.frequency_penalty * said.count(token) + sampling.presence_penalty
    return logits


BENT: dict[str, dict[str, Any]] = {
    "frequency": {"frequency_penalty": 0.7},
    "presence": {"presence_penalty": 2.0},
    "negative": {"presence_penalty": -1.0, "frequency_penalty": -0.2},
    "repetition": {"repetition_penalty": 1.3},
    "encouraged": {"repetition_penalty": 0.6},
    "bias": {"logit_bias": {7: 3.0, 11: -100.0, 12: 0.5}},
    "all": {"frequency_penalty": 0.3, "presence_penalty": 0.2, "repetition_penalty": 1.1, "logit_bias": {9: 1.5}},
}


@pytest.mark.parametrize("option", BENT)
def test_penalties_and_biases_are_those_of_a_slow_reference(llama: Engine, reference: Reference, option: str) -> None:
    sampling = Sampling(temperature=0, max_tokens=16, **BENT[option])
    id = llama.decode("So", sampling=sampling)
    logits, tokens = reference(id)
    words = llama.message(id)
    prompt = {*words.tokens[: (words.sampled or (0, 0))[0]]} | {llama.tokenizer.bos_token_id}
    for nth, row in enumerate(logits):
        ours = bent(row, sampling, prompt, list(tokens[:nth]))
        assert ours[tokens[nth]] == pytest.approx(max(ours), abs=1e-4)
    assert tokens != reference(llama.decode("So", sampling=Sampling(temperature=0, max_tokens=16)))[1]


def test_a_repetition_penalty_goes_by_what_the_call_reads_and_by_nothing_else(llama: Engine) -> None:
    asked = Sampling(temperature=0, max_tokens=8, repetition_penalty=5.0)
    read, other = llama.prefill("the old fox said hello"), llama.prefill("an unread secret")
    alone = llama.message(llama.decode("So", parents=[read], sampling=asked)).tokens
    again = llama.message(llama.decode("So", parents=[read], sampling=asked)).tokens
    assert alone == again
    both = [Decode("So", parents=[read], sampling=asked), Decode("So", parents=[other], sampling=asked)]
    assert llama.message(llama.decode(both)[0]).tokens == alone


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_row_that_is_bent_leaves_the_others_as_they_are(temperature: float) -> None:
    plain = Sampling(temperature=temperature, seed=3)
    heavy = Sampling(temperature=temperature, seed=3, logit_bias={5: 100.0}, repetition_penalty=1e-6)
    logits, none = torch.randn(3, 40, generator=torch.Generator().manual_seed(1)).to(PLACE), Banned([], 40, PLACE)
    alone = sample_tokens(logits[:1], [SamplingDraw(plain, 0)], none)
    together = sample_tokens(
        logits[[0, 0, 1]], [SamplingDraw(plain, 0), SamplingDraw(heavy, 0, bent=True), SamplingDraw(plain, 0)], none
    )
    assert together[0] == alone[0]
    assert together[1] == 5
    never = Sampling(temperature=temperature, seed=3, logit_bias={5: 100.0})
    assert sample_tokens(logits[:1], [SamplingDraw(never, 0, torch.tensor([3, 8]), bent=True)], none)[0] in (3, 8)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_row_that_is_limited_leaves_the_others_as_they_are(temperature: float) -> None:
    plain = Sampling(temperature=temperature, seed=3)
    banned = Banned([0, 1], 40, PLACE)
    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(1)).to(PLACE)
    alone = sample_tokens(logits[:1], [SamplingDraw(plain, 0)], banned)
    [first] = alone
    assert first is not None
    limits = {
        "barred": TokenLimits(None, (), (first,)),
        "among": TokenLimits(array("q", [0, 5, first]), (), (first,)),
        "freed": TokenLimits(array("q", [0, 1]), (1,), ()),
        "nothing": TokenLimits(array("q", [0, first]), (), (first,)),
    }
    draws = [SamplingDraw(plain, 0, limits=each) for each in limits.values()]
    said = sample_tokens(logits[[0] * 5], [*draws, SamplingDraw(plain, 0)], banned)
    assert said[-1] == first
    assert said[0] not in (None, first, 0, 1)
    assert said[1:4] == [5, 1, None]
    constrained = SamplingDraw(plain, 0, torch.tensor([first]), limits=limits["barred"])
    assert sample_tokens(logits[:1], [constrained], banned) == [first]


@pytest.mark.parametrize(
    "wrong",
    [
        {"frequency_penalty": 2.1},
        {"presence_penalty": -3.0},
        {"presence_penalty": float("nan")},
        {"repetition_penalty": 0.0},
        {"logit_bias": {1: 101.0}},
        {"logit_bias": {-1: 1.0}},
    ],
)
def test_a_penalty_out_of_its_bounds_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=next(iter(wrong))):
        Sampling(**wrong)


def test_a_bias_of_a_token_that_there_is_not_is_refused(llama: Engine) -> None:
    with pytest.raises(RequestError, match="logit_bias"):
        llama.decode("So", sampling=Sampling(logit_bias={1 << 30: 1.0}))


OPTIONS: list[dict[str, Any]] = [
    {},
    {"min_p": 0.001},
    {"min_p": 0.3},
    {"top_p": 0.8},
    {"top_p": 0.999999},
    {"top_k": 40},
    {"top_k": 900},
    {"top_k": 900, "top_p": 0.9, "min_p": 0.0001},
    {"temperature": 0},
    {"temperature": 7},
]


class Noted(TorchFunctionMode):
    """Records the widths that are sorted, the waits of the host for computed values, the bytes sent to a GPU without
    waiting, and the number of operations."""

    def __init__(self) -> None:
        self.sorted, self.waits, self.sent, self.operations = list[int](), 0, list[int](), 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if name == "sort":
            self.sorted.append(args[0].shape[-1])
        self.waits += name in ("tolist", "item", "nonzero", "__bool__", "__int__", "cpu")
        self.operations += not name.startswith("__get__")
        onto = [each for each in (*args[1:], kwargs.get("device")) if isinstance(each, torch.device)]
        from_host = name == "tensor" or (name == "to" and args[0].device.type == "cpu")
        if from_host and any(device.type == "cuda" for device in onto):
            self.waits += not kwargs.get("non_blocking")
            self.sent.append(args[0].nbytes if name == "to" else 0)
        return func(*args, **kwargs)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("spread", [0.2, 3.0], ids=["flat", "peaked"])
def test_a_draw_is_that_of_all_tokens_in_order(spread: float, options: dict[str, Any]) -> None:
    """Ties, which are common in 16-bit numbers, are ordered by id."""
    width, rows = 3000, 40
    dice = torch.Generator().manual_seed(int(10 * spread))
    logits = (spread * torch.randn(rows, width, generator=dice)).bfloat16().float().to(PLACE)
    sampling = Sampling(**{"seed": 5, **options})
    found = sample_tokens(logits, [SamplingDraw(sampling, nth) for nth in range(rows)], Banned([], width, PLACE))
    for nth, row in enumerate(logits):
        best = _chosen(row, sampling, nth, 0.0)
        same_k = options.get("top_k", 900) <= 256 or options.get("top_p", 1.0) < 1
        assert found[nth] == best or (same_k and row[best] == row[found[nth]])


WIDE = 128_000
GPU = torch.device("cuda", 0)


@pytest.fixture
def gpu() -> Iterator[torch.device]:
    """A GPU, simulated if there is none."""
    with nullcontext() if PLACE.type == "cuda" else Pretend():
        yield GPU


def leaning(rows: int, token: int, gpu: torch.device) -> Tensor:
    """Logits of rows that are almost certain to give this token."""
    logits = torch.randn(rows, WIDE, generator=torch.Generator().manual_seed(0)).to(gpu)
    logits[:, token] = 30.0
    return logits


def test_the_host_waits_once_and_little_is_sorted(gpu: torch.device) -> None:
    logits = leaning(8, 7, gpu)
    sampled = (Sampling(seed=2), Sampling(seed=2, top_p=0.9), Sampling(seed=2, min_p=0.1), Sampling(seed=2))
    draws = [SamplingDraw(each, 0) for each in sampled]
    draws += [SamplingDraw(Sampling(seed=2, temperature=0), 0)] * 4
    banned = Banned([], WIDE, gpu)
    with Noted() as noted:
        assert sample_tokens(logits, draws, banned) == [7] * 8
    assert noted.waits == 1
    assert len(noted.sent) == 1
    assert max(noted.sorted) <= 256


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_what_rows_may_say_goes_to_the_device_as_bits_and_at_once(temperature: float, gpu: torch.device) -> None:
    """Whatever the number of rows and ids, nothing is done row by row, and the host waits only for tokens."""
    plain, banned = Sampling(seed=2, temperature=temperature), Banned([], WIDE, gpu)
    wide, few = TokenMask.of(range(5, WIDE, 2), WIDE), TokenMask.of([7, 9], WIDE)
    limits = TokenLimits(array("q", range(8)), (), (3,))
    found = []
    for rows in (3, 48):
        draws = [SamplingDraw(plain, 0, wide), SamplingDraw(plain, 0, few), SamplingDraw(plain, 0, limits=limits)]
        logits = leaning(rows, 7, gpu)
        with Noted() as noted:
            assert sample_tokens(logits, draws * (rows // 3), banned) == [7] * rows
        assert noted.waits == 1
        assert sorted(noted.sent) == sorted([rows * 7 * 8, rows * WIDE // 8])
        found.append(noted.operations)
    assert found[0] == found[1] < 150


def test_a_bent_row_and_logprobs_wait_for_nothing_but_what_they_tell(gpu: torch.device) -> None:
    heavy = Sampling(seed=2, logit_bias={5: 1.0, 9: -2.0}, repetition_penalty=1.2, frequency_penalty=0.5)
    logits, banned = leaning(2, 7, gpu), Banned([], WIDE, gpu)
    draw = SamplingDraw(heavy, 2, bent=True, prompt=frozenset([5, 11]), said=(5, 12))
    with Noted() as noted:
        assert sample_tokens(logits, [draw, SamplingDraw(heavy, 0)], banned) == [7, 7]
        assert [each[0][0] for each in top_logprobs(logits, [(7, 2), (9, 1)])] == [7, 9]
    assert noted.waits == 2


@pytest.mark.parametrize("size", [31, 32, 33, 100])
def test_a_mask_is_the_set_of_its_ids(size: int) -> None:
    dice = Random(size)
    for count in (0, 1, 2, size // 2, size):
        ids, more = sorted(dice.sample(range(size), count)), dice.randrange(size)
        mask, other = TokenMask.of(ids, size), TokenMask.of([more], size)
        assert mask.tolist() == ids
        assert [id for id in range(-40, size + 40) if id in mask] == ids
        assert mask.only == (ids[0] if count == 1 else None)
        assert (mask | other).tolist() == mask.also(more).tolist() == sorted({*ids, more})
    assert TokenMask(np.full(-(-size // 32), -1, dtype=np.int32), size).tolist() == [*range(size)]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_masks_and_ids_rule_rows_alike_and_each_its_own(temperature: float) -> None:
    """A restricted row equals one whose other tokens are impossible, bit for bit, whatever rows are beside it."""
    size, dice = 300, Random(3)
    banned = Banned(range(20), size, PLACE)
    logits = torch.randn(6, size, generator=torch.Generator().manual_seed(4)).to(PLACE)
    sampling = [Sampling(seed=seed, temperature=temperature) for seed in range(6)]
    allowed = [None, [4], [4, 250], None, [*range(0, size, 3)], sorted(dice.sample(range(size), 40))]
    draws = [SamplingDraw(each, 0, ids) for each, ids in zip(sampling, allowed, strict=True)]
    masks = [SamplingDraw(d.sampling, 0, None if d.allowed is None else TokenMask.of(d.allowed, size)) for d in draws]
    expected = list[int | None]()
    for row, (draw, ids) in enumerate(zip(draws, allowed, strict=True)):
        alone = torch.full_like(logits[:1], float("-inf"))
        kept = torch.arange(20, size).to(PLACE) if ids is None else torch.tensor(ids).to(PLACE)
        alone[0, kept] = logits[row, kept]
        expected += sample_tokens(alone, [SamplingDraw(draw.sampling, 0)], Banned([], size, PLACE))
    assert sample_tokens(logits, draws, banned) == sample_tokens(logits, masks, banned) == expected

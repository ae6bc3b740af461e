"""Tests the real engine and the shipped fake against the contract of `EnginePort`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from agentcho import Decode, Prefill, Sampling, errors
from agentcho.errors import CallFailed, EngineFailed, RequestError, UnknownEncoding
from agentcho.protocol.call import ContextEntry, EncodingId

from .contract import LONG, POISON, Bench, Held, Wrong, fake, graph, real, wrongs

NOTHING = Held(0, 0, 0)


@pytest.fixture(
    scope="module",
    params=["fake", "fake without bos", "real", pytest.param("real without bos", marks=pytest.mark.slow)],
)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Both engines, with and without a BOS; the real one without BOS frames names."""
    bos = "without" not in request.param
    if request.param.startswith("fake"):
        return Bench(fake(bos))
    return Bench(real(tmp_path_factory.mktemp("tiny"), "llama3" if bos else "named"))


@pytest.fixture
def bench(engine: Bench) -> Iterator[Bench]:
    """The engine; asserts that it is empty after the test, once everything is released."""
    first = engine.make(Prefill("a mark"))[0]
    yield engine
    last = engine.make(Prefill("a mark at the end"))[0]
    assert engine.engine.idle
    for id in range(first, last + 1):
        try:
            engine.engine.release([id])
        except UnknownEncoding:
            continue
    assert engine.held == NOTHING


def test_every_call_has_a_new_id_in_order(bench: Bench) -> None:
    first = bench.engine.submit([Prefill("twin"), Prefill("twin"), Decode(sampling=LONG)])
    second = bench.engine.submit([Prefill("twin")])
    assert sorted({*first, *second}) == [*first, *second]
    assert set(bench.run().finished) == {*first, *second}


def test_an_empty_list_is_refused_and_an_empty_step_does_nothing(bench: Bench) -> None:
    with pytest.raises(RequestError, match="empty"):
        bench.engine.submit([])
    assert bench.engine.step()[:4] == ((), (), (), 0)


def test_what_is_finished_is_held_until_it_is_released(bench: Bench) -> None:
    before = bench.held
    a, b = bench.make(Prefill("one"), Decode(sampling=LONG))
    assert bench.held.pages > before.pages
    assert bench.engine.message(a).text == "one"
    bench.engine.release([a, b])
    assert bench.held == before
    for use in (bench.engine.message, bench.engine.receipt, lambda id: bench.engine.release([id])):
        with pytest.raises(UnknownEncoding, match="released"):
            use(a)
    with pytest.raises(UnknownEncoding):
        bench.engine.submit([Prefill("late", parents=[b])])


def test_equal_prefills_are_stored_and_fed_once(bench: Bench) -> None:
    before = bench.held.pages
    one, other = Prefill("the same for all"), Prefill("the same for all")
    ids = bench.engine.submit([one, other, Prefill("x", parents=[one]), Prefill("x", parents=[other])])
    ran = bench.run()
    pages = bench.held.pages
    assert ran.encoded == len(bench.tokens(ids[0])) + len(bench.tokens(ids[2]))
    bench.engine.release([ids[0], ids[2]])
    assert bench.held.pages == pages > before
    elsewhere = bench.make(Prefill("the same for all", new_offset=40))
    assert bench.held.pages > pages
    bench.engine.release([*elsewhere, ids[1], ids[3]])
    assert bench.held.pages == before


def test_what_is_fed_in_all_steps_are_the_tokens_of_all_messages(bench: Bench) -> None:
    ids = bench.engine.submit(graph())
    ran = bench.run()
    assert ran.encoded == sum(len(bench.tokens(id)) for id in ids)


# -- parents, positions, receipts --------------------------------------------------------------------------


def test_a_graph_of_known_text_is_encoded_in_one_step(bench: Bench) -> None:
    a = Prefill("a")
    b = Prefill("b", parents=[a])
    ids = bench.engine.submit([a, b, c := Prefill("c", parents=[a, b]), Prefill("d", parents=[c, b])])
    late = bench.engine.submit([Prefill("e", parents=[ids[3]])])
    assert bench.engine.step().finished == (*ids, *late)
    assert [e.id for e in bench.engine.receipt(ids[3]).context] == [ids[2], ids[1]]
    assert [e.id for e in bench.engine.receipt(late[0]).context] == [ids[3]]


def test_a_decode_begins_in_the_step_that_encodes_its_parents(bench: Bench) -> None:
    bench.engine.submit(graph())
    first = bench.engine.step()
    assert len(first.finished) == 2
    assert {spoken.nth for spoken in first.spoken} == {0}
    assert len(first.spoken) == bench.engine.step().encoded == 2
    bench.run()


def test_a_decode_under_way_is_no_parent_and_has_no_words(bench: Bench) -> None:
    [running] = bench.engine.submit([Decode(sampling=LONG)])
    for _ in range(2):
        for use in (bench.engine.message, bench.engine.receipt):
            with pytest.raises(RequestError, match="finished"):
                use(running)
        with pytest.raises(RequestError, match="finished"):
            bench.engine.submit([Prefill("early", parents=[running])])
        bench.engine.step()
    bench.run()
    bench.make(Prefill("now", parents=[running]))


Places = tuple[list[int | None] | None, int | None]
PLACES: dict[str, Places] = {
    "contiguous": (None, None),
    "gap": ([None, 40, None], 90),
    "overlap": ([5, 6, 7], 3),
    "reordered": ([60, None, 1], None),
    "new alone": (None, 77),
    "first alone": ([9, None, None], None),
}


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("kind", [Prefill, Decode])
def test_a_receipt_says_where_everything_stood(bench: Bench, places: str, kind: type[Prefill | Decode]) -> None:
    offsets, new = PLACES[places]
    a, b = bench.make(Prefill("a message"), Prefill("another one, longer"))
    ids = [b, a, b]
    call = kind("x", parents=ids, offsets=offsets, new_offset=new)
    [id] = bench.make(replace(call, sampling=LONG) if isinstance(call, Decode) else call)
    receipt = bench.engine.receipt(id)
    end, expected = int(receipt.bos), []
    for parent, offset in zip(ids, offsets or [None] * 3, strict=True):
        length = len(bench.tokens(parent))
        expected.append(ContextEntry(parent, end if offset is None else offset, length))
        end = expected[-1].offset + length
    assert receipt.context == tuple(expected)
    assert receipt.start == (end if new is None else new)


def test_all_contexts_begin_with_the_bos_or_none_does(bench: Bench) -> None:
    ids = bench.make(*graph())
    receipts = [bench.engine.receipt(id) for id in ids]
    assert len({receipt.bos for receipt in receipts}) == 1
    assert receipts[0].start == int(receipts[0].bos)


# -- generated text ----------------------------------------------------------------------------------------


def test_tokens_are_framing_header_and_text(bench: Bench) -> None:
    framing = bench.engine.framing
    said, told = bench.make(Decode("To Bob: ", sampling=LONG, name="bob"), Prefill("the text", role="system"))
    words, prefilled = bench.engine.message(said), bench.engine.message(told)
    opening, closing = framing.opening("assistant", "bob"), framing.closing("assistant")
    header = bench.content("To Bob: ")
    assert words.sampled is not None
    start, stop = words.sampled
    assert words.tokens == (*opening, *header, *words.tokens[start:stop], *closing)
    assert words.content == (len(opening), stop)
    assert start == len(opening) + len(header)
    assert words.header == "To Bob: "
    assert framing.content.decode(words.tokens[start:stop]) == words.text
    assert prefilled.tokens == (
        *framing.opening("system", None),
        *bench.content("the text"),
        *framing.closing("system"),
    )
    assert (prefilled.header, prefilled.sampled, prefilled.stopped) == ("", None, None)


def test_ids_of_content_win_over_text(bench: Bench) -> None:
    [id] = bench.make(Prefill("not this", tokens=bench.content("but this")))
    assert bench.engine.message(id).text == "but this"


def test_max_tokens_counts_what_is_sampled_and_the_message_is_closed(bench: Bench) -> None:
    for most in (1, 4):
        [id] = bench.engine.submit([Decode(sampling=Sampling(max_tokens=most, seed=3))])
        assert bench.run().steps == most + 1
        words = bench.engine.message(id)
        assert words.sampled is not None
        assert words.sampled[1] - words.sampled[0] == most
        assert words.stopped == "max_tokens"
        assert words.tokens[words.content[1] :] == bench.engine.framing.closing("assistant")


def test_what_is_streamed_is_what_was_said(bench: Bench) -> None:
    stops = ((), ("e ", "on an"), ("go", "q"))
    calls = [Decode(sampling=Sampling(max_tokens=9, seed=seed, stop=stops[seed % 3])) for seed in range(6)]
    ids = bench.engine.submit(calls)
    ran = bench.run()
    for id in ids:
        mine = [spoken for spoken in ran.spoken if spoken.id == id]
        words = bench.engine.message(id)
        start, stop = words.sampled or (0, 0)
        assert "".join(spoken.text for spoken in mine) == words.text
        assert dict.fromkeys((s.nth, s.token) for s in mine) == dict.fromkeys(enumerate(words.tokens[start:stop]))


def test_a_stop_string_ends_the_text_and_stays_in_the_tokens(bench: Bench) -> None:
    free = Sampling(max_tokens=9, seed=5)
    whole = bench.engine.message(bench.make(Decode(sampling=free))[0])
    stop = whole.text[3:5]
    [id] = bench.make(Decode(sampling=free.model_copy(update={"stop": ("never said", stop)})))
    words = bench.engine.message(id)
    assert words.stopped == "stop_string"
    assert words.text == whole.text[: whole.text.find(stop)]
    start, end = words.sampled or (0, 0)
    said = bench.engine.framing.content.decode(words.tokens[start:end])
    assert stop in said
    assert whole.text.startswith(said)


def test_a_stop_token_ends_the_text_and_stays_in_the_tokens(bench: Bench) -> None:
    free = Sampling(max_tokens=9, seed=5)
    whole = bench.engine.message(bench.make(Decode(sampling=free))[0])
    ids = whole.tokens[slice(*(whole.sampled or (0, 0)))]
    last = ids[1]
    for kept in (False, True):
        more = {"stop_token_ids": (last,), "include_stop_str_in_output": kept}
        words = bench.engine.message(bench.make(Decode(sampling=free.model_copy(update=more)))[0])
        upto = ids[: ids.index(last) + 1]
        assert words.tokens[slice(*(words.sampled or (0, 0)))] == upto
        assert words.text == bench.engine.framing.content.decode(upto if kept else upto[:-1])
        assert (words.stopped, words.stop_reason) == ("stop_token", last)


@pytest.mark.parametrize(("more", "least"), [({"min_tokens": 30}, 30), ({"ignore_eos": True}, 40)])
def test_a_text_goes_on_as_long_as_it_must(bench: Bench, more: dict[str, Any], least: int) -> None:
    for id in bench.make(*(Decode(sampling=Sampling(max_tokens=40, seed=seed, **more)) for seed in range(4))):
        words = bench.engine.message(id)
        start, stop = words.sampled or (0, 0)
        assert stop - start >= least
        assert words.tokens[words.content[1] :] == bench.engine.framing.closing("assistant")


def test_forced_ids_are_said_one_a_step_whatever_the_sampling(bench: Bench) -> None:
    forced = bench.content("exactly this and no more")
    [id] = bench.engine.submit([Decode("so: ", forced=forced, sampling=Sampling(max_tokens=1, choices=("no",)))])
    ran = bench.run()
    assert ran.steps == len(forced) + 2
    assert tuple(spoken.token for spoken in ran.spoken) == forced
    words = bench.engine.message(id)
    assert (words.text, words.stopped) == ("exactly this and no more", "forced")
    assert words.sampled is not None
    assert words.tokens[slice(*words.sampled)] == forced
    [empty] = bench.make(Decode("all in the header", forced=()))
    assert bench.engine.message(empty).text == ""


@pytest.mark.slow
def test_one_of_the_choices_is_said_and_closed_at_once(bench: Bench) -> None:
    choices = ("left", "right about here", "straight on")
    said = set[str]()
    for seed in range(12):
        [id] = bench.engine.submit([Decode(sampling=Sampling(choices=choices, seed=seed))])
        ran = bench.run()
        words = bench.engine.message(id)
        assert words.stopped == "stop"
        assert ran.steps == len(bench.content(words.text)) + 1
        said.add(words.text)
    assert said <= set(choices)
    assert len(said) > 1


def test_a_choice_that_begins_another_can_be_said_too(bench: Bench) -> None:
    choices = ("yes", "yes indeed")
    ids = bench.make(*(Decode(sampling=Sampling(choices=choices, seed=seed, temperature=3)) for seed in range(60)))
    assert {bench.engine.message(id).text for id in ids} == set(choices)


class Leaf(BaseModel):
    """A part."""

    size: int
    kind: str


class Tree(BaseModel):
    """Some of all that pydantic writes into a schema."""

    name: str
    sure: bool
    leaf: Leaf
    more: list[Leaf]
    next: Tree | None


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_an_answer_fits_its_schema_within_its_tokens(bench: Bench, seed: int) -> None:
    schema = Tree.model_json_schema()
    [id] = bench.make(Decode(sampling=Sampling(json_schema=schema, seed=seed, max_tokens=120)))
    words = bench.engine.message(id)
    Tree.model_validate_json(words.text)
    json.loads(words.text)
    assert words.sampled is not None
    assert words.sampled[1] - words.sampled[0] <= 120


def test_coins_are_the_calls_own_whoever_shares_the_step(bench: Bench) -> None:
    sampling = Sampling(max_tokens=6, seed=11)
    alone = bench.tokens(bench.make(Decode("a", sampling=sampling))[0])
    bench.engine.submit([Decode("b", sampling=Sampling(max_tokens=9, seed=4))])
    bench.engine.step()
    together = bench.make(Decode("c", sampling=LONG), Decode("a", sampling=sampling), Prefill("d"))
    assert bench.tokens(together[1]) == alone
    other = bench.make(Decode("a", sampling=sampling.model_copy(update={"seed": 12})))
    assert bench.tokens(other[0]) != alone


def test_who_comes_later_joins_the_next_step(bench: Bench) -> None:
    [slow] = bench.engine.submit([Decode(sampling=Sampling(max_tokens=8, seed=3))])
    bench.run(3)
    [quick] = bench.engine.submit([Decode(sampling=Sampling(max_tokens=2, seed=3))])
    ran = bench.run()
    assert ran.finished == [quick, slow]
    assert ran.steps == 8 + 1 - 3


# -- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", wrongs())
def test_what_is_wrong_is_refused_and_changes_nothing(bench: Bench, wrong: str) -> None:
    error, call = wrongs()[wrong]
    ids = bench.make(Prefill("a prefill"), Decode(sampling=LONG))
    [running] = bench.engine.submit([Decode(sampling=LONG)])
    bench.engine.step()
    before = bench.held
    calls = [Prefill("fine", parents=ids), _made(call, bench, ids), Prefill("later")]
    with pytest.raises(RequestError) as caught:
        bench.engine.submit(calls)
    name, _, field = error.partition(".")
    assert isinstance(caught.value, getattr(errors, name))
    assert caught.value.field == (field or None)
    assert bench.held == before
    assert bench.run().finished == [running]


def _made(call: Wrong, bench: Bench, ids: tuple[EncodingId, ...]) -> Prefill | Decode:
    made: Prefill | Decode = call(bench, ids)
    return made


@pytest.mark.parametrize("steps", range(8))
def test_a_cancellation_at_any_step_leaves_nothing(bench: Bench, steps: int) -> None:
    before = bench.held
    ids = bench.engine.submit(graph())
    done = bench.run(steps).finished
    bench.engine.cancel([*ids, *ids, 10**9])
    assert bench.engine.idle
    bench.engine.release(done)
    assert bench.held == before
    for id in set(ids) - set(done):
        with pytest.raises(UnknownEncoding):
            bench.engine.message(id)


def test_what_is_finished_is_not_cancelled(bench: Bench) -> None:
    [id] = bench.make(Prefill("stays"))
    bench.engine.cancel([id])
    assert bench.engine.message(id).text == "stays"


def test_a_parent_can_be_released_while_its_children_wait_or_run(bench: Bench) -> None:
    before = bench.held
    [one] = bench.make(Prefill("soon gone"))
    child = Decode(parents=[one], sampling=LONG)
    expected = bench.tokens(bench.make(child)[0])
    [waits] = bench.engine.submit([child])
    [runs] = bench.make(Prefill("soon gone too"))
    [other] = bench.engine.submit([Decode(parents=[runs], sampling=LONG)])
    bench.engine.release([one])
    bench.engine.step()
    bench.engine.release([runs])
    bench.run()
    assert bench.tokens(waits) == expected
    receipt = bench.engine.receipt(other)
    assert [entry.id for entry in receipt.context] == [runs]
    bench.engine.release([waits, other, other - 3])
    assert bench.held == before


def test_who_waits_for_what_is_cancelled_fails_and_is_never_stuck(bench: Bench) -> None:
    before = bench.held
    [parent] = bench.engine.submit([Prefill("to be cancelled")])
    child, grandchild = bench.engine.submit([c := Prefill("c", parents=[parent]), Decode(parents=[c], sampling=LONG)])
    [other] = bench.engine.submit([Prefill("other")])
    bench.engine.cancel([parent])
    ran = bench.run()
    assert {failure.id for failure in ran.failed} == {child, grandchild}
    assert all(isinstance(failure.error, RequestError) for failure in ran.failed)
    assert ran.finished == [other]
    bench.engine.release([other])
    assert bench.held == before


def test_the_twin_of_what_is_cancelled_lives_on(bench: Bench) -> None:
    one, two = bench.engine.submit([Prefill("twins we are"), Prefill("twins we are")])
    bench.engine.cancel([one])
    assert bench.run().encoded == len(bench.tokens(two))


def test_a_call_that_cannot_choose_fails_alone(bench: Bench) -> None:
    before = bench.held
    good = Decode("fine", sampling=LONG)
    expected = bench.tokens(bench.make(good)[0])
    fails, lives = bench.engine.submit([Decode(POISON, sampling=LONG), good])
    ran = bench.run()
    assert [(failure.id, type(failure.error)) for failure in ran.failed] == [(fails, CallFailed)]
    assert bench.tokens(lives) == expected
    with pytest.raises(UnknownEncoding):
        bench.engine.message(fails)
    bench.engine.release([lives, lives - 2])
    assert bench.held == before


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_step_that_fails_drops_its_calls_and_nothing_else(bench: Bench, steps: int) -> None:
    [kept] = bench.make(Prefill("kept"))
    before = bench.held
    ids = bench.engine.submit([*graph(), Decode(parents=[kept], sampling=LONG)])
    done = bench.run(steps).finished
    with bench.broken(), pytest.raises(EngineFailed, match="ZeroDivisionError"):
        bench.engine.step()
    assert bench.engine.idle
    assert bench.engine.message(kept).text == "kept"
    for id in set(ids) - set(done):
        with pytest.raises(UnknownEncoding):
            bench.engine.receipt(id)
    bench.engine.release(done)
    assert bench.held == before
    bench.make(*graph(), Decode(parents=[kept], sampling=LONG))


def test_the_fingerprint_names_model_tokenizer_and_place(bench: Bench) -> None:
    names: Callable[[], dict[str, str]] = lambda: bench.engine.fingerprint  # noqa: E731
    assert {"model", "tokenizer", "dtype", "device"} <= names().keys()
    assert names() == names()

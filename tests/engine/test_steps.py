"""The engine step by step: streams, cancellation, failures of one row and of a whole forward, a full store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.engine.queue import TokenBudget
from agentcho.errors import CallFailed, EngineFailed, RequestError, StoreFull, UnknownEncoding
from agentcho.runner.model.model import Model

from ..engines import Engines
from .broken import dead
from .templates import tokenizer

POISON = "§"


@pytest.fixture(autouse=True)
def tidy(llama: Engine) -> Iterator[None]:
    """The llama must be as empty after the test as before it, once the test's ids are released."""
    first = llama.prefill("a mark")
    before = llama.fullness.used
    yield
    last = llama.prefill("another mark")
    llama.release(id for id in range(first + 1, last + 1) if _held(llama, id))
    assert (llama.idle, llama.rows, llama.fullness.reserved) == (True, 0, 0)
    assert llama.fullness.used == before
    llama.release([first])


def _held(engine: Engine, id: int) -> bool:
    try:
        engine.message(id)
    except UnknownEncoding:
        return False
    return True


def drain(engine: Engine) -> Iterator[tuple[int, str]]:
    """Step until idle; every piece of decoded text, with its id."""
    while not engine.idle:
        for said in engine.step().spoken:
            yield said.id, said.text


def test_an_idle_step_does_nothing(llama: Engine) -> None:
    result = llama.step()
    assert (result.spoken, result.finished, result.failed, result.encoded) == ((), (), (), 0)


def test_what_is_streamed_is_what_was_said(llama: Engine) -> None:
    stops = ((), ("e", "th"), ("\n\n", "abc"))
    calls = [Decode("é", sampling=Sampling(max_tokens=50, seed=s, stop=stops[s % 3])) for s in range(9)]
    ids = llama.submit(calls)
    said: dict[int, str] = dict.fromkeys(ids, "")
    for id, text in drain(llama):
        said[id] += text
    assert said == {id: llama.message(id).text for id in ids}


@pytest.mark.parametrize(
    ("said", "cut", "stops", "shown"),
    [
        ("so it is that we part", None, ("that we go", "we part"), "so it is that "),
        ("all of it and 🎲", -1, (), "all of it and \ufffd"),
    ],
    ids=["stop string", "half a character"],
)
def test_nothing_is_streamed_that_the_message_does_not_hold_in_the_end(
    llama: Engine, monkeypatch: pytest.MonkeyPatch, said: str, cut: int | None, stops: tuple[str, ...], shown: str
) -> None:
    """Neither the beginning of what becomes a stop string, nor an incomplete character other than as the final text
    shows it."""
    tokens = llama.framing.content.encode(said)[:cut]
    script = iter(tokens)
    monkeypatch.setattr("agentcho.runner.runner.sample_tokens", lambda *_: [next(script)])
    [id] = llama.submit([Decode(sampling=Sampling(max_tokens=len(tokens), stop=stops))])
    pieces = [text for _, text in drain(llama)]
    assert len(pieces) > 3
    assert "".join(pieces) == llama.message(id).text == shown


def test_who_comes_later_joins_the_next_step(llama: Engine) -> None:
    [slow] = llama.submit([Decode("slow", sampling=Sampling(max_tokens=20, seed=1))])
    llama.step()
    [parent] = llama.submit([Prefill("later")])
    [child] = llama.submit([Decode("child", parents=[parent], sampling=Sampling(choices=("ok",)))])
    finished = list(llama.step().finished)
    assert finished == [parent]
    assert llama.rows == 2
    for _ in range(3):
        finished += llama.step().finished
    assert child in finished
    assert slow not in finished
    list(drain(llama))
    alone = llama.decode("slow", sampling=Sampling(max_tokens=20, seed=1))
    assert llama.message(slow).tokens == llama.message(alone).tokens


def test_an_unfinished_decode_is_no_parent(llama: Engine) -> None:
    [running] = llama.submit([Decode(sampling=Sampling(max_tokens=9))])
    for step in (lambda: None, llama.step):
        step()
        with pytest.raises(RequestError, match="finished"):
            llama.submit([Prefill("too early", parents=[running])])
        with pytest.raises(RequestError):
            llama.message(running)
    list(drain(llama))
    llama.prefill("now", parents=[running])


def test_a_prefill_that_still_waits_is_scored_right_or_not_at_all(llama: Engine) -> None:
    [waiting] = llama.submit([Prefill("not encoded yet")])
    with pytest.raises(RequestError, match="finished"):
        llama.score("so", parents=[waiting])
    list(drain(llama))
    assert llama.score("so", parents=[waiting]).isfinite().all()


def test_who_waits_is_not_held_up_by_who_calls_and_waits(llama: Engine) -> None:
    running, waiting = llama.submit([Decode("a", sampling=Sampling(max_tokens=4, seed=2)), Prefill("b")])
    llama.prefill("c", parents=[llama.prefill("d")])
    list(drain(llama))
    alone = llama.decode("a", sampling=Sampling(max_tokens=4, seed=2))
    assert llama.message(running).tokens == llama.message(alone).tokens
    assert llama.message(waiting).text == "b"


def test_cancel_frees_at_once_and_again_is_nothing(llama: Engine) -> None:
    [gone, stays] = llama.submit(
        [Decode("a", sampling=Sampling(max_tokens=30)), Decode("b", sampling=Sampling(max_tokens=4))]
    )
    [waiting] = llama.submit([Prefill("never")])
    llama.cancel([waiting])
    llama.step()
    assert llama.rows == 2
    llama.cancel([gone, waiting, 10**9])
    llama.cancel([gone])
    assert llama.rows == 1
    list(drain(llama))
    assert llama.message(stays).stopped == "max_tokens"
    with pytest.raises(RequestError):
        llama.message(gone)


def test_a_call_whose_parent_is_cancelled_fails_alone(llama: Engine) -> None:
    [parent] = llama.submit([Prefill("to be cancelled")])
    child, grandchild = llama.submit([one := Prefill("child", parents=[parent]), Prefill("grandchild", parents=[one])])
    [other] = llama.submit([Prefill("other")])
    llama.cancel([parent])
    result = llama.step()
    assert {failure.id for failure in result.failed} == {child, grandchild}
    assert set(result.finished) == {other}


def test_an_equal_call_lives_on_when_its_twin_is_cancelled(llama: Engine) -> None:
    one, two = llama.submit([Prefill("twins are we"), Prefill("twins are we")])
    llama.cancel([one])
    list(drain(llama))
    fresh = llama.score("so", parents=[llama.prefill("twins are we", role="user")])
    assert torch.equal(llama.score("so", parents=[two]), fresh)
    assert fresh.isfinite().all()


def test_a_device_that_fails_drops_all_calls_and_nothing_else(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = llama.prefill("kept")
    before, used = llama.score("so", parents=[kept]), llama.fullness.used
    [running] = llama.submit([Decode("running", parents=[kept])])
    llama.step()
    llama.submit([Prefill("new"), Prefill("newer", parents=[kept])])
    with monkeypatch.context() as patch:
        patch.setattr(Model, "forward", lambda *_: 1 / 0)
        dead(patch)
        with pytest.raises(EngineFailed, match="ZeroDivisionError"):
            llama.step()
    assert (llama.idle, llama.rows, llama.fullness.used, llama.fullness.reserved) == (True, 0, used, 0)
    assert torch.equal(before, llama.score("so", parents=[kept]))
    assert llama.score("so", parents=[llama.prefill("new")]).isfinite().all()
    with pytest.raises(RequestError):
        llama.message(running)


@pytest.fixture
def poisoned(engines: Engines) -> Engine:
    """A llama whose outputs are NaN for one character and for everything that reads it."""
    engine: Engine = engines.own()
    [*_, last] = tokenizer("llama3")(POISON, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        engine._model.network.get_parameter("model.embed_tokens.weight")[last] = float("nan")
    return engine


def test_a_row_that_cannot_choose_fails_alone(poisoned: Engine) -> None:
    bad, good = poisoned.prefill([Prefill(f"a {POISON} here"), Prefill("fine")])
    sampling = Sampling(max_tokens=12, seed=5)
    alone = poisoned.message(poisoned.decode(parents=[good], sampling=sampling)).tokens
    fails, lives = poisoned.submit(
        [Decode(parents=[bad], sampling=sampling), Decode(parents=[good], sampling=sampling)]
    )
    failed = [failure for _ in iter(lambda: poisoned.idle, True) for failure in poisoned.step().failed]
    assert [failure.id for failure in failed] == [fails]
    assert isinstance(failed[0].error, CallFailed)
    assert poisoned.message(lives).tokens == alone
    with pytest.raises(CallFailed):
        poisoned.decode([Decode(parents=[bad]), Decode(parents=[good])])
    assert poisoned.idle
    assert poisoned.rows == 0


def test_the_place_of_a_poisoned_row_poisons_nobody_after_it(poisoned: Engine) -> None:
    long, bad, short = poisoned.prefill([Prefill("long " * 20), Prefill(POISON * 30), Prefill("short")])
    sampling = Sampling(max_tokens=12, seed=5)
    alone = poisoned.message(poisoned.decode(parents=[short], sampling=sampling)).tokens
    poisoned.submit([Decode(parents=[long], sampling=Sampling(max_tokens=30, temperature=0)), Decode(parents=[bad])])
    assert poisoned.step().failed
    [after] = poisoned.submit([Decode(parents=[short], sampling=sampling)])
    failed = [failure for _ in iter(lambda: poisoned.idle, True) for failure in poisoned.step().failed]
    assert not failed
    assert poisoned.message(after).tokens == alone


def test_pages_of_a_poisoned_message_poison_nobody_after_it(poisoned: Engine) -> None:
    fine = poisoned.prefill("fine")
    before = poisoned.score("so", parents=[fine])
    for _ in range(3):
        bad = poisoned.prefill(f"{POISON} " * 20)
        assert poisoned.score("so", parents=[bad]).isnan().any()
        poisoned.release([bad])
    again = poisoned.prefill("quite another, and longer text")
    assert poisoned.score("so", parents=[again]).isfinite().all()
    assert torch.equal(before, poisoned.score("so", parents=[fine]))


def test_a_full_store_refuses_and_goes_on(engines: Engines) -> None:
    engine = engines(store_tokens=128)
    first = engine.prefill("x" * 30)
    used = engine.fullness.used
    for call in (Prefill("y" * 200), Decode(sampling=Sampling(max_tokens=200))):
        with pytest.raises(StoreFull, match="store_tokens"):
            engine.submit([Prefill("fits"), call])
        assert (engine.fullness.used, engine.fullness.reserved, engine.idle) == (used, 0, True)
    engine.release([first])
    engine.release([engine.prefill("y" * 90)])
    assert engine.fullness.used < used


def test_equal_messages_share_their_pages(llama: Engine) -> None:
    one = llama.prefill("shared by all " * 4)
    used = llama.fullness.used
    two, other = llama.prefill("shared by all " * 4), llama.prefill("shared by all " * 4, new_offset=90)
    assert llama.fullness.used > used
    assert two != one
    llama.release([other])
    assert llama.fullness.used == used
    llama.release([one])
    assert llama.fullness.used == used
    assert llama.score("so", parents=[two]).isfinite().all()


def test_forced_tokens_are_fed_as_sampling_would(llama: Engine) -> None:
    text = tuple(tokenizer("llama3")("exactly this", add_special_tokens=False)["input_ids"])
    id = llama.decode([Decode("To Bob: ", forced=text, logits=True)])[0]
    assert (llama.message(id).text, llama.message(id).stopped) == ("exactly this", "forced")
    rows = llama.score("exactly this", header="To Bob: ")
    assert torch.allclose(llama.logits(id).log_softmax(-1), rows, atol=1e-5)
    assert len(rows) == len(text) + 1
    end = llama.tokenizer.convert_tokens_to_ids("<|eot_id|>")
    with pytest.raises(RequestError, match="special"):
        llama.decode([Decode(forced=(*text, end, *text))])


def test_what_finished_in_a_step_that_failed_later_is_given_up(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    [row] = llama.submit([Decode("so: ", forced=())])
    llama.step()  # the next step ends it
    [prefill] = llama.submit([Prefill("done in the same step")])
    monkeypatch.setattr(llama._scheduler, "_budget", TokenBudget(4096, 4096))
    real, calls = llama._tiers.allocate, list[object]()

    def second_fails(entry: Any) -> None:
        calls.append(entry)
        if len(calls) == 2:
            raise RuntimeError("no memory is left")
        real(entry)

    monkeypatch.setattr(llama._tiers, "allocate", second_fails)
    dead(monkeypatch)
    with pytest.raises(EngineFailed, match="no memory"):
        llama.step()
    assert len(calls) == 2
    assert not llama.finished(prefill)
    assert not llama.finished(row)
    llama.check_integrity()

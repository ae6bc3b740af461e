"""Shadows, on both engines: the same tokens over another context, finished with their leader, and cancelled with it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.engine.queue import TokenBudget
from agentcho.engine.sequence import SHORT, STRIDE
from agentcho.errors import CallFailed, EngineFailed, RequestError
from agentcho.protocol.call import EncodingId, Shadow
from agentcho.runner.sampling.sampler import sample_tokens
from agentcho.testing import FakeEngine
from tests.engine.broken import dead

from .contract import Bench, secret, speech

ENDINGS: dict[str, dict[str, Any]] = {
    "max_tokens": {"sampling": Sampling(max_tokens=3, temperature=0)},
    "one token": {"sampling": Sampling(max_tokens=1, temperature=0)},
    "sampled": {"sampling": Sampling(max_tokens=12, temperature=1.5, seed=5)},
    "choices": {"sampling": Sampling(max_tokens=20, seed=1, choices=("left", "right", "straight on"))},
    "forced": {"forced": "we all go home"},
    "nothing": {"forced": ""},
    "at once": {"forced": "we all go home", "stride": 16},
    "in strides": {"forced": "we all go home", "stride": 2},
}


def ending(bench: Bench, how: str) -> dict[str, Any]:
    """A decode's options by name; forced texts as ids."""
    options = dict(ENDINGS[how])
    if "forced" in options:
        options["forced"] = bench.words(options["forced"])
    return options


def same(bench: Bench, leader: EncodingId, shadow: EncodingId) -> None:
    """Both have the same words; on the real engine, also the keys that a fresh encoding of these words would have."""
    assert bench.engine.message(leader) == bench.engine.message(shadow)
    if isinstance(bench.engine, FakeEngine):
        return
    words, receipt = bench.engine.message(shadow), bench.engine.receipt(shadow)
    content = words.tokens[slice(*words.content)]
    places: dict[str, Any] = {"offsets": [entry.offset for entry in receipt.context], "new_offset": receipt.start}
    parents = [entry.id for entry in receipt.context]
    [again] = bench.run(Prefill("", parents, role="assistant", tokens=content, **places))
    assert bench.engine.message(again).tokens == words.tokens
    pairs = zip(bench.engine.cached(shadow), bench.engine.cached(again), strict=True)
    assert all(torch.allclose(a, b, atol=1e-4) for ours, fresh in pairs for a, b in zip(ours, fresh, strict=True))


@pytest.mark.parametrize("how", ENDINGS)
def test_a_shadow_says_the_same_over_its_own_context_and_is_done_in_the_same_step(bench: Bench, how: str) -> None:
    hidden, public = bench.run(secret(), Prefill("Who goes home?"))
    said = Decode("So: ", (hidden, public), name=None, **ending(bench, how))
    leader, shadow = bench.run(said, Shadow(said, (public,), offsets=(5,), new_offset=90))
    assert bench.ended(leader) == bench.ended(shadow)
    length = len(bench.engine.message(public).tokens)
    assert bench.engine.receipt(shadow)[:3] == (((public, 5, length),), 90, True)
    assert [entry.id for entry in bench.engine.receipt(leader).context] == [hidden, public]
    assert {spoken.id for result in bench.steps for spoken in result.spoken} <= {leader}
    same(bench, leader, shadow)


def test_a_shadow_never_changes_what_its_leader_says_nor_delays_it(bench: Bench) -> None:
    hidden, public = bench.run(secret(), Prefill("Who goes home?"))
    options: dict[str, Any] = {"sampling": Sampling(max_tokens=8, seed=11)}
    [alone] = bench.run(Decode("So: ", (hidden, public), **options))
    steps = len(bench.steps)
    said = Decode("So: ", (hidden, public), **options)
    leader, shadow = bench.run(said, Shadow(said, (public,)))
    assert bench.engine.message(leader) == bench.engine.message(alone) == bench.engine.message(shadow)
    assert bench.ended(leader) - steps == bench.ended(alone) - 1


def test_stop_strings_and_stop_tokens_end_both_alike(bench: Bench) -> None:
    """The tokens of a stop string are kept and the text is cut; a sampled end becomes the closing, once."""
    [public] = bench.run(Prefill("Talk."))
    for stop in (("e", "o", "a"), ()):
        said = Decode("So: ", (public,), sampling=Sampling(max_tokens=30, temperature=1.0, seed=2, stop=stop))
        leader, shadow = bench.run(said, Shadow(said))
        same(bench, leader, shadow)
        assert bench.engine.message(shadow).stopped == bench.engine.message(leader).stopped


@pytest.mark.parametrize("ending", ["stop", "early stop"])
def test_an_end_that_the_model_chose_is_fed_once(small: Engine, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    """The stop token is the first of the closing: neither leader nor shadow has it twice, or anything after it."""
    bench, stop = Bench(small), small.framing.closing("assistant")[0]
    script = iter([*bench.words("we go"), stop] if ending == "stop" else [stop])
    monkeypatch.setattr("agentcho.runner.runner.sample_tokens", lambda *_: [next(script)])
    said = Decode("So: ", sampling=Sampling(max_tokens=30))
    leader, shadow = bench.run(said, Shadow(said))
    words = bench.engine.message(shadow)
    assert (words.stopped, words.text) == ("stop", "we go" if ending == "stop" else "")
    assert words.tokens[words.content[1] :] == small.framing.closing("assistant")
    same(bench, leader, shadow)
    bench.clear()


def test_a_shadow_follows_some_tokens_behind(small: Engine) -> None:
    """It feeds accepted tokens only, in strides; it skips its leader's first forward, and never the last one."""
    bench = Bench(small)
    said = speech(forced=bench.words("one two three " * 20))
    leader, shadow = bench.submit(said, Shadow(said))
    fed: list[tuple[int, int]] = []
    while not small.idle:
        bench.step()
        rows = {call.id: call.fed for call in small.debug.rows}
        fed.append((rows.get(leader, 0), rows.get(shadow, 0)))
    opening = fed[0][0]
    assert fed[0] == (opening, 0)
    lags = [one - other for one, other in fed]
    assert all(0 <= lag <= SHORT for lag in lags)
    assert {0} < set(lags)
    assert fed[-1] == (0, 0)
    strides = [after - before for (_, before), (_, after) in pairwise(fed[:-1]) if after > before]
    assert strides[1:] == [STRIDE] * (len(strides) - 1)
    assert len(strides) > 2
    bench.clear()


def test_no_shadow_goes_with_its_leaders_first_forward(small: Engine) -> None:
    """Its arrival must not need more than its own tokens, however much of the message is already known."""
    bench = Bench(small)
    said = Decode("one two three " * 20, sampling=Sampling(max_tokens=3, temperature=0))
    leader, _ = bench.submit(said, Shadow(said))
    assert len(bench.words(said.header)) > SHORT
    assert small.step().encoded == len(small.framing.opening("assistant", None)) + len(bench.words(said.header))
    small.cancel([leader])
    bench.clear()


@pytest.mark.slow
def test_many_shadows_keep_up_and_never_go_all_at_once(small: Engine) -> None:
    bench = Bench(small)
    said = [speech(forced=bench.words("one two three " * 20)) for _ in range(12)]
    bench.submit(*(each for call in said for each in (call, Shadow(call), Shadow(call))))
    lags, fed = list[int](), list[int]()
    while not small.idle:
        fed.append(small.step().encoded)
        shadows = [c for c in small.debug.rows if c.leader is not None and c.speech.stopped is None]
        lags += [shadow.lacking for shadow in shadows]
    assert max(lags) < 4 * STRIDE
    assert max(fed[1:-1]) <= 12 + 24 + STRIDE
    bench.clear()


def test_what_a_shadow_feeds_alone_depends_on_its_leader_only(small: Engine) -> None:
    """It feeds the same tokens in the same forwards beside other rows, which came before it and would leave it no room
    for a stride before its leader ends."""
    bench = Bench(small)
    before = len(small.framing.opening("assistant", None)) + len(bench.words("So: "))

    def feeds(beside: int) -> list[int]:
        calls = [
            speech(forced=bench.words("one two three " * 20)[: 2 * STRIDE + 4 - before]) for _ in range(beside + 1)
        ]
        shadow = bench.submit(*(each for call in calls for each in (call, Shadow(call))))[-1]
        found = list[int]()
        while not small.idle:
            found = next((call.feeds for call in small.debug.rows if call.id == shadow), found)
            small.step(deterministic=True)
        return found

    alone = feeds(0)
    assert alone[:2] == [STRIDE, STRIDE]
    assert feeds(5) == alone
    bench.clear()


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_shadow_that_begins_late_catches_up(
    small: Engine, monkeypatch: pytest.MonkeyPatch, deterministic: bool
) -> None:
    """If a forward has room only for its leader's token, it starts alone when there is room; otherwise when it is read.
    Nothing is left out."""
    bench = Bench(small)
    [public] = bench.run(Prefill("Who goes home?"))
    monkeypatch.setattr(small._scheduler, "_budget", TokenBudget(1, 1))
    said = speech(public, forced=bench.words("we all go home"))
    leader, shadow = bench.run(said, Shadow(said, (public,)), deterministic=deterministic)
    assert bench.ended(shadow) == bench.ended(leader) + deterministic
    same(bench, leader, shadow)
    bench.clear()


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
@pytest.mark.parametrize("which", ["leader", "shadow", "both"])
def test_cancelling(bench: Bench, steps: int, which: str) -> None:
    """Cancelling a leader cancels its shadow, a shadow can be cancelled alone; rows and pages are free at once."""
    [public] = bench.run(Prefill("Who goes home?"))
    before = bench.used
    said = speech(public, forced=bench.words("we all go home"))
    leader, shadow = bench.submit(said, Shadow(said, (public,)))
    for _ in range(steps):
        bench.step()
    gone = {"leader": [leader], "shadow": [shadow], "both": [shadow, leader]}[which]
    bench.engine.cancel(gone)
    if which != "shadow":
        assert (bench.used, bench.engine.rows, bench.engine.idle) == (before, 0, True)
    while not bench.engine.idle:
        bench.step()
    assert (leader in bench.held, shadow in bench.held) == (which == "shadow", False)


def test_a_leader_that_fails_takes_its_shadow_along(small: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, real, chosen = Bench(small), sample_tokens, list[int]()

    def third_fails(*args: Any) -> Any:
        chosen.append(1)
        return [None] if len(chosen) == 3 else real(*args)

    monkeypatch.setattr("agentcho.runner.runner.sample_tokens", third_fails)
    said = speech(most=9)
    leader, shadow = bench.run(said, Shadow(said))
    assert {id: type(error) for id, error in bench.failures().items()} == {leader: CallFailed}
    assert not bench.held & {leader, shadow}
    assert (small.rows, small.fullness.reserved) == (0, 0)


def test_a_fake_leader_that_fails_takes_its_shadow_along() -> None:
    faults = iter([None, None, CallFailed("no logit")])
    bench = Bench(FakeEngine(lambda call, prompt: "one two three four", faulty=lambda call: next(faults)))
    said = speech()
    leader, shadow = bench.run(said, Shadow(said))
    assert {id: type(error) for id, error in bench.failures().items()} == {leader: CallFailed}
    assert not bench.held & {leader, shadow}
    assert (bench.used, bench.engine.rows) == ((0, 0), 0)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_forward_that_fails_drops_both(bench: Bench, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    [public] = bench.run(Prefill("Who goes home?"))
    before = bench.used
    said = speech(public, forced=bench.words("we all go home"))
    bench.submit(said, Shadow(said, (public,)))
    for _ in range(steps):
        bench.step()
    with monkeypatch.context() as broken:
        if isinstance(bench.engine, FakeEngine):
            bench.engine.broken = RuntimeError("gone")
        else:
            broken.setattr(bench.engine._model, "forward", lambda *_: 1 / 0)
            dead(broken)
        with pytest.raises(EngineFailed):
            bench.step()
    assert (bench.used, bench.engine.rows, bench.engine.idle) == (before, 0, True)


def test_a_shadow_stands_after_its_leader_in_the_same_list(bench: Bench) -> None:
    said, before = speech(forced=()), bench.used
    for calls in ([Shadow(said)], [Shadow(said), said], [said, Shadow(speech(forced=()))]):
        with pytest.raises(RequestError):
            bench.submit(*calls)
    elsewhere = bench.submit(said)
    with pytest.raises(RequestError):
        bench.submit(Shadow(said))
    bench.engine.cancel(elsewhere)
    assert (bench.used, bench.engine.idle) == (before, True)


def test_a_shadow_that_would_not_fit_is_refused_with_its_list(bench: Bench) -> None:
    said, before = speech(forced=()), bench.used
    with pytest.raises(ValueError, match="positions up to"):
        bench.submit(said, Shadow(said, new_offset=4095))
    assert (bench.used, bench.engine.idle) == (before, True)

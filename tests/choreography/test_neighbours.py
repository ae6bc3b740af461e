"""A benign game beside a hostile one: the same transcript, and one of our errors for each attempt."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from agentcho import Agent, Choreographer, Decode, Engine, Game, Prefill, RunConfig, Sampling, canonical_transcript
from agentcho.choreography.requests import Request
from agentcho.errors import AgentchoError, CallFailed
from agentcho.events import Began, Ended, Event, Token
from agentcho.protocol.call import Call, EncodingId, SchedulingPriority
from agentcho.records.transcript import TranscriptEntry
from agentcho.testing import FakeEngine
from tests.engine.broken import failing

from .attacks import attacks
from .contract import Bench, Held, fake, real
from .mallory import FINE, Mallory, acts
from .stage import Scripted, Talker

GUILTY = "guilty: the forward itself"
PORT, GAME = (*attacks(), GUILTY), (*acts(), GUILTY)
BAD = "¤"
SOME = 20


@pytest.fixture(scope="module", params=["fake", "real"])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Both engines; a call with `BAD` makes their forwards fail."""
    if request.param == "fake":
        return breakable()
    return Bench(real(tmp_path_factory.mktemp("tiny"), "llama3"))


def breakable() -> Bench:
    """The fake; its forwards of `BAD` fail."""
    bench = Bench(fake(True))
    bench.engine.guilty = lambda call: ValueError(BAD) if getattr(call, "text", "") == BAD else None  # type: ignore[union-attr]
    return bench


class Hurt(Exception):
    """An attempt did not have the expected result."""


# -- through the port ------------------------------------------------------------------------------------


def good_call(parents: tuple[EncodingId, ...]) -> Decode:
    return Decode("Good: ", parents, sampling=Sampling(max_tokens=16, seed=5, temperature=0.7))


class Port:
    """A benign decode that is restarted whenever it ends, and invalid calls beside it."""

    def __init__(self, engine: Engine | FakeEngine) -> None:
        self.engine, self.tried = engine, 0
        self.ids = self._made(Prefill("told"), good_call(()))
        [told, _] = self.ids
        [alone] = self._made(good_call((told,)))
        self.expected, self._row = engine.message(alone), -1
        self._kept = [alone]
        self._restart()

    def _made(self, *calls: Call) -> tuple[EncodingId, ...]:
        ids = self.engine.submit(calls)
        while not self.engine.idle:
            assert not self.engine.step(True).failed
        return ids

    def _restart(self) -> None:
        [self._row] = self.engine.submit([good_call(self.ids[:1])])
        self._step()

    def _step(self, bad: tuple[EncodingId, ...] = ()) -> list[Exception]:
        result = self.engine.step(True)
        assert self._row not in {failure.id for failure in result.failed}
        if self._row in result.finished:
            assert self.engine.message(self._row) == self.expected
            self._kept.append(self._row)
            self._restart()
        assert not set(bad).intersection(result.finished)
        return [failure.error for failure in result.failed if failure.id in bad]

    def act(self, name: str, then: str) -> None:
        """Try one attack while the benign row runs; then cancel or release ids that are not there."""
        assert self.engine.rows >= 1
        assert not self._there(self._row)
        self.tried += 1
        calls, turn = ((Prefill(BAD),), SchedulingPriority("bad")) if name == GUILTY else attacks()[name](self.ids)
        try:
            bad = self.engine.submit(calls, turn)
        except AgentchoError:
            bad = ()
            self._step()
        else:
            errors = self._step(bad)
            assert [isinstance(error, AgentchoError) for error in errors] == [True], name
            assert (name == GUILTY) == isinstance(errors[0], CallFailed)
        self._give_up(bad, then)

    def _give_up(self, bad: tuple[EncodingId, ...], then: str) -> None:
        if then == "cancel":
            self.engine.cancel([*bad, 10**9])
        elif then == "release":
            for wrong in ([*bad, 10**9], [True], None, [self._row]):
                with pytest.raises(AgentchoError):
                    self.engine.release(wrong)  # type: ignore[arg-type]
        elif then == "begin and cancel":
            ids = self.engine.submit([Prefill("begun"), Decode("begun", sampling=Sampling(max_tokens=9))])
            self._step()
            self.engine.cancel(ids)
            self.engine.release([id for id in ids[:1] if self._there(id)])

    def _there(self, id: EncodingId) -> bool:
        try:
            self.engine.message(id)
        except AgentchoError:
            return False
        return True

    def end(self) -> None:
        """Release everything; asserts that nothing is left."""
        self.engine.cancel([self._row])
        self.engine.release([*self._kept, *self.ids])
        assert self.engine.idle


THEN = ("nothing", "cancel", "release", "begin and cancel")
ATTEMPTS = st.lists(st.tuples(st.sampled_from(PORT), st.sampled_from(THEN)), min_size=SOME, max_size=SOME)


def through_the_port(bench: Bench, examples: int) -> int:
    """Returns the number of attempts, none of which did harm."""
    tried = [0]

    @seed(5)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(ATTEMPTS)
    def attempt(wanted: list[tuple[str, str]]) -> None:
        port = Port(bench.engine)
        for name, then in wanted:
            port.act(name, then)
        port.end()
        tried[0] += port.tried
        assert bench.held == Held(0, 0, 0)

    with guilty(bench):
        attempt()
    return tried[0]


def guilty(bench: Bench) -> Any:
    """Makes forwards of `BAD` fail."""
    if isinstance(bench.engine, FakeEngine):
        return pytest.MonkeyPatch.context()
    marked = bench.engine.framing.content.encode(BAD)[-1]
    return failing(bench.engine, lambda ids: marked in ids, RuntimeError("this one"))


@pytest.mark.slow
def test_hostile_calls_hurt_no_row_beside_them(bench: Bench) -> None:
    with guilty(bench):
        port, random = Port(bench.engine), Random(5)
        for name in (GUILTY, *random.sample(PORT, SOME)):
            port.act(name, random.choice(THEN))
        port.end()


@pytest.mark.slow
@pytest.mark.parametrize("bench", ["fake", pytest.param("real", marks=pytest.mark.nightly)], indirect=True)
def test_thousands_of_hostile_calls_hurt_no_row_beside_them(bench: Bench) -> None:
    tried = through_the_port(bench, 140)
    print(f"\n{tried} hostile calls through the port, 0 touched a neighbour")
    assert tried >= 2500


# -- through the choreographer ---------------------------------------------------------------------------


async def good_game(game: Game, turns: int) -> int:
    """Two agents talk for long enough that others can attack."""
    alice, bob = game.cast(Talker, "alice", system="You are Alice."), game.cast(Talker, "bob")
    for _ in range(turns):
        await alice.say(max_tokens=14)
        await bob.say(prompt="And you?", max_tokens=14)
    return await game_over(bob)


async def game_over(agent: Agent) -> int:
    """A choice at the end."""
    return int(await agent.choose(["1", "2"], to="everyone"))


class Stand:
    """Follows the benign game: its transcript, and whether it is speaking."""

    def __init__(self) -> None:
        self.entries, self._speaking = list[TranscriptEntry](), set[str]()
        self.over, self.heard = False, anyio.Event()

    def hear(self, event: Event) -> None:
        """The listener of the benign game."""
        if isinstance(event, Token):
            self._speaking.add(event.id)
        elif isinstance(event, Ended):
            self.entries.append(event.entry)
            self._speaking.discard(event.entry.message.id)
        elif isinstance(event, Began):
            assert not self._speaking
        self.heard.set()

    @property
    def speaks(self) -> bool:
        """Whether a decode of the benign game is running: it has generated something and has not ended."""
        return bool(self._speaking)

    async def wait(self) -> bool:
        """Wait until it speaks; returns False if it is over."""
        while not self.speaks and not self.over:
            self.heard = anyio.Event()
            await self.heard.wait()
        return not self.over


def game_of(c: Choreographer, index: int, hear: Any) -> Game:
    return Game(c, index, 3, RunConfig(model="fake", max_tokens=8, leakage="enforce", deterministic=True), sink=hear)


async def villain(c: Choreographer, stand: Stand, wanted: list[str], done: list[str]) -> None:
    """Tries the wanted acts one after another while the benign game speaks."""

    async def script(game: Game) -> None:
        agent = game.cast(Talker, "mallory")
        said = await agent.say(max_tokens=3)
        made = await c.run(Request((Prefill("one"), Decode(sampling=Sampling(max_tokens=3))), (9,)))
        ids = tuple(call.id for call in made.made)
        mallory = Mallory(c, game, agent, said, ids)
        for name in wanted:
            if not await stand.wait():
                break
            assert stand.speaks
            errors = await _tried(name, acts(), mallory)  # rebuilt, because some can be read only once
            if len(errors) != (name not in FINE):
                raise Hurt(name, errors)
            done.append(name)
        c.release(ids)

    await game_of(c, 1, lambda event: None).play(Scripted(script))


async def _tried(name: str, known: dict[str, Any], mallory: Mallory) -> list[AgentchoError]:
    try:
        if name == GUILTY:
            await mallory.c.run(Request((Prefill(BAD),), (7,)))
        else:
            await known[name](mallory)
    except AgentchoError as error:
        return [error]
    return []


def played(bench: Bench, wanted: list[str], turns: int = 4) -> tuple[dict[int, Any], list[str]]:
    """The transcript of the benign game, and the acts tried beside it."""
    stand, done = Stand(), list[str]()

    async def good(c: Choreographer) -> None:
        try:
            await game_of(c, 0, stand.hear).play(Scripted(partial(good_game, turns=turns)))
        finally:
            stand.over = True
            stand.heard.set()

    async def work() -> None:
        async with Choreographer(bench.engine, deterministic=True) as c, anyio.create_task_group() as group:
            group.start_soon(good, c)
            if wanted:
                group.start_soon(villain, c, stand, wanted, done)

    anyio.run(work)
    assert bench.held == Held(0, 0, 0)
    assert bench.engine.idle
    return canonical_transcript(stand.entries), done


def through_the_choreographer(bench: Bench, examples: int) -> int:
    """Returns the number of attempts, none of which did harm."""
    alone, _ = played(bench, [])
    tried = [0]

    @seed(6)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.sampled_from(GAME), min_size=4 * SOME, max_size=4 * SOME))
    def attempt(wanted: list[str]) -> None:
        transcript, done = played(bench, wanted)
        assert transcript == alone
        tried[0] += len(done)

    with guilty(bench):
        attempt()
    return tried[0]


@pytest.mark.slow
def test_a_hostile_game_hurts_no_game_beside_it(bench: Bench) -> None:
    alone, _ = played(bench, [], turns=1)
    with guilty(bench):
        transcript, done = played(bench, wanted := [GUILTY, *Random(6).sample(GAME, 8)], turns=1)
    assert transcript == alone
    assert done == wanted


@pytest.mark.nightly
def test_thousands_of_hostile_acts_hurt_no_game_beside_them(bench: Bench) -> None:
    tried = through_the_choreographer(bench, 60)
    print(f"\n{tried} hostile acts through the choreographer, 0 touched a neighbour")
    assert tried >= 2500


@pytest.mark.slow
def test_every_act_is_one_that_is_tried(tmp_path: Path) -> None:
    """Tries each act at least once."""
    bench = breakable()
    left, rounds = list(GAME), 0
    while left:
        rounds += 1
        _, done = played(bench, left)
        assert done
        left = left[len(done) :]
    assert rounds < 60

"""People in games: what they are shown, what they are asked, and what happens to their words."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from pydantic import BaseModel, Field

import agentcho
from agentcho import Agent, Game, Limits, RunConfig, Scenario
from agentcho.audit import audit_run
from agentcho.audit.wording import headline
from agentcho.errors import AudienceError, CallFailed, ConfigError, ContextOverflow, PersonLeft, RequestError
from agentcho.games.play.people import Person, PersonPrompt
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play as play_run
from agentcho.message import Message
from agentcho.records.record import SavedRun
from agentcho.testing import FakeEndpoint, FakeEngine, play

from .said import Scripted

FAKE = RunConfig(model="fake")


class Move(BaseModel):
    """Where to go."""

    to: Literal["north", "south"]
    steps: int = Field(ge=1, le=3)


def said(rehearsal: Any, agent: str) -> list[str]:
    return [message.text for message in rehearsal.said(agent)]


async def talk(game: Game) -> list[str]:
    """Alice and Carol have secrets; Bob speaks in between."""
    alice = game.cast(Agent, "alice", system="SECRET-A0", audience="everyone")
    bob = game.cast(Agent, "bob", system="You are Bob.", audience="everyone")
    carol = game.cast(Agent, "carol", system="SECRET-C0", audience="everyone")
    await game.announce("SECRET-S0", to=("alice", "carol"))
    await game.announce("Begin.")
    await alice.think()
    await alice.say()
    await bob.say()
    await alice.say(to=("carol",))
    await carol.say(to=("bob",))
    await bob.think("What do you think?")
    return [m.id for m in game.said]


LINES = {"alice": ("SECRET-A1", "open words", "SECRET-A2"), "carol": ("for bob alone",)}


def test_a_person_hears_what_its_agent_may_read_and_nothing_else() -> None:
    bob = Scripted(["hello all", "I think so"])
    rehearsal = play(talk, LINES, people={"bob": bob})
    assert said(rehearsal, "bob") == ["hello all", "I think so"]
    assert "SECRET" not in bob.read
    heard = {message.id for _, _, message in bob.heard}
    assert {id for _, _, message in bob.heard for id in message.parents} <= heard, "others read what he may not know of"
    assert bob.notes == [
        "bob joined 0",
        "bob.0",
        "scenario.1",
        "alice.2",
        "asked bob.1",
        "bob.1",
        "carol.1",
        "bob.2",
        "asked bob.3",
        "bob.3",
    ]


def test_what_it_says_is_recorded_as_a_persons_and_encoded_as_anybodys() -> None:
    rehearsal = play(talk, LINES, people={"bob": Scripted(["hello all", "so"])})
    entries = {entry.message.id: entry for entry in rehearsal.entries}
    assert [entries[id].origin for id in ("alice.2", "bob.1", "bob.3")] == ["sampled", "human", "human"]
    assert entries["bob.1"].encoding is not None
    assert entries["bob.1"].message.stopped == "forced"


def test_open_system_prompts_of_others_are_not_for_it() -> None:
    async def script(game: Game) -> None:
        game.cast(Agent, "alice", system="OPEN-A", open_system=True)
        await game.cast(Agent, "bob", system="OPEN-B", open_system=True, audience="everyone").say()

    bob = Scripted(["hello"])
    play(script, people={"bob": bob})
    assert bob.read == "OPEN-B\nhello"


def test_in_a_round_it_hears_nothing_of_the_others_before_the_end() -> None:
    async def script(game: Game) -> None:
        alice, bob = (game.cast(Agent, name, audience="everyone") for name in ("alice", "bob"))
        await game.together(alice.say(), bob.say())
        await bob.say()

    bob = Scripted(["mine", "more"])
    play(script, {"alice": ["theirs"]}, people={"bob": bob})
    assert bob.notes == ["bob joined 0", "asked bob.0", "alice.0", "bob.0", "asked bob.1", "bob.1"]


def test_what_comes_out_while_it_is_asked_is_heard_when_it_has_answered() -> None:
    class Slow(Scripted):
        async def ask(self, asked: PersonPrompt) -> str:
            words = await super().ask(asked)
            await spoken.wait()
            self.notes.append("answers")
            return words

    spoken = anyio.Event()

    async def script(game: Game) -> None:
        alice, bob = (game.cast(Agent, name, audience="everyone") for name in ("alice", "bob"))

        async def others() -> None:
            await alice.say()
            spoken.set()

        async with anyio.create_task_group() as group:
            group.start_soon(others)
            await bob.say()

    bob = Slow(["mine"])
    play(script, {"alice": ["theirs"]}, people={"bob": bob})
    assert bob.notes[1:] in (
        ["asked bob.0", "answers", "alice.0", "bob.0"],
        ["alice.0", "asked bob.0", "answers", "bob.0"],
    )


def test_it_is_asked_all_that_a_verb_can_ask_for() -> None:
    async def script(game: Game) -> list[Any]:
        bob = game.cast(Agent, "bob", audience="everyone")
        chosen = await bob.choose(["yes", "no"], "Well?", opening='"', closing='"', header="I say ")
        asked = await bob.ask("Left?", ["left", "right"])
        answer = await bob.answer(Move, "Where to?")
        thought = await bob.think()
        pieces = []
        async with bob.stream(header="To all: ", max_tokens=9, stop=["END"]) as stream:
            pieces = [piece async for piece in stream]
        return [chosen, asked, answer.steps, thought.text, "".join(pieces)]

    bob = Scripted(['"no"', "left", '{"to": "north", "steps": 2}', "hm", "one two three"])
    rehearsal = play(script, people={"bob": bob})
    assert rehearsal.over.outcome == {"value": ["no", "left", 2, "hm", "one two three"]}
    choose, ask, answer, think, stream = bob.asked
    assert (choose.choices, choose.labels, choose.header, choose.prompt) == (
        ('"yes"', '"no"'),
        ("yes", "no"),
        "I say ",
        "Well?",
    )
    assert ask.choices == ask.labels == ("left", "right")
    assert (answer.model, answer.choices, answer.to.members, str(think.to)) == (Move, (), None, "bob")
    assert (stream.to.members, stream.most) == (None, 9)


def test_what_an_error_tells_of_typed_words_counts_as_a_look_at_what_was_read_for_them() -> None:
    async def script(game: Game) -> None:
        bob = game.cast(Agent, "bob")
        await game.announce("The word is fig.", to="bob")
        with pytest.raises(RequestError, match="cannot be said"):
            await bob.say(to=(), max_tokens=1)
        await game.announce("Well.")

    last = play(script, people={"bob": Scripted(["the word that you gave me is fig"])}).entries[-1]
    assert (last.message.text, last.act.tainted_by) == ("Well.", ("scenario.0",))


def faults(words: list[str], **options: Any) -> list[str | None]:
    """The fault found in each of these texts for a `say` with these options; the last one is then said."""
    found: list[str | None] = []

    class Tries(Person):
        async def ask(self, asked: PersonPrompt) -> str:
            found.extend(asked.fault(each) for each in words)
            return words[-1]

    async def script(game: Game) -> None:
        await game.cast(Agent, "bob").say(**options)

    play(script, people={"bob": Tries()})
    return found


def test_words_are_checked_as_they_are_typed() -> None:
    long, empty, stop, torn, fine = faults(["a b c d e", "  ", "a END", "\udcff", "a b"], max_tokens=3, stop=["END"])
    assert long == "it has 5 tokens, and at most 3 are allowed; shorten it by 2"
    assert empty == "it is empty: say something"
    assert stop == "'END' ends a message here; leave it out"
    assert torn is not None
    assert "lone surrogates" in torn
    assert fine is None


def test_what_fits_no_schema_or_no_model_is_told_by_the_field() -> None:
    found: list[str | None] = []

    class Tries(Person):
        async def ask(self, asked: PersonPrompt) -> str:
            tries = ["north", '{"to": "west", "steps": 1}', '{"to": "north", "steps": 9}', '{"to": "north"}']
            tries += ['{"to": "north", "steps": 1, "more": 2}']
            found.extend(asked.fault(each) for each in tries)
            return '{"to": "north", "steps": 1}'

    async def script(game: Game) -> None:
        await game.cast(Agent, "bob").answer(Move)

    play(script, people={"bob": Tries()})
    assert all(found)
    assert "west" in str(found[1])
    assert "steps" in str(found[2])
    assert "more" in str(found[4])


@pytest.mark.parametrize("mode", ["choreographed", "baseline"])
def test_what_does_not_fit_the_context_is_told_to_the_token(mode: Any) -> None:
    told: list[tuple[int, str | None, str | None]] = []

    class Tries(Person):
        async def ask(self, asked: PersonPrompt) -> str:
            fits = " a" * asked.most
            told.append((asked.most, asked.fault(fits), asked.fault(fits + " a")))
            return fits

    async def script(game: Game) -> None:
        bob = game.cast(Agent, "bob", system="one two three")
        await game.announce("four five")
        await bob.say(header="To all: ", max_tokens=1000)

    engine = FakeEngine(context=40)
    play(script, people={"bob": Tries()}, engine=engine, config=RunConfig(model="fake", mode=mode))
    [(most, fault, over)] = told
    assert (0 < most < 40, fault) == (True, None)
    assert over is not None
    assert "shorten it by 1" in over


def test_where_no_word_fits_nobody_is_asked() -> None:
    async def script(game: Game) -> None:
        bob = game.cast(Agent, "bob", system="one two three")
        await game.announce("four five six seven eight nine")
        await bob.say(max_tokens=1000)

    bob = Scripted(["no"])
    with pytest.raises(ContextOverflow):
        play(script, people={"bob": bob}, engine=FakeEngine(context=16))
    assert not bob.asked


def test_words_that_cannot_be_said_end_the_game_with_what_is_wrong() -> None:
    async def script(game: Game) -> None:
        await game.cast(Agent, "bob").choose(["yes", "no"])

    with pytest.raises(RequestError, match="not one of the 2 choices"):
        play(script, people={"bob": Scripted(["maybe"])})


def test_a_person_whose_front_end_fails_ends_its_own_game_alone() -> None:
    class Broken(Scripted):
        def hear(self, game: int, agent: str, message: Message) -> None:
            raise ValueError("no screen")

    played = play_run(
        RunRequest(Open(), RunConfig(model="fake", games=2), engine=FakeEngine(), people={"bob": Half(Broken())})
    )
    assert sorted(played.errors) == [0]
    assert "the person who plays bob" in str(played.error)
    assert played.games[1].outcome is not None


class Open(Scenario):
    """Alice and Bob talk."""

    name = "open"

    class Outcome(Scenario.Outcome):
        """Bob's message."""

        bob: str

    async def play(self, game: Game) -> Scenario.Outcome:
        alice, bob = (game.cast(Agent, name, system="You.", audience="everyone") for name in ("alice", "bob"))
        await alice.say()
        words = [(await bob.say()).text, (await alice.say()).text and (await bob.choose(["yes", "no"]))]
        return self.Outcome(bob=" ".join(words))


def test_an_ask_that_is_no_coroutine_is_told() -> None:
    class Sync(Person):
        def ask(self, asked: PersonPrompt) -> str:  # type: ignore[override]
            return "hello"

    with pytest.raises(
        RequestError, match=r"`ask` of Sync, the person who plays bob, is not a coroutine; write `async"
    ):
        play(talk, LINES, people={"bob": Sync()})


class Half(Person):
    """Passes game 0 to another person; answers alike in all other games."""

    def __init__(self, other: Person) -> None:
        self.other = other

    def joined(self, game: int, agent: str) -> None:
        if game == 0:
            self.other.joined(game, agent)

    def hear(self, game: int, agent: str, message: Message) -> None:
        if game == 0:
            self.other.hear(game, agent, message)

    async def ask(self, asked: PersonPrompt) -> str:
        return await self.other.ask(asked) if asked.game == 0 else asked.choices[0] if asked.choices else "hello"


def test_who_leaves_ends_its_game_the_others_go_on_and_resume_asks_nobody_twice(tmp_path: Path) -> None:
    config = RunConfig(model="fake", games=3)
    first = Scripted(["typed once"])
    played = play_run(RunRequest(Open(), config, engine=FakeEngine(), people={"bob": Half(first)}, out=tmp_path))
    assert isinstance(played.error, PersonLeft)
    assert [game.failed for game in played.games] == [True, False, False]
    assert played.record is not None
    saved = SavedRun(played.record)
    assert saved.info.config.people == ("bob",)
    again = Scripted(["yes"])
    resumed = play_run(RunRequest.resuming(saved, Open(), engine=FakeEngine(), people={"bob": again}))
    assert [asked.id for asked in again.asked] == ["bob.2"]
    assert resumed.games[0].outcome == {"bob": "typed once yes"}
    origins = [entry.origin for entry in saved.games()[0] if entry.message.author == "bob"]
    assert origins == [None, "human", "human"]
    report = audit_run(SavedRun(saved.path))
    assert headline(report).word == "CLEAN", report.reasons


def test_words_are_on_record_before_they_are_encoded(tmp_path: Path) -> None:
    class Breaks(FakeEngine):
        def submit(self, calls: Any, *more: Any) -> Any:
            if any(getattr(call, "name", None) == "bob" and getattr(call, "forced", None) for call in calls):
                raise CallFailed("the device is gone")
            return super().submit(calls, *more)

    played = play_run(RunRequest(Open(), FAKE, engine=Breaks(), people={"bob": Scripted(["typed once"])}, out=tmp_path))
    assert played.record is not None
    assert SavedRun(played.record).typed() == {0: {"bob.1": "typed once"}}
    again = Scripted(["no"])
    resumed = play_run(RunRequest.resuming(SavedRun(played.record), Open(), engine=FakeEngine(), people={"bob": again}))
    assert resumed.games[0].outcome == {"bob": "typed once no"}


def test_a_game_that_is_played_again_asks_nobody_twice() -> None:
    from agentcho.games.runs.request import OnFailure

    class Once(FakeEngine):
        failed_once = False

        def submit(self, calls: Any, *more: Any) -> Any:
            if not self.failed_once and any(
                getattr(call, "sampling", None) and call.sampling.choices for call in calls
            ):
                self.failed_once = True
                raise CallFailed("once")
            return super().submit(calls, *more)

    bob = Scripted(["typed once", "yes"])
    played = play_run(RunRequest(Open(), FAKE, engine=Once(), people={"bob": bob}, on_failure=OnFailure(retries=1)))
    assert played.games[0].outcome == {"bob": "typed once yes"}
    assert bob.notes.count("bob joined 0") == 2


def test_its_time_is_a_limit_as_anybodys() -> None:
    class Alone(Open):
        async def play(self, game: Game) -> Scenario.Outcome:
            return self.Outcome(bob=(await game.cast(Agent, "bob", audience="everyone").say()).text)

    class Asleep(Scripted):
        async def ask(self, asked: PersonPrompt) -> str:
            self.asked.append(asked)
            await anyio.sleep_forever()
            raise AssertionError

    bob = Asleep()
    config = RunConfig(model="fake", limits=Limits(agent_seconds=0.05))
    played = play_run(RunRequest(Alone(), config, engine=FakeEngine(), people={"bob": bob}))
    assert played.games[0].ended == "limit: bob reached 0.05 seconds"
    assert [over.ended for over in bob.ends] == ["limit: bob reached 0.05 seconds"]
    assert bob.asked[0].deadline < float("inf")


def test_others_go_on_while_it_is_asked() -> None:
    order: list[str] = []
    held: list[anyio.Event] = []

    class Last(Person):
        async def ask(self, asked: PersonPrompt) -> str:
            if asked.game == 0 and not held:
                held.append(anyio.Event())
                await held[0].wait()
            order.append(asked.id + "@" + str(asked.game))
            return asked.choices[0] if asked.choices else "hello"

        def over(self, game: int, agent: str, over: Any) -> None:
            order.append(f"over {game}")
            if game == 2:
                held[0].set()

    played = play_run(RunRequest(Open(), RunConfig(model="fake", games=3), engine=FakeEngine(), people={"bob": Last()}))
    assert not played.errors
    assert order.index("over 2") < order.index("bob.1@0")


@pytest.mark.parametrize("same", [True, False])
def test_one_person_knows_what_both_of_its_agents_were_shown_unless_it_stands_for_two(same: bool) -> None:
    class Shared(Scripted):
        def is_same(self, agent: str, other: str) -> bool:
            return same

    async def script(game: Game) -> None:
        alice, bob = (game.cast(Agent, name) for name in ("alice", "bob"))
        await game.announce("Only alice.", to=["alice"])
        await bob.say(to="everyone")
        await alice.say(to="everyone")

    person = Shared(["mine", "more"])
    entries = play(script, people={"alice": person, "bob": person}).entries
    shown = {entry.message.id: entry.act.shown for entry in entries}
    assert ("scenario.0" in shown["bob.0"]) is same


def test_a_name_that_nobody_has_is_told_with_the_cast(tmp_path: Path) -> None:
    bob = Scripted()
    with pytest.raises(AudienceError, match=r"no agent is named bbo.*the cast is: alice, bob") as told:
        play_run(RunRequest(Open(), FAKE, engine=FakeEngine(), people={"bbo": bob}, out=tmp_path))
    assert bob.notes == ["bbo not in 0: alice, bob"]
    assert next(tmp_path.iterdir()).name in str(told.value)


def test_a_run_of_people_needs_them(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="bob is played by a person"):
        play_run(RunRequest(Open(), RunConfig(model="fake", people=("bob",)), engine=FakeEngine()))
    with pytest.raises(RequestError, match="give a Person"):
        play_run(RunRequest(Open(), FAKE, engine=FakeEngine(), people={"bob": "me"}))  # type: ignore[dict-item]
    with pytest.raises(AudienceError, match="Bob"):
        play_run(RunRequest(Open(), FAKE, engine=FakeEngine(), people={"Bob": Scripted()}))


def test_where_the_agents_model_is_behind_an_api_nothing_is_asked_of_it() -> None:
    endpoint = FakeEndpoint()

    async def script(game: Game) -> str:
        alice, bob = (game.cast(Agent, name, audience="everyone") for name in ("alice", "bob"))
        await bob.say()
        await alice.say()
        return (await bob.say()).text

    rehearsal = play(script, people={"bob": Scripted(["mine", "more"])}, endpoint=endpoint)
    assert rehearsal.over.outcome == {"value": "more"}
    assert [call.messages[-1].text for call in endpoint.calls] == ["mine"]
    assert [entry.origin for entry in rehearsal.entries] == ["human", "sampled", "human"]


def test_its_words_may_hold_secrets_of_others_that_no_vendor_is_sent() -> None:
    vendors = {"far": FakeEndpoint(vendor="elsewhere")}

    async def script(game: Game) -> str:
        alice = game.cast(Agent, "alice")
        bob = game.cast(Agent, "bob", model="far")
        await alice.say(to=("bob",))
        return (await bob.think()).text

    rehearsal = play(script, people={"bob": Scripted(["I know"])}, others=vendors)
    assert rehearsal.over.outcome == {"value": "I know"}
    assert not vendors["far"].calls


def test_from_python_people_are_given_by_name_and_nothing_is_shown_before_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bob = {"bob": Half(Scripted(["hi", "yes"]))}
    played = agentcho.run(Open(), engine=FakeEngine(), model="fake", people=bob, display="auto")
    assert played.games[0].outcome == {"bob": "hi yes"}
    out = capsys.readouterr().out
    assert "hi yes" in out
    assert "alice →" not in out


def test_in_a_running_event_loop_too() -> None:
    bob = Scripted(["hi", "yes"])

    async def main() -> agentcho.Played:
        return await agentcho.arun(Open(), engine=FakeEngine(), model="fake", people={"bob": bob})

    assert anyio.run(main).games[0].outcome == {"bob": "hi yes"}
    assert bob.notes[-1] == "bob over 0"


def test_here_is_no_terminal() -> None:
    with pytest.raises(ConfigError, match="needs a terminal to show bob"):
        agentcho.run(Open(), engine=FakeEngine(), model="fake", people="bob")

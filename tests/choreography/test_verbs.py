"""What agents can do: think, say, ask, choose, answer, stream, tell."""

import unicodedata
import warnings
from collections.abc import Sequence
from typing import Literal

import anyio
import pytest
from pydantic import BaseModel, Field, field_validator

from agentcho import Agent, Choreographer, Decode, Engine, Game, Metadata, RunConfig, View
from agentcho.audit.audit import audit_entries
from agentcho.audit.notes import Seal
from agentcho.engine.fake.toy_tokenizer import Vocabulary
from agentcho.errors import AgentchoError, AnswerInvalid, AudienceError, AudienceWarning, CallFailed, RequestError
from agentcho.events import Began, Ended, Event, FirstToken, GameOver, Joined, Token
from agentcho.message import audience
from agentcho.testing import FakeEngine
from agentcho.testing import play as rehearse

from ..audit.transcripts import KEY, subject
from .stage import Play, Scripted, Talker, game, spoken, talker


class Verdict(BaseModel):
    """What is asked for."""

    guilty: bool
    years: int


class Never(BaseModel):
    """Fits its schema and still is refused."""

    years: int

    @field_validator("years")
    @classmethod
    def _never(cls, value: int) -> int:
        raise ValueError("never")


def test_every_verb_does_what_it_says(play: Play) -> None:
    async def script(game: Game) -> None:
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        assert (await a.think("why?")).audience == audience("alice")
        assert (await a.say(header="To Bob: ")).header == "To Bob: "
        assert await a.ask("which?", ["left", "right"]) in {"left", "right"}
        chosen = await a.choose(["yes", "no"], header='{"go": ', opening='"', closing='"}')
        assert chosen in {"yes", "no"}
        assert isinstance(await b.answer(Verdict, "how?"), Verdict)
        told = await b.tell("I was there")
        async with b.stream() as pieces:
            text = "".join([piece async for piece in pieces])
        assert pieces.message is not None
        assert pieces.message.text == text
        assert told in pieces.message.parents
        assert game.message(told).text == "I was there"

    entries, [over] = game(play, script)
    assert over.ended is None
    prompts = [e.message for e in entries if e.message.role == "user"]
    assert [p.author for p in prompts] == ["alice", "alice", "bob"]
    assert all(p.audience == audience(p.author or "") for p in prompts)
    choice = next(m for m in spoken(entries) if m.header.startswith("{"))
    assert choice.text in {'"yes"}', '"no"}'}
    addressed = [m.audience for m in spoken(entries)[2:5]]
    assert addressed == [audience("everyone")] * 3


class Mute(Agent):
    """Chose to have no audience."""

    audience = ()


def test_choices_and_answers_go_to_the_agents_audience_with_a_warning(play: Play) -> None:
    async def script(game: Game) -> None:
        alice, bob, cleo = game.cast(Talker, "alice"), game.cast(Agent, "bob"), game.cast(Mute, "cleo")
        told = r"Talker\.{}\(\) without `to` goes to the agent's audience: pass to=\(\) .* or to=\"everyone\" to share"
        with pytest.warns(AudienceWarning, match=told.format("choose")) as found:
            await alice.choose(("yes", "no"))
        assert found[0].filename == __file__
        with pytest.warns(AudienceWarning, match=told.format("ask")) as asked:
            await alice.ask("Well?", ("yes", "no"))
        with pytest.warns(AudienceWarning, match=told.format("answer")) as answered:
            await alice.answer(Verdict)
        assert [(len(each), each[0].filename) for each in (asked, answered)] == [(1, __file__)] * 2
        with pytest.warns(AudienceWarning) as together:
            await game.together(alice.choose(("yes", "no")))
        assert together[0].filename == __file__
        with warnings.catch_warnings(record=True) as repeated:
            warnings.simplefilter("default")
            for _ in range(2):
                await alice.choose(("yes", "no"))
        assert len(repeated) == 1
        with warnings.catch_warnings(record=True) as ignored:
            warnings.filterwarnings("ignore", module=__name__)
            await alice.choose(("yes", "no"))
        assert not ignored
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await alice.choose(("yes", "no"), to=())
            await alice.answer(Verdict, to="bob")
            await bob.choose(("yes", "no"))
            await bob.answer(Verdict)
            await bob.say()
            await cleo.choose(("yes", "no"))
        dora = game.cast(Agent, "dora", audience="alice")
        with pytest.warns(AudienceWarning, match=r"the agent's `audience` \(to=self\.audience .* to=ann\.audience"):
            await dora.choose(("yes", "no"))

    entries, [over] = game(play, script)
    assert over.ended is None
    unaddressed = [entry.act.unaddressed for entry in entries if entry.message.kind == "decode"]
    assert unaddressed == [*[False] * 9, True, True, False, False, False]
    readers = [m.audience for m in spoken(entries)]
    private = [
        audience("alice"),
        audience(["alice", "bob"]),
        *[audience("bob")] * 3,
        audience("cleo"),
        audience(["alice", "dora"]),
    ]
    assert readers == [*[audience("everyone")] * 7, *private]


def test_an_answer_that_its_own_validators_refuse_says_where(play: Play) -> None:
    async def script(game: Game) -> None:
        with pytest.raises(AnswerInvalid, match="years"):
            await game.cast(Talker, "alice").answer(Never)

    game(play, script)


class Plan(BaseModel):
    """Has keys of the model's own, here with words that nobody else may read."""

    steps: dict[str, list[Never]]


def test_a_refused_answer_is_located_without_the_words_of_it(play: Play) -> None:
    async def script(game: Game) -> None:
        with pytest.raises(AnswerInvalid, match=r"at: steps\[…\]\[…\]\.years\. Express") as refused:
            await game.cast(Talker, "alice").answer(Plan, to=())
        assert "bomb" not in str(refused.value)

    game(play, script, FakeEngine(answer=lambda call, prompt: '{"steps":{"bomb":[{"years":3}]}}'))


def test_a_number_that_no_float_holds_is_an_answer(play: Play) -> None:
    class Large(BaseModel):
        value: int

    async def script(game: Game) -> int:
        return (await game.cast(Talker, "alice").answer(Large, to=())).value // 10**399

    _, [over] = game(play, script, FakeEngine(answer=lambda call, prompt: f'{{"value":{7 * 10**399}}}'))
    assert over.outcome == {"value": 7}


class Bag(BaseModel):
    """Sets, deep inside too."""

    words: set[Literal["tin", "tins"]] = Field(min_length=1)
    pairs: list[frozenset[bool]] = Field(min_length=2, max_length=2)


class Several(BaseModel):
    least: set[int] = Field(min_length=2)


class Listed(BaseModel):
    """Says of a list what pydantic does not check."""

    once: list[bool] = Field(json_schema_extra={"uniqueItems": True})


def test_items_of_a_set_that_are_said_twice_count_once(play: Play) -> None:
    said = iter(('{"words":["tin","tin"],"pairs":[[true,true],[]]}', '{"least":[7,7]}'))

    async def script(game: Game) -> None:
        ann = game.cast(Talker, "alice")
        assert await ann.answer(Bag) == Bag(words={"tin"}, pairs=[frozenset({True}), frozenset()])
        with pytest.raises(AnswerInvalid, match="least"):
            await ann.answer(Several)

    game(play, script, FakeEngine(answer=lambda call, prompt: next(said)))


def test_a_model_with_sets_is_answered_by_a_network(play: Play, tiny: Engine) -> None:
    async def script(game: Game) -> None:
        ann = game.cast(Agent, "ann")
        bag = await ann.answer(Bag, max_tokens=40)
        assert bag.words <= {"tin", "tins"}
        with pytest.raises(RequestError, match="once/uniqueItems"):
            await ann.answer(Listed)

    async def work() -> None:
        async with Choreographer(tiny) as choreographer:
            await Game(choreographer, 0, 0, RunConfig(mode="baseline")).play(Scripted(script))

    play(work)


def test_options_of_a_call_are_its_own_and_wrong_ones_are_refused(play: Play) -> None:
    async def script(game: Game) -> None:
        a = game.cast(Talker, "alice")
        assert len((await a.say(max_tokens=1)).text.split()) == 1
        assert (await a.say(stop=("word word",))).stopped == "stop_string"
        for wrong in ({"max_tokens": 0}, {"temperature": -1}, {"tempreature": 1}, {"stop": ("",)}):
            with pytest.raises(RequestError, match="alice"):
                await a.say(**wrong)
        with pytest.raises(RequestError):
            await a.choose([])

    entries, _ = game(play, script, talker())
    assert len(spoken(entries)) == 2


class Composed(Vocabulary):
    """A tokenizer that composes letters and their accents, as many do."""

    def encode(self, text: str) -> list[int]:
        return super().encode(unicodedata.normalize("NFC", text))


def test_a_call_that_is_refused_is_no_turn(play: Play) -> None:
    """What is said after it has the same seed as without it."""

    def seeds(refused: bool) -> list[int | None]:
        found: list[int | None] = []

        def reply(call: Decode, prompt: str) -> str:
            found.append(call.sampling.seed)
            return "so"

        async def script(game: Game) -> None:
            a = game.cast(Talker, "alice")
            if refused:
                with pytest.raises(RequestError):
                    await a.say(temperature=-1)
            await a.say()

        game(play, script, FakeEngine(reply))
        return found

    assert seeds(True) == seeds(False)


def test_a_choice_is_known_however_the_tokenizer_writes_it(play: Play) -> None:
    apart = unicodedata.normalize("NFD", "Zürich")

    async def script(game: Game) -> str:
        return await game.cast(Talker, "alice").choose(["Bern", apart], opening="in ")

    engine = FakeEngine(answer=lambda call, prompt: (call.sampling.choices or ())[1])
    engine.framing.content = Composed()
    _, [over] = game(play, script, engine)
    assert over.outcome == {"value": apart}


class Sure(BaseModel):
    sure: int


def test_stop_strings_cut_no_choice_and_no_json(play: Play) -> None:
    async def script(game: Game) -> None:
        alice = game.cast(Talker, "alice")
        assert await alice.choose(["yes.", "no."], stop=(".",)) in {"yes.", "no."}
        assert isinstance(await alice.answer(Sure, stop=['"', "s"]), Sure)

    game(play, script)


def test_forced_words_that_are_no_choice_are_told() -> None:
    engine = FakeEngine()

    async def script(game: Game) -> None:
        with pytest.raises(AnswerInvalid, match="alice was forced to say"):
            await game.cast(Talker, "alice").choose(["yes", "no"])

    async def work() -> None:
        async with Choreographer(engine) as c:
            words = tuple(engine.framing.content.encode("maybe"))
            await Game(c, forced={"alice.0": words}).play(Scripted(script))

    anyio.run(work)


def test_verbs_of_one_agent_may_run_side_by_side(play: Play) -> None:
    engine = talker(3)

    async def script(game: Game) -> None:
        a = game.cast(Talker, "alice")
        await game.together(*(a.think(f"thought {number}") for number in range(4)))

    entries, _ = game(play, script, engine)
    assert sorted(m.id for m in spoken(entries)) == ["alice.1", "alice.3", "alice.5", "alice.7"]
    assert [len(batch) for batch in engine.batches[:1]] == [8]


def test_agents_that_stream_run_together_as_all_others(play: Play) -> None:
    engine = talker(4)

    async def script(game: Game) -> None:
        agents = [game.cast(Talker, name) for name in ("alice", "bob", "carol")]

        async def streams(number: int) -> None:
            for _ in range(3):
                async with agents[number].stream(max_tokens=number + 2) as pieces:
                    assert len([piece async for piece in pieces]) == number + 2

        steps = engine.steps
        await game.together(*(streams(number) for number in range(3)))
        assert engine.steps - steps == 3 * (4 + 1)

    game(play, script, engine)


def test_pieces_come_as_they_are_said_and_leaving_early_waits_for_the_end(play: Play) -> None:
    engine = talker(6)

    async def script(game: Game) -> None:
        async with game.cast(Talker, "alice").stream() as pieces:
            async for piece in pieces:
                assert piece == "word"
                assert engine.steps < 6
                break
            assert pieces.message is None
        assert pieces.message is not None
        assert len(pieces.message.text.split()) == 6

    game(play, script, engine)


def test_a_stream_raises_what_its_message_does(play: Play) -> None:
    async def script(game: Game) -> None:
        a = game.cast(Talker, "alice")
        with pytest.raises(RequestError):
            async with a.stream(max_tokens=0) as pieces:
                assert [piece async for piece in pieces] == []
        with pytest.raises(AudienceError):
            async with a.stream(to="bob") as pieces:
                pass
        with pytest.raises(CallFailed):
            async with a.stream(header="bad") as pieces:
                pass

    game(play, script, FakeEngine(faulty=lambda call: CallFailed("x") if call.header else None))


def test_an_error_while_streaming_comes_out_as_it_is_and_gives_the_message_up(play: Play) -> None:
    engine = talker(12)

    async def script(game: Game) -> None:
        a = game.cast(Talker, "alice")

        async def listens() -> None:
            async with a.stream() as pieces:
                async for _ in pieces:
                    raise LookupError("mine")

        with pytest.raises(LookupError, match="mine"):
            await listens()
        with anyio.CancelScope() as scope:
            async with a.stream() as pieces:
                async for _ in pieces:
                    scope.cancel()
        assert pieces.message is None
        assert game.said == ()

    entries, _ = game(play, script, engine)
    assert [(entry.ended, entry.message.text) for entry in entries] == [("cancelled", "word")] * 2
    assert engine.steps < 12


def test_a_message_of_known_text_is_encoded_when_first_read(play: Play) -> None:
    engine = FakeEngine()

    async def script(game: Game) -> None:
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        first = await a.tell("as I said")
        second = await a.tell("and then", to="bob", role="user")
        assert engine.steps == 0
        message = await b.say()
        assert message.parents == (first, second)
        assert game.message(first).name == "alice"
        assert game.message(second).name is None
        assert game.message(second).parents == (first,)

    game(play, script, engine)


def test_an_agent_without_a_game_says_so() -> None:
    for act in (Talker("alice").think, lambda: Talker("bob").tell("x")):
        with pytest.raises(AgentchoError, match="is not in a game"):
            anyio.run(act)


def test_events_tell_a_turn_from_its_beginning_to_its_end() -> None:
    async def script(game: Game) -> None:
        await game.cast(Talker, "alice").say(prompt="well?", header="To all: ", max_tokens=2)

    events = rehearse(script, {"alice": ["one two three"]}).events
    kinds: list[type[Event]] = [Joined, Ended, Began, FirstToken, Token, Token, Ended, GameOver]
    assert [type(event) for event in events] == kinds
    began = events[2]
    assert isinstance(began, Began)
    assert (began.id, began.author, began.header, began.audience.members) == ("alice.1", "alice", "To all: ", None)
    assert [event.text for event in events if isinstance(event, Token)] == ["one", " two"]
    assert [event.entry.message.id for event in events if isinstance(event, Ended)] == ["alice.0", "alice.1"]


def test_a_release_is_the_same_tokens_before_others_over_what_its_view_says(play: Play) -> None:
    async def script(game: Game) -> None:
        a, b = game.cast(Talker, "alice", system="be sly"), game.cast(Talker, "bob")
        said = await a.say(to=(), header="To Bob: ")
        released = await a.release(said, to="everyone", view=lambda readable: View.of([readable[0]]))
        assert released != said.id
        heard = await b.say()
        assert released in heard.parents
        assert said.id not in heard.parents
        with pytest.raises(AudienceError, match=r"alice cannot release 'bob\.0', .* let its author release it$"):
            await a.release(heard)

    entries, _ = game(play, script)
    by_id = {entry.message.id: entry.message for entry in entries}
    said, released = by_id["alice.1"], by_id["alice.2"]
    assert released.tokens[slice(*released.content)] == said.tokens[slice(*said.content)]
    assert (released.kind, released.role, released.parents) == ("prefill", "assistant", ("alice.0",))
    assert (said.audience, released.audience) == (audience("alice"), audience("everyone"))


def test_a_released_secret_is_listed_whatever_the_release_is_encoded_over(play: Play) -> None:
    async def script(game: Game) -> None:
        ann = game.cast(Talker, "ann")
        plan = await ann.think("Plan.")
        await ann.release(plan, to="everyone", view=View.of([]))

    entries, _ = game(play, script)
    report = audit_entries(subject(leakage="audit", agents=("ann",)), {0: entries}, Seal(KEY))
    assert [(release.message, release.sources) for release in report.releases] == [("ann.2", ("ann.1",))]
    assert [finding.rule for finding in report.findings] == ["AC007"]


def test_a_view_may_be_a_function_of_what_may_be_read(play: Play) -> None:
    async def script(game: Game) -> None:
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await a.say(to="everyone")
        await a.say(to=())
        seen: list[str] = []

        def last(readable: Sequence[Metadata]) -> View:
            seen.extend(m.id for m in readable)
            return View.of(readable[-1:])

        assert (await b.say(view=last)).parents == ("alice.0",)
        assert seen == ["alice.0"]
        assert await b.tell("noted", view=last)

    entries, _ = game(play, script)
    assert [e.message.parents for e in entries if e.message.author == "bob"] == [("alice.0",), ("bob.0",)]

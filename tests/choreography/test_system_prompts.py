"""Open system prompts: one message and one encoding for all agents with the same words, shown to nobody else."""

from collections.abc import Sequence
from typing import get_args

import pytest

from agentcho import Agent, Game, Metadata, View
from agentcho.config import Leakage, Mode
from agentcho.errors import AudienceError, ContextOverflow
from agentcho.message import EVERYONE, audience
from agentcho.protocol.call import DefaultPrompt
from agentcho.testing import FakeEngine

from .stage import MODES, Play, Script, Talker, game, spoken


class Judge(Talker):
    """One of several judges with the same open system prompt."""

    system = "You judge what the others say."
    open_system = True


def thinking(open_system: bool, fed: list[int]) -> Script:
    """Three judges think at once and a fourth later, over their system prompts alone; `fed` gets the encoded tokens."""

    async def script(game: Game) -> None:
        judges = [game.cast(Judge, name, open_system=open_system) for name in ("alice", "bob", "carol")]
        await game.together(*(judge.think() for judge in judges))
        await game.cast(Judge, "dora", open_system=open_system).think()
        fed.append(game._choreographer.encoded)

    return script


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("leakage", get_args(Leakage))
def test_agents_with_the_same_open_words_share_one_message_and_one_encoding(
    play: Play, mode: Mode, leakage: Leakage
) -> None:
    fed: list[int] = []
    entries, _ = game(play, thinking(True, fed), mode=mode, leakage=leakage)
    (brief,) = (e.message for e in entries if e.message.role == "system")
    assert (brief.id, brief.author, brief.audience, brief.parents) == ("scenario.0", None, EVERYONE, ())
    assert [m.parents for m in spoken(entries)] == [("scenario.0",)] * 4
    assert fed == [sum(len(e.message.tokens) for e in entries)] == [sum(e.usage.encoded for e in entries)]


def test_by_default_a_system_prompt_is_private_and_encoded_for_each(play: Play) -> None:
    fed: list[int] = []
    entries, _ = game(play, thinking(False, fed), leakage="enforce")
    prompts = {m.id: (m.author, m.audience) for m in (e.message for e in entries) if m.role == "system"}
    assert prompts == {f"{name}.0": (name, audience(name)) for name in ("alice", "bob", "carol", "dora")}
    assert fed == [sum(len(e.message.tokens) for e in entries)]
    assert Agent.open_system is False


DEFAULT = "You are a fake."


def with_default() -> FakeEngine:
    """The fake, with a chat template that writes a default system message."""
    engine = FakeEngine(lambda call, prompt: "Well.")
    words = engine.frame("system", None, DEFAULT)
    engine.framing.default = DefaultPrompt(DEFAULT, words.tokens, words.content)
    return engine


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("leakage", get_args(Leakage))
def test_agents_without_a_system_prompt_share_the_default_one(play: Play, mode: Mode, leakage: Leakage) -> None:
    async def script(game: Game) -> None:
        alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        carol = game.cast(Talker, "carol", system="Be brief.")
        assert alice.brief == bob.brief == "scenario.default" != carol.brief
        asked = await game.announce("What is it?")
        assert asked == "scenario.0"
        for agent in (alice, bob, carol):
            await agent.think()

    entries, _ = game(play, script, with_default(), mode=mode, leakage=leakage)
    (default,) = (e.message for e in entries if e.message.id == "scenario.default")
    assert (default.text, default.role, default.author, default.audience) == (DEFAULT, "system", None, EVERYONE)
    assert [m.parents for m in spoken(entries)] == [
        *([("scenario.default", "scenario.0")] * 2),
        ("carol.0", "scenario.0"),
    ]
    made = [each for e in entries for each in e.made if each.message == "scenario.default"]
    assert len(made) == 1 or mode == "baseline"
    assert {frozenset(each.cone) for each in made} == {frozenset({"scenario.default"})}


def test_what_others_read_of_words_does_not_tell_who_has_a_system_prompt_of_its_own(play: Play) -> None:
    """Only its author's encoding is made over the default prompt, and no view is shown that it was read."""
    shown: list[tuple[str, tuple[str, ...]]] = []

    class Looks(Talker):
        def view(self, readable: Sequence[Metadata]) -> View:
            shown.extend((each.id, each.parents) for each in readable if each.author == "alice")
            return super().view(readable)

    def played(system: str | None) -> list[tuple[str, object]]:
        async def script(game: Game) -> None:
            alice, bob = game.cast(Talker, "alice", system=system), game.cast(Looks, "bob")
            await game.announce("What is it?")
            await alice.say(to="everyone")
            await bob.think()

        entries, _ = game(play, script, with_default(), leakage="enforce")
        made = [
            each for e in entries for each in e.made if each.recipe == "audience" and each.message.startswith("alice")
        ]
        return [(each.message, [piece.length for piece in each.receipt.context]) for each in made]

    own, none = played("Be brief."), played(None)
    assert [context for _, context in own] == [context for _, context in none]
    assert len(own) == 1
    assert [parents for _, parents in shown] == [("scenario.0",)] * len(shown)
    assert shown


@pytest.mark.parametrize("mode", MODES)
def test_a_system_message_that_is_no_system_prompt_has_the_frame_of_later_ones(play: Play, mode: Mode) -> None:
    engine = FakeEngine(lambda call, prompt: "Well.")
    first = engine.framing.opening("system", None)
    engine.framing.later = later = (*first, *engine.framing.content.encode("later"))

    async def script(game: Game) -> None:
        alice = game.cast(Talker, "alice", system="Be brief.")
        await game.announce("Be nice.", role="system")
        await alice.think()

    entries, _ = game(play, script, engine, mode=mode)
    opened = {m.id: m.tokens[: m.content[0]] for m in (e.message for e in entries) if m.role == "system"}
    assert opened == {"alice.0": first, "scenario.0": later}
    (said,) = (e for e in entries if e.message.role == "assistant")
    assert said.own is not None
    assert [piece.length for piece in said.own.receipt.context] == [len(first) + 3, len(later) + 3]


def test_the_default_prompt_can_be_left_out(play: Play) -> None:
    async def script(game: Game) -> None:
        assert game.cast(Talker, "alice").brief is None
        await game.agents["alice"].think()

    entries, _ = game(play, script, with_default(), default_prompt="drop")
    assert [e.message.role for e in entries] == ["assistant"]


def test_it_comes_first_and_no_other_agent_nor_its_view_is_shown_it(play: Play) -> None:
    shown: dict[str, list[str]] = {}

    class Watching(Judge):
        """Records what its view is shown."""

        def view(self, readable: Sequence[Metadata]) -> View:
            shown[self.name] = [m.id for m in readable]
            return super().view(readable)

    class Following(Talker):
        """Reads what it hears, and the parents of that."""

        def view(self, readable: Sequence[Metadata]) -> View:
            shown[self.name] = [m.id for m in readable]
            return View.of(dict.fromkeys(id for m in readable for id in (*m.parents, m.id)))

    async def script(game: Game) -> None:
        await game.announce("the rules", role="system")
        alice, other = game.cast(Watching, "alice"), game.cast(Judge, "bob", system="You judge all else.")
        carol, dora = game.cast(Talker, "carol"), game.cast(Following, "dora")
        assert (alice.brief, other.brief, carol.brief) == ("scenario.1", "scenario.2", None)
        for agent in (alice, other, carol, dora):
            await agent.say()
        assert [m.id for m in game.said[:3]] == ["scenario.0", "scenario.1", "scenario.2"]

    entries, _ = game(play, script)
    talk = ("scenario.0", "alice.0", "bob.0", "carol.0")
    assert [m.parents for m in spoken(entries)] == [
        ("scenario.1", "scenario.0"),
        ("scenario.2", *talk[:2]),
        talk[:3],
        talk,
    ]
    assert shown["alice"] == ["scenario.0", "scenario.1"]
    assert shown["dora"] == list(talk)


@pytest.mark.parametrize("leakage", get_args(Leakage))
def test_a_view_that_names_anothers_is_refused_and_told_why(play: Play, leakage: Leakage) -> None:
    async def script(game: Game) -> None:
        alice, bob = game.cast(Judge, "alice"), game.cast(Talker, "bob", system="You are Bob.")
        await game.announce("the rules")
        why = (
            r"bob's view names 'scenario\.0', which is the system prompt of other "
            r"agents; it may read: bob\.0, scenario\.1\."
        )
        with pytest.raises(AudienceError, match=why):
            await bob.say(view=View.of([alice.brief, "scenario.1"]))
        assert (await bob.say(view=View.of([bob.brief, "scenario.1"]))).parents == ("bob.0", "scenario.1")

    game(play, script, leakage=leakage)


def test_who_joins_in_a_round_reads_its_own_there_and_shares_what_was_out_before(play: Play) -> None:
    async def script(game: Game) -> None:
        game.cast(Judge, "alice")

        async def joins(name: str, system: str) -> None:
            await game.cast(Judge, name, system=system).say()

        await game.together(
            joins("bob", "New."), joins("carol", "New."), joins("dora", Judge.system), joins("eve", "New.")
        )
        await game.cast(Judge, "fay", system="New.").think()

    entries, _ = game(play, script, leakage="enforce")
    first = {m.author: m.parents[0] for m in spoken(entries)}
    assert first["dora"] == "scenario.0"
    assert len({first[name] for name in ("bob", "carol", "dora", "eve")}) == 4
    assert first["fay"] == first["bob"]


def test_an_agent_has_no_brief_before_it_is_cast_and_cannot_be_given_one() -> None:
    assert Judge("alice").brief is None
    with pytest.raises(AttributeError, match="brief"):
        Judge("alice", brief="argue")


@pytest.mark.parametrize("open_system", [False, True])
def test_who_cannot_have_its_system_prompt_has_no_seat(play: Play, open_system: bool) -> None:
    async def script(game: Game) -> list[str]:
        with pytest.raises(ContextOverflow):
            game.cast(Judge, "alice", system="word " * 99, open_system=open_system)
        assert (list(game.agents), list(game.said)) == ([], [])
        alice = game.cast(Judge, "alice", open_system=open_system)
        assert alice.brief is not None
        await alice.say(max_tokens=3)
        return [message.id for message in game.said]

    _, [over] = game(play, script, FakeEngine(context=80))
    assert over.outcome == {"value": ["scenario.0", "alice.0"] if open_system else ["alice.0", "alice.1"]}

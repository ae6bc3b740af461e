"""Views and policies: what is read, in which order, at which positions, and what is refused."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcho import After, Game, Metadata, Read, View
from agentcho.config import Leakage
from agentcho.errors import LeakageError, RequestError
from agentcho.provenance.views import Place
from agentcho.records.transcript import own_records
from agentcho.testing import FakeEngine

from .stage import MODES, Play, Talker, game, spoken

REFUSING: tuple[Leakage, ...] = ("enforce", "deny")


class Nosy(Talker):
    """Reads what it may not."""

    def view(self, readable: Sequence[Metadata]) -> View:
        return View.of(["alice.0"])


def test_a_direct_leak_is_recorded_under_audit_and_refused_else(play: Play) -> None:
    async def script(game: Game) -> None:
        await game.cast(Talker, "alice").think()
        await game.cast(Nosy, "bob").say(prompt="well?")

    for mode in MODES:
        entries, _ = game(play, script, mode=mode)
        assert [entry.direct for entry in entries] == [(), ("alice.0",), ("alice.0",)]
    for leakage in REFUSING:
        engine = FakeEngine()
        with pytest.raises(LeakageError, match=r"bob may not read message alice\.0"):
            game(play, script, engine, mode="baseline", leakage=leakage)
        assert all(len(batch) == 1 for batch in engine.batches), "nothing of it was computed"


def test_views_see_metadata_and_never_words(play: Play) -> None:
    seen: list[Metadata] = []

    class Looking(Talker):
        def view(self, readable: Sequence[Metadata]) -> View:
            seen.extend(readable)
            return super().view(readable)

    async def script(game: Game) -> None:
        a = game.cast(Looking, "alice")
        await game.announce("secret words")
        await a.say(prompt="well?")
        await a.tell("so")

    entries, _ = game(play, script)
    assert [m.id for m in seen] == ["scenario.0", "scenario.0", "alice.0", "alice.1"]
    assert {type(m) for m in seen} == {Metadata}
    assert Metadata._fields == ("id", "kind", "role", "author", "audience", "parents")
    assert spoken(entries)[0].parents == ("scenario.0", "alice.0")


def test_a_view_is_told_of_no_parent_that_a_messages_readers_may_not_read(play: Play) -> None:
    """Otherwise a view could depend on what another agent thought in private."""
    told: list[tuple[str, ...]] = []

    def look(readable: Sequence[Metadata]) -> View:
        told.append(next(m.parents for m in readable if m.id == "alice.1"))
        return View.of(readable)

    async def script(game: Game) -> None:
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await a.think()
        await a.say()
        for agent in (b, a):
            await agent.say(view=look)

    game(play, script)
    assert told == [(), ("alice.0",)]


def test_the_view_of_a_call_wins_over_the_agents_own(play: Play) -> None:
    async def script(game: Game) -> None:
        a = game.cast(Talker, "alice", system="Be brief.")
        await game.announce("one")
        await game.announce("two")
        await a.say(view=View.of(["scenario.1", "alice.0"]))
        await a.say(view=View(()))

    entries, _ = game(play, script)
    assert [m.parents for m in spoken(entries)] == [("scenario.1", "alice.0"), ()]


# -- positions ---------------------------------------------------------------------------------------------

TEXTS = ("one", "two words", "and three words", "", "here are quite a few more words")
NAMES = [f"scenario.{number}" for number in range(len(TEXTS))]


@st.composite
def views(draw: st.DrawFn) -> View:
    """Messages in any order, each placed in one of the four ways, never below position 0."""
    ids = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))

    def place(before: Sequence[str]) -> Place:
        after = st.builds(After, st.sampled_from(before), st.integers(-1, 40)) if before else st.none()
        return draw(st.one_of(st.none(), st.integers(0, 300), after, st.just("rightmost")))

    return View(tuple(Read(id, place(ids[:n])) for n, id in enumerate(ids)), place(ids))


def expected(view: View, lengths: dict[str, int], bos: bool) -> list[int]:
    """The start positions of a view's messages and of the new one, computed naively."""
    ends: dict[str, int] = {}
    starts: list[int] = []
    end = 1 if bos else 0
    for id, at, _ in [*view.reads, Read("new", view.new_at)]:
        match at:
            case None:
                starts.append(end)
            case int():
                starts.append(at)
            case After():
                starts.append(ends[at.id] + at.plus)
            case "rightmost":
                starts.append(max([1 if bos else 0, *ends.values()]))
        end = ends[id] = starts[-1] + lengths.get(id, 0)
    return starts


@settings(max_examples=60, deadline=None)
@given(view=views(), bos=st.booleans(), told=st.booleans(), prompt=st.sampled_from([None, "well?"]))
def test_gaps_overlaps_and_reorderings_land_where_the_view_says(
    view: View, bos: bool, told: bool, prompt: str | None
) -> None:
    class Placing(Talker):
        def view(self, readable: Sequence[Metadata]) -> View:
            return view

    async def script(game: Game) -> None:
        for text in TEXTS:
            await game.announce(text)
        a = game.cast(Placing, "alice")
        if told:
            await a.say(view=View.of([await a.tell("as known text")]))
        else:
            await a.say(prompt=prompt)

    entries, _ = game(lambda work: anyio.run(work), script, FakeEngine(bos=bos))
    lengths = {e.message.id: len(e.message.tokens) for e in entries}
    mine = next(e for e in entries if e.message.author == "alice")
    receipt = own_records(entries)[mine.message.id].receipt
    assert [*(entry.offset for entry in receipt.context), receipt.start] == expected(view, lengths, bos)
    assert [read.id for read in view.reads] == list(mine.message.parents)
    if prompt and not told:
        last = own_records(entries)["alice.1"].receipt
        assert last.start == receipt.start + lengths["alice.0"]


@pytest.mark.parametrize("after", ["scenario.1", "nobody.0"])
def test_a_place_after_what_does_not_stand_before_is_refused(play: Play, after: str) -> None:
    async def script(game: Game) -> None:
        a = game.cast(Talker, "alice")
        await game.announce("one")
        await game.announce("two")
        with pytest.raises(RequestError, match=after):
            await a.say(view=View((Read("scenario.0", After(after)), Read("scenario.1"))))
        with pytest.raises(RequestError, match="-3"):
            await a.say(view=View((Read("scenario.0", -3),)))

    game(play, script)


def test_the_baseline_records_offsets_and_ignores_them(play: Play) -> None:
    def offsets(mode: Any) -> tuple[Any, ...]:
        async def script(game: Game) -> None:
            await game.announce("one")
            await game.announce("two")
            a = game.cast(Talker, "alice")
            await a.say(view=View((Read("scenario.1", 40), Read("scenario.0")), 90))

        entries, _ = game(play, script, mode=mode)
        message, receipt = spoken(entries)[0], entries[-1].made[-1].receipt
        assert (message.offsets, message.new_offset) == ((40, None), 90)
        return (*(entry.offset for entry in receipt.context), receipt.start)

    length = len(FakeEngine().framing.opening("user", None)) + 2
    assert offsets("choreographed") == (40, 40 + length, 90)
    assert offsets("baseline") == (1, 1 + length, 1 + 2 * length)


def test_views_of_the_last_and_of_roles(play: Play) -> None:
    class Forgetful(Talker):
        system = "Be brief."

        def view(self, readable: Sequence[Metadata]) -> View:
            return View.last(readable, 2, keep=[self.brief])

    class Ruled(Talker):
        def view(self, readable: Sequence[Metadata]) -> View:
            return View.of_roles(readable, "system", "user")

    async def script(game: Game) -> None:
        ann, bob = game.cast(Forgetful, "ann"), game.cast(Ruled, "bob")
        await game.announce("The rules.")
        for _ in range(2):
            await ann.say()
            await bob.say()

    entries, _ = game(play, script)
    assert {m.id: m.parents for m in spoken(entries)} == {
        "ann.1": ("ann.0", "scenario.0"),
        "bob.0": ("scenario.0",),
        "ann.2": ("ann.0", "ann.1", "bob.0"),
        "bob.1": ("scenario.0",),
    }


def test_what_is_no_view_of_the_last_or_of_roles_is_told() -> None:
    assert View.last([], 3) == View(())
    assert View.last([], 0, keep=[None]) == View(())
    for wrong in (-1, True, 1.5):
        with pytest.raises(RequestError, match="the number of messages"):
            View.last([], wrong)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="unknown role 'human'"):
        View.of_roles([], "human")  # type: ignore[arg-type]

"""What a view is shown if audiences alone decide: the same as with a full scan, in no more work than the view needs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from agentcho import Agent, View
from agentcho.games.play.game import Game
from agentcho.message import EVERYONE, Audience, Metadata, audience
from agentcho.provenance.readable_messages import ReadableMessages
from agentcho.provenance.views import History, MessageLog, shown_to
from agentcho.testing import play

NAMES = ["ann", "ben", "cat", "dan"]


def talk(count: int, seed: int) -> list[Metadata]:
    """Messages of random authors to random audiences, over random earlier messages."""
    dice, out = random.Random(seed), list[Metadata]()
    for number in range(count):
        author = dice.choice([None, *NAMES])
        among = frozenset(dice.sample(NAMES, dice.randint(1, 3))) | ({author} if author else frozenset())
        whom = EVERYONE if dice.random() < 0.4 else Audience(among)
        parents = tuple(m.id for m in dice.sample(out, min(len(out), 3)))
        out.append(Metadata(f"m{number}", "decode", "assistant", author, whom, parents))
    return out


def gone_through(agent: str, said: Sequence[Metadata], sees: Callable[[str], bool]) -> list[Metadata]:
    """The oracle: scans everything."""
    seen = [m for m in said if sees(m.id)]
    known = {m.id: m for m in seen}
    return [shown_to(agent, m, known.get) for m in seen if m.audience.includes(agent)]


@pytest.mark.parametrize("seed", range(4))
def test_a_view_is_shown_the_same_as_by_going_through_everything(seed: int) -> None:
    out, branch = talk(60, seed), talk(80, seed)[60:]
    said = History(MessageLog(branch), after=History(MessageLog(out[:25]), MessageLog(out[25:])))

    def sees(id: str) -> bool:
        return not id.endswith("7")

    for agent in NAMES:
        slow = gone_through(agent, [*out, *branch], sees)
        for count in (1, 3, 8, len(slow), len(slow) + 5):
            assert ReadableMessages(agent, said, sees)[-count:] == slow[-count:]
            fast = View.last(ReadableMessages(agent, said, sees), count, keep=["m3", None])
            assert fast == View.last(slow, count, keep=["m3", None])
        assert ReadableMessages(agent, said, sees) == slow
        assert [*reversed(ReadableMessages(agent, said, sees))] == slow[::-1]
        mixed = ReadableMessages(agent, said, sees)
        assert (mixed[-2], mixed[0], mixed[1:-1:2], len(mixed)) == (slow[-2], slow[0], slow[1:-1:2], len(slow))
        assert [*mixed] == slow
        for tail in (
            slice(-3, None),
            slice(-4, None, 2),
            slice(-2, None, -1),
            slice(None, None, -1),
            slice(-1, -4, -2),
        ):
            assert ReadableMessages(agent, said, sees)[tail] == slow[tail]
        assert hash(mixed) == hash(tuple(slow))


def test_what_is_not_there_is_no_message() -> None:
    nothing = ReadableMessages("ann", History(), lambda id: True)
    assert (len(nothing), nothing[-3:], [*nothing]) == (0, [], [])
    with pytest.raises(IndexError):
        nothing[-1]
    assert View.last(nothing, 8, keep=[None]) == View(())
    assert View.last(iter(talk(5, 1)), 2) == View.of(["m3", "m4"])


def test_what_comes_out_later_is_not_shown() -> None:
    log = MessageLog(talk(20, 1))
    before = History(log)
    shown = ReadableMessages("ann", before, lambda id: True)
    expected = gone_through("ann", [*before], lambda id: True)
    log.add(Metadata("later", "decode", "assistant", "ben", EVERYONE, ()))
    log.add(Metadata("later still", "decode", "assistant", "ben", audience("ann"), ()))
    assert shown == expected
    assert ReadableMessages("ann", before, lambda id: True)[-1] == expected[-1]


class Counted(Agent):
    """Reads the last four messages that it may read."""

    def view(self, readable: Sequence[Metadata]) -> View:
        return View.last(readable, 4, keep=[self.brief])


def looked_at(monkeypatch: pytest.MonkeyPatch, before: int) -> int:
    """The number of audience checks for one more message after `before` messages."""
    looked = 0
    covers, includes = Audience.covers, Audience.includes

    def counted(real: Callable[..., bool]) -> Callable[..., bool]:
        def count(self: Audience, other: object) -> bool:
            nonlocal looked
            looked += 1
            return real(self, other)

        return count

    async def script(game: Game) -> int:
        cast = [game.cast(Counted(f"a{number}", system="speak")) for number in range(before // 4)]
        for number in range(before):
            await game.announce("listen", to="everyone" if number % 2 else cast[number % 4].name)
        with monkeypatch.context() as patched:
            patched.setattr(Audience, "covers", counted(covers))
            patched.setattr(Audience, "includes", counted(includes))
            await cast[0].say(to=["a0", "a1"], max_tokens=1)
        return looked

    outcome = play(script).over.outcome
    assert outcome
    return int(outcome["value"])


def test_a_turn_looks_at_no_more_messages_in_a_longer_game_of_more_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looked_at(monkeypatch, 40) == looked_at(monkeypatch, 160) > 0


class Cast(dict[str, Agent]):
    """A cast that must not be iterated over."""

    def __iter__(self) -> object:  # type: ignore[override]
        pytest.fail("the whole cast was looked at")


def test_of_a_large_cast_only_who_is_named_is_looked_at() -> None:
    assert audience(["ann", "ben"], Cast.fromkeys(NAMES, Agent("any"))).members == frozenset({"ann", "ben"})

"""Other secrets for a game: what their owner said in the same place of another game.

Messages that are the same in every game are no secret and stay, unless nothing else reaches what the reader reads; then
their ids are shuffled. Independent of encodings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from agentcho.audit.measurement import Swap
from agentcho.lab.measure.play import Ids, Line, Pair, Play, slots, through_to

Secrets = dict[str, Ids]
"""New content ids by message id."""


def fitted(donor: Ids, length: int) -> Ids:
    """The ids cut, or repeated from their beginning, to `length`; empty if there are none."""
    if not donor:
        return ()
    return (donor * (length // len(donor) + 1))[:length]


def lengthened(donor: Ids, length: int) -> Ids:
    """The ids unchanged, or with their first half repeated if they would be exactly `length` long."""
    return donor if len(donor) != length else (*donor, *donor[: max(1, len(donor) // 2)])


def donor_order(game: int, games: int, seed: int) -> list[int]:
    """The other games, in an order that differs for each game."""
    rng = np.random.default_rng((seed, game))
    return [int(other) for other in rng.permutation(games) if other != game]


def swapped(plays: Sequence[Play], game: int, pair: Pair, swap: Swap, seed: int) -> Secrets:
    """Other words for all that `pair.owner` hides from `pair.reader` in a game; see `reworded`."""
    play = plays[game]
    hidden = play.hidden(pair.owner, pair.reader)
    return reworded(plays=plays, game=game, hidden=hidden, through=through_to(play, pair), swap=swap, seed=seed)


def reworded(
    plays: Sequence[Play], game: int, hidden: Iterable[Line], through: Collection[str], swap: Swap, seed: int
) -> Secrets:
    """Other words for these messages of a game: those of the first other game, in a seeded order, that differ in a
    message of `through`, or in any if `through` is empty. If there is none, the messages' own ids are shuffled. Empty:
    nothing to change."""
    play, lines = plays[game], {line.message.id: line for line in hidden}
    said = {id: line.content for id, line in lines.items()}
    told = set(through) or said.keys()
    for other in donor_order(game, len(plays), seed):
        found = fit(borrowed(play, plays[other], said), said, swap)
        if found.keys() & told:
            return found
    return _shuffled([lines[id] for id in lines if id in told], swap, np.random.default_rng((seed, game, 1)))


def borrowed(play: Play, donor: Play, hidden: Secrets) -> Secrets:
    """The donor's content in the slots of `hidden`, where it has a message."""
    theirs = slots(donor)
    places = {line.message.id: slot for slot, line in slots(play).items() if line.message.id in hidden}
    return {id: theirs[slot].content for id, slot in places.items() if slot in theirs}


def fit(words: Secrets, hidden: Secrets, swap: Swap) -> Secrets:
    """Those of `words` that differ from what was said, at the same length or at another one."""
    shaped = fitted if swap == "same-length" else lengthened
    other = {id: shaped(ids, len(hidden[id])) for id, ids in words.items() if ids != hidden[id] and ids}
    return {id: ids for id, ids in other.items() if ids != hidden[id]}


def _shuffled(hidden: Sequence[Line], swap: Swap, rng: np.random.Generator) -> Secrets:
    """The same ids in another order; headers stay in place."""
    said = {line.message.id: line.content for line in hidden if len(line.content) - line.headed > 1}
    mixed: Secrets = {}
    for id, headed in ((line.message.id, line.headed) for line in hidden if line.message.id in said):
        own = said[id][headed:]
        other = tuple(int(token) for token in rng.permutation(own))
        mixed[id] = (*said[id][:headed], *(other if other != own else own[::-1]))
    return fit(mixed, said, swap)

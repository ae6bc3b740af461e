"""The paper's ablation (its Figure 8) and prediction variant (Table 7): what readers decide when the owner's public
words were encoded over less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from agentcho.audit.measurement import Ablation
from agentcho.lab.measure.arms import Experiment, Original, RowsByMessage
from agentcho.lab.measure.decisions import Question
from agentcho.lab.measure.differential import Flips, flips
from agentcho.lab.measure.play import Line, Pair, Play
from agentcho.lab.stats import clopper_pearson, holm

Seen = Literal["all", "system", "plan", "public"]
Outcome = Literal["decision", "prediction"]
SEEN: tuple[Seen, ...] = ("all", "system", "plan", "public")
HEADERS: dict[Outcome, str] = {"decision": "", "prediction": '"prediction"'}


class Answered(NamedTuple):
    """One game: the reader's answer when the owner's words attended to `seen`. `asked` names the choices."""

    pair: Pair
    outcome: Outcome
    seen: Seen
    asked: Question
    token: int


def seeing(play: Play, pair: Pair, seen: Seen) -> Play:
    """The game with the owner's words encoded without the messages that it hides from the reader, except its private
    system prompt ("system") or its private thoughts ("plan"). A plan that is kept is itself encoded without the system
    prompt, so that only the plan comes through it."""
    if seen == "all":
        return play
    hidden = {line.message.id: line for line in play.hidden(pair.owner, pair.reader)}
    kept = {id for id, line in hidden.items() if _kept(line, seen)}
    gone = hidden.keys() - kept
    return play._replace(lines=tuple(_without(line, gone, pair.owner) for line in play.lines))


def _kept(line: Line, seen: Seen) -> bool:
    if seen == "system":
        return line.message.role == "system"
    return seen == "plan" and line.message.kind == "decode"


def _without(line: Line, gone: set[str], owner: str) -> Line:
    if line.message.author != owner or not gone & set(line.message.parents):
        return line
    return line.reading(id for id in line.message.parents if id not in gone)


def answered(
    experiment: Experiment, game: int, pair: Pair, before: Original, asked: dict[Outcome, Question]
) -> Iterator[Answered]:
    """The reader's answers in one game, by what the owner's words attended to. "all" is what was reused, "public" what
    enforcement reads. Questions without known choices are left out."""
    known = {outcome: one for outcome, one in asked.items() if one.tokens}
    if not known or not experiment.plays[game].hidden(pair.owner, pair.reader):
        return
    for seen in SEEN:
        rows = _rows(
            experiment=experiment,
            game=game,
            pair=pair,
            before=before,
            seen=seen,
            ids=[one.id for one in known.values()],
        )
        for outcome, one in known.items() if rows is not None else ():
            yield Answered(
                pair=pair,
                outcome=outcome,
                seen=seen,
                asked=one,
                token=one.answer(rows[one.id]) if rows is not None else 0,
            )


def _rows(
    experiment: Experiment, game: int, pair: Pair, before: Original, seen: Seen, ids: Sequence[str]
) -> RowsByMessage | None:
    if seen == "all":
        return before.reuse
    if seen == "public":
        return before.enforce
    play = seeing(experiment.plays[game], pair, seen)
    known = play.by_id
    return experiment.said(play, experiment.policies.reuse, [known[id] for id in dict.fromkeys(ids)])


def ablations(found: Sequence[Sequence[Answered]]) -> tuple[Ablation, ...]:
    """The rates over all games; each item of `found` is one game and pair. Only games that could be encoded in every
    variant count, so that the pairs of McNemar's test are complete. Holm's correction runs over all variants of one
    outcome."""
    whole = [game for game in found if game and _is_whole(game)]
    drafts = [draft for outcome in HEADERS for draft in _adjusted(list(_drafts(whole, outcome)))]
    return tuple(drafts)


def _is_whole(game: Sequence[Answered]) -> bool:
    return {a.seen for a in game} == set(SEEN)


def _drafts(games: Sequence[Sequence[Answered]], outcome: Outcome) -> Iterator[Ablation]:
    for pair in sorted({a.pair for game in games for a in game}):
        own = [[a for a in game if a.pair == pair and a.outcome == outcome] for game in games]
        for choice in _choices([a for game in own for a in game]):
            for seen in SEEN:
                yield _rate(
                    pair=pair,
                    outcome=outcome,
                    choice=choice,
                    seen=seen,
                    games=[{a.seen: a for a in game} for game in own if game],
                )


def _choices(answers: Sequence[Answered]) -> tuple[str, ...]:
    """The choices to report: only the first of two, because the second's rate follows from it."""
    names = tuple(dict.fromkeys(name for a in answers for name in a.asked.names))
    return names[:1] if len(names) == 2 else names


def _rate(pair: Pair, outcome: Outcome, choice: str, seen: Seen, games: Sequence[dict[Seen, Answered]]) -> Ablation:
    chose = [{key: int(a.asked.name(a.token) == choice) for key, a in game.items()} for game in games]
    count = sum(game[seen] for game in chose)
    turned: Flips = flips([game["all"] for game in chose], [game[seen] for game in chose], 1)
    return Ablation(
        reader=pair.reader,
        owner=pair.owner,
        seen=seen,
        outcome=outcome,
        choice=choice,
        games=len(chose),
        count=count,
        rate=count / len(chose),
        interval=clopper_pearson(count, len(chose)),
        flips=turned.flips,
        mcnemar_p=turned.p,
        holm_p=turned.p,
    )


def _adjusted(drafts: list[Ablation]) -> list[Ablation]:
    """Holm's p over all variants except "all", which is compared with itself."""
    places = [place for place, draft in enumerate(drafts) if draft.seen != "all"]
    for place, p in zip(places, holm([drafts[place].mcnemar_p for place in places]), strict=True):
        drafts[place] = drafts[place].model_copy(update={"holm_p": p})
    return drafts

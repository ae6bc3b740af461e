"""Measures how one agent's private messages change another agent's decision while all public words stay the same.

Each conversation is read with its own private messages and with those of conversations in which the owner had another
strategy. With a result file, answers are saved after each conversation. Independent of command lines and tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from agentcho.config import ReusePolicy
from agentcho.errors import ConfigError
from agentcho.lab.measure.ablation import seeing
from agentcho.lab.measure.play import WORD, Line, MeasuredPort, Pair, Play, Slot, of_workflow, slots
from agentcho.lab.measure.stage import UNENCODABLE, Stage, why_not
from agentcho.lab.partial import PartialData, PartialResult
from agentcho.lab.reading.fidelity import BASELINE, Conversation
from agentcho.lab.reading.result import Answer, Effect, Estimate, Exchange
from agentcho.lab.stats import resampled
from agentcho.records.trace import TraceMessage, Workflow
from agentcho.records.trace import workflow as traced

TOLD = "baseline, told"
"""The positive control: the owner's hidden thoughts are in the reader's own prompt, before the owner's first public
message."""
FEW, MOST = range(2, 5), 0.9
FREE = "none"
"""The strategy of an owner for whom none is recorded."""
Behind = Literal["system", "plan"]
BEHIND: Mapping[Behind, str] = {"system": "system prompt alone", "plan": "plan alone"}
"""The paper's Figure 8: what the owner's words are encoded over for the reader, besides the talk."""
DECISION, GUESS = "decision", "prediction"
"""The questions: the reader's own decision, and its prediction of the owner's."""
QUESTION = "Before you decide: what do you think {owner} will decide, {choices}?"


class Way(NamedTuple):
    """How the reader's prompt is made: by a reuse policy on an engine. `behind`: the owner's public words are encoded
    over less than they were (Figure 8). `told`: the owner's private thoughts are put into the prompt itself."""

    policy: ReusePolicy
    engine: MeasuredPort
    behind: Behind | None = None
    told: bool = False

    @property
    def exchanged(self) -> bool:
        """Whether private messages of other conversations are tried. The baseline's prompt has none to exchange."""
        return self.behind is None and (self.policy.mode != BASELINE or self.told)


def ways(columns: Mapping[str, tuple[ReusePolicy, MeasuredPort]], behind: bool) -> dict[str, Way]:
    """The modes of named columns, with the control after the baseline; `behind`: also the first choreographed one with
    the owner's words encoded over less."""
    found = dict[str, Way]()
    for name, (policy, engine) in columns.items():
        found[name] = Way(policy._replace(shadow="never"), engine)
        if name == BASELINE:
            found[TOLD] = found[name]._replace(told=True)
    plain = next((name for name, way in found.items() if way.policy.mode != BASELINE), None)
    if plain is not None and behind:
        found |= {f"{plain}, {called}": found[plain]._replace(behind=kind) for kind, called in BEHIND.items()}
    return found


class DecisionsPart(PartialData):
    """The content of the file: the answers in each conversation, and what could not be read."""

    format: Literal["agentcho-bench-decisions-part/1"] = "agentcho-bench-decisions-part/1"
    answers: dict[str, list[Answer]] = Field(default_factory=dict)
    left_out: Counter[str] = Field(default_factory=Counter)


class PartialDecisions(PartialResult[DecisionsPart]):
    """The partial results."""

    data_type = DecisionsPart
    by = "`agentcho bench decisions`"

    def add(self, name: str, answers: Sequence[Answer], left_out: Counter[str]) -> None:
        """Save the answers of one conversation."""
        self.data.answers[name] = list(answers)
        self.data.left_out.update(left_out)
        self.save()


class Game(NamedTuple):
    """One conversation as it is read: what its owner was told, and by question the messages in which the reader says
    each of the choices."""

    conversation: Conversation
    play: Play
    told: str
    asked: Mapping[str, tuple[str, ...]]

    @property
    def name(self) -> str:
        """Its set, and its name in the set."""
        return f"{self.conversation.subject}/{self.conversation.id}"


def said_choices(conversations: Sequence[Conversation], reader: str) -> tuple[str, ...]:
    """The words that the reader's last answers consist of, in alphabetical order, each in its most frequent spelling.
    `ConfigError`: the conversations do not end with such answers."""
    words = _last_words(conversations, reader)
    found = spelled(conversations, reader, sorted({each[0].upper() for each in words if len(each) == 1}))
    if len(found) not in FEW or not words or sum(len(each) == 1 for each in words) < MOST * len(conversations):
        agents = sorted({m.author for each in conversations for m in each.workflow.messages if m.author is not None})
        needed = "its last answer must be a single word, one of two to four"
        advice = f"choose another --reader ({', '.join(agents)}), or pass the words with --choices"
        raise ConfigError(f"the decisions of {reader} cannot be measured: {needed}; {advice}")
    return found


def spelled(conversations: Sequence[Conversation], reader: str, words: Iterable[str]) -> tuple[str, ...]:
    """Each of these words as the reader's last answers spell it most often; one that is in none of them as it is."""
    said = Counter(each[0] for each in _last_words(conversations, reader) if len(each) == 1)
    usual = {word.upper(): word for word, _ in sorted(said.items(), key=lambda item: (item[1], item[0]))}
    return tuple(usual.get(word.upper(), word) for word in words)


def _last_words(conversations: Sequence[Conversation], reader: str) -> list[list[str]]:
    """The words of the reader's last answer in each conversation that has one."""
    said = [_last(each.workflow, reader) for each in conversations]
    return [WORD.findall(each.text) for each in said if each is not None]


def games(conversations: Sequence[Conversation], engine: MeasuredPort, pair: Pair, words: Sequence[str]) -> list[Game]:
    """The conversations that end with the reader's choice between these words. `ConfigError`: there are none, or the
    owner hides nothing in them."""
    found = list[Game]()
    for number, each in enumerate(conversations):
        last = _last(each.workflow, pair.reader)
        if last is not None and [word.upper() for word in WORD.findall(last.text)] in [
            [word.upper()] for word in words
        ]:
            whole, asked = _asking(each.workflow, last, pair, words)
            found.append(Game(each, of_workflow(whole, engine, number), _told(each.workflow), asked))
    if not found:
        raise ConfigError(f"no conversation ends with {pair.reader} answering {' or '.join(words)}; check --choices")
    if not any(each.play.hidden(pair.owner, pair.reader) for each in found):
        raise ConfigError(f"{pair.owner} has no message that {pair.reader} may not read; choose another --owner")
    return found


def _last(workflow: Workflow, reader: str) -> TraceMessage | None:
    said = (each for each in reversed(workflow.messages) if each.author == reader and each.kind == "decode")
    return next(said, None)


def _told(workflow: Workflow) -> str:
    """What the owner was told, by the option or metadata named `strategy`."""
    options = workflow.meta.get("options")
    kind = workflow.meta.get("strategy", options.get("strategy") if isinstance(options, Mapping) else None)
    return FREE if kind is None else str(kind).replace("_", "-")


def _asking(
    workflow: Workflow, last: TraceMessage, pair: Pair, words: Sequence[str]
) -> tuple[Workflow, dict[str, tuple[str, ...]]]:
    """The conversation with each choice said in place of the last answer. If that answers the question for a decision,
    it has one form in all conversations, and the question for a prediction is added."""
    messages = [each.to_json() for each in workflow.messages]
    own = {each.id: each for each in workflow.messages}
    asks = [own[id] for id in last.parents[-1:] if own[id].kind == "prefill" and own[id].author == pair.reader]
    prompts: dict[str, str] = {DECISION: last.parents[-1]} if last.parents else {}
    formed = f'"{DECISION}"' in (last.header or "")
    if formed and asks:
        guess = _fresh(asks[0], id=f"{asks[0].id}.{GUESS}", text=_question(pair.owner, words))
        messages.append(guess)
        prompts[GUESS] = guess["id"]
    found = dict[str, tuple[str, ...]]()
    for name, prompt in prompts.items():
        for word in words:
            form = {"header": f'{{"{name}": "', "text": f'{word}"}}'} if formed else {"text": WORD.sub(word, last.text)}
            messages.append(_fresh(last, id=f"{last.id}.{name}.{word}", parents=[*last.parents[:-1], prompt], **form))
        found[name] = tuple(f"{last.id}.{name}.{word}" for word in words)
    return traced({**workflow.to_json(), "messages": messages}), found


def _question(owner: str, words: Sequence[str]) -> str:
    *others, last = words
    return QUESTION.format(owner=owner.capitalize(), choices=f"{', '.join(others)} or {last}")


def _fresh(message: TraceMessage, **changes: Any) -> dict[str, Any]:
    """A message with other words, without the fields that belong to its old ones."""
    old = {"offsets", "new_offset", "tokens", "tokenizer", "content"}
    return {key: value for key, value in message.to_json().items() if key not in old} | changes


def measure(
    found: Sequence[Game],
    read: Mapping[str, Way],
    pair: Pair,
    kept: PartialDecisions,
    tell: Callable[[int], None],
) -> tuple[Answer, ...]:
    """The reader's answers in every conversation and mode; saved ones are not asked again.

    `tell` receives the number of finished conversations, also after each answer; an exception that it raises ends the
    measurement."""
    kinds = list(dict.fromkeys(game.told for game in found))
    for number, game in enumerate(found):
        tell(number)
        if game.name not in kept.data.answers:
            left_out = Counter[str]()
            donors = {kind: donor(found, number, kind, pair) for kind in kinds if kind != game.told}
            answers = list[Answer]()
            for answer in _answers(game=game, donors=donors, read=read, pair=pair, left_out=left_out):
                answers.append(answer)
                tell(number)
            kept.add(game.name, answers, left_out)
    tell(len(found))
    return tuple(answer for game in found for answer in kept.data.answers[game.name])


def donor(found: Sequence[Game], number: int, kind: str, pair: Pair) -> Game | None:
    """A conversation whose owner was told something of this kind, and hides messages in the same slots. In whatever
    order the kinds stand, the conversations of one kind take turns at lending their words."""
    own = found[number]
    hidden = _hidden(own.play, pair).keys()
    fitting = [each for each in found if each.told == kind and _hidden(each.play, pair).keys() == hidden]
    rank = sum(each.told == own.told for each in found[:number])
    return fitting[rank % len(fitting)] if fitting else None


def _hidden(play: Play, pair: Pair) -> dict[Slot, Line]:
    """What the owner hides from the reader, by its slot in a conversation."""
    ids = {line.message.id for line in play.hidden(pair.owner, pair.reader)}
    return {slot: line for slot, line in slots(play).items() if line.message.id in ids}


def _answers(
    game: Game,
    donors: Mapping[str, Game | None],
    read: Mapping[str, Way],
    pair: Pair,
    left_out: Counter[str],
) -> Iterator[Answer]:
    own = _hidden(game.play, pair)
    plays = {game.told: game.play} | {
        kind: game.play.saying({own[slot].message.id: line.content for slot, line in _hidden(donor.play, pair).items()})
        for kind, donor in donors.items()
        if donor is not None
    }
    for name, way in read.items():
        for told, play in plays.items():
            if told != game.told and not way.exchanged:
                continue
            try:
                with Stage(way.engine, _as_read(play, way, pair), way.policy) as stage:
                    for asked, ids in game.asked.items():
                        chosen = _chosen(stage, ids)
                        yield Answer(
                            subject=game.conversation.subject,
                            id=game.conversation.id,
                            question=asked,
                            way=name,
                            told=told,
                            own=told == game.told,
                            odds=chosen.odds,
                            mass=chosen.mass,
                            likeliest=chosen.likeliest,
                        )
            except UNENCODABLE as error:
                left_out[f"{name}: {why_not(error)}"] += 1


class _Chosen(NamedTuple):
    """The log-odds of the first choice against all others, in nats, the probability of saying any of them, and the
    place of the likeliest one."""

    odds: float
    mass: float
    likeliest: int


def _chosen(stage: Stage, ids: Sequence[str]) -> _Chosen:
    """Score each choice as a whole text."""
    logs = np.array([stage.log_probability(id) for id in ids])
    odds, mass = logs[0] - np.logaddexp.reduce(logs[1:]), np.exp(np.logaddexp.reduce(logs))
    return _Chosen(float(odds), float(mass), int(np.argmax(logs)))


def _as_read(play: Play, way: Way, pair: Pair) -> Play:
    play = play if way.behind is None else seeing(play, pair, way.behind)
    return _telling(play, pair) if way.told else play


def _telling(play: Play, pair: Pair) -> Play:
    """Insert the owner's hidden thoughts before its first public message wherever the reader reads that."""
    order = [line.message.id for line in play.lines]
    first = next((line.message.id for line in play.lines if _open(line, pair)), None)
    if first is None:
        return play
    thoughts = [line.message.id for line in play.hidden(pair.owner, pair.reader) if line.message.kind == "decode"]
    told = [id for id in thoughts if order.index(id) < order.index(first)]
    lines = (_reading_also(line, first, told) if line.message.author == pair.reader else line for line in play.lines)
    return play._replace(lines=tuple(lines))


def _open(line: Line, pair: Pair) -> bool:
    return line.message.author == pair.owner and line.message.audience.includes(pair.reader)


def _reading_also(line: Line, first: str, told: Sequence[str]) -> Line:
    parents = line.message.parents
    if first not in parents:
        return line
    place = parents.index(first)
    read = (*parents[:place], *told, *parents[place:])
    return line._replace(message=replace(line.message, parents=read), places=())


# -- results


def effects(answers: Sequence[Answer], seed: int) -> tuple[Effect, ...]:
    """Each mode compared with the baseline, by what the owner was really told; intervals resample conversations."""
    own = [each for each in answers if each.own]
    before = {_place(each): each for each in own if each.way == BASELINE}
    found = list[Effect]()
    for key in dict.fromkeys((each.subject, each.question, each.told, each.way) for each in own):
        mine = [each for each in own if (each.subject, each.question, each.told, each.way) == key]
        pairs = [(before[_place(each)], each) for each in mine if _place(each) in before]
        found.append(
            Effect(
                subject=key[0],
                question=key[1],
                told=key[2],
                way=key[3],
                games=len(pairs),
                mean=_mean([after.p for _, after in pairs], seed),
                change=_mean([after.p - first.p for first, after in pairs], seed),
                odds=_mean([after.odds - first.odds for first, after in pairs], seed),
                turned=sum(_turned(first, after) for first, after in pairs),
            )
        )
    return tuple(found)


def _turned(before: Answer, after: Answer) -> bool:
    """Whether another choice is the likeliest one. Without it, of two choices: another one is the likelier one."""
    if before.likeliest is None or after.likeliest is None:
        return (after.odds > 0) != (before.odds > 0)
    return after.likeliest != before.likeliest


def moved(answers: Sequence[Answer], seed: int) -> tuple[Exchange, ...]:
    """The effect of exchanging private messages behind the same public words, for each pair of kinds and each mode."""
    by = {(_place(each), each.way, each.told): each for each in answers}
    found = list[Exchange]()
    for subject, asked, way in dict.fromkeys((a.subject, a.question, a.way) for a in answers if not a.own):
        own = [a for a in answers if (a.subject, a.question, a.way) == (subject, asked, way)]
        for first, second in combinations(sorted({a.told for a in own}), 2):
            places = dict.fromkeys(_place(a) for a in own)
            both = [(by.get((place, way, first)), by.get((place, way, second))) for place in places]
            pairs = [(one, other) for one, other in both if one is not None and other is not None]
            if not pairs:
                continue
            found.append(
                Exchange(
                    subject=subject,
                    question=asked,
                    way=way,
                    first=first,
                    second=second,
                    games=len(pairs),
                    change=_mean([one.p - other.p for one, other in pairs], seed),
                    odds=_mean([one.odds - other.odds for one, other in pairs], seed),
                    size=_mean([abs(one.odds - other.odds) for one, other in pairs], seed),
                )
            )
    return tuple(found)


def _place(answer: Answer) -> tuple[str, str, str]:
    return answer.subject, answer.id, answer.question


def _mean(values: Sequence[float], seed: int) -> Estimate:
    return Estimate(value=float(np.mean(values)) if len(values) else 0.0, span=resampled(values, seed))

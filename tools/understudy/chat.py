"""Writes short direct talk: introductions, facts, plans, sums."""

from __future__ import annotations

from collections.abc import Callable

from agentcho.tasks.arithmetic import Step

from .grammar import Writer, share
from .stories import draw_task
from .views import Sample, Turn, heard, own, prompt
from .wordings import rules

Slots = dict[str, object]
Pair = tuple[str, str]
SMALL_TALK = ("who", "job", "hello", "greet", "how", "thanks", "bye", "meet", "joint", "tell", "like")


def draw_slots(writer: Writer) -> Slots:
    """Who speaks, where, and what about."""
    topics = rules("topics")
    me = writer.name()
    other = writer.name(me)
    like, less = writer.pick(topics["like"]), writer.pick(topics["like"])
    plan = writer.pick(topics["plan"]).format(other=other)
    kinds = ("role", "manner", "place", "event", "object", "spot")
    slots: Slots = {key: some_topic(writer, key) for key in kinds}
    slots |= {
        "me": me,
        "other": other,
        "like": like,
        "less": less,
        "plan": plan,
        "side": writer.pick(topics["side"]),
    }
    return slots | {"n": writer.random.randint(1, 12), "word": writer.coin().lower()}


def some_topic(writer: Writer, kind: str) -> str:
    """A word of its kind. One in eight is made up, so that the model has to read words instead of only knowing them."""
    return writer.coin().lower() if writer.chance(0.12) else writer.pick(rules("topics")[kind])


def write(writer: Writer, symbol: str, slots: Slots) -> str:
    """Expand a rule. For each slot x there is also `x_capital`, which begins with a capital letter."""
    capitals = {f"{key}_capital": str(value)[:1].upper() + str(value)[1:] for key, value in slots.items()}
    return writer.write(rules("chat"), symbol, **slots, **capitals)


def persona(writer: Writer, slots: Slots, facts: str = "") -> Turn:
    """The system prompt of a named agent with a role."""
    text = write(writer, "canon.system", slots)
    for _ in range(writer.random.choice((0, 0, 1, 1, 2))):
        text += write(writer, "extra", slots)
    return prompt("system", text + facts)


def small_talk(writer: Writer) -> Sample:
    """An agent that says who it is, greets, agrees and thanks."""
    slots = draw_slots(writer)
    turns = [persona(writer, slots, f" You like {slots['like']}." if writer.chance(0.3) else "")]
    likes = "You like" in turns[0].text
    for topic in writer.random.sample(SMALL_TALK, writer.random.randint(1, 5)):
        if topic == "like" and not likes:
            continue
        asked = write(writer, f"ask.{topic}", slots)
        header = f"To {slots['other']}: " if topic in ("greet", "tell") and writer.chance(0.4) else ""
        turns += [prompt("user", asked), own(str(slots["me"]), write(writer, topic, slots), header)]
    return finished(writer, "chat", slots, turns)


def facts(writer: Writer) -> Sample:
    """An agent that answers from facts given by its prompt or by a user."""
    slots = draw_slots(writer)
    topics = writer.random.sample(("when", "where", "owner", "secret"), writer.random.randint(1, 3))
    told = " ".join(write(writer, f"fact.{topic}", slots) for topic in topics)
    in_system = writer.chance(0.6)
    turns = [persona(writer, slots, f" {told}" if in_system else "")]
    asked = writer.random.sample(topics, len(topics))
    if writer.chance(0.2):
        asked.append(
            writer.random.choice([each for each in ("when", "where", "owner", "secret") if each not in topics])
        )
    for number, topic in enumerate(asked):
        lead = f"{told} " if not in_system and number == 0 else ""
        answer = write(writer, topic if topic in topics else "unknown", slots)
        turns += [prompt("user", lead + write(writer, f"ask.{topic}", slots)), own(str(slots["me"]), answer)]
    return finished(writer, "chat", slots, turns)


def talk(writer: Writer) -> Sample:
    """Two agents that speak to each other by name."""
    slots = draw_slots(writer)
    me, other = str(slots["me"]), str(slots["other"])
    theirs = slots | {"me": other, "other": me, "role": writer.pick(rules("topics")["role"])}
    header = writer.chance(0.6)
    turns = [persona(writer, slots)]
    speaks = writer.chance(0.5)
    for number in range(writer.random.randint(1, 4)):
        symbol = writer.random.choice(("greet", "tell", "joint") if number == 0 else ("back", "tell", "joint"))
        symbol = "ask.joint" if symbol == "joint" and number == 0 else symbol
        text = write(writer, symbol, slots if speaks else theirs)
        lead = f"To {other if speaks else me}: " if header else ""
        turns.append(own(me, text, lead) if speaks else heard(other, text, lead))
        speaks = not speaks
    return finished(writer, "chat", slots, turns)


def choice(writer: Writer) -> Sample:
    """An agent that chooses what it likes."""
    slots = draw_slots(writer)
    like, less = str(slots["like"]), writer.other(rules("topics")["like"], str(slots["like"]))
    pair = (like, less) if writer.chance(0.5) else (less, like)
    slots |= {"a": pair[0], "b": pair[1]}
    turns = [persona(writer, slots, f" You like {like}.")]
    header = '{"choice": ' if writer.chance(0.4) else ""
    answer = f'"{like}"}}' if header else like + writer.random.choice(("", "."))
    turns += [prompt("user", write(writer, "ask.choice", slots)), own(str(slots["me"]), answer, header)]
    return finished(writer, "chat", slots, turns)


def sums(writer: Writer) -> Sample:
    """A run of small sums, with or without a persona."""
    slots = draw_slots(writer)
    turns = [persona(writer, slots)] if writer.chance(0.5) else []
    for _ in range(writer.random.randint(4, 12)):
        step = draw_sum(writer)
        answer = writer.random.choice(("{step}.", "{step}. The answer is {x}.", "The answer is {x}."))
        ask = write(writer, "ask.sum", slots | {"sum": f"{step.left} {step.sign} {step.right}"})
        text = answer.format(step=step, x=step.result)
        turns += [prompt("user", ask), own(str(slots["me"]), text, weight=1.0)]
    return finished(writer, "sums", slots, turns)


def draw_sum(writer: Writer) -> Step:
    """A sum, difference or product with a result from 0 to 99."""
    sign = writer.random.choice("++--x")
    if sign == "x":
        return Step(writer.random.randint(0, 9), "x", writer.random.randint(0, 9))
    large = writer.random.randint(0, 99)
    small = writer.random.randint(0, large)
    return Step(large - small, "+", small) if sign == "+" else Step(large, "-", small)


def questions(writer: Writer) -> Sample:
    """One to three arithmetic stories put directly to an agent."""
    slots = draw_slots(writer)
    turns = [persona(writer, slots)] if writer.chance(0.6) else []
    for _ in range(writer.random.randint(1, 2)):
        story = draw_task(writer)
        steps = " ".join(f"{step}." for step in story.steps)
        lead = writer.random.choice(("The question is: ", "Question: ", ""))
        turns += [
            prompt("user", lead + story.question),
            own(str(slots["me"]), f"{steps} The answer is {story.answer}."),
        ]
    return finished(writer, "sums", slots, turns)


def echo(writer: Writer) -> Sample:
    """An agent that repeats words: names, numbers and things in any order."""
    slots = draw_slots(writer)
    turns = [persona(writer, slots)] if writer.chance(0.4) else []
    for _ in range(writer.random.randint(1, 4)):
        words = ", ".join(some_word(writer) for _ in range(writer.random.randint(1, 9)))
        asked = write(writer, "ask.echo", slots | {"words": words})
        turns += [prompt("user", asked), own(str(slots["me"]), f"{words}.")]
    return finished(writer, "recall", slots, turns)


def some_word(writer: Writer) -> str:
    """A name, a thing or a number."""
    topics = rules("topics")
    kind = writer.random.choice(("name", "name", "object", "place", "number"))
    if kind == "number":
        return str(writer.random.randint(0, 99))
    return (
        writer.name() if kind == "name" else writer.pick(topics[kind]) if writer.chance(0.7) else writer.coin().lower()
    )


def recall(writer: Writer) -> Sample:
    """An agent that is told who has what, and is asked about it in random order."""
    slots = draw_slots(writer)
    held: dict[str, str] = {}
    things: list[str] = []
    for _ in range(writer.random.randint(2, min(7, len(share(rules("topics")["object"], writer.split))))):
        thing = writer.coin().lower() if writer.chance(0.25) else writer.other(rules("topics")["object"], *things)
        things.append(thing)
        held[thing] = writer.name(*held.values())
    told = " ".join(f"{name} has the {thing}." for thing, name in held.items())
    turns = [persona(writer, slots, f" {told}")] if writer.chance(0.6) else [prompt("user", told)]
    for thing in writer.random.sample(things, len(things)):
        by_name = writer.chance(0.4)
        asked = f"What does {held[thing]} have?" if by_name else f"Who has the {thing}?"
        answer = f"The {thing}." if by_name else f"{held[thing]}."
        turns += [prompt("user", asked), own(str(slots["me"]), answer)]
    return finished(writer, "recall", slots, turns)


def finished(writer: Writer, kind: str, slots: Slots, turns: list[Turn]) -> Sample:
    """The finished sample. One in five agents goes without its name in the framing."""
    me = str(slots["me"]).lower()
    if (kind != "chat" and turns[0].role != "system") or writer.chance(0.2):
        turns = [turn._replace(name=None) if turn.name == me else turn for turn in turns]
    return Sample(kind, me, tuple(turns), {})


def chat(writer: Writer) -> list[Sample]:
    """One short conversation of any sort."""
    kinds: tuple[Callable[[Writer], Sample], ...] = (small_talk, small_talk, facts, talk, choice)
    return [writer.random.choice(kinds)(writer)]


def memory(writer: Writer) -> list[Sample]:
    """One run of words to repeat, or of facts to recall."""
    kinds: tuple[Callable[[Writer], Sample], ...] = (echo, recall)
    return [writer.random.choice(kinds)(writer)]


def arithmetic(writer: Writer) -> list[Sample]:
    """One run of sums or stories."""
    kinds: tuple[Callable[[Writer], Sample], ...] = (sums, questions)
    return [writer.random.choice(kinds)(writer)]

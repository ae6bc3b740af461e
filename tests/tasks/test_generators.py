"""Built-in tasks: reproducible, within their bounds, correct, and identified by their digests."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcho.errors import TaskError
from agentcho.tasks import Concepts, Problem, Task, task_set
from agentcho.tasks.arithmetic import draw_story
from agentcho.tasks.concepts import nouns
from agentcho.tasks.facts import facts, half_of_facts
from agentcho.tasks.word_lists import lists


@given(seed=st.integers(0, 10**6), steps=st.integers(1, 6))
def test_a_story_has_its_steps_and_stays_small(seed: int, steps: int) -> None:
    story = draw_story(random.Random(seed), steps)
    assert len(story.steps) == steps
    value = story.steps[0].left
    said = [int(number) for number in re.findall(r"\d+", story.question)]
    assert said[0] == value
    for step in story.steps:
        assert step.left == value
        assert step.right in said
        value = {"+": value + step.right, "-": value - step.right, "x": value * step.right}[step.sign]
        assert 0 <= value <= 99
    assert story.answer == value
    assert story.question.endswith("?")
    assert "{" not in story.question


@pytest.mark.parametrize(("spec", "kind"), [("arithmetic", Problem), ("facts", Problem), ("concepts", Concepts)])
def test_a_set_is_its_specification_and_seed(spec: str, kind: type[Task]) -> None:
    one, again, other = task_set(spec, kind, 3), task_set(spec, kind, 3), task_set(spec, kind, 4)
    assert [one[n] for n in (0, 5, 99)] == [again[n] for n in (0, 5, 99)]
    assert one.digest == again.digest != other.digest
    assert one[0] != other[0]
    assert len({one[n].id for n in range(50)}) == 50
    assert one.size is None
    with pytest.raises(IndexError):
        one[-1]


def test_a_digest_tells_of_every_word_that_may_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    before = task_set("facts", Problem).digest
    found = lists("facts")
    changed = {**found, "after": (*found["after"][:-1], "lunch = supper")}
    monkeypatch.setattr("agentcho.tasks.sets.lists", lambda name: changed)
    assert task_set("facts", Problem).digest != before


def test_options_change_what_is_drawn() -> None:
    assert len(words(task_set("concepts:size=3", Concepts)[0])) == 3
    three, five = (task_set(f"arithmetic:steps={n}", Problem).digest for n in (3, 5))
    assert three != five


def words(task: Task) -> tuple[str, ...]:
    assert isinstance(task, Concepts)
    return task.words


def test_concepts_are_different_words_of_the_list() -> None:
    known = {*lists("concepts")["nouns"], *lists("concepts")["verbs"]}
    drawn = task_set("concepts:size=60", Concepts)[0]
    assert len(set(words(drawn))) == 60
    assert set(words(drawn)) <= known
    assert nouns() < known


def test_there_are_many_facts_and_each_is_asked_for_in_several_ways() -> None:
    assert len(facts()) >= 240
    for kind in {fact.kind for fact in facts()}:
        asked = lists("facts")[f"{kind}.ask"]
        assert len(asked) >= 3
        assert all("{a}" in wording for wording in asked)
        about = [fact.about for fact in facts() if fact.kind == kind]
        assert len(set(about)) == len(about), kind
    assert all(re.fullmatch(r"[A-Za-z]+", fact.answer) for fact in facts())


def test_no_entity_is_in_both_halves_of_the_facts() -> None:
    halves = [half_of_facts(half) for half in (1, 2)]
    assert sorted(fact for half in halves for fact in half) == sorted(facts())
    assert all(len(half) > 0.35 * len(facts()) for half in halves)
    one, two = ({plain(fact.about) for fact in half} for half in halves)
    assert not one & two
    for half, others in ((halves[0], two), (halves[1], one)):
        assert not {plain(answer) for fact in half for answer in (fact.answer, *fact.others)} & others


def test_facts_that_lead_to_one_another_are_in_one_half() -> None:
    sides = {(fact.kind, fact.about): half for half in (1, 2) for fact in half_of_facts(half)}
    days = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    assert len({sides["after", day] for day in days}) == 1
    assert sides["color", "a frog"] == sides["sound", "a frog"] == sides["young", "frog"]
    assert sides["opposite", "come"] == sides["past", "come"] == sides["past", "go"]
    assert sides["past", "leave"] == sides["opposite", "left"]


def test_the_texts_of_one_half_are_never_drawn_in_the_other() -> None:
    """Compares texts alone, without the code that splits: every question that one half can draw, against those of the
    other."""
    wordings = lists("facts")
    texts = {half: every_question(half) for half in (1, 2)}
    assert not texts[1] & texts[2]
    assert len(texts[1] | texts[2]) == sum(len(wordings[f"{fact.kind}.ask"]) for fact in facts())
    for half in (1, 2):
        drawn = task_set(f"facts:half={half}", Problem, 7)
        found = {task.question for task in (drawn[number] for number in range(3000)) if isinstance(task, Problem)}
        assert found <= texts[half]
        assert len(found) > 0.9 * len(texts[half])


def plain(words: str) -> str:
    """Names without article and in lower case, by a rule independent of the tested code."""
    first, _, rest = words.lower().partition(" ")
    return rest if first in ("a", "an", "the") and rest else words.lower()


def every_question(half: int) -> set[str]:
    asked = lists("facts")
    return {line.replace("{a}", fact.about) for fact in half_of_facts(half) for line in asked[f"{fact.kind}.ask"]}


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (
            "poems",
            "is neither a .jsonl or .json file nor one of arithmetic, facts, concepts, vaults, vignettes, math, gsm8k",
        ),
        ("arithmetic:steps=9", "steps must be a number from 1 to 6"),
        ("arithmetic:size=3", r"'size=3' is not one of its options: steps=NUMBER"),
        ("arithmetic:steps=three", "'steps=three' is not one of its options"),
        ("facts:n=3", "its options: half=NUMBER"),
        ("facts:half=3", "half must be a number from 1 to 2"),
        ("concepts", "has tasks of the kind Concepts, but the scenario needs Problem"),
    ],
)
def test_what_is_no_set_is_refused(spec: str, told: str) -> None:
    with pytest.raises(TaskError, match=told):
        task_set(spec, Problem)


@pytest.mark.parametrize(
    ("word", "found", "other"),
    [
        ("dog", {"dogs"}, {"dogma"}),
        ("box", {"boxes"}, {"boxs"}),
        ("carry", {"carries", "carried", "carrying"}, {"carrys"}),
        ("play", {"plays", "played", "playing"}, {"plaies"}),
        ("run", {"runs", "running", "ran"}, {"runing"}),
        ("bake", {"bakes", "baked", "baking"}, {"bakeing"}),
        ("leaf", {"leaves"}, {"leave"}),
        ("wash", {"washes", "washed"}, {"washs"}),
        ("cook", {"cooked", "cooking"}, {"cookked"}),
        ("see", {"sees", "saw", "seeing"}, {"seing"}),
        ("hold", {"held", "holding"}, {"helds"}),
        ("tomato", {"tomatoes"}, {"tomatoe"}),
        ("ice cream", {"ice creams"}, {"ice", "cream", "cream ice"}),
        ("well-known", {"well known"}, {"known"}),
    ],
)
def test_a_word_counts_in_all_of_its_forms(word: str, found: set[str], other: set[str]) -> None:
    task = Concepts(id="1", words=(word.capitalize(),))
    for each in found:
        assert task.covered(f"There, {each.upper()}!") == {word.capitalize()}
    for each in other:
        assert task.covered(f"There, {each}!") == frozenset()

"""Who learns the arguments of tools, and whose words are behind them: the rules of `provenance.tool_sinks`, on small
graphs."""

from __future__ import annotations

import pytest

from agentcho.config import Leakage
from agentcho.errors import LeakageError
from agentcho.message import EVERYONE, Audience, Metadata
from agentcho.provenance.tool_sinks import NOBODY, ToolSinks, TrustLabels, undisclosed
from agentcho.provenance.views import Act, ToolUse

WORLD, MAIL = ToolUse("post", EVERYONE, True, False), ToolUse("mail", NOBODY, True, False)
SEARCH = ToolUse("search", EVERYONE, effect=False, trusted=False)
X = Audience(frozenset({"x"}))


class Node:
    """A message of a graph."""

    def __init__(self, metadata: Metadata, act: Act) -> None:
        self.metadata, self.act = metadata, act


class Graph(dict[str, Node]):
    """Messages by id. The author of "x.1" is x; "tool.1" has none."""

    def say(self, id: str, to: Audience, *parents: str, **act: object) -> str:
        author = id.partition(".")[0]
        who = None if author in ("tool", "scenario") else author
        self[id] = Node(Metadata(id, "decode", "assistant", who, to, parents), Act(**act))  # type: ignore[arg-type]
        return id


@pytest.fixture
def said() -> Graph:
    graph = Graph()
    graph.say("scenario.0", EVERYONE)
    graph.say("x.0", X)
    return graph


def test_in_the_way_is_what_not_all_of_an_audience_may_know() -> None:
    audiences = {"a": EVERYONE, "b": X, "c": Audience(frozenset({"x", "y"}))}
    assert undisclosed("abc", EVERYONE, audiences.__getitem__) == ("b", "c")
    assert undisclosed("abc", Audience(frozenset({"y"})), audiences.__getitem__) == ("b",)
    assert undisclosed("abc", NOBODY, audiences.__getitem__) == ()


@pytest.mark.parametrize("leakage", ["enforce", "deny"])
def test_a_call_over_what_the_world_may_not_know_is_refused_and_tells_no_words(said: Graph, leakage: Leakage) -> None:
    call = said.say("x.1", X, "scenario.0", "x.0")
    with pytest.raises(LeakageError) as refused:
        ToolSinks(said, leakage).check(call, {"scenario.0", "x.0", call}, SEARCH)
    assert refused.value.path == ("x.0",)
    assert refused.value.reader == "x"
    assert "search" in str(refused.value)
    assert "x.0 (by x)" in str(refused.value)
    assert "release=True" in str(refused.value)


def test_what_is_not_behind_a_call_is_not_in_its_way(said: Graph) -> None:
    call = said.say("x.1", X, "scenario.0")
    ToolSinks(said, "enforce").check(call, {"scenario.0", call}, SEARCH)


def test_a_release_passes_and_so_does_everything_under_audit(said: Graph) -> None:
    call = said.say("x.1", X, "x.0")
    ToolSinks(said, "enforce").check(call, {"x.0", call}, SEARCH, release=True)
    ToolSinks(said, "audit").check(call, {"x.0", call}, WORLD)
    assert ToolSinks(said, "audit").judge(call, {"x.0", call}, WORLD).secret == ("x.0",)


def test_who_learned_of_a_call_knows_it_from_then_on(said: Graph) -> None:
    first, sinks = said.say("x.1", X, "scenario.0"), ToolSinks(said, "enforce")
    second = said.say("x.2", X, "scenario.0", first)
    assert sinks.judge(second, {"scenario.0", first, second}, SEARCH).secret == (first,)
    sinks.check(first, {"scenario.0", first}, SEARCH)
    sinks.check(second, {"scenario.0", first, second}, SEARCH)
    assert sinks.known_to(first) == EVERYONE
    assert sinks.known_to("x.0") == X


def test_a_refused_call_tells_nobody(said: Graph) -> None:
    call, sinks = said.say("x.1", X, "x.0"), ToolSinks(said, "enforce")
    with pytest.raises(LeakageError):
        sinks.check(call, {"x.0", call}, SEARCH)
    assert sinks.known_to(call) == X


def test_an_unknown_cone_is_never_clean(said: Graph) -> None:
    call = said.say("x.1", X)
    with pytest.raises(LeakageError, match="not known"):
        ToolSinks(said, "enforce").check(call, None, MAIL)


# -- trust ---------------------------------------------------------------------------------------------------


def result(said: Graph, id: str, call: str, to: Audience = X, trusted: bool = False) -> str:
    return said.say(id, to, call=call, use=ToolUse("read", NOBODY, effect=False, trusted=trusted))


def test_an_effect_over_an_untrusted_result_is_refused(said: Graph) -> None:
    read = result(said, "tool.0", "x.0")
    call, sinks = said.say("x.1", X, read), ToolSinks(said, "enforce")
    with pytest.raises(LeakageError, match=r"changes something outside.*tool.0 \(by scenario\)"):
        sinks.check(call, {read, call}, MAIL)
    sinks.check(call, {read, call}, MAIL, release=True)
    sinks.check(call, {read, call}, ToolUse("look", NOBODY, effect=False, trusted=False))


def test_a_trusted_result_is_in_nobodys_way_unless_its_arguments_were_not_to_be_trusted(said: Graph) -> None:
    clean, read = result(said, "tool.0", "x.0", trusted=True), result(said, "tool.1", "x.0")
    call = said.say("x.1", X, read)
    echo = result(said, "tool.2", call, trusted=True)
    assert TrustLabels(said).untrusted([clean, read, call, echo]) == (read, call, echo)


def test_untrusted_words_stay_so_however_often_they_are_passed_on(said: Graph) -> None:
    read = result(said, "tool.0", "x.0")
    told = said.say("x.1", EVERYONE, read)
    again = said.say("y.0", EVERYONE, told)
    released = said.say("y.1", EVERYONE, released=again)
    assert TrustLabels(said).untrusted([told, again, released, "scenario.0"]) == (told, again, released)


def test_a_choice_repeats_nobodys_words(said: Graph) -> None:
    read = result(said, "tool.0", "x.0")
    choice = said.say("x.1", EVERYONE, read, choices=("yes", "no"))
    call = said.say("y.0", Audience(frozenset({"y"})), choice)
    ToolSinks(said, "enforce").check(call, {choice, call}, WORLD._replace(audience=NOBODY))
    with pytest.raises(LeakageError):  # attending to how it was said is attending to what was read
        ToolSinks(said, "enforce").check(call, {choice, read, call}, WORLD._replace(audience=NOBODY))


def test_a_chain_may_be_as_long_as_a_game(said: Graph) -> None:
    before = result(said, "tool.0", "x.0")
    for number in range(1, 5000):
        before = said.say(f"x.{number}", EVERYONE, before)
    assert TrustLabels(said).is_untrusted(before)

"""What users import and pass by name: names that stay, options that match `Sampling`."""

from __future__ import annotations

import inspect
import warnings
from typing import get_type_hints

import pytest

import agentcho
from agentcho import Agent, Sampling, errors
from agentcho.errors import AgentchoError
from agentcho.protocol.call import SamplingOptions, Unconstrained

NAMES_OF_0_4 = (
    "EVERYONE",
    "After",
    "Agent",
    "AgentchoError",
    "Audience",
    "Choreographer",
    "Concepts",
    "Decode",
    "Engine",
    "First",
    "Game",
    "Judged",
    "Limits",
    "Message",
    "Metadata",
    "Most",
    "Prefill",
    "Problem",
    "Read",
    "Repair",
    "RunConfig",
    "Sampling",
    "Scenario",
    "View",
    "canonical_transcript",
    "replay",
    "run",
    "task_set",
)
"""All public names before the package got folders. They can be imported until version 0.6, which removes them."""


@pytest.mark.parametrize("name", NAMES_OF_0_4)
def test_a_public_name_imports_in_one_more_minor_version_and_says_where_it_moved(name: str) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert getattr(agentcho, name) is not None
    assert [each.category for each in told] == [DeprecationWarning] * (name in agentcho.MOVED)
    assert (name in agentcho.__all__) == (name not in agentcho.MOVED)


def test_a_name_that_moved_is_the_new_one_and_the_warning_points_at_who_uses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(agentcho.MOVED, "Play", "Game")
    monkeypatch.setitem(agentcho.MOVED, "play", "games.runs.runtime.play")
    with pytest.warns(DeprecationWarning, match=r"agentcho\.Play is now agentcho\.Game; .* is removed in 0\.6") as told:
        assert agentcho.Play is agentcho.Game
    assert [each.filename for each in told] == [__file__]
    from agentcho.games.runs.runtime import play

    with pytest.warns(DeprecationWarning, match=r"agentcho\.play is now agentcho\.games\.runs\.runtime\.play"):
        assert agentcho.play is play
    assert "Play" not in dir(agentcho)


def test_options_of_verbs_are_the_fields_of_sampling() -> None:
    known = Sampling.model_fields.keys()
    assert get_type_hints(SamplingOptions).keys() == known
    assert get_type_hints(Unconstrained).keys() == known - {"choices", "json_schema"}
    assert not SamplingOptions.__required_keys__


@pytest.mark.parametrize("verb", ["think", "say", "choose", "ask", "answer", "stream"])
def test_every_verb_takes_them_by_name_and_a_view_a_prompt_and_a_header(verb: str) -> None:
    parameters = inspect.signature(getattr(Agent, verb)).parameters
    assert {"prompt", "view", "header"} <= parameters.keys()
    taken = "SamplingOptions" if verb in ("think", "say", "stream") else "Unconstrained"
    assert parameters["options"].annotation == f"Unpack[{taken}]"
    assert not parameters.keys() & get_type_hints(SamplingOptions).keys() - {"choices"}


def test_errors_are_few_classes() -> None:
    """A class exists only if callers catch it separately; other errors differ in their message."""
    found = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, AgentchoError)]
    assert len(found) <= 39  # including people leaving a game, missing tools, arguments of the wrong type

"""Model names select where a request goes, and must agree with headers, paths and body fields."""

from __future__ import annotations

import pytest
from openai.types import Model

from agentcho.serve.api import models
from agentcho.serve.api.models import NamedTarget, RequestTarget
from agentcho.serve.api_errors import ApiError

SERVED = ("org/m", "org/m+poet")
PATH = NamedTarget("the path", "town", "ann")


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("m", RequestTarget("m")),
        ("org/m@baseline", RequestTarget("org/m", "baseline")),
        ("m+poet@audit", RequestTarget("m+poet", "audit")),
        ("m#town", RequestTarget("m", None, "town")),
        ("m@enforce#town/Ann Lee", RequestTarget("m", "enforce", "town", "Ann Lee")),
        ("m@home", RequestTarget("m@home")),
        ("@audit", RequestTarget("@audit")),
    ],
)
def test_a_name_says_model_mode_society_and_agent(name: str, target: RequestTarget) -> None:
    assert models.read(name) == target


@pytest.mark.parametrize(
    "name",
    [
        "m@audit@enforce",
        "m@audit@audit#town",
        "m#",
        "m#town/",
        "m#town/a/b",
        "m#..",
        "m#.a",
        "m#a b",
        "m#town#two",
        "m#town/everyone",
        "m#town/ ann",
        "m#town/a,b",
        "m#/ann",
        f"m#{'a' * 129}",
        f"m#town/{'a' * 129}",
        "m#t\n",
    ],
)
def test_a_name_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(ApiError) as caught:
        models.read(name)
    assert (caught.value.status, caught.value.param) == (400, "model")


def test_places_fill_each_other_up_and_may_not_contradict() -> None:
    header = NamedTarget("header x-agentcho-agent", None, "ann")
    assert models.agreed(RequestTarget("m"), NamedTarget("the path", "town"), header) == RequestTarget(
        "m", None, "town", "ann"
    )
    assert models.agreed(RequestTarget("m", "audit", "town"), PATH, header) == RequestTarget(
        "m", "audit", "town", "ann"
    )
    for place in (NamedTarget("the key", "city"), NamedTarget("the key", "town", "bob")):
        with pytest.raises(ApiError, match=r"the key: it names another (society|agent)") as caught:
            models.agreed(RequestTarget("m", None, "town", "ann"), place)
        assert (caught.value.status, caught.value.param) == (400, None)


def test_a_model_that_is_not_served_is_not_found() -> None:
    for name in ("m", "org/m@fast", "org/m+poe", ""):
        with pytest.raises(ApiError) as caught:
            models.settled(models.read(name), SERVED)
        told = caught.value
        assert (told.status, told.code, told.param) == (404, "model_not_found", "model")
        assert all(each in told.message for each in (*SERVED, "@baseline, @audit and @enforce"))
    assert models.settled(models.read("org/m+poet"), SERVED).model == "org/m+poet"


def test_a_mode_of_societies_needs_one() -> None:
    assert models.settled(RequestTarget("org/m", "baseline"), SERVED).mode == "baseline"
    assert models.settled(RequestTarget("org/m", "audit", "town"), SERVED).mode == "audit"
    for target in (
        RequestTarget("org/m", "audit"),
        RequestTarget("org/m", "enforce"),
        RequestTarget("org/m", None, None, "ann"),
    ):
        with pytest.raises(ApiError, match="needs a society; name one with the path") as caught:
            models.settled(target, SERVED)
        assert caught.value.status == 400


def test_an_audience_is_names_or_everyone() -> None:
    header = NamedTarget("header x-agentcho-audience")
    assert models.audience("ann, bob,ann", header) == ("ann", "bob")
    assert models.audience(" everyone ", header) is models.audience(None, header) is None
    assert models.audience([], header) == ()
    for wrong in ("ann,,bob", "", "ann,everyone", {"ann": 1}, ["ann", 3], ["a"] * 2000):
        with pytest.raises(ApiError, match="header x-agentcho-audience"):
            models.audience(wrong, header)


def test_each_model_is_listed_with_its_modes() -> None:
    found = models.listing(SERVED, 12)
    names = [Model.model_validate(each).id for each in found["data"]]
    modes = ["", "@baseline", "@audit", "@enforce"]
    assert (found["object"], names) == ("list", [name + mode for name in SERVED for mode in modes])
    assert [models.described(name, SERVED, 12) for name in names] == found["data"]
    for name in ("m", "org/m@fast", "org/m#town"):
        with pytest.raises(ApiError) as caught:
            models.described(name, SERVED, 12)
        assert caught.value.status == 404

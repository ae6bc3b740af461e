"""The served models, and what a request says about its target: model, mode, society, agent.

A model is named `MODEL[@MODE][#SOCIETY[/AGENT]]`, so that any client that can set a model can set these. An adapter
makes a model of its own, `MODEL+ADAPTER`. Independent of the existing societies and of permissions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple, get_args

from agentcho.errors import AudienceError
from agentcho.message import agent_name
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import ServedMode

MODES: tuple[ServedMode, ...] = get_args(ServedMode)
LONGEST = 128
SOCIETY = re.compile(rf"[A-Za-z0-9_-][A-Za-z0-9_.~-]{{0,{LONGEST - 1}}}")
EVERYONE = "everyone"


class RequestTarget(NamedTuple):
    """The target of a request, with None for what it does not say."""

    model: str
    mode: ServedMode | None = None
    society: str | None = None
    agent: str | None = None


class NamedTarget(NamedTuple):
    """The society and agent that one part of a request names. `where` is that part in words for an error, such as "the
    path" or "header x-agentcho-agent"; `param` is the field of the body, if it is one."""

    where: str
    society: str | None = None
    agent: str | None = None
    param: str | None = None


def read(model: str) -> RequestTarget:
    """Parse a model's name. A suffix after "@" that is not a mode is part of the name. `ApiError`: it has two modes, or
    an invalid society or agent."""
    name, sharp, place = model.partition("#")
    base, mode = _mode(name)
    if mode is not None and _mode(base)[1] is not None:
        raise ApiError(
            400, "model: it names two modes; give only one of " + _listed(f"@{each}" for each in MODES), "model"
        )
    if not sharp:
        return RequestTarget(base, mode)
    society, slash, agent = place.partition("/")
    where = NamedTarget("model", society, agent if slash else None, "model")
    return agreed(RequestTarget(base, mode), where)


def agreed(target: RequestTarget, *places: NamedTarget) -> RequestTarget:
    """The target, completed with what the places name. `ApiError`: two of them name different societies or agents, or a
    name is invalid."""
    for place in places:
        society = None if place.society is None else society_name(place.society, place)
        agent = None if place.agent is None else member_name(place.agent, place)
        target = target._replace(
            society=_one(target.society, society, place, "society"), agent=_one(target.agent, agent, place, "agent")
        )
    return target


def settled(target: RequestTarget, served: Collection[str]) -> RequestTarget:
    """Check the target after all places were read. `ApiError`: 404, the model is not `served`; 400, it has an agent, or
    a mode that only societies have, without a society."""
    if target.model not in served:
        raise unknown(served)
    if target.society is None and (target.agent is not None or target.mode not in (None, "baseline")):
        what = "an agent" if target.agent is not None else f"@{target.mode}"
        raise ApiError(
            400,
            f"model: {what} needs a society; name one with the path /s/SOCIETY/v1, the header "
            f"x-agentcho-society, or the model, as in {target.model}@enforce#SOCIETY",
            "model",
        )
    return target


def unknown(served: Iterable[str]) -> ApiError:
    """The error for a model that is not served."""
    modes = _listed(f"@{mode}" for mode in MODES)
    told = f"model: there is no such model here; there is {_listed(served)}, and behind its name {modes}"
    return ApiError(404, told, "model", "model_not_found")


def society_name(given: object, place: NamedTarget) -> str:
    """Check the name of a society, which is used in paths. `ApiError`: it is invalid."""
    if not isinstance(given, str) or not SOCIETY.fullmatch(given):
        raise ApiError(
            400,
            f"{place.where}: this cannot name a society; use 1 to {LONGEST} letters, digits, _ . ~ and -, "
            "not beginning with a dot",
            place.param,
        )
    return given


def member_name(given: object, place: NamedTarget) -> str:
    """Check the name of an agent. `ApiError`: it is invalid."""
    try:
        name = agent_name(given)
    except AudienceError:
        name = ""
    if not name or len(name) > LONGEST or set(name) & set("/,#"):
        raise ApiError(
            400,
            f"{place.where}: this cannot name an agent; use 1 to {LONGEST} visible characters without / , "
            "and # and without spaces at either end",
            place.param,
        )
    return name


def audience(given: object, place: NamedTarget) -> tuple[str, ...] | None:
    """The names of an audience, given as a list or, in a header, separated by commas. None: everyone. `ApiError`: one
    of them cannot name an agent."""
    if isinstance(given, str):
        given = given.strip() if given.strip() == EVERYONE else [each.strip() for each in given.split(",")]
    if given is None or given == EVERYONE:
        return None
    if not isinstance(given, list) or len(given) > 1 << 10:
        raise ApiError(400, f'{place.where}: it is not a list of names; give one, or "everyone"', place.param)
    return tuple(dict.fromkeys(member_name(each, place) for each in given))


def listing(served: Iterable[str], created: int) -> dict[str, Any]:
    """The response of /v1/models: each model, also under the name of each of its modes."""
    names = (name for model in served for name in (model, *(f"{model}@{mode}" for mode in MODES)))
    return {"object": "list", "data": [_model(name, created) for name in names]}


def described(id: str, served: Collection[str], created: int) -> dict[str, Any]:
    """The response of /v1/models/ID. `ApiError`: 404, there is no such model."""
    target = read(id)
    if target.society is not None or target.model not in served:
        raise unknown(served)
    return _model(id, created)


def _model(name: str, created: int) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": created, "owned_by": "agentcho"}


def _mode(name: str) -> tuple[str, ServedMode | None]:
    base, _, last = name.rpartition("@")
    return next(((base, mode) for mode in MODES if base and last == mode), (name, None))


def _one(known: str | None, given: str | None, place: NamedTarget, what: str) -> str | None:
    if known is not None and given is not None and known != given:
        told = f"{place.where}: it names another {what} than another part of the request; name one"
        raise ApiError(400, told, place.param)
    return known if given is None else given


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last

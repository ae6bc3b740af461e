"""Validates every value of every call of a list before any of them is executed. All engines use it.

Each call is read once, field by field, into a plain copy. So neither later changes of the caller's objects nor the
caller's own classes reach a step. Independent of the state of engines: stored encodings, existing ids, room.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeGuard, cast, get_args

from agentcho.errors import AgentchoError, CallbackFailed, RequestError, UnknownEncoding, shown
from agentcho.message import Part, Role
from agentcho.protocol.call import (
    Call,
    Decode,
    EncodingId,
    Guard,
    Offsets,
    Prefill,
    Repair,
    Sampling,
    SchedulingPriority,
    Shadow,
)
from agentcho.protocol.ids import GivenId
from agentcho.protocol.ownership import foreign_code
from agentcho.protocol.speculation_corpus import Corpus
from agentcho.protocol.tools import AnswerForm
from agentcho.protocol.value_checks import (
    checked_bool,
    checked_int,
    checked_ints,
    checked_list,
    checked_position,
    checked_text,
    type_name,
)
from agentcho.reuse.anchors import Anchor
from agentcho.reuse.method import ByAnchors, Selection, Weighing
from agentcho.reuse.registry import READINGS, SELECTIONS, called, selection_of, weighing_of

ROLES, PARTS = get_args(Role), get_args(Part)
MOST_LIKELY = 20
"""Maximum number of likeliest tokens to report beside the sampled one."""


class TokenIdBounds(NamedTuple):
    """The token ids that a model accepts: those below `vocabulary` (None: any that its tokenizer knows)."""

    vocabulary: int | None = None


def checked_calls(calls: object, turn: object, bounds: TokenIdBounds) -> tuple[list[Call], SchedulingPriority]:
    """Plain copies of the calls of a list, and of their turn. Raises `RequestError` if a value is wrong.

    Copies of calls that name earlier calls refer to the copies of these.
    """
    with foreign_code(), as_request_errors("the list of calls"):
        given = checked_list(calls, "the calls")
        if not given:
            raise RequestError("the list of calls is empty; give at least one Prefill or Decode")
        copies: dict[int, Call] = {}
        plain = list[Call]()
        for number, call in enumerate(given):
            with as_request_errors(f"call {number}"):
                plain.append(_call(call, copies, bounds))
                copies[id(call)] = plain[-1]
        return plain, _turn(turn, plain)


def checked_ids(ids: object) -> list[EncodingId]:
    """The ids of a list, which is read once. Raises `UnknownEncoding` if an item is not an id."""
    with foreign_code(), as_request_errors("the list of ids"):
        found = list(checked_list(ids, "the ids", ordered=False))
        for id in found:
            checked_id(id)
        return found


def checked_id(id: object) -> EncodingId:
    """The value as an id, whether it names an encoding or not. Raises `UnknownEncoding` if it is not an id."""
    if not is_id(id):
        raise UnknownEncoding(id)
    return id


def is_id(id: object) -> TypeGuard[EncodingId]:
    """Whether the value has the type of an id. A value that only equals a number (True, 1.0) is not an id."""
    return type(id) in (int, GivenId)


def ask_guard(guard: Guard | None, id: EncodingId, context: list[EncodingId]) -> bool:
    """Ask a guard about a call, right before anything is gathered. Returns whether the encoding is public; False
    without a guard. Raises the guard's refusal, a `LeakageError`, or `CallbackFailed` for any other error of the guard:
    a call that is not admitted is refused."""
    if guard is None:
        return False
    try:
        with foreign_code():
            return guard.admit(id, context) is True
    except (AgentchoError, KeyboardInterrupt):
        raise
    except BaseException as error:  # errors that would end a task or the process end only this call
        raise CallbackFailed("the guard", error) from error


def checked_role(role: object) -> Role:
    """The value as the role of a message. Raises `RequestError` if there is no such role."""
    return cast(Role, _role(role, ROLES))


def _role(role: object, known_roles: Collection[str]) -> Role | Part:
    known = checked_text(role, "role")
    if known not in known_roles:
        raise RequestError(f"unknown role {shown(known)}; roles are {', '.join(ROLES)}")
    return cast("Role | Part", known)


@contextmanager
def as_request_errors(what: str) -> Iterator[None]:
    """A context in which any error of the caller's objects becomes a `RequestError` that names `what` was read. Errors
    of agentcho and Ctrl-C pass through."""
    try:
        yield
    except (AgentchoError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise RequestError(f"{what} could not be read ({type(error).__name__}); give plain values") from error


def _call(call: Any, copies: Mapping[int, Call], bounds: TokenIdBounds) -> Call:
    match call:
        case Prefill():
            return _prefill(call, copies, bounds)
        case Decode():
            return _decode(call, copies, bounds)
        case Shadow():
            shared = _shared(call, copies)
            return Shadow(_mapped(call.of, copies), ape=None if call.ape is None else _ape(call.ape), **shared)
        case Repair():
            shared = _shared(call, copies)
            return Repair(_parent(call.of, copies), _choose(call.choose, copies), **shared)
    raise RequestError(f"the call is {type_name(call)}; give a Prefill, a Decode, a Shadow or a Repair")


def _prefill(call: Prefill, copies: Mapping[int, Call], bounds: TokenIdBounds) -> Prefill:
    shared, content = _shared(call, copies), checked_text(call.text, "the text")
    role, name, ids = _role(call.role, (*ROLES, *PARTS)), _name(call.name), call.tokens
    tokens = None if ids is None else checked_ints(ids, "tokens", bounds.vocabulary)
    extends = None if call.extends is None else checked_id(call.extends)
    return Prefill(
        content,
        role=role,
        name=name,
        tokens=tokens,
        extends=extends,
        ape=None if call.ape is None else _ape(call.ape),
        framed=_framing(call.framed, "framed", bounds),
        opening=_framing(call.opening, "opening", bounds),
        begins=checked_bool(call.begins, "begins"),
        **shared,
    )


def _framing(ids: object, what: str, bounds: TokenIdBounds) -> tuple[int, ...] | None:
    """Ids that the caller gives in place of those of a frame. None if it gives none."""
    found = None if ids is None else checked_ints(ids, what, bounds.vocabulary)
    if found == ():
        raise RequestError(f"{what} is empty; give at least one id, or None")
    return found


def _decode(call: Decode, copies: Mapping[int, Call], bounds: TokenIdBounds) -> Decode:
    shared, ids, most = _shared(call, copies), call.forced, call.most
    logits, stride = checked_bool(call.logits, "logits"), checked_int(call.stride, "stride", 1)
    forced = None if ids is None else checked_ints(ids, "forced", bounds.vocabulary)
    if stride != 1 and forced is None:
        raise RequestError(f"stride={stride} needs forced tokens; give forced, or leave stride at 1")
    header, sampling, name = checked_text(call.header, "the header"), _sampling(call.sampling), _name(call.name)
    _known_ids(sampling, bounds)
    most = None if most is None else checked_int(most, "most", 1)
    likely = None if call.logprobs is None else checked_int(call.logprobs, "logprobs", 0, MOST_LIKELY)
    if likely is not None and stride != 1:
        raise RequestError(f"logprobs={likely} cannot be combined with stride={stride}; leave stride at 1")
    shared |= {"logits": logits, "stride": stride, "most": most, "logprobs": likely}
    forms = tuple(_form(form, bounds) for form in checked_list(call.forms, "forms", 1 << 10))
    if forms and (sampling.choices is not None or sampling.json_schema is not None):
        raise RequestError("forms cannot be combined with choices or json_schema; give one of them", "sampling")
    corpora = None if call.corpora is None else tuple(checked_list(call.corpora, "corpora"))
    if not all(isinstance(corpus, Corpus) for corpus in corpora or ()):
        raise RequestError("corpora contains an item that is not a Corpus; give a tuple of Corpus, or None")
    shared |= {"name": name, "forced": forced, "forms": forms, "corpora": corpora}
    shared |= {"cut": checked_bool(call.cut, "cut"), "opening": _framing(call.opening, "opening", bounds)}
    shared |= {"thinks": _thinks(call), "thinking": call.thinking, "begins": checked_bool(call.begins, "begins")}
    return Decode(header, sampling=sampling, ape=None if call.ape is None else _ape(call.ape), **shared)


def _known_ids(sampling: Sampling, bounds: TokenIdBounds) -> None:
    """Raise `RequestError` if a sampling option names a token id that does not exist."""
    for option in ("logit_bias", "stop_token_ids", "allowed_token_ids"):
        try:
            checked_ints([*(getattr(sampling, option) or ())], f"the ids of {option}", bounds.vocabulary)
        except RequestError as error:
            raise RequestError(str(error), "sampling", option) from None


def _thinks(call: Decode) -> bool:
    """Whether a decode may think. Raises `RequestError` if another option of it excludes thoughts."""
    thinks = checked_bool(call.thinks, "thinks")
    if thinks and (call.logits or call.stride != 1 or call.forms):
        raise RequestError("thinks cannot be combined with logits, stride or forms; leave it out", "sampling")
    return thinks


def _form(form: Any, bounds: TokenIdBounds) -> AnswerForm:
    if not isinstance(form, AnswerForm):
        raise RequestError(f"one of the forms is {type_name(form)}; give the result of framing.tools.forms")
    lead, trail = (checked_ints(ids, "forms", bounds.vocabulary) for ids in (form.lead, form.trail))
    return AnswerForm(lead, form.schema, trail)


def _shared(call: Call, copies: Mapping[int, Call]) -> dict[str, Any]:
    """The fields that all calls have: parents, their positions and the call's own, its salt, guard and adapter."""
    parents = tuple(_parent(parent, copies) for parent in _list(call.parents, RequestError.parents, "parents"))
    salt, guard, start = checked_text(call.salt, "salt"), call.guard, call.new_offset
    if guard is not None and not callable(getattr(guard, "admit", None)):
        raise RequestError(f"guard is {type_name(guard)}; give an object with a method admit(id, context), or None")
    offsets, new_offset = _offsets(call.offsets), None if start is None else checked_position(start)
    adapter = None if call.adapter is None else checked_text(call.adapter, "adapter")
    placed = {"parents": parents, "offsets": offsets, "new_offset": new_offset}
    return placed | {"salt": salt, "guard": guard, "adapter": adapter}


def _parent(parent: Any, copies: Mapping[int, Call]) -> Any:
    if isinstance(parent, Prefill | Repair):
        return _mapped(parent, copies)
    if not is_id(parent):
        raise RequestError.parents(f"one of the parents is {type_name(parent)}")
    return parent


def _mapped(call: Any, copies: Mapping[int, Call]) -> Any:
    """The copy of a call that is earlier in the list, else the call itself, which the engine then refuses."""
    return copies.get(id(call), call)


def _offsets(given: object) -> Offsets:
    if given is None or (isinstance(given, str) and given == "made"):
        return None if given is None else "made"
    places = _list(given, RequestError.offsets, "offsets")
    return tuple(None if place is None else checked_position(place) for place in places)


def _list(given: object, error: Callable[[str], RequestError], what: str) -> tuple[Any, ...]:
    try:
        return checked_list(given, what)
    except RequestError as wrong:
        raise error(str(wrong)) from wrong


def _name(name: object) -> str | None:
    return None if name is None else checked_text(name, "name")


def _choose(choose: Any, copies: Mapping[int, Call]) -> Selection:
    method = selection_of(choose)
    if method is None:
        raise RequestError(f"choose is {type_name(choose)}; give one of {called(SELECTIONS)}")
    plain = method.checked(choose)
    return plain.with_anchors(_anchors(choose, copies)) if isinstance(plain, ByAnchors) else plain


def _anchors(choose: ByAnchors, copies: Mapping[int, Call]) -> tuple[Anchor, ...]:
    anchors = list[Anchor]()
    for each in checked_list(choose.anchors, "the anchors"):
        real, base = each if isinstance(each, tuple) and len(each) == len(Anchor._fields) else (None, None)
        if real is None or base is None:
            raise RequestError.parents(f"one of the anchors is {type_name(each)}; give Anchor(real, base)")
        anchors.append(Anchor(_parent(real, copies), _parent(base, copies)))
    return tuple(anchors)


def _ape(ape: Any) -> Weighing:
    method = weighing_of(ape)
    if method is None:
        weighings = called([each for each in READINGS if issubclass(each, Weighing)])
        raise RequestError(f"ape is {type_name(ape)}; give {weighings}, or None")
    return method.checked(ape)


def _sampling(given: object) -> Sampling:
    """The same options, validated again, because the object may have been made without validation."""
    if not isinstance(given, Sampling):
        raise RequestError(f"sampling is {type_name(given)}; give a Sampling", "sampling")
    return Sampling(**{option: getattr(given, option) for option in Sampling.model_fields})


def _turn(turn: Any, calls: list[Call]) -> SchedulingPriority:
    if not isinstance(turn, SchedulingPriority):
        raise RequestError(f"turn is {type_name(turn)}; give a SchedulingPriority")
    workflow, group = checked_text(turn.workflow, "workflow"), checked_text(turn.group, "group")
    ahead = checked_bool(turn.ahead, "ahead")
    if ahead and not all(isinstance(call, Prefill | Repair) for call in calls):
        raise RequestError(
            "turn has ahead=True, but a call is neither a Prefill nor a Repair; submit that call without ahead"
        )
    return SchedulingPriority(workflow, checked_int(turn.priority, "priority"), ahead, group)

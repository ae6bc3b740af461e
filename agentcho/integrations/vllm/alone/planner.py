"""The scheduler's half: what a request reads, what is saved of it when it has ended, and why it is refused.

Nothing here raises because of the content of a request: an exception in vLLM's scheduler would end all other requests.
Must not handle keys and values.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from agentcho.errors import AgentchoError, RequestError
from agentcho.integrations.vllm.alone.encodings import (
    Encoding,
    Encodings,
    ReadingPlace,
    Scope,
    common_readers,
    message_digest,
    place_after,
)
from agentcho.integrations.vllm.alone.prompt_spans import BEGIN, DividedPrompt, MessageMarkers, MessageSpan
from agentcho.integrations.vllm.alone.request_params import KEY, Readers, SharedPrompt, TurningCheck, parsed
from agentcho.integrations.vllm.alone.work import Load, Measurement, Read, Refusal, Report, Save, Work

LOG = logging.getLogger("vllm.agentcho")
EMPTY = DividedPrompt((), None)
LEAST_MEASURED = 16
"""The minimum number of equal tokens in the prompt of a measurement."""


class Reading(NamedTuple):
    """An encoding that a request reads. `length`: how many of its first tokens; `exact`: it and all before it were
    computed at exactly this place, so that it equals the encoding of the plain prompt."""

    encoding: Encoding
    start: int
    length: int
    exact: bool


@dataclass
class Plan:
    """The plan for one request. `error`: why it is refused; `begun`: it was given blocks."""

    asked: SharedPrompt | TurningCheck
    prompt: DividedPrompt = EMPTY
    scope: Scope = ("", "")
    readings: list[Reading] = field(default_factory=list)
    error: str | None = None
    begun: bool = False

    @property
    def names(self) -> list[str]:
        """The names of the encodings that it reads."""
        return [reading.encoding.name for reading in self.readings]


class Walk(NamedTuple):
    """A message of a prompt. `place`: where it stands; `over`: the messages that could have influenced what is computed
    there; `readers`: who may read it and all before it."""

    span: MessageSpan
    message: bytes
    place: ReadingPlace
    over: frozenset[bytes]
    readers: Readers


class Planner:
    """Plans the requests of one server. `markers`: where messages begin in prompts."""

    def __init__(self, markers: MessageMarkers, encodings: Encodings) -> None:
        self._markers, self._encodings = markers, encodings
        self._plans = dict[str, Plan]()
        self._work = Work()
        self._turns = False

    # -- before a request runs ---------------------------------------------------------------------------

    def enter(self, request: Any) -> None:
        """Plan a request that has arrived."""
        plan = self._plan(request)
        if plan is None:
            return
        self._plans[request.request_id] = plan
        if plan.error is not None:
            LOG.warning("request %s is refused: %s", request.request_id, plan.error)
            request.skip_reading_prefix_cache = False  # else vLLM would compute it without asking for slots

    def matched(self, request: Any, computed: int) -> tuple[int, bool]:
        """The number of slots of a request that encodings fill, and whether they are loaded asynchronously."""
        plan = self._plans.get(request.request_id)
        if plan is None:
            return 0, False
        if plan.error is None and computed:
            plan.error = (
                "vLLM took part of its prompt from its own prefix cache; start vLLM with --no-enable-prefix-caching"
            )
        if plan.error is not None:
            return 1, True
        if isinstance(plan.asked, TurningCheck):
            return 0, False
        if not plan.begun:
            plan.readings = list(self._readings(request, plan))
        return sum(reading.length for reading in plan.readings), False

    def begin(self, request: Any, blocks: Sequence[int], external: int) -> None:
        """Note the blocks of a request, in which `external` slots have to be filled."""
        plan = self._plans.get(request.request_id)
        if plan is None:
            return
        if plan.error is not None:
            if external:
                self._work.refusals.append(Refusal(request.request_id, tuple(blocks)))
            return
        if not external:
            plan.readings = []  # vLLM computes the whole prompt
        if not plan.begun:
            plan.begun = True
            self._encodings.hold(plan.names)
        if plan.readings:
            self._encodings.use(plan.names)
            reads = tuple(Read(each.encoding.name, each.start, each.length) for each in plan.readings)
            self._work.loads.append(Load(request.request_id, tuple(blocks), reads))

    def _plan(self, request: Any) -> Plan | None:
        """The plan for a request, None if it has no society parameters."""
        nobody = SharedPrompt(society="?", agent="?")
        try:
            asked = parsed(request.kv_transfer_params)
            if asked is None:
                return None
            return self._shared(request, asked) if isinstance(asked, SharedPrompt) else _measuring(request, asked)
        except AgentchoError as error:
            return Plan(nobody, error=str(error))
        except Exception as error:
            LOG.exception("request %s", request.request_id)
            return Plan(nobody, error=f"it cannot be read: {error}")

    def _shared(self, request: Any, asked: SharedPrompt) -> Plan:
        for wrong, why in (
            (request.prompt_token_ids is None, "its prompt has no token ids"),
            (bool(request.mm_features), "it has images or audio, which the token ids of a prompt do not distinguish"),
            (request.lora_request is not None, "it uses an adapter, whose encodings cannot be kept apart"),
            (request.resumable, "its prompt is sent in several parts"),
            (request.sampling_params.prompt_logprobs is not None, "prompt_logprobs bypass the connector"),
        ):
            if wrong:
                raise RequestError(f"a request with a society cannot be served: {why}")
        prompt = self._markers.divided(request.prompt_token_ids, asked.messages)
        return Plan(asked, prompt, (request.cache_salt or "", asked.society))

    def _readings(self, request: Any, plan: Plan) -> Iterator[Reading]:
        """The stored encodings of the messages at the beginning of a prompt. At least one token is left to compute."""
        last, known = request.num_tokens - 1, list[Encoding]()
        exact = True
        for walk in self._walk(request, plan, known):
            span, place = walk.span, walk.place
            ids = request.prompt_token_ids[span.start : span.stop]
            found = self._encodings.find(plan.scope, walk.message, place, self._turns)
            if found is None:
                if (opened := self._encodings.find_open(plan.scope, ids, place)) is not None:
                    yield Reading(opened, span.start, opened.length, exact)
                return
            known.append(found)
            exact = exact and place.has(found)
            length = min(found.length, last - span.start)
            if length > 0:
                yield Reading(found, span.start, length, exact)

    def _walk(self, request: Any, plan: Plan, known: list[Encoding]) -> Iterator[Walk]:
        """The messages of a prompt in order. When one is requested, `known` holds the encodings read for the messages
        before it; the other messages are computed."""
        assert isinstance(plan.asked, SharedPrompt)
        before, seen = b"", frozenset[bytes]()
        over = seen  # exceeds `seen` if a read encoding was computed over messages that are not in the prompt
        common: Readers = None
        enforced = self._encodings.leakage == "enforce"
        for index, span in enumerate(plan.prompt.messages):
            message = message_digest(request.prompt_token_ids[span.start : span.stop])
            own = self._readers(request, plan, span)
            common = common_readers(common, own)
            place = ReadingPlace(before, span.start, plan.asked.agent, seen)
            walk = Walk(span, message, place, over=over, readers=common if enforced else own)
            yield walk
            read = known[index] if index < len(known) else _computed(plan.scope, walk)
            before, seen = place_after(before, read.name), seen | {message}
            over |= read.over | {message}

    def _readers(self, request: Any, plan: Plan, span: MessageSpan) -> Readers:
        """Who may read a message of a prompt, as the request declares it or according to its role."""
        asked, declared = plan.asked, span.declared
        assert isinstance(asked, SharedPrompt)
        if declared is None:
            return None if span.role == BEGIN or span.common else frozenset({asked.agent})
        if declared.readers is not None:
            return None if declared.readers == "society" else asked.with_agent(declared.readers)
        if declared.role == "user":
            return asked.with_agent(asked.audience)
        if declared.role == "assistant":
            said = self._said(request.prompt_token_ids[span.start : span.stop])
            return self._encodings.said_to(plan.scope, said, asked.agent)
        return frozenset({asked.agent})

    def _said(self, ids: Sequence[int]) -> bytes:
        """The digest of an answer's words."""
        return blake2b(self._markers.words(ids).encode(), digest_size=16).digest()

    # -- after a request has ended -----------------------------------------------------------------------

    def end(self, request: Any, blocks: Sequence[int], whole: bool) -> tuple[bool, dict[str, Any] | None]:
        """End a request. Returns whether its blocks are still needed, and what its client is told.

        Args:
            request: The request.
            blocks: Its blocks.
            whole: It has answered. Of an aborted request (vLLM aborts at a stop string) the messages that it computed
                are saved, but no answer.
        """
        plan = self._plans.pop(request.request_id, None)
        if plan is None:
            return False, None
        if plan.begun:
            self._encodings.let_go(plan.names)
        if plan.error is not None or not (whole or self._usable(request)):
            return False, None
        if isinstance(plan.asked, TurningCheck):
            count = request.num_prompt_tokens
            self._work.measurements.append(Measurement(request.request_id, tuple(blocks), count))
            return True, {KEY: {"measured_tokens": count}}
        made = [Read(each.name, start, each.length) for start, each in self._made(request, plan, answered=whole)]
        self._forget_dropped_saves()
        told = {
            "loaded_tokens": sum(each.length for each in plan.readings),
            "exact_tokens": sum(each.length for each in plan.readings if each.exact),
            "leaked_tokens": sum(each.length for each in self._leaks(request, plan)),
            "saved_tokens": sum(each.length for each in made),
            "moves_keys": self._turns,
        }
        if made:
            self._work.saves.append(Save(request.request_id, tuple(blocks), tuple(made)))
        return bool(made), {KEY: told}

    @staticmethod
    def _usable(request: Any) -> bool:
        """Whether the slots of an aborted request are filled: it has generated tokens since it got them."""
        aborted = request.status.name == "FINISHED_ABORTED"
        return bool(aborted and request.num_output_tokens and not request.num_preemptions)

    def _made(self, request: Any, plan: Plan, answered: bool) -> Iterator[tuple[int, Encoding]]:
        """Add the encodings saved from a request: messages that it computed completely, and its answer without the last
        token, which was never fed. Yields each with its position."""
        assert isinstance(plan.asked, SharedPrompt)
        computed = min(request.num_computed_tokens, request.num_tokens - 1)
        whole = [each.encoding for each in plan.readings if not each.encoding.open]
        before, over = b"", frozenset[bytes]()
        common: Readers = None
        for index, walk in enumerate(self._walk(request, plan, whole)):
            read = whole[index] if index < len(whole) else _computed(plan.scope, walk)
            if index >= len(whole) and walk.span.stop <= computed and self._encodings.add(read):
                yield walk.span.start, read
            over, before = walk.over | read.over | {walk.message}, place_after(walk.place.before, read.name)
            common = walk.readers
        start = plan.prompt.answer
        if start is None or not answered or computed <= request.num_prompt_tokens:
            return
        asked = plan.asked
        heard = asked.audience if plan.prompt.plain and asked.messages is not None else ()
        readers = asked.with_agent(heard)
        if self._markers.words(request.all_token_ids[start:]):
            self._encodings.say(plan.scope, self._said(request.all_token_ids[start:]), readers)
        if self._encodings.leakage == "enforce":
            readers = common_readers(common, readers)
        ids = tuple(request.all_token_ids[start:computed])
        answer = Encoding(
            scope=plan.scope,
            message=message_digest(ids),
            before=before,
            start=start,
            length=len(ids),
            over=over,
            readers=readers,
            open=True,
        )
        if self._encodings.add(answer):
            yield start, answer

    def _leaks(self, request: Any, plan: Plan) -> Iterator[Reading]:
        """The readings computed over messages that do not come before them in the prompt."""
        seen = set[bytes]()
        for reading in plan.readings:
            if not reading.encoding.over <= seen:
                yield reading
            seen.add(reading.encoding.message)

    # -- to and from the worker --------------------------------------------------------------------------

    def take(self) -> Work:
        """The work of the worker in this step."""
        self._forget_dropped_saves()
        work, self._work = self._work, Work()
        return work

    def _forget_dropped_saves(self) -> None:
        """Cancel the saves of encodings that were dropped before being saved, unless they were added again since."""
        dropped, self._encodings.dropped = self._encodings.dropped, []
        self._work.drops += dropped
        gone = {name for name in dropped if name not in self._encodings}
        if gone:
            self._work.saves = [
                save._replace(made=tuple(each for each in save.made if each.name not in gone))
                for save in self._work.saves
            ]

    def forget(self) -> None:
        """Drop all encodings."""
        self._encodings.clear()

    def told(self, report: Report) -> None:
        """Take in the report on an earlier step."""
        for name in report.lost:
            self._encodings.drop(name)
        if report.turning is not None:
            self._turns, why = report.turning
            LOG.warning("keys %s", "can be moved" if self._turns else f"are reused only at their own positions: {why}")


def _computed(scope: Scope, walk: Walk) -> Encoding:
    """The encoding of a message if it is computed at its place in the prompt."""
    span, place = walk.span, walk.place
    return Encoding(
        scope=scope,
        message=walk.message,
        before=place.before,
        start=span.start,
        length=span.stop - span.start,
        over=walk.over,
        readers=walk.readers,
    )


def _measuring(request: Any, asked: TurningCheck) -> Plan:
    ids = request.prompt_token_ids or ()
    if len(ids) < LEAST_MEASURED or len(set(ids)) != 1 or request.lora_request is not None:
        raise RequestError(f"the prompt of a measurement must be one token repeated at least {LEAST_MEASURED} times")
    return Plan(asked)

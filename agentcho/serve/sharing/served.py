"""A served model: which of its callers share encodings, and what is dropped when there are too many.

Independent of HTTP and of how keys are checked.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from agentcho.choreography.choreographer import Choreographer
from agentcho.config import Markers, ReusePolicy, RunConfig
from agentcho.errors import CallFailed, RequestError
from agentcho.games.runs.recording import RecordingSink
from agentcho.protocol.call import EnginePort, FramePort, SchedulingPriority
from agentcho.protocol.progress import ProgressCallback, counted, no_progress
from agentcho.provenance.message_boundaries import check_markers
from agentcho.records.record import RunRecord
from agentcho.serve.api_errors import SHORTLY, TOO_EXPENSIVE, ApiError
from agentcho.serve.request import Answers, Caller, ChatRequest, Hear, LogprobsRule, ServedMode, Sharing
from agentcho.serve.sharing.request_prompt import OF_SOCIETY, check_framed, without_effect
from agentcho.serve.sharing.society import RetentionLimits, Society, SocietyRecording
from agentcho.serve.sharing.stateless_prompts import StatelessPrompts

POLICIES: dict[ServedMode, ReusePolicy] = {
    "baseline": ReusePolicy("baseline"),
    "audit": ReusePolicy(leakage="audit"),
    "enforce": ReusePolicy(leakage="enforce"),
}

NO_LOGPROBS = (
    "logprobs: this server shows no log-probabilities; leave them out, or start the server with --logprobs exact, "
    "which computes them apart from all that runs beside them (with --engine vllm: --logprobs raw)"
)


PROVING = "proofs for the deterministic profile, in which requests for log-probabilities run"
"""What the progress of `ServedModel.prepare` counts."""


class Serving(NamedTuple):
    """How a model is served. `mode`: the mode of societies that do not name one. `markers`: whether to accept a model
    whose chat template lets one message pass for two. `record`: the folder for the runs of its societies (None: they
    are not recorded). `quota`: how many tokens a tenant may keep encoded, `generating` how many
    its concurrent requests may ask for (None: no limit). `idle`: seconds without requests after which
    a society ends. `societies`: how many societies a tenant may have, and how many cache salts without one. `records`:
    how many societies of all tenants may be on record at a time (None: no limit). `user_messages`: who may read user
    messages in a society, if a request does not say. `deterministic`: every step runs in the profile whose bits depend
    on nothing else that runs. `prefill_budget`: see `Choreographer`. `logprobs`: how requests for log-probabilities are
    handled."""

    mode: ServedMode = "enforce"
    markers: Markers = "refuse"
    record: Path | None = None
    keeping: RetentionLimits = RetentionLimits()
    quota: Callable[[str], int] = lambda tenant: 1 << 20
    idle: float = 3600.0
    societies: int = 1000
    generating: int | None = None
    records: int | None = None
    deterministic: bool = False
    prefill_budget: int | None = None
    user_messages: Sharing = "shared"
    logprobs: LogprobsRule = "exact"


Place = tuple[str, str, str]
"""A tenant, a society (or none), and a cache salt. Different places share nothing."""


class ServedModel:
    """A model with its choreographer. `config` is recorded for its societies as what it was loaded with."""

    def __init__(self, name: str, engine: EnginePort, config: RunConfig, serving: Serving) -> None:
        self.name, self.engine, self._config, self._serving = name, engine, config, serving
        self._secret = secrets.token_bytes(32)
        self._societies: dict[Place, Society] = {}
        self._prompts: dict[Place, StatelessPrompts] = {}
        self._asking: Counter[Place] = Counter()
        self._generating: Counter[str] = Counter()

    @property
    def mode(self) -> ServedMode:
        """The mode of societies that do not name one."""
        return self._serving.mode

    @property
    def frames(self) -> FramePort:
        """The part of the engine that never changes."""
        return self.engine

    def prepare(self, tell: ProgressCallback = no_progress) -> None:
        """Prove now, before requests come, which forward passes the deterministic profile may use. Otherwise the first
        request that needs that profile would hold up all others. Does nothing if no request can need it, or if the
        engine proves nothing."""
        needed = self._serving.deterministic or self._serving.logprobs == "exact"
        if not needed or not hasattr(type(self.engine), "sizes"):
            return
        told = counted(tell, PROVING, 1)
        with ThreadPoolExecutor(1) as alone:  # a thread that ends, because torch keeps a pool for each that lives
            alone.submit(getattr, self.engine, "sizes").result()
        told(1)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[ServedModel]:
        """A context in which requests are answered. `UnsupportedModel`: its chat template lets one message pass for
        two, and that is not accepted."""
        how = self._serving
        check_markers(self.engine.framing.plain, how.markers, self.name)
        opened = Choreographer(self.engine, deterministic=how.deterministic, prefill_budget=how.prefill_budget)
        async with opened as choreographer:
            self.choreographer = choreographer
            try:
                yield self
            finally:
                for society in self._societies.values():
                    society.end()
                self._societies.clear()

    def without_effect(self, caller: Caller, request: ChatRequest) -> list[str]:
        """The fields of a request that set variables of the chat template without effect, to be counted."""
        return without_effect(request, self.frames, framed=caller.society is not None)

    async def answer(self, caller: Caller, request: ChatRequest, hear: Hear) -> Answers:
        """Answer a request; `hear` gets the text as it is generated. Raises `ApiError`, or the engine's error for this
        request. If cancelled, its rows are freed at the next step."""
        try:
            with self._reserved(caller.tenant, request):
                return await self._answer(caller, request, hear)
        except RequestError as error:
            if error.field != "sampling" or (request.constrained is None and error.option not in request.options):
                raise
            raise _refused(error, request) from error
        except CallFailed as error:
            if error.option is None:
                raise
            raise ApiError(400, TOO_EXPENSIVE, request.constrained) from error

    @contextmanager
    def _reserved(self, tenant: str, request: ChatRequest) -> Iterator[None]:
        """Count the tokens that a request may generate while it runs. `ApiError`: with the tenant's other requests, or
        alone, it asks for more than the limit."""
        limit = self._serving.generating
        most = max(request.least, request.max_tokens or self._serving.keeping.most)
        tokens = request.choices * min(most, self.frames.context)
        if limit is not None and tokens > limit:
            said = f"this request may generate {tokens} tokens, and this server allows a tenant {limit} at a time"
            raise ApiError(400, f"{request.most}: {said}; ask for fewer, or for fewer answers", request.most)
        if limit is not None and self._generating[tenant] + tokens > limit:
            said = f"your requests under way may generate {self._generating[tenant]} tokens, and {limit} are allowed"
            raise ApiError(429, said, code="rate_limit_exceeded", retry_after=SHORTLY)
        self._generating[tenant] += tokens
        try:
            yield
        finally:
            self._generating[tenant] -= tokens
            if not self._generating[tenant]:
                del self._generating[tenant]

    async def _answer(self, caller: Caller, request: ChatRequest, hear: Hear) -> Answers:
        exact = self._exact(request)
        turn = SchedulingPriority(caller.society or "", request.priority, group=caller.tenant)
        self.end_idle()
        place = caller.tenant, caller.society or "", request.cache_salt
        if caller.society is None:
            with self._asked(place):
                return await self._plain(place).answer(request, hear, turn, exact)
        check_framed(request, self.frames, OF_SOCIETY)
        society = self._society(place, caller)
        try:
            with self._asked(place):
                return await society.answer(caller, request, hear, turn, exact)
        finally:
            self._drop_refused(place, society)

    def _drop_refused(self, place: Place, society: Society) -> None:
        """Drop a society that was opened for requests of which none was accepted. It leaves nothing, not even a record,
        and the next request may choose another mode for it."""
        if not society.begun and not self._asking[place] and self._societies.get(place) is society:
            self._societies.pop(place).end()

    def _exact(self, request: ChatRequest) -> bool:
        """Whether a request runs in the deterministic profile: all do, or it asks for log-probabilities, whose bits
        would otherwise depend on what else is computed at the same time. `ApiError`: this server returns none."""
        serving = self._serving
        if request.logprobs is not None and serving.logprobs == "refuse":
            raise ApiError(400, NO_LOGPROBS, "logprobs")
        return serving.deterministic or (request.logprobs is not None and serving.logprobs == "exact")

    def society_info(self, caller: Caller) -> dict[str, Any] | None:
        """What a society's members may know about it, under all cache salts together. None if there is none of that
        name. A single agent (`caller.agent`) gets nothing from which it could count the messages, or tokens, that
        others keep from it."""
        found = [society for _, society in self._of(caller)]
        if not found:
            return None
        missed = sum((Counter(each.missed(caller.agent)) for each in found), Counter[str]())
        told: dict[str, Any] = {
            "society": caller.society,
            "model": self.name,
            "mode": mode_of(found[0].reuse),
            "agents": sorted({agent for each in found for agent in each.agents}),
            "unmatched_tokens": dict(sorted(missed.items())),
        }
        if caller.agent is not None:
            return told
        return told | {
            "messages": sum(each.messages for each in found),
            "turns": sum(each.turns for each in found),
            "encoded_tokens": sum(each.tokens for each in found),
        }

    def check_idle(self, caller: Caller) -> None:
        """`ApiError`: a request of this society is running, under any cache salt."""
        if any(self._asking[place] for place, _ in self._of(caller)):
            raise ApiError(409, "this society has requests under way; end it when they are answered")

    def end_society(self, caller: Caller) -> bool:
        """End a society and its record, under all cache salts. Returns False if there is none of that name. `ApiError`:
        a request is running, and nothing has ended."""
        self.check_idle(caller)
        found = self._of(caller)
        for place, _ in found:
            self._societies.pop(place).end()
        return bool(found)

    def end_idle(self) -> None:
        """End the societies that have been idle for too long."""
        now = monotonic()
        for place, society in list(self._societies.items()):
            if not self._asking[place] and now - society.used > self._serving.idle:
                self._societies.pop(place).end()

    # -- places ------------------------------------------------------------------------------------------

    def _of(self, caller: Caller) -> list[tuple[Place, Society]]:
        """The society of that name, once for each cache salt."""
        wanted = caller.tenant, caller.society or ""
        return [(place, society) for place, society in self._societies.items() if place[:2] == wanted]

    def _society(self, place: Place, caller: Caller) -> Society:
        if place in self._societies and self._societies[place].broken:
            self._replace_broken(place)
        if place not in self._societies:
            self._make_room(place, caller)
            self._societies[place] = self._open(place, caller)
        society = self._societies[place]
        if caller.mode is not None and caller.mode != mode_of(society.reuse):
            raise ApiError(
                400,
                f"this society was opened with @{mode_of(society.reuse)}, and its mode cannot change; leave "
                "the mode out of the model's name, or use another society",
                "model",
            )
        return society

    def _replace_broken(self, place: Place) -> None:
        if self._asking[place]:
            raise ApiError(
                503, "the record of this society cannot be written, so the society starts again", retry_after=SHORTLY
            )
        self._societies.pop(place).end()

    def _open(self, place: Place, caller: Caller) -> Society:
        mode = caller.mode or self._serving.mode
        reuse = POLICIES[mode]._replace(deterministic=self._serving.deterministic)
        recording = self._recording(caller, reuse)
        how = self._serving
        return Society(self.choreographer, reuse, self._salt(place), how.keeping, recording, how.user_messages)

    def _recording(self, caller: Caller, reuse: ReusePolicy) -> SocietyRecording:
        if self._serving.record is None:
            return SocietyRecording(lambda event: None, lambda key, agent: None, lambda: None, lambda status: None)
        return SocietyRecording.later(lambda: self._create(caller, reuse))

    def _create(self, caller: Caller, reuse: ReusePolicy) -> SocietyRecording:
        """Begin the record of a society."""
        assert self._serving.record is not None
        options = {"tenant": caller.tenant, "society": caller.society}
        config = self._config.model_copy(
            update={name: getattr(reuse, name) for name in ("mode", "leakage", "deterministic")}
        )
        name, folder = f"society-{caller.society}", self._serving.record
        record = RunRecord.create(folder, name, options, config, self.engine.fingerprint, asked="serve")
        sink = RecordingSink(record, None)
        return SocietyRecording(sink, record.spoke_for, sink.flush, record.close)

    def _make_room(self, place: Place, caller: Caller) -> None:
        """End a society for a new one if its tenant has too many, or the whole server has: every record being written
        takes open files, without which the server can accept no connections. First to go is the new one's own society
        under another cache salt, so that nobody ends other societies by using many salts. Then it is one of the tenant
        that has most, and the key of a single agent ends none of its own tenant."""
        tenant = place[0]
        own = [each for each in self._societies if each[0] == tenant]
        most = len(own) >= self._serving.societies
        full = self._serving.records is not None and len(self._societies) >= self._serving.records
        if not most and not full:
            return
        held = Counter([tenant, *(each[0] for each in self._societies)])
        rich = () if most else (each for each in self._societies if held[each[0]] > held[tenant])
        salted = [each for each in own if each[:2] == place[:2] and each[2] and not self._asking[each]]
        given = [] if caller.bound else own
        idle = salted or [each for each in (*given, *rich) if not self._asking[each]]
        if not idle and caller.bound:
            raise ApiError(
                429,
                (
                    "there is no room for another society or cache_salt, and the key of a single agent cannot end a "
                    "society for it; leave out cache_salt, or end a society with a key for the whole society"
                ),
                retry_after=5,
            )
        if not idle and full:
            raise ApiError(
                503,
                "the server has no room for another society at the moment; try again later",
                code="overloaded",
                retry_after=5,
            )
        if not idle:
            raise ApiError(
                429,
                (
                    f"this key has {len(own)} societies, and all of them have requests under way; wait for one, "
                    "or end one"
                ),
                retry_after=5,
            )
        salts = Counter(each[:2] for each in self._societies if each[2])

        def order(each: Place) -> tuple[int, int, float]:
            """Of a tenant, the society with most cache salts gives one up first."""
            return -held[each[0]], -salts[each[:2]] if each[2] else -1, self._societies[each].used

        self._societies.pop(min(idle, key=order)).end()

    def _plain(self, place: Place) -> StatelessPrompts:
        if place not in self._prompts:
            self._make_plain_room(place[0])
            self._prompts[place] = StatelessPrompts(self.choreographer, self._salt(place), self._serving.keeping)
        return self._prompts[place]

    def _make_plain_room(self, tenant: str) -> None:
        """Drop the tenant's least recently used cache salt if it has too many, because each slows down every
        request."""
        own = [place for place in self._prompts if place[0] == tenant]
        idle = [place for place in own if not self._asking[place]]
        if len(own) >= self._serving.societies and idle:
            self._prompts.pop(min(idle, key=lambda place: self._prompts[place].used)).forget(0)

    def _salt(self, place: Place) -> str:
        """An unguessable salt that keeps the encodings of one place apart from all others."""
        framed = "".join(f"{len(part)}:{part}" for part in place).encode(errors="surrogatepass")
        return hmac.new(self._secret, framed, hashlib.sha256).hexdigest()

    # -- retention ---------------------------------------------------------------------------------------

    @contextmanager
    def _asked(self, place: Place) -> Iterator[None]:
        """Count a running request of this place."""
        self._asking[place] += 1
        try:
            yield
        finally:
            self._asking[place] -= 1
            if not self._asking[place]:
                del self._asking[place]
            self._shrink(place[0])

    def _shrink(self, tenant: str) -> None:
        """Keep a tenant within its quota; the least recently used encodings are dropped first."""
        quota = self._serving.quota(tenant)
        own: list[Society | StatelessPrompts] = [
            *(society for place, society in self._societies.items() if place[0] == tenant),
            *(prompts for place, prompts in self._prompts.items() if place[0] == tenant),
        ]
        held = sum(kept.tokens for kept in own)
        for kept in sorted(own, key=lambda kept: kept.used):
            if held <= quota:
                break
            before = kept.tokens
            kept.forget(max(0, before - (held - quota)))
            held -= before - kept.tokens
        for place in [place for place, kept in self._prompts.items() if not kept.tokens and not self._asking[place]]:
            del self._prompts[place]


def _refused(error: RequestError, request: ChatRequest) -> ApiError:
    """The engine's refusal of sampling options, in terms of the fields that the client gave."""
    told, constrained = str(error).replace("max_tokens", request.most), request.constrained
    if error.option in request.options:
        return ApiError(400, f"{error.option}: {told}", error.option)
    return ApiError(400, told.replace("json_schema", constrained or "json_schema"), constrained)


def mode_of(reuse: ReusePolicy) -> ServedMode:
    """The name of a policy in a model's alias."""
    return next(mode for mode, policy in POLICIES.items() if policy == reuse._replace(deterministic=False))

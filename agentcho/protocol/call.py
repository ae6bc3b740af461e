"""What crosses between the async side and the torch side: calls and their ids, samplings, receipts, and the
engine's contract.

Token ids and receipts only; tensors stay behind `Engine`. Does not know: agents, audiences, torch, anyio.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol, TypedDict

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from agentcho.errors import RequestError
from agentcho.message import Words
from agentcho.protocol.forward_costs import ForwardCosts
from agentcho.protocol.ownership import Owner
from agentcho.protocol.speculation_corpus import Corpus
from agentcho.protocol.tools import AnswerForm, ToolCall, ToolDefinition, ToolsPort
from agentcho.protocol.value_checks import WORD, checked_list, checked_schema
from agentcho.protocol.variables import NO_VARIABLES, Variables
from agentcho.reuse.anchors import Encoded
from agentcho.reuse.method import Selection, Weighing

EncodingId = int
"""A small number that one engine gave out: see `ids.GivenId`."""
Stopped = Literal["stop", "stop_string", "stop_token", "max_tokens", "forced"]
"""What ended a message: its template's own end, a string or an id that its options name, `max_tokens`, or the last of
its forced tokens."""
Logprobs = tuple[tuple[int, float], ...]
"""Tokens, each with the natural logarithm of its probability."""
Offsets = Sequence[int | None] | Literal["made"] | None
"""Where parents stand: the absolute position of each one's first token (None: right after the one before), or all of
them where they were made ("made"), the new message then beginning after the rightmost of their tokens."""


def _heat(value: float) -> float:
    """A temperature: 0 (greedy), or a number by which logits can be divided and still differ."""
    if value and not COLDEST <= value <= HOTTEST:
        raise ValueError(f"Input should be 0, or from {COLDEST} to {HOTTEST:g}")
    return value


COLDEST, HOTTEST = 1e-6, 1e6
Temperature = Annotated[float, Field(ge=0, allow_inf_nan=False), AfterValidator(_heat)]
Seed = Annotated[int, Field(ge=-WORD, lt=WORD)]
Tokens = Annotated[int, Field(ge=1, lt=WORD)]
Stop = Annotated[str, Field(min_length=1, max_length=256)]
Choice = Annotated[str, Field(min_length=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Bias = Annotated[float, Field(ge=-100, le=100)]
TokenId = Annotated[int, Field(ge=0, lt=WORD)]
BadWord = Annotated[str, Field(max_length=256, pattern=r"\S")]


class Sampling(BaseModel):
    """How one call chooses its tokens. Frozen.

    - `max_tokens` counts sampled tokens, a sampled stop token included.
    - `temperature` 0 takes the likeliest token. `top_k` 0, `top_p` 1 and `min_p` 0 are off; they apply after the
      temperature, in this order.
    - `frequency_penalty` and `presence_penalty` (-2 to 2, 0: off) are taken off the logit of each token that the call
      has sampled: the first once for each time, the second once. `repetition_penalty` (above 0, 1: off) divides the
      logit, where it is positive, of each token that the call has sampled or reads in its prompt, and multiplies it
      where it is negative. `logit_bias` (-100 to 100, by token id) is added to logits before that. All of them come
      before the temperature, and change nothing of `SampledToken.likely`.
    - `stop`: a text that contains one of these strings (at most 64, of at most 256 letters) ends there; the string
      is no part of the text. `stop_token_ids` (at most 1024) end it too: the last token is one of them, and adds
      nothing to the text. With `include_stop_str_in_output` the text ends with the string, or with what the token says.
    - `min_tokens`: nothing but `max_tokens` ends a text before so many tokens. Until then no token can be sampled that
      would, and no stop string counts that is whole by then.
    - `ignore_eos`: no token is sampled that ends messages by itself; one of `stop_token_ids` still is. So nothing ends
      the text but `stop`, `stop_token_ids` and `max_tokens`.
    - `bad_words` (at most 1024, of at most 256 letters): the last token of such a word is not sampled behind the tokens
      before it. A word is tokenised as it stands and, where that makes another first token and as many of them, behind
      a blank; other spellings can still be said.
    - `allowed_token_ids`: no other token is sampled, one that ends the message included.
    - What is held to choices, to JSON of a schema or to a call of a tool comes to an end of its own, and is said as it
      must be: none of the options from `stop` to `allowed_token_ids` says anything there.
    - `seed` (64 bits) keys the call's own random numbers: token i uses number (seed, i), whoever shares the batch.
    - `choices` are the only texts that can be sampled, each closed at once. `json_schema` constrains what is sampled
      to JSON of that schema.

    Raises `RequestError` on construction, for a value that is out of its bounds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    max_tokens: Tokens = 256
    temperature: Temperature = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    frequency_penalty: Penalty = 0.0
    presence_penalty: Penalty = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, le=HOTTEST)] = 1.0
    logit_bias: Annotated[dict[Annotated[int, Field(ge=0)], Bias], Field(max_length=1 << 12)] = {}
    stop: Annotated[tuple[Stop, ...], BeforeValidator(partial(checked_list, what="stop", most=64))] = ()
    stop_token_ids: Annotated[
        tuple[TokenId, ...], BeforeValidator(partial(checked_list, what="stop_token_ids", most=1 << 10))
    ] = ()
    include_stop_str_in_output: bool = False
    min_tokens: Annotated[int, Field(ge=0, lt=WORD)] = 0
    ignore_eos: bool = False
    bad_words: Annotated[
        tuple[BadWord, ...], BeforeValidator(partial(checked_list, what="bad_words", most=1 << 10))
    ] = ()
    allowed_token_ids: (
        Annotated[
            tuple[TokenId, ...], Field(min_length=1), BeforeValidator(partial(checked_list, what="allowed_token_ids"))
        ]
        | None
    ) = None
    seed: Seed = 0
    choices: (
        Annotated[tuple[Choice, ...], BeforeValidator(partial(checked_list, what="choices", most=1 << 16))] | None
    ) = None
    json_schema: Annotated[dict[str, Any], BeforeValidator(partial(checked_schema, what="json_schema"))] | None = None

    if not TYPE_CHECKING:  # the options are the fields

        def __init__(self, **options: Any) -> None:
            try:
                super().__init__(**options)
            except ValidationError as error:
                raise RequestError(
                    f"{_told(error)}; see Sampling for the options and their ranges", "sampling"
                ) from error

    @property
    def bends(self) -> bool:
        """Whether penalties or a bias change logits."""
        unbent = (self.frequency_penalty, self.presence_penalty, self.repetition_penalty, self.logit_bias)
        return unbent != (0.0, 0.0, 1.0, {})

    @property
    def restricts(self) -> bool:
        """Whether an option says which tokens free text may go on with or end by, beside `stop`."""
        named = (self.stop_token_ids, self.bad_words, self.min_tokens, self.ignore_eos)
        return any(named) or self.allowed_token_ids is not None

    def limited(self, most: int) -> Sampling:
        """The same, for at most so many tokens."""
        most = min(most, self.max_tokens)
        return self.model_copy(update={"max_tokens": most, "min_tokens": min(most, self.min_tokens)})

    @model_validator(mode="after")
    def _fits(self) -> Sampling:
        if self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens is {self.min_tokens}, but max_tokens is {self.max_tokens}; lower min_tokens")
        if self.choices is not None and self.json_schema is not None:
            raise ValueError("give choices or json_schema, not both")
        if self.choices is not None and not self.choices:
            raise ValueError("choices is empty: give at least one")
        return self


CUTS = ("top_k", "min_p")
"""Options of `Sampling` that leave out unlikely tokens, and that OpenAI's API does not have."""


class Unconstrained(TypedDict, total=False):
    """The options of `Sampling` that leave open what is said, by name."""

    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    frequency_penalty: float
    presence_penalty: float
    repetition_penalty: float
    logit_bias: dict[int, float]
    stop: list[str] | tuple[str, ...]
    stop_token_ids: list[int] | tuple[int, ...]
    include_stop_str_in_output: bool
    min_tokens: int
    ignore_eos: bool
    bad_words: list[str] | tuple[str, ...]
    allowed_token_ids: list[int] | tuple[int, ...] | None
    seed: int


class SamplingOptions(Unconstrained, total=False):
    """The options of `Sampling` by name, each as that says, for whoever passes them on: `**options:
    Unpack[SamplingOptions]`."""

    choices: Iterable[str] | None
    json_schema: dict[str, Any] | None


def _told(error: ValidationError) -> str:
    """The first three faults of an error, without the values, which may be secret."""
    found = error.errors(include_url=False, include_input=False, include_context=False)[:3]
    return "; ".join(
        f"{'.'.join(map(str, each['loc'])) or 'sampling'}: {each['msg'].removeprefix('Value error, ')}"
        for each in found
    )


class Guard(Protocol):
    """The reference monitor's answer for one call. The engine asks it right before it gathers, and knows no more."""

    def admit(self, id: EncodingId, context: Sequence[EncodingId]) -> bool | None:
        """Encoding `id` is about to be made over `context`, or to share storage made over its like.

        Raises `LeakageError` to refuse: the call fails alone and nothing of `context` is gathered for it. Returns
        whether it is made for everyone and nothing else is in its cone, so that it may outlast the run; None: no.
        """


@dataclass(frozen=True, eq=False)
class Prefill(Encoded):
    """A message of known text, to be encoded over its parents.

    - `parents` are the encodings that it attends to, in prompt order: ids, or calls earlier in the same list.
    - `offsets` are positions, in tokens, of the parents' first framing tokens. None, or a None inside: right after the
      preceding parent, the first right after BOS. "made": each where it was made, so that no key is turned.
    - `new_offset` is the position of the message's own first framing token. None: right after the last parent, with
      "made" right after the rightmost.
    - `role` is "system", "user", "assistant" or "tool", or a piece of one that is encoded in pieces (see
      `message.Part`); `name` is framed where the chat template can.
    - `tokens`, where given, are the token ids of the content, and win over `text`.
    - `framed`, where given, are all token ids of the message, those of its framing among them, as `FramingPort.prompt`
      returns them. They win over `role`, `name`, `text` and `tokens`, and may hold control tokens.
    - `opening`, where given, are the ids before the content, in place of those of the role: an answer that was
      generated keeps what was opened for it.
    - Equal calls share stored keys and values only where their `salt` is the same. `guard` is asked before anything is
      gathered.
    - `adapter` is the digest of one that the engine has beside its own weights (None: through these alone). Parents are
      encodings of the same adapter, or of none.
    - `ape` weighs what it attends to of parents that were encoded beside each other: see `Ape`. None: as it is.
    - `begins`: what it is encoded over is the beginning of its context, with no BOS of the engine's before it: its
      `framed` ids, or those of its first parent, bring what a conversation begins with.
    - `extends` is the encoding of an earlier state of the message, over the same parents at the same positions, with
      the same salt. The keys and values of the tokens that both begin with are copied, not computed again. Where it is
      no such encoding, was released, or is not in the store, and in the deterministic profile, all is computed.
    """

    text: str
    parents: Sequence[EncodingId | Prefill | Repair] = ()
    offsets: Offsets = None
    new_offset: int | None = None
    role: str = "user"
    name: str | None = None
    tokens: tuple[int, ...] | None = None
    salt: str = ""
    guard: Guard | None = None
    extends: EncodingId | None = None
    adapter: str | None = None
    ape: Weighing | None = None
    framed: tuple[int, ...] | None = None
    opening: tuple[int, ...] | None = None
    begins: bool = False


@dataclass(frozen=True, eq=False)
class Decode:
    """A message to be sampled: what the chat template opens for an answer, `header`, sampled tokens, the closing.

    - `parents`, `offsets`, `new_offset`, `name`, `salt`, `guard`, `adapter`, `ape` and `begins` as in `Prefill`.
    - `sampling` says how tokens are chosen; see `Sampling`.
    - `forced` are content ids that take the place of the sampled ones, fed one a step as sampling would feed them. With
      a `stride` above 1 as many are fed a step after the first.
    - `logits` keeps the row of logits that each token was chosen from, for `Engine.logits`.
    - `most` ends a text after so many sampled tokens, unless it is a choice or JSON. What the call is checked for, and
      has room for, is what its sampling allows.
    - `logprobs` (0 to 20) asks for the probability of each token of the text, forced or sampled, and of so many of the
      likeliest ones: see `SampledToken.likely`. None: nothing is computed for that.
    - `forms`: what is sampled is written in one of these ways. They go with no `choices` and no `json_schema`.
    - `corpora`: what its tokens may be guessed from, so that several are checked in one forward, beside what it says
      itself. None: nothing is guessed. What is said is the same.
    - `opening`, where given, are the ids before the header, in place of the assistant's framing: those of a prompt's
      `RenderedPrompt`.
    - `cut`: a choice or JSON may be cut where its tokens do not suffice for any; else that is a `RequestError`.
    - `thinks`: the model may think first, in the way of its template (see `ThinkingPort`). Then the header, and what a
      choice or a schema holds it to, come after the thought. Stop strings and constraints say nothing of a thought.
      `max_tokens` counts it, but for choices and JSON: there a thought may have as many, and is closed at the last.
      Nothing is different on models that do not think. `thinking`: in this way, and not in that of the template without
      the variables of a request (None: in that).
    """

    header: str = ""
    parents: Sequence[EncodingId | Prefill | Repair] = ()
    offsets: Offsets = None
    new_offset: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    name: str | None = None
    forced: tuple[int, ...] | None = None
    logits: bool = False
    stride: int = 1
    salt: str = ""
    guard: Guard | None = None
    most: int | None = None
    logprobs: int | None = None
    forms: tuple[AnswerForm, ...] = ()
    corpora: tuple[Corpus, ...] | None = None
    adapter: str | None = None
    ape: Weighing | None = None
    cut: bool = False
    opening: tuple[int, ...] | None = None
    thinks: bool = False
    thinking: ThinkingPort | None = None
    begins: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether what it says is to come to an end of its own: a choice, or JSON."""
        return bool(self.forms) or self.sampling.choices is not None or self.sampling.json_schema is not None

    @property
    def stop(self) -> tuple[str, ...]:
        """The strings that end it: none, where it is to come to an end of its own."""
        return () if self.is_whole else self.sampling.stop

    @property
    def last(self) -> int:
        """The sampled token, counted from 1, that ends it if nothing did before."""
        sampling = self.sampling
        return sampling.max_tokens if self.most is None or self.is_whole else min(self.most, sampling.max_tokens)


@dataclass(frozen=True, eq=False)
class Shadow:
    """A second encoding of what a decode says, over other parents, made while it speaks.

    `of` stands earlier in the same list. Each token that is accepted there is fed here too, and both are done
    together. A short one that was fed nothing by then is encoded when somebody first reads it. It is dropped with `of`.
    Everything else as in `Prefill`.
    """

    of: Decode
    parents: Sequence[EncodingId | Prefill | Repair] = ()
    offsets: Offsets = None
    new_offset: int | None = None
    salt: str = ""
    guard: Guard | None = None
    adapter: str | None = None
    ape: Weighing | None = None


@dataclass(frozen=True, eq=False)
class Repair(Encoded):
    """An encoding between reusing and encoding anew: the message of `of`, over other parents, with some of its tokens
    encoded again.

    The tokens that `choose` selects are encoded over the parents and the message's own earlier tokens, whether these
    are encoded again or not. The other tokens keep the keys and values that they have in `of`, moved to where they
    stand now. `of` is an encoding's id, or a call that stands earlier in the same list. The rest is as in `Prefill`.
    """

    of: EncodingId | Prefill | Repair
    choose: Selection
    parents: Sequence[EncodingId | Prefill | Repair] = ()
    offsets: Offsets = None
    new_offset: int | None = None
    salt: str = ""
    guard: Guard | None = None
    adapter: str | None = None


Call = Prefill | Decode | Shadow | Repair


class SchedulingPriority(NamedTuple):
    """In which order lists of calls are served where not all can run at once. A higher `priority` goes first;
    workflows of one priority get equal shares of tokens. `ahead`: prefills that nobody waits for yet; they run beside
    decodes, and only while no other call waits."""

    workflow: str = ""
    priority: int = 0
    ahead: bool = False


DEFAULT_PRIORITY = SchedulingPriority()


class ContextEntry(NamedTuple):
    """One encoding as it was attended to: its id, the position of its first token, its length in tokens."""

    id: EncodingId
    offset: int
    length: int


class Receipt(NamedTuple):
    """What a call really attended to, read from the gather that was built.

    `start` is the position of its own first token; `bos` is the number of tokens at position 0 that every context
    begins with, and that it attended to: mostly the BOS. `base` is the encoding that a repaired one keeps tokens of,
    and `anchors` those that offsets were added from (see `KVComm`).
    """

    context: tuple[ContextEntry, ...]
    start: int
    bos: int
    base: EncodingId | None = None
    anchors: tuple[EncodingId, ...] = ()


class SampledToken(NamedTuple):
    """The `nth` sampled token of a running decode, from 0; `text` is what it adds to the visible text, if any.

    `likely`, where the call asks for it, are pairs of a token and the natural logarithm of its probability: of `token`,
    then of the likeliest tokens, the likeliest first. The probabilities are the model's own, over its whole vocabulary:
    before temperature, top_k, top_p, min_p, constraint, and what else `Sampling` changes or rules out.

    `thought`: the token is part of a thought, and `text` is what it adds to that. None: nobody knows yet, for it may be
    the beginning of the mark before a thought; there is no text then.
    """

    id: EncodingId
    nth: int
    token: int
    text: str
    likely: Logprobs = ()
    thought: bool | None = False


class DecodeStarted(NamedTuple):
    """A decode that has said its first token: its words before, framing and header, and what its row attends to."""

    id: EncodingId
    words: Words
    receipt: Receipt


class CallFailure(NamedTuple):
    """A call that failed alone."""

    id: EncodingId
    error: Exception


class StepResult(NamedTuple):
    """What one engine step brought: new tokens, calls that are done, calls that failed.

    An id that is `finished` names an encoding, stored or made when it is first read. `encoded` counts the tokens fed in
    the step; `held` is the share of the store that is taken after it, or promised to what runs. `begun` has each decode
    once, in the step of its first token: by that and by what it has `spoken` is known what left the engine, whatever
    becomes of its row. `dropped` counts tokens that were fed on a guess and are none of what is said; they are not in
    `encoded`.
    """

    spoken: tuple[SampledToken, ...]
    finished: tuple[EncodingId, ...]
    failed: tuple[CallFailure, ...]
    encoded: int
    held: float = 0.0
    begun: tuple[DecodeStarted, ...] = ()
    dropped: int = 0


class ContentPort(Protocol):
    """Text to ids as content, and back."""

    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def check(self, ids: Iterable[int]) -> tuple[int, ...]:
        """Ids that can be content. `RequestError`: one of them cannot."""

    def spells(self, ids: Sequence[int], text: str) -> bool:
        """Whether `ids` are the ones that `text` encodes to."""

    def token_bytes(self, id: int, begins: bool = False) -> bytes:
        """The bytes that a token adds to a text, which it `begins` or not."""

    def marked(self, ids: Sequence[int]) -> bool:
        """Whether content has tokens of the template's own in it, as around a call of a function, which its text alone
        does not give. Marks of thoughts do not count."""


class ChatMessage(NamedTuple):
    """A message of a conversation, as its chat template gets it. `calls` are those of functions that it makes behind
    its text; of a result, `call_id` is the id of the call and `name` that of the function. One with `tools` offers
    these functions, and the template lists them where it has them; its text says so to a model whose template does
    not."""

    role: str
    text: str
    name: str | None = None
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    tools: tuple[ToolDefinition, ...] = ()


class PromptPiece(NamedTuple):
    """Some of a prompt's ids, in order, and the places in the conversation of the messages that they are of: mostly
    one."""

    tokens: tuple[int, ...]
    messages: tuple[int, ...]


class RenderedPrompt(NamedTuple):
    """A conversation as its chat template writes it, without BOS: ids up to the answer, and those that open it.
    `thinking`: how the model thinks behind that opening (None: it does not). `begins`: the first piece has what the
    conversation begins with, which is not what the engine puts there."""

    pieces: tuple[PromptPiece, ...]
    opening: tuple[int, ...]
    thinking: ThinkingPort | None = None
    begins: bool = False


class ThinkingPort(Protocol):
    """How a model thinks before it says something. `begin` and `end` are the marks around a thought, as text; `behind`
    are the ids between the mark at its end and what is said. `kept`: the template leaves the thoughts of earlier
    answers where they were; otherwise it cuts them."""

    @property
    def begin(self) -> str: ...
    @property
    def end(self) -> str: ...
    @property
    def begins(self) -> tuple[int, ...]:
        """The ids of `begin`."""

    @property
    def ends(self) -> tuple[int, ...]:
        """The ids of `end`: one token, or several that the mark is found by as text."""

    @property
    def behind(self) -> tuple[int, ...]: ...
    @property
    def kept(self) -> bool: ...
    def opening(self, ordinary: tuple[int, ...]) -> tuple[int, ...]:
        """The ids before an answer that may begin with a thought, in place of the `ordinary` ones."""


class DefaultPrompt(NamedTuple):
    """The system message that a chat template writes where a conversation has none: its text, such as a model's own
    name or a date, all its ids, and the (start, stop) of the text within them."""

    text: str
    tokens: tuple[int, ...]
    content: tuple[int, int]


class FramingPort(Protocol):
    """The fixed ids around a message's content. `begin`: the ids that every context begins with, such as a BOS.
    `default`: what the chat template writes where a conversation has no system message (None: nothing). It stands for a
    system message of that text. `later`: the ids before a system message that stands behind others, where they are not
    those of one that comes first (None: they are)."""

    @property
    def begin(self) -> tuple[int, ...]: ...
    @property
    def default(self) -> DefaultPrompt | None: ...
    @property
    def later(self) -> tuple[int, ...] | None: ...
    @property
    def content(self) -> ContentPort: ...
    @property
    def plain(self) -> Sequence[tuple[str, str]]:
        """Roles between whose messages stands nothing but what a text can spell or a model can say."""

    @property
    def apart(self) -> bool:
        """Whether the model was trained on messages that were tokenised one by one, so that agents' prompts are made of
        frames in every mode."""

    @property
    def tools(self) -> ToolsPort:
        """How functions, calls of them and results are written."""

    @property
    def thinking(self) -> ThinkingPort | None:
        """How the model thinks before it says something; None: it does not."""

    def opening(self, role: str, name: str | None, answer: bool = False) -> tuple[int, ...]:
        """The ids before the content of a message. `answer`: of one that is generated, with all that the chat template
        opens for it."""

    def closing(self, role: str) -> tuple[int, ...]: ...
    def prompt(self, conversation: Sequence[ChatMessage], variables: Variables = NO_VARIABLES) -> RenderedPrompt | None:
        """A conversation as the chat template writes it as a whole when it is given these variables beside its own.
        None: each message has a frame of its own."""

    def unread(self, names: Collection[str]) -> list[str]:
        """Those of these names of variables that the chat template does not read, sorted."""


class FramePort(Protocol):
    """The part of an engine that never changes, and may be used from any thread at any time. `context` is its number of
    positions, `bos` that of the tokens which every context begins with: mostly one, the BOS, or none."""

    @property
    def framing(self) -> FramingPort: ...
    @property
    def context(self) -> int: ...
    @property
    def bos(self) -> int: ...
    def frame(self, role: str, name: str | None, text: str, tokens: tuple[int, ...] | None = None) -> Words:
        """The words of a `Prefill` of this text, or of these content ids, without encoding it: all that is known of a
        message before anybody reads it. `RequestError`: nothing could encode that."""


class EnginePort(FramePort, Protocol):
    """The engine as the choreographer sees it. Synchronous; `owner` admits one caller at a time to what changes
    anything: `EngineBusy` otherwise.

    `submit` checks every call before it accepts any, raises `RequestError` with nothing changed, and returns
    one new id a call, in order; each id is held (reference count one) until `release`. Parents are ids of
    finished calls, of prefills submitted earlier, or Prefills earlier in the same list. `turn` says who goes first
    where not all can run at once; what comes out is the same.
    `step` runs one forward over everything submitted and running, and returns when what it tells of has been
    computed, on whatever device. Where the forward fails, its calls are tried one by one, and who fails by itself is
    told of in the result (`CallFailed`, or what says more), and dropped with its rows and pages. It raises
    `EngineFailed` when a device fails: all calls are dropped, and stored encodings are untouched. With nothing to do it
    returns an empty result.
    `deterministic` makes the bits of each call depend on that call alone: calls go through forwards of their own, and
    rows together only where it was proved that they have the bits that they have alone.
    `take_place` gives the engine a place among those of a run: ids of different places are different numbers. While
    decodes run, prefills then have at most `prefill_budget` tokens of a step (None: as many as the engine finds right).
    `cancel` drops calls that are not finished, at once, rows and pages freed; finished or unknown ids are a
    no-op. `release` gives up finished encodings; storage is freed when nothing else holds it. `swap_out` moves
    finished encodings out of the way until somebody reads them: a hint that changes no result.
    `speculate` lets decodes with corpora guess tokens from now on, weighed by `costs` (None: those that it has, or
    measures now); returns what they are weighed by, None where nothing is ever guessed.
    """

    def take_place(self, place: int, prefill_budget: int | None = None) -> None: ...
    def submit(self, calls: Sequence[Call], turn: SchedulingPriority = DEFAULT_PRIORITY) -> tuple[EncodingId, ...]: ...
    def step(self, deterministic: bool = False) -> StepResult: ...
    def cancel(self, ids: Iterable[EncodingId]) -> None: ...
    def release(self, ids: Iterable[EncodingId]) -> None: ...
    def swap_out(self, ids: Iterable[EncodingId]) -> None: ...
    def speculate(self, costs: ForwardCosts | None = None) -> ForwardCosts | None: ...
    def message(self, id: EncodingId) -> Words: ...
    def receipt(self, id: EncodingId) -> Receipt: ...
    @property
    def owner(self) -> Owner:
        """Of the network, which several engines may be on."""

    @property
    def idle(self) -> bool:
        """Nothing submitted, nothing running."""

    @property
    def fingerprint(self) -> dict[str, str]:
        """Digests and versions for the run record: model, tokenizer, dtype, device."""

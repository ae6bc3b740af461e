"""The contract between the async side and the torch side: calls, ids, options, receipts, and the protocols of engines.

Only token ids and receipts cross this border. Tensors stay behind `Engine`. Must not depend on agents, audiences, torch
or anyio.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol, TypedDict

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from agentcho.errors import RequestError, asking
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
"""A number that one engine issued: see `ids.GivenId`."""
Stopped = Literal["stop", "stop_string", "stop_token", "max_tokens", "forced"]
"""The cause of a message's end: its template's own end, a string or an id of its options, `max_tokens`, or its last
forced token."""
Logprobs = tuple[tuple[int, float], ...]
"""Token ids, each with the natural logarithm of its probability."""
Offsets = Sequence[int | None] | Literal["made"] | None
"""Positions of parents: that of each one's first token (None: right after the one before), or "made" to leave all of
them where they were encoded. The new message then begins after the rightmost of their tokens."""


def _heat(value: float) -> float:
    """Return a temperature: 0 (greedy), or a number by which logits can be divided and still differ."""
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

    `logit_bias` is added to the logits first. Then come the penalties, the temperature, and `top_k`, `top_p` and
    `min_p`, in this order. The penalties count tokens of this call, and `repetition_penalty` those of its prompt too.
    None of them changes the probabilities in `SampledToken.likely`.

    With `choices` or `json_schema` the text ends by itself, so none of the options from `stop` to `allowed_token_ids`
    has any effect.

    Args:
        max_tokens: Maximum number of sampled tokens, a sampled stop token included.
        temperature: 0 always takes the likeliest token; otherwise from 1e-6 to 1e6.
        top_p: Sample from the likeliest tokens that together have this probability. 1 is off.
        top_k: Sample from this many of the likeliest tokens. 0 is off.
        min_p: Leave out tokens that are less probable than this share of the likeliest token's probability. 0 is off.
        frequency_penalty: Subtracted from the logit of each sampled token once per occurrence, -2 to 2.
        presence_penalty: Subtracted once from the logit of each sampled token, -2 to 2.
        repetition_penalty: Divides the logit of each token that was sampled or is in the prompt if the logit is
            positive, and multiplies it otherwise. 1 is off.
        logit_bias: Numbers from -100 to 100 that are added to logits, by token id.
        stop: Strings of at most 256 characters, at most 64 of them, that end the text. The string is not part of the
            text.
        stop_token_ids: At most 1024 token ids that end the text. The token adds nothing to it.
        include_stop_str_in_output: Whether the text ends with the stop string, or with the text of the stop token.
        min_tokens: Number of tokens before which only `max_tokens` ends the text. No token that would end it can be
            sampled until then, and a stop string that is complete by then does not count.
        ignore_eos: Whether to exclude tokens that end messages by themselves, so that only `stop`, `stop_token_ids` and
            `max_tokens` end the text.
        bad_words: At most 1024 words of at most 256 characters that are not generated: the last token of a word is
            excluded after its other tokens. A word counts as written and, if that gives another first token and as many
            tokens, after a space. Other spellings can still be generated.
        allowed_token_ids: The only token ids that can be sampled, those that end the message included. None allows all.
        seed: Seed of the call's own random numbers, 64 bits. Token i uses number (seed, i), whatever else is in the
            batch.
        choices: The only texts that can be sampled, at most 65,536. None for free text.
        json_schema: Constrains the text to JSON of this schema. None for free text.

    Raises:
        RequestError: A value is out of its bounds, or options contradict each other.
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
                told = _told(error)
                see = " See" if told.endswith("?") else "; see"
                raise RequestError(f"{told}{see} Sampling for the options and their ranges", "sampling") from error

    @property
    def bends(self) -> bool:
        """Whether penalties or a bias change logits."""
        unbent = (self.frequency_penalty, self.presence_penalty, self.repetition_penalty, self.logit_bias)
        return unbent != (0.0, 0.0, 1.0, {})

    @property
    def restricts(self) -> bool:
        """Whether an option other than `stop` restricts the tokens of free text."""
        named = (self.stop_token_ids, self.bad_words, self.min_tokens, self.ignore_eos)
        return any(named) or self.allowed_token_ids is not None

    def limited(self, most: int) -> Sampling:
        """Return the same options with at most `most` tokens."""
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
    """The options of `Sampling` that do not constrain the text, by name."""

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
    """The options of `Sampling` by name, for functions that pass them on: `**options: Unpack[SamplingOptions]`."""

    choices: Iterable[str] | None
    json_schema: dict[str, Any] | None


def _told(error: ValidationError) -> str:
    """Return the first three faults of an error, without the values, which may be secret."""
    found = error.errors(include_url=False, include_input=False, include_context=False)[:3]
    return "; ".join(map(_fault, found)).replace("?; ", "? ")


def _fault(each: ErrorDetails) -> str:
    place, what = ".".join(map(str, each["loc"])) or "sampling", each["msg"].removeprefix("Value error, ")
    if each["type"] == "extra_forbidden":
        what = f"there is no such option{asking(place, Sampling.model_fields)}"
    return what if what.startswith(f"{place} ") else f"{place}: {what}"


class Guard(Protocol):
    """Answers for the reference monitor about one call. The engine asks it right before it gathers."""

    def admit(self, id: EncodingId, context: Sequence[EncodingId]) -> bool | None:
        """Decide whether encoding `id` may be made over `context`, or share storage made over an equal one.

        Returns:
            Whether it is made for everyone and its cone holds nothing else, so that it may be stored for later runs.
            None means no.

        Raises:
            LeakageError: The call is refused. It fails alone, and nothing of `context` is gathered for it.
        """


@dataclass(frozen=True, eq=False)
class Prefill(Encoded):
    """A message of known text, to be encoded over its parents.

    Args:
        text: The text.
        parents: Encodings that the message attends to, in prompt order: ids, or calls earlier in the same list.
        offsets: Positions of the parents' first framing tokens, in tokens. None, or a None inside, means right after
            the preceding parent; the first parent is right after BOS. "made" leaves each parent where it was encoded,
            so that no key is rotated.
        new_offset: Position of the message's own first framing token. None means right after the last parent, or with
            "made" right after the rightmost one.
        role: "system", "user", "assistant", "tool", or a piece of a message that is encoded in pieces (see
            `message.Part`).
        name: The speaker's name, framed if the chat template can. None for none.
        tokens: Token ids of the content, which override `text`. None encodes the text.
        salt: Equal calls share stored keys and values only if their salts are equal.
        guard: Asked before anything is gathered. None for no guard.
        extends: An encoding of an earlier state of the message over the same parents, at the same positions, with the
            same salt. Keys and values of the common first tokens are copied from it. If it is no such encoding, or is
            not stored, and in the deterministic profile, everything is computed. None for none.
        adapter: Digest of an adapter that the engine has: see `Engine.mix`. Parents must be encodings of the same
            adapter or of none. None means the engine's own weights alone.
        ape: How to weigh parents that were encoded side by side: see `Ape`. None leaves the weights alone.
        framed: All token ids of the message, its framing included. They override `role`, `name`, `text` and `tokens`,
            and may hold control tokens. None for none.
        opening: Token ids before the content in place of those of the role. None for the role's own.
        begins: Whether the message is encoded over the beginning of its context, without the engine's BOS before it:
            its `framed` ids, or those of its first parent, have what a conversation begins with.
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
    """A message to be generated: the opening of an answer, `header`, sampled tokens, and the closing.

    Args:
        header: The beginning of the message. It is not part of its text.
        parents: As for `Prefill`.
        offsets: As for `Prefill`.
        new_offset: As for `Prefill`.
        sampling: How tokens are chosen.
        name: As for `Prefill`.
        forced: Content ids that replace the sampled ones, fed one per step as sampling would. None samples.
        logits: Whether to keep the logits that each token was chosen from, for `Engine.logits`.
        stride: Number of forced tokens per step after the first one. Above 1 only with `forced`.
        salt: As for `Prefill`.
        guard: As for `Prefill`.
        most: Ends free text after this many sampled tokens. Checks and room still follow `sampling`. None means
            `max_tokens`.
        logprobs: How many of the likeliest tokens, 0 to 20, to report with the probability of each token of the text:
            see `SampledToken.likely`. None reports nothing.
        forms: Formats of tool calls, one of which the text must have. Not with `choices` or `json_schema`.
        corpora: Texts from which tokens may be guessed, beside the text itself, so that one forward pass checks
            several. The text stays the same. None guesses nothing.
        adapter: As for `Prefill`.
        ape: As for `Prefill`.
        cut: Whether `max_tokens` may cut a choice or JSON that does not fit. Otherwise a call whose tokens suffice for
            none raises `RequestError`.
        opening: Token ids before the header in place of the assistant's framing: those of a `RenderedPrompt`. None for
            the framing.
        thinks: Whether the model may think first, as its template does (see `ThinkingPort`). Header and constraints
            then come after the thought, and stop strings do not apply to it. `max_tokens` includes the thought; with
            choices or JSON the thought may have as many tokens of its own, and is closed at the last. It changes
            nothing on models that do not think.
        thinking: The format of the thought, if a request's own template variables change it. None means the template's.
        begins: As for `Prefill`.
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
        """Whether the text ends by itself: a choice, JSON, or a tool call."""
        return bool(self.forms) or self.sampling.choices is not None or self.sampling.json_schema is not None

    @property
    def stop(self) -> tuple[str, ...]:
        """The strings that end the text. None apply if it ends by itself."""
        return () if self.is_whole else self.sampling.stop

    @property
    def last(self) -> int:
        """The number, from 1, of the sampled token that ends the text if nothing else did."""
        sampling = self.sampling
        return sampling.max_tokens if self.most is None or self.is_whole else min(self.most, sampling.max_tokens)


@dataclass(frozen=True, eq=False)
class Shadow:
    """A second encoding of a decode's text over other parents, made while it is generated.

    `of` comes earlier in the same list. Each token that is accepted there is fed here too, and both end together. A
    short text that was not fed by then is encoded when it is first read. The shadow is dropped with `of`. Everything
    else is as in `Prefill`.
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
    """A stored message encoded over other parents, with some of its tokens computed again and the others reused.

    The tokens that `choose` selects are computed over the parents and over all earlier tokens of the message. The other
    tokens keep their keys and values from `of`, moved to their new positions.

    Args:
        of: The stored encoding: an id, or a call earlier in the same list.
        choose: Which tokens to compute again, such as `FirstK(16)` or `TopK(0.15)`.
        parents: As for `Prefill`.
        offsets: As for `Prefill`.
        new_offset: As for `Prefill`.
        salt: As for `Prefill`.
        guard: As for `Prefill`.
        adapter: As for `Prefill`.
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
    """The order in which lists of calls are served if not all of them can run at once.

    A higher `priority` goes first. Groups of workflows of one priority get equal shares of tokens, and so do the
    workflows of one group. `ahead` marks prefills that no call waits for yet: they run beside decodes, and only while
    no other call waits.
    """

    workflow: str = ""
    priority: int = 0
    ahead: bool = False
    group: str = ""


DEFAULT_PRIORITY = SchedulingPriority()


class ContextEntry(NamedTuple):
    """One encoding as it was attended to: its id, the position of its first token, and its length in tokens."""

    id: EncodingId
    offset: int
    length: int


class Receipt(NamedTuple):
    """What a call actually attended to, read from the gather that was built.

    Attributes:
        context: Id, position and length in tokens of each encoding.
        start: Position of the call's own first token.
        bos: Number of tokens at position 0 that every context begins with and that it attended to, usually the BOS.
        base: The encoding that a repair keeps tokens of. None for other calls.
        anchors: Encodings whose offsets were added: see `KVComm`.
    """

    context: tuple[ContextEntry, ...]
    start: int
    bos: int
    base: EncodingId | None = None
    anchors: tuple[EncodingId, ...] = ()


class SampledToken(NamedTuple):
    """One sampled token of a running decode.

    Attributes:
        id: The encoding.
        nth: Number of the token, from 0.
        token: Its id.
        text: What it adds to the visible text, if anything.
        likely: If the call asks for it, (token, natural logarithm of its probability): first of `token`, then of the
            likeliest tokens in order. The probabilities are the model's own over its whole vocabulary, before
            temperature, filters, constraints and everything else that `Sampling` changes.
        thought: Whether the token is part of a thought, whose text `text` then is. None if that is not known yet,
            because it may begin the mark of a thought; there is no text then.
    """

    id: EncodingId
    nth: int
    token: int
    text: str
    likely: Logprobs = ()
    thought: bool | None = False


class DecodeStarted(NamedTuple):
    """A decode that has sampled its first token: its framing and header, and what it attends to."""

    id: EncodingId
    words: Words
    receipt: Receipt


class CallFailure(NamedTuple):
    """A call that failed alone."""

    id: EncodingId
    error: Exception


class StepResult(NamedTuple):
    """What one engine step produced.

    Attributes:
        spoken: Sampled tokens.
        finished: Ids of finished calls. Each names an encoding, stored or made when it is first read.
        failed: Calls that failed alone.
        encoded: Number of tokens fed in the step.
        held: Share of the store that is taken, or promised to running calls, after the step.
        begun: Each decode once, in the step of its first token. Together with `spoken` this covers all that left the
            engine.
        dropped: Number of tokens that were fed on a wrong guess. They are not in `encoded`.
    """

    spoken: tuple[SampledToken, ...]
    finished: tuple[EncodingId, ...]
    failed: tuple[CallFailure, ...]
    encoded: int
    held: float = 0.0
    begun: tuple[DecodeStarted, ...] = ()
    dropped: int = 0


class ContentPort(Protocol):
    """Converts text to token ids of content, and back."""

    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def check(self, ids: Iterable[int]) -> tuple[int, ...]:
        """Return ids that can be content. Raises `RequestError` if one of them cannot."""

    def spells(self, ids: Sequence[int], text: str) -> bool:
        """Return whether `ids` are those that `text` encodes to."""

    def token_bytes(self, id: int, begins: bool = False) -> bytes:
        """Return the bytes that a token adds to a text, at its beginning or later."""

    def marked(self, ids: Sequence[int]) -> bool:
        """Return whether content holds the template's own tokens, such as those around a tool call.

        Its text does not show them. Marks of thoughts do not count.
        """


class ChatMessage(NamedTuple):
    """A message of a conversation as its chat template receives it.

    Attributes:
        role: The role.
        text: The text.
        name: The speaker, or for a result the function. None for none.
        calls: Tool calls that the message makes after its text.
        call_id: For a result, the id of the call.
        tools: Functions that the message offers. The template lists them if it can; otherwise the text does.
    """

    role: str
    text: str
    name: str | None = None
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    tools: tuple[ToolDefinition, ...] = ()


class PromptPiece(NamedTuple):
    """Some token ids of a prompt, in order, and the numbers of the messages that they belong to, usually one."""

    tokens: tuple[int, ...]
    messages: tuple[int, ...]


class RenderedPrompt(NamedTuple):
    """A conversation as its chat template writes it, without BOS.

    Attributes:
        pieces: The ids up to the answer.
        opening: The ids that open the answer.
        thinking: How the model thinks after that opening. None if it does not.
        begins: Whether the first piece has the ids that the conversation begins with, in place of the engine's own.
    """

    pieces: tuple[PromptPiece, ...]
    opening: tuple[int, ...]
    thinking: ThinkingPort | None = None
    begins: bool = False


class ThinkingPort(Protocol):
    """How a model thinks before it answers.

    `begin` and `end` are the marks around a thought, as text. `behind` are the ids between the end mark and the answer.
    `kept` tells whether the template keeps the thoughts of earlier answers; otherwise it cuts them.
    """

    @property
    def begin(self) -> str: ...
    @property
    def end(self) -> str: ...
    @property
    def begins(self) -> tuple[int, ...]:
        """The ids of `begin`."""

    @property
    def ends(self) -> tuple[int, ...]:
        """The ids of `end`: one token, or several whose text is the mark."""

    @property
    def behind(self) -> tuple[int, ...]: ...
    @property
    def kept(self) -> bool: ...
    def opening(self, ordinary: tuple[int, ...]) -> tuple[int, ...]:
        """Return the ids before an answer that may begin with a thought, in place of the `ordinary` ones."""


class DefaultPrompt(NamedTuple):
    """The system message that a chat template writes if there is none: its text, ids, and (start, stop) of the text."""

    text: str
    tokens: tuple[int, ...]
    content: tuple[int, int]


class FramingPort(Protocol):
    """The fixed ids around a message's content.

    `begin` are the ids that every context begins with, such as a BOS. `default` is the system message that the chat
    template writes if a conversation has none (None for none). `later` are the ids before a system message that is not
    the first, if they differ from those of a first one (None if not).
    """

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
        """Pairs of roles whose messages are separated only by what text can spell or a model can generate."""

    @property
    def apart(self) -> bool:
        """Whether the model was trained on messages that were tokenized one by one.

        Prompts are then made of frames in every mode.
        """

    @property
    def tools(self) -> ToolsPort:
        """How functions, calls and results are written."""

    @property
    def thinking(self) -> ThinkingPort | None:
        """How the model thinks before it answers. None if it does not."""

    def opening(self, role: str, name: str | None, answer: bool = False) -> tuple[int, ...]:
        """Return the ids before the content of a message.

        `answer` means a generated one, with everything that the template opens for it.
        """

    def closing(self, role: str) -> tuple[int, ...]: ...
    def prompt(self, conversation: Sequence[ChatMessage], variables: Variables = NO_VARIABLES) -> RenderedPrompt | None:
        """Return a conversation as the chat template writes it as a whole, given these variables.

        None if each message has its own frame.
        """

    def unread(self, names: Collection[str]) -> list[str]:
        """Return the names of variables among these that the chat template does not read, sorted."""


class FramePort(Protocol):
    """The part of an engine that never changes, and that any thread may use at any time.

    `context` is its number of positions. `bos` is the number of tokens that every context begins with: usually one, the
    BOS, or none.
    """

    @property
    def framing(self) -> FramingPort: ...
    @property
    def context(self) -> int: ...
    @property
    def bos(self) -> int: ...
    def frame(self, role: str, name: str | None, text: str, tokens: tuple[int, ...] | None = None) -> Words:
        """Return the words of a `Prefill` of this text, or of these content ids, without encoding it.

        Raises `RequestError` for words that could not be encoded.
        """


class EnginePort(FramePort, Protocol):
    """The engine as the choreographer sees it. Synchronous.

    `owner` admits one caller at a time, and others get `EngineBusy`.

    `submit` checks every call before it accepts any, and raises `RequestError` with nothing changed. It returns one new
    id per call, in order. Each id is held (reference count one) until `release`. Parents are ids of finished calls, of
    prefills submitted earlier, or Prefills earlier in the same list. `turn` decides which calls go first if not all can
    run at once. It does not change results.

    `step` runs one forward pass over everything submitted and running, and returns when its results have been computed.
    If the pass fails, its calls are tried one by one. Calls that fail alone are in the result (`CallFailed` or a more
    specific error), and are dropped with their rows and pages. If a device fails, it raises `EngineFailed`: all calls
    are dropped, and stored encodings are intact. With nothing to do it returns an empty result. `deterministic` makes
    the bits of each call depend on that call alone: calls run in forward passes of their own, and rows run together
    only if it was proved that their bits stay the same.

    `take_place` gives the engine a place among those of a run: ids of different places are different numbers. While
    decodes run, prefills then get at most `prefill_budget` tokens of a step (None: the engine's own limit).

    `cancel` drops unfinished calls at once, with their rows and pages; it ignores finished and unknown ids. `release`
    gives up finished encodings; storage is freed when nothing else holds it. `swap_out` moves finished encodings out of
    the store until they are read, a hint that changes no result.

    `speculate` lets decodes with corpora guess tokens from now on, weighed by `costs` (None: those that it has, or
    measures now). It returns the costs in use, None if nothing is ever guessed.
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
        """The owner of the network, which several engines may share."""

    @property
    def idle(self) -> bool:
        """Whether nothing is submitted or running."""

    @property
    def fingerprint(self) -> dict[str, str]:
        """Digests and versions for the run record: model, tokenizer, dtype, device."""

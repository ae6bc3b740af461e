"""Models of the lines of a record, which validate types and enumerated values: a record may come from an untrusted
source.

Independent of files, and of what a line means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, TypeAdapter, ValidationError, model_validator

from agentcho.message import AgentName, Kind
from agentcho.provenance.labels import Recipe
from agentcho.provenance.views import After

Ending = Literal["cancelled", "failed", "died"]
"""Why a message is incomplete: its call was cancelled, or failed, or the process was killed."""
Origin = Literal["sampled", "forced", "human", "tool"]
"""The source of the words of a message that was not known beforehand."""
LIST = Field(strict=False)
"""A JSON list is read as a tuple."""
Whole = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Attempt = Annotated[int, Field(ge=1, lt=1 << 63)]
Strings = Annotated[tuple[str, ...], LIST]
Tokens = Annotated[tuple[Count, ...], LIST]
Span = Annotated[tuple[Count, Count], LIST]


class Line(BaseModel):
    """A line, or a part of one. Unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class EncodingPart(Line):
    """One encoding, with its cone or its seal."""

    id: Whole
    message: str
    caller: AgentName | None
    recipe: Recipe
    context: Annotated[tuple[Annotated[tuple[Whole, Whole, Whole], LIST], ...], LIST]
    start: Whole
    bos: bool | Whole
    base: Whole | None = None
    anchors: Annotated[tuple[Whole, ...], LIST] = ()
    engine: str | None = None
    respelled: bool = False
    also: Strings = ()
    tokens: Tokens | None = None
    apart: bool = False
    opened: bool = False
    cone: Annotated[frozenset[str], LIST] | None = None
    seal: str | None = None

    @model_validator(mode="after")
    def _accounts(self) -> EncodingPart:
        if (self.cone is None) == (self.seal is None):
            raise ValueError("an encoding needs exactly one of cone and seal")
        return self


class EncodingsLine(Line):
    """Encodings without a message."""

    game: Count
    encodings: list[EncodingPart]
    encoded: Count = 0
    attempt: Attempt = 1


class SpentPart(Line):
    """A server's report of what a message used."""

    prompt: Count | None = None
    cached: Count | None = None
    completion: Count | None = None
    requests: Count = 1
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class UsagePart(Line):
    """The cost of a message."""

    encoded: Count
    reused: Count
    ttft: float
    seconds: float
    spent: SpentPart | None = None
    at: float | None = None
    steps: Annotated[tuple[Count, Count, Count], LIST] | None = None


def _after(place: Any) -> After:
    if not isinstance(place, list) or [type(part) for part in place] != [str, int]:
        raise ValueError("a place after a message needs the id of that message and a number")
    return After(*place)


Asked = Whole | Literal["rightmost"] | Annotated[After, PlainValidator(_after)] | None
"""A requested place: see `Place`."""


class UsePart(Line):
    """The tool that gave a result."""

    name: str
    audience: Literal["everyone"] | Strings
    effect: bool
    trusted: bool
    client: str | None = None


class ChargePart(Line):
    """The information that words can carry about secrets."""

    by: Literal["choices", "schema", "release", "words"]
    bits: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    owed: dict[str, Strings] = {}
    # pydantic reserves the name "schema"
    of: Annotated[dict[str, Any] | None, Field(alias="schema")] = None


class ActPart(Line):
    """How a message was requested."""

    where: str | None
    places: Annotated[tuple[Whole | Literal["rightmost"] | Annotated[After, PlainValidator(_after)] | None, ...], LIST]
    acted_on: Strings
    choices: Strings
    call: str | None = None
    use: UsePart | None = None
    release: bool = False
    released: str | None = None
    charge: ChargePart | None = None
    shown: Strings = ()
    reuse: Literal["judge"] | None = None
    after: Annotated[tuple[str | Count, ...], LIST] | None = None
    named: bool = False
    moves: Annotated[tuple[Annotated[tuple[Count, Count, bool], LIST], ...], LIST] = ()
    thought: str | None = None
    unproved: Strings = ()
    contained: Strings = ()
    unaddressed: bool = False


class MessageLine(EncodingsLine):
    """A message, with the encodings of its line."""

    id: str
    kind: Kind
    role: str
    author: AgentName | None
    audience: Literal["everyone"] | Strings
    parents: Strings
    header: str
    text: str
    tokens: Tokens | None = None
    content: Span
    sampled: Span | None
    name: AgentName | None
    offsets: Annotated[tuple[Whole | None, ...], LIST] | None
    new_offset: Whole | None
    stopped: str | None
    canonical: bool
    stop_reason: int | str | None = None
    thought: Span | None = None
    encoding: Whole | None = None
    direct: Strings
    usage: UsagePart
    act: ActPart
    ended: Ending | None = None
    engine: str | None = None
    origin: Origin | None = None

    @model_validator(mode="after")
    def _fits(self) -> MessageLine:
        parents, readers = len(self.parents), [*([self.author] if self.audience == "everyone" else self.audience)]
        if self.kind == "decode" and (self.author is None or self.author not in readers):
            raise ValueError("the author must be an agent that may read the message")
        if len(self.act.places) not in (0, parents + 1) or len(self.offsets or self.parents) != parents:
            raise ValueError("places need one entry per parent and one for the message itself")
        return self


class PieceLine(Line):
    """The part of a message that one step generated."""

    game: Count
    id: str
    tokens: Tokens
    text: str
    attempt: Attempt = 1


class TypedLine(Line):
    """The words that a person typed for a message."""

    game: Count
    id: str
    text: str


L = TypeVar("L")


def read(kind: TypeAdapter[L], line: Mapping[str, Any]) -> L:
    """Validate a line. Raises ValueError if it is not a line of that kind; the text names the field and quotes no
    value."""
    try:
        return kind.validate_python(line)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg'].removeprefix('Value error, ')}") from None

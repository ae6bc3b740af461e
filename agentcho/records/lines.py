"""What the lines of a record are made of, for a record may come from anybody: of which types, with which fixed words.

Does not know: files, what a line means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from agentcho.flow.labels import Recipe
from agentcho.message import Kind

Whole = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]


class Line(BaseModel):
    """A line, or a part of one. What it holds beyond is not looked at."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class _Encoding(Line):
    id: Whole
    message: str
    caller: str | None
    recipe: Recipe
    context: list[Annotated[list[Whole], Field(min_length=3, max_length=3)]]
    start: Whole
    bos: bool
    base: Whole | None = None
    cone: list[str] | None = None
    seal: str | None = None

    @model_validator(mode="after")
    def _accounts(self) -> _Encoding:
        if (self.cone is None) == (self.seal is None):
            raise ValueError("an encoding has its cone or what stands for that")
        return self


class EncodingsLine(Line):
    """Encodings alone."""

    game: Count
    encodings: list[_Encoding]
    encoded: Count = 0
    attempt: Annotated[int, Field(ge=1, lt=1 << 63)] = 1


class _Usage(Line):
    encoded: Count
    reused: Count
    ttft: float
    seconds: float


def _after(place: list[Any]) -> list[Any]:
    if [type(part) for part in place] != [str, int]:
        raise ValueError("a place after a message is its id and a number")
    return place


class _Act(Line):
    where: str | None
    places: list[Whole | Literal["rightmost"] | Annotated[list[Any], AfterValidator(_after)] | None]
    acted_on: list[str]
    choices: list[str]


Span = Annotated[list[Count], Field(min_length=2, max_length=2)]


class MessageLine(EncodingsLine):
    """A message, with the encodings of its line."""

    id: str
    kind: Kind
    role: str
    author: str | None
    audience: Literal["everyone"] | list[str]
    parents: list[str]
    header: str
    text: str
    tokens: list[Count] | None = None
    content: Span
    sampled: Span | None
    name: str | None
    offsets: list[Whole | None] | None
    new_offset: Whole | None
    stopped: str | None
    canonical: bool
    encoding: Whole | None = None
    direct: list[str]
    usage: _Usage
    act: _Act
    engine: str | None = None

    @model_validator(mode="after")
    def _fits(self) -> MessageLine:
        parents, readers = len(self.parents), [*([self.author] if self.audience == "everyone" else self.audience)]
        if self.kind == "decode" and (self.author is None or self.author not in readers):
            raise ValueError("who speaks is an agent, and among those who may read it")
        if len(self.act.places) not in (0, parents + 1) or len(self.offsets or self.parents) != parents:
            raise ValueError("places are one a parent, and its own")
        return self


class PieceLine(Line):
    """What a step brought of a message."""

    game: Count
    id: str
    tokens: list[Count]
    text: str
    attempt: Annotated[int, Field(ge=1, lt=1 << 63)] = 1


class GameLine(Line):
    """A game that ended."""

    game: Count
    outcome: dict[str, Any] | None
    score: dict[str, float]
    ended: str | None
    seconds: float
    error: str | None = None
    traceback: str | None = None
    raced: bool = False


L = TypeVar("L", bound=Line)


def check(kind: type[L], line: Mapping[str, Any]) -> None:
    """ValueError, which names the place and quotes nothing: a line is none of that kind."""
    try:
        kind.model_validate(line)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg'].removeprefix('Value error, ')}") from None

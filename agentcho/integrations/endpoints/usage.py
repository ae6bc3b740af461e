"""What requests took: tokens as the server reports them, and what they cost.

Does not know: where the reports come from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WrapValidator

from agentcho.config import ModelConfig
from agentcho.protocol.text_calls import TokensSpent

MILLION = 1e6
Tokens = Annotated[int, Field(ge=0, lt=1 << 40)]
"""A number that requests can have, and records can hold when it is added up."""


class Details(BaseModel):
    """Which tokens of a prompt were in a cache."""

    model_config = ConfigDict(strict=True)

    cached_tokens: Tokens | None = None


class ServerUsage(BaseModel):
    """A server's report on one request."""

    model_config = ConfigDict(strict=True)

    prompt_tokens: Tokens
    completion_tokens: Tokens = 0
    prompt_tokens_details: Details | None = Field(default=None)

    @property
    def tokens(self) -> int:
        """All tokens of the request and its answer."""
        return self.prompt_tokens + self.completion_tokens


def _read(given: Any, read: Callable[[Any], ServerUsage]) -> ServerUsage | None:
    try:
        return None if given is None else read(given)
    except ValidationError:
        return None


Report = Annotated[ServerUsage | None, WrapValidator(_read)]
"""What a server reports; None: nothing, or what can be no report."""


class Prices(NamedTuple):
    """Prices of a million tokens, in one currency; None: there is none."""

    prompt: float | None = None
    cached: float | None = None
    completion: float | None = None

    @classmethod
    def of(cls, config: ModelConfig) -> Prices:
        """Those of a configured model."""
        return cls(config.price_in, config.price_cached, config.price_out)

    def cost(self, prompt: int, cached: int, completion: int) -> float | None:
        """What these tokens cost; `cached` ones are among those of the prompt, and without a price of their own cost as
        much as others. None: there are no prices."""
        if self == Prices():
            return None
        whole = self.prompt or 0.0
        seen = whole if self.cached is None else self.cached
        return ((prompt - cached) * whole + cached * seen + completion * (self.completion or 0.0)) / MILLION


class AnswerBill:
    """All requests of one answer."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self.requests = 0
        self._reports = list[ServerUsage]()

    def add(self, report: ServerUsage | None) -> None:
        """Count what a request is reported to have taken."""
        if report is not None:
            self._reports.append(report)

    @property
    def spent(self) -> TokensSpent:
        """All of it together. Requests of which nothing is reported are counted as requests alone."""
        if not self._reports:
            return TokensSpent(requests=self.requests)
        details = [each.prompt_tokens_details for each in self._reports]
        known = [each.cached_tokens for each in details if each is not None and each.cached_tokens is not None]
        prompt = sum(each.prompt_tokens for each in self._reports)
        completion, cached = sum(each.completion_tokens for each in self._reports), min(sum(known), prompt)
        cost = self._prices.cost(prompt, cached, completion)
        return TokensSpent(
            prompt=prompt, cached=cached if known else None, completion=completion, requests=self.requests, cost=cost
        )

"""Tokens and costs of requests, as the server reports them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WrapValidator

from agentcho.config import ModelConfig
from agentcho.protocol.text_calls import TokensSpent

MILLION = 1e6
Tokens = Annotated[int, Field(ge=0, lt=1 << 40)]
"""A plausible token count, small enough that sums of it fit into records."""


class Details(BaseModel):
    """The cached tokens of a prompt."""

    model_config = ConfigDict(strict=True)

    cached_tokens: Tokens | None = None


class ServerUsage(BaseModel):
    """A server's usage report for one request."""

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
"""A server's usage report; None if it is missing or malformed."""


class Prices(NamedTuple):
    """Prices per million tokens, in one currency. None where there is no price."""

    prompt: float | None = None
    cached: float | None = None
    completion: float | None = None

    @classmethod
    def of(cls, config: ModelConfig) -> Prices:
        """The prices of a configured model."""
        return cls(config.price_in, config.price_cached, config.price_out)

    def cost(self, prompt: int, cached: int, completion: int) -> float | None:
        """Return the cost of these tokens, None without prices. `cached` tokens are included in `prompt`; without a
        price of their own they cost as much as the others."""
        if self == Prices():
            return None
        whole = self.prompt or 0.0
        seen = whole if self.cached is None else self.cached
        return ((prompt - cached) * whole + cached * seen + completion * (self.completion or 0.0)) / MILLION


class AnswerBill:
    """All requests for one answer."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self.requests = 0
        self._reports = list[ServerUsage]()

    def add(self, report: ServerUsage | None) -> None:
        """Add the usage report of a request."""
        if report is not None:
            self._reports.append(report)

    @property
    def spent(self) -> TokensSpent:
        """The total. Requests without a report count as requests only."""
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

"""The base of results that are written as JSON and read back. Does not know: what is in them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Base of all results: frozen, without extra fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

"""What all errors are."""

from __future__ import annotations


class AgentchoError(Exception):
    """Base of all errors raised on purpose."""

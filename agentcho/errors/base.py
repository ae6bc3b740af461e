"""What all errors are."""

from __future__ import annotations

from typing import ClassVar


class AgentchoError(Exception):
    """Base of all errors raised on purpose. `code` is what a command that it ends exits with: 2, for it was asked for
    something that cannot be, or 1, for it was begun and something failed."""

    code: ClassVar[int] = 2

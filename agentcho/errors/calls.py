"""One call is wrong, or cannot go on; nothing else is affected."""

from __future__ import annotations

from agentcho.errors.base import AgentchoError, shown


class RequestError(AgentchoError, ValueError):
    """One call is wrong. Nothing was computed for it, and nothing else is affected."""


class UnknownEncoding(RequestError):
    """An id that this engine never gave out, or whose encoding was released."""

    def __init__(self, encoding: object, released: bool = False, foreign: bool = False) -> None:
        why = "was released" if released else "is another engine's" if foreign else "is unknown to this engine"
        super().__init__(f"encoding {shown(encoding)} {why}; pass ids returned by prefill or decode and still held")


class BadParent(RequestError):
    """A parent that is no id, does not stand earlier in its list, or is a decode still running."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; a parent is the id of a finished call, or a Prefill earlier in the same list")


class BadOffsets(RequestError):
    """Offsets that do not fit their parents or are not positions."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; offsets are absolute positions >= 0 of first framing tokens, one per parent")


class BadSampling(RequestError):
    """Sampling options that contradict each other or cannot be met."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")
        self.what, self.remedy = what, remedy


class ContextOverflow(RequestError):
    """A call would reach past the model's context. Nothing is ever truncated."""

    def __init__(self, needed: int, limit: int) -> None:
        super().__init__(
            f"the call needs positions up to {needed}, the model has {limit}: read fewer messages, place them "
            "closer together, or lower max_tokens"
        )
        self.needed, self.limit = needed, limit


class SpecialTokenInText(RequestError):
    """A text whose tokenisation cannot be kept free of special tokens."""

    def __init__(self, token: str) -> None:
        super().__init__(
            f"the tokenizer can only encode part of this text as its special token {token!r}, which would forge "
            "framing; remove that part of the text"
        )


class SamplingFailed(AgentchoError):
    """No token could be chosen for one row. Its batch goes on."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"sampling failed for this call alone: {cause}")


class CallFailed(AgentchoError):
    """The forward failed for one call, alone or with what it made for itself. Its batch goes on without it."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(
            f"the model's forward failed for this call alone ({type(cause).__name__}: {cause}); read fewer messages or "
            "lower max_tokens where memory was short, else report it"
        )
        self.__cause__ = cause


class CallbackFailed(AgentchoError):
    """What a call brought with it, a guard or a function that hears of it, raised. That call is dropped."""

    def __init__(self, what: str, cause: BaseException) -> None:
        super().__init__(f"{what} of this call raised {type(cause).__name__}, so it was dropped; mend that function")
        self.__cause__ = cause

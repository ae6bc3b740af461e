"""Errors in the form that clients of OpenAI's API expect: a status, and a body that always has the same shape."""

from __future__ import annotations

from typing import Any

from agentcho.errors import (
    AgentchoError,
    AudienceError,
    CallFailed,
    ContextOverflow,
    EngineClosed,
    EngineFailed,
    LeakageError,
    Overloaded,
    RequestError,
    StoreFull,
)

SHORTLY = 1
TOO_LONG = "context_length_exceeded"
"""OpenAI's code for a prompt that is too long, by which clients know that they have to shorten it."""
UNKNOWN = "the server failed; the log has the class of the error"
TOO_EXPENSIVE = "what constrains this answer became too expensive to follow; simplify its patterns"


class ApiError(Exception):
    """A request that was refused or that failed.

    `status` is the HTTP status. `param` names the field of the request that is wrong, `code` is a word for programs.
    `retry_after`: seconds after which the same request may succeed. `message` never contains words of messages.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after = retry_after

    @property
    def kind(self) -> str:
        """OpenAI's name for the family of the error."""
        known = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
        if self.status >= 500:
            return "server_error"
        return known.get(self.status, "invalid_request_error")

    def to_json(self) -> dict[str, Any]:
        """The body of the response, or the data of an event in a stream."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error}


def api_error(error: Exception) -> ApiError:
    """Convert any error to what the client is told. Unexpected errors reveal nothing about what happened inside."""
    match error:
        case ApiError():
            return error
        case ContextOverflow():
            told = (
                f"{error.needed} tokens of context are needed, if not more, and the model has {error.limit}; send less"
            )
            return ApiError(400, told, "messages", TOO_LONG)
        case RequestError() | AudienceError():
            return ApiError(400, str(error))
        case LeakageError():
            return ApiError(403, "an agent of this society may not read what it would have to read", code="leakage")
        case StoreFull():
            told = f"{error.needed} tokens are needed in memory at once, and this server has room for {error.room}"
            return ApiError(503, f"{told}; send less, or ask for fewer", code="overloaded", retry_after=SHORTLY)
        case Overloaded():
            told = "more requests are under way than the model takes at once; ask again"
            return ApiError(503, told, code="overloaded", retry_after=SHORTLY)
        case EngineClosed():
            return ApiError(503, "the server is shutting down", code="shutting_down", retry_after=5)
        case EngineFailed():
            return ApiError(500, "the model's forward failed, and all requests in it; ask again", code="engine_failed")
        case CallFailed(transient=False):
            return ApiError(400, str(error) if error.option is None else TOO_EXPENSIVE)
        case AgentchoError() if error.transient:
            return ApiError(500, "the model's forward failed for this request alone; ask again", code="call_failed")
        case _:
            return ApiError(500, UNKNOWN, code="internal_error")

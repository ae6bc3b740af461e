"""Errors as a client of OpenAI's API expects them: a status, and a body of one shape whatever is wrong.

Does not know: what is asked for.
"""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """A request that is refused, or that failed.

    `status` is HTTP's. `param` names the field of the request that is wrong, `code` is a word for programs.
    `retry_after`: seconds after which the same may succeed. The words of messages are never part of `message`.
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
        self.status, self.message, self.param, self.code = status, message, param, code
        self.retry_after = retry_after

    @property
    def kind(self) -> str:
        """OpenAI's word for the family of the error."""
        known = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
        if self.status >= 500:
            return "server_error"
        return known.get(self.status, "invalid_request_error")

    def to_json(self) -> dict[str, Any]:
        """The body of the response, or the data of an event in a stream."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error}

"""Limits on what a single request may ask for."""

from __future__ import annotations

from typing import NamedTuple


class RequestLimits(NamedTuple):
    """The maximums of one request.

    - `choices` is the number of answers ("n"), `tokens` the largest max_tokens.
    - `parts` are the objects, lists and names in a body, including what looks like them in its texts. The time to parse
      a body depends on their number.
    - `messages`, and the `letters` (characters) of all of them together, function calls included.
    - `stops` are the stop strings, `listed` the texts of `structured_outputs.choice`.
    - `logprobs` are the likeliest tokens reported with each token.
    - `conversations`: how many responses are kept for `previous_response_id` (0: none).
    - `tools` are the functions. `schema_bytes` is the length of one schema as JSON (those of all functions of a request
      together count as one), or of all listed texts; `schema_depth` is the nesting depth of objects and lists.
    """

    choices: int = 128
    tokens: int = 1 << 20
    parts: int = 1 << 17
    messages: int = 4096
    letters: int = 1 << 22
    stops: int = 16
    listed: int = 1024
    tools: int = 128
    logprobs: int = 20
    schema_bytes: int = 1 << 16
    schema_depth: int = 64
    conversations: int = 1000

    @property
    def listed_fields(self) -> dict[str, int]:
        """The maximum number of items in each list of a body, by field name."""
        return {"messages": self.messages, "input": self.messages, "tools": self.tools, "stop": self.stops}

"""How much one request may ask for. Does not know: how many requests there are, who sends them."""

from __future__ import annotations

from typing import NamedTuple


class RequestLimits(NamedTuple):
    """The most that one request may have.

    - `choices` is the number of answers ("n"), `tokens` the largest max_tokens.
    - `parts` are the objects, the lists and the names in a body, and what looks like these in its texts: how long
      reading it takes goes by their number.
    - `messages`, and the `letters` of all of them together, calls of functions included.
    - `stops` are the stop strings, `listed` the texts of `structured_outputs.choice`.
    - `logprobs` are the likeliest tokens told beside each.
    - `conversations`: how many responses are kept for `previous_response_id`; 0: none is.
    - `tools` are the functions. `schema_bytes` is the length of one schema as JSON, those of all functions of a request
      counting as one, or of all texts listed; `schema_depth` is the number of objects and lists inside each other.
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
        """How many items the lists of a body may have, by their names."""
        return {"messages": self.messages, "input": self.messages, "tools": self.tools, "stop": self.stops}

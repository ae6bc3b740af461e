"""One decode of the fake: what it is going to say, a token a step, and how it ends. Does not know: steps, pages."""

from __future__ import annotations

from collections.abc import Sequence

from agentcho.backends.words import Vocabulary
from agentcho.calls.call import Decode, EncodingId, Spoken, Stopped
from agentcho.errors import RequestError


class Speech:
    """`said` so far; `stopped` says what ended it. `abrupt`: its last token ends it, no stop token follows."""

    def __init__(self, call: Decode, script: Sequence[int], words: Vocabulary, abrupt: bool) -> None:
        self._call, self._script, self._words, self._abrupt = call, script, words, abrupt
        self.said: list[int] = []
        self.stopped: Stopped | None = None
        self._shown = 0

    @property
    def text(self) -> str:
        """What is said, up to a stop string."""
        text = self._words.decode(self.said)
        return text[: self._cut(text)]

    @property
    def canonical(self) -> bool:
        """Whether what is said is what its text encodes to."""
        return self._words.encode(self.text) == self.said

    def go_on(self, id: EncodingId) -> Spoken | None:
        """Say the next token, or end without one."""
        if len(self.said) == len(self._script):
            self.stopped = "stop" if self._call.forced is None else "forced"
            return self._tail(id)
        self.said.append(self._script[len(self.said)])
        self.stopped = self._end() if self._call.forced is None else None
        return Spoken(id, len(self.said) - 1, self.said[-1], self._show())

    def _end(self) -> Stopped | None:
        if self._cut(self._words.decode(self.said)) is not None:
            return "stop_string"
        if self._abrupt and len(self.said) == len(self._script):
            return "stop"
        return "max_tokens" if len(self.said) == self._call.last else None

    def _tail(self, id: EncodingId) -> Spoken | None:
        """Text that was held back because it might have begun a stop string."""
        piece = self._show()
        return Spoken(id, len(self.said) - 1, self.said[-1], piece) if piece else None

    def _show(self) -> str:
        text = self.text
        begun = 0 if self.stopped else max((_begun(text, stop) for stop in self._call.sampling.stop), default=0)
        piece = text[self._shown : len(text) - begun]
        self._shown += len(piece)
        return piece

    def _cut(self, text: str) -> int | None:
        if self._call.forced is not None:
            return None
        return min((at for stop in self._call.sampling.stop if (at := text.find(stop)) >= 0), default=None)


def _begun(text: str, stop: str) -> int:
    """How many letters at the end of `text` may begin `stop`."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if stop.startswith(text[-n:])), 0)


def constrained(call: Decode, answer: str, words: Vocabulary) -> Speech:
    """Speech that is one of the call's choices, or JSON; refused as the real one refuses."""
    most, choices = call.sampling.max_tokens, call.sampling.choices
    script = words.encode(answer)
    if choices is None:
        if len(script) > most:
            raise RequestError(
                f"the shortest answer takes {len(script)} tokens, max_tokens is {most}; raise it", "sampling"
            )
        return Speech(call, script, words, abrupt=True)
    known = [words.encode(choice) for choice in choices]
    if max(map(len, known)) > most:
        raise RequestError(
            f"the longest choice takes {max(map(len, known))} tokens, max_tokens is {most}; raise it", "sampling"
        )
    if script not in known:
        raise RequestError(
            f"the scripted answer is none of the choices; give one of {', '.join(map(repr, choices))}", "sampling"
        )
    goes_on = any(len(other) > len(script) and other[: len(script)] == script for other in known)
    return Speech(call, script, words, abrupt=not goes_on)

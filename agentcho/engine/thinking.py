"""Thoughts: how a chat template marks what a model thinks before it answers, and whether a decode is inside a thought.

The marks are searched in the template's source, because templates differ in everything else: some open the thought
themselves, some models begin it on their own, some have a channel for it. Independent of who may read a thought.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from agentcho.engine.content_tokenizer import THOUGHTS
from agentcho.protocol.call import ThinkingPort

Ids = tuple[int, ...]
Render = Callable[[list[dict[str, Any]]], str | None]
THOUGHT, ANSWER = "Zqthoughtsentinel", "Zqanswersentinel"


class ThoughtMarkers(NamedTuple):
    """The text before a thought and after it. `behind`: the text between `end` and the answer, unless the template
    shows another one."""

    begin: str
    end: str
    behind: str = ""


MARKS = (
    ThoughtMarkers(*THOUGHTS, "\n\n"),
    ThoughtMarkers("<seed:think>", "</seed:think>"),
    ThoughtMarkers("<longcat_think>", "</longcat_think>"),
    ThoughtMarkers("[THINK]", "[/THINK]"),
    ThoughtMarkers("◁think▷", "◁/think▷"),
    ThoughtMarkers("<|channel>thought\n", "<channel|>"),
    ThoughtMarkers("<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>"),
    ThoughtMarkers("<|inner_prefix|>", "<|inner_suffix|>"),
    ThoughtMarkers("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]", "\n"),
)
"""The marks of DeepSeek R1, QwQ, Qwen3, SmolLM3, GLM and most others; Seed-OSS; LongCat; Mistral's reasoning models;
Kimi; Gemma 4; Command R7B and A; Apertus; Apriel."""
CHANNELS = ThoughtMarkers("<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant<|channel|>final<|message|>")
"""The marks of gpt-oss, which opens a new channel for the answer."""


class ThoughtFormat(NamedTuple):
    """How a template writes thoughts. `opening`: the text before an answer that may begin with one. `kept`: see
    `ThinkingPort`."""

    marks: ThoughtMarkers
    opening: str
    kept: bool


@dataclass(frozen=True)
class Thinking:
    """See `ThinkingPort`. `added` are the ids after an ordinary opening, `instead` those in its place. `opened`: the
    template itself begins every thought."""

    begin: str
    end: str
    begins: Ids
    ends: Ids
    behind: Ids = ()
    kept: bool = False
    added: Ids = ()
    instead: Ids | None = None
    opened: bool = False

    def opening(self, ordinary: Ids) -> Ids:
        """See `ThinkingPort.opening`."""
        return (*ordinary, *self.added) if self.instead is None else self.instead


def thought_format(source: str, prompt: str, render: Render) -> ThoughtFormat | None:
    """How a template with this source writes thoughts. None if it has none, or asks for an answer without one.

    Args:
        source: The template's source.
        prompt: The text that it writes after a user message to open an answer.
        render: Renders a conversation by the template. Returns None if that fails.
    """
    if CHANNELS.begin in source and prompt and CHANNELS.behind.startswith(prompt):
        return ThoughtFormat(CHANNELS, prompt + CHANNELS.begin, False)
    marks = next((each for each in MARKS if each.end in source), None)
    if marks is None or marks.end in prompt:
        return None
    behind, kept = _history(marks, source, render)
    marks = marks if behind is None else marks._replace(behind=behind)
    return ThoughtFormat(marks, prompt, kept)


def opens_thought(text: str) -> bool:
    """Whether a text ends inside a thought."""
    return any(text.rfind(begin.rstrip()) > text.rfind(end) for begin, end, _ in MARKS)


def _history(marks: ThoughtMarkers, source: str, render: Render) -> tuple[str | None, bool]:
    """The text that a template writes between a thought and its answer (None if unknown), and whether the thought is
    kept when the conversation continues. Many templates take the thought in a field of its own."""
    apart = {"role": "assistant", "content": ANSWER, "reasoning_content": THOUGHT}
    inside = {"role": "assistant", "content": f"{marks.begin}{THOUGHT}{marks.end}{marks.behind}{ANSWER}"}
    asked = {"role": "user", "content": "Hello"}
    answer = apart if "reasoning_content" in source else inside
    other = {"role": "assistant", "content": "Yes"}  # some templates keep the thought of the last answer only
    last, gone_on = render([asked, answer]) or "", render([asked, answer, asked, other, asked]) or ""
    _, thought, rest = last.partition(THOUGHT)
    _, ended, rest = rest.partition(marks.end)
    behind, answered, _ = rest.partition(ANSWER)
    return behind if thought and ended and answered else None, THOUGHT in gone_on


class Stream(Protocol):
    """See `protocols.Detokenizer`."""

    def push(self, id: int) -> str: ...


class ThoughtTracker:
    """Tracks whether a decode is inside a thought. `now`: whether the next token belongs to a thought (None: unknown).

    A decode begins inside a thought if its opening ends with the mark. Otherwise it may begin one, with whitespace
    before the mark; any other text is the answer.

    Args:
        thinking: The marks.
        opening: The text of the decode's opening.
        stream: Decodes the tokens before the answer.
    """

    def __init__(self, thinking: ThinkingPort, opening: str, stream: Stream) -> None:
        self._thinking, self._stream = thinking, stream
        inside = opening.rstrip().endswith(thinking.begin.rstrip())
        self.now: bool | None = True if inside else None
        self.thought, self.text = inside, ""
        self.ended: int | None = None
        """How many tokens the thought has, marks included, once it has ended."""

    @property
    def answers(self) -> bool:
        """Whether the next token belongs to the answer."""
        return self.now is False

    def begin(self) -> None:
        """Begin the answer without a thought."""
        self.now, self.text = False, ""

    def push(self, token: int, place: int) -> str:
        """Take token number `place` of the decode. Returns the text that it adds to the thought, or all text so far if
        it turns out that there is no thought."""
        piece = self._stream.push(token)
        self.text += piece
        if self.now is None:
            return self._decide()
        if self._closes(token):
            self.text = self.text.removesuffix(self._thinking.end) if len(self._thinking.ends) == 1 else self._cut()
            self.now, self.ended = False, place + 1
            return ""
        return piece

    def _decide(self) -> str:
        begin, said = self._thinking.begin, self.text.lstrip()
        if said.startswith(begin):
            self.now = True
            self.thought = True
            self.text = said.removeprefix(begin)
            return self.text
        if begin.startswith(said):
            return ""
        text = self.text
        self.now = False
        self.text = ""
        return text

    def _closes(self, token: int) -> bool:
        ends = self._thinking.ends
        return token == ends[0] if len(ends) == 1 else self._thinking.end in self.text

    def _cut(self) -> str:
        return self.text.partition(self._thinking.end)[0]

    def next_of_mark(self, sampled: Sequence[int]) -> int | None:
        """The next id of the opening mark if all sampled ids are its first ones, else None."""
        begins = self._thinking.begins
        done = len(sampled)
        return begins[done] if done < len(begins) and tuple(sampled) == begins[:done] else None

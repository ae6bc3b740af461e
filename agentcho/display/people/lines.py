"""Asks one person line by line, without a terminal that can be drawn on: over a pipe, a file or a screen reader.

Printed lines stay visible, so this is for one person only. `Session` decides what may be seen.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import IO, Any

import anyio

from agentcho.display import speech
from agentcho.display.people import page
from agentcho.display.people.form import Field, Form, form_of
from agentcho.display.people.output_capture import captured_output
from agentcho.display.people.session import Question, Session
from agentcho.display.safe import inline, visible

AT_ONCE = 1 << 16
"""Bytes that are read at a time."""


class LineByLine(Session):
    """The session of one person, who types lines into `source` (a file descriptor) and reads `target`."""

    def __init__(self, names: Sequence[str], games: int, source: int, target: IO[str]) -> None:
        super().__init__(names, games)
        self._source = source
        self._target = target
        self._rest = b""
        self._stirred = anyio.Event()
        self._printed: dict[tuple[int, str], int] = {}
        self._last: tuple[int, str] | None = None

    def present(self) -> AbstractAsyncContextManager[Any]:
        return self._showing()

    @asynccontextmanager
    async def _showing(self) -> AsyncIterator[None]:
        error: Exception | None = None
        with captured_output(self.all_over):
            async with anyio.create_task_group() as group:
                group.start_soon(self._serve)
                try:
                    yield
                    await self.finished()
                except Exception as raised:  # it must leave as it is, not in an exception group
                    error = raised
                finally:
                    group.cancel_scope.cancel()
        if error is not None:
            raise error

    def changed(self) -> None:
        self._stirred.set()

    async def _serve(self) -> None:
        """Show messages and ask questions, one after the other."""
        while not self.gone:
            self._stirred = anyio.Event()
            self._show_talk()
            if isinstance(self.current, Question):
                await self._put(self.current)
            elif self.current is not None:
                self._print(inline(self.current.text))
                self.read()
            else:
                await self._stirred.wait()

    async def _put(self, question: Question) -> None:
        """Ask until the answer has no fault, or the question is withdrawn."""
        form = form_of(question.asked)
        while self.current is question and not self.gone:
            self._ask(form)
            typed = await self._typed(form.current, question)
            if typed is None:
                continue
            words, fault = form.enter(chosen(form, typed))
            if fault is not None:
                self._print(f"! {inline(fault)}")
            elif words is not None:
                self.answer(words)

    def _ask(self, form: Form) -> None:
        self._print(f"? {page.asked(form)}")
        for number, option in enumerate(form.current.options, start=1):
            self._print(f"  {number}. {inline(option.label)}")
        if form.current.kind == "lines":
            self._print("  An empty line ends the list.")
        self._print(f"{page.header(form)}> ", end="")

    async def _typed(self, field: Field, question: Question) -> str | None:
        """Return what is typed in a field: one line, or all lines before an empty one if it takes several. None as for
        `_line`."""
        if field.kind != "lines":
            return await self._line(question)
        lines: list[str] = []
        while line := await self._line(question, at_end="" if lines else None):
            lines.append(line)
            self._print("> ", end="")
        return None if line is None else "\n".join(lines)

    async def _line(self, question: Question, at_end: str | None = None) -> str | None:
        """Return the next typed line, or None if the question is withdrawn or the input has ended. A last line may lack
        its line break, except at a terminal, where it is unfinished. `at_end` is returned at the end of the input, if
        the person need not leave yet."""
        while b"\n" not in self._rest:
            async with anyio.create_task_group() as group:
                group.start_soon(self._until_withdrawn, question, group.cancel_scope)
                await self._readable()
                group.cancel_scope.cancel()
            if self.current is not question:
                self._print(f"\n! {self.note}")
                return None
            data = self._read()
            if not data and at_end is not None and not self._rest:
                return at_end
            if not data and (not self._rest or os.isatty(self._source)):
                self._print("")
                self.leave()
                return None
            self._rest += data or b"\n"
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="surrogateescape").rstrip("\r")

    async def _until_withdrawn(self, question: Question, scope: anyio.CancelScope) -> None:
        while self.current is question:
            self._stirred = anyio.Event()
            await self._stirred.wait()
        scope.cancel()

    async def _readable(self) -> None:
        try:
            await anyio.wait_readable(self._source)
        except (OSError, ValueError):
            await anyio.lowlevel.checkpoint()  # a regular file, which is always readable

    def _read(self) -> bytes:
        try:
            return os.read(self._source, AT_ONCE)
        except OSError:  # the terminal is gone
            return b""

    def _show_talk(self) -> None:
        if self.shown is None:
            return
        if self.shown != self._last:
            self._last = self.shown
            self._print(f"--{page.heading(self)}")
        done = self._printed.get(self.shown, 0)
        for message in self.talk[done:]:
            self._print(speech.plain(page.spoken(message)))
        self._printed[self.shown] = len(self.talk)

    def joined(self, game: int, agent: str) -> None:
        self._printed.pop((game, agent), None)
        super().joined(game, agent)

    def _print(self, words: str, end: str = "\n") -> None:
        try:
            self._target.write(visible(words) + end)
            self._target.flush()
        except OSError:
            self.leave()


def chosen(form: Form, typed: str) -> str:
    """Return the words of the option that a line names by its words or label, or else by its number, or else the line
    itself."""
    options, named = form.current.options, typed.strip()
    for option in options:
        if named in (option.words, option.label):
            return option.words
    numbered = {str(number): option.words for number, option in enumerate(options, start=1)}
    return numbered.get(named, typed)

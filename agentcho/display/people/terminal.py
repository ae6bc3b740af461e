"""A full-screen terminal for the people at it, by prompt_toolkit, which leaves nothing behind when it ends.

It uses the alternate screen (without scrollback), no mouse, no title, and its own clipboard, which is emptied with
every question. `Session` decides what may be seen.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.clipboard import InMemoryClipboard
from prompt_toolkit.data_structures import Point
from prompt_toolkit.filters import Condition
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.emacs_state import EmacsState
from prompt_toolkit.layout import ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output import Output

from agentcho.display.people import page
from agentcho.display.people.form import Form, form_of
from agentcho.display.people.output_capture import captured_output
from agentcho.display.people.session import Question, Session
from agentcho.display.safe import inline

EVERY = 1.0
"""Seconds between two redraws, for the clock."""
PAGE = 10
"""Lines that PgUp moves by."""
CLOSING = 2.0
"""Seconds that restoring the terminal may take."""


class Terminal(Session):
    """A session at a terminal. `source` and `target` are as in prompt_toolkit; None means those of the process. `clear`
    is called before anything is drawn."""

    def __init__(
        self,
        names: Sequence[str],
        games: int,
        clear: Callable[[], None] = lambda: None,
        source: Input | None = None,
        target: Output | None = None,
    ) -> None:
        super().__init__(names, games)
        self._form: Form | None = None
        self._of: Question | None = None
        self._fault = ""
        self._row = 0
        self._up = 0
        self._clear = clear
        self._source = source
        self._target = target
        self._app: Application[None] | None = None
        self._typed = Buffer(multiline=True)

    def present(self) -> AbstractAsyncContextManager[Any]:
        return self._showing()

    @asynccontextmanager
    async def _showing(self) -> AsyncIterator[None]:
        """A context that occupies the terminal until the games are over and everybody has read the result. Text printed
        meanwhile is kept until then."""
        self._clear()
        self._closed = anyio.Event()
        self._app, error = self._application(), None
        with captured_output(self.all_over):
            async with anyio.create_task_group() as group:
                group.start_soon(self._run, self._app)
                try:
                    yield
                    await self.finished()
                except Exception as raised:  # it must leave as it is, not in an exception group
                    error = raised
                finally:
                    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CLOSING):
                        await self._close()
                    group.cancel_scope.cancel()
        if error is not None:
            raise error

    async def _run(self, app: Application[None]) -> None:
        """Show the screen until it is closed. If the terminal is gone, the people count as having left."""
        try:
            await app.run_async(set_exception_handler=False, handle_sigint=False)
        except (EOFError, OSError):
            pass
        finally:
            self._closed.set()
            self.leave()

    async def _close(self) -> None:
        assert self._app is not None
        if self._app.is_running and not self._app.is_done:
            self._app.exit()
            await self._closed.wait()

    # -- state updates -----------------------------------------------------------------------------------

    def changed(self) -> None:
        question = self.current if isinstance(self.current, Question) and not self.handing else None
        if question is not self._of:
            self._of, self._form = question, None if question is None else form_of(question.asked)
            self._fresh()
            self._up = 0
        if self.handing:
            self._fresh()
        self._focus()

    def _focus(self) -> None:
        """Move the focus to where keys are handled now."""
        if self._app is not None:
            self._app.layout.focus(self._place_of_keys)
            self._app.invalidate()

    def _fresh(self) -> None:
        """Forget all that was typed, cut or recorded, because the next person at the keyboard may be another one."""
        self._typed.reset()
        self._fault, self._row = "", 0
        if self._app is not None:
            self._app.clipboard, self._app.emacs_state = InMemoryClipboard(), EmacsState()

    def _fill(self) -> None:
        """Show the current field of the form, with the text typed there before."""
        assert self._form is not None
        before = self._form.typed[self._form.place]
        self._fresh()
        self._typed.insert_text(before)
        words = [option.words for option in self._form.current.options]
        self._row = words.index(before) if before in words else 0
        self._focus()

    def _enter(self) -> None:
        """Accept the typed text or the chosen option."""
        if self.handing:
            self.take()
        elif self._form is None:
            if self.current is not None:
                self.read()
        else:
            options = self._form.current.options
            words, fault = self._form.enter(options[self._row].words if options else self._typed.text)
            if words is not None:
                self.answer(words)
            elif fault is None:
                self._fill()
            else:
                self._fail(fault)

    def _fail(self, fault: str) -> None:
        assert self._form is not None
        typed = self._typed.text
        self._fill()
        if not self._form.typed[self._form.place]:
            self._typed.insert_text(typed)
        self._fault = fault

    # -- layout ------------------------------------------------------------------------------------------

    @property
    def _typing(self) -> bool:
        return self._form is not None and not self._form.current.options

    @property
    def _choosing(self) -> bool:
        return self._form is not None and bool(self._form.current.options)

    @property
    def _place_of_keys(self) -> Window:
        return self._words if self._typing else self._talk

    def _application(self) -> Application[None]:
        self._talk = Window(_control(self._lines, self._cursor), wrap_lines=True, always_hide_cursor=True)
        before = BeforeInput(lambda: "" if self._form is None else page.header(self._form))
        self._words = Window(
            BufferControl(self._typed, input_processors=[before]),
            wrap_lines=True,
            dont_extend_height=True,
            height=Dimension(min=1, max=8),
        )
        parts = [
            Window(_control(lambda: [("reverse", page.heading(self))]), height=1, style="reverse"),
            self._talk,
            Window(height=1, char="─"),
            Window(_control(self._question), wrap_lines=True, dont_extend_height=True),
            ConditionalContainer(self._words, Condition(lambda: self._typing)),
            ConditionalContainer(self._choices(), Condition(lambda: self._choosing)),
            Window(_control(self._told), wrap_lines=True, dont_extend_height=True),
            Window(_control(lambda: [("italic", page.keys(self, self._form))]), height=1),
        ]
        return Application(
            layout=Layout(HSplit(parts), focused_element=self._talk),
            key_bindings=self._keys(),
            full_screen=True,
            mouse_support=False,
            enable_page_navigation_bindings=False,
            refresh_interval=EVERY,
            input=self._source,
            output=self._target,
        )

    def _choices(self) -> Window:
        height = Dimension(min=1, max=10)
        control = _control(self._options, lambda: Point(0, self._row))
        return Window(control, dont_extend_height=True, height=height, always_hide_cursor=True)

    def _lines(self) -> page.Styled:
        assert self._app is not None
        return page.talk(self, self._app.output.get_size().columns)

    def _cursor(self) -> Point:
        """The line of the messages to scroll to: the last one, or as far above it as the person has scrolled."""
        lines = sum(text.count("\n") for _, text in self._lines())
        self._up = min(self._up, lines)
        return Point(0, max(0, lines - self._up))

    def _question(self) -> page.Styled:
        if self._form is None:
            return [("bold", "\n".join(filter(None, page.middle(self))))]
        return [("bold", page.asked(self._form))]

    def _options(self) -> page.Styled:
        assert self._form is not None
        names = [inline(option.label) for option in self._form.current.options]
        return [
            ("reverse" if row == self._row else "", f" {name} \n"[: None if row + 1 < len(names) else -1])
            for row, name in enumerate(names)
        ]

    def _told(self) -> page.Styled:
        if self._fault:
            return [("bold ansired", inline(self._fault))]
        said = "" if self._form is None else page.room(self._form, self._typed.text)
        return [("italic", " · ".join(filter(None, (said, self.note if self._form is not None else ""))))]

    # -- keys --------------------------------------------------------------------------------------------

    def _keys(self) -> KeyBindings:
        keys, choosing = KeyBindings(), Condition(lambda: self._choosing)
        several = Condition(lambda: self._form is not None and len(self._form.fields) > 1)
        keys.add("enter")(lambda event: self._enter())
        keys.add("c-j", filter=Condition(lambda: self._typing))(lambda event: self._typed.insert_text("\n"))
        keys.add("up", filter=choosing)(lambda event: self._move(-1))
        keys.add("down", filter=choosing)(lambda event: self._move(+1))
        keys.add("s-tab", filter=several)(lambda event: self._back())
        keys.add("pageup")(lambda event: self._scroll(+PAGE))
        keys.add("pagedown")(lambda event: self._scroll(-PAGE))
        keys.add("c-d", eager=True)(self._leave)
        keys.add("c-c", eager=True)(lambda event: signal.raise_signal(signal.SIGINT))
        for key in ("c-z", "tab", "c-x", "c-l"):
            keys.add(key, eager=True)(lambda event: None)
        return keys

    def _leave(self, event: KeyPressEvent) -> None:
        event.app.exit()

    def _move(self, by: int) -> None:
        assert self._form is not None
        self._row = (self._row + by) % len(self._form.current.options)

    def _back(self) -> None:
        assert self._form is not None
        self._form.typed[self._form.place] = self._typed.text
        self._form.back()
        self._fill()

    def _scroll(self, by: int) -> None:
        self._up = max(0, self._up + by)


def _control(text: Callable[[], Any], cursor: Callable[[], Point] | None = None) -> FormattedTextControl:
    return FormattedTextControl(text, focusable=cursor is not None, get_cursor_position=cursor)

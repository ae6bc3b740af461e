"""A terminal emulator for tests: its screen, all earlier states of the screen, all output, and optionally a process
behind it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from typing import Any

SEQUENCE = re.compile(r"\x1b\[([?>]?)([\d;]*)([A-Za-z])|\x1b[()].|\x1b[=>78M]|\x1b\][^\x07]*\x07|([\s\S])")
TORN = re.compile(r"\x1b(\[[?>]?[\d;]*)?$|\x1b\][^\x07]*$")
MODES = (("1049", "h", "l"), ("2004", "h", "l"), ("25", "l", "h"), ("1", "h", "l"))
"""Modes that a program may switch on and off: alternate screen, bracketed paste, hidden cursor, cursor keys."""
QUIET = 0.03
"""Seconds without output after which a screen counts as complete."""
MAIN = "from agentcho.cli import main; main()"


class Emulator:
    """A screen of characters. `frames` are its states after each piece of output; `raw` is all output."""

    def __init__(self, columns: int = 90, rows: int = 28) -> None:
        self.columns, self.rows = columns, rows
        self.raw, self._torn = "", ""
        self.frames: list[str] = []
        self._clear()

    @property
    def text(self) -> str:
        """The current screen."""
        return "\n".join("".join(row).rstrip() for row in self._cells)

    @property
    def seen(self) -> str:
        """All screens and all output, without whitespace."""
        return re.sub(r"\s", "", "".join([*self.frames, self.raw]))

    def feed(self, text: str) -> None:
        """Processes a piece of output."""
        self.raw, text = self.raw + text, self._torn + text
        torn = TORN.search(text)
        self._torn, text = (text[torn.start() :], text[: torn.start()]) if torn else ("", text)
        for found in SEQUENCE.finditer(text):
            letter = found[4]
            if letter is not None:
                self._letter(letter)
            elif found[3] and not found[1]:
                self._control(found[3], [int(each or 0) for each in found[2].split(";")])
            elif found[3] in ("h", "l") and found[2] == "1049":
                self._clear()
        if not self.frames or self.frames[-1] != self.text:
            self.frames.append(self.text)

    def _clear(self) -> None:
        self._cells = [[" "] * self.columns for _ in range(self.rows)]
        self._row = self._column = 0

    def _letter(self, letter: str) -> None:
        if letter == "\n":
            self._row += 1
            while self._row >= self.rows:
                self._cells = [*self._cells[1:], [" "] * self.columns]
                self._row -= 1
        elif letter == "\r":
            self._column = 0
        elif letter == "\b":
            self._column = max(0, self._column - 1)
        elif letter >= " ":
            if self._column >= self.columns:
                self._letter("\r")
                self._letter("\n")
            self._cells[self._row][self._column] = letter
            self._column += 1

    def _control(self, what: str, numbers: Sequence[int]) -> None:
        count = max(1, numbers[0])
        moves = {"A": (-count, 0), "B": (count, 0), "C": (0, count), "D": (0, -count)}
        if what in moves:
            down, right = moves[what]
            self._row = min(self.rows - 1, max(0, self._row + down))
            self._column = min(self.columns - 1, max(0, self._column + right))
        elif what == "H":
            self._row, self._column = count - 1, (max(1, numbers[1]) if len(numbers) > 1 else 1) - 1
        elif what == "K":
            self._cells[self._row][self._column :] = [" "] * (self.columns - self._column)
        elif what == "J":
            first = self._row + 1 if numbers[0] == 0 else 0
            for row in range(first, self.rows):
                self._cells[row] = [" "] * self.columns
            if numbers[0] == 0:
                self._control("K", [0])


class Console(Emulator):
    """A command in its own pseudo-terminal. `sent` holds the number of frames at each time that keys were sent."""

    def __init__(
        self, *words: str, folder: str, env: Mapping[str, str] = {}, columns: int = 90, rows: int = 28
    ) -> None:
        super().__init__(columns, rows)
        self.sent: list[int] = []
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            path = os.pathsep.join(each for each in sys.path if each)
            os.environ.update({"TERM": "xterm-256color", "PYTHONPATH": path, **env})
            os.execv(sys.executable, [sys.executable, "-c", MAIN, *words])
        self.resize(columns, rows)
        self.settings = self._settings()

    @property
    def restored(self) -> bool:
        """Whether the terminal is restored: its settings, screen, cursor and paste mode."""
        switches = {
            mode: self.raw.rfind(f"\x1b[?{mode}{on}") > self.raw.rfind(f"\x1b[?{mode}{off}") for mode, on, off in MODES
        }
        return self._settings() == self.settings and not any(switches.values())

    def _settings(self) -> list[Any]:
        return termios.tcgetattr(self._fd)

    def resize(self, columns: int, rows: int) -> None:
        """Resizes the terminal."""
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if (columns, rows) != (self.columns, self.rows):
            self.columns, self.rows = columns, rows
            self._clear()

    def read(self, seconds: float = 0.1) -> bool:
        """Processes pending output. Returns False when the output has ended."""
        if not select.select([self._fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._fd, 1 << 16)
        except OSError:
            return False
        self.feed(data.decode(errors="replace"))
        return bool(data)

    def until(self, *words: str, seconds: float = 30) -> None:
        """Waits until one of these words is on a complete screen."""
        end = time.monotonic() + seconds
        while not (any(each in self.text for each in words) and self.drawn()):
            assert self.read() or any(each in self.text for each in words), f"it ended:\n{self.text}"
            assert time.monotonic() < end, f"never saw {words}:\n{self.text}"

    def drawn(self) -> bool:
        """Whether the screen is complete: output arrives in pieces. Processes a piece if there is one."""
        more = bool(select.select([self._fd], [], [], QUIET)[0])
        return not (more and self.read(0))

    def send(self, keys: str) -> None:
        """Types these keys."""
        self.sent.append(len(self.frames))
        os.write(self._fd, keys.encode())

    def end(self, seconds: float = 60) -> int:
        """Waits for the process to end; returns its exit code."""
        end = time.monotonic() + seconds
        while self.read():
            assert time.monotonic() < end, f"it does not end:\n{self.text}"
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def killed(self) -> int:
        """Kills the process by SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)
        return self.end()

    def hang_up(self) -> int:
        """Closes the terminal, and waits for the process to end."""
        os.close(self._fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

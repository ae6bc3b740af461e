"""Errors of games: the error, the line of the user's code that it came through, and its traceback.

Only lines of code are kept, never the values of variables, which may be secret.
"""

from __future__ import annotations

import linecache
import os
import re
import sysconfig
import traceback
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from pydantic import ValidationError

from agentcho.errors import AgentchoError
from agentcho.protocol.call_site import shown_path

FILE = "agentcho_file_"
"""The prefix of the module names under which files of scenarios and agents are imported."""
PACKAGE = Path(__file__).parents[2]
STANDARD = (Path(sysconfig.get_path("stdlib")), Path(os.__file__).parent)
DEEPEST = 12
"""The maximum number of frames listed for an error; the traceback has all of them."""
QUOTE = re.compile(r"(?<!\w)[bru]{0,2}(?=['\"])", re.IGNORECASE)
"""Where a value that an error quotes may begin, with the prefix of its literal. An apostrophe inside a word is none."""
INSTALLED = frozenset({"site-packages", "dist-packages"})


class GameFault(NamedTuple):
    """An error that ended a game.

    Attributes:
        kind: Its class.
        what: Its text, which may quote messages.
        where: "file:line" of the deepest line of user code. None if it came through none.
        traceback: The whole traceback.
        frames: One line per frame of user code, the deepest last.
    """

    kind: str
    what: str
    where: str | None
    traceback: str
    frames: tuple[str, ...] = ()

    @property
    def error(self) -> str:
        """Class and text of the error."""
        return f"{self.kind}: {self.what}" if self.what else self.kind

    def __str__(self) -> str:
        return f"{self.where}: {self.error}" if self.where else self.error


def fault(error: BaseException, package: str = "") -> GameFault:
    """Return the fault of an error. `package` is the scenario's own, if it is installed like a library."""
    leaves = list(_leaves(error))
    first = leaves[0]
    what = words(first) + (f" (and {len(leaves) - 1} more)" if len(leaves) > 1 else "")
    users = _users_frames(first, package) or _users_frames(error, package)
    where = f"{_file(users[-1][0])}:{users[-1][1]}" if users else None
    return GameFault(
        kind=type(first).__name__, what=what, where=where, traceback=_whole(error), frames=_told_frames(users)
    )


def words(error: BaseException) -> str:
    """Return the text of an error in characters that can be encoded, even if its `__str__` fails."""
    try:
        return _written(_validation(error) if isinstance(error, ValidationError) else str(error))
    except Exception as other:
        return f"(its message cannot be shown: {type(other).__name__})"


def _validation(error: ValidationError) -> str:
    """Return what pydantic found wrong with a model, such as an outcome, without the values."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(_found(error.title, e["type"], ".".join(map(str, e["loc"])), e["msg"]) for e in found)


def _found(model: str, kind: str, field: str, message: str) -> str:
    if kind == "extra_forbidden":
        return f"{model} has no field {field!r}"
    return ": ".join([*filter(None, [model, field]), message.removeprefix("Value error, ")])


def _whole(error: BaseException) -> str:
    try:
        return _written("".join(traceback.TracebackException.from_exception(error, capture_locals=False).format()))
    except Exception as other:  # endlessly nested groups, a user's class that fails
        return f"(its traceback cannot be shown: {type(other).__name__})"


def _written(text: str) -> str:
    """Return a text without lone surrogates, which file names can contain and UTF-8 cannot encode."""
    return text.encode(errors="backslashreplace").decode()


def told(error: BaseException, found: GameFault, private: Sequence[str] = (), names: Collection[str] = ()) -> str:
    """Return how the line of a game says that it ended.

    Only agentcho's own errors give their text. They quote no messages, but values that the code gave, and code can give
    the words of a message. So a quoted piece of a `private` text, whole or cut short by "…", is left out, unless it is
    one of the `names`.
    """
    if not isinstance(error, AgentchoError):
        return f"error: {found.kind}" + (f" ({found.where})" if found.where else "")

    texts = [each.casefold() for text in private for each in (text, repr(text))]
    parts, end = list[str](), 0
    text = found.error
    for begin in (match.end() + 1 for match in QUOTE.finditer(text)):
        if begin > end and (length := _private_length(text[begin:], text[begin - 1], texts, names)):
            parts += [text[end:begin], "…"]
            end = begin + length
    return f"error: {''.join([*parts, text[end:]])}"


def _private_length(text: str, quote: str, private: Sequence[str], names: Collection[str]) -> int:
    """Return the length of the longest piece at the beginning of a text that ends before `quote` or "…" and is part of
    a private text; 0 if there is none, or if it is a name."""
    longest = 0
    for place, letter in enumerate(text):
        if letter in (quote, "…"):
            piece = text[:place]
            if not any(piece.casefold() in each for each in private):
                break
            longest = place
    return 0 if text[:longest] in names else longest


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Return the errors of a group, and of groups in it, in order."""
    left = [error]
    while left:
        each = left.pop()
        if isinstance(each, BaseExceptionGroup):
            left += reversed(each.exceptions)
        else:
            yield each


def _users_frames(error: BaseException, package: str) -> list[tuple[FrameType, int]]:
    """Return the frames of user code that an error came through, each with its line, the deepest last."""
    return [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if _is_users(frame, package)]


def _told_frames(users: list[tuple[FrameType, int]]) -> tuple[str, ...]:
    """Return the deepest frames, one line each: file, line, function and source."""
    deepest = users[-DEEPEST:]
    before = [f"… {len(users) - len(deepest)} earlier frames"] if len(users) > len(deepest) else []
    return (*before, *(_written(_told_frame(frame, line)) for frame, line in deepest))


def _told_frame(frame: FrameType, line: int) -> str:
    source = linecache.getline(frame.f_code.co_filename, line).strip()
    return f"{_file(frame)}:{line}, in {frame.f_code.co_name}" + (f": {source}" if source else "")


def _file(frame: FrameType) -> str:
    return shown_path(Path(frame.f_code.co_filename))


def _is_users(frame: FrameType, package: str) -> bool:
    """Return whether a frame runs user code, and not code of a library or of agentcho, or code made at run time."""
    name, file = str(frame.f_globals.get("__name__", "")), Path(frame.f_code.co_filename)
    if name.startswith(FILE) or (package and name.split(".", 1)[0] == package):
        return not frame.f_code.co_filename.startswith("<")
    made_up = frame.f_code.co_filename.startswith(("<frozen", "<string>"))
    ours = any(file.is_relative_to(folder) for folder in (PACKAGE, *STANDARD))
    return not (made_up or ours or INSTALLED.intersection(file.parts))

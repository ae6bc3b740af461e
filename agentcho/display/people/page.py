"""The texts of a person's screen, with styles: the heading, the messages that they may read, and the question.

Control characters in texts are replaced by visible signs. Independent of terminals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentcho.display.people.form import Form
from agentcho.display.people.session import Question, Session, remaining
from agentcho.display.safe import inline
from agentcho.display.speech import MessageView, columns
from agentcho.message import Message, natural

Styled = list[tuple[str, str]]
"""Pieces of text, each with its style."""
COLOURS = ("ansicyan", "ansimagenta", "ansigreen", "ansiyellow", "ansiblue")
MOST = 1000
"""The maximum number of messages shown: the last ones."""


def heading(desk: Session) -> str:
    """Return who plays, in which game, and the time left. It contains no secrets."""
    if desk.handing or desk.shown is None:
        return " agentcho"
    game, agent = desk.shown
    question = desk.current if isinstance(desk.current, Question) else None
    waiting = f"{desk.others} more {'game waits' if desk.others == 1 else 'games wait'} for you" if desk.others else ""
    parts = [
        f"you are {agent}",
        desk.which(game) if desk.games > 1 else "",
        waiting,
        remaining(question.left) if question else "",
    ]
    return " " + " · ".join(filter(None, map(inline, parts)))


def talk(desk: Session, width: int) -> Styled:
    """Return the messages that may be seen now, in lines of at most `width` columns."""
    messages = desk.talk
    styled: Styled = []
    if len(messages) > MOST:
        styled.append(("italic", f"… {len(messages) - MOST} earlier messages: run `agentcho show` after the end\n\n"))
    for message in messages[-MOST:]:
        speech = spoken(message)
        styled += [(f"bold {_colour(message.author)}", speech.heading), ("", "\n")]
        lines = (line for each in speech.words.split("\n") for line in wrapped(each, width - 3))
        styled += [("italic" if speech.private else "", "".join(f"  {line}\n" for line in lines)), ("", "\n")]
    return styled


def wrapped(line: str, width: int) -> Iterator[str]:
    """Yield a line in pieces of at most `width` columns, broken at spaces if possible."""
    line, width = line.expandtabs(4), max(8, width)
    while columns(line) > width:
        fits = next(end for end in range(min(len(line), width), 0, -1) if columns(line[:end]) <= width)
        space = line.rfind(" ", 0, fits + 1)
        end = space if space > width // 3 else fits
        yield line[:end]
        line = line[end:].removeprefix(" ")
    yield line


def spoken(message: Message) -> MessageView:
    """Return the view of a message."""
    told = message.author, message.kind, message.role, message.audience, message.header, message.text
    return MessageView(*told, thought=message.words.thought is not None)


def _colour(author: str | None) -> str:
    return "" if author is None else COLOURS[sum(author.encode()) % len(COLOURS)]


def asked(form: Form) -> str:
    """Return the sentence that says what is asked for, and who can read the answer."""
    return inline(f"{_what(form)}. {_readers(form)}")


def _what(form: Form) -> str:
    question = form.asked
    if form.is_json and form.fields[0].path:
        name = form.current.help and f" ({form.current.help})"
        return f"{form.place + 1} of {len(form.fields)}: {form.current.name}{name}"
    if form.is_json:
        return f"Answer in JSON {form.current.help}".strip()
    who = question.to.members
    alone = who is not None and who <= {question.agent}
    if question.choices:
        return "Choose"
    return "Think: write down your thoughts" if alone else "Say something"


def _readers(form: Form) -> str:
    members = form.asked.to.members
    if members is None:
        return "Everyone can read it."
    others = sorted(members - {form.asked.agent}, key=natural)
    return f"{', '.join(others)} can read it." if others else "Nobody else can read it."


def header(form: Form) -> str:
    """Return the header of the message, before the typed words. Empty for a choice or a JSON form."""
    return "" if form.is_json or form.asked.choices else inline(form.asked.header)


def room(form: Form, typed: str) -> str:
    """Return how much of the allowed length is typed. Empty for a choice, or while the text is not valid yet."""
    if form.asked.choices or form.current.options:
        return ""
    try:
        count = form.asked.tokens(form.words(typed))
    except (ValueError, UnicodeError):
        return ""
    return f"{count} of {form.asked.most} tokens"


def keys(desk: Session, form: Form | None) -> str:
    """Return what each key does now."""
    leave = "Ctrl-D leave · Ctrl-C end"
    if desk.handing:
        return f" Enter · {leave}"
    if form is None:
        return f" {'Enter go on · ' if desk.current else ''}PgUp PgDn read · {leave}"
    move = "↑ ↓ choose · Enter take it" if form.current.options else "Enter send · Ctrl-J new line"
    back = "Shift-Tab back · " if len(form.fields) > 1 else ""
    return f" {move} · {back}PgUp PgDn read · {leave}"


def middle(desk: Session) -> Sequence[str]:
    """Return what is shown without a question: the keyboard is passed on, a game is over, or others speak."""
    if desk.handing:
        assert desk.current is not None
        return (f"Pass the keyboard to {inline(str(desk.current.agent))}.", "Press Enter when nobody else is looking.")
    if desk.current is not None and not isinstance(desk.current, Question):
        return (inline(desk.current.text), "Press Enter to go on.")
    return (desk.note, "The others are speaking; please wait.")

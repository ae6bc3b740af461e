"""The table of reads: what the code of a scenario or an agent can read of a game, and which secrets each read reveals.

The table has every public name of the classes that such code can reach, and every error of the package: either with the
messages that a read of it counts as a look at (`taints`), or as public, with the reason. If the code acts before a
wider audience after such a look, audits report a finding.

Not in the table, and not tracked: clocks, the arguments of a tool's function, whether a task has ended, whether the
code cancels a message that others would have read, what a function that makes a view stores elsewhere, messages of
another game, and values that one task passes to another through its own objects. `taint` notices the reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Taint = Literal["itself", "listed", "probed", "race", "all", "readable", "unfinished", "value", "parents"]
MEANING: dict[Taint, str] = {
    "itself": "that message",
    "parents": "the messages that it names",
    "listed": "the messages that were listed on the way",
    "probed": "that message, or all of its author where it is not there; none where a verb had returned that id",
    "race": "all messages of the race",
    "all": "all messages of the game",
    "unfinished": "what the agent was at",
    "value": "that message, of which the code has the value: a note, unless it says that value itself",
    "readable": "all that the agent may read, and what the error names; after a limit of the whole game all messages",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeRead:
    """Some names of one class, or one error.

    Args:
        of: The class. "Cancelled" stands for the cancellation of a task, by any class.
        names: Its names. "raised" stands for an error that leaves a verb, with its class, text and attributes.
        taints: The messages that a read counts as a look at. None if it is public.
        why: What the read reveals, or why it reveals nothing.
    """

    of: str
    names: tuple[str, ...]
    taints: Taint | None
    why: str


def _errors(taints: Taint | None, why: str, *names: str) -> Iterator[CodeRead]:
    return (CodeRead(of=name, names=("raised",), taints=taints, why=why) for name in names)


SIGHTS = (
    # -- private -------------------------------------------------------------------------------------------
    CodeRead(
        of="Message",
        names=(
            *("words", "text", "tokens", "content", "sampled", "stopped", "canonical", "saying"),
            *("thought", "thoughts"),
        ),
        taints="itself",
        why="words, their length in tokens and what ended them; of a thought the message of that thought too. That "
        "there was none counts as a look at what its author had read, if its model thinks and its thoughts are private",
    ),
    CodeRead(
        of="Message",
        names=("parents", "offsets", "new_offset", "metadata"),
        taints="parents",
        why="which messages its author had read, or how many",
    ),
    CodeRead(
        of="Agent",
        names=("choose", "ask", "answer"),
        taints="value",
        why="what is returned is what the message says",
    ),
    CodeRead(
        of="Agent",
        names=("stream",),
        taints="itself",
        why="pieces of the words, and their number, as they come",
    ),
    CodeRead(
        of="Pieces",
        names=("message", "error", "__aiter__", "__anext__"),
        taints="itself",
        why="pieces of the words, the message whose words they are, or the error that ended it",
    ),
    CodeRead(
        of="History",
        names=(
            *("__len__", "__iter__", "__getitem__", "__contains__", "__reversed__", "__eq__", "__hash__", "__repr__"),
            *("count", "index", "find", "backwards", "open_to", "logs"),
        ),
        taints="listed",
        why="that a message was said, its id, author, audience, role and place, and how many there are: this is "
        "`Game.said`",
    ),
    CodeRead(
        of="Game",
        names=("message", "retokenized"),
        taints="probed",
        why="whether there is a message of that id, which counts its author's messages",
    ),
    CodeRead(
        of="Game",
        names=("first",),
        taints="race",
        why="who is first tells how long the others' words are",
    ),
    CodeRead(
        of="Game",
        names=("raced",),
        taints="all",
        why="whether messages were said at the same time depends on how long they took",
    ),
    *_errors(
        "readable",
        "a verb has failed, or has not so far: that counts what was said, or depends on what was to be read",
        *("AgentchoError", "LimitReached", "ContextOverflow", "StoreFull", "Overloaded", "LeakageError"),
        *("AnswerInvalid", "PersonLeft", "ToolFailed", "EndpointFailed", "CallFailed", "CallbackFailed"),
        *("UnknownEncoding", "EngineFailed", "EngineClosed", "StoreDamaged"),
    ),
    *_errors(
        "all",
        "there is no message of an id that a view names, which counts its author's messages",
        "AudienceError",
    ),
    CodeRead(
        of="Cancelled",
        names=("raised",),
        taints="unfinished",
        why="a verb was cancelled, as by a deadline of the code's own: so its message takes longer",
    ),
    # -- public --------------------------------------------------------------------------------------------
    CodeRead(
        of="Game",
        names=("said",),
        taints=None,
        why="a sequence; what is read of it counts, see `History`",
    ),
    CodeRead(
        of="Game",
        names=("index", "seed", "config", "reuse", "draw"),
        taints=None,
        why="known before anything is said",
    ),
    CodeRead(
        of="Game",
        names=("agents", "name_of", "system_prompt", "cast"),
        taints=None,
        why="the cast is the code's own: it has chosen whom to cast, and the words of system prompts",
    ),
    CodeRead(
        of="Game",
        names=("announce", "streamed", "swap_out", "together", "lockstep", "play_agents", "play"),
        taints=None,
        why="acts of the code itself; what moves and agents return was looked at in them, and counts after them",
    ),
    CodeRead(
        of="Game",
        names=("speak", "tell", "release", "refused"),
        taints=None,
        why="the agents' verbs, see there, and the errors that they raise",
    ),
    CodeRead(
        of="Agent",
        names=("say", "think"),
        taints=None,
        why="a message is returned; what is read of its words counts, see `Message`",
    ),
    CodeRead(
        of="Agent",
        names=("tell", "release"),
        taints=None,
        why="an id is returned; the message and its place are the code's own act",
    ),
    CodeRead(
        of="Agent",
        names=("view",),
        taints=None,
        why="metadata of what the agent itself may read, to choose what it reads at its own turn: what it then says "
        "is its own act",
    ),
    CodeRead(
        of="Agent",
        names=("model",),
        taints=None,
        why="a function gets the number of the agent's own turn, to choose through what it speaks then",
    ),
    CodeRead(
        of="Agent",
        names=(
            *("name", "role", "system", "open_system", "audience", "priority", "tools", "shares_thoughts"),
            *("brief", "run"),
        ),
        taints=None,
        why="what the code gave the agent itself",
    ),
    CodeRead(
        of="Message",
        names=("id", "game", "kind", "role", "author", "audience", "name", "header"),
        taints=None,
        why="of a message that a verb returned: the code asked for it, by that author, to that audience, with that "
        "header, over that view",
    ),
    CodeRead(
        of="Metadata",
        names=("id", "kind", "role", "author", "audience", "parents", "count", "index"),
        taints=None,
        why="of a message that was listed: that counted when it was listed, and its parents are only those that all "
        "its readers may know",
    ),
    CodeRead(
        of="ReadableMessages",
        names=("count", "index"),
        taints=None,
        why="what a view is shown, see `Agent.view`",
    ),
    CodeRead(
        of="View",
        names=("of", "last", "of_roles", "open_to", "reads", "new_at", "reuse", "count", "index"),
        taints=None,
        why="made of metadata that the code has, which counted when it was listed; `open_to` lists what all of its "
        "audience may read. An id that no verb has returned counts as a look at its message once a verb takes the view",
    ),
    CodeRead(
        of="Streamed",
        names=("id", "text", "write", "close", "give_up"),
        taints=None,
        why="words of the code's own; `text` counts as a look at all that the tasks that wrote it had looked at",
    ),
    CodeRead(
        of="Audience",
        names=("members", "includes", "covers", "both", "to_json"),
        taints=None,
        why="of an audience that the code has made, or of a message that was listed",
    ),
    CodeRead(
        of="Scenario",
        names=("name", "tasks", "kind", "options", "Options", "Outcome", "casts", "draws", "play", "paired"),
        taints=None,
        why="the code's own, and what it was given before the game",
    ),
    CodeRead(
        of="Scenario",
        names=("score", "judged", "provenance", "has_provenance"),
        taints=None,
        why="asked when the game is over",
    ),
    *_errors(
        None,
        "says what is wrong with the arguments, which are the code's own; an error about a position that depends on "
        "the length of messages, about what a person typed, or that a function of the code raised within the verb, "
        "such as a view, counts as a look at all that the agent may read",
        *("RequestError", "ScenarioError", "TaskError", "ConfigError", "ArgumentError", "ExtraMissing"),
    ),
    *_errors(
        None,
        "raised before a game begins or when it is over",
        *("ModelError", "ModelNotFound", "ModelBroken", "UnsupportedModel", "AdapterError", "EngineBusy", "TuneError"),
        *("GamesFailed", "WorkersLost", "ScenarioNotFound", "RecordError", "RecordNotFound", "RecordBroken"),
        *("RecordInUse", "CannotWrite", "ResumeMismatch"),
    ),
)

WORDS = frozenset(
    name
    for sight in SIGHTS
    if sight.of == "Message" and sight.taints == "itself"
    for name in sight.names
    if name != "saying"
)
"""The attributes of a message that reveal its words. `saying` is left out, because it reads `words`."""
SILENT = frozenset(sight.of for sight in SIGHTS if sight.names == ("raised",) and sight.taints is None)
"""Errors that reveal nothing about messages."""

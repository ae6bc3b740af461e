"""Every error agentcho raises on purpose, as one tree; each says what is wrong, where, and what to do.

AgentchoError
├── ModelError                 a model, or an adapter, cannot be used
│   ├── ModelNotFound
│   ├── ModelBroken            a file of it is missing or damaged, or does not fit the others
│   ├── UnsupportedModel       its keys cannot be reused, or its role markers anybody can write
│   └── AdapterError           a folder that holds no adapter for this model
├── RequestError               one call is wrong; nothing was computed for it (also a ValueError)
│   ├── UnknownEncoding
│   └── ContextOverflow
├── CallFailed                 a forward, or its sampling, failed for this call alone
├── CallbackFailed             what a call brought with it raised
├── StoreFull                  more at once than the store can hold
├── StoreDamaged               an integrity check found stored keys, labels or counts changed
├── EngineFailed               a device failed; all calls under way are gone, the store is whole
├── Overloaded                 more requests at once than are taken
├── EngineClosed               the choreographer has ended, or the engine was closed
├── EngineBusy                 somebody else has the engine
├── AudienceError              a name that names nobody, or nothing, or cannot (also a ValueError)
├── LeakageError               a call would read what its caller may not, or tell a tool what others may not know
├── ConfigError                options that contradict each other or that there are not (also a ValueError)
│   └── ArgumentError          an argument of the wrong type (also a TypeError)
├── ExtraMissing               a library that only some need is not installed
├── TuneError                  an adapter cannot be trained, or no further (also a ValueError)
├── LimitReached               a limit on tokens, messages or time ended a game
├── GamesFailed                errors ended games of a run
├── PersonLeft                 who plays an agent has gone
├── WorkersLost                workers cannot be had, cannot take part, or died
├── AnswerInvalid              a constrained answer is not what was asked for
├── ToolFailed                 a tool of an agent cannot be had, or its server is gone
├── EndpointFailed             a server of models refused a request, or did not answer it as it must
├── ScenarioError              a scenario, or what it does, cannot be worked with
│   ├── ScenarioNotFound
│   └── TaskError              tasks that there are not, too few, or broken, with the file and line
└── RecordError                a run, a trace or a report cannot be used
    ├── RecordNotFound
    ├── RecordBroken           a file, and the line in it
    ├── RecordInUse            somebody else is writing
    ├── CannotWrite            the system refused a write
    └── ResumeMismatch         what is there was made otherwise than what is asked for
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from types import MappingProxyType

SHORT = 60
SHOWN = 20  # how many failed games an error lists one by one
COMPARED = 1000  # how many names an unknown one is compared with at most
TRACE = "the format is agentcho-trace/1"


class AudienceWarning(UserWarning):
    """An agent with an `audience` chose or answered without `to`. The message is private; from 0.6 on it goes to the
    agent's audience."""


class AgentchoError(Exception):
    """Base of all errors raised on purpose. `code` is what a command that it ends exits with: 2, for it was asked for
    something that cannot be, or 1, for it was begun and something failed. `transient`: the same may succeed when it is
    asked for again."""

    code: int = 2
    transient: bool = False

    def __init__(self, what: str = "", code: int | None = None) -> None:
        super().__init__(what)
        self.code = self.code if code is None else code


def shown(value: object) -> str:
    """A value in an error's words: short, whatever it is."""
    try:
        words = repr(value)
    except Exception:  # a number too long to be written, a user's class that fails
        return f"a value of type {type(value).__name__} that cannot be shown"
    return words if len(words) <= SHORT else f"{words[:SHORT]}…"


def nearest(word: str, known: Iterable[str]) -> str:
    """The known name that an unknown one is most like, as a question; empty: none is like it, or there are too many
    or too long ones to compare."""
    there = sorted(islice(known, COMPARED + 1))
    if len(there) > COMPARED or len(word) > SHORT:
        return ""
    like = get_close_matches(word, [each for each in there if len(each) <= SHORT], 1)
    return f"did you mean {like[0]!r}?" if like else ""


def asking(word: str, known: Iterable[str]) -> str:
    """The end of an error that lists what is known: the `nearest` question, or nothing."""
    like = nearest(word, known)
    return f"; {like}" if like else ""


class ModelError(AgentchoError):
    """A model cannot be used."""


@contextmanager
def of_model(name: str) -> Iterator[None]:
    """A context in which what is wrong with one of several models is told with its name, as a `ModelError`."""
    try:
        yield
    except AgentchoError as error:
        raise ModelError(f"model {name!r}: {error}", error.code) from error


class ModelNotFound(ModelError):
    """Neither a folder, nor the understudy, nor a model that the local hub cache or the hub can give."""

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(
            f"no model {model!r}: {reason}. Give 'understudy', 'smollm2', a folder with config.json and "
            "*.safetensors, a GGUF file, or a Hugging Face id that is already downloaded or can be "
            "reached"
        )
        self.model = model


class ModelBroken(ModelError):
    """A file of a model is missing, damaged, or does not fit the others."""

    def __init__(self, model: str, file: Path, reason: str, remedy: str = "Download or copy the model again") -> None:
        super().__init__(f"{model} cannot be read: {file}: {reason}. {remedy}")
        self.model = model
        self.file = file
        self.reason = reason
        self.remedy = remedy


class UnsupportedModel(ModelError):
    """The model was loaded far enough to see that reuse of its keys would be wrong."""

    def __init__(self, model: str, cause: str, remedy: str, what: str | None = None) -> None:
        super().__init__(f"{what or f'{model} cannot share encodings'}: {cause}. {remedy}")
        self.model = model
        self.cause = cause
        self.remedy = remedy

    @classmethod
    def unframed(cls, model: str, cause: str) -> UnsupportedModel:
        """The chat template is missing, or does not frame messages one by one."""
        remedy = (
            "Use an instruction-tuned model whose tokenizer carries a chat template, or put a "
            "chat_template.jinja next to its tokenizer"
        )
        return cls(model, cause, remedy, f"no framing for {model}")


class AdapterError(ModelError):
    """A folder without an adapter, or with one that does not fit the model that is loaded."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"no adapter in {path}: {reason}. Give a folder with adapter_config.json and "
            "adapter_model.safetensors, as `agentcho tune` or peft writes it, trained on this model"
        )
        self.path = path


class RequestError(AgentchoError, ValueError):
    """One call is wrong. Nothing was computed for it, and nothing else is affected. `field` is the field of the call
    that is: "parents", "offsets", "sampling"; None: another one, or the call as a whole. `option` is the option of its
    `Sampling` that is; None: none, or several together."""

    def __init__(self, what: str, field: str | None = None, option: str | None = None) -> None:
        super().__init__(what)
        self.field, self.option = field, option

    @classmethod
    def parents(cls, what: str) -> RequestError:
        """A parent that is no id, does not stand earlier in its list, or is a decode still running."""
        return RequestError(
            f"{what}; a parent is the id of a finished call, or a Prefill earlier in the same list", "parents"
        )

    @classmethod
    def offsets(cls, what: str) -> RequestError:
        """Offsets that do not fit their parents or are not positions."""
        told = "give one offset per parent: the absolute position (0 or more) of its first framing token"
        return RequestError(f"{what}; {told}", "offsets")


class UnknownEncoding(RequestError):
    """An id that this engine never gave out, or whose encoding was released."""

    def __init__(self, encoding: object, released: bool = False, foreign: bool = False) -> None:
        why = "was released" if released else "belongs to another engine" if foreign else "is unknown to this engine"
        super().__init__(
            f"encoding {shown(encoding)} {why}; pass an id that prefill or decode returned and that has "
            "not been released"
        )


class ContextOverflow(RequestError):
    """A call would reach past the model's context. Nothing is ever truncated."""

    def __init__(self, needed: int, limit: int, model: str | None = None) -> None:
        which = "the model" if model is None else f"the model {model!r}"
        super().__init__(
            f"the call needs positions up to {needed}, but {which} has {limit}; read fewer messages, "
            "place them closer together, or lower max_tokens"
        )
        self.needed, self.limit = needed, limit


class CallFailed(AgentchoError):
    """The forward failed for one call, alone or with what it made for itself, or no token could be chosen for it, which
    is not transient. Its batch goes on without it."""

    transient = True

    @classmethod
    def of(cls, cause: BaseException) -> CallFailed:
        """Its forward raised `cause`."""
        error = cls(
            f"the model's forward failed for this call alone ({type(cause).__name__}: {cause}); if memory "
            "ran out, read fewer messages or lower max_tokens; otherwise report this error"
        )
        error.__cause__ = cause
        return error

    @classmethod
    def memory(cls, tokens: int, device: str) -> CallFailed:
        """Its device has no memory for so many tokens more, beside the store and what other calls say."""
        return cls(
            f"{device} has no memory left for {tokens} more tokens of running calls; run fewer calls at "
            "once, lower max_tokens, or load the engine with a smaller store_tokens"
        )

    @classmethod
    def sampling(cls) -> CallFailed:
        """No token can be chosen: the same logits come again."""
        error = cls("sampling failed for this call alone: none of the tokens that it may say has a finite logit")
        error.transient = False
        return error


class CallbackFailed(AgentchoError):
    """What a call brought with it, a guard or a function that hears of it, raised. That call is dropped."""

    def __init__(self, what: str, cause: BaseException) -> None:
        super().__init__(
            f"{what} of this call raised {type(cause).__name__}, so the call was dropped; fix that function"
        )
        self.__cause__ = cause


class StoreFull(AgentchoError):
    """A call needs more in the store at once than there can be."""

    def __init__(self, needed: int, room: int) -> None:
        super().__init__(
            f"the call needs room for {needed} tokens at once, including its context, and the store has "
            f"room for {room}; lower max_tokens, read fewer messages in one call, or load the engine with "
            f"store_tokens={needed} or more"
        )
        self.needed, self.room = needed, room


class StoreDamaged(AgentchoError):
    """Stored keys, labels or counts are not what they were. `file`: one on disk is not, and nothing of it is read."""

    def __init__(self, what: str, file: Path | None = None) -> None:
        new, again = (
            "Load the engine again; if this recurs, report it",
            "The file is made again; check whether another program writes to its folder",
        )
        super().__init__(f"the store is damaged: {what}. {new if file is None else again}")
        self.file = file


class EngineFailed(AgentchoError):
    """A device failed, or the engine itself. Every call under way is dropped; stored encodings are untouched."""

    transient = True

    @classmethod
    def of(cls, cause: BaseException) -> EngineFailed:
        """A forward raised `cause`."""
        return cls(f"the model's forward failed ({type(cause).__name__}: {cause}); the calls in it were dropped")


class Overloaded(AgentchoError):
    """More requests at once than a choreographer takes. Nothing of this one was begun."""

    transient = True

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the choreographer has {limit} requests under way and takes no more. Wait for some to end, "
            "play fewer games at once, or raise max_requests."
        )


class EngineClosed(AgentchoError):
    """The choreographer ended while the request waited, or before it was made; or the engine was closed."""

    def __init__(self, what: str = "the choreographer has shut down; open a new one") -> None:
        super().__init__(what)


class EngineBusy(AgentchoError):
    """A second choreographer, thread or direct call on a network that somebody has. Nothing of it was begun."""

    def __init__(self, first: str) -> None:
        super().__init__(
            f"the engine is in use by {first}. A network has one owner at a time: wait until that one "
            "ends, play all games on one choreographer, or load another engine"
        )
        self.first = first


class AudienceError(AgentchoError, ValueError):
    """A name that names nobody in the cast, two agents at once, or no message that a view could name; or a word that
    cannot name an agent at all. `names` are what there is to name (None: nothing is listed), and `are` says so."""

    def __init__(self, what: str, names: Iterable[str] | None = None, are: str = "the cast is") -> None:
        there = [] if names is None else [f"{are}: {', '.join(sorted(names)) or '(empty)'}. Names must match exactly"]
        super().__init__((" " if what.endswith("?") else "; ").join([what, *there]))


class LeakageError(AgentchoError):
    """A read was refused before any tensor was touched.

    `path` leads from the message that was to be read to the one that its encoding carries; one id: read directly; none:
    an encoding was to be read of which nothing is known, and unknown is never clean.
    """

    def __init__(self, reader: str, path: Sequence[str], encoding: int | None = None) -> None:
        if not path:
            what = f"encoding {encoding}: it is not known what it was made from"
            remedy = "Encode its message again in this game"
        elif len(path) == 1:
            what = f"message {path[0]}: {reader} is not in its audience"
            remedy = f"Leave it out of {reader}'s view, or release its words as a new message to a wider audience"
        else:
            what = f"message {path[0]} through its author's encoding, which carries {path[-1]} ({' <- '.join(path)})"
            remedy = "Use leakage=enforce, which encodes the message again for its audience, or mode=baseline"
        super().__init__(f"{reader} may not read {what}. {remedy}")
        self.reader, self.path = reader, tuple(path)

    @classmethod
    def vendor(cls, reader: str, message: str, author: str, own: str | None, vendor: str) -> LeakageError:
        """A private message was to be sent to another vendor's model. Nothing was sent."""
        error = cls(reader, (message,))
        error.args = (
            f"{reader} may not send message {message} to {vendor}: it is private, and the model of "
            f"{author}, who said it, is {'loaded here' if own is None else f'at {own}'}. Leave it out of "
            f"{reader}'s view, say the message to everyone, or allow that vendor with --allow-vendor "
            f"{vendor}",
        )
        return error

    @classmethod
    def sink(cls, caller: str, tool: str, why: str, messages: Sequence[str]) -> LeakageError:
        """A call of a tool was not run. `why` says what is wrong with its `messages`, and what to do."""
        error = cls(caller, messages)
        error.args = (f"the call of {tool} by {caller} was not run: {why}",)
        return error


class ConfigError(AgentchoError, ValueError):
    """Options that contradict each other, or of which there is none by that name: what was asked for cannot be.
    `option` is the name of the one option that is wrong (None: several together, or it has no name), and `reason` says
    what is wrong with it; the error's words are both. The command line reports such an error as a usage error."""

    def __init__(self, reason: str, option: str | None = None) -> None:
        super().__init__(reason if option is None else f"{option}: {reason}")
        self.reason, self.option = reason, option


class ArgumentError(ConfigError, TypeError):
    """An argument of the wrong type."""


class ExtraMissing(AgentchoError, ImportError):
    """Libraries that only some users need are not installed."""

    def __init__(self, libraries: Sequence[str], extras: Sequence[str], what: str) -> None:
        needed = f"{', '.join(libraries)} {'is' if len(libraries) == 1 else 'are'} needed {what}"
        super().__init__(f"{needed}: pip install 'agentcho[{','.join(extras)}]'")


class TuneError(AgentchoError, ValueError):
    """An adapter cannot be trained on these traces, or no further."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")


class LimitReached(AgentchoError):
    """A limit ended a game. `Game` records it as an outcome, whether or not the error is caught; it is no failure."""

    def __init__(self, limit: str, who: str, value: float) -> None:
        super().__init__(f"{who} reached the limit of {value:g} {limit}; raise that limit to play longer")
        self.limit = limit
        self.who = who
        self.value = value


class GamesFailed(AgentchoError):
    """Errors ended games of a run; the others are whole. `failed` says of each game what, and where; `frames` those of
    the user's code that its error came through, for `lines`, which have the same ones once."""

    code = 1

    def __init__(
        self,
        failed: Mapping[int, str],
        of: int,
        record: Path | None = None,
        frames: Mapping[int, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        head = [] if of == 1 else [f"{len(failed)} of {of} games ended with an error"]
        games, lines = list[str](), list[str]()
        told = set[tuple[str, ...]]()
        for game, what in sorted(failed.items())[:SHOWN]:
            games.append((f"game {game}: " if head else "") + " ".join(what.split()))
            came = tuple(frames.get(game, ()))
            lines += [games[-1], *(() if came in told else [f"  {frame}" for frame in came])]
            told.add(came)
        last = [f"… and {len(failed) - SHOWN} more"] if len(failed) > SHOWN else []
        last += [] if record is None else [f"tracebacks: {record / 'outcomes.jsonl'}"]
        self.lines = (*head, *lines, *last)
        super().__init__("; ".join((*head, *games, *last)))


class PersonLeft(AgentchoError):
    """Who plays an agent has gone, and nobody answers for it. Ends the games in which it played."""

    code = 1


class WorkersLost(AgentchoError):
    """There are no workers to play games, they cannot take part, or they died."""


class AnswerInvalid(AgentchoError):
    """What was said is not what was asked for, though its form is."""


class ToolFailed(AgentchoError):
    """A tool cannot be had at all, or the server that it is on is gone: it ends the game that needs it. What is wrong
    with a single call is told to the model instead."""

    code, transient = 1, True


class EndpointFailed(AgentchoError):
    """A server of models refused a request, did not answer it, or broke its answer off. `status` is HTTP's (None: there
    was none); `transient` where the same request may be answered later."""

    code = 1

    def __init__(self, what: str, status: int | None = None, transient: bool = False) -> None:
        super().__init__(what)
        self.status, self.transient = status, transient


class ScenarioError(AgentchoError):
    """A scenario cannot be found, read or set up, or does what no scenario may."""


class ScenarioNotFound(ScenarioError):
    """No path and no scenario or agent of that name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        there = sorted(known)
        like = nearest(name, there)
        listed = f"{like} Known: " if like else "known: "
        super().__init__(
            f"no scenario or agent named {name!r}; {listed}{', '.join(there)}. Give one of these or a .py file"
        )


class TaskError(ScenarioError, ValueError):
    """Tasks that cannot be read, or not be played; `line` counts from 1, None: the whole set."""

    def __init__(self, source: str, line: int | None, what: str) -> None:
        super().__init__(f"tasks {source}{f':{line}' if line else ''}: {what}")


class RecordError(AgentchoError):
    """A run, a trace or a report cannot be used."""


class RecordNotFound(RecordError):
    """No run of that id or path."""

    def __init__(self, run: str, folder: Path) -> None:
        super().__init__(f"no run {run!r} in {folder}; `agentcho ls --runs` lists them")


class RecordBroken(RecordError, ValueError):
    """A file is damaged somewhere else than in its last line, or is not what it is given for."""

    def __init__(self, where: object, what: str, remedy: str = "restore the file or delete that line") -> None:
        super().__init__(f"{where}: {what}; {remedy}")


class RecordInUse(RecordError):
    """Somebody else is writing: two writers would lose each other's lines."""

    def __init__(self, what: Path, pid: int, host: str, since: str) -> None:
        told = f"{what} is being written by process {pid} on {host}, since {since}"
        super().__init__(f"{told}; wait for it to end, or stop it")
        self.pid = pid
        self.host = host
        self.since = since


class CannotWrite(RecordError):
    """The system refuses a write: before anything was begun, or later, when what was finished before is whole."""

    def __init__(self, path: Path, reason: str, begun: bool = True) -> None:
        kept = "Everything finished so far is kept; repeat the command, or use --resume, to continue"
        refused = f"nothing can be written to {path}: {reason}; give another path"
        super().__init__(f"cannot write {path}: {reason}. {kept}" if begun else refused)
        self.path, self.code = path, 1 if begun else 2


class ResumeMismatch(RecordError):
    """What is there was made otherwise than what is asked for, or a game begun again departs from its record."""

    @classmethod
    def holds(cls, where: Path, what: str, changed: Sequence[str]) -> ResumeMismatch:
        """A folder or file with what was asked for otherwise."""
        return cls(
            f"{where} holds {what}: {', '.join(changed)} differ. Give another --out, or the same options as before"
        )

    @classmethod
    def departs(cls, game: int, message: str, how: str) -> ResumeMismatch:
        """A game that says another thing than it had said; `how` quotes nobody."""
        remedy = "Its code, or data that the code uses, has changed; undo the change, or start a new run"
        return cls(f"game {game} departs from its record: {message} {how}. {remedy}", 1)

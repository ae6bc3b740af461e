"""Every error that agentcho raises on purpose, as one tree. Each message says what is wrong, where, and what to do.

AgentchoError
├── ModelError                 a model or an adapter cannot be used
│   ├── ModelNotFound
│   ├── ModelBroken            a file of the model is missing, damaged, or does not match the others
│   ├── UnsupportedModel       its keys cannot be reused, or its prompts cannot be framed safely
│   └── AdapterError           a folder holds no adapter for this model
├── RequestError               one call is wrong; nothing was computed for it (also a ValueError)
│   ├── UnknownEncoding
│   └── ContextOverflow
├── CallFailed                 the forward pass or the sampling of this call alone failed
├── CallbackFailed             a function that was passed with a call raised
├── StoreFull                  a call needs more room than the store has
├── StoreDamaged               an integrity check found changed keys, values, labels or counts
├── EngineFailed               a device failed; running calls are lost, stored encodings are intact
├── Overloaded                 too many requests at once
├── EngineClosed               the choreographer has ended, or the engine was closed
├── EngineBusy                 the engine has another owner
├── AudienceError              a name matches no agent or message, or cannot name one (also a ValueError)
├── LeakageError               a call would read, or tell a tool, what it may not
├── ConfigError                unknown or contradictory options (also a ValueError)
│   └── ArgumentError          an argument has the wrong type (also a TypeError)
├── ExtraMissing               an optional library is not installed (also an ImportError)
├── TuneError                  an adapter cannot be trained (also a ValueError)
├── LimitReached               a limit on tokens, messages or time ended a game
├── GamesFailed                errors ended games of a run
├── PersonLeft                 a person who plays an agent has left
├── WorkersLost                workers cannot be started, cannot take part, or died
├── AnswerInvalid              a constrained answer is not what was asked for
├── ToolFailed                 a tool is not available, or its server is gone
├── EndpointFailed             a model server refused a request, or gave no usable answer
├── ScenarioError              a scenario cannot be used, or does something that it may not
│   ├── ScenarioNotFound
│   └── TaskError              tasks are missing, too few, or broken (also a ValueError)
└── RecordError                a run, a trace or a report cannot be used
    ├── RecordNotFound
    ├── RecordBroken           a file is damaged (also a ValueError)
    ├── RecordInUse            another process is writing the record
    ├── CannotWrite            the operating system refused a write
    └── ResumeMismatch         what exists was made with other options or other code
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from types import MappingProxyType

SHORT = 60
SHOWN = 20  # the most failed games that an error lists one by one
NAMED = 5  # the most runs that an error lists by their ids
COMPARED = 1000  # the most names that an unknown one is compared with
MODELS = ("understudy", "smollm2")  # the names of models that agentcho itself knows
TRACE = "the format is agentcho-trace/1"


class AudienceWarning(UserWarning):
    """Warns that `choose`, `ask` or `answer` was called without `to` on an agent with an `audience`.

    The message goes to the agent's audience. Before 0.5 it was private. Pass `to=()` to keep it private, or the
    audience: `to="everyone"`, or that of the agent, such as `to=ann.audience`.
    """


class AgentchoError(Exception):
    """Base class of all errors that agentcho raises on purpose. Catch it to handle any of them.

    Attributes:
        code: Exit status of a command that the error ends. 2 means that the request was impossible, 1 that something
            failed after it had begun.
        transient: Whether the same request may succeed if it is repeated.
    """

    code: int = 2
    transient: bool = False

    def __init__(self, what: str = "", code: int | None = None) -> None:
        super().__init__(what)
        self.code = self.code if code is None else code


def shown(value: object) -> str:
    """Return a short representation of any value for an error message."""
    try:
        words = repr(value)
    except Exception:  # an integer too long to convert, or a user's class whose repr fails
        return f"a value of type {type(value).__name__} that cannot be shown"
    return words if len(words) <= SHORT else f"{words[:SHORT]}…"


def amount(value: float, units: str, digits: int = 6) -> str:
    """Return a number with its plural unit, or the singular for 1: "2 seconds", "1 second", "0.5 seconds"."""
    told = f"{value:.{digits}g}" if isinstance(value, float) else f"{value}"
    return f"{told} {units.removesuffix('s') if told == '1' else units}"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a question that suggests the known name most similar to an unknown one, above all one of the same letters.

    The result is empty if no name is similar, or if there are too many names, or too long ones, to compare.
    """
    there = sorted(islice(known, COMPARED + 1))
    if len(there) > COMPARED or len(word) > SHORT:
        return ""
    like = get_close_matches(word, [each for each in there if len(each) <= SHORT])
    like.sort(key=lambda each: sorted(each) != sorted(word))
    return f"did you mean {like[0]!r}?" if like else ""


def asking(word: str, known: Iterable[str]) -> str:
    """Return the `nearest` question as the end of an error message, or an empty string."""
    like = nearest(word, known)
    return f"; {like}" if like else ""


class ModelError(AgentchoError):
    """Raised when a model, or an option of its loading, cannot be used. Follow the message, or choose another model."""


@contextmanager
def of_model(name: str) -> Iterator[None]:
    """Re-raise errors from the context as a `ModelError` that names the model."""
    try:
        yield
    except AgentchoError as error:
        raise ModelError(f"model {name!r}: {error}", error.code) from error


class ModelNotFound(ModelError):
    """Raised when a model name is neither built in, nor a path, nor a model of the Hugging Face hub or its local cache.

    Check the spelling, give a path, or download the model first.

    Attributes:
        model: The name that was not found.
    """

    def __init__(self, model: str, reason: str) -> None:
        like = "" if "/" in model or model in MODELS else nearest(model, MODELS)
        super().__init__(
            f"no model {model!r}: {reason.removesuffix('.')}. {like and f'{like} '}Give 'understudy', 'smollm2', a "
            "folder with config.json and *.safetensors, a GGUF file, or a Hugging Face id that is already downloaded "
            "or can be reached"
        )
        self.model = model


class ModelBroken(ModelError):
    """Raised when a file of a model is missing, damaged, or does not match the others. Download or copy the model
    again.

    Attributes:
        model: The model's name.
        file: The file that cannot be used.
        reason: What is wrong with it.
        remedy: What to do.
    """

    def __init__(self, model: str, file: Path, reason: str, remedy: str = "Download or copy the model again") -> None:
        super().__init__(f"{model} cannot be read: {file}: {reason}. {remedy}")
        self.model = model
        self.file = file
        self.reason = reason
        self.remedy = remedy


class UnsupportedModel(ModelError):
    """Raised while loading a model whose keys cannot be reused correctly, or whose chat template or weights are not
    supported.

    Use another model, or do what `remedy` says.

    Attributes:
        model: The model's name.
        cause: What the check found.
        remedy: What to do.
    """

    def __init__(self, model: str, cause: str, remedy: str, what: str | None = None) -> None:
        super().__init__(f"{what or f'{model} cannot share encodings'}: {cause}. {remedy}")
        self.model = model
        self.cause = cause
        self.remedy = remedy

    @classmethod
    def unframed(cls, model: str, cause: str) -> UnsupportedModel:
        """Return the error for a chat template that is missing or cannot frame messages one by one."""
        remedy = (
            "Use an instruction-tuned model whose tokenizer carries a chat template, or put a "
            "chat_template.jinja next to its tokenizer"
        )
        return cls(model, cause, remedy, f"no framing for {model}")


class AdapterError(ModelError):
    """Raised when a folder holds no adapter, or one that does not fit the loaded model.

    Give a folder written by `agentcho tune` or peft for this model.

    Attributes:
        path: The folder.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"no adapter in {path}: {reason}. Give a folder with adapter_config.json and "
            "adapter_model.safetensors, as `agentcho tune` or peft writes it, trained on this model"
        )
        self.path = path


class RequestError(AgentchoError, ValueError):
    """Raised when a call is wrong. Nothing was computed for it, and nothing else is affected. Correct the call.

    Attributes:
        field: The field of the call that is wrong, such as "parents", "offsets" or "sampling", or "typed" for what a
            person wrote. None for another field, or for the call as a whole.
        option: The option of its `Sampling` that is wrong. None if it is no single option.
    """

    def __init__(self, what: str, field: str | None = None, option: str | None = None) -> None:
        super().__init__(what)
        self.field, self.option = field, option

    @classmethod
    def parents(cls, what: str) -> RequestError:
        """Return the error for a parent that is not an id, comes later in its list, or is a decode that is still
        running."""
        return RequestError(
            f"{what}; a parent is the id of a finished call, or a Prefill earlier in the same list", "parents"
        )

    @classmethod
    def offsets(cls, what: str) -> RequestError:
        """Return the error for offsets that do not match their parents or are not positions."""
        told = "give one offset per parent: the absolute position (0 or more) of its first framing token"
        return RequestError(f"{what}; {told}", "offsets")


class UnknownEncoding(RequestError):
    """Raised for an id that this engine never issued, or whose encoding was released.

    Pass ids that `prefill`, `decode` or `repair` returned and that you have not released.
    """

    def __init__(self, encoding: object, released: bool = False, foreign: bool = False) -> None:
        why = "was released" if released else "belongs to another engine" if foreign else "is unknown to this engine"
        super().__init__(
            f"encoding {shown(encoding)} {why}; pass an id that prefill or decode returned and that has "
            "not been released"
        )


class ContextOverflow(RequestError):
    """Raised when a call would need positions beyond the model's context. Nothing is ever truncated.

    Read fewer messages, place them closer together, or lower `max_tokens`.

    Attributes:
        needed: Positions that the call needs, in tokens.
        limit: Positions that the model has, in tokens.
    """

    def __init__(self, needed: int, limit: int, model: str | None = None) -> None:
        which = "the model" if model is None else f"the model {model!r}"
        super().__init__(
            f"the call needs positions up to {needed}, but {which} has {limit}; read fewer messages, "
            "place them closer together, or lower max_tokens"
        )
        self.needed, self.limit = needed, limit


class CallFailed(AgentchoError):
    """Raised when the forward pass of one call fails, or no token can be sampled for it. Other calls of its batch go
    on.

    A failed forward pass is transient, so a repeated call may succeed. Read fewer messages or lower `max_tokens` if
    memory was short. Failed sampling is not transient.

    Attributes:
        option: The option of `Sampling` that made sampling fail. None if the forward pass failed, or if it is unknown.
    """

    transient = True
    option: str | None = None

    @classmethod
    def of(cls, cause: BaseException) -> CallFailed:
        """Return the error for a forward pass that raised `cause`."""
        error = cls(
            f"the model's forward failed for this call alone ({type(cause).__name__}: {cause}); if memory "
            "ran out, read fewer messages or lower max_tokens; otherwise report this error"
        )
        error.__cause__ = cause
        return error

    @classmethod
    def memory(cls, tokens: int, device: str) -> CallFailed:
        """Return the error for a device without memory for `tokens` more tokens of running calls."""
        return cls(
            f"{device} has no memory left for {tokens} more tokens of running calls; run fewer calls at "
            "once, lower max_tokens, or, in Python, load the engine with a smaller store_tokens"
        )

    @classmethod
    def sampling(cls) -> CallFailed:
        """Return the error for a call without a finite logit. Repeating the call would give the same logits."""
        error = cls("sampling failed for this call alone: none of the tokens that it may say has a finite logit")
        error.transient = False
        return error

    @classmethod
    def constraint(cls, why: str) -> CallFailed:
        """Return the error for a schema that became too expensive to follow, for the reason that the library gives."""
        error = cls(f"json_schema became too expensive to follow ({why}); simplify its patterns")
        error.transient, error.option = False, "json_schema"
        return error


class CallbackFailed(AgentchoError):
    """Raised when a function that belongs to a call raises: a guard, a listener or a `Person`.

    The call is dropped. Fix the function; its error is the `__cause__`.
    """

    def __init__(self, what: str, cause: BaseException) -> None:
        super().__init__(
            f"{what} of this call raised {type(cause).__name__}, so the call was dropped; fix that function"
        )
        self.__cause__ = cause


class StoreFull(AgentchoError):
    """Raised when a call needs more room at once than the store has.

    Lower `max_tokens`, read fewer messages in one call, or load the engine with larger `store_tokens`.

    Attributes:
        needed: Tokens that the call needs at once, its context included.
        room: Tokens that the store has room for.
    """

    def __init__(self, needed: int, room: int) -> None:
        super().__init__(
            f"the call needs room for {needed} tokens at once, including its context, and the store has "
            f"room for {room}; lower max_tokens, read fewer messages in one call, or, in Python, load the engine with "
            f"store_tokens={needed} or more"
        )
        self.needed, self.room = needed, room


class StoreDamaged(AgentchoError):
    """Raised when stored keys, values, labels or counts differ from what was written.

    Load the engine again. A damaged file on disk is not read, and its encodings are computed again; check what else
    writes there.

    Attributes:
        file: The damaged file on disk. None if the damage is in memory.
    """

    def __init__(self, what: str, file: Path | None = None) -> None:
        new, again = (
            "Load the engine again; if this recurs, report it",
            "The file is made again; check whether another program writes to its folder",
        )
        super().__init__(f"the store is damaged: {what}. {new if file is None else again}")
        self.file = file


class EngineFailed(AgentchoError):
    """Raised when a device or the engine itself fails. All running calls are dropped; stored encodings are intact.

    The error is transient: submit the calls again.
    """

    transient = True

    @classmethod
    def of(cls, cause: BaseException) -> EngineFailed:
        """Return the error for a forward pass that raised `cause`."""
        return cls(f"the model's forward failed ({type(cause).__name__}: {cause}); the calls in it were dropped")


class Overloaded(AgentchoError):
    """Raised when a choreographer already has as many requests as it takes. Nothing was begun for this one.

    The error is transient: wait for other requests to end, play fewer games at once, or raise `max_requests`.
    """

    transient = True

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the choreographer has {limit} requests under way and takes no more. Wait for some to end, "
            "play fewer games at once, or raise max_requests."
        )


class EngineClosed(AgentchoError):
    """Raised when an engine is used after `close`, or a request is made or still waiting when its choreographer ends.

    Load another engine, or open another choreographer.
    """

    def __init__(self, what: str = "the choreographer has shut down; open a new one") -> None:
        super().__init__(what)


class EngineBusy(AgentchoError):
    """Raised when a second choreographer, thread or direct call uses an engine that has an owner. Nothing was begun.

    Wait until the owner has ended, play all games on one choreographer, or load another engine.

    Attributes:
        first: What owns the engine, in words.
    """

    def __init__(self, first: str) -> None:
        super().__init__(
            f"the engine is in use by {first}. A network has one owner at a time: wait until that one "
            "ends, play all games on one choreographer, or load another engine"
        )
        self.first = first


class AudienceError(AgentchoError, ValueError):
    """Raised when a name matches no agent, two agents, or no message of a view, or cannot name an agent.

    Use one of the names that the message lists. Names are exact.
    """

    def __init__(self, what: str, names: Iterable[str] | None = None, are: str = "the cast is") -> None:
        there = [] if names is None else [f"{are}: {', '.join(sorted(names)) or '(empty)'}. Names must match exactly"]
        super().__init__((" " if what.endswith("?") else "; ").join([what, *there]))


class LeakageError(AgentchoError):
    """Raised when a call would read what its caller may not, or tell a tool or a vendor what others may not learn.

    The call is refused before any tensor is touched. Leave the message out of the view, or release its words to a wider
    audience.

    Attributes:
        reader: The agent whose call was refused.
        path: Ids from the message that was to be read to the one that its encoding carries. A single id is a direct
            read. An empty path means that nothing is known of the encoding, and unknown is never clean.
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
        """Return the error for a private message that was to be sent to another vendor's model. Nothing was sent."""
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
        """Return the error for a tool call that was not run. `why` says what is wrong with `messages`."""
        error = cls(caller, messages)
        error.args = (f"the call of {tool} by {caller} was not run: {why}",)
        return error


class ConfigError(AgentchoError, ValueError):
    """Raised for options that do not exist, have a wrong value, or contradict each other. The command line reports it
    as a usage error.

    Attributes:
        reason: What is wrong.
        option: The option that is wrong. None if there are several, or it has no name.
    """

    def __init__(self, reason: str, option: str | None = None) -> None:
        super().__init__(reason if option is None else f"{option}: {reason}")
        self.reason, self.option = reason, option


class ArgumentError(ConfigError, TypeError):
    """Raised when an argument of a function has the wrong type. Pass a value of the type that the message names."""


class ExtraMissing(AgentchoError, ImportError):
    """Raised when an optional library is not installed. The message has the `pip install` command."""

    def __init__(self, libraries: Sequence[str], extras: Sequence[str], what: str) -> None:
        needed = f"{', '.join(libraries)} {'is' if len(libraries) == 1 else 'are'} needed {what}"
        names = ",".join(extras)
        super().__init__(f"{needed}: pip install 'agentcho[{names}]' (from a clone: pip install '.[{names}]')")


class TuneError(AgentchoError, ValueError):
    """Raised when an adapter cannot be trained on the given traces, or its training cannot go on.

    Correct the traces or options that the message names.
    """

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")


class LimitReached(AgentchoError):
    """Raised by the verb that reaches a limit of `Limits`. The limit is the game's outcome, not a failure.

    The game ends whether or not the error is caught. Raise the limit to play longer.

    Attributes:
        limit: What is limited: "tokens", "messages" or "seconds".
        who: The agent that reached the limit, or "the game".
        value: The limit.
    """

    def __init__(self, limit: str, who: str, value: float) -> None:
        super().__init__(f"{who} reached the limit of {amount(value, limit)}; raise that limit to play longer")
        self.limit = limit
        self.who = who
        self.value = value


class GamesFailed(AgentchoError):
    """Raised by `Played.check` and by commands when errors ended games of a run. The other games are complete.

    Read the listed errors; a recorded run has the tracebacks in outcomes.jsonl.

    Attributes:
        lines: The error as lines of text, with the frames of your code below each game.
    """

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
    """Raised when a person who plays an agent leaves. It ends the games of that agent, which can be resumed."""

    code = 1


class WorkersLost(AgentchoError):
    """Raised when a cluster cannot be reached, has no room for the workers, or its workers are refused or die.

    Start the cluster, or ask for fewer workers or GPUs.
    """


class AnswerInvalid(AgentchoError):
    """Raised when constrained text is not a usable answer, such as JSON that its model's own validators refuse.

    Put the rule into the schema, raise `max_tokens`, or ask again.
    """


class ToolFailed(AgentchoError):
    """Raised when a tool is not available, or its server is gone. It ends the game, and is transient.

    An error of a single tool call does not raise this. The model gets that error as the result of the call.
    """

    code, transient = 1, True


class EndpointFailed(AgentchoError):
    """Raised when a model server refuses a request, does not answer it, or breaks its answer off.

    Attributes:
        status: The HTTP status. None if there was no response.
        transient: Whether the same request may succeed later.
    """

    code = 1

    def __init__(self, what: str, status: int | None = None, transient: bool = False) -> None:
        super().__init__(what)
        self.status, self.transient = status, transient


class ScenarioError(AgentchoError):
    """Raised when a scenario cannot be read or set up, or does something that no scenario may. Correct its code."""


class ScenarioNotFound(ScenarioError):
    """Raised when a name is neither a path nor a known scenario or agent. `agentcho ls` lists the known names."""

    def __init__(self, name: str, known: Iterable[str], file: Path | None = None) -> None:
        there = sorted(known)
        if name.endswith(".py"):
            super().__init__(f"there is no file {name}; give a .py file that exists, or one of {', '.join(there)}")
            return
        like = nearest(name, there)
        listed = f"{like} Known: " if like else "known: "
        if file is not None:
            super().__init__(f"no scenario or agent named {name!r}, but there is a file {file}; give {file}")
            return
        super().__init__(
            f"no scenario or agent named {name!r}; {listed}{', '.join(there)}. Give one of these or a .py file"
        )


class TaskError(ScenarioError, ValueError):
    """Raised when a task set does not exist, cannot be read, or has too few tasks or tasks of the wrong kind.

    Correct the file at the line that the message gives, or choose another set.
    """

    def __init__(self, source: str, line: int | None, what: str) -> None:
        super().__init__(f"tasks {source}{f':{line}' if line else ''}: {what}")


class RecordError(AgentchoError):
    """Raised when a run, a trace or a report cannot be used."""


class RecordNotFound(RecordError):
    """Raised when no run, or more than one, has the given id or path. `agentcho ls --runs` lists the recorded runs.

    Attributes:
        several: The ids of the runs that begin as given, if there is more than one.
    """

    def __init__(
        self,
        run: str,
        folder: Path,
        inside: Sequence[str] = (),
        several: Sequence[str] = (),
        remedy: str = "`agentcho ls --runs` lists them",
        what: str | None = None,
    ) -> None:
        told = f"no run {run!r} in {folder}; {remedy}"
        if what is not None:
            told = f"there is no file {folder / run}, which should have {what}; {remedy}"
        if inside:
            some = f"{len(inside)} runs, such as {inside[0]}" if len(inside) > 1 else f"the run {inside[0]}"
            told = f"{run} is a folder with {some}; give the path of one run (`agentcho view {run}` shows all)"
        if several:
            more = [f"and {len(several) - NAMED} more"] if len(several) > NAMED else []
            told = (
                f"{len(several)} runs in {folder} begin so: {', '.join([*several[:NAMED], *more])}; give more of the "
                f"id than {run!r} (`agentcho ls --runs` lists all)"
            )
        super().__init__(told)
        self.several = tuple(several)


class RecordBroken(RecordError, ValueError):
    """Raised when a file is damaged anywhere but in its last line, or has another format than its use needs.

    Restore the file, or do what the message says.
    """

    def __init__(self, where: object, what: str, remedy: str = "restore the file or delete that line") -> None:
        super().__init__(f"{where}: {what}; {remedy}")


class RecordInUse(RecordError):
    """Raised when another process is writing the record, because two writers would lose each other's lines.

    Wait for that process to end, or stop it.

    Attributes:
        pid: Its process id.
        host: Its machine.
        since: When it began to write.
    """

    def __init__(self, what: Path, pid: int, host: str, since: str) -> None:
        told = f"{what} is being written by process {pid} on {host}, since {since}"
        super().__init__(f"{told}; wait for it to end, or stop it")
        self.pid = pid
        self.host = host
        self.since = since


class CannotWrite(RecordError):
    """Raised when the operating system refuses a write.

    Give another path. If the run had begun, what was finished is kept; free the path and resume.

    Attributes:
        path: The file or folder.
    """

    def __init__(self, path: Path, reason: str, begun: bool = True) -> None:
        kept = "Everything finished so far is kept; repeat the command, or use --resume, to continue"
        refused = f"nothing can be written to {path}: {reason}; give another path"
        super().__init__(f"cannot write {path}: {reason}. {kept}" if begun else refused)
        self.path, self.code = path, 1 if begun else 2


_SOURCES = "sources", "the source"
_ACCEPT = "; --changed accept keeps the games of the code as it was"


class ResumeMismatch(RecordError):
    """Raised when a record was made with other options or other code, or a resumed game departs from its record.

    Ask for the same thing as before, give another `out`, or accept the changed sources.
    """

    @classmethod
    def holds(cls, where: Path, what: str, changed: Sequence[str]) -> ResumeMismatch:
        """Return the error for a folder or file that holds results of other options."""
        return cls(
            f"{where} holds {what}; what differs: {', '.join(changed)}. Give another --out, or the same options as "
            f"before{_ACCEPT if any(each.partition(' (')[0] in _SOURCES for each in changed) else ''}"
        )

    @classmethod
    def departs(cls, game: int, message: str, how: str) -> ResumeMismatch:
        """Return the error for a game that departs from its record. `how` must not quote what anybody said."""
        remedy = (
            "Its code, data that the code uses, or agentcho itself has changed; undo the change, or start a new run"
        )
        return cls(f"game {game} departs from its record: {message} {how}. {remedy}", 1)

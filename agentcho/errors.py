"""Every error agentcho raises on purpose: one class a condition, each writing its own message and remedy.

    AgentchoError
    ├── ModelError                 a model cannot be used
    │   ├── ModelNotFound
    │   ├── BadPlacement           no such device here, or no such dtype
    │   ├── UnsupportedModel       the gate refused it, with the cause
    │   ├── FramingError           no framing could be derived from the chat template
    │   ├── AdapterNotFound        a folder that holds no adapter for this model
    │   └── AdapterOther           an adapter of another base
    ├── RequestError               one call is wrong; nothing was computed for it (also a ValueError)
    │   ├── UnknownEncoding
    │   ├── BadParent
    │   ├── BadOffsets
    │   ├── BadSampling
    │   ├── ContextOverflow
    │   └── SpecialTokenInText
    ├── SamplingFailed             a row could not choose a token
    ├── StoreFull                  more at once than the store can hold
    ├── StoreDamaged               an integrity check found stored keys, labels or counts changed
    ├── EngineFailed               a forward raised; its calls are gone, the store is whole
    ├── Overloaded                 more requests at once than are taken
    ├── EngineClosed
    ├── AudienceError              an audience or a cast names what does not exist
    ├── LeakageError               a call would read what its caller may not
    │   └── LabelMissing           … or what nothing is known of
    ├── BadColumn                  a column of a comparison that is none
    ├── ArmUnavailable             an arm of a benchmark does not run here
    ├── BadArm                     a benchmark asked for an arm or a workflow that there is not
    ├── OptionsClash               two options of a run contradict each other
    ├── ExtraMissing               a library that only some need is not installed
    ├── TuneError                  an adapter cannot be trained, or no further
    │   ├── BadRecipe
    │   ├── TracesUnfit            traces of another scenario, or too long, or none
    │   ├── TrainingOther          a folder holds another training
    │   └── LossNotFinite
    ├── LimitReached               a limit on tokens, messages or time ended a game
    ├── AnswerInvalid              a constrained answer did not validate
    ├── ScenarioError
    │   ├── ScenarioNotFound
    │   ├── ScenarioBroken
    │   ├── BadOption
    │   ├── AlreadyThere
    │   ├── BadTasks               a task set that is none, with the file and line
    │   ├── TasksUnwanted          tasks for a scenario that takes none
    │   ├── TasksTooFew            fewer tasks than its games draw
    │   └── TasksSpent             a game draws more tasks than it said
    └── RecordError
        ├── RecordNotFound
        ├── RecordBroken
        ├── BadTrace
        ├── ComparisonOther        a folder holds the games of another comparison
        ├── TracesOther            a file holds traces that were sampled otherwise
        ├── BadReport
        └── BadSuppression

Does not know: torch, anyio, the terminal. Messages never quote text that a model or an agent wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path


class AgentchoError(Exception):
    """Base of all errors raised on purpose."""


class ModelError(AgentchoError):
    """A model cannot be used."""


class ModelNotFound(ModelError):
    """Neither a folder, nor the understudy, nor a model that the local hub cache or the hub can give."""

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(
            f"no model {model!r}: {reason}. Give 'understudy', a folder with config.json and *.safetensors, "
            "or a Hugging Face id that is downloaded or can be reached"
        )
        self.model = model


class BadPlacement(ModelError, ValueError):
    """A device that this machine has not, or a dtype that models are not run in."""

    def __init__(self, what: str, choices: str) -> None:
        super().__init__(f"{what}; give {choices}")


class UnsupportedModel(ModelError):
    """The model was loaded far enough to see that reuse of its keys would be wrong."""

    def __init__(self, model: str, cause: str, remedy: str) -> None:
        super().__init__(f"{model} cannot share encodings: {cause}. {remedy}")
        self.model, self.cause, self.remedy = model, cause, remedy


class FramingError(ModelError):
    """The chat template is missing, or does not frame messages one by one."""

    def __init__(self, model: str, cause: str) -> None:
        super().__init__(
            f"no framing for {model}: {cause}. Use an instruction-tuned model whose tokenizer carries a chat "
            "template, or put a chat_template.jinja beside its tokenizer"
        )
        self.model, self.cause = model, cause


class AdapterNotFound(ModelError):
    """A folder without an adapter, or with one that does not fit the model."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"no adapter in {path}: {reason}. Give a folder with adapter_config.json and adapter_model.safetensors, "
            "as `agentcho tune` or peft writes it"
        )
        self.path = path


class AdapterOther(ModelError):
    """An adapter that was trained on other weights than those that are loaded."""

    def __init__(self, path: Path, base: str, model: str) -> None:
        super().__init__(
            f"the adapter {path} was trained on other weights ({base}) than those loaded ({model}); load that base, "
            "or train one for this model"
        )


class RequestError(AgentchoError, ValueError):
    """One call is wrong. Nothing was computed for it, and nothing else is affected."""


class UnknownEncoding(RequestError):
    """An id that this engine never gave out, or whose encoding was released."""

    def __init__(self, encoding: object, released: bool = False) -> None:
        why = "was released" if released else "is unknown to this engine"
        super().__init__(f"encoding {encoding!r} {why}; pass ids returned by prefill or decode and still held")


class BadParent(RequestError):
    """A parent that is no id, does not stand earlier in its list, or is a decode still running."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; a parent is the id of a finished call, or a Prefill earlier in the same list")


class BadOffsets(RequestError):
    """Offsets that do not fit their parents or are not positions."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; offsets are absolute positions >= 0 of first framing tokens, one per parent")


class BadSampling(RequestError):
    """Sampling options that contradict each other or cannot be met."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")


class ContextOverflow(RequestError):
    """A call would reach past the model's context. Nothing is ever truncated."""

    def __init__(self, needed: int, limit: int) -> None:
        super().__init__(
            f"the call needs positions up to {needed}, the model has {limit}: read fewer messages, place them "
            "closer together, or lower max_tokens"
        )
        self.needed, self.limit = needed, limit


class SpecialTokenInText(RequestError):
    """A text whose tokenisation cannot be kept free of special tokens."""

    def __init__(self, token: str) -> None:
        super().__init__(
            f"the tokenizer can only encode part of this text as its special token {token!r}, which would forge "
            "framing; remove that part of the text"
        )


class SamplingFailed(AgentchoError):
    """No token could be chosen for one row. Its batch goes on."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"sampling failed for this call alone: {cause}")


class StoreFull(AgentchoError):
    """A call needs more in the store at once than there can be."""

    def __init__(self, needed: int, room: int) -> None:
        super().__init__(
            f"room is needed for {needed} tokens at once, the context included, and the store has room for {room}; "
            f"lower max_tokens, read fewer messages in one call, or load the engine with store_tokens={needed} or more"
        )
        self.needed, self.room = needed, room


class StoreDamaged(AgentchoError):
    """Stored keys, their labels or their counts are not what they were: nothing computed from them can be trusted."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the store is damaged: {what}. Load the engine anew; if it comes again, report it")


class EngineFailed(AgentchoError):
    """A forward raised. Every call that was in it is dropped; stored encodings are untouched."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"the model's forward failed ({type(cause).__name__}: {cause}); the calls in it were dropped")


class GraphsDiffer(AgentchoError):
    """A captured step was found to give other logits than the step itself, before any of its words were used."""

    def __init__(self, gap: float) -> None:
        super().__init__(
            f"a captured CUDA graph gave logits that are off by {gap:.2g} of the largest; this engine uses no graphs "
            "from now on. Run it again, and report it"
        )


class Overloaded(AgentchoError):
    """More requests at once than a choreographer takes. Nothing of this one was begun."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"{limit} requests are under way, and no more are taken at once. Wait for some to end, play fewer games "
            "at once, or raise max_requests."
        )


class EngineClosed(AgentchoError):
    """The choreographer ended while the request waited, or was over before it was made."""

    def __init__(self) -> None:
        super().__init__("the choreographer has shut down; open a new one to go on")


class AudienceError(AgentchoError, ValueError):
    """A name that is not in the cast, or a cast that names one agent twice, or a message that a view cannot name.
    `names` are what there is to name, and `are` says so."""

    def __init__(self, what: str, names: Iterable[str], are: str = "the cast is") -> None:
        super().__init__(f"{what}; {are}: {', '.join(sorted(names)) or '(empty)'}. Names are exact")


class LeakageError(AgentchoError):
    """A read was refused before any tensor was touched.

    `path` leads from the message that was to be read to the one that its encoding carries; one id: read directly.
    """

    def __init__(self, reader: str, path: Sequence[str]) -> None:
        what = f"{reader} may not read message {path[0]}"
        if len(path) == 1:
            what += f": not in its audience. Leave it out of {reader}'s view, or release the same words as a new "
            what += "message to a wider audience"
        else:
            what += f" through its author's encoding, which carries {path[-1]} ({' <- '.join(path)}). Use "
            what += "leakage=enforce, which encodes it again for its audience, or mode=baseline"
        super().__init__(what)
        self.reader, self.path = reader, tuple(path)


class LabelMissing(LeakageError):
    """An encoding was to be read whose label is not known: refused, for unknown is never clean."""

    def __init__(self, reader: str, encoding: int) -> None:
        AgentchoError.__init__(
            self, f"{reader} may not read encoding {encoding}: nothing is known of what it was made from. Encode its "
            "message again in this game"
        )  # fmt: skip
        self.reader, self.path = reader, ()


class BadColumn(AgentchoError, ValueError):
    """A column of a comparison names no way of reading."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"column {name!r}: {what}. Columns are such as baseline or choreographed:enforce:in-place")


class ArmUnavailable(AgentchoError):
    """An arm of a benchmark that this machine, or this version of its library, does not run."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"not available here: {reason}")
        self.reason = reason


class BadArm(AgentchoError, ValueError):
    """An arm or a workflow that no benchmark has."""

    def __init__(self, kind: str, name: str, choices: Iterable[str]) -> None:
        super().__init__(f"no {kind} {name!r}; give one of {', '.join(choices)}")


class OptionsClash(AgentchoError, ValueError):
    """Options of a run that contradict each other; `what` says which, and what to give instead."""

    def __init__(self, what: str) -> None:
        super().__init__(what)


class ExtraMissing(AgentchoError):
    """A library that only some users need is not installed."""

    def __init__(self, library: str, extra: str, what: str) -> None:
        super().__init__(f"{library} is needed {what}: pip install 'agentcho[{extra}]'")


class TuneError(AgentchoError):
    """An adapter cannot be trained."""


class BadRecipe(TuneError, ValueError):
    """Options of training that cannot be met; `what` says which, and why."""

    def __init__(self, what: str) -> None:
        super().__init__(what)


class TracesUnfit(TuneError, ValueError):
    """Traces that this scenario and this model cannot be trained on."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")


class TrainingOther(TuneError):
    """A folder holds the checkpoints of a training that was asked for otherwise."""

    def __init__(self, folder: Path, changed: Sequence[str]) -> None:
        super().__init__(
            f"{folder} holds another training: {', '.join(changed)} differ. Give another --out, or ask as before"
        )


class LossNotFinite(TuneError):
    """The loss is no number any more. What was best until then is kept."""

    def __init__(self, step: int, folder: Path) -> None:
        super().__init__(
            f"the loss of step {step} is not finite; the best adapter until then is in {folder}. Train with a lower "
            "--rate, or in float32"
        )


class LimitReached(AgentchoError):
    """A limit ended a game. `Game` records it as an outcome; it is no failure."""

    def __init__(self, limit: str, who: str, value: float) -> None:
        super().__init__(f"{who} reached the limit of {value:g} {limit}; raise it in the limits to go on longer")
        self.limit, self.who, self.value = limit, who, value


class AnswerInvalid(AgentchoError):
    """A constrained answer parsed, and the pydantic model still refused its values."""

    def __init__(self, model: str, fields: Iterable[str]) -> None:
        super().__init__(
            f"the answer fits the JSON schema of {model} and fails its own validators at: "
            f"{', '.join(fields)}. Put the rule into the schema (enum, ge, le, pattern), or ask again"
        )


class ScenarioError(AgentchoError):
    """A scenario cannot be found, read or set up."""


class ScenarioNotFound(ScenarioError):
    """No path and no scenario or agent of that name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"no {name!r} here; known: {', '.join(sorted(known))}. Give one of these or a .py file")


class ScenarioBroken(ScenarioError):
    """A scenario's file does not parse, does not import, or defines no scenario."""

    def __init__(self, path: Path, line: int | None, what: str) -> None:
        where = f"{path}:{line}" if line else str(path)
        super().__init__(f"{where}: {what}")


class BadOption(ScenarioError):
    """`--set` names an option that the scenario has not, or gives it a value it cannot take."""

    def __init__(self, scenario: str, what: str, options: Iterable[str]) -> None:
        super().__init__(f"{scenario}: {what}. Its options: {', '.join(options)}")


class AlreadyThere(ScenarioError):
    """A copy would overwrite a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} exists already; move it away, or copy to another folder")


class BadTasks(ScenarioError, ValueError):
    """A task set that cannot be read; `line` counts from 1, None: the whole."""

    def __init__(self, source: str, line: int | None, what: str) -> None:
        where = f"{source}:{line}" if line else source
        super().__init__(f"tasks {where}: {what}")


class TasksUnwanted(ScenarioError):
    """A run names tasks, and its scenario takes none."""

    def __init__(self, scenario: str) -> None:
        super().__init__(f"{scenario} takes no tasks; leave --tasks out, or set `tasks` in the scenario")


class TasksTooFew(ScenarioError):
    """A task set is shorter than what the games of a run draw."""

    def __init__(self, tasks: str, size: int, games: int, each: int) -> None:
        super().__init__(
            f"{tasks} has {size} tasks, and {games} games draw {each} each, {games * each} in all; "
            f"play at most {size // max(1, each)} games, or give more tasks"
        )


class TasksSpent(ScenarioError):
    """A game draws more tasks than its scenario's `draws` says."""

    def __init__(self, asked: int, left: int) -> None:
        super().__init__(f"a game draws {asked} tasks and has {left} left; let `draws` of the scenario say how many")


class RecordError(AgentchoError):
    """A run record or trace cannot be used."""


class RecordNotFound(RecordError):
    """No run of that id or path."""

    def __init__(self, run: str, folder: Path) -> None:
        super().__init__(f"no run {run!r} in {folder}; `agentcho ls --runs` lists them")


class RecordBroken(RecordError):
    """A record is damaged somewhere else than in its last line."""

    def __init__(self, path: Path, line: int, what: str) -> None:
        super().__init__(f"{path}:{line}: {what}; restore the file or delete that line")


class BadTrace(RecordError, ValueError):
    """A trace that is not `agentcho-trace/1`, or whose messages do not fit together."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}; the format is agentcho-trace/1")


class ComparisonOther(RecordError):
    """A folder holds the games of a comparison that was asked for otherwise."""

    def __init__(self, folder: Path, changed: Sequence[str]) -> None:
        super().__init__(
            f"{folder} holds the games of another comparison: {', '.join(changed)} differ. Give another --out, or "
            "ask as before"
        )


class TracesOther(RecordError):
    """A file holds traces of games that were asked for otherwise."""

    def __init__(self, file: Path, changed: Sequence[str]) -> None:
        super().__init__(
            f"{file} holds other traces: {', '.join(changed)} differ. Give another --out, or ask as before"
        )


class BadReport(RecordError, ValueError):
    """A file that should be an earlier audit's JSON and is none."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path}: {what}; give a file that `agentcho audit --json` wrote (agentcho-audit/1)")


class BadSuppression(RecordError, ValueError):
    """A file of suppressions that is no TOML, or an entry in it that says too little or too much."""

    def __init__(self, path: Path, entry: int | None, what: str) -> None:
        where = str(path) if entry is None else f"{path}: suppression {entry}"
        super().__init__(
            f"{where}: {what}; each [[suppress]] needs owner, reason and expires, and either a fingerprint or a rule "
            "with its reader, secret_of and carrier"
        )

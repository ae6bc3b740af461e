"""Every error agentcho raises on purpose: one class a condition, each writing its own message and remedy.

    AgentchoError
    ├── ModelError                 a model cannot be used
    │   ├── ModelNotFound
    │   ├── ModelBroken            a file of it is missing or damaged, or does not fit the others
    │   ├── BadPlacement           no such device here, no such dtype, or too few positions
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
    ├── CallFailed                 a forward failed for this call alone
    ├── CallbackFailed             what a call brought with it raised
    ├── StoreFull                  more at once than the store can hold
    ├── StoreDamaged               an integrity check found stored keys, labels or counts changed
    ├── EngineFailed               a device failed; all calls under way are gone, the store is whole
    ├── GraphsDiffer               a captured step is not the step
    ├── Overloaded                 more requests at once than are taken
    ├── EngineClosed               the choreographer has ended, or the engine was closed
    ├── EngineBusy                 somebody else has the engine
    ├── AudienceError              an audience or a cast names what does not exist
    │   └── BadName                … or what cannot name an agent
    ├── NameFixed                  an agent is renamed in a game (also an AttributeError)
    ├── NotCast                    an agent speaks where it has no seat
    ├── LeakageError               a call would read what its caller may not
    │   └── LabelMissing           … or what nothing is known of
    ├── PlainMarkers               a chat template whose role markers anybody can write
    ├── BadColumn                  a column of a comparison that is none
    ├── ArmUnavailable             an arm of a benchmark does not run here
    ├── BadArm                     a benchmark asked for an arm or a workflow that there is not
    ├── OptionsClash               two options of a run contradict each other
    ├── ExtraMissing               a library that only some need is not installed (also an ImportError)
    ├── TuneError                  an adapter cannot be trained, or no further
    │   ├── BadRecipe
    │   ├── TracesUnfit            traces of another scenario, or too long, or none
    │   ├── TrainingOther          a folder holds another training
    │   └── LossNotFinite
    ├── LimitReached               a limit on tokens, messages or time ended a game
    ├── GamesFailed                errors ended games of a run
    ├── RunStopped                 the code of a game ended more than its own game
    ├── ResumeMismatch             a game begun again departs from its record
    ├── AnswerInvalid              a constrained answer did not validate
    ├── ChoiceLost                 words were forced that are none of the choices
    ├── ScenarioError
    │   ├── ScenarioNotFound
    │   ├── ScenarioBroken
    │   ├── BadOption
    │   ├── AlreadyThere
    │   ├── BadOutcome             play returned what is no outcome
    │   ├── BadTasks               a task set that is none, with the file and line
    │   ├── TasksUnwanted          tasks for a scenario that takes none
    │   ├── TasksTooFew            fewer tasks than its games draw
    │   └── TasksSpent             a game draws more tasks than it said
    └── RecordError
        ├── RecordNotFound
        ├── RecordBroken
        ├── ResumeOther            a run is to go on that was played otherwise
        ├── RecordInUse            somebody else is writing
        ├── CannotWrite            a full disk, a file that may not be written
        ├── OutUnusable            a folder for results that takes none
        ├── ReaderGone             standard output was closed
        ├── BadTrace
        ├── ComparisonOther        a folder holds the games of another comparison
        ├── TracesOther            a file holds traces that were sampled otherwise
        ├── BadReport
        └── BadSuppression

Does not know: torch, anyio, the terminal. Messages never quote text that a model or an agent wrote.
"""

from __future__ import annotations

from agentcho.errors.base import AgentchoError, shown
from agentcho.errors.calls import (
    BadOffsets,
    BadParent,
    BadSampling,
    CallbackFailed,
    CallFailed,
    ContextOverflow,
    RequestError,
    SamplingFailed,
    SpecialTokenInText,
    UnknownEncoding,
)
from agentcho.errors.engine import (
    EngineBusy,
    EngineClosed,
    EngineFailed,
    GraphsDiffer,
    Overloaded,
    StoreDamaged,
    StoreFull,
)
from agentcho.errors.extras import ExtraMissing, require
from agentcho.errors.games import (
    AlreadyThere,
    AnswerInvalid,
    BadOption,
    BadOutcome,
    BadTasks,
    ChoiceLost,
    GamesFailed,
    LimitReached,
    ResumeMismatch,
    RunStopped,
    ScenarioBroken,
    ScenarioError,
    ScenarioNotFound,
    TasksSpent,
    TasksTooFew,
    TasksUnwanted,
)
from agentcho.errors.leaks import AudienceError, BadName, LabelMissing, LeakageError, NameFixed, NotCast, PlainMarkers
from agentcho.errors.models import (
    AdapterNotFound,
    AdapterOther,
    BadPlacement,
    FramingError,
    ModelBroken,
    ModelError,
    ModelNotFound,
    UnsupportedModel,
)
from agentcho.errors.options import ArmUnavailable, BadArm, BadColumn, OptionsClash
from agentcho.errors.records import (
    BadReport,
    BadSuppression,
    BadTrace,
    CannotWrite,
    ComparisonOther,
    OutUnusable,
    ReaderGone,
    RecordBroken,
    RecordError,
    RecordInUse,
    RecordNotFound,
    ResumeOther,
    TracesOther,
)
from agentcho.errors.tuning import BadRecipe, LossNotFinite, TracesUnfit, TrainingOther, TuneError

__all__ = [
    "AdapterNotFound",
    "AdapterOther",
    "AgentchoError",
    "AlreadyThere",
    "AnswerInvalid",
    "ArmUnavailable",
    "AudienceError",
    "BadArm",
    "BadColumn",
    "BadName",
    "BadOffsets",
    "BadOption",
    "BadOutcome",
    "BadParent",
    "BadPlacement",
    "BadRecipe",
    "BadReport",
    "BadSampling",
    "BadSuppression",
    "BadTasks",
    "BadTrace",
    "CallFailed",
    "CallbackFailed",
    "CannotWrite",
    "ChoiceLost",
    "ComparisonOther",
    "ContextOverflow",
    "EngineBusy",
    "EngineClosed",
    "EngineFailed",
    "ExtraMissing",
    "FramingError",
    "GamesFailed",
    "GraphsDiffer",
    "LabelMissing",
    "LeakageError",
    "LimitReached",
    "LossNotFinite",
    "ModelBroken",
    "ModelError",
    "ModelNotFound",
    "NameFixed",
    "NotCast",
    "OptionsClash",
    "OutUnusable",
    "Overloaded",
    "PlainMarkers",
    "ReaderGone",
    "RecordBroken",
    "RecordError",
    "RecordInUse",
    "RecordNotFound",
    "RequestError",
    "ResumeMismatch",
    "ResumeOther",
    "RunStopped",
    "SamplingFailed",
    "ScenarioBroken",
    "ScenarioError",
    "ScenarioNotFound",
    "SpecialTokenInText",
    "StoreDamaged",
    "StoreFull",
    "TasksSpent",
    "TasksTooFew",
    "TasksUnwanted",
    "TracesOther",
    "TracesUnfit",
    "TrainingOther",
    "TuneError",
    "UnknownEncoding",
    "UnsupportedModel",
    "require",
    "shown",
]

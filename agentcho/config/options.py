"""Options of a run and of its models, each declared once with its help, frozen, and validated on input.

A field of `RunConfig` with a description is an option of the commands that play, and the description is its help. Its
`group` tells which commands have it: "served" for a model behind an API, "loading" and "inference" for one that is
loaded here ("inference" not for one that is trained), "reading" for how messages are read, "upkeep" for what changes no
message. Independent of scenarios' own options (each scenario has its own model) and of the command line. Must not
import torch.
"""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Container, Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.fields import FieldInfo

from agentcho.config.loading import (
    DIVIDING,
    NOT_OF_VLLM,
    VLLM,
    ComputeOptions,
    DeviceOptions,
    DtypeOptions,
    EngineOptions,
    FrozenOptions,
    QuantizationOptions,
    TemplateChecks,
)
from agentcho.config.reuse import Leakage, Mode, ReusePolicy, Shadowing
from agentcho.errors import ConfigError, asking, nearest
from agentcho.protocol.call import Sampling
from agentcho.protocol.text_calls import Capability, Server
from agentcho.reuse.in_place import InPlace
from agentcho.reuse.method import Weighing
from agentcho.reuse.registry import DEFAULT, parsed_repair, parsed_way, repairs_help, ways_help

NAMED = "'understudy', 'smollm2', a folder, a GGUF file"
LOCAL = f"{NAMED}, or a Hugging Face id."
"""How a model that is loaded here can be named, for help."""
API = "openai:"
"""The beginning of the name of a model behind an API."""
TEMPLATING = ("agentcho", "vllm", "sglang", "llama.cpp")
"""Kinds of servers whose requests can pass arguments to the chat template."""
FAKE = "fake"
"""The name of the engine without a model."""


def served(model: str) -> bool:
    """Return whether a model, by its name, is behind an API."""
    return model.startswith(API)


def check_model(model: str, given: Mapping[str, Any]) -> None:
    """Raise ValueError for options that a model of this name does not take, or that it needs and lacks.

    `given` are the options that are not at their defaults.
    """
    wrong = [name for name in given if name in (LOADED if served(model) else SERVED)]
    if given.get("engine") == VLLM:
        _check_vllm(model, given)
    if wrong and served(model):
        raise ValueError(
            f"{wrong[0]} applies to models that are loaded here, and {model} is behind an API; leave it out"
        )
    if model == FAKE and (said := [name for name in WEIGHED if name in given]):
        raise ValueError(f"{said[0]} needs a model with weights, and the fake model has none; leave it out")
    if wrong:
        raise ValueError(
            f"{wrong[0]} applies to models behind an API, which are named {API}NAME, and not to "
            f"{model!r}; change the model, or leave it out"
        )
    if served(model) and not model.removeprefix(API).strip():
        raise ValueError(
            f"the name after {API} is missing; give {API}NAME, where NAME is what the server calls the model"
        )
    if served(model) and "base_url" not in given:
        raise ValueError(
            f"{model} is a model behind an API and needs base_url; give the address of its server, such "
            "as http://127.0.0.1:8000/v1"
        )
    if served(model) and "chat_template_kwargs" in given and given.get("server", "openai") not in TEMPLATING:
        kind = given.get("server", "openai")
        raise ValueError(
            f"chat_template_kwargs: servers of kind {kind} do not support it; give the kind of server "
            f"(server: {', '.join(TEMPLATING)}), or leave it out"
        )
    if "key_env" in given and "key_file" in given:
        raise ValueError("key_env and key_file contradict each other; give one of them")


def _check_vllm(model: str, given: Mapping[str, Any]) -> None:
    """Raise ValueError for options that a model in vLLM does not take."""
    if model == FAKE:
        raise ValueError("engine vllm needs a model with weights, and the fake model has none; give another model")
    if (wrong := next((name for name in NOT_OF_VLLM if name in given), None)) is not None:
        raise ValueError(f"{wrong} cannot be used with engine vllm: {NOT_OF_VLLM[wrong]}; remove one of them")
    way = given.get("reuse", DEFAULT)
    if way != DEFAULT:
        raise ValueError(
            f"reuse {way} cannot be used with engine vllm, which supports {DEFAULT} only; remove one of them"
        )


class ModelName(FrozenOptions):
    """The name of a model."""

    model: str


class ModelConfig(QuantizationOptions, DtypeOptions, DeviceOptions, EngineOptions, ModelName):
    """One model of a run, beside its own model or in its place. Frozen. It never holds a key.

    `device`, `dtype`, `weights`, `kv_dtype`, `adapter` and `engine` are for models that are loaded here. `base_url` and
    the fields after it are for models behind an API. `context` is the number of positions of the model, in tokens; None
    means all that a model that is loaded here has, and that it is not known of one behind an API.

    Args:
        model: As in `RunConfig`, or "openai:NAME" for the model NAME of the server at `base_url`.
        adapter: Folder of a LoRA adapter. None for none.
        base_url: Base URL of the server.
        server: Kind of server, which determines the parameters that requests may use.
        can: What the server can do, if its kind does not tell. None means what its kind tells.
        key_env: Environment variable that holds the API key. None means OPENAI_API_KEY for api.openai.com, and no key
            for others.
        key_file: File that holds the API key. Instead of `key_env`.
        vendor: Who sees what is sent. None means the address of the server.
        concurrency: Maximum number of requests at a time, over all games.
        requests_per_minute: Maximum number of requests per minute, over all games. None for no limit.
        tokens_per_minute: Maximum number of tokens per minute, over all games. None for no limit.
        timeout: Maximum duration of a request, in seconds.
        retries: How often a failed request is sent again.
        price_in: Price of a million prompt tokens. None if it is not known.
        price_cached: Price of a million cached prompt tokens. None if it is not known.
        price_out: Price of a million generated tokens. None if it is not known.

    Raises:
        pydantic.ValidationError: A value is out of its bounds.
    """

    adapter: str | None = None
    base_url: str | None = None
    server: Server = "openai"
    can: tuple[Capability, ...] | None = None
    key_env: str | None = None
    key_file: str | None = None
    vendor: str | None = None
    concurrency: int = Field(default=8, ge=1, le=1024)
    requests_per_minute: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    tokens_per_minute: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    timeout: float = Field(default=120, gt=0, allow_inf_nan=False)
    retries: int = Field(default=4, ge=0, le=100)
    price_in: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    price_cached: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    price_out: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None

    @property
    def served(self) -> bool:
        """Whether the model is behind an API, and not loaded here."""
        return served(self.model)


def _changed(options: BaseModel) -> dict[str, Any]:
    """Return the fields that are not at their defaults."""
    fields = type(options).model_fields
    return {name: value for name, value in options if value != fields[name].default}


KEYS = ("key_env", "key_file")
"""Options that locate the key of an endpoint. They may change when a run is resumed: they change no message."""
DEFAULT_MODEL = "default"
"""The name by which agents select the run's own model."""


def model_name(name: str) -> str:
    """Return a name by which agents select a model. Raises ValueError for another one."""
    if name == DEFAULT_MODEL or not MODEL_NAME.fullmatch(name):
        raise ValueError(
            f"{name[:80]!r} cannot name a model: use a letter or digit, followed by at most 63 letters, "
            f"digits, '.', '_' and '-'; {DEFAULT_MODEL!r} is reserved for the run's own model"
        )
    return name


MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


Options = TypeVar("Options", bound=BaseModel)
Defaults = Literal["keep", "drop"]
ThoughtsOf = Literal["author", "audience"]
"""Who may read what a model thinks before it answers: the author, or everybody who may read the answer."""
WordsRule = Literal["track", "refuse"]


def parsed_part(text: str, games: int) -> range:
    """Return the games of part `k/n` of `games` games: k - 1, and every n-th game after it.

    Raises ValueError if it is not a part, or has no game.
    """
    found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    part, parts = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= part <= parts:
        raise ValueError(f"part {text!r} is not K/N with K from 1 to N, such as 2/4")
    if part > games:
        raise ValueError(
            f"part {text} has no games, because the run has only {games}; divide it into at most {games} parts"
        )
    return range(part - 1, games, parts)


class Limits(BaseModel):
    """Limits that end a game early, as a recorded outcome. None means no limit. Frozen.

    The verb that reaches a limit raises `LimitReached`, and everything that the game runs is cancelled, so that code
    that retries after an error does not go on. Code that catches cancellation too (`except BaseException`) keeps its
    own game from ending, and no other. A message counts when it ends, so verbs that run side by side may each use all
    that was left when they began.

    Args:
        agent_tokens: Sampled tokens of each agent.
        agent_messages: Sampled messages of each agent.
        agent_seconds: Seconds since the game began, for each agent's verbs.
        game_tokens: Sampled tokens of all agents together.
        game_messages: Sampled messages of all agents together.
        game_seconds: Seconds since the game began.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    agent_tokens: Annotated[int, Field(ge=1)] | None = None
    agent_messages: Annotated[int, Field(ge=1)] | None = None
    agent_seconds: Annotated[float, Field(gt=0)] | None = None
    game_tokens: Annotated[int, Field(ge=1)] | None = None
    game_messages: Annotated[int, Field(ge=1)] | None = None
    game_seconds: Annotated[float, Field(gt=0)] | None = None


ENCODED = {
    "deterministic": "nothing ensures that it repeats its words",
    "repair": "its server manages its encodings",
    "in_place": "its server manages its encodings",
    "reuse": "its server manages its encodings",
    "speculate": "its server decides whether to speculate",
    "prefill_budget": "its server schedules prefills",
}
"""Options of a run that a model behind an API does not support, and why."""
FREE = (*KEYS, *DIVIDING, "threads", "disk_tokens", "keep_cache", "prefill_budget")
"""Options that may change when a run is resumed: they concern keys, parallelism, memory and scheduling, and change no
message."""


RECORDED = {"recorded": True}
"""The validation context for options of a record, which may have old names."""


class OwnModel(FrozenOptions):
    """The name of the model of a run."""

    model: str = Field(
        default="understudy",
        description=f"{NAMED}, a Hugging Face id, 'openai:NAME', or 'fake': scripted answers without a model.",
        json_schema_extra={"panel": "Model"},
    )


class SourceOptions(FrozenOptions):
    """Who serves the model of a run, or which devices it is spread over."""

    base_url: str | None = Field(
        default=None,
        description="Base URL of the server of an 'openai:NAME' model.",
        json_schema_extra={"metavar": "URL", "group": "served", "panel": "Model"},
    )
    server: Server = Field(
        default="openai",
        description="Kind of server, which determines the parameters that requests may contain.",
        json_schema_extra={"group": "served", "panel": "Model"},
    )
    key_env: str | None = Field(
        default=None,
        description=(
            "Environment variable that holds the API key.  [default: OPENAI_API_KEY for OpenAI's own API, else none]"
        ),
        json_schema_extra={"metavar": "NAME", "group": "served", "panel": "Model"},
    )
    key_file: str | None = Field(
        default=None,
        description="File that holds the API key.",
        json_schema_extra={"metavar": "FILE", "group": "served", "panel": "More on the model"},
    )
    allow_vendor: tuple[str, ...] = Field(
        default=(),
        description="Vendors whose models may receive messages that are private to agents on other models.",
        json_schema_extra={"metavar": "VENDOR", "group": "served", "panel": "More on the model"},
    )
    device_map: str | None = Field(
        default=None,
        description="auto: spread the layers over all GPUs. Used instead of --device.",
        json_schema_extra={"group": "loading", "panel": "More on the model"},
    )


class PlayOptions(FrozenOptions):
    """How messages are read and sampled, and which games are played."""

    mode: Mode = Field(
        default="choreographed",
        description=(
            "Whether calls reuse encodings of messages (choreographed) or encode each prompt separately (baseline)."
        ),
        json_schema_extra={"group": "reading", "panel": "Leakage"},
    )
    leakage: Leakage = Field(
        default="enforce",
        description=(
            "How choreographed mode handles leaks: prevent them (enforce), record them (audit), or stop the "
            "call (deny)."
        ),
        json_schema_extra={"group": "reading", "panel": "Leakage"},
    )
    words: WordsRule | None = Field(
        default=None,
        description=(
            "Track, or refuse, messages to agents that may not read everything their author has read; typed "
            "releases (choices, and JSON with a countable number of values) are charged in bits instead."
        ),
        json_schema_extra={"panel": "Leakage"},
    )
    leak_budget: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description=(
            "With --words: maximum number of bits about an owner's secrets that the typed releases of a game "
            "may tell a reader."
        ),
        json_schema_extra={"metavar": "BITS", "panel": "More on leakage"},
    )
    thoughts: ThoughtsOf = Field(
        default="author",
        description="Who may read the model's reasoning before an answer: its author, or the audience of the answer.",
        json_schema_extra={"panel": "More on leakage"},
    )
    shadow: Shadowing = Field(
        default="auto",
        description=(
            "Whether to encode a message for its audience while its author is still speaking; auto: only if "
            "that encoding differs from the author's."
        ),
        json_schema_extra={"group": "reading", "panel": "More on leakage"},
    )
    deterministic: bool = Field(
        default=False,
        description="Make every result independent, bit for bit, of what its reader may not read. Slower.",
        json_schema_extra={"group": "reading", "panel": "Leakage"},
    )
    in_place: bool = False
    reuse: str = Field(
        default=DEFAULT,
        description=ways_help(),
        json_schema_extra={"metavar": "WAY", "group": "reading", "panel": "Speed"},
    )
    repair: str | None = Field(
        default=None,
        description=repairs_help(),
        json_schema_extra={"metavar": "REPAIR", "group": "reading", "panel": "Speed"},
    )
    speculate: bool = Field(
        default=False,
        description=(
            "Speculative decoding: guess several tokens per step from text that the author may read, where it "
            "is faster."
        ),
        json_schema_extra={"panel": "Speed"},
    )
    prefill_budget: int | None = Field(
        default=None,
        ge=1,
        description="Maximum number of prompt tokens encoded per step while agents are speaking.",
        json_schema_extra={"metavar": "TOKENS", "group": "upkeep", "panel": "More on speed"},
    )
    adapter: str | None = Field(
        default=None,
        description="Folder of a LoRA adapter, as written by `agentcho tune` or peft.",
        json_schema_extra={"metavar": "DIR", "group": "reading", "panel": "Model"},
    )
    merge: bool = Field(
        default=False,
        description="Merge the adapter into the weights instead of applying it in each forward pass.",
        json_schema_extra={"group": "reading", "panel": "More on the model"},
    )
    disk_tokens: int = Field(
        default=0,
        ge=0,
        description="Number of tokens whose keys and values are kept on disk when they no longer fit in memory.",
        json_schema_extra={"metavar": "TOKENS", "group": "upkeep", "panel": "More on speed"},
    )
    keep_cache: str | None = Field(
        default=None,
        description="Folder in which encodings of public messages are kept for later runs of the same model.",
        json_schema_extra={"metavar": "DIR", "group": "upkeep", "panel": "More on speed"},
    )
    seed: int = Field(
        default=0, description="Seed of all random choices in the run.", json_schema_extra={"panel": "Games"}
    )
    games: int = Field(
        default=1,
        ge=1,
        le=1_000_000,
        description="Number of games to play, side by side on one engine.",
        json_schema_extra={"panel": "Games"},
    )
    part: str | None = Field(
        default=None,
        description="Play only part K of N of the games; `agentcho merge` combines the parts.",
        json_schema_extra={"metavar": "K/N", "panel": "More on games"},
    )
    tasks: str | None = Field(
        default=None,
        description="Task set: a generator, a .jsonl file, or FORMAT:FILE. Default: the scenario's own.",
        json_schema_extra={"metavar": "TASKS", "panel": "Games"},
    )
    temperature: float = Field(
        default=0.7,
        ge=0,
        allow_inf_nan=False,
        description="Sampling temperature; 0 always takes the likeliest token.",
        json_schema_extra={"panel": "Sampling"},
    )
    top_p: float = Field(
        default=0.95,
        gt=0,
        le=1,
        description="Nucleus sampling: sample from the likeliest tokens that together have this probability.",
        json_schema_extra={"panel": "Sampling"},
    )
    max_tokens: int = Field(
        default=256,
        ge=1,
        description="Maximum number of sampled tokens per message.",
        json_schema_extra={"panel": "Sampling"},
    )
    limits: Limits = Field(
        default=Limits(),
        description="End a game early, by agent_ or game_ tokens, messages or seconds.",
        json_schema_extra={"panel": "Games"},
    )


class RunConfig(TemplateChecks, PlayOptions, ComputeOptions, SourceOptions, DeviceOptions, EngineOptions, OwnModel):
    """The configuration of a run: everything that a record needs to play it again but the scenario's options. Frozen.

    Most fields are also options of the commands that play, with the same help. `device`, `device_map`, `dtype`,
    `weights`, `kv_dtype` and `chat_template_kwargs` are explained at `Engine.load`, the server's options at
    `ModelConfig`, `tasks` at `task_set`, and the sampling options, which are the defaults of agents' verbs, at
    `Sampling`. `plain_markers` matters under `leakage` "enforce" and "deny". `model` may also be "fake", the engine
    without a model.

    Args:
        in_place: Old name of `reuse="in-place"`. Deprecated; it goes in 0.6.
        models: Further models that agents may speak through, by name.
        own_model: What no other option says about the run's own model: see `of_own`.
        people: Agents that people play, by name.

    Raises:
        pydantic.ValidationError: A value is out of its bounds, or options contradict each other.
    """

    default_prompt: Defaults = Field(
        default="keep",
        description=(
            "Whether agents without a system prompt get the chat template's default system prompt, if it has one."
        ),
        json_schema_extra={"panel": "More on the model"},
    )
    models: dict[Annotated[str, AfterValidator(model_name)], ModelConfig] = Field(default={})
    own_model: ModelConfig | None = None
    people: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _fits(self, info: ValidationInfo) -> RunConfig:
        check_model(self.model, _changed(self.own_model or self) | _changed(self))
        if self.own_model is not None and self.own != self.own_model.model_copy(
            update={name: getattr(self, name) for name in KEYS}
        ):
            raise ValueError("own_model differs from the model options of the run; leave those options out")
        for name, model in self.models.items():
            try:
                check_model(model.model, _changed(model))
            except ValueError as error:
                raise ValueError(f"models {name}: {error}") from None
        if self.deterministic and (remote := [name for name, model in self.models.items() if model.served]):
            raise ValueError(
                f"deterministic has no effect on model {remote[0]}, which is behind an API: "
                f"{ENCODED['deterministic']}; leave one of them out"
            )
        if served(self.model) and (wrong := next((name for name in ENCODED if name in _changed(self)), None)):
            raise ValueError(
                f"{wrong} has no effect on {self.model}, a model behind an API: {ENCODED[wrong]}; leave it out"
            )
        way = parsed_way(self.reuse)
        if self.deterministic and self.shadow == "always":
            raise ValueError(
                "shadow=always contradicts deterministic, which makes every audience encoding in the same "
                "way; use shadow=auto or never"
            )
        if self.deterministic and self.speculate:
            raise ValueError(
                "speculate contradicts deterministic: how often guesses are right depends on messages that "
                "others may not read; leave one of them out"
            )
        if self.deterministic and self.prefill_budget is not None:
            raise ValueError(
                "prefill_budget has no effect with deterministic, which never divides a prefill; leave one of them out"
            )
        if self.part is not None:
            parsed_part(self.part, self.games)
        if self.repair is not None:
            parsed_repair(self.repair)
        if self.repair is not None and (self.mode == "baseline" or self.in_place or way.name != DEFAULT):
            raise ValueError(
                f"repair needs choreographed mode with reuse={DEFAULT}; change mode, reuse or in_place, or "
                "leave repair out"
            )
        if self.merge and self.adapter is None:
            raise ValueError("merge has no effect without an adapter; give one, or leave merge out")
        if self.merge and self.weights is not None:
            raise ValueError(f"an adapter cannot be merged into {self.weights} weights; leave out merge or weights")
        if self.leak_budget is not None and self.words is None:
            raise ValueError("leak_budget has no effect without words; give words=refuse or words=track too")
        if (self.in_place or way.name != DEFAULT) and self.mode == "baseline":
            said = "in_place" if self.in_place else "reuse"
            raise ValueError(
                f"{said} has no effect in baseline mode, which encodes every prompt at its own positions; leave it out"
            )
        if self.in_place and info.context != RECORDED:
            told = f'RunConfig(in_place=True) is now RunConfig(reuse="{InPlace.name}"); the old name is removed in 0.6'
            warnings.warn(told, DeprecationWarning, stacklevel=3)
        return self

    @property
    def way(self) -> str:
        """How reused encodings are read, by either name of the option."""
        return InPlace.name if self.in_place else self.reuse

    def renamed(self) -> dict[str, Any]:
        """Return all options by their current names."""
        return {**self.model_dump(), "in_place": False, "reuse": self.way}

    @property
    def own(self) -> ModelConfig:
        """The run's own model."""
        said = {name: getattr(self, name) for name in OWN}
        return ModelConfig(**said) if self.own_model is None else self.own_model.model_copy(update=said)

    @property
    def threading(self) -> int | Literal["auto", "size"]:
        """How each loaded model chooses its number of threads; see `Engine.load`."""
        return self.threads or ("size" if self.deterministic else "auto")

    @classmethod
    def of_own(cls, model: ModelConfig) -> dict[str, Any]:
        """Return the options of a run whose own model is this one."""
        return {"own_model": model, **{name: getattr(model, name) for name in OWN}}

    @property
    def policy(self) -> ReusePolicy:
        """All options that decide how encodings are read, together."""
        way = parsed_way(self.way)
        return ReusePolicy(
            mode=self.mode,
            leakage=self.leakage,
            shadow=self.shadow,
            deterministic=self.deterministic,
            in_place=not way.turns,
            repair=None if self.repair is None else parsed_repair(self.repair),
            speculate=self.speculate,
            ape=way if isinstance(way, Weighing) else None,
        )

    @property
    def numbers(self) -> range:
        """The numbers of the games that are played: all, or those of its part."""
        return range(self.games) if self.part is None else parsed_part(self.part, self.games)

    @property
    def says_reuse(self) -> bool:
        """Whether any part of the reuse policy was given."""
        return not self.model_fields_set.isdisjoint((*ReusePolicy._fields, "reuse"))

    @property
    def sampling(self) -> Sampling:
        """The defaults of an agent's verbs. The seed is set for each call."""
        return Sampling(max_tokens=self.max_tokens, temperature=self.temperature, top_p=self.top_p)


def option_names(*groups: str, without: Container[str] = ()) -> tuple[str, ...]:
    """Return the names of the options of a run that commands have: those of the given groups, or all."""
    found = {name: field for name, field in RunConfig.model_fields.items() if field.description}
    chosen = [name for name, field in found.items() if not groups or _group(field) in groups]
    return tuple(name for name in chosen if name not in without)


def _group(field: FieldInfo) -> object:
    extra = field.json_schema_extra
    return extra.get("group") if isinstance(extra, dict) else None


NETWORK = ("model", *option_names("loading", "inference"), "disk_tokens", "keep_cache")
"""Options of a run that a network is loaded with. Another adapter is put onto the same network."""
EITHER = ("model", "chat_template_kwargs", "context")
"""Options of a model wherever it is."""
LOADED = (*(name for name in NETWORK if name not in EITHER), "adapter", "merge")
"""Options of a model that is loaded here."""
SERVED = ModelConfig.model_fields.keys() - {*EITHER, *LOADED}
"""Options of a model behind an API."""
WEIGHED = ("adapter", *QuantizationOptions.model_fields, "chat_template_kwargs", "context")
"""Options that concern weights, or the positions and the chat template that come with them."""
OWN = tuple(name for name in ModelConfig.model_fields if name in RunConfig.model_fields)
"""Options of a run that describe its own model."""


def checked(kind: type[Options], others: Iterable[str] = (), /, **options: Any) -> Options:
    """Return a model of these options. `others` are names that may be meant by an unknown one too.

    Raises `ConfigError`, which names the first option that does not fit, or tells which ones contradict each other. It
    quotes no value.
    """
    try:
        return kind(**options)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = " ".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise ConfigError(_unknown(kind, first["loc"], others), place) from error
        raise ConfigError(first["msg"].removeprefix("Value error, "), place or None) from error


def _unknown(kind: type[BaseModel], place: tuple[int | str, ...], others: Iterable[str]) -> str:
    """Return what is wrong with a name that is no option, or no limit, and which one is probably meant."""
    name = str(place[-1])
    if place[0] == "limits":
        kinds = kind.model_fields["limits"].annotation
        limits = kinds.model_fields if isinstance(kinds, type) and issubclass(kinds, BaseModel) else Limits.model_fields
        like = nearest(name, limits)
        return f"there is no such limit; {f'{like} The' if like else 'the'} limits are {', '.join(limits)}"
    if len(place) > 1:
        return f"there is no such option{asking(name, ModelConfig.model_fields)}"
    if like := nearest(name, (*kind.model_fields, *others)):
        return f"there is no such option; {like} {kind.__name__} documents all options"
    return f"there is no such option; the options are {', '.join(kind.model_fields)}"


def again(
    words: Iterable[str], config: RunConfig | None = None, names: Iterable[str] = (), given: Iterable[str] = ()
) -> str:
    """Return the command line that repeats a run.

    It has `words`, and those of the run options `names` that are not at their defaults in `config`. Options of the
    scenario, `given`, may be secret, so only their names are shown.
    """
    said, config = list(words), config or RunConfig()
    for name in names:
        value = getattr(config, name)
        if value != RunConfig.model_fields[name].default:
            option = f"--{name.replace('_', '-')}"
            for each in value if isinstance(value, tuple) else (value,):
                said += [option] if each is True else [option, str(each)]
    for name in given:
        said += ["--set", f"{name}=..."]
    return shlex.join(said)

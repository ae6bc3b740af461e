"""Loads all models of a run before its first game begins, so that errors are raised before anything is played."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

from agentcho.config import DEFAULT_MODEL, FAKE, VLLM, Markers, Mode, ModelConfig, RunConfig, TemplateKwargs
from agentcho.engine.template_fidelity import TemplateFidelity
from agentcho.errors import ConfigError, of_model
from agentcho.extras import importing
from agentcho.games.play.adapter_engine import AdapterEngine, engine_and_adapter
from agentcho.games.play.game_models import Engines, LoadedEngines
from agentcho.integrations.endpoints.text_engine import TextEngine
from agentcho.protocol.call import EnginePort
from agentcho.protocol.forward_costs import ForwardCosts
from agentcho.protocol.progress import ProgressCallback
from agentcho.protocol.text_calls import TextPort, is_engine
from agentcho.protocol.variables import of_option
from agentcho.provenance.message_boundaries import required_markers
from agentcho.records.models import ON
from agentcho.records.trained_adapters import unfinished

ENGINE = logging.getLogger("agentcho.engine")
NOTES = logging.getLogger("agentcho.notes")
"""Notes that a user of a command sees on standard error, whether or not there is a log."""


ENOUGH = 1024
"""The least number of tokens that are usually enough for a thought and an answer."""
CostsByModel = dict[str, ForwardCosts]
"""The costs of forward passes of a run's models, by name."""


class EngineSource(NamedTuple):
    """What is loaded for one model. Equal sources share an engine, and so do adapters on one base.

    `merge` and `device_map` apply to the run's own model.
    """

    model: ModelConfig
    merge: bool = False
    device_map: str | None = None

    @property
    def here(self) -> bool:
        """Whether it has weights that are loaded here."""
        return self.model.model != FAKE and not self.model.served

    @property
    def base(self) -> EngineSource:
        """The same without its adapter."""
        return self._replace(model=self.model.model_copy(update={"adapter": None}))


class ModelShares(NamedTuple):
    """How much all models together may keep: `share` of the default memory, and `disk_tokens` on disk.

    `keep_cache` is the option of that name, for encodings that outlive the run.
    """

    share: float
    disk_tokens: int
    keep_cache: str | None


@runtime_checkable
class LearnsWords(Protocol):
    """An engine that can only say words that it has met: the fake engine, and its stand-in on workers.

    It must be taught words from another process before it can say them.
    """

    def meet(self, header: str, text: str) -> None:
        """Learn the words of a message, by its header and its text."""


def teach_words(engine: object, texts: Iterable[tuple[str, str]]) -> None:
    """Teach an engine the words of messages, given as headers and texts, if it needs that."""
    if isinstance(engine, LearnsWords):
        for header, text in texts:
            engine.meet(header, text)


def as_engines(models: Mapping[str, EnginePort | TextPort]) -> Engines:
    """Return a run's other models as engines. A model behind an API is one engine for all its names."""
    remote = {id(model): TextEngine(cast(TextPort, model)) for model in models.values() if not is_engine(model)}
    return {name: remote.get(id(model)) or cast(EnginePort, model) for name, model in models.items()}


def remote(model: ModelConfig, name: str) -> TextEngine:
    """Return a model behind an API without sending it a request. `name` is its name in errors."""
    from agentcho.integrations.endpoints.endpoint import open_endpoint

    return TextEngine(open_endpoint(model, name))


def fingerprints(loaded: LoadedEngines) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return the fingerprint of a run's own engine, and those of its other engines by name, for a record.

    Those of adapters on a shared engine include the name of the first model there.
    """
    models = {DEFAULT_MODEL: loaded.engine, **loaded.others}
    there = {name: engine_and_adapter(model) for name, model in models.items()}
    mixed, first = {id(engine) for engine, adapter in there.values() if adapter is not None}, dict[int, str]()
    found = dict[str, dict[str, str]]()
    for name, (engine, _) in there.items():
        home = first.setdefault(id(engine), name)
        found[name] = dict(models[name].fingerprint) | ({ON: home} if id(engine) in mixed and home != name else {})
        found[name] |= _threads(engine)
    return found.pop(DEFAULT_MODEL), found


def _threads(engine: object) -> dict[str, str]:
    """Return the number of threads of an engine, for a record. Empty for an engine that computes nothing here."""
    threads = getattr(engine, "threads", None)
    return {} if threads is None else {"threads": str(threads[0])}


def threads_of(engine: object) -> str:
    """Return the number of threads of an engine, and why, as words to append. Empty if it has none here."""
    threads = getattr(engine, "threads", None)
    return "" if threads is None else f", {threads[0]} thread{'' if threads[0] == 1 else 's'} ({threads[1]})"


def tell_differences(model: str, engine: object, mode: Mode) -> None:
    """Print one line about how agents' messages differ from the model's chat template, if they do."""
    found: TemplateFidelity | None = getattr(engine, "fidelity", None)
    line = None if found is None else found.told(model, mode)
    if line is not None:
        NOTES.warning("%s", line)


def tell_unfinished(adapter: str | None) -> None:
    """Print one line about an adapter whose training has not finished."""
    if adapter is not None and (told := unfinished(adapter)) is not None:
        NOTES.warning("%s", told)


def tell_thinking(model: str, engine: object, most: int) -> None:
    """Print one line about a model that thinks before it answers, which `most` tokens may not be enough for."""
    if getattr(getattr(engine, "framing", None), "thinking", None) is not None and most < ENOUGH:
        NOTES.warning(
            "%s may think before it answers, and max_tokens (%d) counts both: a message is empty if its thought uses "
            "them up. Raise --max-tokens, or turn thoughts off with --chat-template-kwargs",
            model,
            most,
        )


def tell_unread(model: str, engine: EnginePort, variables: TemplateKwargs) -> None:
    """Print one line about variables of a run that its chat template does not read, if there are any."""
    given = of_option(variables)
    if names := engine.framing.unread(given) if given else []:
        told = "it" if len(names) == 1 else "them"
        NOTES.warning("%s: chat_template_kwargs %s: the chat template does not read %s", model, ", ".join(names), told)


def speculate(
    config: RunConfig, loaded: LoadedEngines, recorded: Mapping[str, ForwardCosts] = MappingProxyType({})
) -> CostsByModel:
    """Let the models of a run guess tokens, if it asks for that, and return the costs that each uses.

    These are the recorded costs, or else costs measured now.
    """
    models = {DEFAULT_MODEL: loaded.engine, **loaded.others} if config.speculate else {}
    found = {name: model.speculate(recorded.get(name)) for name, model in models.items()}
    return {name: costs for name, costs in found.items() if costs is not None}


def give_up(loaded: LoadedEngines) -> None:
    """Close the engines of a run's models, and free their memory."""
    engines = {id(each): each for each in (loaded.engine, *loaded.others.values())}.values()
    closing = [close for engine in engines if (close := getattr(engine, "close", None)) is not None]
    for close in closing:
        close()
    if closing:
        gc.collect()
    if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def load_together(
    config: RunConfig, engine: EnginePort | None, given: Engines, tell: ProgressCallback, share: float = 1
) -> LoadedEngines:
    """Load the models of a run that its configuration names and that are not given already.

    Equal models share one engine. All that are loaded together keep no more encodings than `share` of what one alone
    would. An error that can be found without loading is raised before any is loaded. Raises as `Engine.load` does, with
    the name of the model.
    """
    own = EngineSource(config.own, config.merge, config.device_map)
    named = {name: EngineSource(each) for name, each in config.models.items() if name not in given}
    wanted = named if engine is not None else {DEFAULT_MODEL: own, **named}
    markers = required_markers(config.policy, config.plain_markers)
    if len(several := [name for name, source in wanted.items() if source.model.engine == VLLM]) > 1:
        raise ConfigError(
            f"models {', '.join(several)} use engine vllm, but a process can run only one of them; keep one"
        )
    for name, source in wanted.items():
        with of_model(name):
            _check(source, markers)
        tell_unfinished(source.model.adapter)
    made: dict[EngineSource, EnginePort] = {} if engine is None else {own: engine}
    for name, source in wanted.items():
        if not source.here and source not in made:
            made[source] = _made(source, name)
    names = {source: name for name, source in reversed(wanted.items()) if source not in made}
    on = _on_bases(names)
    first: dict[EngineSource, str] = {}
    for name, source in wanted.items():
        if source in on:
            first.setdefault(on[source], name)
    loading = {name: source for source, name in first.items()}
    room = ModelShares(share, int(config.disk_tokens * share), config.keep_cache)
    loaded = dict(zip(first, _load(loading, config, markers, tell, room), strict=True))
    for source, name in first.items():
        engine = loaded[source]
        ENGINE.info("loaded %s (%s)%s%s", name, source.model.model, _kept(engine), threads_of(engine))
        tell_differences(source.model.model, engine, config.mode)
        tell_thinking(source.model.model, engine, config.max_tokens)
        tell_unread(source.model.model, engine, source.model.chat_template_kwargs)
    for source, base in on.items():
        with of_model(names[source]):
            made[source] = _through(loaded[base], source, base)
    others = {name: given[name] if name in given else made[named[name]] for name in (*config.models, *given)}
    return LoadedEngines(made[own], others)


def _on_bases(names: Mapping[EngineSource, str]) -> dict[EngineSource, EngineSource]:
    """Return the source to load for each model: the base, if several differ only in adapters that can run together.

    Raises `ModelError` if an adapter cannot be read.
    """
    found, mixing = {source: source for source in names}, list[EngineSource]()
    for source, name in names.items():
        with of_model(name):
            mixing += [source] if source.here and _mixes(source) else []
    for base in dict.fromkeys(source.base for source in mixing):
        beside = [source for source in mixing if source.base == base]
        if len(beside) > 1:
            found |= dict.fromkeys(beside, base)
    return found


def _mixes(source: EngineSource) -> bool:
    """Return whether calls of a model can run in the same forward passes as those of others on its base."""
    if source.model.engine == VLLM:
        return False
    if source.merge or source.model.adapter is None:
        return not source.merge
    from agentcho.engine.lora_adapter import find_adapter
    from agentcho.runner.model.lora import is_plain

    return is_plain(find_adapter(source.model.adapter))


def _through(engine: Any, source: EngineSource, base: EngineSource) -> EnginePort:
    """Return a model on the engine of its base."""
    found: EnginePort = engine
    return found if source == base else AdapterEngine.port(found, engine.mix(source.model.adapter))


def _kept(engine: Any) -> str:
    """Return how much an engine may keep, in words."""
    store, host = engine.room
    return f", which keeps {store} tokens, and {host} more in host memory"


def _check(source: EngineSource, markers: Markers) -> None:
    """Raise errors that are known before a model is loaded."""
    if source.model.model == FAKE and source.model.adapter is not None:
        raise ConfigError("adapter needs a model with weights, and the fake model has none; leave it out")
    if source.model.engine == VLLM:
        from agentcho.integrations.vllm.versions import installed

        installed()
    if source.here:
        from agentcho.runner.model.loading import check_model_files

        check_model_files(_weights(source), markers, source.model.context)


def check_loadable(config: RunConfig, markers: Markers) -> None:
    """Raise errors in the models of a run that are known before any is loaded. Sends no request to a server."""
    sources = {config.model: EngineSource(config.own, config.merge, config.device_map)}
    for name, source in (sources | {name: EngineSource(each) for name, each in config.models.items()}).items():
        _check(source, markers)
        if source.model.served:
            remote(source.model, name)


def _made(source: EngineSource, name: str) -> EnginePort:
    """Return an engine that needs no weights."""
    if source.model.served:
        return remote(source.model, name)
    from agentcho.engine.fake.fake import FakeEngine

    return FakeEngine()


def _load(
    wanted: Mapping[str, EngineSource], config: RunConfig, markers: Markers, tell: ProgressCallback, room: ModelShares
) -> list[EnginePort]:
    """Return the engines of models with weights. The keys of `wanted` are their names in errors."""
    if not wanted:
        return []
    with importing():
        from agentcho.runner.engine import Engine

    own = {name: source for name, source in wanted.items() if source.model.engine != VLLM}
    weights = {name: _weights(source)._replace(threads=config.threading) for name, source in own.items()}
    share = room.share / len(wanted)
    parts = room._replace(share=share * len(own))
    loaded = Engine.load_all(weights, markers, tell, *parts, template_differs=config.template_differs) if own else []
    engines: dict[str, EnginePort] = dict(zip(own, loaded, strict=True))
    for name, source in wanted.items():
        if name not in engines:
            with of_model(name):
                engines[name] = in_vllm(source, config, markers, share)
    return [engines[name] for name in wanted]


def in_vllm(source: EngineSource, config: RunConfig, markers: Markers, share: float) -> EnginePort:
    """Return a model in vLLM."""
    with importing():
        from agentcho.engine.cache import DiskQuota
        from agentcho.integrations.vllm.engine import VllmEngine
        from agentcho.runner.model.loading import EngineSizes

    sizes = EngineSizes(source.model.context, share=share, disk=DiskQuota(int(config.disk_tokens * share)))
    return VllmEngine.load(
        source.model.model,
        source.model.dtype,
        sizes,
        markers=markers,
        differs=config.template_differs,
        variables=of_option(source.model.chat_template_kwargs),
        options=source.model.division,
    )


def _weights(source: EngineSource) -> Any:
    from agentcho.engine.lora_adapter import find_adapter
    from agentcho.runner.engine import placement
    from agentcho.runner.model.loading import WeightsSource

    model = source.model
    adapter = None if model.adapter is None else find_adapter(model.adapter)
    place = placement(model, source.device_map)
    variables = of_option(model.chat_template_kwargs)
    return WeightsSource(model.model, place, adapter, source.merge, variables=variables, context=model.context)

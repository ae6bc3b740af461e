"""Loads the parts of an engine from what a user names: a model, its framing, the proofs of its layers, and the sizes of
its stores. Independent of engines and calls."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor

from agentcho.config import Markers
from agentcho.engine.cache import NO_DISK, DiskQuota
from agentcho.engine.framing import Framing
from agentcho.engine.lora_adapter import Adapter
from agentcho.engine.template import derive
from agentcho.engine.template_fidelity import TemplateFidelity, check_plain, fidelity
from agentcho.errors import ModelBroken, ModelError, of_model
from agentcho.protocol.progress import ProgressCallback, counted, no_progress
from agentcho.protocol.variables import NO_VARIABLES, Variables
from agentcho.protocol.variables import checked as given_variables
from agentcho.provenance.message_boundaries import check_markers
from agentcho.runner.attention.base import Locality, Scoring
from agentcho.runner.kv.kv_pool import KVFormat, shared_host_tokens, shared_tokens
from agentcho.runner.kv.kv_quant import check_kv_dtype
from agentcho.runner.model.device import DevicePlacement, check_gpu, dtype_of
from agentcho.runner.model.fingerprints import check_kept
from agentcho.runner.model.model import (
    Model,
    ModelSource,
    context_of,
    end_tokens,
    find,
    is_embedded_tokenizer,
    read_tokenizer,
)
from agentcho.runner.model.quantized_checkpoint import check_quantised
from agentcho.runner.model.threads import Wish, check_threads
from agentcho.runner.quant.prepack import copy_columns, pack_linears
from agentcho.runner.quant.quantized_linear import check_bits
from agentcho.runner.reuse_check import PROBE, LayerProof, ReuseCheck, check_config, plain_attention


class EngineParts(NamedTuple):
    """The parts of an engine. `store_tokens`, `host_tokens` and `disk`: the number of tokens that it keeps in the
    store, in host memory and on disk. `kept`: the folder of encodings that outlive it. `fidelity`: how far its prompts
    match those of transformers (None for the bundled model, for which this is not checked)."""

    model: Model
    framing: Framing
    proofs: list[LayerProof]
    store_tokens: int
    host_tokens: int
    context: int
    disk: DiskQuota
    kept: str | Path | None = None
    fidelity: TemplateFidelity | None = None


class EngineSizes(NamedTuple):
    """The limits of an engine: `context` positions; `store_tokens` tokens of encodings in the store, `host_tokens`
    tokens of copies in host memory, and more on `disk`. None means all that the model has, or `share` of the default
    size. `kept`: the folder in which public encodings outlive the engine (None keeps none)."""

    context: int | None = None
    store_tokens: int | None = None
    host_tokens: int | None = None
    disk: DiskQuota = NO_DISK
    share: float = 1
    kept: str | Path | None = None

    def check(self) -> None:
        """Raise `ModelError` if one of them is not an integer, or too small, and `CannotWrite` if no files can be
        written to disk."""
        _check_count("context", self.context, PROBE, "nothing can be proved over so few positions")
        _check_count("store_tokens", self.store_tokens, 1, "nothing can be kept in so few tokens")
        _check_count("host_tokens", self.host_tokens, 0, "this is no number of tokens")
        _check_count("disk_tokens", self.disk.tokens, 0, "this is no number of tokens")
        if not 0 < self.share <= 1:
            raise ModelError(f"share={self.share!r} is not a share of the memory; give a number above 0 and at most 1")
        if self.disk.folder is not None and not self.disk.tokens:
            raise ModelError(f"disk={str(self.disk.folder)!r} needs disk_tokens; give both, or neither")
        self.disk.check()


class WeightsSource(NamedTuple):
    """Which weights are loaded, and to which device: a model's name or folder, and an adapter that every forward uses;
    `merge`: it is merged into the weights instead. `threads`: the number of CPU threads. `variables`: extra arguments
    of the chat template. `context`: the number of positions to use, if several models are loaded together."""

    model: str | Path
    place: DevicePlacement
    adapter: Adapter | None = None
    merge: bool = False
    threads: Wish = "auto"
    variables: Variables = NO_VARIABLES
    context: int | None = None


def load(
    weights: WeightsSource,
    sizes: EngineSizes,
    markers: Markers,
    tell: ProgressCallback = no_progress,
    differs: Markers = "refuse",
    found: CheckedModel | None = None,
) -> EngineParts:
    """See `Engine.load`. `found`: the result of `check_model_files`, if it was called before. The default size of the
    store is a share of the memory that the weights leave free."""
    sizes.check()
    found = found or check_model_files(weights, markers, sizes.context, differs)
    source = found.source
    if sizes.kept is not None:
        check_kept(Path(sizes.kept), source, weights.place)
    loaded = Model.load(source, weights.place, tell, found.tokenizer)
    loaded.kv_quant = weights.place.kv
    if weights.adapter is not None:
        loaded = loaded.adapted(weights.adapter, weights.merge)
    copied = pack_linears(loaded.network, tell=tell) or copy_columns(loaded.network)
    loaded.prepacked = copied > 0 or loaded.bits is not None
    loaded.shorten()
    if loaded.device.type == "cpu":
        _settle_threads(loaded, weights.threads, keeps=sizes.kept is not None)
    with loaded.threads.using():
        return prove_model(loaded, sizes, tell, found, variables=weights.variables)


def _settle_threads(model: Model, wish: Wish, *, keeps: bool) -> None:
    """Choose the model's number of threads; never by timing if encodings are kept, whose bits depend on it."""
    token = torch.zeros(1, 1, dtype=torch.long)
    weights = sum(weight.nbytes for weight in model.network.parameters())
    model.threads.settle(
        "size" if keeps and wish == "auto" else wish,
        weights,
        lambda: model.forward(token, token, token[0], _Alone(), brief=True),
    )
    if model.threads.number is not None:
        model.owner.around = model.threads.using


class _Alone:
    """Serves the attention of tokens that attend only to each other, and stores nothing."""

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """See `Batch.attend`."""
        return plain_attention(queries, keys, values, scoring)


def load_all(
    wanted: Mapping[str, WeightsSource],
    markers: Markers,
    tell: ProgressCallback = no_progress,
    share: float = 1,
    disk_tokens: int = 0,
    kept: str | Path | None = None,
    differs: Markers = "refuse",
) -> list[EngineParts]:
    """Load several models, which together keep no more than this share of what one of them would, with equally many
    tokens each per device, and `disk_tokens` on disk; each keeps public encodings in its own folder under `kept`, by
    name. Raises as `load` does, with the name of the model."""
    parts = []
    sizes = EngineSizes(share=share, disk=DiskQuota(disk_tokens // max(1, len(wanted))))
    folders = {name: None if kept is None else Path(kept) / name for name in wanted}
    for name, weights in wanted.items():
        if (folder := folders[name]) is not None:
            with of_model(name):
                check_kept(folder, find(weights.model), weights.place)
    found = dict[str, CheckedModel]()
    for name, weights in wanted.items():
        with of_model(name):
            found[name] = check_model_files(weights, markers, weights.context, differs)
    for name, weights in wanted.items():
        with of_model(name):
            own = sizes._replace(context=weights.context, kept=folders[name])
            parts.append(load(weights, own, markers, tell, differs, found[name]))
    kinds = [_kind(each.model, each.proofs) for each in parts]
    rooms = zip(parts, shared_tokens(kinds, share), shared_host_tokens(kinds, share), strict=True)
    return [each._replace(store_tokens=room, host_tokens=outside) for each, room, outside in rooms]


class CheckedModel(NamedTuple):
    """Where a model is, and what was checked before its weights were read (None if not yet): its tokenizer, its framing
    with these end tokens, and how far its prompts match those of transformers."""

    source: ModelSource
    tokenizer: Any = None
    framing: Framing | None = None
    ends: frozenset[int] = frozenset()
    fidelity: TemplateFidelity | None = None


def check_model_files(
    weights: WeightsSource, markers: Markers, context: int | None = None, differs: Markers = "accept"
) -> CheckedModel:
    """Find a model, and check all that can be checked before its weights are read."""
    for what, given in (("plain_markers", markers), ("template_differs", differs)):
        if given not in get_args(Markers):
            raise ModelError(f"{what}={given!r} is unknown; give refuse or accept")
    check_bits(weights.place.bits, weights.merge)
    check_kv_dtype(weights.place.kv)
    check_threads(weights.threads)
    source = find(weights.model)
    check_config(source, context)
    if context is not None and context > (most := context_of(source.config)):
        raise ModelError(
            f"context={context}, but {source.name} has {most} positions; give that or less, or leave it out"
        )
    check_quantised(source.name, source.config, source.renamed, weights.place.bits, weights.merge)
    where = weights.place.where()
    dtype_of(weights.place.dtype, where)
    check_gpu(where)
    variables = _variables(weights.variables)
    if markers == "accept" and (differs == "accept" or is_embedded_tokenizer(source)):
        return CheckedModel(source)
    tokenizer, ends = read_tokenizer(source), end_tokens(source)
    framing = derive(tokenizer, source.name, ends, variables)  # independent of the weights
    check_markers(framing.plain, markers, source.name)
    if differs == "accept" or is_embedded_tokenizer(source):
        return CheckedModel(source, tokenizer, framing, ends)
    found = fidelity(tokenizer, framing)
    check_plain(found, source.name, differs)
    return CheckedModel(source, tokenizer, framing, ends, fidelity=found)


def _variables(given: Variables) -> Variables:
    try:
        return given_variables(given)
    except ValueError as error:
        raise ModelError(f"chat_template_kwargs: {error}") from None


def _check_count(name: str, value: object, least: int, what: str) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise ModelError(f"{name}={value!r} is not a whole number; give {least} or more, or leave it out")
    if value < least:
        raise ModelError(f"{name}={value}: {what}; give {least} or more")


def check_vocabulary(model: Model, framing: Framing) -> None:
    """Raise `ModelBroken` for a tokenizer with ids, for text or for framing, that have no row in the model's embedding.
    Added tokens that no text produces, such as those of images, may lie outside."""
    rows = min(model.vocabulary, model.network.get_input_embeddings().num_embeddings)  # type: ignore[operator]
    content = {id for id in model.tokenizer.get_vocab().values() if id not in framing.content.special}
    default = () if framing.default is None else framing.default.tokens
    used = content.union(*framing.ids.values(), framing.begin, default)
    if over := sorted(id for id in used if id >= rows):
        what = f"its tokenizer uses ids up to {over[-1]}, its embedding has {rows} rows ({len(over)} ids lie outside)"
        fix = (
            "Take the tokenizer that belongs to these weights, or resize the embedding with resize_token_embeddings "
            "and save both"
        )
        raise ModelBroken(model.source.name, Path(model.source.path), what, fix)


def prove_model(
    model: Model,
    sizes: EngineSizes,
    tell: ProgressCallback = no_progress,
    found: CheckedModel | None = None,
    variables: Variables = NO_VARIABLES,
) -> EngineParts:
    """Everything that is determined about a loaded model: its framing, and a proof per layer. `found`: what was checked
    before its weights were read, with the same `variables` for the chat template. Raises as `Engine.load` does."""
    ends = model.end_tokens()
    framing = found.framing if found is not None and found.ends == ends else None
    if framing is None:
        framing = derive(model.tokenizer, model.source.name, ends, variables)
    if not model.source.random:
        check_vocabulary(model, framing)
    positions = sizes.context or model.context
    proving = counted(tell, "proofs", 1)
    proofs = ReuseCheck(model, positions).prove()
    proving(1)
    room, outside = sizes.store_tokens, sizes.host_tokens
    kind = _kind(model, proofs)
    room = shared_tokens([kind], sizes.share)[0] if room is None else room
    outside = shared_host_tokens([kind], sizes.share)[0] if outside is None else outside
    known = None if found is None else found.fidelity
    if known is None and not is_embedded_tokenizer(model.source):
        known = fidelity(model.tokenizer, framing)
    return EngineParts(model, framing, proofs, room, outside, positions, sizes.disk, sizes.kept, known)


def _kind(model: Model, proofs: list[LayerProof]) -> KVFormat:
    return KVFormat([proof.shape for proof in proofs], model.device, model.dtype, model.kv_quant is not None)

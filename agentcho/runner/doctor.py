"""The report of `agentcho doctor MODEL`: what the gate and the framing found on one model, as a table.

For a folder with a tokenizer and no weights it reports only the framing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from transformers import GenerationConfig

from agentcho.config import KV_DTYPE
from agentcho.engine.framing import ROLES, Framing
from agentcho.engine.template import derive
from agentcho.engine.template_fidelity import TemplateFidelity, fidelity
from agentcho.engine.thinking import Thinking
from agentcho.errors import ModelError
from agentcho.protocol.progress import ProgressCallback, no_progress
from agentcho.protocol.variables import Variables, of_option
from agentcho.runner.attention.base import Locality
from agentcho.runner.attention.registry import Backends, Reported
from agentcho.runner.engine import Engine
from agentcho.runner.kv.kv_pool import token_bytes
from agentcho.runner.model.fused import FusedPart
from agentcho.runner.model.known_models import place_of
from agentcho.runner.model.model import ModelSource, read_tokenizer
from agentcho.runner.quant.prepack import matmul_kernels
from agentcho.runner.quant.quantized_linear import quantization_summary
from agentcho.runner.reuse_check import LayerProof

DIRECT = "direct", "layers are called without the overhead of modules; logits are those of transformers, bit for bit"
STOCK = "transformers", "its own: the direct forward is for Llama, Mistral, Qwen2 and Qwen3 without adapters"
"""The kinds of forward that a network on a CPU can have, and what they mean."""


class DoctorRow(NamedTuple):
    """One line: what was checked, on which layer (None for the whole model), the outcome, and numbers or names."""

    check: str
    layer: int | None
    result: str
    detail: str


class DoctorReport(NamedTuple):
    """Facts about a model that passed. `rows` are in reading order; `layers` sums up the rows of single layers (None if
    there are no weights, so that nothing was proved); `notes` are remarks for people, such as roles framed as user."""

    model: str
    rows: list[DoctorRow]
    layers: DoctorRow | None
    notes: list[str]

    @property
    def short(self) -> list[DoctorRow]:
        """The rows, with one row for all layers."""
        return [*(row for row in self.rows if row.layer is None), *([] if self.layers is None else [self.layers])]


class PromptSource(Protocol):
    """What builds prompts: an engine, or a tokenizer alone."""

    @property
    def tokenizer(self) -> Any: ...
    @property
    def framing(self) -> Framing: ...
    @property
    def fidelity(self) -> TemplateFidelity | None: ...


class _Prompts(NamedTuple):
    """A tokenizer without a model."""

    tokenizer: Any
    framing: Framing
    fidelity: TemplateFidelity | None = None


def doctor(
    model: str | Path = "understudy",
    device: str = "auto",
    dtype: str = "auto",
    context: int | None = None,
    tell: ProgressCallback = no_progress,
    **how: Any,
) -> DoctorReport:
    """Load a model and report what was checked; for a folder without weights, report what its tokenizer shows.

    Args:
        model, device, dtype, context, tell: As in `Engine.load`.
        how: Other arguments of `Engine.load`; `chat_template_kwargs` may be JSON.

    Raises:
        AgentchoError: As `Engine.load` does, with the cause and the remedy.
    """
    variables = _variables(how.get("chat_template_kwargs"))
    if (folder := _without_weights(str(model))) is not None:
        prompts = _of_tokenizer(str(model), folder, variables)
        kind = type(prompts.tokenizer).__name__
        rows = [DoctorRow("tokenizer", None, kind, f"{len(prompts.tokenizer)} tokens; the folder has no weights")]
        return DoctorReport(str(model), [*rows, *template_rows(prompts)], None, _framing_notes(prompts))
    how |= {"threads": how.get("threads") or "auto", "chat_template_kwargs": variables}
    how["template_differs"] = "accept"  # the report covers it
    return report_of(str(model), Engine.load(model, device, dtype, context=context, tell=tell, **how))


def report_of(model: str, engine: Engine) -> DoctorReport:
    """The report on a loaded model, under the given name."""
    rows = [DoctorRow("model", None, engine.fingerprint["model_type"], _numbers(engine))]
    if stored := engine.fingerprint.get("stored"):
        rows.append(DoctorRow("file", None, *stored.split(", ", 1)))
    rows.append(DoctorRow("kernels", None, *matmul_kernels(engine.network, engine.store.devices[0])))
    rows += [DoctorRow("fused", None, each.name, _fused(each)) for each in engine.fused]
    if engine.store.devices[0].type == "cpu":
        rows.append(DoctorRow("forward", None, *(DIRECT if engine.direct else STOCK)))
        rows.append(DoctorRow("threads", None, str(engine.threads[0]), engine.threads[1]))
    rows += attention_rows(engine.backends)
    rows.append(DoctorRow("exact", None, *_together(engine)))
    if lighter := quantization_summary(engine.network):
        rows.append(DoctorRow("weights", None, engine.fingerprint["bits"], lighter))
    if (kept := engine.fingerprint.get(KV_DTYPE)) is not None:
        rows.append(DoctorRow("keys and values", None, kept, _kept(engine)))
    rows += template_rows(engine)
    rows += [_layer(proof) for proof in engine.proofs]
    return DoctorReport(model, rows, _layers(engine.proofs), _notes(engine))


def _without_weights(model: str) -> Path | None:
    """The folder of a tokenizer that has no weights beside it, or None."""
    folder = Path(place_of(model))
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json")):
        return None
    weights = (pattern for pattern in ("*.safetensors", "*.gguf", "*.bin", "*.index.json", "*.pt", "*.pth"))
    return None if any(True for pattern in weights for _ in folder.glob(pattern)) else folder


def _variables(given: str | None) -> Variables:
    try:
        return of_option(given)
    except ValueError as error:
        raise ModelError(f"chat_template_kwargs: {error}") from None


def _of_tokenizer(name: str, folder: Path, variables: Variables) -> _Prompts:
    """The framing of a tokenizer, with the end tokens of the generation config beside it."""
    tokenizer = read_tokenizer(ModelSource(name, str(folder), None))
    ends: Any = None
    if (folder / "generation_config.json").is_file():
        ends = GenerationConfig.from_pretrained(str(folder)).eos_token_id
    eos = frozenset([ends] if isinstance(ends, int) else ends or ())
    return _Prompts(tokenizer, derive(tokenizer, name, eos, variables))


def template_rows(engine: PromptSource) -> list[DoctorRow]:
    """How prompts are framed, and how far they match those of stock transformers."""
    rows = [DoctorRow("framing", None, role, _framing(engine, role)) for role in ROLES]
    rows += [DoctorRow("framing", None, "begins", _begin(engine)), DoctorRow("framing", None, *_markers(engine))]
    rows += [
        DoctorRow("framing", None, "default prompt", _default(engine)),
        DoctorRow("framing", None, "answers", _answers(engine)),
    ]
    rows.append(DoctorRow("framing", None, "functions", _functions(engine)))
    if engine.framing.thinking is not None:
        rows.append(DoctorRow("framing", None, "thoughts", _thoughts(engine.framing.thinking)))
    return [*rows, *_prompts(engine)]


def _prompts(engine: PromptSource) -> Iterator[DoctorRow]:
    """How far prompts match those of stock transformers, and what the difference costs."""
    found = engine.fidelity or fidelity(engine.tokenizer, engine.framing)
    told = {"plain chats": str(found.plain), "reuse of them": str(found.reuse), "agents": str(found.apart)}
    told |= {"reordered": found.reordered, "agents' tokens": found.cost}
    if engine.framing.apart:
        told["baseline"] = "message by message: the model was trained on messages that were tokenised one by one"
    else:
        told["baseline"] = found.written
    return (DoctorRow("framing", None, what, detail) for what, detail in told.items())


def _numbers(engine: Engine) -> str:
    print_ = engine.fingerprint
    return f"{len(engine.proofs)} layers, {engine.context} positions, {print_['dtype']} on {print_['device']}"


def attention_rows(backends: Backends) -> list[DoctorRow]:
    """All registered attention backends, the best first, with the reason for each that is not used."""
    return [DoctorRow("attention", None, each.name, _used(each)) for each in backends.report()]


def _used(backend: Reported) -> str:
    return backend.does if backend.missing is None else f"not used: {backend.missing}"


def _fused(part: FusedPart) -> str:
    """What computes a part of the network in one kernel, or why nothing does."""
    done = f"{part.how} for each of {part.modules} modules" if part.modules else None
    left = None if part.why is None else f"{'others are ' if done else ''}not fused: {part.why}"
    return "; ".join(filter(None, (done, left)))


def _together(engine: Engine) -> tuple[str, str]:
    """How concurrent speakers are computed in the deterministic profile."""
    if not engine.sizes:
        return "apart", "rows of one forward change each other's last bits: each has a forward of its own"
    sizes = ", ".join(map(str, engine.sizes))
    return "together", f"rows have the same bits at every place of a forward of {sizes} tokens"


def _kept(engine: Engine) -> str:
    """The size of keys and values in 8 bits, and the error of reading them."""
    shapes, dtype = [proof.shape for proof in engine.proofs], next(engine.network.parameters()).dtype
    most = max(proof.rounded_error or 0 for proof in engine.proofs)
    sizes = f"{token_bytes(shapes, dtype, True)} bytes a token, and not {token_bytes(shapes, dtype)}"
    return f"{sizes}; a scale for each token and head; states differ by at most {_error(most)} of the largest"


def _framing(engine: PromptSource, role: str) -> str:
    frame = engine.framing.frame(role)
    named = "with names" if frame.named else "names left to the header"
    return f"{frame.opening!r} … {frame.closing!r}, {named}"


def _begin(engine: PromptSource) -> str:
    begin = "".join(map(str, engine.tokenizer.convert_ids_to_tokens(list(engine.framing.begin))))
    stops = ", ".join(repr(engine.tokenizer.convert_ids_to_tokens(i)) for i in sorted(engine.framing.stops))
    return f"{repr(begin) if begin else 'no BOS'}, ends at {stops}"


def _default(engine: PromptSource) -> str:
    default = engine.framing.default
    if default is None:
        return "none: an agent without a system prompt reads none"
    text = default.text if len(default.text) <= 48 else default.text[:48] + "…"
    return f"{text!r}, {len(default.tokens)} tokens, read by agents without a system prompt and encoded once"


def _answers(engine: PromptSource) -> str:
    """The opening of an answer, and the opening that other agents read before it."""
    framing = engine.framing
    opened, before = framing.answer, framing.frame("assistant").opening
    if opened is None:
        return f"opened with {before!r}, as they stand in a conversation"
    inside = ", inside of a thought" if framing.opens_thought else ""
    if framing.thinking is None and not framing.leaves_open:
        return f"opened with {opened!r}, and kept so; the template has {before!r} in a conversation"
    return f"opened with {opened!r}{inside}; without a thought, and in a conversation, with {before!r}"


def _functions(engine: PromptSource) -> str:
    tools = engine.framing.tools
    if not tools.auto:
        return "no format that is known: a call is bare JSON, where one is asked for"
    return f"the template's own format: a call begins with {tools.opening!r}"


def _thoughts(thinking: Thinking) -> str:
    who = "the prompt begins one" if thinking.opened else "the model begins one, or does not"
    kept = "stay" if thinking.kept else "are cut"
    return f"{thinking.begin!r} … {thinking.end!r}: {who}; those of earlier answers {kept}"


def _markers(engine: PromptSource) -> tuple[str, str]:
    """Whether the separator between two messages can be written inside a message."""
    if not engine.framing.plain:
        return "apart", "between any two messages stands an id that no text spells and no model says"
    pairs = ", ".join(f"{one} and {other}" for one, other in engine.framing.plain)
    return "plain", f"nothing but what a text can spell stands between {pairs}"


def _layer(proof: LayerProof) -> DoctorRow:
    turned = 0 if proof.rotation.frequencies is None else 2 * len(proof.rotation.frequencies)
    rotary = "no rotary" if not turned else f"rotary {proof.rotation.form}, {turned} of {proof.shape.key_dim}"
    detail = (
        f"{rotary}; {_reach(proof.locality)}; shift {_error(proof.turn_error)}, packed {_error(proof.packed_error)}, "
        f"neighbours {_error(proof.neighbour_error)}"
    )
    return DoctorRow("layer", proof.layer, "proved", detail)


def _layers(proofs: list[LayerProof]) -> DoctorRow:
    """All layers in one row: their number, and the largest error of each proof."""
    turned = max(proof.turn_error for proof in proofs)
    packed = max(proof.packed_error for proof in proofs)
    beside = max(proof.neighbour_error for proof in proofs)
    worst = f"shift {_error(turned)}, packed {_error(packed)}, neighbours {_error(beside)}"
    return DoctorRow(
        "layers", None, "proved", f"all {len(proofs)}; at most {worst}; `agentcho doctor --verbose` shows each"
    )


def _error(value: float) -> str:
    return f"{value:.0e}" if value else "0"


def _reach(locality: Locality) -> str:
    return "all positions" if locality.kind == "full" else f"{locality.kind} {locality.size}"


def _notes(engine: Engine) -> list[str]:
    notes = _framing_notes(engine)
    longest = max((p.locality.size for p in engine.proofs), default=0)
    if longest > 32:
        notes.append(f"windows and chunks (up to {longest}) are longer than the probe: taken from the config")
    return notes


def _framing_notes(engine: PromptSource) -> list[str]:
    notes = [
        f"the template cannot frame {role} by itself: it is framed as {alias}"
        for role, alias in engine.framing.aliases.items()
        if role != alias
    ]
    if engine.framing.plain:
        notes.append(
            "what stands between some messages can be written into a message, which then passes for two: games under "
            "enforce and deny are refused unless they say --plain-markers accept"
        )
    return notes

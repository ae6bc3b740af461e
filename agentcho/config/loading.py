"""Options of loading a model, each declared once with its help, for a run, a server or a benchmark.

A group of options is a class, and a model with these options is a subclass. Fields come in the order of the bases, the
last base first. Must not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from agentcho.protocol.variables import option

Bits = Literal["int8", "int4"]
"""Bits in which the weights of linear layers can be kept."""
KvDtype = Literal["int8"]
"""Formats in which keys and values can be kept, other than the model's own."""
Markers = Literal["refuse", "accept"]
Computing = Literal["agentcho", "vllm"]
VLLM = "vllm"
"""The name of the engine that computes with vLLM."""
DIVIDING = ("tensor_parallel", "pipeline_parallel")
"""Options that divide a model among GPUs, for that engine only."""
NOT_OF_VLLM = {
    "device": "vLLM uses the device that it was installed for",
    "device_map": "vLLM places layers itself",
    "threads": "set OMP_NUM_THREADS",
    "weights": "vLLM loads weights as the checkpoint has them",
    "kv_dtype": "quantised keys would be rounded again on every move",
    "adapter": "only agentcho's own engine supports adapters",
    "merge": "only agentcho's own engine supports adapters",
    "keep_cache": "only agentcho's own engine keeps encodings across runs",
    "deterministic": "vLLM's batches are not deterministic to the last bit",
    "speculate": "only agentcho's own engine supports speculation",
    "repair": "vLLM computes only the end of a prompt, not tokens in the middle",
    "prefill_budget": "vLLM schedules prefills itself",
}
"""Options that a model in vLLM cannot take, and why."""
KV_DTYPE = "kv_dtype"
"""The name of the option, also in fingerprints of engines."""
TEMPLATED = 'Extra arguments of the chat template, as JSON: {"enable_thinking": false}.'
FEW_BITS = (
    "Keep the weights of the linear layers in this many bits, and the output head in 8.  [default: as --dtype says]"
)
EIGHT_BITS = "Keep keys and values in 8 bits, with a scale for each token and head.  [default: as --dtype says]"
POSITIONS = (
    "Number of positions to use: the most tokens that a call can read and say together.  "
    "[default: all that the model has]"
)
THREADS = (
    "Number of CPU threads for computing.  [default: OMP_NUM_THREADS, else one for a small "
    "model, else the faster of one and all]"
)
if TYPE_CHECKING:
    TemplateKwargs = str | Mapping[str, Any] | None
else:
    TemplateKwargs = Annotated[str | None, BeforeValidator(option)]
"""Extra arguments of a chat template: a JSON object, as text or as a mapping. Kept as text."""


class FrozenOptions(BaseModel):
    """Options that do not change. Unknown names are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class EngineOptions(FrozenOptions):
    """What computes a model that is loaded here."""

    engine: Computing = Field(
        default="agentcho",
        description="Engine for a model that is loaded here: agentcho, or vllm (needs the extra of that name).",
        json_schema_extra={"group": "inference", "panel": "Model"},
    )
    tensor_parallel: int = Field(
        default=1,
        ge=1,
        description="For --engine vllm: number of GPUs among which to divide the heads of each layer.",
        json_schema_extra={"metavar": "N", "group": "inference", "panel": "More on the model"},
    )
    pipeline_parallel: int = Field(
        default=1,
        ge=1,
        description=(
            "For --engine vllm: number of stages among which to divide the layers, each on --tensor-parallel GPUs."
        ),
        json_schema_extra={"metavar": "N", "group": "inference", "panel": "More on the model"},
    )

    @property
    def division(self) -> dict[str, int]:
        """The number of ranks that vLLM divides the model among, as its `EngineArgs` takes it. Empty if it does not."""
        return {f"{name}_size": getattr(self, name) for name in DIVIDING if getattr(self, name) != 1}

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.engine != VLLM and (wrong := next((name for name in DIVIDING if getattr(self, name) != 1), None)):
            raise ValueError(f"{wrong} has no effect without engine=vllm; give engine=vllm too, or leave it out")
        return self


class DeviceOptions(FrozenOptions):
    """Arguments of a model's chat template, its positions, and the device that it runs on."""

    chat_template_kwargs: TemplateKwargs = Field(
        default=None,
        description=TEMPLATED,
        json_schema_extra={"metavar": "JSON", "group": "loading", "panel": "More on the model"},
    )
    context: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description=POSITIONS,
        json_schema_extra={"metavar": "N", "group": "loading", "panel": "More on the model"},
    )
    device: str = Field(
        default="auto", description="auto, cpu, cuda.", json_schema_extra={"group": "loading", "panel": "Model"}
    )


class DtypeOptions(FrozenOptions):
    """The number format that a model computes in."""

    dtype: str = Field(
        default="auto",
        description="auto, float32, bfloat16, float16.",
        json_schema_extra={"group": "loading", "panel": "Model"},
    )


class ThreadOptions(FrozenOptions):
    """The number of threads that a model computes on."""

    threads: int | None = Field(
        default=None,
        ge=1,
        description=THREADS,
        json_schema_extra={"metavar": "N", "group": "loading", "panel": "More on speed"},
    )


class QuantizationOptions(FrozenOptions):
    """The number of bits of a model's weights, and of its keys and values. None means those that it computes in."""

    weights: Bits | None = Field(
        default=None, description=FEW_BITS, json_schema_extra={"group": "loading", "panel": "Speed"}
    )
    kv_dtype: KvDtype | None = Field(
        default=None, description=EIGHT_BITS, json_schema_extra={"group": "inference", "panel": "Speed"}
    )

    @property
    def quantization(self) -> dict[str, Any]:
        """These options by name, as `Engine.load` takes them."""
        return {name: getattr(self, name) for name in QuantizationOptions.model_fields}

    def numbers_of(self, dtype: str) -> str:
        """Return the number formats of a model of this dtype for people: "float32 int8, keys and values int8"."""
        model = dtype if self.weights is None else f"{dtype} {self.weights}"
        return model if self.kv_dtype is None else f"{model}, keys and values {self.kv_dtype}"


class ComputeOptions(QuantizationOptions, ThreadOptions, DtypeOptions):
    """The number formats, and the number of threads, that a model computes with."""


class TemplateChecks(FrozenOptions):
    """What to do if the chat template of a model fails a check."""

    plain_markers: Markers = Field(
        default="refuse",
        description="What to do if text can imitate the markers that separate messages in the model's chat template.",
        json_schema_extra={"panel": "More on the model"},
    )
    template_differs: Markers = Field(
        default="refuse",
        description="What to do if the token ids of plain chats differ from those of transformers' chat template.",
        json_schema_extra={"panel": "More on the model"},
    )

"""The connector inside a vLLM server that agentcho does not run: passes vLLM's calls to its two halves.

The scheduler's half decides what requests read, the worker's half moves keys and values. They exchange data only
through vLLM's metadata.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentcho.errors import ConfigError
from agentcho.integrations.vllm.alone.encodings import Encodings, Leakage
from agentcho.integrations.vllm.alone.planner import Planner
from agentcho.integrations.vllm.alone.prompt_spans import markers_of
from agentcho.integrations.vllm.alone.slots import SlotStore, layers_of
from agentcho.integrations.vllm.alone.work import Report, Work
from agentcho.integrations.vllm.imports import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorWorkerMetadata,
    rotary_modules,
)

LOG = logging.getLogger("vllm.agentcho")
ANSWERED = {"FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED", "FINISHED_REPETITION"}
"""The states of requests that have ended by themselves."""


class ConnectorOptions(BaseModel):
    """The options in `kv_connector_extra_config`.

    Attributes:
        tokens: The maximum number of tokens held, over all societies.
        society_tokens: The maximum for one society. None: all of them.
        leakage: "enforce" or "audit".
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    tokens: int = Field(default=65_536, ge=1)
    society_tokens: int | None = Field(default=None, ge=1)
    leakage: Leakage = "enforce"


@dataclass
class StepWork(KVConnectorMetadata):  # type: ignore[misc]
    """The work of the worker in a step."""

    work: Work


@dataclass
class StepReport(KVConnectorWorkerMetadata):  # type: ignore[misc]
    """The results of that work."""

    report: Report

    def aggregate(self, other: StepReport) -> StepReport:
        """Combine the results of two workers."""
        turning = self.report.turning or other.report.turning
        return StepReport(Report([*self.report.lost, *other.report.lost], turning))


class SocietyConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """See `KVConnectorBase_V1`. `ConfigError`, `UnsupportedModel`: it cannot work in this server."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        options = checked_options(vllm_config, len(kv_cache_config.kv_cache_groups))
        self._model = str(vllm_config.model_config.model)
        self._config = vllm_config
        self._planner: Planner | None = None
        self._store: SlotStore | None = None
        if role is KVConnectorRole.SCHEDULER:
            bound = options.tokens if options.society_tokens is None else options.society_tokens
            markers = markers_of(str(vllm_config.model_config.tokenizer))
            self._planner = Planner(markers, Encodings(options.tokens, bound, options.leakage))

    @property
    def requires_kv_delivery(self) -> bool:
        """False: what is not kept is computed again."""
        return False

    # -- the scheduler's half --------------------------------------------------------------------------------

    @property
    def _plans(self) -> Planner:
        assert self._planner is not None
        return self._planner

    def on_new_request(self, request: Any) -> None:
        """Read the society parameters of a request."""
        self._plans.enter(request)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """The number of slots that encodings fill."""
        return self._plans.matched(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Note the blocks of a request."""
        self._plans.begin(request, blocks.get_block_ids()[0], num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> StepWork:
        """The work of the worker in this step."""
        return StepWork(self._plans.take())

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Save what a request has computed. Its blocks are kept until that is done."""
        return self._plans.end(request, block_ids, whole=request.status.name in ANSWERED)

    def reset_cache(self) -> bool:
        """Drop all encodings, for example because the weights have changed."""
        self._plans.forget()
        return True

    def update_connector_output(self, connector_output: Any) -> None:
        """Take in the report of the worker."""
        if (told := connector_output.kv_connector_worker_meta) is not None:
            self._plans.told(told.report)

    # -- the worker's half -----------------------------------------------------------------------------------

    @property
    def _slots(self) -> SlotStore:
        assert self._store is not None
        return self._store

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Find out how the model's keys are stored and rotated. `UnsupportedModel`: it cannot be served."""
        layers = layers_of(
            self._model,
            rotary_modules(),
            layers=self._config.compilation_config.static_forward_context,
            caches=dict(kv_caches),
            block=int(self._config.cache_config.block_size),
        )
        self._store = SlotStore(self._model, layers)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Save what has ended, and fill the slots of what starts."""
        self._slots.do(self._get_connector_metadata().work)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """The requests whose blocks may be freed, and those that are refused."""
        done, self._slots.done = self._slots.done, set()
        refused, self._slots.refused = self._slots.refused, set()
        return done, refused

    def get_block_ids_with_load_errors(self) -> set[int]:
        """The blocks that could not be filled. Their requests end with an error."""
        failed, self._slots.failed = self._slots.failed, set()
        return failed

    def build_connector_worker_meta(self) -> StepReport | None:
        """The report for the scheduler's half."""
        report, self._slots.report = self._slots.report, Report()
        return StepReport(report) if report else None

    def wait_for_layer_load(self, layer_name: str) -> None:
        """No-op: everything was filled before the forward."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """No-op: nothing is saved during a forward."""

    def wait_for_save(self) -> None:
        """No-op: nothing is saved during a forward."""


def checked_options(vllm_config: Any, groups: int) -> ConnectorOptions:
    """The options of the connector. `ConfigError`: they are malformed, or it cannot work in this server.

    Args:
        vllm_config: vLLM's configuration.
        groups: The number of KV cache groups that vLLM keeps.
    """
    for cause in _causes(vllm_config, groups):
        raise ConfigError(f"agentcho's connector cannot work in this vLLM: {cause}")
    try:
        return ConnectorOptions.model_validate(vllm_config.kv_transfer_config.kv_connector_extra_config)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, ("kv_connector_extra_config", *first["loc"])))
        raise ConfigError(f"{place}: {first['msg']}") from error


def _causes(config: Any, groups: int) -> Iterator[str]:
    transfer, text = config.kv_transfer_config, config.model_config.hf_text_config
    if config.cache_config.enable_prefix_caching:
        yield "its own prefix cache does not separate societies; start it with --no-enable-prefix-caching"
    if transfer.kv_role != "kv_both":
        yield f'kv_role is {transfer.kv_role}; give "kv_both"'
    if transfer.kv_load_failure_policy != "fail":
        yield "refused requests would be computed anyway; leave kv_load_failure_policy out"
    if config.parallel_config.world_size > 1:
        yield "tensor and pipeline parallelism are not supported; start it with one worker"
    if config.speculative_config is not None:
        yield "it cannot tell guessed tokens from accepted ones; leave the speculative config out"
    if groups != 1:
        yield f"it keeps {groups} groups of caches because the layers of the model differ; use another model"
    if getattr(text, "llama_4_scaling", None) or getattr(text, "attn_temperature_tuning", False):
        yield "the model scales queries by their position; use another model"

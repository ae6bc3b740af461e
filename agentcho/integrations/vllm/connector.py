"""The connector of one engine: tells vLLM's scheduler how many slots of a request are filled, and fills them.

Both halves are in one process and share the engine's `Jobs`. If a guard refuses, or an encoding is not in the store,
the request ends with an error; vLLM never falls back on computing the tokens in those slots. Independent of how tokens
are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agentcho.integrations.vllm.bindings import KVConnectorBase_V1, KVConnectorMetadata, KVConnectorRole
from agentcho.integrations.vllm.jobs import ENGINES, OPTION, Jobs


@dataclass
class Loads(KVConnectorMetadata):  # type: ignore[misc]
    """The requests that start in a step, or restart after a preemption, by name."""

    names: list[str] = field(default_factory=list)


class AgentchoConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """See `KVConnectorBase_V1`."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        self._jobs: Jobs = ENGINES[vllm_config.kv_transfer_config.get_from_extra_config(OPTION, "")]
        self._loads = Loads()
        self._refused = set[int]()

    # -- the scheduler's half --------------------------------------------------------------------------------

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """The number of slots that encodings fill: all that the request reads."""
        job = self._jobs.get(request.request_id)
        return (0 if job is None else job.before - num_computed_tokens), False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Note the blocks of a request, and that its slots have to be filled."""
        if (job := self._jobs.get(request.request_id)) is None:
            return
        job.blocks = list(blocks.get_block_ids()[0])
        if request.num_computed_tokens and job.written == job.expected():  # it continues after a pause
            return
        job.written.clear()
        job.begun += 1
        if num_external_tokens != job.before:  # vLLM bypassed the connector, so this must not be computed
            job.error = RuntimeError(f"vLLM asked for {num_external_tokens} of the {job.before} slots that are read")
        if job.stored:
            self._loads.names.append(job.name)

    def build_connector_meta(self, scheduler_output: Any) -> Loads:
        """What the worker does before the forward of a step. Also notes which requests get a token in it."""
        computed = {new.req_id: new.num_computed_tokens for new in scheduler_output.scheduled_new_reqs}
        cached = scheduler_output.scheduled_cached_reqs
        computed |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        for name, added in zip(cached.req_ids, cached.new_block_ids, strict=True):
            job = self._jobs.get(name)
            if job is not None and added is not None:
                job.blocks = [*([] if name in cached.resumed_req_ids else job.blocks), *added[0]]
        for name, tokens in scheduler_output.num_scheduled_tokens.items():
            if (job := self._jobs.get(name)) is not None:
                job.needs_token = computed[name] + tokens >= job.slots
        loads, self._loads = self._loads, Loads()
        return loads

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Keep nothing of a request: its results were stored before it was aborted."""
        return False, None

    # -- the worker's half -----------------------------------------------------------------------------------

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Hand the cache of each layer to the engine."""
        self._jobs.caches = dict(kv_caches)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Fill the slots of the requests that start in this step."""
        for name in self._get_connector_metadata().names:
            job = self._jobs.get(name)
            if job is not None and not self._jobs.load(job):
                self._refused.update(job.blocks)

    def get_block_ids_with_load_errors(self) -> set[int]:
        """The blocks that could not be filled. Their requests end with an error."""
        refused, self._refused = self._refused, set()
        return refused

    def wait_for_layer_load(self, layer_name: str) -> None:
        """No-op: everything was filled before the forward."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """No-op: nothing is saved during a forward."""

    def wait_for_save(self) -> None:
        """No-op: nothing is saved during a forward."""

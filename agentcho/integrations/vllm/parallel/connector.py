"""The connector of an engine with several ranks: one half runs with the engine, and one in each rank.

What has to be written is sent between them in plans, which are made right after the guards were asked. Independent of
how tokens are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agentcho.integrations.vllm.bindings import KVConnectorBase_V1, KVConnectorMetadata, KVConnectorRole
from agentcho.integrations.vllm.connector import AgentchoConnector
from agentcho.integrations.vllm.jobs import OPTION
from agentcho.integrations.vllm.mover import Load
from agentcho.integrations.vllm.parallel.rank import rank_of
from agentcho.integrations.vllm.parallel.ranks import PARALLEL


@dataclass
class PlannedLoads(KVConnectorMetadata):  # type: ignore[misc]
    """What is written before the forward of a step, by request name, and the blocks of requests that may not read what
    they would."""

    loads: dict[str, Load] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)


class RankedConnector(AgentchoConnector):
    """See `KVConnectorBase_V1`."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        name = vllm_config.kv_transfer_config.get_from_extra_config(OPTION, "")
        if role is KVConnectorRole.WORKER:
            KVConnectorBase_V1.__init__(self, vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
            self._rank, self._refused = rank_of(name), set()
        else:
            super().__init__(vllm_config, role, kv_cache_config)
            self._ranks = PARALLEL[name]

    def build_connector_meta(self, scheduler_output: Any) -> PlannedLoads:
        """What each rank writes before the forward of a step. The guards of everything that is read are asked here."""
        names = super().build_connector_meta(scheduler_output).names
        begun = [job for name in names if (job := self._jobs.get(name)) is not None]
        running = [self._jobs.get(name) for name in scheduler_output.num_scheduled_tokens]
        return PlannedLoads(*self._ranks.plan(begun, [job for job in running if job is not None and job.needs_token]))

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Hand the cache of each layer to the rank."""
        self._rank.caches = dict(kv_caches)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Fill the slots of the requests that start in this step."""
        planned = self._get_connector_metadata()
        self._refused |= planned.refused
        for name, load in planned.loads.items():
            if not self._rank.load(name, load):
                self._refused.update(load.blocks)

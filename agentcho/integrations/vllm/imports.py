"""All imports from vLLM, for the one range of versions that is tested.

vLLM calls its connector interface experimental, so other versions are refused before anything is imported. Importing
this module changes no settings of vLLM, so a connector inside a user's own server leaves them as they are.
"""

from __future__ import annotations

from typing import Any

from agentcho.integrations.vllm.versions import installed

FOUND = installed()

from vllm import EngineArgs, SamplingParams  # noqa: E402
from vllm.config import KVTransferConfig  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.base import (  # noqa: E402
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorWorkerMetadata,
)
from vllm.model_executor.layers import rotary_embedding  # noqa: E402
from vllm.platforms import current_platform  # noqa: E402
from vllm.v1.engine.llm_engine import LLMEngine  # noqa: E402
from vllm.v1.executor.multiproc_executor import MultiprocExecutor  # noqa: E402
from vllm.v1.sample.logits_processor import LogitsProcessor  # noqa: E402
from vllm.v1.sample.logits_processor.builtin import process_dict_updates  # noqa: E402

__all__ = [
    "FOUND",
    "EngineArgs",
    "KVConnectorBase_V1",
    "KVConnectorMetadata",
    "KVConnectorRole",
    "KVConnectorWorkerMetadata",
    "KVTransferConfig",
    "LLMEngine",
    "LogitsProcessor",
    "MultiprocExecutor",
    "SamplingParams",
    "current_platform",
    "process_dict_updates",
    "rotary_modules",
]


def rotary_modules() -> list[Any]:
    """The rotary embedding modules that vLLM has made in this process, without duplicates."""
    return list({id(module): module for module in rotary_embedding._ROPE_DICT.values()}.values())

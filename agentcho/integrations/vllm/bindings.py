"""All that is imported from vLLM, for the one range of versions that is tested.

vLLM calls its connector interface experimental: another version is refused before anything of it is imported. Does not
know: what is computed with it.
"""

from __future__ import annotations

import logging
import os
import warnings

from agentcho.integrations.vllm.versions import installed

FOUND = installed()
# One process: the scheduler, the worker and the sampling of this package call each other.
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"

logging.getLogger("vllm").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", category=FutureWarning, module=r"vllm\.")

from vllm import EngineArgs, SamplingParams  # noqa: E402
from vllm.config import KVTransferConfig  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.base import (  # noqa: E402
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
)
from vllm.platforms import current_platform  # noqa: E402
from vllm.v1.engine.llm_engine import LLMEngine  # noqa: E402
from vllm.v1.sample.logits_processor import LogitsProcessor  # noqa: E402
from vllm.v1.sample.logits_processor.builtin import process_dict_updates  # noqa: E402

ON_CPU = bool(current_platform.is_cpu())
"""Whether it computes on a processor."""

__all__ = [
    "FOUND",
    "ON_CPU",
    "EngineArgs",
    "KVConnectorBase_V1",
    "KVConnectorMetadata",
    "KVConnectorRole",
    "KVTransferConfig",
    "LLMEngine",
    "LogitsProcessor",
    "SamplingParams",
    "process_dict_updates",
]

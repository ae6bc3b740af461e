"""Imports from vLLM for an engine in this process, and vLLM's settings for it.

The settings are made before anything of vLLM is imported.
"""

from __future__ import annotations

import logging
import os
import warnings

# vLLM's scheduler has to be in this process: the scheduler and the sampling of this package call each other.
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"
os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"  # ranks must not inherit open files of this process

logging.getLogger("vllm").setLevel(logging.ERROR)
logging.getLogger("vllm.logging_utils.dump_input").setLevel(logging.CRITICAL)  # it dumps failed steps with requests
warnings.filterwarnings("ignore", category=FutureWarning, module=r"vllm\.")

from agentcho.integrations.vllm.imports import (  # noqa: E402
    FOUND,
    EngineArgs,
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVTransferConfig,
    LLMEngine,
    LogitsProcessor,
    MultiprocExecutor,
    SamplingParams,
    current_platform,
    process_dict_updates,
)

ON_CPU = bool(current_platform.is_cpu())
"""Whether vLLM computes on the CPU."""

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
    "MultiprocExecutor",
    "SamplingParams",
    "process_dict_updates",
]

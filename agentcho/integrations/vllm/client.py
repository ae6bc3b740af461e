"""vLLM as the runner of an engine uses it: adds requests, steps, and aborts requests.

Independent of what a request reads and how tokens are drawn.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from agentcho.errors import AgentchoError, ModelError
from agentcho.integrations.vllm.bindings import FOUND, ON_CPU, EngineArgs, KVTransferConfig, LLMEngine, SamplingParams
from agentcho.integrations.vllm.connector import AgentchoConnector
from agentcho.integrations.vllm.jobs import ENGINES, OPTION, PAUSE, Job, Jobs
from agentcho.integrations.vllm.logits import DrawnTokens
from agentcho.integrations.vllm.parallel.connector import RankedConnector
from agentcho.integrations.vllm.parallel.executor import RankExecutor
from agentcho.integrations.vllm.parallel.logits import ToldTokens
from agentcho.integrations.vllm.parallel.ranks import PARALLEL, Ranks
from agentcho.integrations.vllm.parallel.worker import RankWorker

CACHE = 4 << 30
"""Bytes of vLLM's cache on a CPU, the same as an engine's store has there."""
LOADING = (ValueError, RuntimeError, TypeError, NotImplementedError)
"""The exceptions that vLLM raises if it cannot load a model."""
UTILIZATION = 0.7
"""Share of a GPU's memory that vLLM takes for weights and cache. A store takes half of what is free after that."""


class Client:
    """vLLM with one model, over the connector of one engine.

    Args:
        model: The name of the model, for errors, and `path`, its folder.
        engine: The name of the engine in `ENGINES`.
        jobs: Its requests.
        options: Arguments of vLLM's `EngineArgs`.
        ranks: The processes among which the model is divided. None: it is in this process.

    `ModelError`: vLLM cannot load the model.
    """

    def __init__(
        self, model: str, path: str, engine: str, jobs: Jobs, options: dict[str, Any], ranks: Ranks | None = None
    ) -> None:
        self._jobs, self._name, self._ranks = jobs, engine, ranks
        connector: type = AgentchoConnector if ranks is None else RankedConnector
        ours = {
            "model": path,
            "trust_remote_code": False,
            "load_format": "safetensors",
            "use_tqdm_on_load": False,
            "enable_prefix_caching": False,
            "async_scheduling": False,
            "disable_log_stats": True,
            "disable_hybrid_kv_cache_manager": True,
            "logits_processors": [DrawnTokens if ranks is None else ToldTokens],
            "kv_transfer_config": KVTransferConfig(
                kv_connector=connector.__name__,
                kv_connector_module_path=connector.__module__,
                kv_role="kv_both",
                kv_connector_extra_config={OPTION: engine},
            ),
        }
        ENGINES[engine] = jobs
        try:
            args = EngineArgs(**(_memory(options, ranks) | options | ours))
            self._vllm = LLMEngine.from_engine_args(args) if ranks is None else _divided(args, engine, ranks)
        except BaseException as error:
            self._forget()
            if isinstance(error, AgentchoError) or not isinstance(error, LOADING if ranks is None else Exception):
                raise
            raise ModelError(f"vLLM {FOUND} could not load {model}: {_told(error)}") from error

    @property
    def network(self) -> Any:
        """The model's module."""
        return self._vllm.model_executor.driver_worker.worker.model_runner.model

    @property
    def layers(self) -> dict[str, Any]:
        """The attention layers by name."""
        found: dict[str, Any] = self._vllm.vllm_config.compilation_config.static_forward_context
        return found

    @property
    def caches(self) -> dict[str, Tensor]:
        """The cache of each attention layer, by layer name."""
        return self._jobs.caches

    @property
    def requests(self) -> int:
        """The maximum number of requests in a step."""
        return int(self._vllm.vllm_config.scheduler_config.max_num_seqs)

    @property
    def heads(self) -> int:
        """The number of key-value heads of a layer, over all ranks."""
        return int(self._vllm.vllm_config.model_config.get_total_num_kv_heads())

    @property
    def block(self) -> int:
        """The number of slots in a block."""
        return int(self._vllm.vllm_config.cache_config.block_size)

    @property
    def longest(self) -> int:
        """The maximum number of slots of a request."""
        return int(self._vllm.vllm_config.model_config.max_model_len)

    @property
    def vocabulary(self) -> int:
        """The number of token ids."""
        return int(self._vllm.vllm_config.model_config.get_vocab_size())

    @property
    def usage(self) -> float:
        """The share of vLLM's cache that requests occupy."""
        return float(self._vllm.engine_core.engine_core.scheduler.get_kv_cache_usage())

    def add(self, job: Job) -> str:
        """Start a request; return the name that vLLM gives it."""
        request = self._request(job, job.name, job.prompt)
        self._vllm.input_processor.assign_request_id(request)
        self._vllm.engine_core.add_request(request)
        return str(request.request_id)

    def extend(self, job: Job) -> None:
        """Give a paused request its next tokens."""
        self._vllm.engine_core.add_request(self._request(job, job.inner, job.more))

    def _request(self, job: Job, name: str, ids: Sequence[int]) -> Any:
        """A new request, or the next tokens of one, in vLLM's form. It pauses at `PAUSE`."""
        params = SamplingParams(
            temperature=0,
            max_tokens=self.longest,
            ignore_eos=True,
            stop_token_ids=[PAUSE],
            detokenize=False,
            extra_args={OPTION: job.name},
        )
        prompt = {"type": "token", "prompt_token_ids": list(ids)}
        tasks = self._vllm.get_supported_tasks()
        return self._vllm.input_processor.process_inputs(name, prompt, params, tasks, resumable=True)

    def step(self) -> dict[str, bool]:
        """Run one step; return the requests that it stopped, by name, each with whether it stopped at `PAUSE`.
        `EngineFailed`: a worker has died."""
        try:
            outputs = self._vllm.engine_core.get_output().outputs
        except Exception as error:
            if self._ranks is not None and self._ranks.executor is not None:
                self._ranks.executor.check(error)
            raise
        return {
            str(output.request_id): output.stop_reason == PAUSE
            for output in outputs
            if output.finish_reason is not None
        }

    def abort(self, job: Job) -> None:
        """Abort a request."""
        self._vllm.engine_core.abort_requests([job.inner])

    def close(self) -> None:
        """Shut vLLM's worker down and free its memory."""
        self._vllm.engine_core.shutdown()
        self._forget()

    def _forget(self) -> None:
        ENGINES.pop(self._name, None)
        PARALLEL.pop(self._name, None)
        if self._ranks is not None and self._ranks.executor is not None:
            self._ranks.executor.shutdown()


def _divided(args: Any, engine: str, ranks: Ranks) -> Any:
    """vLLM with a model divided among ranks, each in its own process."""
    args.distributed_executor_backend = "mp"
    args.worker_extension_cls = f"{RankWorker.__module__}.{RankWorker.__qualname__}"
    PARALLEL[engine] = ranks
    found = LLMEngine(vllm_config=args.create_engine_config(), executor_class=RankExecutor, log_stats=False)
    core = found.engine_core.engine_core
    core.batch_queue, core.step_fn = None, core.step  # draw the tokens of a step before the next is scheduled
    return found


def _memory(options: Mapping[str, Any], ranks: Ranks | None) -> dict[str, Any]:
    """Default for the memory that vLLM takes. vLLM's own default takes nearly all of a GPU, and leaves no room for a
    store. With several ranks the store is in host memory."""
    if any(name in options for name in ("kv_cache_memory_bytes", "gpu_memory_utilization")):
        return {}
    if ON_CPU:
        return {} if "VLLM_CPU_KVCACHE_SPACE" in os.environ else {"kv_cache_memory_bytes": CACHE}
    return {"gpu_memory_utilization": UTILIZATION} if ranks is None else {}


def _told(error: Exception) -> str:
    """The text of a vLLM error, in one line."""
    if isinstance(error, ValidationError):
        return "; ".join(": ".join([*map(str, each["loc"]), each["msg"]]) for each in error.errors())
    return (str(error).strip() or type(error).__name__).splitlines()[0]

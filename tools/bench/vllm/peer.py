"""Plain vLLM with its prefix cache, as a process: `python -m tools.bench.vllm.peer FOLDER DTYPE CONTEXT OPTIONS`.

Each line of input is a workflow, which it plays with every text forced and answers with its times, or a prompt. A call
is submitted as soon as all that it reads has ended. Between workflows the prefix cache is emptied. Must not import
agentcho.
"""

from __future__ import annotations

import json
import os
import sys
from time import perf_counter, process_time
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"

from vllm import EngineArgs, SamplingParams
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

WORDS = "words"
"""The key of a request's forced ids in its `extra_args`."""


class ForcedWords(LogitsProcessor):  # type: ignore[misc]
    """Allows each request only its next forced id."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        self._rows: dict[int, tuple[list[int], list[int]]] = {}

    def is_argmax_invariant(self) -> bool:
        """False: it decides which token is the best."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Track the rows of the requests in the batch."""
        process_dict_updates(self._rows, batch_update, lambda params, _, said: (params.extra_args[WORDS], said))

    def apply(self, logits: Any) -> Any:
        """Force the next id in each row of `logits` `[rows, vocab]`."""
        for row, (words, said) in self._rows.items():
            if row < len(logits):
                logits[row, words[min(len(said), len(words) - 1)]] = 1e9
        return logits


class Peer:
    """vLLM with one model."""

    def __init__(self, folder: str, dtype: str, context: int, options: dict[str, Any]) -> None:
        given = {"enable_prefix_caching": True, "disable_log_stats": True, "logits_processors": [ForcedWords]}
        self._vllm = LLMEngine.from_engine_args(
            EngineArgs(model=folder, dtype=dtype, max_model_len=context, load_format="safetensors", **given | options)
        )

    def play(self, calls: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Play all calls of a workflow: `prompt` and `text` are ids, `needs` the calls that must have ended."""
        self._vllm.reset_prefix_cache()
        began, used = perf_counter(), process_time()
        ready, first, ended = dict[str, float](), dict[str, float](), dict[str, float]()
        encoded, steps, decoding, decoding_steps = 0, 0, 0.0, 0
        while len(ended) < len(calls):
            for id, call in calls.items():
                if id not in ready and all(other in ended for other in call["needs"]):
                    ready[id] = max((ended[other] for other in call["needs"]), default=0.0)
                    self._vllm.add_request(id, {"prompt_token_ids": call["prompt"]}, _forced(call["text"]))
            all_begun, before = set(ready) <= set(first), process_time()
            outputs = self._vllm.step()
            now = perf_counter() - began
            steps += 1
            if all_begun:  # this step had only decodes
                decoding, decoding_steps = decoding + process_time() - before, decoding_steps + 1
            for output in outputs:
                id = output.request_id
                if id not in first and output.outputs[0].token_ids:
                    first[id] = now
                    encoded += len(calls[id]["prompt"]) - output.num_cached_tokens + len(calls[id]["text"])
                if output.finished:
                    ended[id] = now
        return {
            "calls": {id: [ready[id], first[id], ended[id]] for id in calls},
            "encoded": encoded,
            "steps": steps,
            "cpu": process_time() - used,
            "step": decoding / max(1, decoding_steps),
        }

    def first(self, prompt: list[int], kept: bool) -> dict[str, float]:
        """Seconds and CPU seconds to the first token after a prompt. `kept`: keep the contents of the cache."""
        if not kept:
            self._vllm.reset_prefix_cache()
        began, used = perf_counter(), process_time()
        self._vllm.add_request("first", {"prompt_token_ids": prompt}, _forced([0]))
        while self._vllm.has_unfinished_requests():
            self._vllm.step()
        return {"ttft": perf_counter() - began, "cpu": process_time() - used}


def _forced(words: list[int]) -> SamplingParams:
    return SamplingParams(
        temperature=0,
        max_tokens=len(words),
        ignore_eos=True,
        detokenize=False,
        extra_args={WORDS: words},
    )


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps vLLM's output apart from the answers
    peer = Peer(sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4]))
    for line in sys.stdin:
        asked, options = json.loads(line)
        print(json.dumps(getattr(peer, asked)(**options)), file=answers, flush=True)

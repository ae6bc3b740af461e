"""Compares the vllm engine with agentcho's own engine on the same weights:
`python -m tests.clients.vllm_oracles CASE`.

It runs in vLLM's environment and prints its results as a JSON object. Each case has its own process, because vLLM
allows one engine per process. Expected values are in the tests.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import active_children
from pathlib import Path
from signal import SIGKILL
from time import monotonic
from typing import Any

os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

import torch
from transformers import PreTrainedModel

from agentcho import Decode, Engine, Prefill, Sampling, replay, run
from agentcho.engine.core import EngineCore
from agentcho.errors import AgentchoError, ConfigError
from agentcho.games.results.played import Played
from agentcho.integrations.vllm.engine import VllmEngine
from agentcho.integrations.vllm.parallel.ranks import PARALLEL
from agentcho.protocol.call import Shadow
from agentcho.records.trace import exported
from agentcho.runner.model.loading import EngineSizes

from ..audit.talks import talk
from ..engine.families import Family, Layer

SIZES = {
    "hidden_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "intermediate_size": 96,
}
FAMILIES = {
    "llama": Family("llama", "Llama", SIZES, (Layer(),) * 2),
    "qwen2": Family("qwen2", "Qwen2", SIZES, (Layer(),) * 2),
    "qwen3": Family("qwen3", "Qwen3", SIZES, (Layer(),) * 2),
}
WORDS = "all that is said here is of no use to anybody who does not listen"
EAGER = {"enforce_eager": True}


@contextmanager
def saved(family: str, **settings: Any) -> Iterator[Path]:
    """A tiny random model, as a user would have one."""
    with tempfile.TemporaryDirectory() as folder:
        _: PreTrainedModel = FAMILIES[family].save(Path(folder), **settings)
        yield Path(folder)


def engines(folder: Path | str, **options: Any) -> tuple[Engine, VllmEngine]:
    """The same model in both engines, in float32. `dtype` overrides that of the vllm engine."""
    room = {name: options.pop(name) for name in ("store_tokens", "host_tokens") if name in options}
    own = Engine.load(folder, device="cpu", dtype="float32", threads=1, template_differs="accept")
    context, dtype = options.pop("context", 1024), options.pop("dtype", "float32")
    other = VllmEngine.load(
        folder, dtype, EngineSizes(context=context, **room), differs="accept", options=EAGER | options
    )
    return own, other


def shapes(engine: EngineCore) -> list[torch.Tensor]:
    """Log-probabilities `[tokens + 1, vocab]` of forced words over reordered, overlapping and gapped reads."""
    [root] = engine.prefill([Prefill("You are brief.", role="system")])
    a, b = engine.prefill([Prefill("I live by the sea.", parents=[root]), Prefill("My dog is called Rex.")])
    [c] = engine.prefill([Prefill("What is it called?", parents=[root, a])])
    reads: list[tuple[list[int], Any, int | None]] = [
        ([root, a, b, c], None, None),
        ([root, c, a, b], None, None),
        ([b, root, c], None, None),
        ([root, b, c], [0, 200, 30], 400),
        ([root, a, b], [0, 20, 20], 40),
        ([a, c, a], [None, None, 90], None),
    ]
    calls = [
        Decode(parents=parents, offsets=offsets, new_offset=new, forced=forced(engine, WORDS), logits=True)
        for parents, offsets, new in reads
    ]
    ids = engine.decode(calls)
    [again] = engine.decode([Decode(parents=[root, ids[1], ids[3], c], forced=forced(engine, WORDS), logits=True)])
    return [rows(engine, id) for id in (*ids, again)]


def forced(engine: EngineCore, text: str) -> tuple[int, ...]:
    """The token ids to force for a text."""
    return tuple(engine.framing.content.encode(text))


def rows(engine: Any, id: int) -> torch.Tensor:
    """The log-probabilities from which a decode chose its tokens."""
    found: torch.Tensor = engine.logits(id)
    return found.log_softmax(-1)


def apart(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    """The largest difference between log-probabilities."""
    return max(float((one - other).abs().max()) for one, other in zip(ours, theirs, strict=True))


def family(name: str) -> dict[str, Any]:
    """One model family, with every shape of read."""
    with saved(name) as folder:
        own, other = engines(folder)
        return {"worst": apart(shapes(own), shapes(other))}


def bfloat16() -> dict[str, Any]:
    """How far each engine in bfloat16 is from our own in float32."""
    with saved("llama") as folder:
        exact, other = engines(folder, dtype="bfloat16")
        own = Engine.load(folder, device="cpu", dtype="bfloat16", threads=1, template_differs="accept")
        wanted = shapes(exact)
        return {"own": apart(wanted, shapes(own)), "vllm": apart(wanted, shapes(other))}


def tight() -> dict[str, Any]:
    """Many concurrent decodes in a cache that holds only some of them, with chunked prefill."""
    with saved("llama") as folder:
        own, other = engines(folder, context=768, num_gpu_blocks_override=14, max_num_batched_tokens=64, max_num_seqs=8)
        return {"worst": apart(crowd(own), crowd(other)), "begun": BEGUN}


BEGUN: dict[str, int] = {}


def crowd(engine: EngineCore) -> list[torch.Tensor]:
    """The log-probabilities of eight long messages, each over its own prompt."""
    parents = engine.prefill([Prefill(f"{number} {WORDS} " * 4) for number in range(8)])
    if isinstance(engine, VllmEngine):
        end = engine._runner.end

        def counted(job: Any) -> None:
            BEGUN[job.name] = job.begun
            end(job)

        engine._runner.end = counted  # type: ignore[method-assign]
    said = [forced(engine, f"{WORDS} {number} " * 5) for number in range(8)]
    calls = [Decode(parents=[parent], forced=words, logits=True) for parent, words in zip(parents, said, strict=True)]
    return [rows(engine, id) for id in engine.decode(calls)]


def whole_prompts() -> dict[str, Any]:
    """The same without chunked prefill."""
    with saved("llama") as folder:
        own, other = engines(folder, context=768, enable_chunked_prefill=False, max_num_batched_tokens=2048)
        return {"worst": apart(crowd(own), crowd(other))}


def shadows() -> dict[str, Any]:
    """A reader of a long message's shadow, which was encoded while the message was decoded: in a large cache, and in
    one where the shadow is preempted."""
    with saved("llama") as folder:
        own, other = engines(folder, context=768, num_gpu_blocks_override=14, max_num_seqs=8)
        found = {}
        for name, leaders in (("roomy", 1), ("tight", 6)):
            found[name] = apart(_over_shadows(own, leaders), _over_shadows(other, leaders))
        return {"worst": max(found.values()), **found, "blocks": EXTENDED}


EXTENDED: list[int] = []


def _over_shadows(engine: EngineCore, leaders: int) -> list[torch.Tensor]:
    a, b = engine.prefill([Prefill(WORDS), Prefill(f"{WORDS}, and that is all")])
    if isinstance(engine, VllmEngine):
        extend = engine._runner._client.extend

        def counted(job: Any) -> None:
            EXTENDED.append(len(job.more))
            extend(job)

        engine._runner._client.extend = counted  # type: ignore[method-assign]
    calls: list[Any] = []
    for number in range(leaders):
        leader = Decode(parents=[a], forced=forced(engine, f"{number} {WORDS} " * 6))
        calls += [leader, Shadow(leader, parents=[b])]
    ids = engine.submit(calls)
    while not engine.idle:
        engine.step()
    read = [Decode(parents=[b, id], forced=forced(engine, "yes it is"), logits=True) for id in ids[1::2]]
    return [rows(engine, id) for id in engine.decode(read)]


def swapped() -> dict[str, Any]:
    """Readers' log-probabilities when a secret is swapped for one of equal length: under enforce, and under audit."""
    with saved("llama") as folder:
        other = VllmEngine.load(folder, "float32", EngineSizes(1024), differs="accept", options=EAGER)
        return {leakage: _swap(other, leakage) for leakage in ("enforce", "audit")}


def _swap(engine: Any, leakage: Any) -> float:
    plays = [
        replay(talk(0, secret=secret), engine, leakage=leakage) for secret in ("seven red plums", "seven old stones")
    ]
    read = ("reply", "guess", "decision")
    found = [[play[name].logits.log_softmax(-1) for name in read] for play in plays]
    return apart(*found)


def evicted() -> dict[str, Any]:
    """A store with room for some encodings: the others are dropped, and recomputed when they are read."""
    with saved("llama") as folder:
        own, other = engines(folder, store_tokens=220, host_tokens=0)
        return {"worst": apart(crowded(own), crowded(other)), "remade": other.fullness.remade}


def crowded(engine: EngineCore) -> list[torch.Tensor]:
    """Log-probabilities over messages that are read in turn."""
    ids = engine.prefill([Prefill(f"{number} {WORDS}") for number in range(8)])
    found = []
    for id in (*ids, *ids[::-1]):
        [said] = engine.decode([Decode(parents=[id], forced=forced(engine, "yes it is"), logits=True)])
        found.append(rows(engine, said))
        engine.release([said])
    return found


def ended() -> dict[str, Any]:
    """Calls that are cancelled in every state, refused by their guard, or refused in the worker: other calls go on."""
    with saved("llama") as folder:
        other = Engine.load(
            folder,
            engine="vllm",
            dtype="float32",
            context=1024,
            template_differs="accept",
            chat_template_kwargs={"tone": "calm"},
            options=EAGER,
        )
        assert isinstance(other, VllmEngine)
        states, following = _cancelled(other)
        return {
            "states": states,
            "following": following,
            "refused": _refused(other),
            "left": len(other._runner.jobs.live),
            "fingerprint": other.fingerprint,
        }


def _cancelled(engine: VllmEngine) -> tuple[list[str], list[bool]]:
    told, following = [], []
    [root] = engine.prefill([Prefill(WORDS)])
    for steps in (*range(6), 40, 70):  # after 40 steps a shadow had one block and paused; after 70, two
        leader = Decode(parents=[root], forced=forced(engine, WORDS * 6))
        ids = engine.submit([Prefill(f"{steps} {WORDS}"), leader, Shadow(leader, parents=[])])
        kept = engine.submit([Decode(parents=[root], forced=forced(engine, "yes"))])
        for _ in range(steps):
            engine.step()
        following.append(any(job.follows and job.sent for job in engine._runner.jobs.values()))
        engine.cancel(ids)
        while not engine.idle:
            engine.step()
        told.append(engine.message(kept[0]).text)
        engine.release([id for id in (*ids, *kept) if engine.finished(id)])
        engine.check_integrity()
    return told, following


class Refuses:
    """A guard that refuses the nth time it is asked: first at admission, then in the worker."""

    def __init__(self, nth: int) -> None:
        self.left = nth

    def admit(self, id: int, context: Any) -> bool:
        """Permits a read, or refuses it."""
        self.left -= 1
        if self.left == 0:
            raise ConfigError("not for you")
        return False


def _refused(engine: VllmEngine) -> dict[str, Any]:
    [root] = engine.prefill([Prefill(WORDS)])
    said: dict[str, Any] = {}
    for name, guard in (("admission", Refuses(1)), ("worker", Refuses(2))):
        ids = engine.submit([Decode(parents=[root], forced=forced(engine, "no"), guard=guard), Prefill("go on")])
        failed: list[str] = []
        while not engine.idle:
            failed += [f"{failure.id - ids[0]} {type(failure.error).__name__}" for failure in engine.step().failed]
        said[name] = [failed, engine.message(ids[1]).text]
    try:
        engine.step(deterministic=True)
    except AgentchoError as error:
        said["deterministic"] = str(error)
    return said


def words() -> dict[str, Any]:
    """SmolLM2's answers in both engines: greedy, sampled with a seed, from choices, as JSON; and the difference between
    log-probabilities."""
    own, other = engines("smollm2", context=2048)
    ours, theirs = said(own), said(other)
    return {
        "equal": sum(one == their for one, their in zip(ours, theirs, strict=True)),
        "of": len(ours),
        "worst": apart(shapes(own), shapes(other)),
        "texts": theirs[:3],
    }


def said(engine: EngineCore) -> list[str]:
    """Several decoded messages."""
    [s] = engine.prefill([Prefill("You are a helpful assistant.", role="system")])
    a, b = engine.prefill(
        [Prefill("I live in Paris and I love cheese.", parents=[s]), Prefill("My dog is called Rex.")]
    )
    [c] = engine.prefill([Prefill("What is the name of my dog?", parents=[s, a])])
    found = []
    for parents in ([s, a, b, c], [s, b, c], [s, c, a, b]):
        for sampling in (
            Sampling(max_tokens=20, temperature=0),
            Sampling(max_tokens=20, temperature=0.9, seed=5),
            Sampling(choices=("yes", "no, never")),
            Sampling(json_schema={"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}}}),
        ):
            [id] = engine.decode([Decode(parents=parents, sampling=sampling)])
            found.append(engine.message(id).text)
    ids = engine.decode(
        [Decode(parents=p, sampling=Sampling(max_tokens=12, temperature=0)) for p in ([s, c], [b, c], [c])]
    )
    return found + [engine.message(id).text for id in ids]


def games() -> dict[str, Any]:
    """Twenty games at temperature 0 in both engines, each on its own question: how many have equal words, and for the
    others the gap between the two best tokens at the first difference."""
    own, other = engines("smollm2", context=2048)
    how: dict[str, Any] = {"games": GAMES, "temperature": 0, "max_tokens": 24, "display": "none"}
    ours, theirs = (run("debate", engine=engine, **how) for engine in (own, other))
    gaps, equal = list[float](), 0
    for number in range(GAMES):
        said = [{m.id: m for m in play.game(number).messages()} for play in (ours, theirs)]
        differ = [id for id, message in said[0].items() if message.tokens != said[1][id].tokens]
        equal += not differ
        if differ:
            gaps.append(_gap(own, ours, number, differ[0], said[1][differ[0]].tokens))
    return {"equal": equal, "of": GAMES, "gaps": gaps, "words": len({m.text for m in ours.messages()})}


def _gap(own: Engine, play: Played, number: int, id: str, theirs: tuple[int, ...]) -> float:
    """The gap in log-probability between the two best tokens where a message first differs from another."""
    entries = play._said.games[number]
    [message] = [entry.message for entry in entries if entry.message.id == id]
    assert message.words.sampled is not None
    first = next(n for n, (a, b) in enumerate(zip(message.tokens, theirs, strict=False)) if a != b)
    trace = exported(scenario="debate", id=str(number), meta={}, cast=(), entries=entries, tokenizer=None)
    row = replay(trace, own)[id].logits[first - message.words.sampled[0]].log_softmax(-1)
    best, second = row.topk(2).values
    return float(best - second)


GAMES = 20


def divided(heads: int, **division: int) -> dict[str, Any]:
    """A model with `heads` key-value heads, divided among ranks: all shapes of reads, preempted decodes, chunked
    prefill, shadows, and swapped secrets."""
    with saved("llama", num_key_value_heads=heads) as folder:
        small = {"context": 768, "num_gpu_blocks_override": 14, "max_num_batched_tokens": 64, "max_num_seqs": 8}
        own, other = engines(folder, **small, **division)
        found = {
            "shapes": apart(shapes(own), shapes(other)),
            "crowd": apart(crowd(own), crowd(other)),
            "shadows": apart(_over_shadows(own, 1), _over_shadows(other, 1)),
        }
        swaps = {leakage: _swap(other, leakage) for leakage in ("enforce", "audit")}
        more = {"begun": BEGUN, "blocks": EXTENDED, "refused": _refused(other), "ranks": other.fingerprint["ranks"]}
        other.close()
        return found | swaps | more | {"left": len(active_children())}


def killed() -> dict[str, Any]:
    """A rank is killed while tokens are sampled: the errors of this step and the next, and what is left afterwards."""
    with saved("llama", num_key_value_heads=2) as folder:
        own, other = engines(folder, tensor_parallel_size=2)
        own.close()
        [read] = other.prefill([Prefill(WORDS)])
        sample = other._runner.jobs.sample
        workers = active_children()
        executor: Any = PARALLEL[other._runner._client._name].executor  # type: ignore[attr-defined]
        queues = [executor.rpc_broadcast_mq, *(each.worker_response_mq for each in executor.workers)]
        segments = [f"/dev/shm/{queue.buffer.shared_memory.name}" for queue in queues]

        def draw(asking: Any) -> Any:
            assert workers[0].pid is not None
            os.kill(workers[0].pid, SIGKILL)
            return sample(asking)

        other._runner.jobs.sample = draw
        began, told = monotonic(), list[str]()
        for _ in range(2):
            other.submit([Decode(parents=[read], forced=forced(other, WORDS))])
            try:
                other.step()
            except AgentchoError as error:
                told.append(f"{type(error).__name__}: {error}")
        took = monotonic() - began
        kept = other.message(read).text
        other.close()
        left = [each.name for each in workers if each.is_alive()]
        met = executor._met
        left += [str(path) for path in (met, *Path("/dev/shm").glob(f"{met.name}*")) if path.exists()]
        return {"told": told, "seconds": took, "kept": kept, "left": left, "segments": segments}


def words_divided() -> dict[str, Any]:
    """SmolLM2's answers in the own engine, and when divided among three ranks."""
    own, other = engines("smollm2", context=2048, tensor_parallel_size=3)
    ours, theirs = said(own), said(other)
    return {"equal": sum(one == their for one, their in zip(ours, theirs, strict=True)), "of": len(ours)}


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    **{name: lambda name=name: family(name) for name in FAMILIES},  # type: ignore[misc]
    "bfloat16": bfloat16,
    "tight": tight,
    "whole-prompts": whole_prompts,
    "shadows": shadows,
    "swapped": swapped,
    "evicted": evicted,
    "ended": ended,
    "words": words,
    "games": games,
    "tensor": lambda: divided(2, tensor_parallel_size=2),
    "tensor-copied": lambda: divided(1, tensor_parallel_size=2),
    "pipeline": lambda: divided(2, pipeline_parallel_size=2),
    "tensor-and-pipeline": lambda: divided(2, tensor_parallel_size=2, pipeline_parallel_size=2),
    "killed": killed,
    "words-divided": words_divided,
}

if __name__ == "__main__":
    print(json.dumps(CASES[sys.argv[1]]()))

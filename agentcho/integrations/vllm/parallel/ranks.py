"""All ranks of an engine, as the engine's process talks to them.

Guards, the store's pages and all draws stay in that process. A step fills slots in every rank, according to plans made
right after the guards were asked. Then each rank reports what it wrote, the first rank of the last stage provides its
logits, and all ranks are sent the tokens that were drawn. Must not import vLLM.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Protocol

from agentcho.errors import UnsupportedModel
from agentcho.integrations.vllm.gate import INSTEAD, FoundLayer
from agentcho.integrations.vllm.jobs import Job, Jobs
from agentcho.integrations.vllm.mover import Load, Save, Written
from agentcho.integrations.vllm.parallel.division import Division
from agentcho.integrations.vllm.parallel.rank import Refusal, Told
from agentcho.integrations.vllm.parallel.shares import CPU, Heads, SharedPool
from agentcho.integrations.vllm.runner import load_of


class CallsRanks(Protocol):
    """See `RankExecutor`."""

    def call(self, method: str, *args: Any) -> list[Any]: ...
    def check(self, error: Exception) -> None: ...
    def shutdown(self) -> None: ...


class Ranks:
    """The ranks of one engine. See `MovesKV`.

    Args:
        jobs: The requests of the engine.
        division: How the model is divided among them.

    Attributes:
        executor: Calls the ranks; set when vLLM starts them.
    """

    device = CPU

    def __init__(self, jobs: Jobs, division: Division) -> None:
        self._jobs, self.division = jobs, division
        self.executor: CallsRanks | None = None
        self._pool: SharedPool | None = None
        self._loading, self._asking = list[Job](), list[Job]()
        self._firsts, self._total = list[int](), 0

    def _call(self, method: str, *args: Any) -> list[Any]:
        """Call a method in each rank; return the results in rank order, first stage first."""
        assert self.executor is not None
        return self.executor.call(method, *args)

    # -- the store -------------------------------------------------------------------------------------------

    def served(self, model: str, total: int, block: int) -> list[FoundLayer]:
        """The layers of the whole model, with all heads. `UnsupportedModel`: a rank cannot serve its share.

        Args:
            model: The name of the model in errors.
            total: The number of key-value heads of a layer.
            block: The number of slots in a block.
        """
        told: list[list[FoundLayer] | Refusal] = self._call("agentcho_serves", model, block)
        stages = list[list[FoundLayer]]()
        for rank, found in enumerate(told):
            if isinstance(found, Refusal):
                raise UnsupportedModel(model, found.cause, found.remedy)
            heads = Heads.of(rank % self.division.tensor, self.division.tensor, total).number
            if any(layer.heads != heads for layer in found):
                raise UnsupportedModel(model, "its layers have different numbers of key-value heads", INSTEAD)
            if rank % self.division.tensor == 0:
                stages.append(found)
            elif found != stages[-1]:
                raise UnsupportedModel(model, "vLLM has divided its layers unevenly", INSTEAD)
        self._firsts, self._total = [0, *accumulate(len(found) for found in stages)][:-1], total
        return [layer._replace(heads=total) for found in stages for layer in found]

    def share(self, pool: SharedPool) -> None:
        """Have each rank open its share of a store."""
        self._pool = pool
        shares = [
            (first, Heads.of(rank, self.division.tensor, self._total))
            for first in self._firsts
            for rank in range(self.division.tensor)
        ]
        try:
            self._call("agentcho_share", pool.handle, shares)
        finally:
            pool.close()

    def save(self, save: Save) -> None:
        """Copy what a request has computed into the store, each rank its share."""
        self._call("agentcho_save", save)

    def turn_errors(self, blocks: Sequence[int], count: int) -> list[float]:
        """See `Mover.turn_errors`. For each layer of the model, the largest error of its ranks."""
        told: list[list[float]] = self._call("agentcho_turn_errors", tuple(blocks), count)
        stages = [told[first : first + self.division.tensor] for first in range(0, len(told), self.division.tensor)]
        return [max(layer) for ranks in stages for layer in zip(*ranks, strict=True)]

    def probe(self) -> None:
        """Do a trivial operation on the device of each rank. Raises what that raises."""
        self._call("agentcho_probe")

    # -- a step ----------------------------------------------------------------------------------------------

    def plan(self, loading: Sequence[Job], asking: Sequence[Job]) -> tuple[dict[str, Load], set[int]]:
        """What all ranks write in the step that begins, by request name, and the blocks of requests that may not read
        what they would.

        Args:
            loading: The requests that start in it.
            asking: Those that get a token in it.
        """
        for job in self._loading:
            job.error = job.error or RuntimeError("no rank has told what it wrote")
        self._loading, self._asking = [], list(asking)
        loads, refused = dict[str, Load](), set[int]()
        for job in loading:
            try:
                if job.error is not None:
                    raise job.error
                job.check()
                loads[job.name] = load_of(job)
            except Exception as error:
                job.error = error
                refused.update(job.blocks)
            else:
                self._loading.append(job)
        return loads, refused

    def draw(self) -> dict[str, int]:
        """Collect what the ranks have written in this step, and draw its tokens, by request name."""
        loading, asking = self._loading, self._asking
        self._loading, self._asking = [], []
        if not loading and not asking:
            return {}
        told: list[Told] = self._call("agentcho_told", [job.name for job in asking])
        for job in loading:
            _hear(job, [rank.loads.get(job.name) for rank in told])
        if not asking:
            return {}
        assert self._pool is not None
        try:
            tokens = self._jobs.sample(list(zip(asking, self._pool.logits[: len(asking)], strict=True)))
        except BaseException:
            self._call("agentcho_forget")
            raise
        return dict(zip((job.name for job in asking), tokens, strict=True))


def _hear(job: Job, told: Sequence[Written | str | None]) -> None:
    """Note what all ranks have written for a job, or why one has not."""
    for rank, written in enumerate(told):
        if written is None or isinstance(written, str):
            job.error = job.error or RuntimeError(f"rank {rank} has not written what is read ({written})")
            return
        if written != job.expected():
            job.error = job.error or RuntimeError(f"rank {rank} has not written all that is read")
            return
    job.written = job.expected()


PARALLEL: dict[str, Ranks] = {}
"""The ranks of each engine of this process that has several, by its name in `ENGINES`."""

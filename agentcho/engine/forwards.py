"""Runs segments through the model: those of a step, those that judge a repair, and those that make a storage again.

Does not know: calls' order, tiers, what comes of logits.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from agentcho.engine.batch import Batch
from agentcho.engine.encoding import Recipe, Segment, Storage
from agentcho.engine.graphs import Graphs
from agentcho.engine.judging import Judge
from agentcho.engine.lanes import Lanes
from agentcho.engine.model import Model
from agentcho.engine.rope import Rotation
from agentcho.engine.sequence import Sequence as Repairing
from agentcho.engine.spread import batch_of
from agentcho.engine.store import Store


class Forwards:
    """One model over one store. `rotations` are those of its layers."""

    def __init__(self, model: Model, store: Store, lanes: Lanes, rotations: Sequence[Rotation]) -> None:
        self._model, self._store, self._lanes, self._rotations = model, store, lanes, rotations
        alone = set(store.devices) == {model.device}
        self.graphs = Graphs(model) if alone and model.device.type == "cuda" else None

    def step(self, segments: Sequence[Segment]) -> tuple[list[Segment], Tensor]:
        """`run`, by a captured graph where there is one."""
        if self.graphs is None or not all(segment.single for segment in segments):
            return self.run(segments)
        return self.graphs.run(segments)

    def run(self, segments: Sequence[Segment]) -> tuple[list[Segment], Tensor]:
        """One forward, kept; the segments in the order of their rows of logits. Same bits for the same segments."""
        batch = self._batch(segments)
        logits = self._model.forward(batch.ids, batch.positions, batch.wanted, batch)
        batch.commit()
        return batch.segments, logits

    def judge(self, groups: Sequence[Sequence[Repairing]]) -> int:
        """Choose the tokens of repairs that go by how their values deviate, in a forward a group; returns the tokens
        that this fed."""
        judges = (Judge(group, self._batch, self._store) for group in groups if group)
        return sum(judge.judge(self._model.forward) for judge in judges)

    def make(self, storage: Storage) -> int:
        """Compute a storage into its pages, alone, by its recipe; returns the tokens fed. Its sources are in the store.

        Bit for bit what it was, where it was first made in a forward of its own or in feeds that are known.
        """
        assert storage.recipe is not None
        if storage.recipe.feeds:
            return self._make_stepwise(storage, storage.recipe)
        segment = storage.recipe.segment(storage)
        self.run([segment])
        return len(segment.ids)

    def _make_stepwise(self, storage: Storage, recipe: Recipe) -> int:
        """The same forwards that a row of its own went through, in a lane of the same sizes."""
        context, fed = recipe.context, 0
        lane = self._lanes.open(context.length + 2 * recipe.feeds[0], alone=True)
        try:
            for feed in recipe.feeds:
                self._lanes.ensure(lane, feed + (lane.length if fed else context.length))
                ids, pieces = recipe.tokens[fed : fed + feed], () if fed else context.pieces
                self.run([Segment(ids, context.start + fed, pieces, lane=lane)])
                fed += feed
            self._store.write_all(storage.block, lane.all(context.length, lane.length))
        finally:
            self._lanes.close(lane)
        return fed

    def _batch(self, segments: Sequence[Segment]) -> Batch:
        return batch_of(segments, self._store, self._rotations, self._model.device)

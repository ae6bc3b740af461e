"""KVCOMM (arXiv 2510.12872): keys and values with the offsets of anchors added.

Keys are compared at a common position: each is rotated from where it was encoded to where the message is now. Keys of
the first layer do not depend on the context, and keep the values of their base. Independent of how anchors are chosen
and weighted.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from agentcho.engine.call_layout import KVEntry
from agentcho.runner.kv.kv_pool import PagePool
from agentcho.runner.kv.rope import Rotation


@torch.inference_mode()
def assemble_entry(pages: PagePool, rotations: Sequence[Rotation], entry: KVEntry) -> None:
    """Write the keys and values of an entry by its recipe: those of its base, plus for each anchor its weight times the
    difference between its real and its base ones, token by token. All of these must be in the store."""
    recipe = entry.recipe
    assert recipe is not None
    assert recipe.base is not None
    start, length = recipe.context.start, entry.length
    for layer, rotation in enumerate(rotations):
        keys, values = _there(
            pages=pages, layer=layer, rotation=rotation, entry=recipe.base.entry, start=start, length=length
        )
        for real, base, weight in recipe.anchors if layer else ():
            ours = _there(pages=pages, layer=layer, rotation=rotation, entry=real.entry, start=start, length=length)
            reused = _there(pages=pages, layer=layer, rotation=rotation, entry=base.entry, start=start, length=length)
            keys = keys + weight * (ours[0] - reused[0])
            values = values + weight * (ours[1] - reused[1])
        pages.write(entry.block, layer, keys.to(pages.dtype), values.to(pages.dtype))


def _there(
    pages: PagePool, layer: int, rotation: Rotation, entry: KVEntry, start: int, length: int
) -> tuple[Tensor, Tensor]:
    """The first `length` keys and values `[heads, length, dim]` of an entry in one layer, in float32, with the keys
    rotated so that its first token is at `start`."""
    keys, values = pages.read(entry.block, layer)
    return rotation.turn(keys[:, :length].float(), start - entry.position), values[:, :length].float()

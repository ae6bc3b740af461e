"""From what a user names to the parts of an engine: a model, its framing, its proofs, and how much may be kept.

Does not know: engines, calls.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from agentcho.adapter import Adapter
from agentcho.engine.framing import Framing, derive
from agentcho.engine.gate import Gate, LayerProof, check_config
from agentcho.engine.model import Model, find
from agentcho.engine.store import default_host_tokens, default_tokens


class Parts(NamedTuple):
    """What an engine is made of; `store_tokens` and `host_tokens` bound what it keeps."""

    model: Model
    framing: Framing
    proofs: list[LayerProof]
    store_tokens: int
    host_tokens: int
    context: int


def load(
    model: str | Path, device: str, dtype: str, adapter: Adapter | None, merge: bool, context: int | None,
    store_tokens: int | None, host_tokens: int | None,
) -> Parts:  # fmt: skip
    """See `Engine.load`. The store's default size is of the memory that the weights leave free."""
    source = find(model)
    check_config(source, context)
    loaded = Model.load(source, device, dtype)
    loaded = loaded if adapter is None else loaded.adapted(adapter, merge)
    framing = derive(loaded.tokenizer, source.name, loaded.end_tokens())
    positions = min(context or loaded.context, loaded.context)
    proofs = Gate(loaded, positions).prove()
    shapes = [proof.shape for proof in proofs]
    room = store_tokens or default_tokens(shapes, loaded.device, loaded.dtype)
    outside = default_host_tokens(shapes, loaded.dtype) if host_tokens is None else host_tokens
    return Parts(loaded, framing, proofs, room, outside, positions)

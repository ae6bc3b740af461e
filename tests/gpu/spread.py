"""A model of the shape of Llama-3.1-8B on two GPUs that are not present, spread as by `device_map`: the transfers
between them in one step. `python -m tests.gpu.spread` prints them.

Runs in a process of its own: see `fake`.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from accelerate import dispatch_model
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from agentcho.runner.model import model as models

from .fake import COPIES, CUDA, stage

OTHER = torch.device("cuda", 1)
LAYERS = 32


def placed(name: str) -> torch.device:
    """The device of a module: the first half of the layers on one GPU, the others and what follows on the other."""
    words = name.split(".")
    if words[:2] == ["model", "layers"] and len(words) > 2:
        return CUDA if int(words[2]) < LAYERS // 2 else OTHER
    return OTHER if words[:2] == ["model", "norm"] or words[0] == "lm_head" else CUDA


def spread(network: nn.Module) -> None:
    """Make accelerate move tensors between the GPUs, as `from_pretrained` does with a device map."""
    layers = [f"model.layers.{number}" for number in range(LAYERS)]
    names = ["model.embed_tokens", "model.rotary_emb", *layers, "model.norm", "lm_head"]
    dispatch_model(network, {name: str(placed(name)) for name in names}, main_device=str(CUDA), force_hooks=True)


class Between(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the transfers between the GPUs by dtype and shape."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.moved = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = str(func.overloadpacket).removeprefix("aten.")
        given, outs = ([x for x in tree_leaves(each) if isinstance(x, Tensor)] for each in ((args, kwargs), out))
        devices = {each.device for each in (*given, *outs)}
        if name in COPIES and {CUDA, OTHER} <= devices:
            self.moved[f"{given[-1].dtype} {tuple(given[-1].shape)}"] += 1
        return out


@contextmanager
def _between() -> Iterator[Counter[str]]:
    with Between() as between:
        yield between.moved


def measured() -> dict[str, dict[str, int]]:
    """The transfers between the GPUs in a decode step of 8 rows, in their first step, and in a prefill of 64 tokens."""
    with stage(place=placed, spread=spread) as on, pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "_kept", lambda wanted, tokens: slice(0, len(wanted)))  # avoids a value from the device
        assert len(set(on.engine.store.devices)) == 2
        told = on.messages(8192, 8)
        found = dict[str, dict[str, int]]()
        on.begin(told, 8)
        for name in ("first tokens", None, "a decode step"):
            with _between() as moved:
                on.engine.step()
            if name is not None:
                found[f"{name} of 8 rows"] = dict(moved)
        on.end()
        return found


def main() -> None:
    """Print the transfers; with `--json`, for another process."""
    assert os.environ.get("TRITON_INTERPRET") == "0", "give TRITON_INTERPRET=0"
    found = measured()
    if sys.argv[1:] == ["--json"]:
        print(json.dumps(found))
        return
    for name, moved in found.items():
        print(f"{name}: {sum(moved.values())} transfers: {moved}")


if __name__ == "__main__":
    main()

"""The whole engine at the shape of Llama-3.1-8B over fake tensors on `cuda:0`: shapes and devices are real, numbers are
not. `python -m tests.gpu.fake` prints how many kernels each kind of step launches.

An operation over tensors of two devices fails, and so does one that needs values from the device, for which Python
would wait. Launches of Triton kernels are counted, not run. Runs in a process of its own with `TRITON_INTERPRET=0`, so
that Triton compiles. It does not show what a kernel computes, or how long it takes.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AttentionInterface

from agentcho import Decode, Engine, Prefill
from agentcho.engine.sequence import SHORT
from agentcho.engine.template import derive
from agentcho.protocol.call import Shadow
from agentcho.runner.attention import dense, triton_paged
from agentcho.runner.attention.base import Locality
from agentcho.runner.kv import page_tables, triton_gather
from agentcho.runner.kv.kv_pool import LayerShape
from agentcho.runner.kv.rope import Rotation
from agentcho.runner.model import fused
from agentcho.runner.model import model as models
from agentcho.runner.model.model import ATTENTION, Model, find
from agentcho.runner.reuse_check import LayerProof

CUDA = torch.device("cuda", 0)
SHAPE, STORE = "shape:llama-3.1-8b", 1 << 17
HEADS, DIM = 8, 128
COMPOSED = {"logsumexp": 9, "scaled_dot_product_attention": 4, "repeat": 2}
"""Operations that launch several kernels, with a lower bound. On CUDA, torch's `rms_norm` launches one."""
SHADOWED = SHORT + 8
"""The number of steps after which shadows run: a shadow starts only after the first words of its message."""
NO_KERNEL = {"empty", "new_empty", "empty_strided", "empty_like", "new_empty_strided", "detach", "lift_fresh"}
COPIES = {"to", "_to_copy", "copy_", "cpu", "_copy_from"}


def why_not() -> str | None:
    """What is missing on this machine; None: nothing."""
    if shutil.which("g++") is None:
        return "there is no g++, which compiles the guard of a device that is not there"
    return None if find_spec("triton") else "Triton is not installed"


def register_guard() -> None:
    """Let torch index fake GPU tensors. Call once per process."""
    torch_itself = Path(torch.__file__).parent
    libraries = [f"-L{torch_itself / 'lib'}", "-lc10", f"-Wl,-rpath,{torch_itself / 'lib'}"]
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "guard.so"
        words = ["g++", "-shared", "-fPIC", "-std=c++20", "-O1", f"-I{torch_itself / 'include'}"]
        words += [str(Path(__file__).with_name("guard.cpp")), *libraries]
        subprocess.run([*words, "-o", str(built)], check=True)
        ctypes.CDLL(str(built))


class Counted(NamedTuple):
    """The counts of one step: a lower bound on kernels, the Triton kernels among them, and the bytes of each transfer
    between host and device, by "h2d" and "d2h". `inside`: transfers within a forward."""

    kernels: int
    triton: int
    transfers: dict[str, list[int]]
    inside: list[str]


class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the kernels of operations on the device, and transfers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ops, self.triton, self.transfers = Counter[str](), 0, dict[str, list[int]]()
        self.inside, self.forwards = list[str](), 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        name = str(func.overloadpacket).removeprefix("aten.")
        if name.startswith("prim"):
            return func(*args, **kwargs)
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        out = func(*args, **kwargs)
        outs = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        kinds = {tensor.device.type for tensor in (*given, *outs)}
        known = {tensor.untyped_storage()._cdata for tensor in given}
        fresh = any(tensor.untyped_storage()._cdata not in known for tensor in outs)
        if (not fresh and not func._schema.is_mutable) or name in NO_KERNEL or kinds <= {"cpu"}:
            return out
        if len(kinds) > 1 and name in COPIES:
            direction = "h2d" if outs and outs[0].device.type == "cuda" else "d2h"
            self.transfers.setdefault(direction, []).append(max(tensor.nbytes for tensor in given))
            if self.forwards:
                self.inside.append(f"{direction} {name} {[tuple(tensor.shape) for tensor in given]}")
            return out
        self.ops[name] += COMPOSED.get(name, 1)
        return out

    @property
    def found(self) -> Counted:
        """The counts so far."""
        return Counted(sum(self.ops.values()) + self.triton, self.triton, self.transfers, self.inside)


class Stage:
    """An engine, and the counter of its steps."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._counting: Counting | None = None
        model, real = engine._model, engine._model.forward

        def forward(*given: Any, **more: Any) -> Tensor:
            if (counting := self._counting) is not None:
                counting.forwards += 1
            try:
                return real(*given, **more)
            finally:
                if counting is not None:
                    counting.forwards -= 1

        model.forward = forward  # type: ignore[method-assign]

    def launched(self, *given: Any, **more: Any) -> None:
        """Replaces running a Triton kernel; checks that all its tensors are on one CUDA device."""
        tensors = [each for each in (*given, *more.values()) if isinstance(each, Tensor)]
        devices = {tensor.device for tensor in tensors}
        assert len(devices) == 1, [(tensor.shape, tensor.device) for tensor in tensors]
        assert devices.pop().type == CUDA.type
        if self._counting is not None:
            self._counting.triton += 1

    @contextmanager
    def counting(self) -> Iterator[Counting]:
        """A context in which operations are counted."""
        with Counting() as counting:
            self._counting = counting
            try:
                yield counting
            finally:
                self._counting = None

    def step(self) -> Counted:
        """Run and count one step of the engine."""
        with self.counting() as counting:
            self.engine.step()
        return counting.found

    def messages(self, tokens: int, count: int) -> list[int]:
        """Encode `count` messages with about `tokens` tokens in total."""
        each = tokens // count
        told = [tuple(40 + (number + place) % 50 for place in range(each)) for number in range(count)]
        return list(self.engine.prefill([Prefill("", tokens=words) for words in told]))

    def begin(self, parents: list[int], rows: int, said: int = 12) -> None:
        """Start `rows` decodes over these messages with forced tokens."""
        self.engine.submit([Decode(parents=parents, forced=(60,) * said) for _ in range(rows)])

    def end(self) -> None:
        """Cancel all calls."""
        self.engine.cancel([call.id for call in self.engine.debug.calls])


def _alone(name: str) -> torch.device:
    return CUDA


@contextmanager
def stage(
    place: Callable[[str], torch.device] = _alone, spread: Callable[[nn.Module], None] = lambda network: None
) -> Iterator[Stage]:
    """An engine at the shape of Llama-3.1-8B on a GPU that is not present, without CUDA graphs: what a graph would
    capture is counted. `place` gives the device of each module by name; `spread` then gets the network."""
    register_guard()
    frequencies = torch.tensor([5e5 ** (-pair / 64) for pair in range(64)], dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch, FakeTensorMode(allow_non_fake_inputs=True):
        patch.setattr(torch.cuda, "synchronize", lambda *_: None)
        patch.setattr(torch.cuda, "empty_cache", lambda: None)
        patch.setattr(torch.cuda, "mem_get_info", lambda *_: (60 << 30, 80 << 30))
        for trial in (triton_paged.TRIAL, triton_gather.TRIAL):
            patch.setattr(trial, "works", lambda kind: True)
        patch.setattr(fused, "_why_not", lambda *_: None)
        patch.setattr(dense, "_can_flash", lambda *_: True)
        patch.setattr(dense, "_lower_right", lambda own, keys: None)  # its tensors cannot be fake
        phases = {at: torch.zeros(DIM // 2, dtype=torch.long, device=at) for at in (CUDA, torch.device("cuda", 1))}
        patch.setattr(triton_paged, "_phases", lambda _, device: phases[device], raising=False)
        _known_sizes(patch)
        from triton.runtime.jit import JITFunction

        stages = list[Stage]()

        def run(kernel: Any, *given: Any, grid: Any, warmup: bool, **more: Any) -> None:
            for each in stages:
                each.launched(*given, **more)

        patch.setattr(torch.cuda, "device", lambda device: _nothing())
        patch.setattr(JITFunction, "run", run)
        engine = _made(Rotation("half", frequencies), place, spread)
        engine._runner.graphs = None
        stages.append(Stage(engine))
        yield stages[0]


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _known_sizes(patch: pytest.MonkeyPatch) -> None:
    """Provide the sizes by which tables are filled on the CPU, since fake tensors have no values."""
    repeated, write, size = Tensor.repeat_interleave, page_tables.Tables.write, [0]

    def repeat(tensor: Tensor, repeats: Any, *given: Any, **more: Any) -> Tensor:
        if isinstance(repeats, Tensor):
            more.setdefault("output_size", size[0])
        return repeated(tensor, repeats, *given, **more)

    def told(tables: page_tables.Tables, row: int, pieces: Any) -> None:
        size[0] = sum(piece.entry.length for piece in pieces)
        write(tables, row, pieces)

    patch.setattr(Tensor, "repeat_interleave", repeat)
    patch.setattr(page_tables.Tables, "write", told)


def _made(rotation: Rotation, place: Callable[[str], torch.device], spread: Callable[[nn.Module], None]) -> Engine:
    source = find(SHAPE)
    AttentionInterface.register(ATTENTION, models._answer)
    tokenizer = models.read_tokenizer(source)
    framing = derive(tokenizer, source.name)
    network: Any = models._made(source, torch.bfloat16, torch.device("meta"))
    for inside, module in network.named_modules():
        for name, weight in list(module._parameters.items()):
            if weight is not None:
                there = torch.empty(weight.shape, dtype=weight.dtype, device=place(inside))
                module._parameters[name] = torch.nn.Parameter(there, requires_grad=False)
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype, device=place(inside))
    spread(network)
    layers = range(source.config.num_hidden_layers)
    shapes = [LayerShape(HEADS, DIM, DIM, place(f"model.layers.{layer}")) for layer in layers]
    proofs = [LayerProof(layer, rotation, Locality(), shapes[layer], 0, 0, 0, plain=True) for layer in layers]
    model = Model(source, network.eval(), tokenizer)
    model.fused = fused.fuse(network)
    return Engine(model, framing, proofs, STORE, 0, STORE)


def live() -> int:
    """Bytes on the device: the storages of all live tensors."""
    tensors = (each for each in gc.get_objects() if type(each) in (FakeTensor, torch.nn.Parameter))
    there = {each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in tensors if each.is_cuda}
    return sum(there.values())


def measured() -> dict[str, dict[str, Any]]:
    """The counts of every kind of step by name, and the bytes in use."""
    found, taken = dict[str, Counted](), dict[str, int]()
    with stage() as on:
        assert on.engine.debug.slots.in_place
        taken["weights and an empty store"] = live()
        told = on.messages(8192, 8)
        for name, shadows in (("2 rows over 8k", False), ("2 rows over 8k and their shadows", True)):
            before = live()
            calls = [Decode(parents=told, forced=(60 + row,) * 2 * SHADOWED) for row in range(2)]
            on.engine.submit([*calls, *(Shadow(call, told[:-1]) for call in calls if shadows)])
            for _ in range(SHADOWED):
                on.engine.step()
            assert len(on.engine.debug.rows) == 2 * (1 + shadows), on.engine.debug.rows
            taken[name] = live() - before
            on.end()
        lengths = [on.messages(tokens, 1) for tokens in (100, 600, 3000, 9000)]
        on.engine.submit([Decode(parents=told, forced=(60,) * 90) for told in lengths])
        on.step()
        on.step()
        found["a decode step of 4 rows over contexts of other lengths each"] = on.step()
        on.end()
        with on.counting() as counting:
            on.engine.prefill([Prefill("", tokens=(50,) * 60, parents=told)])
        found["a tail of 64 tokens over 8k"] = counting.found
        for rows in (1, 8):
            name = f"{rows} row{'s' * (rows > 1)} over 8k"
            on.begin(told, rows)
            found[f"first tokens of {name}"] = on.step()
            on.step()
            found[f"a decode step of {name}"] = on.step()
            on.end()
        taken["all of it"] = live()
        refused = triton_paged.TRIAL.refused | triton_gather.TRIAL.refused
        assert not refused, refused
    return {name: each._asdict() for name, each in found.items()} | {
        name: {"bytes": number} for name, number in taken.items()
    }


def main() -> None:
    """Print the counts; with `--json`, for another process."""
    assert os.environ.get("TRITON_INTERPRET") == "0", "give TRITON_INTERPRET=0"
    found = measured()
    if sys.argv[1:] == ["--json"]:
        print(json.dumps(found))
        return
    for name, each in found.items():
        if "bytes" in each:
            print(f"{name}: {each['bytes'] / 1e9:.2f} GB")
            continue
        moved = {way: f"{len(sizes)} of {sum(sizes):,} bytes" for way, sizes in each["transfers"].items()}
        print(f"{name}: {each['kernels']} kernels at least, {each['triton']} of Triton; transfers {moved}")


if __name__ == "__main__":
    main()

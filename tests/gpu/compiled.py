"""Triton's kernels compiled for GPUs that are not present, with the specialization of the JIT: registers, stack, and
the instructions of the longest loop. `python -m tests.gpu.compiled` prints them.

Runs in a process of its own with `TRITON_INTERPRET=0`, so that Triton compiles. The disassemblers come with Triton.
It does not show whether a kernel runs, or how fast.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch

from agentcho.runner.attention import triton_paged
from agentcho.runner.attention.base import Locality
from agentcho.runner.kv.rope import Rotation

POINTERS = ("asked", "keys", "values", "table", "counts", "rows", "at", "turns", "blocks", "out", "sums")
NUMBERS = {torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32"}
TARGETS = (80, 90)


class Case(NamedTuple):
    """What a kernel is compiled for: dtype, query heads per key head, dimensions, and rotation of keys."""

    dtype: torch.dtype
    groups: int
    dim: int
    rotation: Rotation
    locality: Locality = Locality()
    cap: float | None = None


class Use(NamedTuple):
    """The resources of one compiled kernel."""

    registers: int
    stack: int
    loop: int


def cases() -> dict[str, Case]:
    """The case of Llama-3.1-8B, and one with every optional feature."""
    angles = torch.tensor([5e5 ** (-pair / 64) for pair in range(64)], dtype=torch.float64)
    odd = Rotation("interleaved", angles[:32])
    return {
        "llama-3.1-8b": Case(torch.bfloat16, 4, 128, Rotation("half", angles)),
        "interleaved, sliding, capped": Case(torch.float32, 4, 128, odd, Locality("sliding", 4096), 2.0),
    }


def why_not() -> str | None:
    """What is missing on this machine; None: nothing."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    missing = [name for name in ("cuobjdump", "nvdisasm") if not _tool(name).exists()]
    return f"Triton has no {missing[0]} here" if missing else None


def _tool(name: str) -> Path:
    import triton

    return Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name


def compiled(case: Case, own: bool, target: int) -> Use:
    """Compile one kernel: over pools, or over rows' `own` tokens."""
    from agentcho.runner.attention.triton_kernel import weigh

    made: Any = triton_paged.PagedKind
    cuda = torch.device("cuda")
    kind = made(cuda, case.dtype, 8, case.groups, case.dim, case.dim, case.rotation, case.locality, 0.1, case.cap)
    assert tuple(weigh.arg_names) == (*POINTERS, "width", "parts", "first", "scale", "cap", "form")
    number, whole = NUMBERS[case.dtype], "*i64" if own else "*i32"
    types = [number] * 3 + [whole] * 2 + ["*i64"] * 3 + ["*i32"] + ["*fp32"] * 2
    types += ["i32"] * 3 + ["fp32"] * 2 + ["constexpr"]
    return built(weigh, dict(zip(weigh.arg_names, types, strict=True)), kind.form(own), target, ("width",))


def others(target: int) -> dict[str, Use]:
    """The kernels of fused modules and the gathering kernel, at the shape of Llama-3.1-8B."""
    from agentcho.runner.model.fused import COLUMNS, HEADS
    from agentcho.runner.model.fused_kernels import GateForm, TurnForm, gate, turn

    kernels = {"rotary embedding": (turn, TurnForm(32, 8, 128, HEADS, 64)), "SwiGLU": (gate, GateForm(14336, COLUMNS))}
    found = {"gather": _gather(target)}
    return found | {
        name: built(
            kernel,
            dict.fromkeys(kernel.arg_names, "*bf16") | {"form": "constexpr"},
            form,
            target,
            options={"enable_fp_fusion": False},
        )
        for name, (kernel, form) in kernels.items()
    }


def _gather(target: int) -> Use:
    from agentcho.runner.kv.gather_kernel import gather
    from agentcho.runner.kv.triton_gather import GatherKind

    kind = GatherKind(torch.device("cuda"), torch.bfloat16, 8, 128, 128, cases()["llama-3.1-8b"].rotation)
    types = ["*bf16"] * 4 + ["*i64", "*i32", "*fp32", "*bf16", "*bf16", "i32", "i32", "constexpr"]
    return built(gather, dict(zip(gather.arg_names, types, strict=True)), kind.form, target)


def built(
    kernel: Any,
    signature: dict[str, str],
    form: Any,
    target: int,
    divisible: tuple[str, ...] = (),
    options: dict[str, Any] | None = None,
) -> Use:
    """Compile a kernel for a form. Pointers and arguments in `divisible` are declared divisible by 16."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = list(kernel.arg_names)
    aligned = [place for place, name in enumerate(names) if signature[name].startswith("*") or name in divisible]
    attributes = {(place,): [["tt.divisibility", 16]] for place in aligned}
    source = ASTSource(kernel, signature, {"form": form}, attributes)
    made = triton.compile(source, target=GPUTarget("cuda", target, 32), options=options or {})
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        usage = _run("cuobjdump", "-res-usage", file.name)
        listing = _run("nvdisasm", "-c", file.name)
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    assert found is not None, usage
    return Use(int(found[1]), int(found[2]), longest_loop(listing))


def _run(tool: str, *words: str) -> str:
    return subprocess.run([str(_tool(tool)), *words], capture_output=True, text=True, check=True).stdout


def longest_loop(listing: str) -> int:
    """The instructions of the longest loop in a disassembly: from a label to the last jump back to it."""
    labels, count, longest = dict[str, int](), 0, 0
    for line in listing.splitlines():
        if label := re.match(r"(\.L_x_\d+):", line):
            labels[label[1]] = count
        elif re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+\S", line):
            count += 1
            if (jump := re.search(r"\bBRA.*`\((\.L_x_\d+)\)", line)) and jump[1] in labels:
                longest = max(longest, count - labels[jump[1]])
    return longest


def measured() -> dict[str, Use]:
    """Every case, over pools and over own tokens, and all other kernels, for each kind of GPU."""
    return {
        f"{name}, {'own' if own else 'stored'}, sm_{target}": compiled(case, own, target)
        for name, case in cases().items()
        for own in (False, True)
        for target in TARGETS
    } | {f"{name}, sm_{target}": use for target in TARGETS for name, use in others(target).items()}


def main() -> None:
    """Print the results; with `--json`, for another process."""
    assert os.environ.get("TRITON_INTERPRET") == "0", "give TRITON_INTERPRET=0"
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("TRITON_CACHE_DIR", cache)
        found = measured()
    if sys.argv[1:] == ["--json"]:
        print(json.dumps({name: use._asdict() for name, use in found.items()}))
        return
    for name, use in found.items():
        print(f"{name}: {use.registers} registers, stack {use.stack}, a loop of {use.loop} instructions")


if __name__ == "__main__":
    main()

"""The page on GPUs, from the result file of `python -m tools.bench gpu-day`, if there is one: `python -m tools.pages
gpu docs/results docs/gpu.md`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tools.pages.render import render, write

RESULT, RUNNING = "gpu.json", "running"
"""The name of the result file, and the state of a part that never ended."""
STREAMED, FIRST_TOKEN, KERNELS, LAUNCHES = 1.5, 0.015, 700, 400
"""Limits: a step relative to streaming the weights, seconds of a first token over 8k, kernels of a step, and kernels of
a first token."""
REPLAYED = ((1, 0.95), (16, 0.90), (64, 0.90))
"""The minimum share of replayed steps of a crowd, by its number of agents."""
Found = Mapping[str, Any]


class Goal(NamedTuple):
    """A target: what it is about, its bound, what was reached, and whether it is met. It may not have been measured."""

    what: str
    bound: str
    reached: str = ""
    met: bool | None = None

    @property
    def row(self) -> tuple[str, ...]:
        """Its row in a table."""
        how = "not measured" if self.met is None else "met" if self.met else "missed"
        return self.what, self.bound, self.reached, how


def page(results: Path) -> str:
    """The whole page."""
    file = results / RESULT
    return page_of(json.loads(file.read_bytes()) if file.is_file() else None)


def page_of(result: Found | None) -> str:
    """The page for a result. For a result from a machine without a GPU it only says that nothing was measured."""
    parts = {} if result is None else {part["name"]: part for part in result["parts"]}
    gpu = parts.get("machine", {}).get("found", {}).get("gpu")
    if result is None or gpu is None:
        return render("gpu", gpu=None, proofs=_table(("what", "how"), PROOFS))
    found = {name: part["found"] for name, part in parts.items()}
    return render(
        "gpu",
        gpu=f"{gpu['name']}, {gpu['total_memory'] / 1e9:.0f} GB",
        command=result["command"],
        machine=result["machine"],
        packages=found["machine"]["packages"],
        load=found.get("load", {}),
        ended=result["ended"] or "killed",
        goals=_table(("target", "", "reached", ""), (goal.row for goal in goals(found))),
        parts=_table(("part", "", "seconds", "GB at most", ""), map(_part, parts.values())),
        steps=_table(STEP_HEADS, _steps(found.get("steps", {}), found.get("peers", {}))),
        first=_table(("", "ms", "the second token, ms"), _first(found.get("first tokens", {}))),
        profile=_table(("a step of", "kernels", "ms", "device busy, ms", "gaps, ms"), _profile(found)),
        kernel=_table(("", "GB/s"), _kernel(found.get("kernel", {}))),
        attention=_table(
            ("", "a new length, ms (median)", "the slowest, ms", "again, ms"), _lengths(found.get("attention", {}))
        ),
        crowd=_table(("", "steps", "rows a step", "tokens/s", "replayed", "pools grew"), _crowd(found)),
        workflows=_table(
            ("", "first token, ms", "end to end, s", "forwards", "replayed"), _flows(found.get("workflows", {}))
        ),
        doctor=found.get("doctor", {}).get("rows", []),
        waits=_table(("Python waits at", "times"), _waits(found.get("synchronisation", {}))),
        failures=[part for part in parts.values() if part["state"] == "failed"],
        proofs=_table(("what", "how"), PROOFS),
    )


PROOFS = (
    (
        "the engine's tests should run unchanged on a GPU",
        "no test names its device, and on a simulated GPU operations that mix tensors of two devices fail "
        "(`tests/engine/test_device.py`)",
    ),
    (
        "with a model spread over two GPUs, a decode step moves only hidden states, logits and, once each, the tensors "
        "that all layers share",
        "simulated GPUs (`tests/engine/test_spread.py`), and fake tensors on two devices (`tests/gpu/spread.py`)",
    ),
    (
        "the tokens that schemas, choices and limits allow go to the device as bits, in one copy per step; the sampler "
        "waits only for tokens",
        "counts of operations and copies (`tests/engine/test_sampling.py`)",
    ),
    (
        "one copy moves many encodings out of the store or back; lanes never take more memory than there is",
        "counts of copies, and a simulated GPU memory (`tests/engine/test_memory.py`, `tests/engine/test_stored.py`)",
    ),
    (
        "the kernel gives the same result as dense attention",
        "Triton's interpreter (`tests/engine/test_paged.py`), also at the sizes of real models (`tests/gpu`)",
    ),
    (
        "RMSNorm, the rotary embedding and SwiGLU, one kernel each, give the same results as the modules of "
        "transformers, and a token's bits do not depend on the other tokens",
        "Triton's interpreter (`tests/engine/test_fewer_kernels.py`); RMSNorm is torch's own kernel, which is compared "
        "when a model is loaded",
    ),
    (
        "contexts that one kernel gathers and rotates match a rotation in float64, token by token",
        "Triton's interpreter (`tests/engine/test_turned.py`)",
    ),
    (
        "in the whole engine at the shape of Llama-3.1-8B, no operation mixes tensors of two devices or makes Python "
        "wait for the device, and a decode step's forward contains no transfer",
        "fake tensors on `cuda:0` (`tests/gpu/fake.py`); Triton launches are counted and not run",
    ),
    (
        "the number of kernels in a decode step and of launches for a first token, and the registers and loops of "
        "kernels for sm_80 and sm_90",
        "counts over fake tensors and in Triton's compiled code; they may only go down (`tests/gpu/limits.json`), and "
        "`python -m tests.gpu` prints them",
    ),
    (
        "this program keeps what it measured, whenever it is killed",
        "real processes on `--device cpu` (`tests/bench/test_gpu_day.py`)",
    ),
    (
        "a GPU that is busy, full, of an unknown kind or without a driver gives an error of one line",
        "faked torch errors (`tests/engine/test_placement.py`)",
    ),
)
"""What is shown without a GPU, and how."""
STEP_HEADS = ("", "least, ms", "replayed, ms", "of steps", "eager, ms", "generate, ms", "continuous batching, ms")


def goals(found: Mapping[str, Found]) -> Iterator[Goal]:
    """All targets."""
    step = found.get("steps", {}).get("1 row over 512", {})
    streaming = Goal("a step of 1 row over 512 ÷ streaming the weights", f"≤ {STREAMED}")
    if "replayed" in step and (alone := found.get("rates", {}).get("streaming them")):
        ratio = median(step["replayed"]) / alone
        streaming = streaming._replace(reached=f"{ratio:.2f}", met=ratio <= STREAMED)
    yield streaming
    tails = [each["seconds"] for name, each in found.get("first tokens", {}).items() if name != "afresh"]
    of = f"the worst of {len(tails)} new lengths" if tails else "with new lengths"
    first = Goal(f"first token over 8k that is there, {of}", f"≤ {1000 * FIRST_TOKEN:g} ms")
    yield first._replace(reached=f"{1000 * max(tails):.1f} ms", met=max(tails) <= FIRST_TOKEN) if tails else first
    traced = found.get("profile", {})
    for what, name, most in (
        ("kernels of a decode step of 1 row", "1 row, eager", KERNELS),
        ("launches of a first token, 64 tokens over 8k", "first token", LAUNCHES),
    ):
        goal = Goal(what, f"≤ {most}")
        if name in traced:
            count = traced[name]["kernels"]
            goal = goal._replace(reached=f"{count:.0f}", met=count <= most)
        yield goal
    for agents, least in REPLAYED:
        for name in (_agents(agents), f"{_agents(agents)}, shadows"):
            goal = Goal(f"steps replayed, {name}", f"≥ {least:.0%}")
            if (each := found.get("crowd", {}).get(name)) is not None:
                share = each["replays"] / each["steps"]
                goal = goal._replace(reached=f"{share:.0%}", met=share >= least)
            yield goal
    for name in ("kernel tests", "engine tests"):
        goal = Goal(name, "none fail")
        if counts := found.get(name, {}).get("counts"):
            wrong = sum(counts.get(each, 0) for each in ("failed", "error", "errors"))
            goal = goal._replace(reached=f"{wrong} of {wrong + counts.get('passed', 0)} fail", met=wrong == 0)
        yield goal


def _agents(count: int) -> str:
    return f"{count} agent{'s' if count > 1 else ''}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. Empty without rows."""
    found = list(rows)
    lines = [heads, ["---" for _ in heads], *found] if found else []
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f}"


def _part(part: Found) -> tuple[str, ...]:
    peak = f"{part['peak'] / 1e9:.1f}" if "peak" in part else ""
    why = str(part.get("why", "")).replace("|", "\\|").partition(" Carry the wheels")[0]
    state = "the run ended in it" if part["state"] == RUNNING else part["state"]
    return part["name"], part["title"], str(part.get("seconds", "")), peak, f"{state}{why and f': {why}'}"


def _steps(found: Found, peers: Found) -> Iterator[tuple[str, ...]]:
    for name, each in found.items():
        if "why" in each:
            yield name, each["why"], *[""] * 5
            continue
        beside = (peers.get(f"{name}, {arm}", {}) for arm in ("generate", "continuous"))
        others = (_ms(one["seconds"]) if "seconds" in one else one.get("why", "") for one in beside)
        replayed, eager = (_ms(median(each[how])) for how in ("replayed", "eager"))
        yield name, _ms(each["least"]), replayed, f"{each['replays']} of {each['steps']}", eager, *others


def _first(found: Found) -> Iterator[tuple[str, ...]]:
    for name, each in found.items():
        yield name, _ms(each["seconds"]), _ms(each["second"]) if "second" in each else ""


def _profile(found: Mapping[str, Found]) -> Iterator[tuple[str, ...]]:
    for name, each in found.get("profile", {}).items():
        yield name, f"{each['kernels']:.0f}", *(_ms(each[what]) for what in ("seconds", "busy", "gaps"))


def _kernel(found: Found) -> Iterator[tuple[str, ...]]:
    for name, each in found.items():
        if isinstance(each, dict) and "bytes a second" in each:
            yield name, f"{each['bytes a second'] / 1e9:.3g}"


def _lengths(found: Found) -> Iterator[tuple[str, ...]]:
    for name, each in found.items():
        if "why" in each:
            yield name, each["why"], "", ""
        else:
            yield name, _ms(median(each["first"])), _ms(max(each["first"])), _ms(median(each["again"]))


def _crowd(found: Mapping[str, Found]) -> Iterator[tuple[str, ...]]:
    for name, each in found.get("crowd", {}).items():
        share = f"{each['replays'] / each['steps']:.0%}"
        rows, rate = f"{each['rows a step']:.1f}", f"{each['tokens a second']:.0f}"
        yield name, str(each["steps"]), rows, rate, share, str(each["growths"])


def _flows(found: Found) -> Iterator[tuple[str, ...]]:
    for name, each in found.items():
        replays = f"{each['replays'] / each['forwards']:.0%}" if each.get("forwards") else ""
        yield name, _ms(each["ttft"]), f"{each['seconds']:.2f}", f"{each.get('forwards', 0):.0f}", replays


def _waits(found: Found) -> Iterator[tuple[str, ...]]:
    for what, each in found.items():
        for where, times in each["waits"].items():
            yield f"{what}: {where}", str(times)


def main() -> None:
    """Write the page."""
    write(page, "GPUs")


if __name__ == "__main__":
    main()

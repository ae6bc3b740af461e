"""What the measurements on a real model take: `python -m tools.real_costs DATA --json FILE`.

Runs a small part of each, alone, and records its time and peak memory. DATA is the folder of recorded conversations.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from agentcho.records.environment import ROOT, machine_info, source_digests, versions
from agentcho.records.frozen import Frozen

DILEMMAS, OFFICES = "prisoners-dilemma.llama3.1-8b", "agentleak.five-models"
"""The recorded conversations that are read."""
TRACES = 4
"""Number of office workflows that are sampled, and trained on."""


class Part(NamedTuple):
    """A small part of a measurement: what it is, and a command. "DATA" and "HERE" in it stand for folders."""

    name: str
    command: str


class Cost(Frozen):
    """What a part took: wall-clock seconds with the start of the process and the loading of the model, and the largest
    resident memory in bytes."""

    name: str
    command: str
    seconds: float
    peak_bytes: int


class Costs(Frozen):
    """The result file. `command` is how it was made."""

    format: Literal["agentcho-real-costs/1"] = "agentcho-real-costs/1"
    command: str
    machine: dict[str, str]
    costs: tuple[Cost, ...]


def parts() -> Iterator[Part]:
    """The parts, in an order in which each finds the files of those before it."""
    model, office = "--model smollm2 --dtype float32", "HERE/office.jsonl"
    probes = "--attack linear --attack mlp --way author --way reuse --way audience --way text"
    yield Part(
        "fidelity: one office conversation, every way of reuse",
        f"agentcho bench fidelity {model} --traces DATA/{OFFICES}.jsonl --limit 1",
    )
    yield Part(
        "decisions: two recorded dilemmas",
        f"agentcho bench decisions {model} --behind --choices COOPERATE,DEFECT --traces DATA/{DILEMMAS}.jsonl "
        "--limit 2",
    )
    yield Part(
        "attacks: 20 codes in one forced sentence, two probes, four ways",
        f"agentcho bench leaks {model} --sentence forced --kind codes -n 20 {probes} --repeats 1",
    )
    yield Part(
        f"sampling {TRACES} office workflows",
        f"agentcho trace agentleak --model smollm2 --dtype bfloat16 --max-tokens 160 -n {TRACES} --out {office}",
    )
    yield Part(
        f"training an adapter for one epoch on {TRACES} office workflows",
        f"agentcho tune agentleak {model} --traces {office} --epochs 1 --tokens 1024 --out HERE/adapter",
    )
    yield Part(
        "short tasks: four games of branch-solve-merge in three columns",
        f"agentcho compare branch-solve-merge {model} --temperature 0 --max-tokens 64 -n 4 --timed-games 0 "
        "--fidelity-games 0 --out HERE/merge",
    )


def measured(part: Part, data: Path, here: Path) -> Cost:
    """Run a part. Raises `RuntimeError` with the end of its output if it fails."""
    given = [each.replace("DATA", str(data)).replace("HERE", str(here)) for each in part.command.split()[1:]]
    with (here / "output").open("w+", encoding="utf-8") as output:
        began = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-m", "agentcho", *given], cwd=here, stdout=output, stderr=output)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        if os.waitstatus_to_exitcode(status):
            output.seek(0)
            raise RuntimeError(f"{part.name}: {output.read()[-2000:]}")
    shown = part.command.replace("DATA/", "").replace("HERE/", "")
    return Cost(name=part.name, command=shown, seconds=seconds, peak_bytes=used.ru_maxrss * 1024)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all parts, one after the other, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args(arguments)
    costs = list[Cost]()
    with tempfile.TemporaryDirectory() as folder:
        for part in parts():
            costs.append(measured(part, given.data.absolute(), Path(folder)))
            print(f"{costs[-1].name}: {costs[-1].seconds:.0f} s, {costs[-1].peak_bytes / 1e9:.1f} GB", flush=True)
    # Other processes have loaded the code.
    code = (file for folder in ("agentcho", "agents", "scenarios") for file in (ROOT / folder).rglob("*.py"))
    machine = versions() | machine_info() | source_digests(code)
    found = Costs(command="python -m tools.real_costs DATA", machine=machine, costs=tuple(costs))
    given.json.write_text(found.model_dump_json(indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""What is audited: a recorded run or a file of traces, and how the same audit is made again.

Does not know: verdicts.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from agentcho.audit.notes import sealed
from agentcho.audit.report import Subject
from agentcho.config import Leakage, Mode
from agentcho.records.environment import machine, versions
from agentcho.records.heard import NAME as HEARD
from agentcho.records.record import SavedRun
from agentcho.records.trace import Workflow
from agentcho.records.transcript import Entry

LIMITS = "limits of a whole game"
MARKERS = "engine markers"


def of_run(run: SavedRun, games: Mapping[int, Sequence[Entry]], key: bytes) -> Subject:
    """A recorded run. Its options may hold what is secret: a keyed digest stands for them."""
    info, config = run.info, run.info.config
    options = json.dumps([info.options, config.model_dump(mode="json")], sort_keys=True).encode()
    environment = info.versions | {f"engine {name}": value for name, value in info.engine.items()}
    environment |= {"seed": str(config.seed), "options": sealed(key, options)} | machine() | _repaired(config.repair)
    if limits := [f"{name} {value:g}" for name, value in config.limits if name.startswith("game_") and value]:
        environment |= {LIMITS: ", ".join(limits)}
    return Subject(
        scenario=info.scenario, source=str(run.path), mode=config.mode, leakage=config.leakage,
        deterministic=config.deterministic, planned=False, games=len(games), lost=tuple(_lost(run, games)),
        agents=tuple(sorted({*info.cast, *named(e for entries in games.values() for e in entries)})),
        environment=environment, reproduce=shlex.join(["agentcho", "audit", str(run.path)]),
    )  # fmt: skip


def _repaired(repair: str | None) -> dict[str, str]:
    return {} if repair is None else {"repair": repair}


def _lost(run: SavedRun, games: Mapping[int, Sequence[Entry]]) -> Iterator[str]:
    """Games without an outcome, and signs that the run did not come to its end."""
    finished = run.finished()
    for game in sorted({*games, *range(run.info.config.games)} - finished.keys()):
        yield f"game {game} has no outcome"
    yield from (f"game {game} has an outcome and no message" for game in sorted(finished) if not games.get(game))
    if run.status != "done":
        yield f"the run's status is {run.status}"
    pieces = () if run.info.format == "agentcho-run/1" else (HEARD,)
    for name in ("transcript.jsonl", "outcomes.jsonl", *pieces):
        file = run.path / name
        if not file.exists():
            yield f"there is no {name}"
        elif (data := file.read_bytes()) and not data.endswith(b"\n"):
            yield f"the last line of {name} is torn"


def of_traces(
    path: Path, traces: Sequence[Workflow], mode: Mode, leakage: Leakage, deterministic: bool, key: bytes,
    repair: str | None = None,
) -> Subject:  # fmt: skip
    """A file of traces, whose games are planned by the resolver as that mode and that answer to leaks have them."""
    again = ["agentcho", "audit", str(path), "--mode", mode, "--leakage", leakage]
    again += [] if repair is None else ["--repair", repair]
    environment = versions() | machine() | {"trace": sealed(key, path.read_bytes())} | _repaired(repair)
    return Subject(
        scenario=", ".join(sorted({trace.workflow for trace in traces})) or path.stem, source=str(path), mode=mode,
        leakage=leakage, deterministic=deterministic, planned=True, games=len(traces),
        lost=tuple(f"game {game} did not come to its end" for game, trace in enumerate(traces) if trace.unfinished),
        agents=tuple(sorted({agent for trace in traces for agent in trace.agents})),
        environment=environment,
        reproduce=shlex.join(again + ["--deterministic"] * deterministic),
    )  # fmt: skip


def named(entries: Iterable[Entry]) -> set[str]:
    """Every agent that speaks or is spoken to by name."""
    found: set[str] = set()
    for entry in entries:
        message = entry.message
        found |= {*(message.audience.members or ()), *([message.author] if message.author else [])}
    return found

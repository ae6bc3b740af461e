"""The subject of an audit: a recorded run or a file of traces, and the command that audits it again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentcho.audit.notes import Seal
from agentcho.audit.report import Subject
from agentcho.config import RunConfig, again
from agentcho.records.calls import begun_lines
from agentcho.records.environment import machine_info, versions
from agentcho.records.names import CALLS, HEARD, LINES
from agentcho.records.record import RunInfo, SavedRun
from agentcho.records.trace import Workflow
from agentcho.records.transcript import TranscriptEntry
from agentcho.reuse.registry import DEFAULT

LIMITS = "limits"
MARKERS = "engine markers"
CLIENTS = "one client for"
SOCIETY = "society of"
"""Environment key of runs that are societies of a server."""


def of_run(run: SavedRun, games: Mapping[int, Sequence[TranscriptEntry]], seal: Seal) -> Subject:
    """The subject for a recorded run. A keyed digest stands for its options, which may contain secrets."""
    info = run.info
    config = run.info.config
    options = json.dumps([info.options, config.model_dump(mode="json")], sort_keys=True).encode()
    environment = info.versions | _engines(info)
    environment |= {"seed": str(config.seed), "options": seal.data(options)}
    if limits := [f"{name} {value:g}" for name, value in config.limits if value]:
        environment |= {LIMITS: ", ".join(limits)}
    if shared := sorted({name for names in info.clients.values() if len(names) > 1 for name in names}):
        environment |= {CLIENTS: ", ".join(shared)}
    if info.asked == "serve" and {"tenant", "society"} <= info.options.keys():
        environment |= {SOCIETY: "agentcho serve"}
    if config.part is not None:
        environment |= {"part": config.part}
    return _subject(
        config,
        environment,
        scenario=info.scenario,
        source=str(run.path),
        planned=False,
        games=len(games),
        lost=tuple(_lost(run, games)),
        agents=tuple(sorted({*info.cast, *named(e for entries in games.values() for e in entries)})),
        reproduce=again(("agentcho", "audit", str(run.path))),
    )


def _engines(info: RunInfo) -> dict[str, str]:
    """The properties of the run's models, with the model's name except for the run's own. If one model has plain role
    markers, the run has: through such a model, text of any author can imitate another's message."""
    found = {f"engine {name}": value for name, value in info.engine.items()}
    found |= {f"engine {model} {name}": value for model, each in info.engines.items() for name, value in each.items()}
    plain = any(each.get("markers") == "plain" for each in info.engines.values())
    return found | ({MARKERS: "plain"} if plain else {})


def _subject(config: RunConfig, environment: dict[str, str], **more: Any) -> Subject:
    """A subject with the fields that follow from the options of its run."""
    how = {name: value for name in ("reuse", "repair") if (value := getattr(config, name)) not in (None, DEFAULT)}
    return Subject(
        mode=config.mode,
        leakage=config.leakage,
        deterministic=config.deterministic,
        words=config.words,
        leak_budget=config.leak_budget,
        environment=environment | machine_info() | how,
        **more,
    )


def _lost(run: SavedRun, games: Mapping[int, Sequence[TranscriptEntry]]) -> Iterator[str]:
    """Games without an outcome, and other signs that the record is incomplete."""
    finished = run.finished()
    for game in sorted({*games, *run.info.config.numbers} - finished.keys()):
        yield f"game {game} has no outcome"
    yield from (f"game {game} has an outcome and no message" for game in sorted(finished) if not games.get(game))
    for game, id in sorted({(line.game, line.call) for line in begun_lines(run.path / CALLS) if line.use is None}):
        if all(entry.act.call != id for entry in games.get(game, ())):
            yield f"call {id} of game {game} was begun, and has no result"
    if run.status != "done":
        yield f"the run's status is {run.status}"
    for name, always in LINES.items():
        file = run.path / name
        if not file.exists():
            if always and not (name == HEARD and run.info.format == "agentcho-run/1"):
                yield f"there is no {name}"
        elif (data := file.read_bytes()) and not data.endswith(b"\n"):
            yield f"the last line of {name} is torn"


def of_traces(path: Path, traces: Sequence[Workflow], config: RunConfig, seal: Seal) -> Subject:
    """The subject for a file of traces, whose games the resolver plans as a run with these options would play them."""
    audit = "agentcho", "audit", str(path), "--mode", config.mode, "--leakage", config.leakage
    return _subject(
        config,
        versions() | {"trace": seal.data(path.read_bytes())},
        scenario=", ".join(sorted({trace.workflow for trace in traces})) or path.stem,
        source=str(path),
        planned=True,
        games=len(traces),
        lost=tuple(f"game {game} did not come to its end" for game, trace in enumerate(traces) if trace.unfinished),
        agents=tuple(sorted({agent for trace in traces for agent in trace.agents})),
        reproduce=again(audit, config, ("deterministic", "repair", "reuse")),
    )


def named(entries: Iterable[TranscriptEntry]) -> set[str]:
    """All agents that speak or are addressed by name."""
    found: set[str] = set()
    for entry in entries:
        message = entry.message
        found |= {*(message.audience.members or ()), *([message.author] if message.author else [])}
    return found

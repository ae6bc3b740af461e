"""Exports a recorded run as a log of Inspect (inspect.aisi.org.uk), for its viewer and its dataframes.

A log is a zip of JSON files: `header.json`, `summaries.json`, and one file per sample. A game becomes a sample and a
span, an agent a span within it, a message said by an agent a model event in the agent's span, a message of the scenario
an info event, and a score a score event. The metadata of each message has its audience, and what reached its author
without being meant for it, according to the audit. The log contains every word of the run. It follows Inspect's log
version 2 and is written without Inspect.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from agentcho.audit.reach import reach
from agentcho.audit.verdict import GameVerdict
from agentcho.message import SCENARIO, Message
from agentcho.records.files import write_output
from agentcho.records.record import GameOver, RunInfo, SavedRun
from agentcho.records.transcript import TranscriptEntry, by_attempt

Json = dict[str, Any]
VERSION = 2
STATUS = {"done": "success", "running": "started", "interrupted": "cancelled", "failed": "error", "died": "error"}
STOPPED = {"max_tokens": "max_tokens", "stop": "stop", "stop_string": "stop", "stop_token": "stop", "forced": "stop"}
"""Why a message ended, in Inspect's terms."""


def write_inspect(run: SavedRun, file: Path, only: int | None = None) -> None:
    """Write a run, or `only` this game of it, as a log, completely or not at all. The same record gives the same bytes.
    `CannotWrite`: the system refuses."""
    samples = [
        _Sample(run.info, game, entries, over) for game, entries, over in _games(run) if only is None or game == only
    ]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for sample in samples:
            _add(archive, f"samples/{sample.game}_epoch_1.json", sample.whole())
        _add(archive, "summaries.json", [sample.summary() for sample in samples])
        _add(archive, "header.json", _header(run, samples))
    write_output(file, packed.getvalue())


def _add(archive: zipfile.ZipFile, name: str, value: object) -> None:
    """Add a file without a timestamp to the archive, so that equal values give equal bytes."""
    words = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, words.encode("utf-8", "replace"))


def _games(run: SavedRun) -> Iterator[tuple[int, list[TranscriptEntry], GameOver | None]]:
    """Every game, with the messages of its last attempt and its end."""
    finished = run.finished()
    for game, entries in run.attempts().items():
        yield game, by_attempt(entries)[-1], finished.get(game)


class _Sample:
    """One game. `over` is None if the game did not finish."""

    def __init__(self, info: RunInfo, game: int, entries: Sequence[TranscriptEntry], over: GameOver | None) -> None:
        self._info = info
        self.game = game
        self._entries = entries
        self._over = over
        self._began = datetime.fromisoformat(info.started)
        self._pool: list[Json] = []
        self._places: dict[tuple[str, str], int] = {}
        self._worst, self._leaks = leaks(game, entries, info)
        self._models = sorted({self._model(entry) for entry in entries if entry.message.kind == "decode"})

    def summary(self) -> Json:
        """The line of the game in the list of samples."""
        kept = ("id", "epoch", "input", "target", "metadata", "scores", "model_usage", "total_time", "message_count")
        line = {name: value for name, value in self._about().items() if name in kept}
        failed = {"error": self._over.error or ""} if self._over is not None and self._over.failed else {}
        return line | failed | {"completed": self._over is not None}

    def whole(self) -> Json:
        """The complete sample."""
        events = [*self._events()]
        last = next((entry for entry in reversed(self._entries) if entry.message.kind == "decode"), None)
        over = self._over
        error = (
            {"error": {"message": over.error or "", "traceback": over.traceback or "", "traceback_ansi": ""}}
            if over is not None and over.failed
            else {}
        )
        about = self._about()
        return {
            **about,
            **error,
            "messages": [_chat(entry.message, entry.message.author or SCENARIO) for entry in self._entries],
            "output": {} if last is None else self._output(last),
            "store": {},
            "events": events,
            "events_data": {"messages": self._pool, "calls": []},
            "attachments": {},
        }

    def _about(self) -> Json:
        over = self._over
        outcome: Json = {"outcome": None, "ended": "not over"} if over is None else over._asdict()
        scores = {} if over is None else over.score
        return {
            "id": self.game,
            "epoch": 1,
            "input": f"{self._info.scenario}, game {self.game}",
            "target": "",
            "scores": {name: {"value": value} for name, value in scores.items()},
            "metadata": {
                "outcome": outcome["outcome"],
                "ended": outcome["ended"],
                "raced": bool(over is not None and over.raced),
                "verdicts": self._worst,
            },
            "model_usage": {name: self._usage(name) for name in self._models},
            "total_time": 0.0 if over is None else over.seconds,
            "message_count": len(self._entries),
        }

    def _events(self) -> Iterator[Json]:
        agents = [*dict.fromkeys(entry.message.author for entry in self._entries if entry.message.author is not None)]
        yield self._event("span_begin", 0.0, id="game", name=f"game {self.game}", type="game", span_id="game")
        for agent in agents:
            begun: Json = {"id": f"agent:{agent}", "name": agent, "parent_id": "game", "type": "agent"}
            yield self._event("span_begin", 0.0, **begun, span_id=f"agent:{agent}")
        said: dict[str, TranscriptEntry] = {}
        for entry in self._entries:
            yield self._said(entry, said)
            said[entry.message.id] = entry
        end = 0.0 if self._over is None else self._over.seconds
        for agent in agents:
            yield self._event("span_end", end, id=f"agent:{agent}", span_id=f"agent:{agent}")
        for name, value in ({} if self._over is None else self._over.score).items():
            score = {"value": value, "explanation": name}
            yield self._event("score", end, score=score, scorer=name, span_id="game")
        yield self._event("span_end", end, id="game", span_id="game")

    def _said(self, entry: TranscriptEntry, said: Mapping[str, TranscriptEntry]) -> Json:
        """The event of one message."""
        message, at = entry.message, entry.usage.at or 0.0
        about = {"metadata": self._metadata(entry)}
        if message.kind == "prefill":
            whose = "game" if message.author is None else f"agent:{message.author}"
            data = {"role": message.role, "text": message.text}
            return self._event("info", at, source=message.author or SCENARIO, data=data, span_id=whose, **about)
        prompt = [self._place(said[parent].message, message.author) for parent in message.parents if parent in said]
        return self._event(
            "model",
            at,
            model=self._model(entry),
            input=[],
            input_refs=_ranges(prompt),
            tools=[],
            tool_choice="none",
            config=self._config(),
            output=self._output(entry),
            working_time=entry.usage.seconds,
            completed=self._time(at + entry.usage.seconds),
            span_id=f"agent:{message.author}",
            **({} if entry.ended is None else {"error": f"the call was {entry.ended}"}),
            **about,
        )

    def _metadata(self, entry: TranscriptEntry) -> Json:
        """Fields that Inspect has no place for."""
        message, usage = entry.message, entry.usage
        more = {"attempt": entry.attempt, "where": entry.act.where, "origin": entry.origin, "steps": usage.steps}
        return {
            "message": message.id,
            "audience": message.audience.to_json(),
            "header": message.header,
            "leaks": self._leaks.get(message.id, []),
            "time_to_first_token": usage.ttft,
            "tokens_encoded": usage.encoded,
            **{name: value for name, value in more.items() if value is not None},
        }

    def _output(self, entry: TranscriptEntry) -> Json:
        message, said = entry.message, _chat(entry.message, entry.message.author or SCENARIO)
        said = said if said["role"] == "assistant" else {**said, "role": "assistant"}
        choice = {"message": said, "stop_reason": STOPPED.get(message.stopped or "", "unknown")}
        return {
            "model": self._model(entry),
            "choices": [choice],
            "completion": message.header + message.text,
            "usage": _usage(entry),
            "time": entry.usage.seconds,
        }

    def _usage(self, model: str) -> Json:
        """The token usage of all messages of one model."""
        used = [_usage(e) for e in self._entries if e.message.kind == "decode" and self._model(e) == model]
        return {name: sum(each[name] for each in used) for name in used[0]}

    def _place(self, message: Message, reader: str | None) -> int:
        """The index of a message, in the form that its reader sees, in the pool of prompt messages."""
        chat = _chat(message, reader or SCENARIO)
        key = message.id, chat["role"]
        if key not in self._places:
            self._places[key] = len(self._pool)
            self._pool.append(chat)
        return self._places[key]

    def _model(self, entry: TranscriptEntry) -> str:
        return self._info.config.model if entry.engine is None else entry.engine

    def _config(self) -> Json:
        sampling = self._info.config.sampling
        return {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens}

    def _event(self, kind: str, at: float, **more: Any) -> Json:
        """An event, `at` seconds after the start of the game."""
        uuid = _digest(self._info.id, self.game, kind, json.dumps(more.get("metadata", more), default=str))
        return {"uuid": uuid, "timestamp": self._time(at), "working_start": at, "pending": False, "event": kind, **more}

    def _time(self, at: float) -> str:
        return (self._began + timedelta(seconds=at)).isoformat()


def leaks(game: int, entries: Sequence[TranscriptEntry], info: RunInfo) -> tuple[Json, dict[str, list[Json]]]:
    """Return the worst verdict on what each agent read, and the leaks by the message with which each first happened:
    which message reached an agent that it was not meant for, how, and through the encoding of which message. Both come
    from the audit."""
    worst, found = Json(), dict[str, list[Json]]()
    for agent, reached in reach(GameVerdict(game, entries, models=info.models)).items():
        worst[agent] = reached.worst
        for secret, how in sorted(reached.reached.items()):
            leak = {"message": secret, "verdict": how.verdict, "through": how.through}
            found.setdefault(how.call, []).append(leak)
    return worst, found


def _chat(message: Message, reader: str) -> Json:
    """A message as it appears in a reader's prompt: the reader's own are the assistant's, those of others the
    user's."""
    own = message.author == reader and message.role == "assistant"
    role = "user" if message.role == "assistant" and not own else message.role
    about = {"message": message.id, "author": message.author or SCENARIO, "audience": message.audience.to_json()}
    return {"id": f"{message.id}:{role}", "role": role, "content": message.header + message.text, "metadata": about}


def _usage(entry: TranscriptEntry) -> Json:
    """The tokens of one message. Tokens reused from the store count as cache reads."""
    start, stop = entry.generated
    spent, used = entry.usage.spent, entry.usage
    if spent is not None:
        asked = spent.prompt or 0
        said = spent.completion or 0
        cached = spent.cached or 0
    else:
        asked = used.reused + used.encoded - (stop - start)
        said = stop - start
        cached = used.reused
    tokens = {"input_tokens": max(0, asked), "output_tokens": said, "total_tokens": max(0, asked) + said}
    return tokens | {"input_tokens_cache_read": cached}


def _ranges(places: Sequence[int]) -> list[list[int]]:
    """Compress indexes into half-open ranges `[start, stop]`."""
    ranges: list[list[int]] = []
    for place in places:
        if ranges and ranges[-1][1] == place:
            ranges[-1][1] += 1
        else:
            ranges.append([place, place + 1])
    return ranges


def _header(run: SavedRun, samples: Sequence[_Sample]) -> Json:
    info, status = run.info, run.status
    ended = {} if info.ended is None else {"completed_at": info.ended}
    lines = [sample.summary() for sample in samples]
    failed = [line["error"] for line in lines if line.get("error")]
    what = failed[0] if failed else f"the run {status}"
    error = {"error": {"message": what, "traceback": "", "traceback_ansi": ""}}
    return {
        "version": VERSION,
        "status": STATUS[status],
        "eval": {
            "eval_id": _digest(info.id, "eval")[:22],
            "run_id": _digest(info.id, "run")[:22],
            "created": info.started,
            "task": info.scenario,
            "task_id": _digest(info.scenario, "task")[:22],
            "task_args": info.options,
            "dataset": {
                "name": info.tasks or info.scenario,
                "samples": len(samples),
                "sample_ids": [sample.game for sample in samples],
            },
            "model": info.config.model,
            "config": {"epochs": 1},
            "packages": info.versions,
            "metadata": {"run": info.id, "config": info.config.model_dump(mode="json"), "cast": info.cast},
        },
        "plan": {"name": "agentcho", "steps": []},
        "results": {
            "total_samples": len(samples),
            "completed_samples": sum(line["completed"] for line in lines),
            "scores": _scores(lines),
        },
        "stats": {"started_at": info.started, **ended, "model_usage": {}},
        **(error if STATUS[status] == "error" else {}),
    }


def _scores(lines: Sequence[Json]) -> list[Json]:
    """The mean of each score over the games that have it."""
    values: dict[str, list[float]] = {}
    for line in lines:
        for name, score in line["scores"].items():
            values.setdefault(name, []).append(score["value"])
    return [
        {
            "name": name,
            "scorer": name,
            "scored_samples": len(found),
            "metrics": {"mean": {"name": "mean", "value": sum(found) / len(found)}},
        }
        for name, found in values.items()
    ]


def _digest(*parts: object) -> str:
    """A name that is the same for the same record."""
    return hashlib.blake2b("\0".join(map(str, parts)).encode("utf-8", "replace"), digest_size=16).hexdigest()

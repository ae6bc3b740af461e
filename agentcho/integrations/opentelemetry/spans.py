"""Reports a run as spans (the run, its games, agents' turns, tool calls, engine steps) and as metrics.

`Telemetry.heard` puts a sink in front of another one. Contexts are passed explicitly, because games interleave. Spans
contain no message text unless `content` is set: whoever reads spans is not an agent, and no audience applies to them.
Where spans go is configured in an OpenTelemetry SDK; without one they are dropped. Independent of SDKs and exporters.
"""

from __future__ import annotations

import json
import time
from types import TracebackType

from opentelemetry import context, metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, ProxyTracerProvider, Span, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from agentcho.audit.report import AuditReport
from agentcho.config import RunConfig
from agentcho.events import Began, Called, Calling, Ended, Event, FirstToken, GameOver, Joined, Sink, Stepped
from agentcho.integrations.opentelemetry import names
from agentcho.records.transcript import TranscriptEntry

Attributes = dict[str, AttributeValue]
NS = 1_000_000_000
FINISHED = {"stop": "stop", "stop_string": "stop", "stop_token": "stop", "forced": "stop", "max_tokens": "length"}


def kept() -> bool:
    """Whether an SDK that keeps spans is installed."""
    return not isinstance(trace.get_tracer_provider(), ProxyTracerProvider)


class Telemetry:
    """The spans of one run of a scenario. As a context manager it ends the run's span. `content`: spans of turns
    contain their text. `tracers` and `meters` replace the global providers."""

    def __init__(
        self,
        scenario: str,
        config: RunConfig,
        content: bool = False,
        tracers: trace.TracerProvider | None = None,
        meters: metrics.MeterProvider | None = None,
    ) -> None:
        self._scenario = scenario
        self._config = config
        self._content = content
        self._tracer = trace.get_tracer(names.SCOPE, tracer_provider=tracers)
        meter = metrics.get_meter(names.SCOPE, meter_provider=meters)
        self._first = meter.create_histogram(names.TIME_TO_FIRST_TOKEN, "s", "Time to the first token of a turn.")
        self._seconds = meter.create_histogram(names.DURATION, "s", "Time that a turn took.")
        self._tokens = meter.create_histogram(names.TOKENS, "{token}", "Tokens of a turn, by their type.")
        self._reuse = meter.create_histogram(names.REUSE, "1", "Share of a turn's prompt that was encoded before.")
        self._store = meter.create_gauge(names.STORE, "1", "Share of an engine's store that is held.")
        self._leaks = meter.create_counter(names.LEAKS, "{finding}", "What an audit of the run found, by its rule.")
        self._games: dict[int, Span] = {}
        self._turns: dict[tuple[int, str], Span] = {}
        self._spoken: dict[int, dict[str, Span]] = {}
        self._calls: dict[tuple[int, str], Span] = {}
        self._common: Attributes = {names.PROVIDER: names.SCOPE, names.MODEL: config.model}
        self._clock = time.time_ns() - time.perf_counter_ns()

    def __enter__(self) -> Telemetry:
        config = self._config
        about: Attributes = {
            names.OPERATION: names.INVOKE_WORKFLOW,
            names.WORKFLOW: self._scenario,
            names.SEED: config.seed,
            names.MODE: config.mode,
            names.LEAKAGE: config.leakage,
        }
        self._run = self._span(f"{names.INVOKE_WORKFLOW} {self._scenario}", about, context.get_current())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None:
        for span in (*self._calls.values(), *self._turns.values(), *self._games.values()):
            span.end()
        if kind is not None:
            _fail(self._run, kind.__name__)
        self._run.end()

    def heard(self, sink: Sink | None) -> TelemetrySink:
        """Return a sink that takes in every event and passes it on."""
        return TelemetrySink(self, sink)

    def audited(self, report: AuditReport) -> None:
        """Count the findings of an audit of the run."""
        self._run.set_attribute(names.CONCLUSION, report.conclusion)
        for finding in report.findings:
            self._leaks.add(1, self._common | {names.RULE: finding.rule})

    def hear(self, event: Event) -> None:
        """Take in an event of the run."""
        match event:
            case Joined(game=game):
                self._game(game)
            case Began():
                self._began(event)
            case FirstToken(entry=entry):
                if (turn := self._turns.get((entry.message.game, entry.message.id))) is not None:
                    turn.add_event(names.FIRST_TOKEN)
            case Ended(entry=entry):
                self._said(entry)
            case Calling():
                self._calling(event)
            case Called(game=game, id=id, how=how):
                self._called(game, id, how)
            case GameOver():
                self._over(event)

    def stepped(self, step: Stepped) -> None:
        """Take in a step of an engine."""
        about: Attributes = {
            names.MODEL: step.engine or self._config.model,
            names.STEP_NUMBER: step.number,
            names.STEP_FED: step.fed,
            names.STEP_SAMPLED: step.sampled,
        }
        span = self._tracer.start_span(names.STEP, _in(self._run), attributes=about, start_time=self._at(step.began))
        span.end(self._at(step.ended))
        self._store.set(step.held, {names.MODEL: step.engine or self._config.model})

    def _at(self, seconds: float) -> int:
        """Convert a `perf_counter` time to nanoseconds since the epoch."""
        return int(seconds * NS) + self._clock

    def _span(self, name: str, about: Attributes, within: Context) -> Span:
        return self._tracer.start_span(name, within, attributes=self._common | about)

    def _game(self, game: int) -> Span:
        """The span of a game, started with the first event of the game."""
        if game not in self._games:
            about: Attributes = {names.GAME: game, names.CONVERSATION: f"{self._scenario}/{self._config.seed}/{game}"}
            self._games[game] = self._span(f"game {game}", about, _in(self._run))
        return self._games[game]

    def _began(self, event: Began) -> None:
        sampling = self._config.sampling
        about: Attributes = {
            names.OPERATION: names.INVOKE_AGENT,
            names.AGENT: event.author,
            names.GAME: event.game,
            names.MESSAGE: event.id,
            names.RESPONSE: event.id,
            names.AUDIENCE: str(event.audience),
            names.TEMPERATURE: sampling.temperature,
            names.MAX_TOKENS: sampling.max_tokens,
        }
        name = f"{names.INVOKE_AGENT} {event.author}"
        self._turns[event.game, event.id] = self._span(name, about, _in(self._game(event.game)))

    def _said(self, entry: TranscriptEntry) -> None:
        """End the span of a turn. Messages of known text have none."""
        message = entry.message
        turn = self._turns.pop((message.game, message.id), None)
        if turn is None:
            return
        asked, said, cached = tokens_of(entry)
        about = self._common | ({} if entry.engine is None else {names.MODEL: entry.engine})
        turn.set_attributes(about | {names.INPUT_TOKENS: asked, names.OUTPUT_TOKENS: said, names.CACHED_TOKENS: cached})
        turn.set_attribute(names.FINISH, [FINISHED.get(message.stopped or "", entry.ended or "stop")])
        if self._content:
            turn.set_attribute(names.OUTPUT, _words(entry))
        if entry.ended is not None:
            _fail(turn, entry.ended)
        turn.end()
        self._spoken.setdefault(message.game, {})[message.id] = NonRecordingSpan(turn.get_span_context())
        labels = about | {names.OPERATION: names.INVOKE_AGENT}
        self._first.record(entry.usage.ttft, labels)
        self._seconds.record(entry.usage.seconds, labels)
        self._tokens.record(asked, labels | {names.TOKEN_TYPE: "input"})
        self._tokens.record(said, labels | {names.TOKEN_TYPE: "output"})
        if asked:
            self._reuse.record(min(1.0, cached / asked), labels)

    def _calling(self, event: Calling) -> None:
        """Start the span of a tool call, within the turn that made it, which has ended by then."""
        use, id = event.use, event.id
        turn = self._spoken.get(event.game, {}).get(id) or self._game(event.game)
        about: Attributes = {names.OPERATION: names.EXECUTE_TOOL, names.TOOL: use.name, names.TOOL_CALL: id}
        self._calls[event.game, id] = self._span(f"{names.EXECUTE_TOOL} {use.name}", about, _in(turn))

    def _called(self, game: int, id: str, how: str) -> None:
        span = self._calls.pop((game, id), None)
        if span is not None:
            span.set_attribute(names.ENDED, how)
            span.end()

    def _over(self, event: GameOver) -> None:
        span = self._game(event.game)
        span.set_attribute(names.RACED, event.raced)
        for name, value in event.score.items():
            span.add_event(names.EVALUATION, {names.SCORE_NAME: name, names.SCORE: float(value)})
        if event.ended is not None:
            kind = event.ended.partition(":")[0]
            span.set_attribute(names.ENDED, kind)
        if event.failed:
            _fail(span, (event.error or "error").partition(":")[0])
        del self._games[event.game]
        self._spoken.pop(event.game, None)
        span.end()


class TelemetrySink:
    """A sink that reports events to the telemetry and passes them on."""

    def __init__(self, telemetry: Telemetry, sink: Sink | None) -> None:
        self._telemetry, self._sink = telemetry, sink
        self.stepped = telemetry.stepped

    def __call__(self, event: Event, /) -> None:
        self._telemetry.hear(event)
        if self._sink is not None:
            self._sink(event)


def tokens_of(entry: TranscriptEntry) -> tuple[int, int, int]:
    """Return the number of prompt tokens of a message, of sampled tokens, and of prompt tokens that were encoded
    before, as counted by its engine or reported by its server."""
    spent, (start, stop) = entry.usage.spent, entry.generated
    if spent is not None:
        return spent.prompt or 0, spent.completion or 0, spent.cached or 0
    own = entry.own
    over = 0 if own is None else sum(piece.length for piece in own.receipt.context)
    return over + start, stop - start, entry.usage.reused


def _words(entry: TranscriptEntry) -> str:
    message = entry.message
    part = {"type": "text", "content": message.header + message.text}
    reason = FINISHED.get(message.stopped or "", "stop")
    return json.dumps([{"role": "assistant", "parts": [part], "finish_reason": reason}], ensure_ascii=False)


def _in(span: Span) -> Context:
    return trace.set_span_in_context(span)


def _fail(span: Span, kind: str) -> None:
    """Record an error by its class alone, because its text may quote a message."""
    span.set_attribute(names.ERROR, kind)
    span.set_status(Status(StatusCode.ERROR))

"""Games on a tiny real model: steps, seeds, and prompts encoded again from scratch."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest
import torch
from torch import Tensor

from agentcho import Choreographer, Decode, Engine, Game, Prefill, RunConfig, Sampling, Scenario
from agentcho.choreography.requests import Request
from agentcho.config import Mode
from agentcho.events import Ended, Event
from agentcho.message import Message
from agentcho.protocol.call import DEFAULT_PRIORITY, Call, EncodingId, SchedulingPriority, Shadow, StepResult
from agentcho.records.canonical import canonical_transcript
from agentcho.records.transcript import TranscriptEntry

from ..around import Around
from .conftest import BACKENDS
from .plays import plans_and_talk
from .stage import MODES, Play


def test_six_agents_that_speak_three_times_take_the_steps_of_the_longest(play: Play, tiny: Engine) -> None:
    steps: list[int] = []
    sampling = Sampling(temperature=0, max_tokens=1)

    async def agent(c: Choreographer, words: int) -> None:
        for turn in range(3):
            forced = tuple(tiny.framing.content.encode("x" * words))
            await c.run(Request((Decode(forced=forced, sampling=sampling),), (words, turn)))

    async def work() -> None:
        async with Choreographer(tiny) as c:
            await c.tasks.together(*(agent(c, words) for words in range(3, 9)))
            steps.append(c.steps)

    used = tiny.fullness.used
    play(work)
    assert steps == [3 * (8 + 2)]
    assert (tiny.fullness.used, tiny.fullness.reserved, tiny.rows) == (used, 0, 0)


CALLS = [
    Sampling(temperature=0, max_tokens=9),
    Sampling(temperature=0.7, seed=1, max_tokens=17),
    Sampling(temperature=1.3, seed=2, max_tokens=5, top_k=20),
    Sampling(temperature=1.0, seed=3, max_tokens=30, stop=("a", "e")),
    Sampling(temperature=1.0, seed=4, max_tokens=12, choices=("left", "right", "straight on")),
    Sampling(temperature=1.0, seed=5, max_tokens=25, top_p=0.5, min_p=0.01),
]


def test_requests_with_their_own_options_say_the_same_together_and_apart(play: Play, tiny: Engine) -> None:
    prompt = Prefill("What do you say?")
    requests = [Request((prompt, Decode(f"{i}: ", parents=[prompt], sampling=s)), (i,)) for i, s in enumerate(CALLS)]

    async def work() -> tuple[list[Any], list[Any]]:
        async with Choreographer(tiny) as c:
            together = await c.tasks.together(*(c.run(request) for request in requests))
            return together, [await c.run(request) for request in requests]

    together, apart = play(work)
    assert [r.made[-1].words for r in together] == [r.made[-1].words for r in apart]
    assert len({r.made[-1].words.tokens for r in together}) == len(CALLS)


class Keeping(Around):
    """The engine, recording the logits of every decode."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.logits: dict[EncodingId, Tensor] = {}
        self._decodes = set[EncodingId]()

    def submit(self, calls: Sequence[Call], turn: SchedulingPriority = DEFAULT_PRIORITY) -> tuple[EncodingId, ...]:
        kept = {id(call): replace(call, logits=True, thinks=False) for call in calls if isinstance(call, Decode)}
        follow = (replace(c, of=kept[id(c.of)]) if isinstance(c, Shadow) else c for c in calls)
        ids = self.engine.submit([kept[id(c)] if isinstance(c, Decode) else c for c in follow], turn)
        self._decodes.update(number for number, call in zip(ids, calls, strict=True) if isinstance(call, Decode))
        return ids

    def step(self, deterministic: bool = False) -> StepResult:
        result = self.engine.step(deterministic)
        said = self._decodes.intersection(result.finished)
        self.logits.update((id, self.engine.logits(id).log_softmax(-1)) for id in said)
        return result


class Talk(Scenario):
    """Two private plans, then four turns of talk, a choice each."""

    name = "talk"

    async def play(self, game: Game) -> Scenario.Outcome:
        alice, bob = await plans_and_talk(game)
        await game.together(alice.choose(["yes", "no"]), bob.choose(["yes", "no"]))
        return self.Outcome()


Played = tuple[list[TranscriptEntry], dict[EncodingId, Tensor]]


def played(tiny: Engine, mode: Mode, backend: str = "asyncio", games: int = 1) -> Played:
    """The transcript, and the logits by encoding. Nothing may be left in the engine."""
    engine, used = Keeping(tiny), tiny.fullness.used
    events: list[Event] = []

    async def work() -> None:
        config = RunConfig(mode=mode, leakage="audit", max_tokens=12)
        async with Choreographer(engine, mode=mode, leakage="audit") as c:
            await c.tasks.together(*(Game(c, i, 5, config, sink=events.append).play(Talk()) for i in range(games)))

    anyio.run(work, backend=backend)
    assert (tiny.fullness.used, tiny.fullness.reserved, tiny.rows, tiny.idle) == (used, 0, 0, True)
    return [event.entry for event in events if isinstance(event, Ended)], engine.logits


def again(message: Message) -> Prefill:
    """A message as a prefill of its ids."""
    content = message.tokens[slice(*message.content)]
    return Prefill("", role=message.role, name=message.name, tokens=content)


def score(engine: Engine, message: Message, parents: Sequence[EncodingId], **places: Any) -> Tensor:
    """The logits of its tokens and of its closing over these parents."""
    said = message.tokens[slice(*(message.sampled or (0, 0)))]
    return engine.score("", message.header, parents, name=message.name, tokens=said, **places)


def close(rows: Tensor, expected: Tensor) -> bool:
    """Log-probabilities within 1e-4; a choice, which ends at once, has no row for its closing."""
    return torch.allclose(rows, expected[: len(rows)], atol=1e-4, rtol=0)


def test_a_baseline_prompt_is_what_a_chat_api_would_encode(tiny: Engine) -> None:
    """The whole prompt as the template writes it, encoded from scratch for every turn."""
    entries, logits = played(tiny, "baseline")
    messages = {entry.message.id: entry.message for entry in entries}
    decodes = [entry for entry in entries if entry.message.kind == "decode"]
    assert len(decodes) == 8
    opening = tiny.framing.opening("assistant", None)
    for entry in decodes:
        read = [messages[id] for id in entry.message.parents]
        turns = [{"role": each.role, "content": each.header + each.text} for each in read]
        ids = tiny.tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
        assert (ids[0], tuple(ids[-len(opening) :])) == (tiny.framing.bos, opening)
        prompt = tiny.prefill(Prefill("", framed=tuple(ids[1 : -len(opening)])))
        assert entry.encoding is not None
        assert close(logits[entry.encoding], score(tiny, entry.message, [prompt]))
        tiny.release([prompt])


def test_a_choreographed_turn_is_chosen_over_what_its_receipts_say(tiny: Engine) -> None:
    """Encode each message once, in its author's context, and compare the logits."""
    entries, logits = played(tiny, "choreographed")
    ids: dict[EncodingId, EncodingId] = {}
    for entry in entries:
        for record in entry.made:
            parents, offsets = [ids[e.id] for e in record.receipt.context], [e.offset for e in record.receipt.context]
            places: dict[str, Any] = {"offsets": offsets, "new_offset": record.receipt.start}
            if record.id in logits:
                assert close(logits[record.id], score(tiny, entry.message, parents, **places))
            message = next(e.message for e in entries if e.message.id == record.message)
            ids[record.id] = tiny.prefill(replace(again(message), parents=tuple(parents), **places))
    assert len(logits) == 8
    tiny.release(ids.values())


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_the_same_seed_gives_the_same_transcript_on_both_loops(tiny: Engine, mode: Mode) -> None:
    first, *others = [
        canonical_transcript(played(tiny, mode, backend, games=2)[0]) for backend in (*BACKENDS, BACKENDS[0])
    ]
    assert others == [first] * 2

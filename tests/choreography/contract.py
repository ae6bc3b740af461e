"""Test benches for the contract of `EnginePort`: the shipped fake and the real engine, each with ways to break it and
to see what it holds. Independent of agents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.engine.fake.fake_text import babble
from agentcho.errors import CallFailed
from agentcho.protocol.call import Call, CallFailure, EncodingId, SampledToken
from agentcho.testing import FakeEngine
from tests.engine.broken import dead
from tests.engine.families import Family

from ..device import DEVICE

POISON = "§"
LONG = Sampling(max_tokens=5, seed=3)


class Held(NamedTuple):
    """What an engine holds: running decodes, used pages, reserved pages."""

    rows: int
    pages: int
    promised: int


class Ran(NamedTuple):
    """The results of stepping an engine."""

    steps: int
    spoken: list[SampledToken]
    finished: list[EncodingId]
    failed: list[CallFailure]
    encoded: int


class Bench:
    """One engine. A decode whose header holds `POISON` fails alone."""

    def __init__(self, engine: Engine | FakeEngine) -> None:
        self.engine = engine
        self._base = Held(0, 0, 0)
        self._base = self.held

    @property
    def held(self) -> Held:
        """What the engine holds beyond what it held at first."""
        if isinstance(self.engine, FakeEngine):
            return Held(self.engine.rows, self.engine.pages, 0)
        full = self.engine.fullness
        return Held(self.engine.rows, full.used - self._base.pages, full.reserved)

    @contextmanager
    def broken(self) -> Iterator[None]:
        """Forwards fail, and so does the device."""
        if isinstance(self.engine, FakeEngine):
            self.engine.broken = ZeroDivisionError("broken")
            yield
            assert self.engine.broken is None
            return
        network = self.engine._model.network
        hook = network.register_forward_pre_hook(lambda *_: 1 / 0)
        with pytest.MonkeyPatch.context() as patch:
            dead(patch)
            yield
        hook.remove()

    def run(self, steps: int = 1000) -> Ran:
        """Step until idle, or at most that many times."""
        ran = Ran(0, [], [], [], 0)
        while not self.engine.idle and ran.steps < steps:
            result = self.engine.step()
            ran.spoken.extend(result.spoken)
            ran.finished.extend(result.finished)
            ran.failed.extend(result.failed)
            ran = ran._replace(steps=ran.steps + 1, encoded=ran.encoded + result.encoded)
        return ran

    def make(self, *calls: Call) -> tuple[EncodingId, ...]:
        """Submit calls and run to the end."""
        ids = self.engine.submit(calls)
        ran = self.run()
        assert set(ids) <= set(ran.finished)
        return ids

    def tokens(self, id: EncodingId) -> tuple[int, ...]:
        """The token ids of a message."""
        return self.engine.message(id).tokens

    def content(self, text: str) -> tuple[int, ...]:
        """The token ids of a text."""
        return tuple(self.engine.framing.content.encode(text))


def fake(bos: bool) -> FakeEngine:
    """A fake with long replies."""

    def reply(call: Decode, prompt: str) -> str:
        return f"{babble(call, prompt)} and so it goes on and on and on and on"

    def faulty(call: Decode) -> Exception | None:
        return CallFailed("poisoned") if POISON in call.header else None

    return FakeEngine(reply, bos=bos, faulty=faulty)


def real(folder: Path, style: str) -> Engine:
    """A tiny random llama whose logits are NaN after one character, which it never generates itself."""
    family = Family("llama", "Llama", style=style)
    model = family.save(folder)
    engine = Engine.load(folder, device=DEVICE, dtype="float32", store_tokens=1 << 14)
    poison, network = engine.framing.content.encode(POISON)[-1], engine._model.network
    with torch.no_grad():
        model.get_parameter("model.embed_tokens.weight")[poison] = float("nan")
    network.load_state_dict(model.state_dict())
    never = torch.zeros(engine._model.vocabulary).index_fill(0, torch.tensor([poison]), -1e9)
    network.get_submodule("lm_head").register_forward_hook(lambda module, given, logits: logits + never)
    return engine


def graph() -> tuple[Call, ...]:
    """A message, another over it, and two decodes over one or both of them."""
    one = Prefill("the first of all")
    two = Prefill("and one more", parents=[one], role="system")
    return one, two, Decode("a", parents=[one, two], sampling=LONG), Decode("b", parents=[two], sampling=LONG)


Wrong = Callable[[Bench, Sequence[EncodingId]], Any]


def wrongs() -> dict[str, tuple[str, Wrong]]:
    """Calls that must be refused, by name: the error class, with the field it names, and a function from a bench and
    the ids of a finished prefill and decode to the call."""
    later = Prefill("later")
    schema = {"const": "five words in a row"}
    return {
        "no call": ("RequestError", lambda b, ids: "a text"),
        "unknown parent": ("UnknownEncoding", lambda b, ids: Prefill("x", parents=[10**9])),
        "true as parent": ("RequestError.parents", lambda b, ids: Prefill("x", parents=[True])),
        "text as parent": ("RequestError.parents", lambda b, ids: Decode(parents=["1"])),  # type: ignore[list-item]
        "a decode as parent": ("RequestError.parents", lambda b, ids: Decode(parents=[Decode()])),  # type: ignore[list-item]
        "a prefill of another list": ("RequestError.parents", lambda b, ids: Prefill("x", parents=[later])),
        "too few offsets": ("RequestError.offsets", lambda b, ids: Prefill("x", parents=ids, offsets=[4])),
        "offsets without parents": ("RequestError.offsets", lambda b, ids: Decode(offsets=[None])),
        "a negative offset": ("RequestError.offsets", lambda b, ids: Prefill("x", parents=ids, offsets=[None, -1])),
        "a broken offset": ("RequestError.offsets", lambda b, ids: Decode(new_offset=1.5)),  # type: ignore[arg-type]
        "true as offset": ("RequestError.offsets", lambda b, ids: Prefill("x", new_offset=True)),
        "a text too long": ("ContextOverflow", lambda b, ids: Prefill("so long " * 4096)),
        "a place too far": ("ContextOverflow", lambda b, ids: Prefill("x", parents=ids, offsets=[4095, 1])),
        "more than fits": ("ContextOverflow", lambda b, ids: Decode(sampling=Sampling(max_tokens=4096))),
        "an unknown role": ("RequestError", lambda b, ids: Prefill("x", role="wizard")),
        "framing in tokens": ("RequestError", lambda b, ids: Prefill("", tokens=b.tokens(ids[0]))),
        "framing in forced": ("RequestError", lambda b, ids: Decode(forced=b.tokens(ids[0]))),
        "choices too long": (
            "RequestError.sampling",
            lambda b, ids: Decode(sampling=Sampling(choices=("a", "as long as that is"), max_tokens=2)),
        ),
        "json too long": (
            "RequestError.sampling",
            lambda b, ids: Decode(sampling=Sampling(json_schema=schema, max_tokens=3)),
        ),
    }

"""A real engine has one owner, shared by all engines on its network; what is closed cannot be used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from peft import LoraConfig, get_peft_model

from agentcho.choreography.choreographer import Choreographer
from agentcho.errors import EngineBusy, EngineClosed, ModelError, UnknownEncoding
from agentcho.protocol.call import Decode, Guard, Prefill, Sampling
from agentcho.runner.engine import Engine

from ..device import DEVICE
from .families import llama_family


@pytest.fixture
def engine(llama: Engine) -> Iterator[Engine]:
    """An engine of its own on a network that all tests share."""
    with llama.adapted(None) as engine:
        yield engine


def test_engines_on_one_network_have_one_owner(engine: Engine) -> None:
    other = engine.adapted(None)
    calls: list[Callable[[], Any]] = [
        lambda: other.decode("hello"),
        lambda: other.score("hello"),
        lambda: engine.prefill("hello"),
        engine.close,
        lambda: engine.adapted(None),
        lambda: engine.trained({}),
        engine.check_integrity,
        lambda: engine.cached(1),
        lambda: anyio.run(opened, other),
    ]

    async def work() -> None:
        async with Choreographer(engine):
            for call in calls[:-1]:
                with pytest.raises(EngineBusy, match="a choreographer opened at"):
                    call()
            with pytest.raises(EngineBusy, match="a choreographer opened at"):
                await opened(other)

    anyio.run(work)
    assert other.message(other.decode(forced=(5, 6))).sampled is not None


def test_engines_through_adapters_and_in_training_have_the_owner_of_their_network(tmp_path: Path) -> None:
    """If one of them is held, all others refuse and say why; afterwards all are free."""
    llama_family().save(tmp_path / "base")
    config = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    get_peft_model(llama_family().build(), config).save_pretrained(str(tmp_path / "adapter"))
    base = Engine.load(tmp_path / "base", device=DEVICE, store_tokens=1 << 12)
    training = {"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"]}
    engines = [base, base.adapted(tmp_path / "adapter"), base.trained(training)]
    assert len({id(engine.owner) for engine in engines}) == 1

    assert base.trained(training).decode(forced=(5, 6)), "a second training beside an adapter, without a warning"

    async def held(holder: Engine) -> None:
        async with Choreographer(holder):
            for engine in engines:
                with pytest.raises(EngineBusy, match=r"a choreographer opened at .*test_owner.py:\d+"):
                    engine.prefill("hello")
                with pytest.raises(EngineBusy, match="a choreographer opened at"):
                    engine.trained(training)
                with pytest.raises(EngineBusy, match="a choreographer opened at"):
                    await opened(engine)

    for holder in engines:
        anyio.run(held, holder)
        for engine in engines:
            engine.release([engine.prefill("hello")])


async def opened(engine: Engine) -> None:
    async with Choreographer(engine):
        pass


def test_of_two_threads_the_second_is_refused_while_the_first_is_inside(engine: Engine) -> None:
    inside, done = threading.Event(), threading.Event()

    class Slow(Guard):
        def admit(self, id: int, context: Any) -> None:
            inside.set()
            done.wait(10)

    first = threading.Thread(target=lambda: engine.prefill(Prefill("hello", guard=Slow())), name="first")
    first.start()
    inside.wait(10)
    with pytest.raises(EngineBusy, match=r"a direct call of prefill at .*test_owner.py:\d+ in thread first"):
        engine.decode("hello")
    done.set()
    first.join()
    assert engine.idle
    engine.release([engine.prefill("hello")])


def test_a_closed_engine_is_gone_and_others_on_its_network_are_not(engine: Engine) -> None:
    with engine.adapted(None) as other:
        id = other.prefill("hello")
        other.submit([Decode(sampling=Sampling(max_tokens=3))])
    other.close()
    asked: list[Callable[[], Any]] = [
        lambda: other.prefill("hello"), lambda: other.message(id), lambda: other.receipt(id), other.step,
        lambda: other.release([id]), lambda: other.tokenizer, lambda: other.fullness, lambda: other.idle,
        lambda: anyio.run(opened, other), lambda: other.adapted(None),
    ]  # fmt: skip
    for ask in asked:
        with pytest.raises(EngineClosed, match="the engine is closed"):
            ask()
    assert not hasattr(engine, "no_such_thing")
    engine.release([engine.prefill("hello")])


def test_ids_of_another_engine_are_refused(engine: Engine) -> None:
    one, other = engine.adapted(None), engine.adapted(None)
    mine, foreign = one.prefill("mine"), other.prefill("other")
    assert mine == foreign
    asked: list[Callable[[], Any]] = [
        lambda: one.message(foreign),
        lambda: one.release([foreign]),
        lambda: one.prefill("", parents=[foreign]),
        lambda: one.cached(foreign),
        lambda: one.swap_out([foreign]),
        lambda: one.score("a", parents=[foreign]),
    ]
    for ask in asked:
        with pytest.raises(UnknownEncoding, match="belongs to another engine"):
            ask()
    [running] = one.submit([Decode(forced=(5, 6))])
    [same] = other.submit([Decode(forced=(5, 6))])
    one.cancel([same])
    assert not one.idle
    one.cancel([running])
    assert one.idle


COUNTS = [(name, value) for name in ("store_tokens", "context") for value in (0, -1, True, 1.5)]


OTHERS = [
    ("host_tokens", -1),
    ("host_tokens", True),
    ("plain_markers", "Refuse"),
    ("plain_markers", None),
    ("template_differs", "no"),
]


@pytest.mark.parametrize(("name", "value"), [*COUNTS, *OTHERS])
def test_options_are_checked_before_anything_is_loaded(name: str, value: Any) -> None:
    with pytest.raises(ModelError, match=f"{name}="):
        Engine.load("no such model", **{name: value})

"""Repairs by anchors against a slow oracle of the paper's definitions, and their behaviour as calls: feeding, sharing,
guards, eviction and recomputation."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from agentcho import Engine, Prefill
from agentcho.errors import LeakageError, RequestError, UnknownEncoding
from agentcho.protocol.call import Repair
from agentcho.reuse.anchors import Anchor
from agentcho.reuse.first_k import FirstK
from agentcho.reuse.kvcomm import KVComm
from agentcho.runner.reuse.embeddings import distances

from ..engines import Engines
from . import anchored as slow
from .families import Family, cell, families
from .oracle import Message, Oracle
from .test_repair import Seen

SYSTEM = "you are a spy, be sly about it"
TEXTS = (
    "who is it that asks for the red one",
    "who is it that asks for the sea ones",
    "me and you and the sea and so be it then, my fox",
)
NEW = "who is it that asks for the ice"
ALWAYS, NEVER = 1.0, 1e-9
BOTH = [cell(family, quick=family.name == "llama") for family in families()]


class Play(NamedTuple):
    """Ids of a system prompt, of messages encoded alone, and of the same messages in the prompt after it."""

    system: int
    bases: list[int]
    reals: list[int]

    @property
    def anchors(self) -> tuple[Anchor, ...]:
        """All anchors."""
        return tuple(Anchor(real, base) for real, base in zip(self.reals, self.bases, strict=True))

    def repair(self, of: int | Prefill, threshold: float = ALWAYS, anchors: tuple[Anchor, ...] | None = None) -> Repair:
        """A repair of a message placed after the system prompt."""
        return Repair(of, KVComm(threshold, self.anchors if anchors is None else anchors), [self.system])


def played(engine: Engine) -> Play:
    """Two anchors made without earlier ones to take offsets from, and a third once two are not enough."""
    system, *bases = engine.prefill([Prefill(SYSTEM, role="system"), *map(Prefill, TEXTS)])
    play = Play(system, bases, [])
    for base in bases:
        known = tuple(Anchor(real, its) for real, its in zip(play.reals, bases, strict=False))
        play.reals.append(engine.repair(play.repair(base, NEVER, known)))
    return play


def layers(engine: Engine, id: int) -> list[Tensor]:
    return [part for pair in engine.cached(id) for part in pair]


def gap(one: list[Tensor], other: list[Tensor]) -> float:
    """The largest difference, relative to the largest number."""
    pairs = list(zip(one, other, strict=True))
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


class Beside:
    """The oracle's encodings of what an engine has encoded."""

    def __init__(self, family: Family, engine: Engine, engines: Engines) -> None:
        self.engine, self.model = engine, engines.stock(family)
        self.oracle = Oracle(self.model, family.layers, engine.framing.bos)
        self.known: dict[int, int] = {}

    def message(self, id: int) -> Message:
        """A message over the context in its receipt."""
        receipt = self.engine.receipt(id)
        context = tuple((self.known[entry.id], entry.offset) for entry in receipt.context)
        return Message(tuple(self.engine.message(id).tokens), receipt.start, context)

    def follow(self, *ids: int) -> None:
        """Encode messages that the engine encoded in full."""
        for id in ids:
            assert self.engine.receipt(id).base is None
            self.known[id] = self.oracle.add(self.message(id))

    def put_together(self, id: int, anchors: list[Anchor], shares: list[float]) -> None:
        """Put together a message that the engine repaired with these anchors."""
        base = self.engine.receipt(id).base
        assert base is not None
        ids = [(a.real, a.base) for a in anchors if isinstance(a.real, int) and isinstance(a.base, int)]
        pairs = [(self.known[real], self.known[its]) for real, its in ids]
        self.known[id] = slow.put_together(self.oracle, self.message(id), self.known[base], pairs, shares)

    def gap(self, id: int) -> float:
        """The gap between the engine's keys and values and the oracle's."""
        pairs = self.oracle._at(self.known[id], self.engine.receipt(id).start)
        return gap(layers(self.engine, id), [part[0] for pair in pairs for part in pair])

    def read(self, *parents: int) -> float:
        """The gap between engine and oracle in log-probabilities of some words over these parents."""
        said = self.engine.score(" yes", parents=parents)
        probe = self.engine.prefill("x", parents=parents)
        receipt, framing = self.engine.receipt(probe), self.engine.framing
        opening = framing.opening("assistant", None)
        context = tuple((self.known[entry.id], entry.offset) for entry in receipt.context)
        own = Message((*opening, *framing.content.encode(" yes")), receipt.start, context)
        logits = self.oracle.logits(self.oracle.add(own))
        return float((logits[len(opening) - 1 :].log_softmax(-1) - said).abs().max())


@pytest.mark.parametrize("family", BOTH)
def test_offsets_are_those_of_the_paper(family: Family, engines: Engines) -> None:
    engine = engines(family)
    beside, play = Beside(family, engine, engines), played(engine)
    beside.follow(play.system, *play.bases, *play.reals)
    new = engine.prefill(NEW, new_offset=40)
    beside.follow(new)
    made = engine.repair(play.repair(new))
    tokens = [engine.message(id).tokens for id in (new, *play.bases)]
    near = {a: slow.distance(beside.model, tokens[0], its) for a, its in zip(play.anchors, tokens[1:], strict=True)}
    order = sorted(play.anchors, key=near.__getitem__)
    shares = slow.weights([near[each] for each in order])
    assert engine.receipt(made).base == new
    assert engine.receipt(made).anchors == tuple(id for anchor in order for id in anchor)
    assert max(shares) - min(shares) > 0.01, "all the same would not show how they are weighed"
    beside.put_together(made, order, shares)
    assert beside.gap(made) < 1e-5
    assert beside.read(play.system, made) < 1e-4
    fresh = engine.prefill(NEW, parents=[play.system])
    assert gap(layers(engine, fresh), layers(engine, made)) > 1e-3, "it is no encoding anew"


@pytest.mark.parametrize("family", BOTH)
def test_with_itself_as_anchor_it_is_what_encoding_it_anew_gives(family: Family, engines: Engines) -> None:
    """For any base and positions: the base plus the whole offset is the encoding in the same prompt."""
    engine = engines(family)
    play = played(engine)
    alone = Anchor(play.reals[0], play.bases[0])
    same = engine.repair(play.repair(play.bases[0], anchors=(alone, alone)))
    assert engine.receipt(same).anchors == (*alone, *alone)
    assert gap(layers(engine, same), layers(engine, play.reals[0])) < 1e-5
    assert gap(layers(engine, play.bases[0]), layers(engine, play.reals[0])) > 1e-3


def test_the_anchor_that_is_the_message_weighs_all_where_embeddings_are_far_apart() -> None:
    assert KVComm(0.3).weights([0.0, 50.0, 60.0]) == pytest.approx([1, 0, 0])
    assert KVComm(1.0).weights([5.0, 5.0]) == (0.5, 0.5)
    assert KVComm(0.99).weights([5.0, 5.0]) == ()


@pytest.mark.parametrize("family", [cell(family, quick=True) for family in families() if family.name == "llama"])
def test_what_is_taken_goes_by_distance_weight_and_entropy_as_in_the_paper(family: Family, engines: Engines) -> None:
    engine, model = engines(family), engines.stock(family)
    encode = engine.framing.content.encode
    own, *others = (encode(text) for text in (NEW, *TEXTS))
    table = model.get_parameter("model.embed_tokens.weight")
    far = [slow.distance(model, own, other) for other in others]
    assert distances(table, own, others) == pytest.approx(far, rel=1e-9)
    shares = slow.weights(far)
    most = slow.spread(shares)
    assert 0 < most < 1
    assert KVComm(min(1, most + 1e-9)).weights(far) == pytest.approx(shares)
    assert KVComm(most - 1e-9).weights(far) == ()
    play = played(engine)
    new = engine.prefill(NEW)
    tokens = [engine.message(id).tokens for id in (new, *play.bases)]
    most = slow.spread(slow.weights([slow.distance(model, tokens[0], each) for each in tokens[1:]]))
    taken, refused = engine.repair([play.repair(new, min(1, most + 1e-6)), play.repair(new, most - 1e-6)])
    assert engine.receipt(taken).base == new
    assert engine.receipt(refused).base is None


def test_where_anchors_do_not_suffice_it_is_encoded_anew(llama: Engine) -> None:
    play = played(llama)
    new, longer = llama.prefill([Prefill(NEW), Prefill(" ".join(TEXTS))])
    one, few = llama.repair([play.repair(longer), play.repair(new, anchors=play.anchors[:1])])
    far = llama.repair(play.repair(new, NEVER))
    for id, text in ((one, " ".join(TEXTS)), (few, NEW), (far, NEW)):
        assert (llama.receipt(id).base, llama.receipt(id).anchors) == (None, ())
        fresh = llama.prefill(text, parents=[play.system])
        assert llama.debug.entry(id) is llama.debug.entry(fresh), "equal to what anybody would encode there"


def test_what_was_put_together_is_no_anchor(llama: Engine) -> None:
    play = played(llama)
    new, other = llama.prefill([Prefill(NEW), Prefill("who is it")])
    made = llama.repair(play.repair(new))
    later = llama.repair(play.repair(other, anchors=(*play.anchors[:2], Anchor(made, new))))
    assert set(llama.receipt(later).anchors) == {id for anchor in play.anchors[:2] for id in anchor}
    none = llama.repair(play.repair(other, anchors=(play.anchors[0], Anchor(made, new))))
    assert llama.receipt(none).base is None


def test_it_feeds_no_token_and_a_new_anchor_feeds_all(llama: Engine) -> None:
    play = played(llama)
    new = llama.prefill(NEW)
    llama.submit([play.repair(new)])
    assert llama.step().encoded == 0
    llama.submit([play.repair(new, NEVER)])
    assert llama.step().encoded == len(llama.message(new).tokens)


def test_anchors_of_the_same_list_are_waited_for(llama: Engine, engines: Engines) -> None:
    system, *bases = Prefill(SYSTEM, role="system"), *map(Prefill, (*TEXTS, NEW))
    repairs = list[Repair]()
    for base in bases:
        known = tuple(Anchor(repair, repair.of) for repair in repairs)
        repairs.append(Repair(base, KVComm(ALWAYS if base is bases[-1] else NEVER, known), [system]))
    ids = llama.submit([system, *bases, *repairs])
    while not llama.idle:
        assert not llama.step().failed
    other = llama.adapted(None)
    play = played(other)
    later = other.repair(play.repair(other.prefill(NEW)))
    assert llama.receipt(ids[-1]).base == ids[4]
    assert gap(layers(llama, ids[-1]), layers(other, later)) < 1e-5


def test_what_it_is_made_of_is_in_its_key(llama: Engine) -> None:
    play = played(llama)
    new, elsewhere = llama.prefill(NEW), llama.prefill("be kind", role="system")
    one, same = llama.repair(play.repair(new)), llama.repair(play.repair(new))
    assert llama.debug.entry(one) is llama.debug.entry(same)
    others = [
        Anchor(llama.prefill(text, parents=[elsewhere]), base) for text, base in zip(TEXTS, play.bases, strict=True)
    ]
    salted = Repair(new, KVComm(ALWAYS, play.anchors), [play.system], salt="s")
    fewer, loose = play.repair(new, anchors=play.anchors[:2]), play.repair(new, 0.99)
    made = llama.repair([play.repair(new, anchors=tuple(others)), fewer, loose, salted])
    entries = {id: llama.debug.entry(id) for id in (one, *made)}
    assert len({entry.key for entry in entries.values()}) == len(entries)
    assert gap(layers(llama, one), layers(llama, made[0])) > 1e-4, "the contexts of its anchors say what it is"


def test_what_was_dropped_is_made_again_to_the_bit(engines: Engines) -> None:
    engine = engines(store_tokens=1 << 12, host_tokens=0)
    play = played(engine)
    made = engine.repair(play.repair(engine.prefill(NEW)))
    before = layers(engine, made)
    ids = [play.system, *play.bases, *play.reals, made]
    engine.swap_out(ids)
    assert all(engine.debug.entry(id).dropped for id in ids)
    engine.check_integrity()
    assert all(torch.equal(one, other) for one, other in zip(layers(engine, made), before, strict=True))
    engine.release([*play.bases, *play.reals])
    engine.swap_out([made])
    assert all(torch.equal(one, other) for one, other in zip(layers(engine, made), before, strict=True))
    engine.check_integrity()


@pytest.mark.parametrize("exact", [False, True])
def test_no_bit_depends_on_what_runs_beside_it(engines: Engines, exact: bool) -> None:
    def made(*beside: Prefill) -> list[Tensor]:
        engine = engines()
        play = played(engine)
        new = engine.prefill(NEW)
        *_, id = engine.submit([*beside, play.repair(new)])
        while not engine.idle:
            engine.step(deterministic=exact)
        return layers(engine, id)

    alone, crowded = made(), made(Prefill("so much " * 20), Prefill("and more " * 9))
    assert all(torch.equal(one, other) for one, other in zip(alone, crowded, strict=True))


def test_keys_and_values_that_are_kept_in_8_bits(engines: Engines) -> None:
    engine = engines(kv_dtype="int8")
    play = played(engine)
    alone = Anchor(play.reals[0], play.bases[0])
    same = engine.repair(play.repair(play.bases[0], anchors=(alone, alone)))
    assert gap(layers(engine, same), layers(engine, play.reals[0])) < 0.03


def test_a_guard_is_asked_about_anchors_too_and_a_refusal_leaves_nothing(llama: Engine) -> None:
    play = played(llama)
    new, guard = llama.prefill(NEW), Seen()
    used = llama.fullness.used
    call = Repair(new, KVComm(ALWAYS, play.anchors), [play.system], guard=guard)
    llama.release([llama.repair(call)])
    assert set(guard.asked) == {play.system, new, *play.bases, *play.reals}
    with pytest.raises(LeakageError):
        llama.repair(Repair(new, KVComm(ALWAYS, play.anchors), [play.system], guard=Seen(refuse=True)))
    assert llama.fullness.used == used
    few = Repair(new, KVComm(ALWAYS, play.anchors[:1]), [play.system], guard=guard)
    llama.repair(few)
    assert guard.asked == [play.system], "what it is not made of is not asked about"


def test_one_that_fails_leaves_nothing(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    play = played(llama)
    new, used = llama.prefill(NEW), llama.fullness.used
    make: Callable[..., int] = llama._runner.make
    monkeypatch.setattr(llama._runner, "make", lambda entry: 1 // 0)
    [id] = llama.submit([play.repair(new)])
    failed = llama.step().failed
    assert [failure.id for failure in failed] == [id]
    monkeypatch.setattr(llama._runner, "make", make)
    assert (llama.idle, llama.fullness.used, llama.fullness.reserved) == (True, used, 0)
    llama.check_integrity()
    assert llama.receipt(llama.repair(play.repair(new))).base == new


def test_released_and_cancelled_ones_leave_nothing(llama: Engine) -> None:
    play = played(llama)
    new, used = llama.prefill(NEW), llama.fullness.used
    ids = llama.submit([play.repair(new), Repair(new, FirstK(2), [play.system])])
    llama.cancel(ids)
    assert (llama.idle, llama.fullness.used) == (True, used)
    llama.release([llama.repair(play.repair(new))])
    assert llama.fullness.used == used
    llama.check_integrity()


@pytest.mark.parametrize(
    ("choose", "told"),
    [
        (KVComm(0.0), "the threshold of KVComm is"),
        (KVComm(1.5), "the threshold of KVComm is"),
        (KVComm(True), "the threshold of KVComm is"),
        (KVComm(0.3, ((1,),)), "give Anchor"),  # type: ignore[arg-type]
        (KVComm(0.3, (Anchor("x", 1),)), "one of the parents"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_choice_is_refused(llama: Engine, choose: KVComm, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        llama.repair(Repair(llama.prefill(NEW), choose))


def test_an_anchor_that_is_not_there_is_refused(llama: Engine) -> None:
    play = played(llama)
    with pytest.raises(UnknownEncoding):
        llama.repair(play.repair(play.bases[0], anchors=(Anchor(10**6, play.bases[0]),)))


def test_the_most_that_weights_can_spread_is_allowed_by_one() -> None:
    for count in range(2, 21):
        assert KVComm(ALWAYS).weights([3.0] * count) == pytest.approx([1 / count] * count)

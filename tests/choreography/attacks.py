"""Malformed and hostile calls: each must be refused or fail alone. Independent of agents.

Their arguments may be hostile too: custom classes, iterators that can be read only once, values without a `repr`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any

from agentcho import Decode, Prefill, Sampling
from agentcho.protocol.call import Call, EncodingId, Repair, SchedulingPriority, Shadow
from agentcho.reuse.first_k import FirstK
from agentcho.reuse.top_k import TopK

LONE = "a lone \ud800 surrogate"
Attack = Callable[[Sequence[EncodingId]], tuple[Any, Any]]
"""Given finished encodings: the submitted calls, and their turn."""


class Sly(Prefill):
    """A call whose text cannot be read."""

    def __getattribute__(self, name: str) -> Any:
        if name == "text":
            raise ZeroDivisionError("read me not")
        return super().__getattribute__(name)


class Odd(int):
    """A number that cannot be printed, compared or hashed."""

    def __repr__(self) -> str:
        raise ZeroDivisionError("show me not")

    __str__ = __format__ = __repr__  # type: ignore[assignment]

    def __lt__(self, other: object) -> bool:
        raise ZeroDivisionError("compare me not")

    __gt__ = __le__ = __ge__ = __lt__

    def __hash__(self) -> int:
        raise ZeroDivisionError("look me up not")


class Raising:
    """A guard that fails with an error of its own instead of refusing."""

    def admit(self, id: EncodingId, context: Sequence[EncodingId]) -> None:
        """Fail."""
        raise ZeroDivisionError("a guard of one's own")


def unread() -> Iterator[Any]:
    """An iterator that fails when it is read."""
    yield from ()
    raise ZeroDivisionError("read me not")


def sampled(**options: Any) -> Decode:
    """A decode with unvalidated options."""
    return Decode(sampling=Sampling.model_construct(**{**Sampling().__dict__, **options}))


def nested(depth: int) -> dict[str, Any]:
    """A deeply nested schema."""
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema, "minItems": 1}
    return schema


def chained(depth: int, name: str = "#/$defs/a{}") -> dict[str, Any]:
    """A chain of references that is deep without being nested."""
    definitions: dict[str, Any] = {"a0": {"type": "integer"}}
    for number in range(depth):
        definitions[f"a{number + 1}"] = {"allOf": [{"$ref": name.format(number)}]}
    return {"$defs": definitions, "$ref": name.format(depth)}


def crossed(patterns: int) -> dict[str, Any]:
    """A text that must match many patterns at once."""
    return {"allOf": [{"type": "string", "pattern": f".*a.{{{number}}}b.*"} for number in range(1, patterns)]}


def circular() -> dict[str, Any]:
    """A schema that contains itself."""
    schema: dict[str, Any] = {"type": "array"}
    schema["items"] = schema
    return schema


def wrong_ids() -> dict[str, Any]:
    """Values that are not lists of valid ids."""
    return {
        "past the vocabulary": (10**6,),
        "past 64 bits": (2**64,),
        "past all bounds": (10**5000,),
        "below zero": (-1,),
        "texts": ("a", "b"),
        "a text": "abc",
        "fractions": (1.5,),
        "truths": (True,),
        "nothing in them": (None,),
        "a number": 5,
        "a mapping": {5: 5},
        "a set": {5},
        "without end": count(10**6),
        "raising": unread(),
        "odd": (Odd(10**7),),
        "lists": ([5],),
        "bytes": b"abc",
    }


def wrong_places() -> dict[str, Any]:
    """Values that are not positions for one parent."""
    return {
        "past all bounds": (10**5000,),
        "past 64 bits": (2**64,),
        "below zero": (-1,),
        "truths": (True,),
        "a text": "rightmost",
        "texts": ("0",),
        "fractions": (0.5,),
        "not a number": (float("nan"),),
        "a number": 3,
        "without end": count(),
        "too many": (1, 2, 3),
        "a mapping": {0: 0},
        "odd": (Odd(3),),
        "raising": unread(),
    }


def wrong_options() -> dict[str, dict[str, Any]]:
    """Invalid sampling options."""
    return {
        "almost no temperature": {"temperature": 1e-310},
        "hardly any temperature": {"temperature": 1e-46},
        "too hot": {"temperature": 1e308},
        "endlessly hot": {"temperature": float("inf")},
        "no temperature at all": {"temperature": float("nan")},
        "a cold one": {"temperature": -1.0},
        "a temperature in words": {"temperature": "hot"},
        "an endless top_k": {"top_k": 2**63},
        "top_k below": {"top_k": -1},
        "a broken top_k": {"top_k": 1.5},
        "top_p none": {"top_p": 0.0},
        "top_p above": {"top_p": 1.5},
        "top_p no number": {"top_p": float("nan")},
        "min_p above": {"min_p": 2.0},
        "min_p no number": {"min_p": float("nan")},
        "no tokens": {"max_tokens": 0},
        "endless tokens": {"max_tokens": 10**30},
        "countless tokens": {"max_tokens": 10**5000},
        "broken tokens": {"max_tokens": 1.5},
        "tokens in words": {"max_tokens": "ten"},
        "true tokens": {"max_tokens": True},
        "a seed past 64 bits": {"seed": 2**64},
        "a seed past all bounds": {"seed": 10**5000},
        "a seed in words": {"seed": "x"},
        "a broken seed": {"seed": 0.5},
        "a stop that is none": {"stop": ("",)},
        "a lone stop": {"stop": (LONE,)},
        "a stop of numbers": {"stop": (5,)},
        "a text of stops": {"stop": "stop"},
        "stops without end": {"stop": count()},
        "stops by the thousand": {"stop": tuple(f"stop {n}" for n in range(5000))},
        "a long stop": {"stop": ("x" * 10**5,)},
        "no choices": {"choices": ()},
        "a lone choice": {"choices": (LONE,)},
        "an empty choice": {"choices": ("",)},
        "choices of numbers": {"choices": (1, 2)},
        "choices without end": {"choices": count()},
        "both constraints": {"choices": ("a",), "json_schema": {"type": "integer"}},
        "a schema that is a text": {"json_schema": "integer"},
        "a schema of nothing known": {"json_schema": {"type": "soup"}},
        "a schema that points nowhere": {"json_schema": {"$ref": "#/$defs/none"}},
        "a schema of objects": {"json_schema": {"enum": [object()]}},
        "a schema of no number": {"json_schema": {"const": float("nan")}},
        "a schema in itself": {"json_schema": circular()},
        "a deep schema": {"json_schema": nested(5000)},
        "a chained schema": {"json_schema": chained(3000)},
        "a chain of other names": {"json_schema": chained(3000, "#/%24defs/a{}")},
        "a crossed schema": {"json_schema": crossed(40)},
        "a schema of a long text": {"json_schema": {"type": "string", "minLength": 10**12}},
        "a schema of odd definitions": {"json_schema": {"$defs": ["a"], "$ref": "#/$defs/a"}},
        "a lone schema": {"json_schema": {"const": LONE}},
        "a schema of bytes": {"json_schema": {b"type": "integer"}},
        "a schema without a document": {
            "json_schema": {
                "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 1}},
                "$ref": "#/$defs/a",
            }
        },
        "a huge schema": {"json_schema": {"enum": ["x" * 10**6]}},
    }


def wrong_turns() -> dict[str, Any]:
    """Invalid turns."""
    make: Any = SchedulingPriority
    return {
        "a priority in words": make("", "high"),
        "no priority": make("", None),
        "a priority past all bounds": make("", 10**5000),
        "no number": make("", float("nan")),
        "a broken priority": make("", 0.5),
        "an odd one": make("", Odd(2**64)),
        "a workflow of lists": make(["x"]),
        "a workflow of none": make(None),
        "a lone workflow": make(LONE),
        "no turn": None,
        "a text": "first",
        "ahead in words": make("", 0, "yes"),
    }


def attacks() -> dict[str, Attack]:
    """All attacks by name."""
    found: dict[str, Attack] = {}
    found |= _each("prefilled ids", wrong_ids(), lambda ids, wrong: Prefill("", tokens=wrong))
    found |= _each("forced ids", wrong_ids(), lambda ids, wrong: Decode(forced=wrong))
    found |= _each("parents", wrong_ids(), lambda ids, wrong: Prefill("x", wrong))
    found |= _each("offsets", wrong_places(), lambda ids, wrong: Decode("x", ids[:1], wrong))
    alone = {name: wrong[0] for name, wrong in wrong_places().items() if isinstance(wrong, tuple) and len(wrong) == 1}
    found |= _each("own place", alone, lambda ids, wrong: Prefill("x", ids[:1], None, wrong))
    found |= _each("sampling", wrong_options(), lambda ids, wrong: sampled(**wrong))
    found |= {f"turn: {name}": partial(_turned, turn) for name, turn in wrong_turns().items()}
    return found | _texts() | _kinds() | _lists() | _inside()


def _each(what: str, wrong: dict[str, Any], make: Callable[[Sequence[EncodingId], Any], Call]) -> dict[str, Attack]:
    return {f"{what}: {name}": _one(partial(_given, make, value)) for name, value in wrong.items()}


def _given(make: Callable[[Sequence[EncodingId], Any], Call], value: Any, ids: Sequence[EncodingId]) -> Call:
    return make(ids, value)


def _turned(turn: Any, ids: Sequence[EncodingId]) -> tuple[Any, Any]:
    return (Prefill("x"),), turn


def _one(make: Callable[[Sequence[EncodingId]], Call]) -> Attack:
    return lambda ids: ((make(ids),), SchedulingPriority("bad"))


def _texts() -> dict[str, Attack]:
    wrong: dict[str, Any] = {"lone": LONE, "bytes": b"x", "none": None, "number": 5, "list": ["x"]}
    named = {name: value for name, value in wrong.items() if value is not None}  # a name may be None
    return {
        **_each("text", wrong | {"long": "so long " * 9999}, lambda ids, wrong: Prefill(wrong)),
        **_each("header", wrong | {"long": "so long " * 9999}, lambda ids, wrong: Decode(wrong)),
        **_each("salt", wrong, lambda ids, wrong: Prefill("x", salt=wrong)),
        **_each("name", named, lambda ids, wrong: Decode(name=wrong)),
        **_each("role", wrong | {"unknown": "wizard"}, lambda ids, wrong: Prefill("x", role=wrong)),
    }


def _kinds() -> dict[str, Attack]:
    wrong: dict[str, Callable[[Sequence[EncodingId]], Any]] = {
        "a stride of none": lambda ids: Decode(forced=(), stride=0),
        "a stride below": lambda ids: Decode(forced=(), stride=-1),
        "a broken stride": lambda ids: Decode(forced=(), stride=1.5),  # type: ignore[arg-type]
        "a stride in words": lambda ids: Decode(forced=(), stride="2"),  # type: ignore[arg-type]
        "too many logprobs": lambda ids: Decode(logprobs=21),
        "logprobs in words": lambda ids: Decode(logprobs="5"),  # type: ignore[arg-type]
        "logits in words": lambda ids: Decode(logits="yes"),  # type: ignore[arg-type]
        "no sampling": lambda ids: Decode(sampling=None),  # type: ignore[arg-type]
        "sampling as a mapping": lambda ids: Decode(sampling={"temperature": 1}),  # type: ignore[arg-type]
        "a guard that is none": lambda ids: Prefill("x", guard="guard"),  # type: ignore[arg-type]
        "a guard that fails": lambda ids: Prefill("x", guard=Raising()),
        "a guard that fails a decode": lambda ids: Decode("x", guard=Raising()),
        "a sly one": lambda ids: Sly("x"),
        "a repair of nothing": lambda ids: Repair(None, FirstK(1)),  # type: ignore[arg-type]
        "a repair of a text": lambda ids: Repair("1", FirstK(1)),  # type: ignore[arg-type]
        "a repair of what is not there": lambda ids: Repair(10**9, FirstK(1)),
        "a repair of a decode": lambda ids: Repair(Decode(), FirstK(1)),  # type: ignore[arg-type]
        "a repair of no tokens": lambda ids: Repair(ids[0], FirstK(0)),
        "a repair of broken tokens": lambda ids: Repair(ids[0], FirstK(1.5)),  # type: ignore[arg-type]
        "a repair of no share": lambda ids: Repair(ids[0], TopK(0.0)),
        "a repair of no number": lambda ids: Repair(ids[0], TopK(float("nan"))),
        "a repair of a share in words": lambda ids: Repair(ids[0], TopK("half")),  # type: ignore[arg-type]
        "a repair by nothing": lambda ids: Repair(ids[0], None),  # type: ignore[arg-type]
        "a repair by a number": lambda ids: Repair(ids[0], 3),  # type: ignore[arg-type]
        "a shadow of nothing": lambda ids: Shadow(None),  # type: ignore[arg-type]
        "a shadow of an id": lambda ids: Shadow(ids[1]),  # type: ignore[arg-type]
        "a shadow of another list": lambda ids: Shadow(Decode()),
        "nothing": lambda ids: None,
        "a mapping": lambda ids: {"text": "x"},
        "an id": lambda ids: ids[0],
        "a class": lambda ids: Prefill,
    }
    return {name: _one(make) for name, make in wrong.items()}


def _lists() -> dict[str, Attack]:
    return {
        "no list": lambda ids: (None, SchedulingPriority("bad")),
        "a number of calls": lambda ids: (5, SchedulingPriority("bad")),
        "a text of calls": lambda ids: ("prefill", SchedulingPriority("bad")),
        "a call for a list": lambda ids: (Prefill("x"), SchedulingPriority("bad")),
        "a mapping of calls": lambda ids: ({Prefill("x"): 1}, SchedulingPriority("bad")),
        "no calls": lambda ids: ((), SchedulingPriority("bad")),
        "calls without end": lambda ids: (count(), SchedulingPriority("bad")),
        "a list that fails": lambda ids: (unread(), SchedulingPriority("bad")),
        "a good one before a bad one": lambda ids: ((Prefill("good"), Prefill(LONE)), SchedulingPriority("bad")),
        "a decode made ahead": lambda ids: ((Decode(),), SchedulingPriority("bad", 0, True)),
        "a repair ahead with its decode": lambda ids: ((d := Decode(), Shadow(d)), SchedulingPriority("bad", 0, True)),
    }


def _inside() -> dict[str, Attack]:
    """Invalid parents and positions."""
    return {
        "an id twice removed": _one(lambda ids: Decode("x", [Prefill("y")])),
        "itself": lambda ids: (_itself(), SchedulingPriority("bad")),
        "true for one": _one(lambda ids: Prefill("x", [True])),
        "a fraction for one": _one(lambda ids: Prefill("x", [float(ids[0])])),  # type: ignore[list-item]
        "too far": _one(lambda ids: Prefill("x", ids[:1], [4095])),
        "past the end": _one(lambda ids: Decode("x", ids[:1], None, 10**9)),
    }


def _itself() -> tuple[Call, ...]:
    parents: list[Any] = []
    call = Prefill("x", parents)
    parents.append(call)
    return (call,)

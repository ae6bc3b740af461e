"""Both profiles in float32 and bfloat16, on a model wide enough for kernels to compute one row and several rows
differently: in the deterministic profile, hidden messages change no bit for a reader; in the fast one they do, within a
bound.

All words are forced, including the reader's own, so that numbers of the same words are compared to the end.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from agentcho import Engine
from tests.engine.families import Family, middle_sized
from tests.engines import Engines

from .double import Forced
from .neighbours import RESULTS, told
from .script import Act, secret_of, workflow
from .stage import AUDIT, BITWISE, FAST, Played, Profile, deep, gap, movement, play
from .test_noninterference import READERS, SWAPS

ROUNDING = {"float32": 1e-4, "bfloat16": 0.25}
"""The largest difference of any number in the fast profile. Logits are of scale 1, keys and values at most 10."""
WIDER = Family(
    "llama",
    "Llama",
    {"hidden_size": 512, "intermediate_size": 1376, "num_attention_heads": 8, "initializer_range": 0.04},
)

BESIDE = 20


class Case(NamedTuple):
    """A network, its dtype, and a workflow with one of its readers. `beside`: hidden words of other lengths are in the
    same forwards as what the reader reads or says."""

    family: Family
    dtype: str
    seed: int
    reader: str
    beside: bool


def case(family: Family, dtype: str, seed: int, quick: bool = False) -> object:
    """One case; marked slow unless `quick`."""
    shape = f"{family.settings['hidden_size']}x{len(family.layers)}"
    found = Case(family, dtype, seed, READERS[(seed + 1) % 4], beside=seed == BESIDE)
    return pytest.param(found, id=f"{shape}-{dtype}-{seed}", marks=() if quick else pytest.mark.slow)


CASES = [
    *(case(middle_sized(), dtype, BESIDE, quick=True) for dtype in ROUNDING),
    *(case(deep(middle_sized()), dtype, seed) for dtype in ROUNDING for seed in (21, 22)),
    *(case(deep(WIDER), dtype, BESIDE) for dtype in ROUNDING),
]


SPOKEN = dict[str, Forced]()


def spoken(engine: Engine, case: Case) -> Forced:
    """What is said in the workflow, for forcing it in every play."""
    if (key := repr(case)) not in SPOKEN:
        SPOKEN[key] = play(engine, workflow(case.seed), case.reader, profile=FAST).double.spoken
    return SPOKEN[key]


def plays(
    engine: Engine, case: Case, profile: Profile, swaps: Sequence[str] = tuple(SWAPS)
) -> tuple[Played, dict[str, Played]]:
    """A workflow, and the same with what is hidden from the reader swapped in each way."""
    said = spoken(engine, case)
    acts: tuple[Act, ...] = workflow(case.seed)
    first = play(engine, acts, case.reader, said, profile)
    assert first.double.own
    others = {name: secret_of(acts, case.reader, SWAPS[name]) for name in swaps}
    return first, {name: play(engine, swapped, case.reader, said, profile) for name, swapped in others.items()}


@pytest.mark.parametrize("case", CASES)
def test_in_the_deterministic_profile_no_bit_differs(engines: Engines, case: Case) -> None:
    first, others = plays(engines(case.family, case.dtype), case, BITWISE)
    assert {name: gap(first, other) for name, other in others.items()} == dict.fromkeys(SWAPS, 0.0)


@pytest.mark.parametrize("case", CASES)
def test_in_the_fast_profile_lengths_show_and_by_rounding_alone(engines: Engines, case: Case) -> None:
    first, others = plays(engines(case.family, case.dtype), case, FAST)
    gaps = {name: gap(first, other) for name, other in others.items()}
    assert max(gaps.values()) <= ROUNDING[case.dtype]
    if case.beside:
        assert gaps["other length"] > 0, "the row on batches in docs/leakage.md says that lengths show"


@pytest.mark.parametrize("case", CASES[:1])
def test_a_leak_moves_more_than_rounding_does(engines: Engines, case: Case) -> None:
    first, others = plays(engines(case.family, case.dtype), case, AUDIT, ("same length",))
    assert movement(first, others["same length"]) > ROUNDING[case.dtype]


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.slow
def test_log_probabilities_tell_how_long_a_hidden_message_is_in_the_fast_profile_alone(
    engines: Engines, dtype: str
) -> None:
    """If bfloat16 products have the same bits for one row and for two, nothing shows: see docs/leakage.md."""
    engine, lengths = engines(middle_sized(), dtype), (1, 9)
    fast, exact = told(engine, False, lengths), told(engine, True, lengths)
    assert (exact.gap, exact.right) == (0.0, 0)
    assert fast.right == len(lengths) or (dtype == "bfloat16" and fast == exact)


def test_pages_say_what_was_measured_last() -> None:
    rows = {(row["dtype"], row["profile"]): row for row in json.loads(RESULTS.read_bytes())["rows"]}
    assert all(row["right"] == row["gap"] == 0 for (_, profile), row in rows.items() if profile == "deterministic")
    fast = rows["float32", "fast"]
    served = (RESULTS.parents[1] / "serve.md").read_text()
    assert f"{fast['right']} of {len(fast['lengths'])} lengths in float32" in served

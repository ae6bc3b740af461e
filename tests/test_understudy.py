"""The bundled model: what its corpus contains, how it is framed, and that the shipped folder keeps its promises."""

import json
from itertools import islice
from pathlib import Path

import pytest

from agentcho import Engine
from agentcho.runner.understudy import weights_path
from tools.pages.marks import without_age
from tools.pages.understudy import page
from tools.understudy.corpus import corpus
from tools.understudy.grammar import share
from tools.understudy.tokens import Framer
from tools.understudy.views import Sample
from tools.understudy.wordings import rules

from .engines import Engines

ROOT = Path(__file__).parents[1]


def samples(kind: str, count: int = 4000, seed: int = 7) -> list[Sample]:
    """The samples of one kind among the held-out ones, which mix all kinds from the start."""
    return [s for s in islice(corpus("held-out", seed), count) if s.kind.startswith(kind)]


def test_the_corpus_is_its_seed() -> None:
    one, again, other = (list(islice(corpus("train", seed), 50)) for seed in (3, 3, 4))
    assert one == again
    assert one != other


def test_a_stream_resumes_anywhere() -> None:
    late = next(iter(corpus("train", 0, start=40)))
    assert late in list(islice(corpus("train", 0), 200))


def test_held_out_wordings_and_names_are_none_of_training() -> None:
    for topic in ("dilemma", "debate", "chat", "talk"):
        for symbol, wordings in rules(topic).items():
            if len(wordings) >= 5:
                held = set(share(wordings, "held-out"))
                assert held, symbol
                assert held.isdisjoint(share(wordings, "train")), symbol
    for sort in ("hers", "his", "onsets", "rhymes"):
        assert set(share(rules("names")[sort], "held-out")).isdisjoint(share(rules("names")[sort], "train"))


def test_an_instruction_decides_and_only_its_owner_reads_it() -> None:
    games = samples("dilemma")
    assert len(games) > 200
    seen = {"always-defect": 0, "always-cooperate": 0}
    for sample in games:
        strategy = sample.facts["strategy"]
        if strategy in seen:
            seen[strategy] += 1
            word = strategy.removeprefix("always-").upper()
            decided = next(t for t in reversed(sample.turns) if t.name == sample.viewer)
            assert word in decided.text
            assert word[:6] in sample.turns[0].text.upper()
    assert min(seen.values()) > 20


def test_a_view_holds_nothing_that_the_other_kept_to_itself() -> None:
    for sample in samples("dilemma"):
        shown = "\n".join(turn.text for turn in sample.turns)
        assert sample.facts["other_plan"] not in shown
        others = [t for t in sample.turns if t.role == "assistant" and t.name != sample.viewer]
        assert all(turn.header.startswith("To ") for turn in others)
        assert sum(turn.role == "system" for turn in sample.turns) == 1


def test_no_prompt_tells_the_answer_of_a_debate() -> None:
    for sample in samples("debate"):
        question = next(turn.text for turn in sample.turns if turn.role == "user")
        assert f"answer is {sample.facts['answer']}" not in question


def test_training_reads_exactly_the_ids_that_the_engine_feeds(understudy: Engine) -> None:
    framer = Framer.load(weights_path())
    for sample in islice(corpus("held-out", 1), 60):
        fed = [understudy.framing.bos]
        for turn in sample.turns:
            content = understudy.framing.content
            fed += understudy.framing.opening(turn.role, turn.name)
            fed += content.encode(turn.header) + content.encode(turn.text)
            fed += understudy.framing.closing(turn.role)
        assert framer.sample(sample.turns).ids == fed


def test_the_shipped_folder_is_small_and_long_of_context(understudy: Engine) -> None:
    assert sum(file.stat().st_size for file in weights_path().iterdir()) <= 24_000_000
    assert understudy.context >= 4096
    assert understudy.framing.frame("assistant").named is not None
    assert {file.suffix for file in weights_path().iterdir()} == {".json", ".safetensors"}


def test_the_card_is_made_from_its_result_file() -> None:
    assert page(ROOT / "docs/results") == without_age((ROOT / "docs/understudy.md").read_text())
    shipped = json.loads((weights_path() / "card.json").read_text())
    scores = json.loads((ROOT / "docs/results/understudy.json").read_text())
    assert scores["training"] == shipped


@pytest.fixture(scope="module")
def understudy(engines: Engines) -> Engine:
    return engines.understudy(store_tokens=4096)

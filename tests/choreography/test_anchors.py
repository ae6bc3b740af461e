"""Games whose callers repair by anchors: what is encoded anew for whom, costs, records, and resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentcho import Agent, Engine, Game, RunConfig, Scenario, canonical_transcript
from agentcho.audit.planned import audit_traces
from agentcho.audit.verdict import GameVerdict
from agentcho.config import ReusePolicy
from agentcho.errors import ConfigError
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.lab.compare.columns import columns
from agentcho.lab.compare.fidelity import Arm, apart, forced, rows
from agentcho.provenance.labels import EncodingRecord
from agentcho.records.record import SavedRun, find
from agentcho.records.trace import exported
from agentcho.records.transcript import Seals, TranscriptEntry
from agentcho.reuse.kvcomm import THRESHOLD, KVComm
from agentcho.reuse.registry import parsed_repair
from tests.engines import Engines

from .test_repair import played


class Talker(Agent):
    """Speaks to everyone."""

    audience = "everyone"


class News(Scenario):
    """Alice and Bob have a secret each and hear the same news; each speaks after every item."""

    name = "news"
    limit = 6

    async def play(self, game: Game) -> Any:
        """Play `limit` items."""
        cast = game.cast(Talker, "alice", system="be sly"), game.cast(Talker, "bob", system="be kind")
        for each in cast:
            await each.think("plan")
        for number in range(self.limit):
            await game.announce(f"The news of day {number} is out", to="everyone")
            for each in cast:
                await each.say(header=f"{number}: ")
        return self.Outcome()


def repaired(entries: list[TranscriptEntry]) -> list[EncodingRecord]:
    return [record for entry in entries for record in entry.made if record.recipe == "repaired"]


@pytest.mark.parametrize("leakage", ["audit", "enforce"])
def test_some_are_encoded_anew_and_the_others_are_put_together(leakage: str) -> None:
    entries = played(News(), repair="kvcomm:1.0", leakage=leakage)
    made = repaired(entries)
    anew = [record for record in made if record.receipt.base is None]
    corrected = [record for record in made if record.receipt.anchors]
    assert len(anew) + len(corrected) == len(made)
    assert len(anew) >= 4
    assert {record.caller for record in corrected} == {"alice", "bob"}
    callers, anchors = {record.id: record.caller for record in made}, {record.id for record in anew}
    for record in corrected:
        assert {callers[id] for id in record.receipt.anchors[::2]} == {record.caller}
        assert anchors.issuperset(record.receipt.anchors[::2])
    assert {reading.edge.verdict for reading in GameVerdict(0, entries).readings()} >= {"clean"}
    if leakage == "enforce":
        assert {reading.edge.verdict for reading in GameVerdict(0, entries).readings()} == {"clean"}


def test_under_audit_what_an_anchor_keeps_of_an_authors_encoding_leaks() -> None:
    entries = played(News(), repair="kvcomm:1.0", leakage="audit")
    said = {record.message: record for record in repaired(entries) if record.caller == "bob" and record.receipt.anchors}
    told = {id: record for id, record in said.items() if id.startswith("scenario")}
    assert any(any(id.startswith("alice") for id in record.cone) for record in told.values())
    verdicts = {reading.edge.verdict for reading in GameVerdict(0, entries).readings() if reading.edge.reader == "bob"}
    assert "transitive" in verdicts


def test_what_is_put_together_costs_no_token() -> None:
    def cost(repair: str) -> tuple[int, int]:
        entries = played(News(), repair=repair, leakage="enforce")
        whole = sum(entry.usage.encoded for entry in entries)
        lengths = {entry.message.id: len(entry.message.tokens) for entry in entries}
        return whole, sum(lengths[record.message] for record in repaired(entries) if record.receipt.anchors)

    (all_anew, none), (some, saved) = cost("kvcomm:0.001"), cost("kvcomm:1.0")
    assert none == 0 < saved
    assert some == all_anew - saved


def test_a_record_keeps_them_by_cones_and_by_seals() -> None:
    for sealed in (False, True):
        written, read = (Seals(), Seals()) if sealed else (None, None)
        for entry in played(News(), repair="kvcomm:1.0"):
            line = entry.to_json() if written is None else entry.to_json(written)
            assert TranscriptEntry.from_json(line, read) == entry


def test_a_game_that_is_played_again_has_the_same_whoever_plays_beside_it() -> None:
    alone = [played(News(), repair="kvcomm:1.0") for _ in range(2)]
    assert canonical_transcript(alone[0]) == canonical_transcript(alone[1])
    several = played(News(), repair="kvcomm:1.0", games=3)
    by_game = canonical_transcript(several)
    assert by_game[0] == canonical_transcript(alone[0])[0]
    for game in by_game:
        known = {record.id for entry in several if entry.message.game == game for record in entry.made}
        for entry in (entry for entry in several if entry.message.game == game):
            assert all(known.issuperset(record.receipt.anchors) for record in entry.made)


def test_it_is_a_repair_like_the_others() -> None:
    assert parsed_repair("kvcomm") == KVComm(THRESHOLD)
    assert parsed_repair("kvcomm:0.5") == KVComm(0.5)
    for text in ("kvcomm:0", "kvcomm:2", "kvcomm:", "kvcomm:x"):
        with pytest.raises(ValueError, match=r"kvcomm\[:THRESHOLD\]"):
            parsed_repair(text)
    names = [column.name for column in columns("baseline,choreographed:audit", "kvcomm,kvcomm:0.5")]
    assert names == ["baseline", "choreographed:audit", "choreographed:audit+kvcomm", "choreographed:audit+kvcomm:0.5"]
    with pytest.raises(ValueError, match="repair needs choreographed mode with reuse=rotate"):
        RunConfig(repair="kvcomm", in_place=True)


@pytest.mark.slow
def test_a_trace_without_a_model_cannot_say_what_it_would_do(tmp_path: Path) -> None:
    entries = played(News())
    trace = exported("news", "x", {}, (), entries, None)
    path = tmp_path / "trace.jsonl"
    path.write_text(trace.model_dump_json() + "\n")
    assert audit_traces(path, leakage="enforce", repair="full")
    with pytest.raises(ConfigError, match="by a model's embeddings"):
        audit_traces(path, repair="kvcomm")


class Cut(News):
    """The same; its code fails while `fails` is set."""

    fails = False

    async def play(self, game: Game) -> Any:
        """Plays `News`, or the first four items of it before it fails."""
        self.limit = 4 if Cut.fails else 6
        outcome = await super().play(game)
        if Cut.fails:
            raise OSError("somebody else's disk")
        return outcome


@pytest.mark.slow
def test_a_game_that_is_gone_on_with_has_the_same_anchors_and_words(engine: Engine, tmp_path: Path) -> None:
    """Bit for bit, so that sampling draws the same tokens; messages beyond the record are generated anew."""
    config = RunConfig(repair="kvcomm:1.0", deterministic=True, max_tokens=6)
    play(RunRequest(Cut(), config, engine=engine, out=tmp_path / "whole"))
    try:
        Cut.fails = True
        play(RunRequest(Cut(), config, engine=engine, out=tmp_path / "cut"))
    finally:
        Cut.fails = False
    whole, cut = (find("last", tmp_path / name) for name in ("whole", "cut"))
    assert cut.finished()[0].error is not None
    play(RunRequest.resuming(cut, Cut(), engine=engine))
    after = SavedRun(cut.path)
    assert after.finished()[0].error is None
    one, other = canonical_transcript(whole)[0], canonical_transcript(after)[0]
    assert any(line.get("anchors") for line in one["encodings"])
    assert one["encodings"] == other["encodings"]
    assert [line["text"] for line in one["messages"]] == [line["text"] for line in other["messages"]]


@pytest.fixture(scope="module")
def engine(engines: Engines) -> Engine:
    return engines.understudy()


@pytest.mark.slow
def test_on_a_model_it_is_between_reuse_and_encoding_anew_and_feeds_less(engine: Engine) -> None:
    entries = played(News(), engine, mode="baseline", max_tokens=6)
    workflow = exported("news", "x", {}, (), entries, engine.fingerprint["tokenizer"])

    def arm(repair: str | None) -> Arm:
        reuse = ReusePolicy("choreographed", "audit", repair=None if repair is None else parsed_repair(repair))
        return Arm(reuse, engine)

    before = rows(workflow, arm("full"))
    far = {repair: float(apart(before, rows(workflow, arm(repair))).kl.mean()) for repair in (None, "kvcomm:1.0")}
    assert 1e-7 < far["kvcomm:1.0"] < far[None]
    fed = {
        repair: forced(workflow, arm(repair), logits=False).encoded for repair in ("full", "kvcomm:1.0", "kvcomm:0.001")
    }
    assert fed["kvcomm:1.0"] < fed["full"] < fed["kvcomm:0.001"], "bases are made too, and anchors encoded in full"

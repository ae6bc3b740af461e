"""The demonstration: secrets swapped, words forced, hashes of the logits that others chose from before and after."""

from __future__ import annotations

import hashlib
from io import StringIO
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from agentcho import Engine, replay
from agentcho.errors import AudienceError
from agentcho.lab.display.prove import show
from agentcho.lab.measure.play import of_workflow
from agentcho.lab.prove import Proof, prove
from agentcho.lab.prove.html import html
from agentcho.lab.prove.kept import HIDES_NOTHING, NO_WAY, SILENT, WORDLESS, kept, secrets, without
from agentcho.lab.prove.proof import Compared, Digests, Waits
from agentcho.lab.prove.wording import headline, why_not
from agentcho.provenance.resolver import Resolver
from agentcho.records.trace import Workflow, read_traces
from tests.engines import Engines

from .browser import opened
from .talks import message, talk, talks
from .test_html import EVIL, Page

OFFICE = Path(__file__).parents[3] / "shared" / "data" / "agentleak.five-models.jsonl"
SWAPS = ("same-length", "other-length", "absent")

REFUSED = "enforcement refuses it: a call names what its caller may not read"
NO_CONTEXT = "the context of this model does not hold it"


def pairs(proof: Proof) -> set[tuple[str, str, str]]:
    return {(one.owner, one.reader, one.conclusion) for one in proof.compared}


@pytest.mark.parametrize("swap", [SWAPS[0], *(pytest.param(swap, marks=pytest.mark.slow) for swap in SWAPS[1:])])
def test_what_is_kept_moves_every_reader_under_audit_and_none_under_enforce(three: Engine, swap: str) -> None:
    used, seen = three.fullness.used, list[tuple[int, int]]()
    proof = prove(talks(2), three, swap=swap, tell=lambda what, done, of: seen.append((done, of)))  # type: ignore[arg-type]
    assert pairs(proof) == {("alice", "bob", "holds"), ("bob", "alice", "holds")}
    assert (proof.conclusion, proof.exit_code) == ("holds", 0)
    assert seen == [(0, 2), (1, 2), (2, 2)]
    assert three.fullness.used == used
    assert Proof.model_validate_json(proof.model_dump_json()) == proof


def test_a_digest_is_of_all_rows_of_all_that_the_reader_says_in_order(three: Engine) -> None:
    game = talk(0)
    (one, *_) = prove([game, talk(1)], three, of="alice").compared
    replayed = replay(game, three, leakage="enforce", deterministic=True, stride=64)
    said = [replayed[id].logits.numpy() for id in ("reply", "guess", "decision", "diary")]
    rows = np.concatenate(said)
    assert one.reader == "bob"
    assert one.enforce.before == one.enforce.after == hashlib.sha256(rows.astype("<f4").tobytes()).hexdigest()
    assert one.rows == len(rows)
    assert one.audit.before != one.audit.after


@pytest.mark.slow
def test_the_same_bits_whichever_strides_others_prove_in(three: Engine) -> None:
    one, other = (prove(talks(2), three, stride=stride, of="alice") for stride in (8, 64))
    assert {proof.conclusion for proof in (one, other)} == {"holds"}


def test_a_resolver_that_reads_the_authors_encodings_is_found_out(
    three: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under enforce it behaves as under audit, which is the leak that enforcement prevents. With the guards in place
    the calls are refused, so nothing is compared; without them the digests differ."""
    monkeypatch.setattr(Resolver, "enforcing", property(lambda self: False))
    guarded = prove(talks(2), three, of="alice")
    assert (guarded.exit_code, {one.why for one in guarded.skipped}) == (3, {REFUSED})
    monkeypatch.setattr(Resolver, "_guard", lambda self, utterance, clearance, also=(): None)
    proof = prove(talks(2), three, of="alice")
    assert {one.conclusion for one in proof.compared} == {"broken"}
    assert (proof.conclusion, proof.exit_code) == ("broken", 1)


def test_nothing_to_compare_is_no_proof(three: Engine) -> None:
    everyone = [message("hi", "ada", "hello", to="everyone"), message("re", "ben", "yes", ["hi"], "everyone", "")]
    open_ = Workflow(
        format="agentcho-trace/1", workflow="w", id="open", agents=("ada", "ben", "eve"), messages=tuple(everyone)
    )
    proof = prove([open_], three)
    assert (proof.compared, proof.waits, proof.conclusion, proof.exit_code) == ((), (), "inconclusive", 3)
    assert {one.why for one in proof.skipped} == {HIDES_NOTHING}


def test_who_cannot_be_compared_is_said_with_the_reason(three: Engine) -> None:
    mute = (
        message("a", "ada", "my own", to=("ada",)),
        message("b", "ben", "aside", to=("ben",)),
        message("said", "ada", "good day", ["a"], ("ada", "ben"), ""),
        message("re", "ben", "yes", ["b"], header=""),
    )
    game = Workflow(format="agentcho-trace/1", workflow="w", id="mute", agents=("ada", "ben", "eve"), messages=mute)
    proof = prove([game], three)
    assert proof.exit_code == 3
    assert {(one.owner, one.reader): one.why for one in proof.skipped} == {
        ("ada", "ben"): NO_WAY,
        ("ada", "eve"): SILENT,
        ("ben", "ada"): NO_WAY,
        ("ben", "eve"): SILENT,
        ("eve", "ada"): HIDES_NOTHING,
        ("eve", "ben"): HIDES_NOTHING,
    }


def test_a_secret_of_one_token_without_another_game_has_no_other_words(three: Engine) -> None:
    ids = three.framing.content
    word = next(word for word in "abc" if len(ids.encode(word)) == 1)
    messages = (
        message("a", "ada", word),
        message("said", "ada", "good day", ["a"], ("ada", "ben"), ""),
        message("re", "ben", "yes", ["said"], header=""),
    )
    game = Workflow(format="agentcho-trace/1", workflow="w", id="one", agents=("ada", "ben"), messages=messages)
    proof = prove([game], three, of="ada")
    assert [(one.reader, one.why) for one in proof.skipped] == [("ben", WORDLESS)]
    assert prove([game], three, of="ada", swap="absent").conclusion == "holds"


@pytest.mark.slow
def test_what_enforcement_refuses_or_the_context_cannot_hold_is_skipped_and_the_rest_goes_on(three: Engine) -> None:
    direct, long = talk(0, direct=True), talk(1, secret="figs " * 4000)
    proof = prove([direct, long, *talks(2)], three, of="alice")
    whole = {one.workflow: one.why for one in proof.skipped if one.owner is None}
    assert whole == {"talk-0": REFUSED, "talk-1": NO_CONTEXT}
    assert (len(proof.compared), proof.exit_code) == (2, 0)


def test_an_owner_that_is_in_no_workflow_is_refused(three: Engine) -> None:
    with pytest.raises(AudienceError, match="there is no agent eve"):
        prove(talks(1), three, of="eve")


def test_what_the_scenario_told_one_alone_is_that_ones_secret(three: Engine) -> None:
    whisper = message("psst", "alice", "only you know").model_copy(update={"author": None})
    game = talk(0)
    play = of_workflow(game.model_copy(update={"messages": (whisper, *game.messages)}), three)
    assert "psst" in {line.message.id for line in kept(play, "alice", "bob")}
    assert "psst" not in {line.message.id for line in kept(play, "bob", "alice")}


def test_what_the_scenario_told_some_is_their_secret_from_the_others(three: Engine) -> None:
    shared = message("pass", "alice", "only you two know").model_copy(
        update={"author": None, "audience": ("alice", "bob")}
    )
    game = talk(0)
    more = {"agents": (*game.agents, "eve"), "messages": (shared, *game.messages)}
    play = of_workflow(game.model_copy(update=more), three)
    for owner, other in (("alice", "bob"), ("bob", "alice")):
        assert "pass" in {line.message.id for line in kept(play, owner, "eve")}
        assert "pass" not in {line.message.id for line in kept(play, owner, other)}


def test_a_workflow_without_messages_closes_up(three: Engine) -> None:
    game = talk(0)
    (found, *_), _ = secrets(of_workflow(game, three), "alice", ["bob"])
    left = without(game, found.messages)
    assert {m.id: m.parents for m in left.messages}["hello"] == ()
    assert not {m.id for m in left.messages} & found.messages


def found(enforce: tuple[str, str], audit: tuple[str, str], name: str = "w") -> Proof:
    both = {arm: Digests(before=a * 64, after=b * 64) for arm, (a, b) in (("enforce", enforce), ("audit", audit))}
    compared = Compared(workflow=name, owner=name, reader="bob", swapped=("m",), rows=3, **both)
    waits = Waits(workflow=name, decodes=2, baseline=3.0, audit=1.0, enforce=2.0)
    return Proof(
        source=name, model="m", seed=0, swap="same-length", stride=64, workflows=1, compared=(compared,), skipped=(),
        waits=(waits,), environment={},
    )  # fmt: skip


def test_what_stays_the_same_under_audit_too_shows_nothing() -> None:
    proof = found(("a", "a"), ("b", "b"))
    assert (proof.conclusion, proof.exit_code) == ("inconclusive", 3)
    assert headline(proof).word == "INCONCLUSIVE"
    assert [reason.why for reason in why_not(proof)] == ["equal under audit too, which shows nothing"]
    assert found(("a", "c"), ("b", "b")).exit_code == 1
    both = found(("a", "a"), ("b", "d"))
    assert both.exit_code == 0
    assert (both.speedup("enforce"), both.speedup("audit")) == (1.5, 3.0)


def test_a_page_holds_all_digests_and_what_agents_are_called_stays_words(tmp_path: Path) -> None:
    page = Page(html(found(("a", "a"), ("b", "d"), EVIL)))
    assert EVIL.replace("\u202e", "\\u202e").replace("\x00", "\\u0000") in page.words
    assert not [tag for tag, attributes in page.tags if tag == "script" or {"src", "href"} & attributes.keys()]
    for digit in "abd":
        assert digit * 10 in page.words


@pytest.mark.browser
def test_the_page_in_a_browser_complains_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "p.html").write_text(html(found(("a", "a"), ("b", "d"), EVIL)), encoding="utf-8")
    assert opened(tmp_path / "p.html", tmp_path).console == []


office = pytest.mark.skipif(not OFFICE.is_file(), reason="the recorded office workflows are not here")


@pytest.fixture(scope="module")
def understudy(engines: Engines) -> Engine:
    return engines.understudy()


def _check(proof: Proof, workflows: int) -> None:
    assert {one.conclusion for one in proof.compared} == {"holds"}
    assert len(proof.compared) == 5 * workflows
    assert {(pair.owner, pair.reader) for pair in proof.pairs} == {
        ("coordinator", "worker"),
        ("coordinator", "compiler"),
        ("worker", "compiler"),
        ("compiler", "worker"),
        ("user", "worker"),
    }
    assert not [one for one in proof.skipped if one.owner is None]


@pytest.mark.slow
@office
def test_office_workflows_of_five_production_models(understudy: Engine) -> None:
    """The two shortest workflows; the words for the swaps come from each other."""
    shortest = sorted(read_traces(OFFICE), key=lambda one: sum(len(m.text) for m in one.messages))[:2]
    _check(prove(shortest, understudy, stride=512), 2)


@pytest.mark.slow
@office
@pytest.mark.parametrize(
    ("part", "swap"),
    [pytest.param(n, swap, marks=[] if n < 3 else pytest.mark.nightly) for n, swap in zip(range(10), cycle(SWAPS))],
)
def test_all_office_workflows(understudy: Engine, part: int, swap: str) -> None:
    workflows = read_traces(OFFICE)
    assert len(workflows) == 100
    mine = workflows[part::10]
    _check(prove(mine, understudy, swap=swap, stride=512), len(mine))  # type: ignore[arg-type]


def test_a_workflow_of_any_name_is_told_in_one_line() -> None:
    out = StringIO()
    show(found(("a", "a"), ("b", "d"), "w\nHOLDS: all is well"), "plain", out)
    assert [line[:6] for line in out.getvalue().splitlines() if line.startswith("HOLDS")] == ["HOLDS:"]


def test_a_workflow_without_the_agent_is_passed_over(three: Engine) -> None:
    first, second = talks(2)
    said = tuple(m.model_copy(update={"audience": "everyone"}) for m in second.messages if m.author != "bob")
    closed = {m.id for m in said}
    said = tuple(m.model_copy(update={"parents": tuple(id for id in m.parents if id in closed)}) for m in said)
    other = second.model_copy(update={"messages": said, "agents": ("alice", "carol")})
    proof = prove([first, other], three, of="bob")
    assert [one.workflow for one in proof.compared] == [first.id]
    assert [(one.workflow, one.owner, one.reader, one.why) for one in proof.skipped] == [
        (second.id, "bob", None, "it has no agent of that name")
    ]

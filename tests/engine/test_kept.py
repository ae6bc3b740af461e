"""A later engine starts from what an earlier one kept: the same bits, its own labels, and nothing private."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import agentcho
from agentcho import Agent, Decode, Engine, Prefill, replay
from agentcho.engine.persistent_files import HEAD
from agentcho.engine.persistent_key import VARIABLE
from agentcho.errors import ConfigError, LeakageError, ModelError
from agentcho.games.runs.replay import Replayed

from ..engines import Engines
from .test_memory import GREEDY, entry, run, same, whole

Keeping = Callable[..., Engine]
RULES = "The rules are these: each says one word, in turn. "


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "s" * 40)


@pytest.fixture
def keeping(engines: Engines, tmp_path: Path) -> Keeping:
    """Engines on one network, each with its own store, that keep public encodings in one folder."""

    def load(kept: bool = True, dtype: str = "float32") -> Engine:
        base = engines(dtype=dtype)
        place = tmp_path / "kept" if kept else None
        return Engine(base._model, base.framing, base.proofs, *base.room, base.context, kept=place)

    return load


def workflow(*more: dict[str, Any]) -> dict[str, Any]:
    """Public rules, a hint for both agents, a secret of Ada's, and public words of Ada's and Ben's."""
    told: dict[str, Any] = {"kind": "prefill", "role": "user", "author": None, "audience": "everyone", "parents": []}
    messages = [
        told | {"id": "rules", "role": "system", "text": RULES},
        told | {"id": "hint", "text": "a hint", "audience": ["ada", "ben"], "parents": ["rules"]},
        told | {"id": "plan", "author": "ada", "audience": ["ada"], "text": "a secret", "parents": ["rules"]},
        *more,
    ]
    for id, who, parents in (("t0", "ada", ["rules", "hint", "plan"]), ("t1", "ben", ["rules", "hint", "t0"])):
        said = {"kind": "decode", "role": "assistant", "author": who, "audience": "everyone", "header": ""}
        messages.append(said | {"id": id, "text": f"word {id}", "parents": parents})
    return {"format": "agentcho-trace/1", "workflow": "w", "id": "w0", "agents": ["ada", "ben"], "messages": messages}


def played(engine: Engine, leakage: str = "enforce", mode: str = "choreographed", exact: bool = True) -> Any:
    return replay(workflow(), engine, mode=mode, leakage=leakage, deterministic=exact)  # type: ignore[arg-type]


def alike(one: Replayed, other: Replayed) -> bool:
    """Whether everything is equal bit for bit, receipts and cones included."""
    pairs = [(one[id], other[id]) for id in one]
    assert [mine.entry.made for mine, _ in pairs] == [theirs.entry.made for _, theirs in pairs]
    assert [mine.receipt for mine, _ in pairs] == [theirs.receipt for _, theirs in pairs]
    return all(torch.equal(mine.logits, theirs.logits) for mine, theirs in pairs)


def names(engine: Engine) -> set[str]:
    return {name for name in os.listdir(engine._keeper.files.folder) if name != HEAD}  # type: ignore[union-attr]


def test_a_later_engine_begins_from_it_and_says_the_same_to_the_bit(keeping: Keeping) -> None:
    plain = played(keeping(kept=False))
    first, second = keeping(), keeping()
    assert alike(played(first), plain)
    assert (first.fullness.found, len(names(first))) == (0, 2)
    again = played(second)
    assert alike(again, plain)
    assert plain.encoded - again.encoded == second.fullness.found
    assert second.fullness.found == first.fullness.kept > len(RULES.split())
    assert second.fullness.kept == 0
    second.check_integrity()


@pytest.mark.parametrize(
    ("mode", "leakage"), [("choreographed", "audit"), ("choreographed", "deny"), ("baseline", "enforce")]
)
def test_only_what_is_made_for_everyone_is_kept(keeping: Keeping, mode: str, leakage: str) -> None:
    """Encodings other than X lack a guard to vouch for them, or belong to one agent even if their content is public."""
    engine = keeping()
    engine.prefill(RULES, role="system")
    engine.prefill([Prefill(RULES, salt='"everyone"')])
    try:
        played(engine, leakage, mode)
    except LeakageError:
        assert leakage == "deny"
    assert names(engine) == set()


def test_private_classes_die_with_the_run(keeping: Keeping) -> None:
    """Only the rules and Ada's words made over them alone are kept: neither the hint for both nor the plan."""
    engine = keeping()
    lengths = [made.length for each in played(engine).values() for made in each.receipt.context]
    assert len(names(engine)) == 2
    assert engine.fullness.kept < sum(lengths)
    rules = len(engine.frame("system", None, RULES).tokens)
    t0 = len(engine.frame("assistant", "ada", "word t0").tokens)
    assert engine.fullness.kept == rules + t0


def test_the_profiles_share_no_file(keeping: Keeping) -> None:
    engine, other = keeping(), keeping()
    played(engine, exact=False)
    fast = names(engine)
    played(other)
    assert fast
    assert len(names(other)) > len(fast)
    assert other.fullness.found == 0
    assert played(keeping(), exact=False)


def test_what_is_damaged_is_named_once_and_made_again(keeping: Keeping, caplog: pytest.LogCaptureFixture) -> None:
    plain, first = played(keeping(kept=False)), keeping()
    played(first)
    folder = first._keeper.files.folder  # type: ignore[union-attr]
    files = [folder / name for name in names(first)]
    for file in files:
        file.write_bytes(file.read_bytes()[:-1] + b"!")
    second = keeping()
    with caplog.at_level(logging.WARNING, "agentcho.engine"):
        assert alike(played(second), plain)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == len(files)
    assert all(any(str(file) in line for line in told) for file in files)
    assert second.fullness.kept == first.fullness.kept
    assert alike(played(third := keeping()), plain)
    assert third.fullness.found == first.fullness.kept


def test_a_full_disk_is_told_once_and_nothing_is_lost(
    keeping: Keeping, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain, engine = played(keeping(kept=False)), keeping()

    def full(*given: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "agentcho.engine"):
        patch.setattr("os.write", full)
        assert alike(played(engine), plain)
    [record] = caplog.records
    assert "No space left on device. From now on nothing more is kept there" in record.getMessage()
    assert names(engine) == set()


class Answer:
    """A guard that admits everything, and says whether the result is public."""

    def __init__(self, everyones: bool | None = True) -> None:
        self.everyones = everyones

    def admit(self, *_: object) -> bool | None:
        return self.everyones


def test_what_was_found_can_leave_the_store_and_is_made_again(keeping: Keeping) -> None:
    first, second, plain = keeping(), keeping(), keeping(kept=False)
    bits, found = [], []
    for engine in (first, second, plain):
        rules, more = Prefill(RULES, guard=Answer()), Prefill("more", guard=Answer())
        [one] = run(engine, rules)
        [two] = run(engine, replace(more, parents=[one]))
        [said] = run(engine, Decode("so", [two], sampling=GREEDY))
        bits.append(whole(engine, [one, two]))
        found.append((engine.message(said).tokens, engine.receipt(two)._replace(context=())))
        engine.check_integrity()
        engine._tiers.drop(entry(engine, one))
        engine._tiers.drop(entry(engine, two))
        assert same(whole(engine, [one, two]), bits[-1])
        assert engine.fullness.remade == 2
        engine.check_integrity()
        engine.release([one, two, said])
        engine.check_integrity()
        assert engine.fullness.used == 1
    assert all(same(each, bits[0]) for each in bits)
    assert found == [found[0]] * 3
    assert (first.fullness.found, second.fullness.found) == (0, first.fullness.kept)


@pytest.mark.parametrize("answer", [False, None, 1])
def test_what_no_guard_says_to_be_everyones_is_neither_kept_nor_looked_for(keeping: Keeping, answer: Any) -> None:
    """Nor is an existing file used: whether it exists must not be visible to those who may not read it."""
    engine, other = keeping(), keeping()
    run(engine, Prefill(RULES, guard=Answer()))
    run(other, Prefill(RULES, guard=Answer(answer)), Prefill("more", guard=Answer(answer)))
    assert (len(names(engine)), other.fullness.found, other.fullness.kept) == (1, 0, 0)


def test_a_reading_guard_is_asked_before_a_file_is_looked_for(
    keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Shut:
        def admit(self, *_: object) -> None:
            raise LeakageError("bob", ("alice.1",))

    engine = keeping()
    monkeypatch.setattr(
        "agentcho.engine.persistent_files.PersistentFiles.read", lambda *given: pytest.fail("it was looked for")
    )
    engine.submit([Prefill(RULES, guard=Shut())])
    assert [type(failure.error) for failure in engine.step().failed] == [LeakageError]


def test_an_adapter_and_another_network_keep_apart(
    keeping: Keeping, engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = keeping()
    played(engine)
    with pytest.raises(ModelError, match="dtype float32, and not bfloat16"):
        keeping(dtype="bfloat16")
    base = engine.adapted(None)
    played(base)
    assert base.fullness.found == engine.fullness.kept
    assert engine._keeper.files is not base._keeper.files
    monkeypatch.setattr("agentcho.runner.model.loading.Model.load", lambda *given: pytest.fail("weights were read"))
    with pytest.raises(ModelError, match="kept holds encodings of another model"):
        Engine.load("understudy", keep_cache=tmp_path / "kept")
    (tmp_path / "kept").chmod(0o755)
    with pytest.raises(ConfigError, match="chmod 700"):
        Engine.load(engines.folder(), keep_cache=tmp_path / "kept")


class Reader(Agent):
    """An agent whose system prompt is not secret."""

    system = RULES
    open_system = True

    async def run(self) -> None:
        await self.think("And?", max_tokens=1)


def test_an_open_system_prompt_is_not_encoded_again(keeping: Keeping) -> None:
    first, second = keeping(), keeping()
    for engine in (first, second):
        agentcho.run(Reader("nia"), engine=engine, deterministic=True, display="none")
    rules = len(first.frame("system", None, RULES).tokens)
    assert (first.fullness.kept, second.fullness.found, second.fullness.kept) == (rules, rules, 0)


RUN = """
import sys
from agentcho import Engine
from tests.device import DEVICE
from tests.engine.test_kept import played
engine = Engine.load(sys.argv[1], device=DEVICE, dtype="float32", keep_cache=sys.argv[2])
rows = played(engine)
print(engine.fullness.found, engine.fullness.kept, [float(each.logits.double().sum()) for each in rows.values()])
"""


@pytest.mark.slow
def test_another_process_begins_from_it(engines: Engines, tmp_path: Path) -> None:
    words = [sys.executable, "-c", RUN, str(engines.folder()), str(tmp_path / "kept")]
    first, second = (subprocess.run(words, capture_output=True, text=True, check=True).stdout.split() for _ in "12")
    assert (first[0], second[:2]) == ("0", [first[1], "0"])
    assert first[2:] == second[2:]

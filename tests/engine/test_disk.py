"""Encodings leave host memory for disk and come back bit for bit, or are recomputed; files die with the engine."""

from __future__ import annotations

import errno
import logging
import os
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from agentcho import Decode, Engine, Prefill, Sampling, replay
from agentcho.engine.cache import DiskQuota
from agentcho.engine.spill_files import PREFIX, SpillFile, SpillFiles
from agentcho.errors import CannotWrite, EngineClosed, LeakageError, ModelError, StoreDamaged
from agentcho.protocol import call_validation
from agentcho.protocol.call import EncodingId, Repair
from agentcho.reuse.top_k import TopK

from ..engines import Engines
from .test_memory import GREEDY, LONG, ROOM, entry, play, rows, run, same, whole

Small = Callable[..., Engine]
STORE = 104
"""Tokens: room for a long message, what is recomputed from it, and little else."""


@pytest.fixture
def small(engines: Engines, tmp_path: Path) -> Small:
    """Engines on one network, each with its own store and files."""

    def load(store: int = ROOM, host: int = 0, disk: int = ROOM, dtype: str = "float32") -> Engine:
        room = DiskQuota(disk, tmp_path if disk else None)
        return engines(dtype=dtype, store_tokens=store, host_tokens=host, disk=room)

    return load


def path(engine: Engine, id: EncodingId) -> Path:
    """The file of an encoding."""
    file, files = entry(engine, id).file, engine._tiers.files
    assert file is not None
    assert files is not None
    return files.folder / file.name


def said(engine: Engine) -> tuple[EncodingId, ...]:
    """One message of each kind."""
    ids = run(engine, one := Prefill(LONG), Prefill("two", [one]), Decode("So ", [one], sampling=GREEDY))
    return (*ids, *run(engine, Repair(ids[2], TopK(0.5), [ids[1]])))


# -- spilling and reloading --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "host"), [("float32", 0), ("bfloat16", 60), pytest.param("bfloat16", 0, marks=pytest.mark.slow)]
)
def test_what_comes_back_has_the_same_bits(small: Small, dtype: str, host: int) -> None:
    engine, other = small(host=host, dtype=dtype), small(disk=0, dtype=dtype)
    ids, before = said(engine), whole(other, said(other))
    engine.swap_out(ids)
    full = engine.fullness
    assert (full.used, full.dropped, full.disk_used > 0, full.host_used <= host) == (1, 0, True, True)
    assert full.disk_used + full.host_used == sum(len(engine.message(id).tokens) for id in ids)
    engine.check_integrity()
    assert same(whole(engine, ids), before)
    [last], [others] = (run(each, Decode("And ", [*map(int, ids)], sampling=GREEDY)) for each in (engine, other))
    assert engine.message(last) == other.message(others)
    assert same(whole(engine, [last]), whole(other, [others]))
    full = engine.fullness
    assert (full.disk_used, full.host_used, full.remade) == (0, 0, 0)
    assert not list(engine._tiers.files.folder.iterdir())  # type: ignore[union-attr]
    engine.check_integrity()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.nightly)])
def test_a_workflow_of_four_times_the_store_says_the_same(small: Small, dtype: str) -> None:
    roomy = small(disk=0, dtype=dtype)
    ids = play(roomy, deterministic=True)
    for host, disk in ((0, 150), (100, 150), (100, ROOM)):
        tight = small(160, host, disk, dtype)
        assert play(tight, deterministic=True) == ids
        full = tight.fullness
        assert full.disk_high_water > 0
        assert full.disk_used <= disk
        assert (full.remade > 0) == (disk < ROOM)
        assert [roomy.message(id) for id in ids] == [tight.message(id) for id in ids]
        assert same(rows(roomy, ids), rows(tight, ids))
        assert same(whole(roomy, ids[::6]), whole(tight, ids[::6]))
        tight.release(ids)
        tight.check_integrity()
        assert (tight.fullness.used, tight.fullness.host_used, tight.fullness.disk_used) == (1, 0, 0)


def test_the_least_recently_used_goes_down_first_and_is_dropped_first(small: Small) -> None:
    engine = small(ROOM, 40, 30)
    ids = [engine.prefill(f"number {n}") for n in range(6)]
    size = len(engine.message(ids[0]).tokens)
    engine.swap_out(ids)
    near, far = 40 // size, 30 // size
    tiers = ["near" if entry(engine, id).host else "far" if entry(engine, id).file else "dropped" for id in ids]
    assert tiers == ["dropped"] * (6 - near - far) + ["far"] * far + ["near"] * near
    assert (engine.fullness.disk_high_water, engine.fullness.dropped) == (far * size, 6 - near - far)
    engine.check_integrity()


def test_what_is_released_leaves_the_disk(small: Small) -> None:
    engine = small()
    one, two = engine.prefill([Prefill("one"), Prefill("two")])
    engine.swap_out([one, two])
    gone = path(engine, one)
    engine.release([one])
    assert (gone.exists(), path(engine, two).exists()) == (False, True)
    engine.check_integrity()


def test_what_a_call_goes_on_from_may_have_to_leave_while_others_are_made_again(small: Small) -> None:
    """The earlier state is in the store when the call begins. It fits beside all that the call gathers, but not beside
    what that is recomputed from."""
    found = []
    for engine in (small(STORE, disk=0), small(disk=0)):
        below = engine.prefill("words " * 12)
        parent = engine.prefill("so", parents=[below])
        earlier = engine.prefill("words " * 3, parents=[parent])
        engine.swap_out([parent, below])
        engine.release([below])
        [later] = engine.submit([Prefill("words " * 4, [parent], extends=earlier)])
        while not engine.idle:
            assert not engine.step().failed
        found.append(whole(engine, [later]))
        engine.check_integrity()
    assert same(found[0], found[1], 1e-5)


def test_who_reads_what_is_on_disk_has_it_read_ahead(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, asked = small(), list[int]()
    ids = said(engine)
    engine.swap_out(ids)
    inodes = {id: path(engine, id).stat().st_ino for id in ids}
    monkeypatch.setattr("os.posix_fadvise", lambda file, *rest: asked.append(os.fstat(file).st_ino))
    engine.submit([Prefill("x", ids[1:3])])
    assert sorted(asked) == sorted(inodes[id] for id in ids[1:3])
    path(engine, ids[0]).unlink()
    engine.submit([Prefill("y", ids[:1])])
    while not engine.idle:
        assert not engine.step().failed


def test_nothing_is_read_for_a_call_that_is_refused(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    class Shut:
        def admit(self, id: EncodingId, context: Sequence[EncodingId]) -> None:
            assert (engine.fullness.used, context) == (1, [told])
            raise LeakageError("bob", ("alice.1", "alice.0"))

    engine = small()
    told = engine.prefill("a secret")
    engine.swap_out([told])
    monkeypatch.setattr(SpillFiles, "read", lambda *given: pytest.fail("it was read"))
    engine.submit([Prefill("x", [told], guard=Shut()), Decode("y", [told], guard=Shut())])
    assert [type(failure.error) for failure in engine.step().failed] == [LeakageError] * 2
    assert (engine.fullness.used, engine.fullness.disk_used) == (1, len(engine.message(told).tokens))


def secrets() -> dict[str, Any]:
    """Ada and Ben each hear a secret and answer each other in public, each over all they may read."""
    told = {"kind": "prefill", "role": "user", "parents": []}
    messages: list[dict[str, Any]] = [
        told | {"id": f"for {who}", "author": who, "audience": [who], "text": f"{who} 1234"} for who in ("ada", "ben")
    ]
    said = list[str]()
    for turn in range(8):
        who = ("ada", "ben")[turn % 2]
        spoken = {"kind": "decode", "role": "assistant", "author": who, "audience": "everyone", "header": ""}
        messages.append(spoken | {"id": f"t{turn}", "parents": [f"for {who}", *said[-3:]], "text": f"say {turn}"})
        said.append(f"t{turn}")
    return {"format": "agentcho-trace/1", "workflow": "w", "id": "w0", "agents": ["ada", "ben"], "messages": messages}


def test_what_is_enforced_is_enforced_and_says_the_same_where_much_is_on_disk(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cones and receipts are the same, so no label has changed on the way; every guard is asked equally often."""
    read, asked, found = list[SpillFile](), Counter[str](), []
    reads, ask = SpillFiles.read, call_validation.ask_guard
    monkeypatch.setattr(SpillFiles, "read", lambda files, file: read.append(file) or reads(files, file))  # type: ignore[func-returns-value]
    for name, engine in (("roomy", small(disk=0)), ("tight", small(STORE))):

        def counted(*given: Any, name: str = name) -> None:
            asked[name] += 1
            ask(*given)

        monkeypatch.setattr("agentcho.engine.sequence.ask_guard", counted)
        found.append(replay(secrets(), engine, leakage="enforce", deterministic=True))
    assert len(read) > 4
    assert asked["tight"] == asked["roomy"] > 8
    for one, other in zip(found[0].values(), found[1].values(), strict=True):
        assert torch.equal(one.logits, other.logits)
        assert (one.receipt, one.entry.message) == (other.receipt, other.entry.message)
        assert one.entry.made == other.entry.made


# -- damage ------------------------------------------------------------------------------------------------------


def flipped(file: Path, other: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def renamed(file: Path, other: Path) -> None:
    """Make the file's header say that keys are values."""
    file.write_bytes(file.read_bytes().replace(b"0.keys", b"9.keys"))


def cut(file: Path, other: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def longer(file: Path, other: Path) -> None:
    os.truncate(file, file.stat().st_size + 1)


def missing(file: Path, other: Path) -> None:
    file.unlink()


def swapped(file: Path, other: Path) -> None:
    other.replace(file)


def linked(file: Path, other: Path) -> None:
    """Replace the file by a link to the same bytes."""
    file.rename(file.parent.parent / "elsewhere")
    file.symlink_to(file.parent.parent / "elsewhere")


def piped(file: Path, other: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def foldered(file: Path, other: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGE = (flipped, cut, missing, swapped, linked, piped)
MORE = [pytest.param(damage, marks=pytest.mark.slow) for damage in (renamed, longer, foldered)]


@pytest.mark.parametrize("damage", [*DAMAGE, *MORE], ids=lambda damage: damage.__name__)
def test_a_file_that_is_not_what_was_written_is_told_of_and_made_again(
    small: Small, damage: Callable[[Path, Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    engine, other = small(), small(disk=0)
    one, two = engine.prefill([Prefill("of one"), Prefill("of two")])
    engine.swap_out([one, two])
    file = path(engine, one)
    damage(file, path(engine, two))
    with pytest.raises(StoreDamaged, match="made again; check whether another"):
        engine.check_integrity()
    with caplog.at_level(logging.WARNING, "agentcho.engine"):
        [over] = engine.submit([Prefill("over", [one])])
        while not engine.idle:
            assert not engine.step().failed
    assert [str(file) in record.getMessage() for record in caplog.records] == [True]
    assert engine.fullness.remade == 1
    first = other.prefill("of one")
    assert same(whole(engine, [one, over]), whole(other, [first, other.prefill("over", parents=[first])]))


def test_what_was_damaged_is_made_again_with_all_that_it_is_made_from(small: Small) -> None:
    engine, other = small(96), small(disk=0)
    ids, before = said(engine), whole(other, said(other))
    engine.swap_out(ids)
    for id in ids:
        flipped(path(engine, id), Path())
    assert same(whole(engine, ids), before)
    assert engine.fullness.remade == len(ids)
    engine.check_integrity()


def test_where_there_is_no_room_to_make_it_again_the_call_fails_and_the_next_one_has_it(small: Small) -> None:
    """What it is recomputed from is longer than itself, and does not fit beside a running call."""
    engine = small(STORE)
    long = engine.prefill("words " * 12)
    short = engine.prefill("so", parents=[long])
    engine.release([long])
    engine.swap_out([short])
    missing(path(engine, short), Path())
    engine.submit([Decode("", forced=(40,) * 20)])
    engine.step()
    [late] = engine.submit([Prefill("x", [short])])
    [failure] = engine.step().failed
    assert (failure.id, type(failure.error)) == (late, StoreDamaged)
    while not engine.idle:
        engine.step()
    assert engine.prefill("x", parents=[short])
    engine.check_integrity()


def test_what_changed_in_host_memory_is_not_laundered_by_a_file(small: Small) -> None:
    engine = small(host=10)
    one, two = engine.prefill([Prefill("one"), Prefill("two")])
    engine.swap_out([one])
    copy = entry(engine, one).host
    assert copy is not None
    copy[1][0][0, 0, 0] += 1
    engine.swap_out([two])
    assert path(engine, one).exists()
    [over] = engine.submit([Prefill("over", [one])])
    [failure] = engine.step().failed
    assert (failure.id, str(failure.error).count("has changed")) == (over, 1)


# -- a full disk -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 1])
def test_a_full_disk_is_told_once_and_nothing_is_lost(
    small: Small, room: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine, other = small(), small(disk=0)
    ids = [engine.prefill(f"number {n}") for n in range(4)]
    before = whole(other, [other.prefill(f"number {n}") for n in range(4)])
    files = engine._tiers.files
    assert files is not None
    size, write = len(engine.store.packed(engine.store.copy_out([entry(engine, ids[0]).block])[0])), os.write

    def full(file: int, data: memoryview) -> int:
        """Write as on a disk with room for `room` files."""
        taken = sum(each.stat().st_size for each in files.folder.iterdir())
        if taken + len(data) <= room * size:
            return write(file, data)
        write(file, data[:100])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "agentcho.engine"):
        patch.setattr("os.write", full)
        engine.swap_out(ids)
    [record] = caplog.records
    assert f"cannot write to {files.folder}: No space left on device" in record.getMessage()
    kept = room * len(engine.message(ids[0]).tokens)
    assert (engine.fullness.disk_limit, engine.fullness.disk_used, engine.fullness.dropped) == (kept, kept, 4 - room)
    assert len(list(files.folder.iterdir())) == room
    engine.check_integrity()
    assert same(whole(engine, ids), before)


# -- ownership and lifetime of files -----------------------------------------------------------------------------


def test_files_are_their_owners_alone_and_their_names_tell_nothing(small: Small, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        engine = small()
        ids = engine.prefill([Prefill("one"), Prefill("one"), Prefill("two")])
        engine.swap_out(ids)
    finally:
        os.umask(before)
    [folder] = tmp_path.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = list(folder.iterdir())
    assert len(files) == 2
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert {len(file.stem) for file in files} == {32}
    again = small()
    again.swap_out([again.prefill("one")])
    assert not {file.name for file in again._tiers.files.folder.iterdir()} & {file.name for file in files}  # type: ignore[union-attr]
    engine.close()
    assert [*tmp_path.iterdir()] == [again._tiers.files.folder]  # type: ignore[union-attr]
    with pytest.raises(EngineClosed):
        engine.swap_out(ids)
    again.close()
    assert not list(tmp_path.iterdir())


def test_the_same_bytes_have_another_digest_in_another_engine(tmp_path: Path) -> None:
    one, other = SpillFiles(tmp_path), SpillFiles(tmp_path)
    first, second = one.write(b"the same"), other.write(b"the same")
    assert first.digest != second.digest
    assert (one.read(first), other.read(second)) == (b"the same", b"the same")
    with pytest.raises(StoreDamaged, match="No such file"):
        one.read(second)
    one.close()
    other.close()


def test_an_engine_that_nobody_has_any_more_has_no_files(tmp_path: Path) -> None:
    files = SpillFiles(tmp_path / "made" / "for it")
    files.write(b"words")
    folder = files.folder
    del files
    assert not folder.exists()


HOLD = """
import os, sys
from pathlib import Path
from agentcho.engine.spill_files import SpillFiles
files = SpillFiles(Path(sys.argv[1]))
files.write(b"words")
if os.fork() == 0:
    sys.exit()
os.wait()
print(files.folder, files.folder.exists(), flush=True)
sys.stdin.readline()
os.kill(os.getpid(), 9) if sys.argv[2] == "killed" else sys.exit()
"""


@pytest.mark.parametrize("end", ["killed", "ended"])
def test_what_a_dead_process_left_is_removed_and_what_a_living_one_has_is_not(tmp_path: Path, end: str) -> None:
    words = [sys.executable, "-c", HOLD, str(tmp_path), end]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        name, there = other.stdout.readline().split()
        folder = Path(name)
        assert there == "True", "a child that was forked and ends removes nothing"
        mine = SpillFiles(tmp_path)
        assert folder.exists()
        other.communicate("\n")
    assert folder.exists() == (end == "killed")
    again = SpillFiles(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([mine.folder, again.folder])
    mine.close()
    again.close()


def test_nothing_else_is_taken_for_what_a_dead_process_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / f"{PREFIX}file").write_text("mine")
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "kept")
    (tmp_path / f"{PREFIX}theirs").mkdir()
    there = sorted(tmp_path.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr("os.getuid", lambda: 1 << 20)
        SpillFiles(tmp_path).close()
    assert sorted(tmp_path.iterdir()) == there
    SpillFiles(tmp_path).close()
    assert sorted(tmp_path.iterdir()) == [each for each in there if each.name != f"{PREFIX}theirs"]


def test_a_folder_that_is_taken_for_a_dead_ones_before_it_is_locked_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[Path]()
    mkdir = os.mkdir

    def taken(folder: Any, *rest: Any, **more: Any) -> None:
        mkdir(folder, *rest, **more)
        made.append(Path(folder))
        if len(made) == 1:
            os.rmdir(folder)

    with monkeypatch.context() as patch:
        patch.setattr("os.mkdir", taken)
        files = SpillFiles(tmp_path)
    assert (len(made), files.folder) == (2, made[1])
    assert files.read(files.write(b"words")) == b"words"
    files.close()


def test_a_file_that_is_there_already_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = SpillFiles(tmp_path)
    (tmp_path / "elsewhere").write_text("mine")
    monkeypatch.setattr("agentcho.engine.spill_files.token_hex", lambda size: "name")
    (files.folder / "name.safetensors").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        files.write(b"words")
    assert (tmp_path / "elsewhere").read_text() == "mine"
    files.expect(SpillFile("gone", 0, b""))
    files.remove(SpillFile("gone", 0, b""))
    files.close()


# -- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-1, True, 1.5, "9"])
def test_a_number_of_tokens_is_checked_before_anything_is_loaded(value: Any) -> None:
    with pytest.raises(ModelError, match="disk_tokens="):
        Engine.load("no such model", disk_tokens=value)


def test_a_folder_is_checked_before_anything_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CannotWrite, match="it is a file; give another path"):
        Engine.load("no such model", disk_tokens=9, disk=tmp_path / "file")
    with pytest.raises(CannotWrite, match="File exists; give another path"):
        SpillFiles(tmp_path / "file")
    with pytest.raises(ModelError, match=r"disk='.*' needs disk_tokens"):
        Engine.load("no such model", disk=tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_an_engine_on_the_same_network_has_files_of_its_own(small: Small, tmp_path: Path) -> None:
    with small() as engine, engine.adapted(None) as other:
        assert len(list(tmp_path.iterdir())) == 2
        id = other.prefill("one")
        other.swap_out([id])
        assert path(other, id).exists()
        assert engine.decode("", sampling=Sampling(max_tokens=2, temperature=0))
    assert not list(tmp_path.iterdir())

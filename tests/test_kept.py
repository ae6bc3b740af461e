"""A folder of persistent encodings: its owner, key and model; files are whole or absent."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentcho.engine.persistent_files import HEAD, TAG, Fingerprint, PersistentFiles, check
from agentcho.engine.persistent_key import VARIABLE, key_file
from agentcho.errors import AgentchoError, CannotWrite, ConfigError, ModelError, StoreDamaged

SECRET = "s" * 40
MODEL = {"model": "one", "weights": "w"}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A key in the environment, and a home without user files."""
    monkeypatch.setenv(VARIABLE, SECRET)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))


def files(place: Path, most: int = 1 << 20, **beside: str) -> PersistentFiles:
    return PersistentFiles(place, Fingerprint(MODEL, beside), most)


# -- reading and writing ---------------------------------------------------------------------------------------------


def test_what_one_has_written_another_reads(tmp_path: Path) -> None:
    place = tmp_path / "a" / "kept"
    one, other = files(place), files(place)
    name = one.name(b"key", exact=True)
    assert other.read(name) is None
    assert one.write(name, b"words")
    assert other.read(other.name(b"key", exact=True)) == b"words"
    assert files(place).used == one.used == TAG + 5
    assert not one.write(one.name(b"long", exact=True), b"x" * (1 << 20))
    assert sorted(os.listdir(place)) == sorted([HEAD, name])


def test_it_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        kept = files(tmp_path / "kept")
        kept.write(kept.name(b"key", exact=True), b"words")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "kept").iterdir()} == {0o600}


def test_another_call_profile_or_machine_has_another_file(tmp_path: Path) -> None:
    one, threads = files(tmp_path / "kept"), files(tmp_path / "kept", threads="2")
    names = [one.name(b"key", exact=True), one.name(b"key", exact=False), one.name(b"other", exact=True)]
    names.append(threads.name(b"key", exact=True))
    assert len({*names}) == 4
    assert not any(b"key".hex() in name or "key" in name for name in names)


def test_names_tell_nothing_to_who_has_not_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = files(tmp_path / "one").name(b"key", exact=True)
    monkeypatch.setenv(VARIABLE, "t" * 40)
    assert files(tmp_path / "other").name(b"key", exact=True) != name


def flipped(file: Path, other: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1] + b"!")


def cut(file: Path, other: Path) -> None:
    os.truncate(file, TAG + 1)


def emptied(file: Path, other: Path) -> None:
    os.truncate(file, 0)


def swapped(file: Path, other: Path) -> None:
    other.replace(file)


def linked(file: Path, other: Path) -> None:
    file.rename(file.parent.parent / "elsewhere")
    file.symlink_to(file.parent.parent / "elsewhere")


def piped(file: Path, other: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize("damage", [flipped, cut, emptied, swapped, linked, piped], ids=lambda each: each.__name__)
def test_what_is_not_what_was_written_is_named_and_made_again(
    tmp_path: Path, damage: Callable[[Path, Path], None]
) -> None:
    kept = files(tmp_path / "kept")
    one, two = kept.name(b"one", exact=True), kept.name(b"two", exact=True)
    kept.write(one, b"the first")
    kept.write(two, b"the second")
    damage(kept.folder / one, kept.folder / two)
    with pytest.raises(StoreDamaged, match=one) as told:
        kept.read(one)
    assert told.value.file == kept.folder / one
    kept.write(one, b"the first")
    assert kept.read(one) == b"the first"


def test_a_file_of_another_machine_in_the_place_of_ones_own_is_damaged(tmp_path: Path) -> None:
    one, threads = files(tmp_path / "kept"), files(tmp_path / "kept", threads="2")
    mine, theirs = one.name(b"key", exact=True), threads.name(b"key", exact=True)
    threads.write(theirs, b"words")
    (one.folder / theirs).rename(one.folder / mine)
    with pytest.raises(StoreDamaged, match="has changed since it was written"):
        one.read(mine)


def test_a_file_under_another_key_in_the_place_of_ones_own_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = files(tmp_path / "one")
    monkeypatch.setenv(VARIABLE, "t" * 40)
    other = files(tmp_path / "other")
    mine, theirs = one.name(b"key", exact=True), other.name(b"key", exact=True)
    other.write(theirs, b"words")
    (other.folder / theirs).rename(one.folder / mine)
    with pytest.raises(StoreDamaged, match="under another key"):
        one.read(mine)


def test_what_was_used_least_recently_leaves(tmp_path: Path) -> None:
    kept = files(tmp_path / "kept", most=4 * (TAG + 100))
    names = [kept.name(bytes([n]), exact=True) for n in range(5)]
    for age, name in enumerate(names[:4]):
        kept.write(name, bytes(100))
        os.utime(kept.folder / name, (1000 + age, 1000 + age))
    assert kept.read(names[0]) == bytes(100)
    kept.write(names[4], bytes(100))
    assert [(kept.folder / name).exists() for name in names] == [True, False, False, True, True]
    assert kept.used == 3 * (TAG + 100)


# -- a full disk and a killed process --------------------------------------------------------------------------------


def test_of_what_does_not_fit_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, write = files(tmp_path / "kept"), os.write

    def full(file: int, data: memoryview) -> int:
        write(file, data[:1])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.write", full)
    with pytest.raises(OSError, match="No space left"):
        kept.write(kept.name(b"key", exact=True), b"words")
    assert os.listdir(kept.folder) == [HEAD]


HALF = """
import os, sys
from pathlib import Path
from agentcho.engine.persistent_files import Fingerprint, PersistentFiles
kept = PersistentFiles(Path(sys.argv[1]), Fingerprint({"model": "one", "weights": "w"}, {}), 1 << 20)
kept.write(kept.name(b"whole", True), b"words")
write = os.write
def half(file, data):
    write(file, data[:3])
    print("half", flush=True)
    sys.stdin.readline()
    os.kill(os.getpid(), 9)
os.write = half
kept.write(kept.name(b"half", True), b"other words")
"""


def test_a_killed_process_leaves_nothing_half_and_a_living_one_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "kept"
    words = [sys.executable, "-c", HALF, str(place)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "half\n"
        kept = files(place)
        assert len(os.listdir(place)) == 3, "what it is writing stays"
        other.communicate("\n")
    assert other.returncode == -9
    assert kept.read(kept.name(b"half", exact=True)) is None
    assert len(os.listdir(place)) == 3
    kept = files(place)
    assert sorted(os.listdir(place)) == sorted([HEAD, kept.name(b"whole", exact=True)])
    assert kept.read(kept.name(b"whole", exact=True)) == b"words"


def test_of_two_that_begin_at_once_both_have_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, put = tmp_path / "kept", PersistentFiles._put

    def late(kept: PersistentFiles, name: str, *parts: bytes, over: bool = True) -> None:
        monkeypatch.setattr(PersistentFiles, "_put", put)
        files(place)
        put(kept, name, *parts, over=over)

    monkeypatch.setattr(PersistentFiles, "_put", late)
    kept = files(place)
    kept.write(kept.name(b"key", exact=True), b"words")
    assert len(os.listdir(place)) == 2


# -- refusals --------------------------------------------------------------------------------------------------------


def opened(place: Path) -> None:
    place.chmod(0o750)


def another(place: Path) -> None:
    head = json.loads((place / HEAD).read_text())
    head["model"]["weights"] = "x"
    (place / HEAD).write_text(json.dumps(head))


def damaged(place: Path) -> None:
    (place / HEAD).write_text("{")


def headless(place: Path) -> None:
    (place / HEAD).unlink()
    (place / "mine").write_text("mine")


def behind(place: Path) -> None:
    place.rename(place.with_name("elsewhere"))
    place.symlink_to(place.with_name("elsewhere"))


def older(place: Path) -> None:
    head = json.loads((place / HEAD).read_text())
    (place / HEAD).write_text(json.dumps(head | {"format": "agentcho-cache/0"}))


@pytest.mark.parametrize(
    ("done", "told"),
    [
        (opened, "others than its owner may use .*kept; chmod 700"),
        (another, "under a key other than the one in the environment"),
        (damaged, "cache.json is damaged; delete"),
        (headless, "contains other files, and no stored encodings"),
        (behind, "kept is a link"),
        (older, "another version"),
    ],
)
def test_a_folder_that_is_not_as_it_was_made_is_refused_early_and_late(
    tmp_path: Path, done: Callable[[Path], None], told: str
) -> None:
    place = tmp_path / "kept"
    files(place)
    done(place)
    for use in (lambda: check(place, {}), lambda: files(place)):
        with pytest.raises(ConfigError, match=told):
            use()


def test_a_folder_of_another_model_or_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "kept"
    files(place)
    check(place, {"model": "one"})
    with pytest.raises(ModelError, match=r"kept holds encodings of another model \(model one, and not two\); give"):
        check(place, {"model": "two"})
    with pytest.raises(ModelError, match="weights w, and not v"):
        PersistentFiles(place, Fingerprint(MODEL | {"weights": "v"}, {}))
    with monkeypatch.context() as patch:
        patch.setattr("os.getuid", lambda: 1 << 20)
        with pytest.raises(ConfigError, match="belongs to another user"):
            check(place, {})
    (tmp_path / "file").write_text("mine")
    for use in (lambda: check(tmp_path / "file", {}), lambda: files(tmp_path / "file")):
        with pytest.raises(CannotWrite):
            use()
    check(tmp_path / "new", {})
    assert not (tmp_path / "new").exists()


# -- the key ---------------------------------------------------------------------------------------------------------


def test_a_key_is_made_once_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    name = files(tmp_path / "kept").name(b"key", exact=True)
    assert key_file() == tmp_path / "home" / "agentcho" / "cache.key"
    assert stat.S_IMODE(key_file().stat().st_mode) == 0o600
    assert [each.name for each in key_file().parent.iterdir()] == ["cache.key"]
    secret = key_file().read_text().strip()
    assert len(secret) > 40
    assert files(tmp_path / "kept").name(b"key", exact=True) == name
    assert not any(secret.encode() in each.read_bytes() for each in (tmp_path / "kept").iterdir())
    key_file().unlink()
    with pytest.raises(ConfigError, match=r"a key other than the one in .*cache\.key"):
        files(tmp_path / "kept")


def readable(file: Path) -> None:
    file.write_text(SECRET)
    file.chmod(0o640)


def short(file: Path) -> None:
    file.write_text("short")
    file.chmod(0o600)


def a_link(file: Path) -> None:
    file.symlink_to(file.with_name("elsewhere"))


def a_folder(file: Path) -> None:
    file.mkdir(0o700)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (readable, "chmod 600"),
        (short, "5 characters"),
        (a_link, "symbolic links"),
        (a_folder, "not a regular file of yours|direc"),
    ],
)
def test_a_key_that_others_may_use_or_that_is_none_is_refused(
    tmp_path: Path, made: Callable[[Path], None], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    key_file().parent.mkdir(parents=True)
    made(key_file())
    with pytest.raises(ConfigError, match=told):
        check(tmp_path / "kept", {})


def test_a_key_in_the_folder_itself_or_nowhere_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "short")
    with pytest.raises(ConfigError, match="5 characters"):
        check(tmp_path / "kept", {})
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "kept"))
    with pytest.raises(ConfigError, match="the folder it protects"):
        check(tmp_path / "kept", {})
    (tmp_path / "file").write_text("mine")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    with pytest.raises(AgentchoError, match=f"or set {VARIABLE}"):
        check(tmp_path / "kept", {})

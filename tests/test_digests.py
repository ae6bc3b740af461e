"""Digests of syntax trees: what changes them, and what does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentcho.records import cached
from agentcho.records.digests import file_digest, folder_digest

CODE = '''
"""A file."""
import math
from agentcho.provenance.labels import Ledger
import torch

LIMIT = 3


class Store:
    """Holds."""

    bulk: int = 0

    def put(self, key, value=1):
        # a remark
        self.bulk += value
        return self.kept(key)[LIMIT:]

    def kept(self, key):
        try:
            return sorted(each.text for each in Ledger(owner=key).read() if each is not None)
        except ValueError as error:
            raise KeyError(str(error)) from None


def scores(rows):
    def scaled(row):
        return math.exp(row)
    return torch.softmax(torch.tensor([scaled(row) for row in rows]), dim=0).argmax()
'''


def digest(code: str) -> str:
    return file_digest(code.encode())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""A file."""', '"""Another one."""'),
        ("        # a remark\n", ""),
        ("[LIMIT:]", "[LIMIT :]"),
        ("LIMIT", "MOST"),
        ("Store", "Shelf"),
        ("put", "store"),
        ("kept", "held"),
        ("Ledger", "Book"),
        ("provenance.labels", "information.book"),
        ("owner", "holder"),
        ("bulk", "amount"),
        ("value", "number"),
        ("each", "entry"),
        ("error", "fault"),
        ("scaled", "raised"),
        ("rows", "lines"),
        (".text", ".words"),
    ],
)
def test_names_of_our_own_remarks_and_layout_do_not_count(old: str, new: str) -> None:
    assert old in CODE
    assert digest(CODE.replace(old, new)) == digest(CODE)


def test_a_variable_of_one_function_alone_may_be_renamed() -> None:
    code = "def f(found):\n    return found\ndef g(found):\n    return found + 1\n"
    assert digest(code) == digest(code.replace("f(found):\n    return found\n", "f(seen):\n    return seen\n"))


RAISED = """
def positive(number, many):
    if number < 0:
        raise ValueError(f"{number} is below 0" if many else "below 0")
    return "below 0"
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('f"{number} is below 0"', '"a negative number"'),
        ('"below 0")', 'f"got {number}, expected 0 or more")'),
    ],
)
def test_the_text_of_an_error_does_not_count(old: str, new: str) -> None:
    assert old in RAISED
    assert digest(RAISED) == digest(RAISED.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ValueError", "KeyError"),
        (" if many else ", " if not many else "),
        ('return "below 0"', 'return "negative"'),
        ('        raise ValueError(f"{number} is below 0" if many else "below 0")', '        "below 0"'),
    ],
)
def test_which_error_is_raised_and_text_that_is_not_raised_count(old: str, new: str) -> None:
    assert old in RAISED
    assert digest(RAISED) != digest(RAISED.replace(old, new))


def test_imports_may_be_added_and_change_places() -> None:
    first, second = "from agentcho.provenance import a\n", "from agentcho.engine import b\n"
    use = "print(a, b)\n"
    assert digest(first + second + use) == digest(second + first + use) == digest("import os\n" + first + second + use)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("value=1", "value=2"),
        ("+= value", "-= value"),
        ("[LIMIT:]", "[:LIMIT]"),
        ("is not None", "is None"),
        ("ValueError", "TypeError"),
        ("sorted", "list"),
        ("math.exp", "math.log"),
        ("torch.softmax", "torch.sigmoid"),
        ("argmax", "argmin"),
        ("dim=0", "dim=1"),
        ("str(error)", "str(key)"),
        ("self.kept(key)", "self.put(key)"),
    ],
)
def test_what_code_does_counts(old: str, new: str) -> None:
    assert old in CODE
    assert digest(CODE.replace(old, new)) != digest(CODE)


def test_two_names_that_become_one_count() -> None:
    code = "def f(a, b):\n    return a - b\n"
    assert digest(code) != digest(code.replace("a - b", "b - a"))
    assert digest(code) != digest(code.replace("a - b", "a - a"))


def test_what_is_no_python_has_the_digest_of_its_bytes() -> None:
    assert digest("def (") != digest("def  (")


def test_a_folder_has_one_digest_whatever_its_files_are_called() -> None:
    one, other = digest("x = 1"), digest("x = 2")
    assert folder_digest([one, other]) == folder_digest([other, one]) != folder_digest([one])


# Cached digests

SOURCES = [CODE.encode(), b"x = 1", b"no Python ("]


@pytest.fixture
def computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The sources whose digests are computed, not read, starting from an empty cache folder."""
    monkeypatch.setenv(cached.CACHE, str(tmp_path))
    sources = list[bytes]()

    def counted(source: bytes) -> str:
        sources.append(source)
        return file_digest(source)

    monkeypatch.setattr(cached, "file_digest", counted)
    return sources


def test_a_digest_is_computed_once_for_each_content(computed: list[bytes]) -> None:
    right = [file_digest(source) for source in SOURCES]
    assert cached.file_digests(SOURCES) == right
    assert cached.file_digests(SOURCES[::-1]) == right[::-1]
    assert computed == SOURCES
    assert cached.file_digests([b"x = 2"]) == [file_digest(b"x = 2")]
    assert computed == [*SOURCES, b"x = 2"]


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"a": 1}', "[" * 10_000, None])
def test_a_damaged_cache_says_nothing_and_is_made_anew(
    computed: list[bytes], tmp_path: Path, damage: str | None
) -> None:
    right = cached.file_digests(SOURCES)
    file = tmp_path / cached.NAME
    if damage is None:
        file.write_text(json.dumps(dict.fromkeys(json.loads(file.read_text()), "not a digest")))
    else:
        file.write_text(damage)
    assert cached.file_digests(SOURCES) == right
    assert computed == SOURCES * 2
    assert cached.file_digests(SOURCES) == right
    assert computed == SOURCES * 2
    assert [each.name for each in tmp_path.iterdir()] == [cached.NAME]


def test_other_code_that_makes_digests_does_not_read_those_of_its_predecessor(
    computed: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    cached.file_digests(SOURCES)
    monkeypatch.setattr(cached, "_maker", lambda: "another")
    cached.file_digests(SOURCES)
    assert computed == SOURCES * 2


def test_where_there_can_be_no_cache_digests_are_computed(
    computed: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cached.CACHE, str(tmp_path / "file"))
    assert cached.file_digests(SOURCES) == [file_digest(source) for source in SOURCES]


def test_a_full_cache_begins_anew(computed: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached, "MOST", 2)
    cached.file_digests(SOURCES[:2])
    cached.file_digests(SOURCES[2:])
    assert len(json.loads((tmp_path / cached.NAME).read_text())) == 1

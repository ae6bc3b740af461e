"""Ratchets count what they claim, fail in both directions, and cover the path of a step and of a `say`."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.ratchets import (
    beyond,
    committed,
    excepted,
    exceptions,
    flows,
    graph,
    lowered,
    named,
    packing,
    size,
    verdict,
    verdicts,
    write,
)
from tests.ratchets.__main__ import main
from tests.ratchets.flows import INLINED, Flows, Function, Recorder
from tests.ratchets.source import counts, kept_lines, upward

from .test_layout import LAYERS


def test_lines_kept_from_the_formatter_are_counted_by_their_comments() -> None:
    kept = "a = [1,\n 2]  # fmt: skip\n# fmt: off\nb=1  #fmt:skip\n# yapf: disable\n"
    assert kept_lines(kept) == 4
    assert kept_lines("a = '# fmt: skip'\n# fmt: skipper\n# fmt: on\n") == 0


UNITS = (("low", "beside"), ("middle",), ("high",))


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from house.low import a\nimport house.low.part\n", []),
        ("from house import low\nimport os\nfrom elsewhere.high import a\n", []),
        ("from house.middle.other import a\nfrom . import other\nfrom .other import a\n", []),
        ("from house.high import a\n", ["house.high.a"]),
        ("import house.high\n", ["house.high"]),
        ("def f():\n    from house import high\n", ["house.high"]),
        ("if TYPE_CHECKING:\n    from house.high import a\n", []),
        ("from ..high import a\n", ["house.high.a"]),
        ("from .. import high\n", ["house.high"]),
        ("from house import Public\n", ["house.Public"]),
        ("import house\n", ["house"]),
    ],
)
def test_imports_run_up_where_they_do_not_run_down(code: str, found: list[str]) -> None:
    assert upward(code, ("house", "middle", "part.py"), UNITS) == found


def test_units_of_one_layer_do_not_import_each_other_and_the_package_itself_may_import_all() -> None:
    assert upward("from house.low import a\n", ("house", "beside.py"), UNITS) == ["house.low.a"]
    assert upward("from house.high import a\n", ("house", "__init__.py"), UNITS) == []


def test_a_checkout_is_counted_as_a_whole(tmp_path: Path) -> None:
    files = {
        "agentcho/__init__.py": "",
        "agentcho/low.py": "from agentcho import high\n",
        "agentcho/note.txt": "no\n",
        "agentcho/high/__init__.py": "",
        "agentcho/high/a.py": '"""A."""\na = [\n    1]  # fmt: skip\n',
        "agents/x.py": "a = 1  # fmt: skip\n",
        "scenarios/y.py": "b=2 # fmt: skip\n",
        "tests/high/z.py": "d=4 # fmt: skip\n",
        "other.py": "c = 1  # fmt: skip\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert counts(tmp_path, (("low",), ("high",))) == {
        "root files": 2,
        "fmt: skip": 1,
        "fmt: skip in agents and scenarios": 2,
        "fmt: skip in tests": 1,
        "upward imports": 1,
    }


def test_a_ratchet_fails_where_it_grows_and_where_it_could_be_lowered() -> None:
    grown, shrunk = verdict("root files", 39, 38), verdict("root files", 30, 38)
    assert verdict("root files", 38, 38) is None
    assert grown is not None
    assert grown.startswith("root files: 39, and 38 is the most")
    assert "tests/ratchets/ratchets.json" in grown
    assert shrunk is not None
    assert "lower it to 30" in shrunk
    assert verdicts({"a": 1, "b": 2, "new": 0, "newer": 1}, {"a": 1, "b": 2}) == [verdict("newer", 1, 0)]


def test_numbers_are_lowered_and_never_raised(tmp_path: Path) -> None:
    write(lowered({"a": 1, "b": 5, "new": 7}, {"a": 2, "b": 4, "kept": 3}), tmp_path / "numbers.json")
    assert committed(tmp_path / "numbers.json") == {"a": 1, "b": 4, "kept": 3}


HOOKED = """
from elsewhere import outside

def called(many):
    inner = lambda x: x
    return [inner(x) for x in many], sum(x for x in many), outside()

def not_called():
    pass

class Thing:
    @property
    def name(self):
        return "thing"
"""


@pytest.fixture
def hooked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A made-up module in a watched folder, which calls one outside of it."""
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "hooked.py").write_text(HOOKED)
    (tmp_path / "elsewhere.py").write_text("def outside():\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "inside")
    yield import_module("hooked")
    del sys.modules["hooked"], sys.modules["elsewhere"]


def test_every_kind_of_frame_of_the_folder_is_seen_in_every_thread(hooked: ModuleType, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "inside")
    before = sys.getprofile(), threading.getprofile()
    with recorder.listening():
        hooked.not_called()
        recorder.open("all", "some")
        hooked.called([1, 2])
        recorder.close("some")
        thread = threading.Thread(target=lambda: hooked.Thing().name)
        thread.start()
        thread.join()
        recorder.close("all")
        hooked.not_called()
    assert (sys.getprofile(), threading.getprofile()) == before
    names = [("called", 4), ("called.<locals>.<genexpr>", 6), ("called.<locals>.<lambda>", 5)]
    names += [] if INLINED else [("called.<locals>.<listcomp>", 6)]
    some = sorted(Function("hooked.py", line, name) for name, line in names)
    assert recorder.flow("some") == some
    assert recorder.flow("all") == [*some, Function("hooked.py", 12, "Thing.name")]


def test_files_are_counted_flow_by_flow() -> None:
    three = [Function("a.py", 1, "<lambda>"), Function("a.py", 1, "<lambda>"), Function("b.py", 1, "f")]
    assert flows.counts(Flows([three, three[:1]], three[:1], [], three)) == {
        "decode step: files": 2,
        "decode step and all between two: files": 1,
        "say to its first token: files": 0,
        "say to its end: files": 2,
    }


@pytest.fixture(scope="module")
def played() -> Iterator[list[Flows]]:
    """Flows of the second and third game on one engine."""
    with flows.tiny() as engine:
        yield [flows.measured(engine), flows.played(engine)]


def test_what_is_gone_through_is_the_same_in_every_steady_step_and_every_time(played: list[Flows]) -> None:
    first, second = played
    assert first == second
    assert all(step == first.steps[0] for step in first.steps)
    assert set(first.steps[0]) < set(first.round)
    assert set(first.first) < set(first.say)


def test_what_is_gone_through_is_what_one_would_look_for(played: list[Flows]) -> None:
    names = {name: {function.name for function in flow} for name, flow in played[0].named().items()}
    assert {"EngineCore.step", "Scheduler.schedule", "Generation.accept", "sample_tokens"} <= names["decode step"]
    assert not names["decode step"] & {"EngineCore.submit", "Choreographer._deliver", "Generation._end"}
    assert "Choreographer._deliver" in names["decode step and all between two"]
    assert {"Agent.say", "EngineCore.submit", "TurnRecorder.piece"} <= names["say to its first token"]
    assert not names["say to its first token"] & {"Generation._end", "Journal.enter"}
    assert {"Generation._end", "Journal.enter"} <= names["say to its end"]


@pytest.mark.skipif(INLINED, reason="frames of comprehensions are seen up to Python 3.11 alone")
def test_what_is_gone_through_is_what_is_committed(played: list[Flows], tmp_path: Path) -> None:
    counted = flows.counts(played[0])
    found = verdicts(counted, committed())
    assert not found, "\n".join(found)
    assert list(committed()) == [*counts(tmp_path, LAYERS), *counted], "numbers that nobody counts"


def test_the_figures_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["ratchets", "--figures"])
    monkeypatch.setattr("tests.ratchets.source.counts", lambda root, layers: {"root files": 12345})
    monkeypatch.setattr("tests.ratchets.size.limited", lambda root: {"folders at the top": 25})
    monkeypatch.setattr("tests.ratchets.size.shown", lambda root: {"statements": 7})
    main()
    lines = [re.split(r"\s{2,}", line) for line in capsys.readouterr().out.splitlines()]
    assert [name for name, *_ in lines] == [*committed(), "folders at the top", "statements"]
    assert lines[0] == ["root files", "12,345", "(aim: 10)"]
    assert lines[-1] == ["statements", "7"]


HOUSE = {
    "house/__init__.py": "",
    "house/low.py": "import os\nif TYPE_CHECKING:\n    from house.high.a import A\n",
    "house/high/__init__.py": "from .a import A\n",
    "house/high/a.py": "from house import low\n\nclass A: ...\n\ndef f():\n    from .b import B\n",
    "house/high/b.py": "from house.high import a\n\nclass A: ...\n",
    "house/high/c.py": "from house.low import name\n",
}


@pytest.fixture
def house(tmp_path: Path) -> Path:
    for name, text in HOUSE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_imports_are_seen_wherever_they_stand(house: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = graph.modules(house, "house")
    found = graph.arrows(files)
    assert list(map(str, found)) == [
        "house.high -> house.high.a (loading)",
        "house.high.a -> house.high.b (calling)",
        "house.high.a -> house.low (loading)",
        "house.high.b -> house.high.a (loading)",
        "house.high.c -> house.low (loading)",
        "house.low -> house.high.a (typing)",
    ]
    assert graph.circles(found) == [["house.high.a", "house.high.b", "house.low"]]
    assert graph.circles(each for each in found if each.when == "loading") == []
    assert list(map(str, graph.upward(found, (("low",), ("high",))))) == ["house.low -> house.high.a (typing)"]
    assert graph.twice(files) == ["house.high.b: A, as in house.high.a"]
    drawing = [*graph.drawn(found, graph.upward(found, (("low",), ("high",))), (("low",), ("high",)))]
    assert drawing[-3:] == ["  high -> low", "  low -> high [color=red]", "}"]


def test_a_file_names_what_it_uses_and_not_what_its_docstrings_tell() -> None:
    told = '"""Of kv_dtype."""\nfrom house.flex import a as b\n\ndef f(top_k=1):\n    return g(min_p="first-k:16")\n'
    sources = {"a.py": told, "b.py": "class C:\n    top_k: int\n    other = 1\n"}
    for name, files in {"kv_dtype": [], "flex": ["a.py"], "min_p": ["a.py"], "first-k": ["a.py"], "first": []}.items():
        assert named.touched(sources, (name,)) == files
    assert named.declaring(sources, "top_k") == ["a.py", "b.py"]
    assert named.declaring(sources, "other") == []
    assert size.touched({"runner/flex.py": "", "flexible.py": ""}, ("flex",)) == ["runner/flex.py"]


@pytest.mark.parametrize(
    ("code", "calls", "assigned", "returned"),
    [
        ("f(1, 2, 3, 4, 5)", 1, 0, 0),
        ("f(1, 2, 3, 4, d=5)", 0, 0, 0),
        ("len(1, 2, 3, 4, 5)", 0, 0, 0),
        ("a, b, c = 1, 2, 3", 0, 1, 0),
        ("a, b = 1, 2", 0, 0, 0),
        ("a, b, c = d", 0, 0, 0),
        ("a, *b = 1, 2, 3", 0, 0, 0),
        ("return 1, 2, 3, 4", 0, 0, 1),
        ("return 1, 2, 3", 0, 0, 0),
        ("return [1, 2, 3, 4]", 0, 0, 0),
    ],
)
def test_what_is_packed_is_counted(code: str, calls: int, assigned: int, returned: int) -> None:
    assert [*packing.counts({"a.py": f"def f():\n    {code}\n"}).values()] == [calls, assigned, returned]


def test_statements_and_lines_are_counted_without_what_is_told() -> None:
    code = '"""Told.\n\nMore."""\n\n# a\nx = (1,\n     2)  # b\n\ndef f():\n    """Told."""\n    return x\n'
    assert size.statements(code) == 3
    assert size.code_lines(code) == 4


def test_a_number_may_be_at_most_what_is_said_and_exceptions_are_those_that_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert beyond({"a": 2, "b": 1}, {"a": 2, "b": 4}) == []
    assert beyond({"a": 3}, {"a": 2})[0].startswith("a: 3, and 2 is the most")
    known = exceptions("circles of imports")
    assert excepted("circles of imports", known) is None
    assert "none may be added" in (excepted("circles of imports", [*known, "a, b"]) or "")
    monkeypatch.setattr("tests.ratchets.exceptions", lambda kind: ["a, b"])
    assert "Well done" in (excepted("circles of imports", []) or "")

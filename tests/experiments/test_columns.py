"""The text form of columns, and texts that are not columns."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agentcho.config import RunConfig
from agentcho.errors import AdapterError, ConfigError
from agentcho.lab.compare.columns import columns
from agentcho.records.trained_adapters import called
from agentcho.reuse.ape import Ape
from agentcho.reuse.cacheblend import CacheBlend
from agentcho.reuse.epic import Epic
from agentcho.reuse.first_k import FirstK
from agentcho.reuse.full import Full
from agentcho.reuse.in_place import InPlace
from agentcho.reuse.kvcomm import KVComm
from agentcho.reuse.registry import parsed_repair, parsed_way, usual_repairs, usual_ways
from agentcho.reuse.rotate import Rotate
from agentcho.reuse.top_k import TopK


def test_columns_are_read_and_written_alike() -> None:
    text = (
        "baseline,choreographed:audit,choreographed:enforce,choreographed:audit:in-place,choreographed:deny,"
        "choreographed:enforce+top-k:0.15"
    )
    found = columns(text.replace(",", " , "))
    assert ",".join(column.name for column in found) == text
    assert columns("choreographed")[0].name == "choreographed:audit"
    ways = [column.config(RunConfig(games=3, deterministic=True)).policy for column in found]
    assert [(way.mode, way.leakage, way.in_place) for way in ways] == [
        ("baseline", "audit", False),
        ("choreographed", "audit", False),
        ("choreographed", "enforce", False),
        ("choreographed", "audit", True),
        ("choreographed", "deny", False),
        ("choreographed", "enforce", False),
    ]
    assert [way.repair for way in ways] == [None] * 5 + [TopK(0.15)]
    assert all(way.deterministic for way in ways)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "unknown mode ''; give baseline or choreographed"),
        ("baseline,", "column '': unknown mode ''"),
        ("fast", "unknown mode 'fast'"),
        ("choreographed:leaky", "'leaky' is none of audit, enforce, deny, in-place, ape"),
        ("choreographed:audit:enforce", "sets one option twice"),
        ("baseline:audit", "baseline takes no other words"),
        ("baseline,choreographed,choreographed:audit", "'choreographed:audit': it is given twice"),
        ("baseline+full", "a repair needs a choreographed column"),
        ("choreographed:audit:in-place+full", "a repair needs a choreographed column that reads by"),
        ("choreographed:ape+full", "a repair needs a choreographed column"),
        ("choreographed:ape:in-place", "sets one option twice"),
        ("choreographed:ape:0,1", "'ape:0,1' is none of rotate, in-place and ape\\[:TEMPERATURE,SCALE\\]"),
        ("choreographed:ape:0.5", "'ape:0.5' is none of"),
        ("baseline:ape", "baseline takes no other words"),
        ("choreographed+cacheblend:2", "'cacheblend:2' is none of"),
        ("choreographed+last-k:3", "'last-k:3' is none of first-k:TOKENS"),
        ("choreographed+first-k:0", "'first-k:0' is none of"),
        ("choreographed+top-k:1.5", "'top-k:1.5' is none of"),
    ],
)
def test_what_is_no_column_is_refused(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        columns(text)


def test_ways_of_reading_are_columns_too() -> None:
    text = "baseline,choreographed:audit:ape:0.9,0.8,choreographed:enforce:ape,choreographed:audit:in-place"
    found = columns(text)
    assert ",".join(column.name for column in found) == text
    ways = [column.config(RunConfig(games=3)).policy for column in found]
    assert [way.ape for way in ways] == [None, Ape(0.9, 0.8), Ape(0.9, 0.9), None]
    assert [way.in_place for way in ways] == [False, True, True, True]
    assert [column.method for column in found] == [None, "ape:0.9,0.8", "ape", "in-place"]


def test_each_plain_column_once_more_in_each_way_and_with_each_repair() -> None:
    found = columns("baseline,choreographed:audit", "epic:8,cacheblend:0.2", None, "ape:0.7,0.6,in-place")
    assert [column.name for column in found] == [
        "baseline",
        "choreographed:audit",
        "choreographed:audit:ape:0.7,0.6",
        "choreographed:audit:in-place",
        "choreographed:audit+epic:8",
        "choreographed:audit+cacheblend:0.2",
    ]


def test_all_are_all_kinds_of_repair_and_all_ways_each_once() -> None:
    found = columns("baseline,choreographed:enforce,choreographed:audit:in-place", "all")
    methods = [column.method for column in found if column.leakage == "enforce"]
    assert methods == [None, "in-place", "ape", "epic:16", "top-k:0.15", "cacheblend:0.15", "kvcomm", "full"]
    assert len({column.name for column in found}) == len(found) == 10
    kinds = {type(parsed_repair(repair)) for repair in usual_repairs()}
    assert kinds == {Epic, TopK, CacheBlend, KVComm, Full}
    assert [type(parsed_way(way)) for way in usual_ways()] == [Rotate, InPlace, Ape]
    assert parsed_repair("epic:16").tag == parsed_repair("first-k:16").tag == FirstK(16).tag


@pytest.fixture
def adapters(tmp_path: Path) -> list[str]:
    folders = [tmp_path / name for name in ("one", "two", "there/one")]
    for number, folder in enumerate(folders):
        folder.mkdir(parents=True)
        (folder / "adapter_config.json").write_text("{}")
        (folder / "adapter_model.safetensors").write_text(str(number))
    return [str(folder) for folder in folders]


def test_an_adapter_whose_training_goes_on_is_named(adapters: list[str], caplog: pytest.LogCaptureFixture) -> None:
    columns(f"choreographed:audit@{adapters[0]}")
    assert not caplog.records
    (Path(adapters[0]) / "going").mkdir()
    columns(f"baseline@{adapters[0]},choreographed:audit@{adapters[0]},choreographed:audit@{adapters[1]}")
    (record,) = caplog.records
    assert f"the training of adapter {adapters[0]} has not finished" in record.getMessage()
    assert "from before the first step" in record.getMessage()


def test_an_adapter_is_a_folder_and_goes_by_its_name_and_digest(adapters: list[str]) -> None:
    one, two, other = adapters
    found = columns(f"baseline@{two},choreographed:enforce@{one},choreographed:audit+full@{two},choreographed")
    assert [column.name for column in found] == [
        "baseline@two",
        "choreographed:enforce@one",
        "choreographed:audit+full@two",
        "choreographed:audit",
    ]
    assert [column.config(RunConfig()).adapter for column in found] == [two, one, two, None]
    folders = [
        column.folder(Path("out")) for column in columns(f"choreographed@{one}") + columns(f"choreographed@{other}")
    ]
    assert len(set(folders)) == 2
    default = columns(f"baseline,choreographed:audit,choreographed:enforce@{two}", None, one)
    assert [column.adapter for column in default] == [None, one, two]
    with pytest.raises(ConfigError, match=r"with --adapter .*, choreographed:audit@one is given twice"):
        columns(f"choreographed:audit,choreographed:audit@{other}", None, one)
    with pytest.raises(ConfigError, match="is given twice"):
        columns(f"choreographed@{one},choreographed@{other}")
    with pytest.raises(AdapterError, match="the folder does not exist"):
        columns("choreographed@nowhere")


def test_the_adapter_of_an_epoch_goes_by_the_name_of_its_training_too(adapters: list[str]) -> None:
    for folder in adapters[:2]:
        shutil.copytree(adapters[2], Path(folder) / "epoch-4")
    found = columns(",".join(f"choreographed:audit@{folder}/epoch-4" for folder in adapters[:2]))
    assert [column.name for column in found] == ["choreographed:audit@one/epoch-4", "choreographed:audit@two/epoch-4"]
    assert {column.folder(Path("out")).parent for column in found} == {Path("out")}
    assert called("epoch-4") == "epoch-4"
    assert called("runs/epoch-last") == "epoch-last"


def test_repairs_are_added_to_what_can_be_repaired() -> None:
    found = columns("baseline,choreographed:audit,choreographed:enforce:in-place", "first-k:4, full")
    assert [column.name for column in found[3:]] == ["choreographed:audit+first-k:4", "choreographed:audit+full"]
    with pytest.raises(ConfigError, match="no column can be repaired"):
        columns("baseline", "full")
    with pytest.raises(ConfigError, match="'some' is none of"):
        columns("choreographed", "some")

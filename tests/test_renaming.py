"""A table of renames applied to a small checkout: references decide what is renamed; a second run changes nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.renaming import Table, TableError, rename

FILES = {
    "house/__init__.py": "",
    "house/rooms/__init__.py": "from .desk import Asked\n",
    "house/rooms/desk.py": '''"""See house.rooms.octets."""
from __future__ import annotations

from . import octets
from .octets import pack


class Asked:
    octets: int = 0


def ask(octets_of: int, Kind: str = "") -> Asked:
    return Asked()


def sizes() -> list[int]:
    return [octets.WIDTH, pack(1), ask(1, Kind="a").octets]
''',
    "house/rooms/octets.py": "WIDTH = 8\n\n\ndef pack(x: int) -> int:\n    return x\n",
    "house/rooms/words.txt": "data\n",
    "house/use.py": """from house.rooms import Asked, octets
from house.rooms.desk import Asked as Asked
from house.rooms.desk import Asked as Other
import house.rooms.octets


class Own:
    class Asked:
        pass


def f(asked: Asked) -> object:
    Asked = 1
    return Asked, house.rooms.octets.WIDTH, octets.pack, Other, Own.Asked
""",
    "tests/__init__.py": "",
    "tests/mutants/__init__.py": "",
    "tests/mutants/some.py": """from x import Mutant

ONE = Mutant(
    "Asked too late", "an Asked is octets", "house/rooms/desk.py", "return Asked()", "return octets.WIDTH", ("t",)
)
""",
    "README.md": "`house.rooms.desk.Asked` in house/rooms/octets.py; an Asked of anybody, house/rooms/words.txt\n",
}
TABLE = {
    "modules": {"house.rooms.octets": "house.kv.quant", "house.rooms": "house.study"},
    "names": {"house.rooms.desk.Asked": "Query", "house.rooms.octets.pack": "quantize"},
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "house" / "kv").mkdir()
    (tmp_path / "house" / "kv" / "__init__.py").write_text("")
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def table(path: Path, **parts: object) -> Table:
    path.write_text(json.dumps({**TABLE, **parts}))
    return Table.read(path)


def test_everything_follows_and_a_second_run_changes_nothing(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    names = table(tmp_path_factory.mktemp("t") / "table.json")
    assert rename(checkout, names, "house")
    desk = (checkout / "house/study/desk.py").read_text()
    assert '"""See house.kv.quant."""' in desk
    assert "from house.kv import quant" in desk
    assert "from house.kv.quant import quantize" in desk
    assert "class Query:\n    octets: int = 0" in desk
    assert 'Kind: str = "") -> Query:\n    return Query()' in desk
    assert '[quant.WIDTH, quantize(1), ask(1, Kind="a").octets]' in desk
    assert (checkout / "house/study/__init__.py").read_text() == "from .desk import Query\n"
    assert (checkout / "house/study/words.txt").exists()
    use = (checkout / "house/use.py").read_text()
    assert "from house.study import Query\nfrom house.kv import quant\n" in use
    assert "from house.study.desk import Query as Query\nfrom house.study.desk import Query as Other\n" in use
    assert "import house.kv.quant\n" in use
    assert "class Own:\n    class Asked:" in use
    assert "def f(asked: Query)" in use
    assert "    Asked = 1\n    return Asked, house.kv.quant.WIDTH, quant.quantize, Other, Own.Asked\n" in use
    mutants = (checkout / "tests/mutants/some.py").read_text()
    assert '"Asked too late", "an Asked is octets"' in mutants
    assert '"house/study/desk.py", "return Query()", "return quant.WIDTH"' in mutants
    assert (checkout / "README.md").read_text() == (
        "`house.study.desk.Query` in house/kv/quant.py; an Asked of anybody, house/study/words.txt\n"
    )
    code = "import house.use; house.use.f(None); import house.study.desk as d; assert d.sizes() == [8, 1, 0]"
    subprocess.run([sys.executable, "-c", code], cwd=checkout, check=True)
    subprocess.run(["git", "add", "-A"], cwd=checkout, check=True)
    assert rename(checkout, names, "house") == []


def test_a_table_that_would_change_something_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"house\.a\.B"):
        table(tmp_path / "t.json", names={"house.a.A": "B", "house.a.B": "C"})
    with pytest.raises(TableError, match=r"house\.b"):
        table(tmp_path / "t.json", modules={"house.a": "house.b", "house.b": "house.c"})

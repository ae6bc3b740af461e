"""The package's structure: imports only go down, torch and rich stay in their places, docs name every module."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import agentcho
from agentcho import api
from tests import ratchets
from tests.ratchets import graph, size, source
from tools.pages.structure import with_modules

PACKAGE = Path(agentcho.__file__).parent
ROOT = PACKAGE.parent
LAYERS = (
    ("errors", "moved"),
    ("extras",),
    ("message",),
    ("reuse",),
    ("protocol", "tasks"),
    ("config",),
    ("provenance",),
    ("records",),
    ("events", "scenario"),
    ("games.results",),
    ("engine",),
    ("runner.understudy",),
    ("runner",),
    ("integrations.endpoints", "integrations.vllm"),
    ("choreography",),
    ("games.tools",),
    ("agent",),
    ("integrations.textarena",),
    ("games.play",),
    ("games.runs",),
    ("integrations.ray",),
    ("testing",),
    ("audit",),
    ("viewer",),
    ("integrations.inspect", "integrations.opentelemetry"),
    ("serve",),
    ("display",),
    ("display.people",),
    ("cli",),
    ("lab",),
    ("api",),
    ("__main__",),
)
LEVELS = graph.levels(LAYERS)


def unit(path: Path) -> str:
    """The part of the package that a file is in: one of `LAYERS`, or the module or package right under `agentcho`."""
    return graph.room(".".join(path.relative_to(ROOT).parts).removesuffix(".py").removesuffix(".__init__"), LEVELS)


def sources() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def imports(path: Path) -> tuple[str, ...]:
    """Dotted names that a file imports, also inside functions, but not under TYPE_CHECKING."""
    return source.imports(path.read_text(), path.relative_to(ROOT).parent.parts)


def test_arrows_run_down() -> None:
    found = {path: source.upward(path.read_text(), path.relative_to(ROOT).parts, LAYERS) for path in sources()}
    assert {path: arrows for path, arrows in found.items() if arrows} == {}


@pytest.fixture(scope="module")
def arrows() -> list[graph.Arrow]:
    return graph.arrows(graph.modules(ROOT, "agentcho"))


def test_arrows_that_are_for_types_alone_run_down_too(arrows: list[graph.Arrow]) -> None:
    found = ratchets.excepted("imports that do not run down", map(str, graph.upward(arrows, LAYERS)))
    assert found is None, found


def test_no_imports_go_in_a_circle_inside_of_functions_and_for_types_neither(arrows: list[graph.Arrow]) -> None:
    found = ratchets.excepted("circles of imports", map(", ".join, graph.circles(arrows)))
    assert found is None, found


def test_what_is_counted_of_the_source_is_what_is_committed() -> None:
    found = ratchets.verdicts(source.counts(ROOT, LAYERS), ratchets.committed())
    assert not found, "\n".join(found)


def test_what_may_only_go_down_does_not_go_up() -> None:
    counted, most = size.limited(ROOT), ratchets.committed(ratchets.LIMITS)
    found = ratchets.beyond(counted, most)
    assert not found, "\n".join(found)
    assert [*counted] == [*most]


def test_libraries_stay_in_their_place() -> None:
    heavy, words = {"torch", "transformers", "llguidance", "tokenizers"}, {"transformers", "tokenizers"}
    for path in sources():
        mine, names = unit(path), imports(path)
        if mine not in LEVELS:  # a package with only a docstring
            assert not names, path
            continue
        tops = {name.split(".")[0] for name in names}
        spells = path in (PACKAGE / "engine" / "template.py", PACKAGE / "engine" / "content_tokenizer.py")
        kept_out = heavy - words if spells else heavy  # these import them inside functions only
        assert mine in {"runner", "integrations.vllm", "lab"} or not tops & kept_out, path
        assert mine != "engine" or not re.search(r"(from|import) (torch|agentcho\.runner)\b", path.read_text()), path
        shows = mine in {"display", "display.people"} or path.parent == PACKAGE / "lab" / "display"
        assert shows or "rich" not in tops, path
        assert mine == "integrations.opentelemetry" or "opentelemetry" not in tops, path
        assert mine == "cli" or path.parent == PACKAGE / "lab" / "commands" or "typer" not in tops, path
        assert path == PACKAGE / "display" / "people" / "terminal.py" or "prompt_toolkit" not in tops, path
        served = mine == "serve" or path == PACKAGE / "viewer" / "live.py"
        assert served or not tops & {"starlette", "uvicorn", "prometheus_client", "h11"}, path
        assert mine in {"integrations.endpoints", "lab"} or "openai" not in tops, path
        probes = path.parent == PACKAGE / "lab" / "probe"
        assert probes or mine == "integrations.endpoints" or "httpx2" not in tops, path
        validates = mine == "integrations.endpoints" or path == PACKAGE / "serve" / "sharing" / "argument_validation.py"
        assert validates or not tops & {"jsonschema", "referencing"}, path
        assert path == PACKAGE / "integrations" / "textarena" / "package.py" or "textarena" not in tops, path
        clusters = path == PACKAGE / "integrations" / "ray" / "ray.py"
        assert clusters or not any(name.split(".")[0] == "ray" for name in names), path
        assert mine == "agent" or LEVELS[mine] > LEVELS["runner"] or "anyio" not in tops, path
        if mine == "runner" and path.stem not in ("lean_transformers", "model"):
            assert not any(name.startswith(("transformers.Auto", "transformers.models")) for name in names), path


def test_the_rooms_of_the_server_know_no_more_than_they_need() -> None:
    kept_out = {"api": ("sharing", "web"), "sharing": ("api", "web")}
    for room, others in kept_out.items():
        files = sorted((PACKAGE / "serve" / room).glob("*.py"))
        assert len(files) > 5
        for path in files:
            assert not any(f"agentcho.serve.{other}." in f"{name}." for name in imports(path) for other in others), path


def test_the_lab_is_reached_through_one_function_of_its_commands_and_by_the_public_names_alone() -> None:
    door, names = PACKAGE / "cli" / "extension.py", PACKAGE / "api.py"
    outside = [path for path in sources() if unit(path) != "lab"]
    assert [
        path for path in outside if re.search(r"agentcho\.lab|\bfrom agentcho import .*\blab\b", path.read_text())
    ] == [names, door]
    assert re.findall(r"agentcho\.lab[.\w]*", door.read_text()) == ["agentcho.lab.commands"]
    assert api.LAB == {"compare": "agentcho.lab.compare.api", "sweep": "agentcho.lab.sweep.api"}
    assert not any(module.startswith("lab") for module in agentcho.HOMES)


def test_what_the_lab_measures_with_knows_no_command_and_no_display_of_the_lab() -> None:
    lab = PACKAGE / "lab"
    shown = {"agentcho.lab.commands", "agentcho.lab.display", "agentcho.display"}
    for path in sorted(lab.rglob("*.py")):
        if path.parent not in (lab / "commands", lab / "display"):
            assert not any(name.startswith(f"{room}.") for name in imports(path) for room in shown), path


def test_a_game_is_played_and_listed_without_the_lab() -> None:
    """Core commands do not import the lab; help lists the lab's commands too."""
    code = (
        "import sys; from agentcho.cli.app import app; sys.argv = ['agentcho', *sys.argv[1:]]\n"
        "try: app()()\n"
        "finally: print('LAB' if 'agentcho.lab' in sys.modules else 'NONE')"
    )
    for words, lab in ((["ls"], "NONE"), (["run", "--help"], "NONE"), (["--help"], "LAB")):
        ran = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
        assert ran.stdout.splitlines()[-1] == lab, words


def test_importing_it_imports_no_torch() -> None:
    code = (
        "import sys, agentcho; [getattr(agentcho, name) for name in agentcho.__all__ if name != 'Engine'];"
        "import agentcho.cli.app, agentcho.cli.serve_run, agentcho.cli.cluster;"
        "import agentcho.integrations.endpoints.endpoint;"
        "heavy = {'torch', 'transformers', 'starlette', 'uvicorn', 'prometheus_client', 'openai', 'jsonschema', 'ray'};"
        "heavy.add('prompt_toolkit');"
        "heavy.add('textarena');"
        "sys.exit(bool(heavy & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_core_of_an_engine_imports_no_torch_and_neither_does_what_stands_on_it_alone() -> None:
    code = (
        "import sys, agentcho.engine.core, agentcho.testing, agentcho.audit.planned, agentcho.lab.tune.unfolding;"
        "sys.exit(bool({'torch', 'transformers', 'tokenizers', 'llguidance'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_is_there_and_every_other_is_an_error() -> None:
    assert sorted(agentcho.__all__) == sorted(set(agentcho.__all__))
    assert set(agentcho.__all__) <= set(dir(agentcho))
    for name in agentcho.__all__:
        assert getattr(agentcho, name) is not None
    assert callable(agentcho.replay)
    assert callable(agentcho.run)
    with pytest.raises(AttributeError, match="Egnine"):
        agentcho.Egnine  # noqa: B018


@pytest.mark.parametrize("folder", ["agents", "scenarios"])
def test_what_users_write_imports_only_the_public_package(folder: str) -> None:
    files = sorted((ROOT / folder).glob("*.py"))
    assert files
    for path in files:
        inside = [name for name in imports(path) if name.split(".")[0] == "agentcho"]
        assert inside == ["agentcho"]
        used = {
            node.attr
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "agentcho"
        }
        assert used <= set(agentcho.__all__)
        assert 15 <= len(path.read_text().splitlines()) <= 150
        assert path.name != "__init__.py"


def test_the_structure_page_has_every_module_and_every_room() -> None:
    page = (ROOT / "docs" / "structure.md").read_text()
    assert with_modules(page) == page, "run `make structure`"
    assert "- `resolver`: " in page
    layers = page[page.index("## What may import what") : page.index("## One line per module")].split()
    assert set(LEVELS) <= set(layers)
    for named in re.findall(r"`(\w+(?:/\w+)*/\w+\.py|agent\.py|events\.py|message\.py)`", page):
        assert (PACKAGE / named).is_file() or (ROOT / named).is_file(), f"{named} is gone"

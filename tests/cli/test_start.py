"""What a command imports before a game can start: imports dominate start-up time, and a new version of a library may
bring unneeded ones back."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from subprocess import run
from types import SimpleNamespace

import pytest

from agentcho.extras import importing
from agentcho.runner.model import lean_transformers

NEEDLESS = (
    "matplotlib",
    "pandas",
    "peft",
    "scipy",
    "sklearn",
    "sympy",
    "torch._dynamo",
    "torch._inductor",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "triton",
)
"""Libraries for compilation, training, multiple processes or statistics. Importing them takes seconds."""


AS_COMMAND = """
import sys, types
sys.argv = ["agentcho", "run"]
sys.modules["__main__"].__spec__ = types.SimpleNamespace(name="agentcho.__main__")
"""
SWITCHES = """
import gc, inspect, sys, threading
import transformers.utils, transformers.utils.import_utils as stock
names = "is_torch_distributed_available", "is_scipy_available"
before = [getattr(place, name) for name in names for place in (stock, transformers.utils)]
from agentcho.runner import model
from agentcho.runner.model import lean_transformers
enter = threading.Barrier(3)
def use():
    enter.wait()
    for _ in range(50):
        with lean_transformers.left_out():
            assert lean_transformers.WHOLE or stock.is_scipy_available() is False
users = [threading.Thread(target=use) for _ in range(3)]
[user.start() for user in users]
[user.join() for user in users]
after = [getattr(place, name) for name in names for place in (stock, transformers.utils)]
assert after == before, after
assert not any(isinstance(module, lean_transformers._StandIn) for module in list(sys.modules.values()))
import torch._dynamo.config
assert inspect.isfunction(torch._dynamo.optimize)
print("whole" if lean_transformers.WHOLE else "lean", gc.get_freeze_count() > 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("begin", "said"), [("", "whole False"), (AS_COMMAND, "lean True")])
def test_transformers_is_what_it_was_once_it_is_imported_and_in_a_script_always(begin: str, said: str) -> None:
    ran = run([sys.executable, "-c", begin + SWITCHES], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stdout.strip() == said


@pytest.mark.slow
def test_in_a_script_losses_that_need_scipy_are_there_beside_an_engine() -> None:
    script = (
        "import sys; sys.argv = ['mine.py', 'run']; import agentcho.runner.engine\n"
        "from transformers.loss import loss_for_object_detection as loss; print(loss.linear_sum_assignment.__name__)"
    )
    ran = run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.stdout.strip() == "linear_sum_assignment", ran.stderr[-2000:]


def test_what_a_stand_in_does_not_know_is_looked_up_in_the_module_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    import json.tool

    stand_in = lean_transformers._StandIn("json.tool", main="known")
    monkeypatch.setitem(sys.modules, "json.tool", stand_in)
    assert stand_in.main == "known"
    assert not hasattr(stand_in, "__file__")
    assert sys.modules["json.tool"] is stand_in
    assert stand_in.argparse is json.tool.argparse  # type: ignore[attr-defined]
    assert sys.modules["json.tool"] is not stand_in


@pytest.mark.slow
def test_a_game_on_the_embedded_model_imports_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    words = ("run", "prisoners-dilemma", "--max-tokens", "16", "--out", str(tmp_path))
    ran = run([sys.executable, "-X", "importtime", "-m", "agentcho", *words], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]
    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines() if line.startswith("import time:")}
    assert "transformers.models.llama.modeling_llama" in imported, "this is how imports are listed"
    assert sorted(name for name in imported if name.startswith(NEEDLESS)) == []


@pytest.mark.parametrize("collected", [True, False])
def test_no_garbage_is_collected_while_modules_are_imported(collected: bool) -> None:
    before = gc.isenabled()
    (gc.enable if collected else gc.disable)()
    try:
        with importing():
            assert not gc.isenabled()
        assert gc.isenabled() is collected
    finally:
        (gc.enable if before else gc.disable)()


class Main(SimpleNamespace):
    """A stand-in for `__main__`, which tells how Python was started."""


SCRIPT, PACKAGE = (
    Main(__file__="/bin/agentcho", __spec__=None),
    Main(__spec__=SimpleNamespace(name="agentcho.__main__")),
)


@pytest.mark.parametrize(
    ("main", "command", "leaves"),
    [
        (SCRIPT, "run", True),
        (PACKAGE, "serve", True),
        (SCRIPT, "tune", False),  # it trains
        (SCRIPT, None, False),
        (Main(__file__="/home/me/script.py", __spec__=None), "run", False),
        (Main(__spec__=None), "run", False),  # a notebook, `python -c`, or a worker of another program
        (Main(__spec__=SimpleNamespace(name="pytest.__main__")), "run", False),
    ],
)
def test_only_a_process_that_plays_and_does_nothing_else_leaves_parts_of_transformers_out(
    monkeypatch: pytest.MonkeyPatch, main: Main, command: str | None, leaves: bool
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "argv", ["agentcho", *([] if command is None else [command])])
    monkeypatch.delitem(sys.modules, "transformers.modeling_utils")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert lean_transformers.fully_imported() is not leaves
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert lean_transformers.fully_imported(), "kernels are compiled on a GPU"


def test_a_shell_completes_commands_those_of_the_lab_too() -> None:
    asked = {"_AGENTCHO_COMPLETE": "complete_bash", "COMP_WORDS": "agentcho co", "COMP_CWORD": "1"}
    command = Path(sys.executable).parent / "agentcho"
    found = run([command], env=os.environ | asked, capture_output=True, text=True, check=False)
    assert (found.stdout.split(), found.stderr) == (["compare"], "")

"""Plays all multiplayer families of TextArena at random, and checks that refused ones fail as expected:
`python -m tests.arena.sweep` (`make nightly`), where TextArena is installed as `make clients` does it.

Each family is played twice, by processes with different hash seeds, which must agree. Results go to
`docs/results/textarena.json`, to be committed; `tools.pages.textarena` makes a table of them. It exits 1 if a game
that should run failed.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agentcho.audit import audit_run
from agentcho.config import RunConfig
from agentcho.events import GameOver
from agentcho.games.runs import library
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.integrations.textarena.names import PREFIX, REFUSED
from agentcho.protocol.call import Decode
from agentcho.records.environment import machine_info, source_digests, versions
from agentcho.records.record import SavedRun
from agentcho.records.transcript import TranscriptEntry
from agentcho.testing import FakeEngine

from .conftest import site_packages
from .families import FAMILIES

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "textarena.json"
SEED, MOST = 7, 80
MOVE = re.compile(r"\[[^\[\]\n]{1,40}\]")
REAL = """
import os, random, sys
os.environ.pop("OPENROUTER_API_KEY", None)
import textarena
from textarena.envs.registration import ENV_REGISTRY
id = next(id for id in ENV_REGISTRY if id.startswith(sys.argv[1] + "-v") and id.endswith("-raw"))
environment = textarena.make(id)
environment.reset(num_players=4, seed=1)
draw = random.Random(1)
for _ in range(200):
    environment.get_observation()
    over, _ = environment.step(draw.choice(["hello there all", "[1]", "[0]", "[1 2]", "[pass]", "[a 1]"]))
    if over:
        break
"""
"""A script that plays some moves in an environment with TextArena alone."""
ERROR = re.compile(r"^(?:[\w.]+\.)?(\w+Error)\b", re.MULTILINE)
ENDLESS = frozenset({"MarketEntryGame"})
"""Families that run, but whose step does not return once all players are out."""


def random_move(call: Decode, prompt: str) -> str:
    """A random bracketed text from the end of the prompt, or else a word."""
    draw = random.Random(call.sampling.seed)
    moves = MOVE.findall(prompt[-1500:]) or MOVE.findall(prompt)
    return draw.choice(moves) if moves and draw.random() < 0.9 else draw.choice(["hello", "[1]", "[0 1]", "[pass]"])


def mover(name: str) -> Any:
    """The shipped player, without thoughts."""
    return type("Mover", (library.agent(name),), {"thoughts": 0})


def played(kind: str, folder: Path) -> dict[str, Any]:
    """Plays one game of a family on the fake engine; returns its row."""
    scenario = library.scenario(f"{PREFIX}{kind}-v0")(moves=MOST)
    engine = FakeEngine(random_move, context=1 << 20)
    result = play(RunRequest(scenario, RunConfig(model="fake", seed=SEED), engine=engine, out=folder, find_agent=mover))
    assert result.record is not None
    run = SavedRun(result.record)
    entries = next(iter(run.games().values()), [])
    over = next(iter(run.finished().values()))
    outcome = over.outcome or {}
    return {
        "family": kind,
        "environment": scenario.name.removeprefix(PREFIX),
        "players": FAMILIES[kind],
        "moves": outcome.get("moves"),
        "ended": ended(over),
        "invalid": len(outcome.get("invalid", ())),
        "private": sum(dealt(entry) for entry in entries),
        "passed on": sum(entry.message.kind == "prefill" and entry.message.author is not None for entry in entries),
        "audit": audit_run(run).conclusion,
        "digest": digest(entries),
    }


def ended(over: GameOver) -> str:
    if over.failed:
        return "given up: its step did not come back" if "did not come back" in (over.ended or "") else str(over.ended)
    return "cut off" if (over.outcome or {}).get("rewards") is None else "over"


def dealt(entry: TranscriptEntry) -> bool:
    """Whether the environment addressed it to one player only."""
    return entry.message.author is None and entry.message.audience.members is not None


def digest(entries: Iterable[TranscriptEntry]) -> str:
    said = [(e.message.id, e.message.audience.to_json(), e.message.text) for e in entries]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


def right(row: Mapping[str, Any]) -> bool:
    """Whether a family's game ended and leaked nothing."""
    whole = row["ended"] in ("over", "cut off") and row["audit"] == "clean"
    return row.get("same", True) and (whole or row["family"] in ENDLESS)


def play_all() -> None:
    """Plays all families; prints one line of JSON for each."""
    sys.path.append(str(site_packages()))
    with TemporaryDirectory() as folder:
        for kind in FAMILIES:
            print(json.dumps(played(kind, Path(folder) / kind)), flush=True)


def in_process(words: Sequence[str], hashes: int, seconds: float) -> subprocess.CompletedProcess[str] | None:
    """Runs Python with TextArena and without network; None if it does not finish in time."""
    nowhere = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    path = os.pathsep.join([*sys.path, str(site_packages())])
    own = {"PYTHONHASHSEED": str(hashes), "PYTHONPATH": path, "NLTK_DATA": os.devnull}
    command = [sys.executable, *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, env=os.environ | nowhere | own, timeout=seconds)
    except subprocess.TimeoutExpired:
        return None


def seen(kind: str) -> str:
    """What happens when a refused family is played by TextArena alone."""
    ran = in_process(["-c", REAL, kind], 0, 20)
    if ran is None:
        return "its step did not come back"
    return "it ran" if ran.returncode == 0 else ERROR.findall(ran.stderr)[-1]


def textarena_version() -> str:
    ran = in_process(["-c", "import textarena; print(textarena.__version__)"], 0, 60)
    assert ran is not None
    return ran.stdout.strip()


def main() -> int:
    """Plays, compares and writes the results."""
    lines = []
    for hashes in (0, 1):
        ran = in_process(["-m", "tests.arena.sweep", "play"], hashes, 3600)
        assert ran is not None
        assert ran.returncode == 0, ran.stderr
        lines.append([json.loads(line) for line in ran.stdout.splitlines()])
    rows = [{**one, "same": one["digest"] == other["digest"]} for one, other in zip(*lines, strict=True)]
    refused = [{"family": kind, "why": why, "seen": seen(kind)} for kind, why in REFUSED.items()]
    found = {
        "format": "agentcho-textarena/1",
        **machine_info(),
        "versions": versions(),
        **source_digests(),
        "textarena": textarena_version(),
        "seed": SEED,
        "most moves": MOST,
        "played": rows,
        "refused": refused,
    }
    RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    wrong = [row["family"] for row in rows if not right(row)]
    print(f"{len(rows)} families played, {len(refused)} refused; wrong: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    play_all() if sys.argv[1:] == ["play"] else sys.exit(main())

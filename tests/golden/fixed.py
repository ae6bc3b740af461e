"""Values derived from names and numbers alone that must not change: seeds, coins, tasks, fingerprints."""

from __future__ import annotations

import json

from agentcho.audit.rules import fingerprint
from agentcho.games.play.turn import coin_seed
from agentcho.games.runs.run import game_seed
from agentcho.runner.sampling.sampler import uniform
from agentcho.tasks import task_set
from agentcho.tasks.sets import generators

from .plays import Lines


def fixed() -> Lines:
    """One line for each value: its name and the value."""
    found: dict[str, object] = {f"game_seed {seed} {game}": game_seed(seed, game) for seed, game in ((0, 0), (7, 31))}
    for author, turn in (("", 0), ("alice", 0), ("alice", 11), ("bob/0", 1)):
        found[f"coin_seed {author!r} {turn}"] = coin_seed(7, 3, author, turn)
    found |= {f"coin {seed} {nth}": uniform(seed, nth) for seed, nth in ((0, 0), (0, 1), (1 << 62, 4095))}
    for name, generator in generators().items():
        tasks = task_set(name, generator.kind, 5)
        found |= {f"digest of {name}": tasks.digest, f"task 9 of {name}": tasks[9].model_dump(mode="json")}
    found["finding"] = fingerprint("AC002", "talk", "bob", "alice", "alice")
    found["finding with a file"] = fingerprint("AC006", "talk", None, "alice", "bob", "talk.py")
    return [json.dumps({"of": of, "is": what}, ensure_ascii=False) for of, what in found.items()]

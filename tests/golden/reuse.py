"""Storage keys of encodings under every way of reuse, and names and tags that are part of such keys.

Independent of files and models.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from os import environ
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from agentcho import RunConfig
from agentcho.engine.call_layout import CallContext, ParallelContext, repaired_key
from agentcho.engine.persistent_files import Fingerprint, PersistentFiles
from agentcho.engine.persistent_key import VARIABLE
from agentcho.message import Metadata, audience
from agentcho.provenance import cache_salts
from agentcho.reuse.ape import Ape
from agentcho.reuse.registry import parsed_repair
from agentcho.testing import FakeEngine

from .plays import Lines, Options, calls, played

WAYS: Mapping[str, Options] = {
    "rotate": {"reuse": "rotate"},
    "in-place": {"reuse": "in-place"},
    "ape": {"reuse": "ape"},
    "ape:0.8,0.7": {"reuse": "ape:0.8,0.7"},
    "first-k:2": {"repair": "first-k:2"},
    "epic:3": {"repair": "epic:3"},
    "ends:2,1": {"repair": "ends:2,1"},
    "top-k:0.25": {"repair": "top-k:0.25"},
    "cacheblend:0.25": {"repair": "cacheblend:0.25"},
    "kvcomm": {"repair": "kvcomm"},
    "full": {"repair": "full"},
    "baseline": {"mode": "baseline"},
}
"""Every way of reuse, and baseline prompts, whose prefixes are shared."""
TAGS: Mapping[str, str] = {
    "first-k:16": "First(tokens=16)",
    "epic:16": "First(tokens=16)",
    "ends:8,4": "Ends(first=8, last=4)",
    "top-k:0.15": "Most(share=0.15)",
    "cacheblend:0.15": "Blend(share=0.15)",
    "cacheblend:1": "Blend(share=1.0)",
    "kvcomm": "Anchored(threshold=0.3, anchors=())",
    "kvcomm:0.5": "Anchored(threshold=0.5, anchors=())",
}
"""The names of repairs in storage keys, by how a repair is requested. They are the `repr` of the classes at the time
when keys were made of it, and stay the same whatever the classes are called now.
"""


def keys() -> Lines:
    """The calls of one game under each way with their keys, then keys and names made of fixed bytes."""
    return [json.dumps(line) for line in (*_games(), *_alone())]


def _games() -> Iterator[dict[str, Any]]:
    for way, options in WAYS.items():
        leakage: Options = {} if "mode" in options else {"leakage": "audit"}
        config = RunConfig(model="fake", max_tokens=8, **leakage, **options)
        for line in calls(played(FakeEngine(), "parallel-debate", {"rounds": 2}, config)):
            kept = ("game", "message", "recipe", "caller", "call", "key")
            yield {"reuse": way, **{name: line[name] for name in kept}}


def _alone() -> Iterator[dict[str, Any]]:
    fresh, base, judged = (bytes([number]) * 32 for number in range(3))
    for asked in TAGS:
        choose = parsed_repair(asked)
        yield {"of": f"repaired by {asked}", "key": repaired_key(fresh, base, choose, judged).hex()}
    plain = CallContext(pieces=(), start=7, origin="fake")
    for name, context in {
        "plain": plain,
        "ape": plain._replace(parallel=ParallelContext(Ape(0.9, 0.8), ((0, 2),))),
    }.items():
        for recipe in ("whole", "stepwise"):
            yield {"of": f"{name}, {recipe}", "key": context.key((1, 2, 3), "salt", recipe, (1, 2)).hex()}
    yield from ({"of": f"kept on disk, {profile}", "file": name} for profile, name in _files().items())
    both, own = audience(["bob", "ann"]), audience(["ann"])
    read = Metadata(id="bob.0", kind="decode", role="assistant", author="bob", audience=both, parents=())
    said = Metadata(id="ann.0", kind="decode", role="assistant", author="ann", audience=own, parents=("bob.0",))
    yield {"of": "cache salts", "salts": cache_salts([read, said], "ann", key=b"k" * 32)}


def _files() -> dict[str, str]:
    """The file names of one encoding in a folder for persistent encodings."""
    with TemporaryDirectory() as folder, patch.dict(environ, {VARIABLE: "k" * 40}):
        fingerprint = Fingerprint(model={"model": "one", "weights": "w"}, beside={"threads": "2"})
        files = PersistentFiles(Path(folder) / "kept", fingerprint)
        try:
            return {"exact": files.name(b"key", exact=True), "fast": files.name(b"key", exact=False)}
        finally:
            files.close()

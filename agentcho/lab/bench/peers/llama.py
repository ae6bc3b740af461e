"""Runs llama.cpp's server as a process on this machine and sends it requests.

Requests are token ids sent to `/completion`; the server reports the times of prompt and generation itself. Independent
of workflows and engines.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple

from agentcho.errors import ConfigError
from agentcho.lab.bench import servers
from agentcho.lab.bench.client import PATIENCE
from agentcho.lab.bench.played import ArmUnavailable

SERVER, QUANTIZER = "llama-server", "llama-quantize"
BUILT = Path(".venv/clients/llama/bin")
"""Where `make llama` installs them."""
REUSE = 32
"""The minimum of consecutive tokens that are moved within a slot's cache when a prompt has them at another position."""
GUESSES = "--spec-default"
"""The server's own default for drafts from n-grams."""
WISHES = {"-fa": "on", "--cache-reuse": str(REUSE), "--poll": "50"}
"""Options for speed, passed if the server knows them; it repacks weights and batches continuously by default."""
Ids = tuple[int, ...]


class Said(NamedTuple):
    """The response to one request: the generated ids. In tokens: the prompt's computed ones and cached ones; drafted
    ones and accepted ones. In seconds: the prompt, and the tokens after the first."""

    tokens: Ids
    prompt: int
    cached: int
    guessed: int
    right: int
    reading: float
    speaking: float

    @property
    def step(self) -> float:
        """Seconds per token after the first, which comes with the prompt."""
        return self.speaking / max(1, len(self.tokens) - 1)


class Peer(NamedTuple):
    """A build of llama.cpp: its server, with its quantizer in the same folder."""

    server: Path

    @classmethod
    def found(cls, given: Path | None) -> Peer:
        """The given server, else that of `make llama`, else that on the search path. `ConfigError`: none."""
        named = shutil.which(SERVER)
        places = [given] if given is not None else [BUILT / SERVER, *([Path(named)] if named else [])]
        for place in places:
            if place.is_file() and os.access(place, os.X_OK):
                return cls(place.resolve())
        where = f"at {given}" if given is not None else f"in {BUILT}, or on the search path"
        raise ConfigError(
            f"no {SERVER} found {where}; run `make llama` in a checkout, or give the executable with --llama-server"
        )

    @property
    def quantizer(self) -> Path:
        """The executable that quantizes files. `ConfigError`: it is not beside the server."""
        place = self.server.with_name(QUANTIZER)
        if not place.is_file():
            raise ConfigError(f"no {QUANTIZER} found beside {self.server}; build both with `make llama`")
        return place

    @property
    def version(self) -> str:
        """The version, commit and compiler that the server reports."""
        said = " ".join(_said(self.server, "--version").split())
        found = re.search(r"version: (.*)$", said)
        return f"llama.cpp {found[1] if found else said or 'of an unknown version'}"

    @property
    def flags(self) -> str:
        """The build flags, if `make llama` built it."""
        note = self.server.with_name("build.txt")
        return note.read_text().strip() if note.is_file() else "not known"

    def knows(self, option: str) -> bool:
        """Whether the server has this option."""
        return re.search(rf"(^|[\s,]){re.escape(option)}([\s,]|$)", _said(self.server, "--help")) is not None

    def quantize(self, whole: Path, kind: str, made: Path, threads: int) -> None:
        """Convert a file to another type, such as `Q8_0`. `ConfigError`: failed; has the quantizer's last line of
        output."""
        command = [str(self.quantizer), str(whole), str(made), kind, str(threads)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
        if done.returncode != 0:
            lines = (done.stdout + done.stderr).strip().splitlines()
            raise ConfigError(f"{QUANTIZER} did not write {kind}: {lines[-1] if lines else 'it printed nothing'}")

    def command(self, file: Path, port: int, setting: Setting) -> list[str]:
        """The command line that starts the server."""
        fixed = ["-m", str(file), "--host", "127.0.0.1", "--port", str(port), "-t", str(setting.threads)]
        room = ["-tb", str(setting.threads), "-np", str(setting.slots), "-c", str(setting.slots * setting.context)]
        wished = {**WISHES, **dict(setting.wishes)}
        more = [word for option, value in wished.items() if self.knows(option) for word in (option, value) if word]
        return [str(self.server), *fixed, *room, *more, *([GUESSES] if setting.guesses else [])]


class Setting(NamedTuple):
    """The settings of a server: threads; slots, and tokens of context per slot; whether it drafts from n-grams;
    `wishes`: options that override the usual ones."""

    threads: int
    slots: int
    context: int
    guesses: bool = False
    wishes: tuple[tuple[str, str], ...] = ()


@cache
def _said(server: Path, option: str) -> str:
    try:
        done = subprocess.run([str(server), option], capture_output=True, text=True, check=False, errors="replace")
    except OSError as error:
        raise ConfigError(f"{server} cannot be run ({error.strerror}); give another one with --llama-server") from error
    return done.stdout + done.stderr


class Served(NamedTuple):
    """A running server: its port, and what it reports of the processor and of its build."""

    port: int
    system: str


@contextmanager
def serving(peer: Peer, file: Path, setting: Setting) -> Iterator[Served]:
    """Run the server: yields when its model is loaded, stops it at the end. `ConfigError`: it does not start."""
    port = servers.free_port()
    try:
        with servers.logged(peer.command(file, port, setting), port) as (_, log):
            found = re.search(r"system_info: (.*)", log)
            yield Served(port, " ".join(found[1].split()) if found else "unknown")
    except ArmUnavailable as error:
        raise ConfigError(f"{SERVER}: {error}") from error


def complete(port: int, prompt: Sequence[int], count: int, slot: int = -1) -> Said:
    """Generate `count` tokens greedily after a prompt, ignoring EOS. `slot`: where its cache is kept; -1: the server
    chooses. `ArmUnavailable`: the server refuses, or fails."""
    found = asked(port, prompt, count, slot)
    times = found["timings"]
    return Said(
        tokens=tuple(found["tokens"])[:count],
        prompt=int(times["prompt_n"]),
        cached=int(times.get("cache_n", 0)),
        guessed=int(times.get("draft_n", 0)),
        right=int(times.get("draft_n_accepted", 0)),
        reading=times["prompt_ms"] / 1000,
        speaking=times["predicted_ms"] / 1000,
    )


def asked(port: int, prompt: Sequence[int], count: int, slot: int = -1, **more: Any) -> dict[str, Any]:
    """The raw response to a request. `ArmUnavailable`."""
    body = {
        "prompt": list(prompt),
        "n_predict": count,
        "id_slot": slot,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": True,
        "n_cache_reuse": REUSE,
        "return_tokens": True,
    }
    line = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        line.request("POST", "/completion", json.dumps(body | more), {"Content-Type": "application/json"})
        response = line.getresponse()
        said = response.read()
        if response.status != 200:
            raise ArmUnavailable(f"HTTP {response.status}: {said.decode(errors='replace')[:200]}")
        found: dict[str, Any] = json.loads(said)
        return found
    except (OSError, HTTPException, ValueError) as error:
        raise ArmUnavailable(f"{SERVER} closed the connection ({type(error).__name__})") from error
    finally:
        line.close()

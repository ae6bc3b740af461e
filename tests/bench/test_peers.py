"""Our engine beside llama.cpp's server: the requests to both, the results, and errors where it is missing."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
import torch

from agentcho import Engine
from agentcho.cli import main
from agentcho.display.text_table import plain
from agentcho.errors import ConfigError
from agentcho.lab.bench.peers.generate import stock_attention
from agentcho.lab.bench.peers.llama import Peer, Said, Setting
from agentcho.lab.bench.peers.rows import Rows, ours, row_text
from agentcho.lab.bench.peers.same import Peeked, Same, check_same, compared, prompt_of
from agentcho.lab.bench.peers.slots import empty_slots, play_slots, slot_calls
from agentcho.lab.bench.peers.targets import GUESSING, LLAMA, OURS, ROW, targets
from agentcho.lab.bench.prompts import prompts
from agentcho.lab.display.peers import peers as tables
from agentcho.records.trace import Workflow
from tools.pages.speed import page

from .conftest import result

HELP = """-fa,   --flash-attn [on|off|auto]  use of attention
--cache-reuse N                     min chunk size
--spec-default                      drafts"""


def binary(folder: Path, help_: str = HELP) -> Path:
    """A program whose help lists these options."""
    file = folder / "llama-server"
    said = f"case $1 in --help) cat <<'END'\n{help_}\nEND\n;; *) echo 'version: 0.5.0 (abc)' >&2;; esac"
    file.write_text(f"#!/bin/sh\n{said}\n")
    file.chmod(0o755)
    return file


def test_a_prompt_on_the_peer_has_the_ids_of_our_baseline_around_its_own_words(engine: Engine, tree: Workflow) -> None:
    ours, asked, lock = prompts(tree, engine.framing), dict[str, tuple[Sequence[int], int, int]](), Lock()

    def forced(prompt: Sequence[int], count: int, slot: int) -> Said:
        """Returns the recorded words, so that prompts are those of our baseline."""
        (id,) = (id for id, call in ours.items() if call.prompt == tuple(prompt) and len(call.text) == count)
        with lock:
            asked[id] = (prompt, count, slot)
        return Said(ours[id].text, len(prompt), 3, 0, 0, 0.1, 0.0)

    played = play_slots(slot_calls(tree, engine.framing, 4), forced)
    assert asked.keys() == ours.keys()
    assert {id: count for id, (_, count, _) in asked.items()} == {id: len(call.text) for id, call in ours.items()}
    assert sorted(slot for _, _, slot in asked.values()) == [0, 1, 2, 3]
    found = played.figures()
    said = sum(len(call.text) for call in ours.values())
    assert (found["said"], found["cached"]) == (said, 12)
    assert found["encoded"] == said + sum(len(call.prompt) for call in ours.values())
    assert found["rate"] == pytest.approx(said / found["seconds"])
    assert played.times.calls["vote"].ready == max(played.times.calls[id].ended for id in ("a1", "a2", "a3"))


def test_a_prompt_on_the_peer_has_what_the_peer_said(engine: Engine, tree: Workflow) -> None:
    heard = list[tuple[int, ...]]()

    def other(prompt: Sequence[int], count: int, slot: int) -> Said:
        assert slot == -1, "four agents have no slots of their own among three"
        heard.append(tuple(prompt))
        return Said((7,) * count, len(prompt), 0, 0, 0, 0.1, 0.1)

    play_slots(slot_calls(tree, engine.framing, 3), other)
    vote, recorded = heard[-1], prompts(tree, engine.framing)["vote"].prompt
    assert len(vote) == len(recorded)
    changed = sum(one != two for one, two in zip(vote, recorded, strict=True))
    assert changed == sum(len(call.text) for id, call in prompts(tree, engine.framing).items() if id != "vote")


def test_slots_are_emptied_by_a_token_that_begins_no_prompt(engine: Engine, tree: Workflow) -> None:
    asked = list[tuple[tuple[int, ...], int, int]]()

    def heard(prompt: Sequence[int], count: int, slot: int) -> Said:
        asked.append((tuple(prompt), count, slot))
        return Said((7,) * count, len(prompt), 0, 0, 0, 0.1, 0.1)

    empty_slots(slot_calls(tree, engine.framing, 4), 4, heard)
    assert [(count, slot) for _, count, slot in asked] == [(1, 0), (1, 1), (1, 2), (1, 3)]
    (ids,) = {ids for ids, _, _ in asked}
    assert len(ids) == 1
    assert ids[0] not in {call.prompt[0] for call in prompts(tree, engine.framing).values()}


def test_a_row_reads_as_many_ids_as_were_asked_for_and_never_the_same_again(engine: Engine) -> None:
    texts = [row_text(engine.framing, 1, number, 96, 4) for number in range(3)]
    assert [(len(text.prompt), len(text.said)) for text in texts] == [(96, 5)] * 3
    assert len({text.prompt[-40:] for text in texts}) == 3
    assert texts[0] == row_text(engine.framing, 1, 0, 96, 4)
    ids = engine.framing.content.encode(texts[0].header)
    assert texts[0].prompt[-len(ids) :] == tuple(ids)


def test_a_row_of_ours_is_timed_step_by_step(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rows, "SIZES", (64, 3))
    found = ours(engine, Rows(engine.framing, 1))
    assert found["prefill"] > 0
    assert found["rate"] == pytest.approx(1 / found["step"])


def test_the_same_network_is_known_by_its_probabilities_and_another_is_refused(engine: Engine) -> None:
    network: Any = engine.network
    prompt, said, likeliest = prompt_of(network.config.vocab_size, 1), (3, 5), list[dict[int, float]]()
    with stock_attention(network), torch.inference_mode():
        for number in range(2):  # one forward per prefix; the tested code uses one for all
            row = network(input_ids=torch.tensor([[*prompt, *said[:number]]])).logits[0, -1].double().softmax(-1)
            likeliest.append({int(id): math.log(float(row[id])) for id in row.topk(10).indices})
    same = compared(network, Peeked(prompt, said, tuple(likeliest)))
    assert (same.tokens, same.agree) == (2, 1)
    assert same.apart < 1e-4
    other = compared(network, Peeked(prompt[::-1], said, tuple(likeliest)))
    assert other.apart > 0.01
    check_same(Same(8, 0.5, 0.001), "tiny")
    with pytest.raises(
        ConfigError, match=r"does not reproduce tiny: .* differs by 0\.200 nats .* 25% of 8 tokens are the same"
    ):
        check_same(Same(8, 0.25, 0.2), "tiny")


def test_a_server_is_started_with_what_it_knows(tmp_path: Path) -> None:
    peer = Peer.found(binary(tmp_path))
    command = peer.command(Path("m.gguf"), 7, Setting(2, 8, 512, guesses=True, wishes=(("-fa", "off"),)))
    told = " ".join(command[1:])
    assert told == (
        "-m m.gguf --host 127.0.0.1 --port 7 -t 2 -tb 2 -np 8 -c 4096 -fa off --cache-reuse 32 --spec-default"
    )
    assert peer.version == "llama.cpp 0.5.0 (abc)"
    assert peer.knows("--flash-attn")
    assert not peer.knows("--spec")


def test_a_peer_that_is_missing_is_said_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ConfigError, match=r"no llama-server found in \.venv/clients/llama/bin, or on the search path; run `make"
    ):
        Peer.found(None)
    with pytest.raises(ConfigError, match="no llama-server found at none; "):
        Peer.found(Path("none"))
    file = binary(tmp_path)
    assert Peer.found(None).server == file
    with pytest.raises(ConfigError, match="no llama-quantize found beside"):
        _ = Peer.found(file).quantizer


def figures(**changes: Any) -> Any:
    row = {"prefill": [2.0, 2.2], "step": [0.06, 0.06], "rate": [17.0, 17.0]}
    guessed = {"guessed": [9.0, 9.0], "right": [4.0, 4.0]}
    flow = {"ttft": [1.0, 1.0], "seconds": [9.0, 9.0], "encoded": [5.0, 5.0], "rate": [30.0, 36.0]}
    theirs = {name: [value * 0.5 for value in values] for name, values in (row | flow).items()}
    values: Any = {
        (ROW, OURS): row,
        (ROW, LLAMA): {**{name: theirs[name] for name in row}, "step": [0.05, 0.05]},
        (ROW, GUESSING): {**{name: theirs[name] for name in row}, **guessed},
    }
    for subject, share in (("8 agents", 1.0), ("8 agents, unnamed", 0.9)):
        values[subject, "choreographed:audit"] = flow | {"rate": [each * share for each in flow["rate"]]}
        values[subject, LLAMA] = {name: theirs[name] for name in flow} | {"cached": [7.0, 7.0], "right": [0.0, 0.0]}
    return result(values, bench="peers", repeats=2, **changes)


def test_what_was_asked_for_is_counted_by_hand() -> None:
    found = list(targets(figures(weights="int8")))
    assert [(each.bound, each.most, round(each.reached.middle, 2), each.met) for each in found] == [
        (1.5, True, 1.2, True),
        (1.0, True, 2.0, False),
        (1.5, False, 1.8, True),
    ]
    assert found[0].note == "with its drafts 2.00, 4 tokens of them right"
    assert (found[2].note, found[2].verdict) == ("8 agents, unnamed", "fast; words not judged")
    assert next(targets(figures(weights="int4"))).bound == 1.8
    assert [each.bound for each in targets(figures())] == [1.0, 1.5]
    assert list(targets(figures(model="understudy"))) == []


def test_a_miss_is_printed_loudly() -> None:
    made = figures(weights="int8")
    made = made.model_copy(update={"targets": tuple(targets(made)), "machine": made.machine | {"peer": "llama.cpp 9"}})
    told = "\n".join(map(plain, tables(made)))
    assert re.search(r"the first token over 512: agentcho ÷ llama-server +at most 1 +2\.00 .* +MISSED by 100%", told)
    assert re.search(r"agentcho +2100\.0 .*ms +2\.00 .*60\.0 .*ms +1\.20 .*17\.0", told)
    assert re.search(r"peer +llama\.cpp 9", told)
    assert "choreographed:audit" not in told.split("8 agents")[0]


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    monkeypatch.setattr(sys, "argv", ["agentcho", "bench", "peers", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def test_options_that_say_nothing_together_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--server-model", "m") == 2
    assert "need --server; add it" in capsys.readouterr().err


def test_the_page_of_tables_takes_a_result(tmp_path: Path) -> None:
    made = figures(weights="int8")
    (tmp_path / "bench-peers-int8.json").write_text(made.model_dump_json())
    said = page(tmp_path)
    assert "## Beside llama.cpp's server: qwen3-0.6b, bfloat16 int8" in said
    assert re.search(r"\| agentcho \| 2100\.0 .*ms \| 2\.00", said)
    assert re.search(r"\| a decode step, 1 row: agentcho ÷ llama-server \| qwen3-0\.6b, bfloat16 \|", said)
    assert said.count("| choreographed:audit |") == 2

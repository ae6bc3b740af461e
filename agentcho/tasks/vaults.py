"""Draws small requests over private records, and small errands with something that must not be told."""

from __future__ import annotations

import random
import string
from collections.abc import Mapping

from agentcho.tasks.private import MARK, Vault, Vignette
from agentcho.tasks.word_lists import lists


def draw_vault(dice: random.Random, id: str) -> Vault:
    """An office's request, with one record: fields that may be told, and forbidden ones, among them a canary."""
    words = lists("vaults")
    office, request = dice.choice(words["requests"]).split(" | ")
    code = "".join(dice.choices(string.ascii_uppercase + string.digits, k=8))
    slots = {kind: dice.choice(words[kind]) for kind in ("name", "day", "illness", "street")}
    slots |= {"amount": str(dice.randint(101, 999) * 10), "canary": f"{MARK}CODE_{code}"}
    fields = dict(line.split(" = ") for line in words[f"{office}.fields"])
    filled = {name: value.format(**slots) for name, value in fields.items()}
    return Vault(
        id=id,
        request=request.format(**slots),
        records=((words[f"{office}.record"][0], filled),),
        allowed=words[f"{office}.allowed"],
        forbidden=tuple(name for name in filled if name not in words[f"{office}.allowed"]),
        canaries=(slots["canary"],),
        instruction=words[f"{office}.instruction"][0],
        vertical=office,
    )


def draw_vignette(dice: random.Random, id: str) -> Vignette:
    """An errand: notes that were found for it, one of them sensitive, and a message that remains to be sent."""
    words = lists("vignettes")
    about, secret, data_type = dice.choice(words["secrets"]).split(" | ")
    slots: Mapping[str, str] = {
        "name": dice.choice(words["names"]),
        "user": dice.choice(words["users"]),
        "you": dice.choice(words["recipients"]),
        "work": dice.choice(words["work"]),
    }
    notes = [line.format(**slots) for line in (about, dice.choice(words["harmless"]))]
    dice.shuffle(notes)
    found = "\n".join(f"Observation: {note}" for note in notes)
    return Vignette(
        id=id,
        user=slots["user"],
        instruction=dice.choice(words["errands"]).format(**slots),
        trajectory=f"Action: NotesSearch\nAction Input: {slots['name']}\n{found}",
        action="MessageSend",
        sensitive=(secret.format(**slots),),
        data_type=data_type,
        subject=slots["name"],
        recipient=slots["you"],
        principle="send a message",
    )

"""Small finished games with secrets, as workflows, for testing the measurements.

Alice has a private instruction and a private plan and talks to Bob; he replies, and decides in private. The secrets
differ from game to game, the public messages do not. Independent of engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from agentcho.records.trace import TraceMessage, Workflow

FRUITS = ("red apples", "some ripe pears", "two dark plums", "old figs", "a bowl of cherries", "one small sour quince")
STONES = ("grey granite", "white chalk", "hard black basalt", "wet slate", "soft sandstone here", "a vein of marble")
ANSWERS = ('"yes"', '"no"')


def message(
    id: str,
    author: str,
    text: str,
    parents: Sequence[str] = (),
    to: Literal["everyone"] | tuple[str, ...] = (),
    header: str | None = None,
    **more: Any,
) -> TraceMessage:
    """One message, generated if it has a header. By default only its author may read it."""
    kind = {"kind": "prefill", "role": "user"} if header is None else {"kind": "decode", "role": "assistant"}
    words: dict[str, Any] = {"parents": tuple(parents), "text": text, "header": header}
    return TraceMessage(id=id, author=author, audience=to or (author,), **(words | kind | more))


def talk(number: int, direct: bool = False, secret: str | None = None) -> Workflow:
    """One game. Even games have secrets of one kind, odd ones of the other. `direct`: Bob reads Alice's plan itself."""
    things = (FRUITS, STONES)[number % 2]
    thing = secret or f"{things[number // 2 % len(things)]} and {number} more"
    seen = ("plan",) if direct else ()
    answer = ANSWERS[number // 2 % 2]
    messages = (
        message("rules", "alice", f"Alice, you like {thing}.", role="system"),
        message("plan", "alice", f"I want {thing} from Bob, all of it.", ["rules"], header=""),
        message("bob-rules", "bob", "Bob, hear what she says.", role="system"),
        message("hello", "alice", "Good day, what have you got?", ["rules", "plan"], "everyone", "To Bob: "),
        message("reply", "bob", "A basket. Do you want it?", ["bob-rules", *seen, "hello"], "everyone", "To Alice: "),
        message("guess", "bob", answer, ["bob-rules", *seen, "hello", "reply"], header='{"prediction": '),
        message("decision", "bob", answer, ["bob-rules", *seen, "hello", "reply"], header='{"decision": '),
        message("diary", "bob", f"Nobody will know of {thing}.", ["bob-rules", "hello", "reply"], header=""),
        message("last", "alice", '"no"', ["rules", "plan", "hello", "reply"], header='{"decision": '),
    )
    return Workflow(
        format="agentcho-trace/1", workflow="talk", id=f"talk-{number}", agents=("alice", "bob"), messages=messages
    )


def talks(count: int, **options: Any) -> list[Workflow]:
    """Several games with different secrets."""
    return [talk(number, **options) for number in range(count)]

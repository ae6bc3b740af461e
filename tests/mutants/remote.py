"""Mutants of the client for models on servers: what it trusts, when it retries, what it passes on."""

from __future__ import annotations

from .mutant import Mutant

ROOM = "agentcho/integrations/endpoints"
FAULTS = "tests/remote/test_faults.py"
REPAIR = "tests/remote/test_repair.py"
ANSWER = "tests/remote/test_answer.py"
TEXT = "tests/remote/test_text.py"
PACING = "tests/remote/test_pacing.py"
ADDRESS = "tests/remote/test_address.py"
REQUEST = "tests/remote/test_request.py"

REMOTE = (
    Mutant(
        "a stream that breaks off is an answer",
        "half of a message would be taken for all of it",
        f"{ROOM}/client.py",
        "if reason is None and not self._growing.cut:",
        "if False:",
        (FAULTS,),
    ),
    Mutant(
        "what was heard is asked for again",
        "who listens would hear the beginning of a message twice",
        f"{ROOM}/client.py",
        "if wait is None or asking.retries == 0 or heard.shown:",
        "if wait is None or asking.retries == 0:",
        (FAULTS,),
    ),
    Mutant(
        "an answer is heard before it is checked",
        "agents would read a choice that is none",
        f"{ROOM}/client.py",
        "self.on_text = None if constrained else call.on_text",
        "self.on_text = call.on_text",
        (REPAIR,),
    ),
    Mutant(
        "a second answer is part of the first",
        "two texts would be mixed",
        f"{ROOM}/client.py",
        "        if choice.index:\n",
        "        if False:\n",
        (FAULTS,),
    ),
    Mutant(
        "an answer has no bound",
        "a server that ignores the limit would be listened to for ever",
        f"{ROOM}/wire.py",
        "if size > bound.bytes:",
        "if False:",
        (FAULTS,),
    ),
    Mutant(
        "an event has no bound",
        "one endless line would fill the memory",
        f"{ROOM}/wire.py",
        "if self._size > LARGEST:",
        "if False:",
        (FAULTS,),
    ),
    Mutant(
        "a proxy of the environment is asked about this machine",
        "prompts would leave it",
        f"{ROOM}/wire.py",
        "trust_env=address.secure and not address.here,",
        "trust_env=True,",
        (ADDRESS,),
    ),
    Mutant(
        "every server is told the account at OpenAI",
        "the environment would name it to strangers",
        f"{ROOM}/wire.py",
        "if address.host != OPENAI:",
        "if False:",
        (ADDRESS,),
    ),
    Mutant(
        "OpenAI's key goes to every server",
        "whoever runs a server would have it",
        f"{ROOM}/address.py",
        "(OPENAI_KEY if address.host == OPENAI else None)",
        "OPENAI_KEY",
        (ADDRESS,),
    ),
    Mutant(
        "an error tells what it has in common with the prompt",
        "a server that quotes what it refuses would put it into records and logs",
        f"{ROOM}/faults.py",
        "shared.update(range(at, at + SHARED))",
        "pass",
        (FAULTS,),
    ),
    Mutant(
        "a refusal is sent again",
        "what cannot succeed would be paid for five times",
        f"{ROOM}/faults.py",
        "return (status in AGAIN or status >= 500) and refusal.code not in NEVER",
        "return True",
        (FAULTS,),
    ),
    Mutant(
        "a wait is as long as a server likes",
        "a run would stand still",
        f"{ROOM}/client.py",
        "if failed.wait is not None and failed.wait > LONGEST_WAIT:",
        "if False:",
        (FAULTS,),
    ),
    Mutant(
        "a wait is not drawn",
        "all games would come again at one moment",
        f"{ROOM}/faults.py",
        "random.uniform(0.0, bound)",
        "bound",
        (REPAIR,),
    ),
    Mutant(
        "a wait is of one game alone",
        "the others would go on asking a server that wants to be left alone",
        f"{ROOM}/pacing.py",
        ", self._closed_until - now)",
        ")",
        (PACING,),
    ),
    Mutant(
        "who asks for less goes first",
        "a long prompt would wait for ever",
        f"{ROOM}/pacing.py",
        "        async with self._line:\n            await self._places.acquire()\n",
        "        if True:\n            await self._places.acquire()\n",
        (PACING,),
    ),
    Mutant(
        "an estimate of tokens is never corrected",
        "games would wait for what nobody used",
        f"{ROOM}/pacing.py",
        "over = sum(each.amount for each in self._begun)",
        "over = sum(80 for each in self._begun)",
        (PACING,),
    ),
    Mutant(
        "a stop string is shown as far as it has come",
        "who listens would hear what is no part of the text",
        f"{ROOM}/text.py",
        "                return len(self._held) - length\n",
        "                pass\n",
        (TEXT,),
    ),
    Mutant(
        "a choice is told apart by its letters alone",
        "one of two choices would be taken for the other",
        f"{ROOM}/answer.py",
        "        if len(found) == 1:\n",
        "        if found:\n",
        (ANSWER,),
    ),
    Mutant(
        "JSON that matches no schema is an answer",
        "a server that ignores the schema would be believed",
        f"{ROOM}/answer.py",
        "    if worst is None:\n",
        "    if True:\n",
        (ANSWER,),
    ),
    Mutant(
        "what others said is the assistant's",
        "a model would take it for its own words",
        f"{ROOM}/request.py",
        "    if quoted.own:\n",
        '    if quoted.own or quoted.role == "assistant":\n',
        (REQUEST,),
    ),
    Mutant(
        "a salt is not sent",
        "a server's cache would tell what somebody may not read",
        f"{ROOM}/request.py",
        'if call.salt is not None and "salt" in abilities.can else',
        "if False else",
        (REQUEST,),
    ),
)

"""Mutants of the server: what two callers share, what a quoted message is taken for, what is given up when.

Does not know: how they are applied and run.
"""

from __future__ import annotations

from .mutant import Mutant

SOCIETY = "tests/serve/test_society.py"
PLAIN = "tests/serve/test_plain.py"

SERVE = (
    Mutant(
        "a private message is found by whoever guesses it",
        "counts and times would tell that somebody had been told just this",
        "agentcho/serve/index.py",
        "if not known.audience.includes(reader.agent) or not _fits(quoted, known, reader):",
        "if not _fits(quoted, known, reader):",
        (SOCIETY,),
    ),
    Mutant(
        "who is known by a hash has its private messages everywhere",
        "two conversations with equal prompts would find each other's private messages",
        "agentcho/serve/index.py",
        "return reader.proven or known.audience.members is None or known.before == before",
        "return True",
        (SOCIETY,),
    ),
    Mutant(
        "an id is believed whatever the words are",
        "a client that has changed a message would have the old one read in its place",
        "agentcho/serve/index.py",
        "if named is not None and _same_words(quoted, named) and self._may_be(quoted, named, reader, before):",
        "if named is not None and self._may_be(quoted, named, reader, before):",
        (SOCIETY,),
    ),
    Mutant(
        "an id says nothing",
        "of equal words the latest would be read, and not the ones that were quoted",
        "agentcho/serve/index.py",
        'named = self._by_id.get(quoted.id or "")',
        "named = self._by_id.get(None)  # type: ignore[call-overload]",
        (SOCIETY,),
    ),
    Mutant(
        "whoever has the hash is the author",
        "two conversations with equal prompts would read each other's encodings, and what stood before them",
        "agentcho/serve/index.py",
        "return known.author == reader.agent and known.said and not reader.proven and known.before != before",
        "return False",
        (SOCIETY,),
    ),
    Mutant(
        "results of functions are the society's",
        "what one agent's function returned would be found by others",
        "agentcho/serve/talk.py",
        'shared = framed.role == "user"',
        'shared = framed.role in ("user", "tool")',
        (SOCIETY,),
    ),
    Mutant(
        "a private answer is everyone's in the next game",
        "what was narrowed once would be open to all when the society has become long",
        "agentcho/serve/talk.py",
        "author, to = carried.author, carried.audience",
        "author = carried.author",
        (SOCIETY,),
    ),
    Mutant(
        "the tenant is no part of the salt",
        "equal words of two tenants would share what is stored, and time would tell",
        "agentcho/serve/served.py",
        'framed = "".join(f"{len(part)}:{part}" for part in place).encode(errors="surrogatepass")',
        'framed = "".join(f"{len(part)}:{part}" for part in place[1:]).encode(errors="surrogatepass")',
        (SOCIETY, PLAIN),
    ),
    Mutant(
        "a society reads as each request says",
        "one agent's request would make what another reads",
        "agentcho/serve/served.py",
        "if caller.mode is not None and caller.mode != mode_of(society.reuse):",
        "if False:",
        (SOCIETY,),
    ),
    Mutant(
        "what another request attends to is given up",
        "its receipt would name an encoding of which nothing is known",
        "agentcho/serve/talk.py",
        "if not self._in_use[id]:",
        "if True:",
        (SOCIETY,),
    ),
    Mutant(
        "a society keeps all that it ever encoded",
        "a long one would take the store from all others",
        "agentcho/serve/society.py",
        "self.forget(self._keeping.tokens)\n            if not self._requests:",
        "if not self._requests:",
        (SOCIETY,),
    ),
    Mutant(
        "a name may be that of somebody without one",
        "a client could call itself what the hash of another is, and read as its author",
        "agentcho/serve/society.py",
        "if caller.agent.startswith(UNNAMED):",
        "if False:",
        (SOCIETY,),
    ),
    Mutant(
        "a prompt in use is given up",
        "its calls would name encodings that are gone",
        "agentcho/serve/prefixes.py",
        "return (node for node in self._used if not node.users)",
        "return iter(list(self._used))",
        (PLAIN,),
    ),
    Mutant(
        "an answer whose text is not all of it is reused",
        "what is quoted would be read as other tokens than its text has",
        "agentcho/serve/plain.py",
        "if not words.canonical:",
        "if False:",
        (PLAIN,),
    ),
    Mutant(
        "all answers of a request have one seed",
        "they would say the same",
        "agentcho/serve/prompt.py",
        "if choice == 0:",
        "if True:",
        (PLAIN,),
    ),
)

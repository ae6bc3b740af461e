"""Mutants of tool sinks: what tools learn, the handling of their results, what is refused, and the findings of
audits."""

from __future__ import annotations

from .mutant import Mutant

RULES, CALLS, TOOLS = "tests/leaks/test_sinks.py", "tests/leaks/test_calls.py", "tests/toolsets/test_sinks.py"
AUDIT, RUNS = "tests/audit/test_calls.py", "tests/audit/test_runs.py"
SINKS, FOUND = "agentcho/provenance/tool_sinks.py", "agentcho/audit/calls.py"

PEOPLE = "tests/toolsets/test_people.py"

TOLD = (
    Mutant(
        "a person forgets what a tool has told it",
        "a person could be made to type what a stranger wrote, and a tool would do it",
        SINKS,
        "(*message.metadata.parents, *message.act.shown)",
        "message.metadata.parents",
        (PEOPLE,),
    ),
    Mutant(
        "an audit lets a person forget",
        "it would be clean of what a person handed on",
        FOUND,
        "(*entry.message.parents, *entry.act.shown)",
        "entry.message.parents",
        (PEOPLE,),
    ),
    Mutant(
        "a call is judged by what it read alone",
        "a tool would be told what was encoded into what its caller had said before",
        SINKS,
        "id in cone and id != call]",
        "id in self._said[call].metadata.parents]",
        (CALLS,),
    ),
    Mutant(
        "whoever learns of a call is as good as its readers",
        "the world would be told what a named agent may know",
        SINKS,
        "for id in behind if id not in offered), use.audience, self.known_to)",
        "for id in behind if id not in offered), self._said[call].metadata.audience, self.known_to)",
        (f"{RULES}::test_a_call_over_what_the_world_may_not_know_is_refused_and_tells_no_words", TOOLS),
    ),
    Mutant(
        "every list of its tools is open to whom an agent calls",
        "a call would tell the world what a list says that it was not chosen from",
        SINKS,
        "return frozenset(id for id in parents if lists.fullmatch(id))",
        'return frozenset(f"{caller}.{LISTING}{number}" for number in range(9))',
        (f"{TOOLS}::test_who_learns_the_arguments_of_a_call_may_learn_its_own_list_but_no_other",),
    ),
    Mutant(
        "a list of tools is for all who learn of any of them",
        "the description of a tool that tells nobody would reach other agents",
        "agentcho/games/play/tool_turn.py",
        "Audience(frozenset.intersection(*known) | {author}) if known else EVERYONE",
        "Audience(frozenset.union(*known) | {author}) if len(known) == len(audiences) else EVERYONE",
        (f"{TOOLS}::test_a_list_of_tools_is_for_those_who_learn_the_arguments_of_all",),
    ),
    Mutant(
        "one of an audience is enough",
        "two would learn what one of them may know",
        SINKS,
        "if not known(id).covers(to))",
        "if not (known(id).covers(to) or (to.members and known(id).members and to.members & known(id).members)))",
        (CALLS,),
    ),
    Mutant(
        "deny lets calls run",
        "who refuses leaks would tell a tool what nobody may know",
        SINKS,
        'leakage != "audit"',
        'leakage == "enforce"',
        (CALLS, TOOLS),
    ),
    Mutant(
        "an unknown cone is clean",
        "a call of which nobody knows what it was made from would run",
        SINKS,
        'raise LeakageError.sink(caller, use.name, f"{_UNKNOWN}. {_ALLOW}", ())',
        "return",
        (f"{RULES}::test_an_unknown_cone_is_never_clean",),
    ),
    Mutant(
        "untrusted words are trusted in another mouth",
        "who writes a web page could have one agent tell another what to do",
        SINKS,
        "yield from (*message.metadata.parents, *message.act.shown)\n",
        "yield from ()\n",
        (f"{RULES}::test_untrusted_words_stay_so_however_often_they_are_passed_on", TOOLS),
    ),
    Mutant(
        "a release is trusted",
        "untrusted words would be clean once their speaker repeats them",
        SINKS,
        "(message.act.released, message.act.call)",
        "(message.act.call,)",
        (f"{RULES}::test_untrusted_words_stay_so_however_often_they_are_passed_on", CALLS),
    ),
    Mutant(
        "a trusted tool launders what it is given",
        "untrusted words would be clean once a tool repeats them",
        SINKS,
        "(message.act.released, message.act.call)",
        "(message.act.released,)",
        (
            f"{RULES}::test_a_trusted_result_is_in_nobodys_way_unless_its_arguments_were_not_to_be_trusted",
            CALLS,
        ),
    ),
    Mutant(
        "an effect of untrusted words is let through",
        "whoever writes a mail could have money sent",
        SINKS,
        "self._trust.untrusted(behind) if use.effect else ()",
        "()",
        (CALLS, TOOLS),
    ),
    Mutant(
        "a call runs before it is judged",
        "the refusal would come when the money is sent",
        "agentcho/games/play/tool_turn.py",
        "        self._game.messages.check_call(said.id, use, self._speech.asked.release)\n"
        "        self._follow(said.id)\n"
        "        pending = PendingResult(call=said.id, ids=ids, use=use, to=to, charge=charge)\n"
        "        self._follow(await self._result(tool, call, pending))\n",
        "        self._follow(said.id)\n"
        "        pending = PendingResult(call=said.id, ids=ids, use=use, to=to, charge=charge)\n"
        "        self._follow(await self._result(tool, call, pending))\n"
        "        self._game.messages.check_call(said.id, use, self._speech.asked.release)\n",
        (CALLS, TOOLS),
    ),
    Mutant(
        "a result needs no call",
        "a result that came of nothing on record would be clean",
        FOUND,
        'raise Unknown(f"{made.named} does not say which call it came from")',
        "return frozenset(), made.use",
        (f"{AUDIT}::test_a_result_that_does_not_say_where_it_comes_from_is_never_clean",),
    ),
    Mutant(
        "an audit trusts what it cannot trace",
        "words whose sources are not on record would have an effect, and nobody would be told",
        FOUND,
        "if use.effect and None in trusted:",
        "if False:",
        (f"{AUDIT}::test_words_that_stand_before_their_sources_are_never_trusted",),
    ),
    Mutant(
        "a call that was begun is forgotten",
        "a call of which nobody knows what came of it would be clean",
        "agentcho/audit/subject.py",
        "if all(entry.act.call != id for entry",
        "if not all(entry.act.call != id for entry",
        (f"{RUNS}::test_a_call_that_was_begun_and_has_no_result_is_never_clean",),
    ),
    Mutant(
        "agents of different clearance may share a server",
        "what one tells it another may be told, and no audit would say so",
        "agentcho/audit/finders.py",
        "hidden = game.unknown_to(Audience(frozenset({reader})), told)",
        "hidden = game.unknown_to(Audience(frozenset()), told)",
        (f"{AUDIT}::test_a_server_that_agents_of_different_clearance_share_is_a_finding",),
    ),
)

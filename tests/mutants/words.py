"""Mutants of the rule for words: what it refuses, what it charges to whom, and how an audit judges it."""

from __future__ import annotations

from .mutant import Mutant

ADMITTED = "tests/leaks/words/test_admitted.py"
RULE = "tests/leaks/words/test_rule.py"
OWED = "tests/leaks/words/test_owed.py"
AUDIT = "tests/audit/test_words.py"
RESULTS = "tests/leaks/words/test_results.py"

WORDS = (
    Mutant(
        "what alternatives share is counted twice",
        "a union would be charged more than it tells, and its bound would be no count",
        "agentcho/protocol/schema_cardinality.py",
        "total += each.count() - (self.count(shared) if shared else 0)",
        "total += each.count()",
        (ADMITTED,),
    ),
    Mutant(
        "that a field is left out is no value",
        "whether an optional field is there would tell something for nothing",
        "agentcho/protocol/schema_cardinality.py",
        "total = _bounded(total * (count(values) + (not needed)))",
        "total = _bounded(total * count(values))",
        (ADMITTED,),
    ),
    Mutant(
        "a secret ends at who repeats it",
        "what was told of a secret would be its owner's no longer once it is told on",
        "agentcho/provenance/declassification.py",
        "over = [] if (here, reader) in known else [*self._hidden(self._sources(here), reader)]",
        "over = list[str]()",
        (RULE, OWED),
    ),
    Mutant(
        "an answer is told as it was sampled",
        "its spelling and its token ids would tell more than the values that are charged",
        "agentcho/games/play/turn.py",
        "heard = Audience(frozenset({author})) if retold else spoken_to",
        "heard = spoken_to",
        (RULE,),
    ),
    Mutant(
        "an answer keeps its spelling",
        "spaces and the order of keys would tell more than the values that are charged",
        "agentcho/provenance/declassification.py",
        "return canonical(value) if contains(admitted_values(schema), value) else None",
        "return text if contains(admitted_values(schema), value) else None",
        (RULE,),
    ),
    Mutant(
        "an answer that was not charged is told",
        "what a schema does not admit would be told all the same",
        "agentcho/provenance/declassification.py",
        "return canonical(value) if contains(admitted_values(schema), value) else None",
        "return canonical(value)",
        (RULE,),
    ),
    Mutant(
        "the result of a tool is nobody's words",
        "what an agent may not say it would have a tool say to those who read its results",
        "agentcho/games/play/tool_turn.py",
        "charge = self._game.turns.charge_result(self._speech._replace(to=to))",
        "charge = None",
        (RESULTS,),
    ),
    Mutant(
        "the ledger leaves out what tools say",
        "an audit would call bounded what a tool had told others without any bound",
        "agentcho/audit/words.py",
        " or entry.act.call is not None",
        "",
        (RESULTS,),
    ),
    Mutant(
        "a budget that is never used up",
        "charges would be listed, and bound nothing",
        "agentcho/provenance/declassification.py",
        "charge.bits > left + LEAST:",
        "charge.bits > left + 1000:",
        (RULE,),
    ),
    Mutant(
        "charges do not add up",
        "a secret could be told bit by bit",
        "agentcho/provenance/declassification.py",
        "self._bits[owner, reader] = self._bits.get((owner, reader), 0.0) + (charge.bits or 0.0)",
        "self._bits[owner, reader] = charge.bits or 0.0",
        (RULE,),
    ),
    Mutant(
        "who comes late has heard nothing",
        "an agent that joins would have a budget of its own beside that of everyone",
        "agentcho/provenance/declassification.py",
        "            self._bits |= {(owner, reader): bits for owner, bits in public.items()}\n",
        "",
        (RULE,),
    ),
    Mutant(
        "a private prompt is in nobody's way",
        "what the code puts before an agent in private would be free to tell",
        "agentcho/provenance/declassification.py",
        "private = saying.prompt is not None and others != NOBODY",
        "private = False",
        (RULE,),
    ),
    Mutant(
        "a refused turn takes its coins",
        "what an agent says next would depend on how much others had told",
        "agentcho/games/play/turn.py",
        "            self._taken[speech.author] -= 1\n",
        "",
        (RULE,),
    ),
    Mutant(
        "a refusal names what the speaker may not read",
        "an error would tell of messages that are hidden",
        "agentcho/provenance/declassification.py",
        "if id == prompt or self._audience(id).includes(author)]",
        "]",
        (RULE,),
    ),
    Mutant(
        "a refusal names an owner whom the speaker does not know of",
        "an error would tell whose secrets others had passed on",
        "agentcho/provenance/declassification.py",
        'whose = owner if self._sees(saying, owner) else "others"',
        "whose = owner",
        (RULE,),
    ),
    Mutant(
        "a line that is not charged tells nothing",
        "a transcript without its charges would be of 0 bits",
        "agentcho/audit/words.py",
        'raise Unaccounted(f"message {id} does not say how much it can tell")',
        "return Sum()",
        (AUDIT,),
    ),
    Mutant(
        "the bits on record are taken as they are",
        "a run could charge what it likes, and its audit would repeat it",
        "agentcho/audit/words.py",
        "if charge.bits is None or abs(bits - charge.bits) > LEAST:",
        "if charge.bits is None:",
        (AUDIT,),
    ),
    Mutant(
        "who was charged is taken as it is",
        "a run could leave a reader out, and its audit would not see it",
        "agentcho/audit/words.py",
        "if not {reader, EVERYBODY} & charged.get(owner, set()):",
        "if False:",
        (AUDIT,),
    ),
    Mutant(
        "what is said is one of the choices, surely",
        "a line could say anything and count as one of two",
        "agentcho/audit/words.py",
        "if not any(each == said or (entry.ended and each.startswith(said)) for each in choices):",
        "if not choices:",
        (AUDIT,),
    ),
    Mutant(
        "what nobody can account for is no doubt",
        "an audit would be clean of which it is not known what was told",
        "agentcho/audit/judgement.py",
        'if f.rule == rule.code and f.status != "gone"',
        'if f.rule == rule.code and f.status == "gone"',
        (AUDIT,),
    ),
)
